/* SPDX-License-Identifier: Apache-2.0 */
/* test_audit.c - mirrors src/proof/audit.c: what was sent and not planned, or
 * planned and not sent, is found. */
#include "tests/test.h"
#include "proof/audit.h"

struct drill {
    int calls, planned_calls;
    int64_t planned_bytes;
    bool updates; /* sent by the one step of the two that updates */
};

static status body(void *argument, struct group *world)
{
    const struct drill *drill = argument;
    struct team team = {.world = world};
    struct exchanges plan = {.count = drill->planned_calls > 0};
    double x = 1, all[2];

    plan.items[0] = (struct exchange){
        .group = {GROUP_WORLD, 0}, .label = "world", .what = SENT_NORM,
        .kind = COMM_ALL_GATHER, .size = 2,
        .calls = drill->planned_calls, .bytes = drill->planned_bytes,
        .updates = drill->updates};
    audit_begin(&team);
    for (int i = 0; i < (drill->updates ? 1 : 2) * drill->calls; i++)
        TRY(comm_all_gather(world, tensor_1d(all, DTYPE_F64, 2),
                            tensor_1d(&x, DTYPE_F64, 1)));
    return audit_traffic(&team, &plan,
                         &(struct exchange_steps){.made = 2, .updated = 1});
}

TEST(what_differs_is_found)
{
    static const struct {
        struct drill drill;
        const char *words; /* NULL: nothing differs */
    } rows[] = {
        {{3, 3, 24, false}, NULL},
        {{0, 0, 0, false}, NULL},
        {{3, 3, 24, true}, NULL}, /* a step was skipped */
        {{2, 3, 24, true}, "sent 16 bytes in 2 calls, the plan says 24 in 3"},
        {{3, 3, 32, false}, "sent 48 bytes in 6 calls, the plan says 64 in 6"},
        {{2, 3, 24, false}, "sent 32 bytes in 4 calls, the plan says 48 in 6"},
        {{1, 0, 0, false}, "sent 16 bytes in 2 calls, the plan says 0 in 0"},
        {{0, 1, 8, false}, "all-gather on group world: sent 0 bytes in 0"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct drill drill = rows[i].drill;
        const status result = ranks_run(2, body, &drill);

        if (rows[i].words == NULL) IS_OK(result);
        else FAILS(result, ERR_VERIFY, rows[i].words);
        status_clear();
    }
}

TEST_MAIN(what_differs_is_found)
