/* SPDX-License-Identifier: Apache-2.0 */
/* audit.c - a comparison of the messages that a rank sent with the plan. */
#include "proof/audit.h"

#include "comm/traffic.h"

void audit_begin(struct team *team)
{
    if (team->world != NULL) comm_traffic_reset(team->world);
}

/* No plan has agreements. */
static int leave_agreements(struct traffic_row *rows, int count)
{
    int kept = 0;

    for (int i = 0; i < count; i++)
        if (rows[i].kind != COMM_AGREE) rows[kept++] = rows[i];
    return kept;
}

static status compare(const char *group, enum comm_kind kind,
                      const int64_t sent[SENT_SUMS],
                      const int64_t planned[SENT_SUMS])
{
    const int calls = SENT_CALLS, bytes = SENT_BYTES;

    if (sent[calls] != planned[calls] || sent[bytes] != planned[bytes])
        FAIL(ERR_VERIFY, "%s on group %s: sent %lld bytes in %lld calls, the "
                         "plan says %lld in %lld", comm_kind_name(kind), group,
             (long long)sent[bytes], (long long)sent[calls],
             (long long)planned[bytes], (long long)planned[calls]);
    if (sent[SENT_BETWEEN] == planned[SENT_BETWEEN]) return OK;
    FAIL(ERR_VERIFY, "%s on group %s: sent %lld of %lld bytes to other nodes, "
                     "the plan says %lld", comm_kind_name(kind), group,
         (long long)sent[SENT_BETWEEN], (long long)sent[bytes],
         (long long)planned[SENT_BETWEEN]);
}

/* Whether the plan says what a group sends to other nodes. */
static bool is_split(const struct team *team, struct group_id group)
{
    const struct mesh *mesh = &team->mesh;

    return group_id_equal(group, mesh_axis_group_id(mesh, AXIS_EXPERT)) &&
           (mesh->node == 0 || mesh->inside[AXIS_EXPERT] > 0);
}

/* Whether choices of tokens decide how often and how much a group sends. */
static bool is_routed(const struct exchanges *plan, struct group_id group,
                      enum comm_kind kind)
{
    for (int i = 0; i < plan->count; i++)
        if (plan->items[i].routed && plan->items[i].kind == kind &&
            group_id_equal(plan->items[i].group, group))
            return true;
    return false;
}

status audit_traffic(const struct team *team, const struct exchanges *plan,
                     const struct exchange_steps *steps)
{
    struct traffic_row rows[TRAFFIC_ROWS_MAX];
    int count;

    if (team->world == NULL) return OK;
    count = leave_agreements(
        rows, comm_traffic(team->world, rows, TRAFFIC_ROWS_MAX));
    for (int i = 0; i < count; i++) {
        const int64_t sent[SENT_SUMS] = {
            rows[i].calls, rows[i].bytes,
            is_split(team, rows[i].id) ? rows[i].between : 0};
        int64_t planned[SENT_SUMS];

        exchanges_sum(plan, rows[i].id, rows[i].kind, steps, planned);
        if (is_routed(plan, rows[i].id, rows[i].kind)) {
            planned[SENT_CALLS] = steps->routed_calls;
            planned[SENT_BYTES] = steps->routed_bytes;
            planned[SENT_BETWEEN] = steps->routed_between;
        }
        TRY(compare(rows[i].group, rows[i].kind, sent, planned));
    }
    for (int i = 0; i < plan->count; i++) { /* what was planned, was done */
        const struct exchange *e = &plan->items[i];
        const int64_t times = e->updates ? steps->updated : steps->made;
        const int64_t none[SENT_SUMS] = {0};
        const int64_t planned[SENT_SUMS] = {
            e->routed ? steps->routed_calls : times * e->calls,
            e->routed ? steps->routed_bytes : times * e->bytes};
        int j = 0;

        while (j < count && (rows[j].kind != e->kind ||
                             !group_id_equal(rows[j].id, e->group)))
            j++;
        if (j == count) TRY(compare(e->label, e->kind, none, planned));
    }
    return OK;
}
