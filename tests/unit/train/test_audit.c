/* SPDX-License-Identifier: Apache-2.0 */
/* test_audit.c - mirrors src/train/audit.c: what was sent and not planned, or
 * planned and not sent, is found. */
#include "tests/test.h"
#include "train/audit.h"

struct drill { int calls, planned_calls; int64_t planned_bytes; };

static status body(void *argument, struct group *world)
{
    const struct drill *drill = argument;
    struct team team = {.world = world};
    struct exchanges plan = {.count = drill->planned_calls > 0};
    double x = 1, all[2];

    plan.items[0] = (struct exchange){
        .group = "world", .what = "drill", .kind = COMM_ALL_GATHER, .size = 2,
        .calls = drill->planned_calls, .bytes = drill->planned_bytes};
    audit_begin(&team);
    for (int i = 0; i < 2 * drill->calls; i++)
        TRY(comm_all_gather(world, tensor_1d(all, DTYPE_F64, 2),
                            tensor_1d(&x, DTYPE_F64, 1)));
    return audit_traffic(&team, &plan, 2); /* two steps */
}

TEST(what_differs_is_found)
{
    static const struct {
        struct drill drill;
        const char *words; /* NULL: nothing differs */
    } rows[] = {
        {{3, 3, 24}, NULL},
        {{0, 0, 0}, NULL},
        {{3, 3, 32}, "sent 48 bytes in 6 calls, the plan says 64 in 6"},
        {{2, 3, 24}, "sent 32 bytes in 4 calls, the plan says 48 in 6"},
        {{1, 0, 0}, "sent 16 bytes in 2 calls, the plan says 0 in 0"},
        {{0, 1, 8}, "all-gather on group world: sent 0 bytes in 0 calls"},
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
