/* SPDX-License-Identifier: Apache-2.0 */
/* audit.c - a comparison of the messages that a rank sent with the plan. */
#include "proof/audit.h"

#include <string.h>

#include "comm/traffic.h"

void audit_begin(struct team *team)
{
    if (team->world != NULL) comm_traffic_reset(team->world);
}

/* Adds rows of other phases of the same group and kind to the first. */
static int merge(struct traffic_row *rows, int count)
{
    int kept = 0;

    for (int i = 0; i < count; i++) {
        int j = 0;

        if (rows[i].kind == COMM_AGREE) continue;
        while (j < kept && (rows[j].kind != rows[i].kind ||
                            strcmp(rows[j].group, rows[i].group) != 0))
            j++;
        if (j == kept) {
            rows[kept++] = rows[i];
            continue;
        }
        rows[j].calls += rows[i].calls;
        rows[j].bytes += rows[i].bytes;
    }
    return kept;
}

static status compare(const char *group, enum comm_kind kind,
                      const int64_t sent[2], const int64_t planned[2])
{
    if (sent[0] == planned[0] && sent[1] == planned[1]) return OK;
    FAIL(ERR_VERIFY, "%s on group %s: sent %lld bytes in %lld calls, the plan "
                     "says %lld in %lld", comm_kind_name(kind), group,
         (long long)sent[1], (long long)sent[0],
         (long long)planned[1], (long long)planned[0]);
}

/* Whether choices of tokens decide how often and how much a group sends. */
static bool is_routed(const struct exchanges *plan, const char *group,
                      enum comm_kind kind)
{
    for (int i = 0; i < plan->count; i++)
        if (plan->items[i].routed && plan->items[i].kind == kind &&
            strcmp(plan->items[i].label, group) == 0)
            return true;
    return false;
}

status audit_traffic(const struct team *team, const struct exchanges *plan,
                     const struct exchange_steps *steps)
{
    struct traffic_row rows[TRAFFIC_ROWS_MAX];
    int count;

    if (team->world == NULL) return OK;
    count = merge(rows, comm_traffic(team->world, rows, TRAFFIC_ROWS_MAX));
    for (int i = 0; i < count; i++) {
        const int64_t sent[2] = {rows[i].calls, rows[i].bytes};
        int64_t planned[2];

        exchanges_sum(plan, rows[i].group, rows[i].kind, steps,
                      &planned[0], &planned[1]);
        if (is_routed(plan, rows[i].group, rows[i].kind)) {
            planned[0] = steps->routed_calls;
            planned[1] = steps->routed_bytes;
        }
        TRY(compare(rows[i].group, rows[i].kind, sent, planned));
    }
    for (int i = 0; i < plan->count; i++) { /* what was planned, was done */
        const struct exchange *e = &plan->items[i];
        const int64_t times = e->updates ? steps->updated : steps->made;
        const int64_t none[2] = {0, 0};
        const int64_t planned[2] = {
            e->routed ? steps->routed_calls : times * e->calls,
            e->routed ? steps->routed_bytes : times * e->bytes};
        int j = 0;

        while (j < count && (rows[j].kind != e->kind ||
                             strcmp(rows[j].group, e->label) != 0))
            j++;
        if (j == count) TRY(compare(e->label, e->kind, none, planned));
    }
    return OK;
}
