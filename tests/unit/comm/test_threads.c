/* SPDX-License-Identifier: Apache-2.0 */
/* test_threads.c - mirrors src/comm/threads.c: messages, and ranks that are
 * late, leave or fail. */
#include <time.h>
#include "comm/comm.h"
#include "tests/test.h"

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sleep_ms(int ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

    nanosleep(&t, NULL);
}

static struct tensor one(int64_t *value)
{
    return tensor_1d(value, DTYPE_I64, 1);
}

static status tags_body(void *argument, struct group *world)
{
    int64_t a = 5, b = 6;

    (void)argument;
    if (world->rank == 0) {
        TRY(comm_send(world, one(&a), 1, 7));
        TRY(comm_send(world, one(&b), 1, 7));
        return OK;
    }
    TRY(comm_recv(world, one(&b), 0, 7));
    TRY(comm_recv(world, one(&a), 0, 7));
    if (a != 6 || b != 5)
        FAIL(ERR_VERIFY, "%lld %lld", (long long)b, (long long)a);
    return OK;
}

TEST(messages_of_a_tag_keep_their_order)
{
    IS_OK(ranks_run(2, tags_body, NULL));
}

/* A token around 16 ranks, more than there are cores. */
static status ring_body(void *argument, struct group *world)
{
    const int next = (world->rank + 1) % world->size;
    const int before = (world->rank + world->size - 1) % world->size;
    int64_t token = 0;

    for (int i = 0; i < *(int *)argument; i++) {
        if (world->rank > 0 || i > 0) {
            TRY(comm_recv(world, one(&token), before, 0));
            token++;
        }
        if (world->rank < world->size - 1 || i + 1 < *(int *)argument)
            TRY(comm_send(world, one(&token), next, 0));
    }
    if (world->rank == world->size - 1 &&
        token != (int64_t)world->size * *(int *)argument - 1)
        FAIL(ERR_VERIFY, "the token is %lld", (long long)token);
    return OK;
}

TEST(sixteen_ranks_pass_a_token)
{
    int rounds = 20;

    IS_OK(ranks_run(16, ring_body, &rounds));
}

static status size_body(void *argument, struct group *world)
{
    int64_t data[4] = {0};

    (void)argument;
    if (world->rank == 0)
        return comm_send(world, tensor_1d(data, DTYPE_I64, 3), 1, 0);
    return comm_recv(world, tensor_1d(data, DTYPE_I64, 4), 0, 0);
}

TEST(another_size_is_an_error_that_names_both)
{
    FAILS(ranks_run(2, size_body, NULL), ERR_PEER, "bytes from rank");
    CHECK(strstr(status_message(), "expected 32 bytes from rank 0, found 24")
          || strstr(status_message(), "rank 1 refused 24 bytes from rank 0"));
}

/* Faults of rank 2, and the sentence that every rank then prints. */
enum drill { NEVER_CALLS, LEAVES, FAILS_ITSELF, DIES_IN_THE_MIDDLE, ABORTS };

struct drill_case {
    enum drill what;
    enum comm_kind kind;
    enum algorithm algorithm;
    status results[6];
    char reasons[6][COMM_REASON_BYTES];
};

static status collective(struct group *world, struct drill_case *c)
{
    static _Thread_local float in[6000], out[6000], scratch[12000];
    const int64_t n = 1000, size = world->size;
    const bool gathers = c->kind == COMM_ALL_GATHER;
    const bool scatters = c->kind == COMM_REDUCE_SCATTER;
    const struct comm_call call = {
        .kind = c->kind, .algorithm = c->algorithm, .scratch = scratch,
        .scratch_bytes = sizeof scratch,
        .out = tensor_1d(out, DTYPE_F32, gathers ? n * size : n),
        .in = tensor_1d(in, DTYPE_F32, scatters ? n * size : n)};

    return comm_run(world, &call);
}

static status victim(struct group *world, struct drill_case *c)
{
    switch (c->what) {
    case NEVER_CALLS:
        sleep_ms(4000); /* longer than the limit; then finds it all over */
        return OK;
    case LEAVES:
        return OK;
    case FAILS_ITSELF:
        FAIL(ERR_IO, "the disk of rank 2 is full");
    case DIES_IN_THE_MIDDLE:
        TRY(collective(world, c));
        FAIL(ERR_DEVICE, "rank 2 lost its device");
    default:
        group_abort(world, "somebody pressed the button");
        return OK;
    }
}

static status drill_body(void *argument, struct group *world)
{
    struct drill_case *c = argument;
    status result = OK;

    /* A busy machine makes other ranks late, too: only waiting is short. */
    group_limit_ms(world, c->what == NEVER_CALLS ? 1500 : 20000);
    if (world->rank == 2) return victim(world, c);
    for (int i = 0; i < 2 && result == OK; i++) result = collective(world, c);
    c->results[world->rank] = result;
    snprintf(c->reasons[world->rank], COMM_REASON_BYTES, "%s",
             status_message());
    return result;
}

TEST(nobody_waits_for_a_rank_that_will_not_come)
{
    static const enum comm_kind kinds[] = {
        COMM_ALL_REDUCE, COMM_REDUCE_SCATTER, COMM_ALL_GATHER, COMM_BROADCAST};
    static const struct { status code; const char *words; } rows[] = {
        [NEVER_CALLS] = {ERR_PEER, "rank 2 has not come within 1.5 s"},
        [LEAVES] = {ERR_PEER, "rank 2 has left"},
        [FAILS_ITSELF] = {ERR_IO, "rank 2: the disk of rank 2 is full"},
        [DIES_IN_THE_MIDDLE] = {ERR_DEVICE, "rank 2: rank 2 lost its device"},
        [ABORTS] = {ERR_PEER, "rank 2 gave up: somebody pressed"},
    };

    for (int what = NEVER_CALLS; what <= ABORTS; what++)
        for (int i = 0; i < ROWS(kinds) * (ALGORITHM_COUNT - 1); i++) {
            struct drill_case c = {
                .what = (enum drill)what, .kind = kinds[i % ROWS(kinds)],
                .algorithm = (enum algorithm)(1 + i / ROWS(kinds))};
            const double before = now_s();

            if (what == NEVER_CALLS && i % 14 != 0) continue; /* slow */
            FAILS(ranks_run(5, drill_body, &c), rows[what].code,
                  rows[what].words);
            CHECK(now_s() - before < 15);
            for (int r = 0; r < 5; r++) {
                if (r == 2 || c.results[r] == OK) continue;
                EQUAL_INT(c.results[r], ERR_PEER);
                CHECK(strstr(c.reasons[r], comm_kind_name(c.kind)) != NULL);
                CHECK(strstr(c.reasons[r], "on group world") != NULL);
                CHECK(strstr(c.reasons[r], "rank 2") != NULL ||
                      what == LEAVES);
            }
            CHECK(c.results[0] != OK || c.results[1] != OK ||
                  c.results[3] != OK || c.results[4] != OK);
        }
}

static status idle_body(void *argument, struct group *world)
{
    float x = 1;
    const struct tensor t = tensor_1d(&x, DTYPE_F32, 1);

    (void)argument;
    if (world->rank == 0) sleep_ms(300);
    TRY(comm_all_reduce(world, t, t, REDUCE_SUM));
    return OK;
}

TEST(waiting_ranks_sleep)
{
    struct timespec before, after;
    double spent;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    IS_OK(ranks_run(16, idle_body, NULL));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    spent = (double)(after.tv_sec - before.tv_sec) +
            1e-9 * (double)(after.tv_nsec - before.tv_nsec);
    CHECK(spent < 0.2); /* 15 ranks that spin for 0.3 s would take 4.5 */
}

/* Which ranks fail, with what; whether they agree on it first. */
struct refusal { int first, end; status code; bool agree; };

static status refuse_body(void *argument, struct group *world)
{
    const struct refusal *r = argument;
    status result = OK;

    if (world->rank >= r->first && world->rank < r->end)
        result = status_hint(status_fail(r->code, __FILE__, __LINE__,
                                         "no such flour"), "take rye");
    return r->agree ? comm_agree(world, result) : result;
}

/* A mistake in the input of all ranks is said once and without a number; a
 * failure of one rank alone has its number. */
TEST(a_refusal_of_all_is_that_of_none)
{
    static const struct { struct refusal refusal; const char *says, *hint; }
    rows[] = {
        {{0, 3, ERR_CONFIG, false}, "no such flour", "take rye"},
        {{0, 3, ERR_MISSING, true}, "no such flour", "take rye"},
        {{0, 1, ERR_CONFIG, true}, "no such flour", "take rye"},
        {{0, 3, ERR_IO, false}, "rank 0: no such flour", ""},
        {{2, 3, ERR_CONFIG, false}, "rank 2: no such flour", ""},
    };

    for (int i = 0; i < 200 * ROWS(rows); i++) { /* some leave early */
        const int row = i % ROWS(rows);
        struct refusal refusal = rows[row].refusal;

        EQUAL_INT(ranks_run(3, refuse_body, &refusal), refusal.code);
        EQUAL_TEXT(status_message(), rows[row].says);
        EQUAL_TEXT(status_hint_text(), rows[row].hint);
        status_clear();
    }
}

TEST(ranks_are_from_1_to_1024)
{
    FAILS(ranks_run(0, idle_body, NULL), ERR_CONFIG, "expected 1 to 1024");
    FAILS(ranks_run(1025, idle_body, NULL), ERR_CONFIG, "expected 1 to 1024");
}

TEST_MAIN(messages_of_a_tag_keep_their_order, sixteen_ranks_pass_a_token,
          another_size_is_an_error_that_names_both,
          nobody_waits_for_a_rank_that_will_not_come, waiting_ranks_sleep,
          a_refusal_of_all_is_that_of_none, ranks_are_from_1_to_1024)
