/* SPDX-License-Identifier: Apache-2.0 */
/* test_lifetime_check.c - mirrors src/comm/lifetime_check.c, and the two modes
 * of src/base/check.c: whatever the timing, a forbidden use of a call's memory
 * while it is under way is found, and an allowed one is left alone. */
#include "comm/lifetime_check.h"

#include <math.h>
#include "comm/call_sums.h"
#include "tests/test.h"

enum { RANKS = 2, N = 24 };

enum mistake { NONE, READS_EARLY, WRITES_INPUT, WRITES_OUTPUT, GIVES_BACK,
               STARTS_IN_OUTPUT, CALLS_IN_OUTPUT, SENDS_CHANGED };

struct room {
    float own[N], all[RANKS * N], other[RANKS * N];
};

static struct comm_call gather_of(struct room *room)
{
    return (struct comm_call){.kind = COMM_ALL_GATHER,
                              .in = tensor_1d(room->own, DTYPE_F32, N),
                              .out = tensor_1d(room->all, DTYPE_F32,
                                               RANKS * N)};
}

/* Meanwhile, the mistake. */
static status meanwhile(struct group *world, struct room *room,
                        enum mistake mistake)
{
    struct comm_call second = gather_of(room);
    struct comm_handle handle = {0};
    status result, waited;

    switch (mistake) {
    case READS_EARLY:
        if (isnan(room->all[0]) != (check_lives() == CHECK_LATE))
            FAIL(ERR_FORMAT, "found %g", (double)room->all[0]);
        return OK;
    case WRITES_INPUT:
        room->own[3]++;
        return OK;
    case WRITES_OUTPUT:
        room->all[N] = 1;
        return OK;
    case GIVES_BACK:
        return lives_end(room->all + N, 4, "the room");
    case STARTS_IN_OUTPUT:
        second.in.data = room->all;
        second.out.data = room->other;
        result = comm_start(world, &second, &handle);
        waited = comm_wait(&handle);
        return result != OK ? result : waited;
    case CALLS_IN_OUTPUT:
        second.out.data = room->other;
        second.in.data = room->all;
        return comm_run(world, &second);
    default:
        return OK;
    }
}

static status gather_body(void *argument, struct group *world)
{
    static _Thread_local struct room room;
    const struct comm_call call = gather_of(&room);
    struct comm_handle handle;
    status result, waited;

    for (int i = 0; i < N; i++) room.own[i] = (float)(world->rank * N + i);
    TRY(comm_start(world, &call, &handle));
    result = meanwhile(world, &room, *(enum mistake *)argument);
    waited = comm_wait(&handle);
    TRY(result);
    TRY(waited);
    for (int i = 0; i < RANKS * N; i++)
        if (room.all[i] != (float)i) FAIL(ERR_FORMAT, "element %d", i);
    return lives_end(room.all, sizeof room.all, "the room");
}

/* Sends are read when the other side likes; what is sent stays as it is. */
static status send_body(void *argument, struct group *world)
{
    const bool changes = *(enum mistake *)argument == SENDS_CHANGED;
    double out[N] = {0}, in[N];
    struct comm_handle handles[2];
    status sent, received;

    for (int i = 0; i < N; i++) out[i] = world->rank + i;
    for (int i = 0; i < 2; i++) {
        const struct comm_call call = {
            .kind = i == 0 ? COMM_SEND : COMM_RECV, .peer = 1 - world->rank,
            .in = tensor_1d(out, DTYPE_F64, N),
            .out = tensor_1d(in, DTYPE_F64, N)};

        TRY(comm_start(world, &call, &handles[i]));
    }
    if (changes) out[1] = 7;
    received = comm_wait(&handles[1]);
    sent = comm_wait(&handles[0]);
    TRY(received);
    TRY(sent);
    for (int i = 0; i < N; i++)
        if (in[i] != 1 - world->rank + i) FAIL(ERR_FORMAT, "element %d", i);
    return OK;
}

/* A fault that was asked for flips a bit of what rank 0 adds, after the hash of
 * it was taken. That is no mistake; another number written meanwhile is one. */
static status flip_body(void *argument, struct group *world)
{
    const bool changes = *(enum mistake *)argument == WRITES_INPUT;
    float own[N], sum[N];
    const struct comm_call call = {.kind = COMM_ALL_REDUCE,
                                   .in = tensor_1d(own, DTYPE_F32, N),
                                   .out = tensor_1d(sum, DTYPE_F32, N)};
    struct call_sums sums;
    struct comm_handle handle;
    status result;

    for (int i = 0; i < N; i++) own[i] = 1;
    TRY(call_sums_build(&sums));
    sums.flips = world->rank == 0;
    call_sums_begin(&sums, world, 0);
    result = comm_start(world, &call, &handle);
    if (changes) own[3]++;
    if (result == OK) result = comm_wait(&handle);
    call_sums_end(world);
    call_sums_free(&sums);
    TRY(result);
    if (sum[0] == RANKS || sum[1] != RANKS)
        FAIL(ERR_FORMAT, "sums of %g and %g", (double)sum[0], (double)sum[1]);
    return OK;
}

static const struct {
    enum mistake mistake;
    status (*body)(void *argument, struct group *world);
    const char *words;
} mistakes[] = {
    {NONE, gather_body, NULL},
    {READS_EARLY, gather_body, NULL},
    {WRITES_INPUT, gather_body,
     "all-gather on group world: what it sends was written while"},
    {WRITES_OUTPUT, gather_body,
     "all-gather on group world: where it goes was written while"},
    {GIVES_BACK, gather_body,
     "the room is given back while all-gather on group world"},
    {STARTS_IN_OUTPUT, gather_body, "uses memory of all-gather"},
    {CALLS_IN_OUTPUT, gather_body, "uses memory of all-gather"},
    {NONE, send_body, NULL},
    {SENDS_CHANGED, send_body,
     "send on group world: what it sends was written while"},
    {NONE, flip_body, NULL},
    {WRITES_INPUT, flip_body,
     "all-reduce on group world: what it sends was written while"},
};

TEST(mistakes_are_found_whenever_messages_move)
{
    for (int mode = CHECK_LATE; mode <= CHECK_EARLY; mode++) {
        check_choose((enum check_lives)mode);
        for (int i = 0; i < ROWS(mistakes); i++) {
            enum mistake mistake = mistakes[i].mistake;

            if (mistakes[i].words == NULL)
                IS_OK(ranks_run(RANKS, mistakes[i].body, &mistake));
            else
                FAILS(ranks_run(RANKS, mistakes[i].body, &mistake),
                      ERR_VERIFY, mistakes[i].words);
        }
    }
    check_choose(CHECK_OFF);
}

/* ---- memory of a device ---- */

enum { OWN, ALL, EARLY, LATER, PARTS };

struct apart {
    struct device *device;
    struct stream stream;
    float *part[PARTS]; /* [RANKS * N] each */
};

static status apart_begin(struct apart *a, const struct group *world,
                          enum device_haste haste)
{
    const struct device_choice choice = {.kind = DEVICE_FAR, .haste = haste,
                                         .threads = 1,
                                         .launch_bytes = 1 << 14};
    float own[N];
    void *memory;

    *a = (struct apart){0};
    TRY(device_open(&a->device, &choice));
    a->stream.device = a->device;
    device_join(a->device, &a->stream);
    for (int i = 0; i < PARTS; i++) {
        TRY(device_take(a->device, RANKS * sizeof own, &memory));
        a->part[i] = memory;
    }
    for (int i = 0; i < N; i++) own[i] = (float)(world->rank * N + i);
    return device_write(&a->stream, a->part[OWN], own, sizeof own);
}

static void apart_end(struct apart *a)
{
    for (int i = 0; i < PARTS; i++) device_give(a->device, a->part[i]);
    device_close(a->device);
}

/* Elements that are not what was gathered: all of them, if none is. */
static status count_wrong(struct apart *a, int part, int *wrong, int *nans)
{
    float found[RANKS * N];

    TRY(device_read(&a->stream, found, a->part[part], sizeof found));
    *wrong = *nans = 0;
    for (int i = 0; i < RANKS * N; i++) {
        *wrong += found[i] != (float)i;
        *nans += isnan(found[i]);
    }
    return OK;
}

/* A copy of the outputs that is made before the device waits for the call is
 * NaN; a later one has them; and memory whose life is over is NaN again. */
static status apart_calls(struct apart *a, struct group *world)
{
    const struct comm_call call = {
        .kind = COMM_ALL_GATHER, .in = tensor_1d(a->part[OWN], DTYPE_F32, N),
        .out = tensor_1d(a->part[ALL], DTYPE_F32, RANKS * N)};
    const int64_t bytes = RANKS * N * (int64_t)sizeof(float);
    struct comm_handle handle;
    int wrong, nans, early;
    status given_back;

    TRY(comm_start(world, &call, &handle));
    TRY(device_copy(&a->stream, a->part[EARLY], a->part[ALL], (size_t)bytes));
    TRY(count_wrong(a, EARLY, &wrong, &early));
    given_back = lives_end(a->part[ALL], bytes, "the room");
    status_clear();
    TRY(comm_leave(&handle));
    TRY(device_copy(&a->stream, a->part[LATER], a->part[ALL], (size_t)bytes));
    TRY(lives_end(a->part[ALL], bytes, "the room"));
    TRY(comm_wait(&handle));
    if (given_back != ERR_VERIFY) FAIL(ERR_FORMAT, "given back too early");
    if (early != (check_lives() == CHECK_LATE ? RANKS * N : 0))
        FAIL(ERR_FORMAT, "%d were NaN", early);
    TRY(count_wrong(a, LATER, &wrong, &nans));
    if (wrong > 0) FAIL(ERR_FORMAT, "%d are wrong", wrong);
    TRY(count_wrong(a, ALL, &wrong, &nans));
    if (nans != RANKS * N) FAIL(ERR_FORMAT, "%d are dead", nans);
    return OK;
}

static status apart_body(void *argument, struct group *world)
{
    struct apart apart;
    status result = apart_begin(&apart, world,
                                *(const enum device_haste *)argument);

    if (result == OK) result = apart_calls(&apart, world);
    apart_end(&apart);
    return result;
}

TEST(memory_of_a_device_is_filled_in_the_order_of_its_stream)
{
    enum device_haste haste[] = {DEVICE_LATE, DEVICE_EARLY};

    for (int mode = CHECK_LATE; mode <= CHECK_EARLY; mode++)
        for (int i = 0; i < ROWS(haste); i++) {
            check_choose((enum check_lives)mode);
            IS_OK(ranks_run(RANKS, apart_body, &haste[i]));
        }
    check_choose(CHECK_OFF);
}

/* A call that is waited for takes those before it along. */
static status queue_body(void *argument, struct group *world)
{
    static _Thread_local struct room rooms[3];
    struct comm_handle handles[3];

    (void)argument;
    for (int c = 0; c < 3; c++) {
        const struct comm_call call = gather_of(&rooms[c]);

        for (int i = 0; i < N; i++)
            rooms[c].own[i] = (float)(world->rank + c);
        TRY(comm_start(world, &call, &handles[c]));
    }
    for (int c = 2; c >= 0; c--) TRY(comm_wait(&handles[c]));
    for (int c = 0; c < 3; c++)
        if (rooms[c].all[N] != (float)(1 + c)) FAIL(ERR_FORMAT, "%d", c);
    return OK;
}

TEST(calls_go_in_their_order)
{
    for (int mode = CHECK_OFF; mode <= CHECK_EARLY; mode++) {
        check_choose((enum check_lives)mode);
        IS_OK(ranks_run(RANKS, queue_body, NULL));
    }
    check_choose(CHECK_OFF);
}

/* Ranks wait for the calls of two groups in different orders, then one for a
 * call that the other makes only when it has waited. Calls that are held back
 * begin all the same. */
static status crossing_body(void *argument, struct group *world)
{
    static _Thread_local struct room rooms[3];
    struct group other = {0};
    struct comm_handle handles[3];
    double sum = 1;
    const struct tensor one = tensor_1d(&sum, DTYPE_F64, 1);

    (void)argument;
    group_limit_ms(world, 20000);
    TRY(group_build(&other, world, "other", (const int[]){0, 1}, RANKS));
    for (int c = 0; c < 3; c++) {
        const struct comm_call call = gather_of(&rooms[c]);

        rooms[c].own[0] = (float)(world->rank + c);
        TRY(comm_start(c == 1 ? &other : world, &call, &handles[c]));
    }
    for (int i = 0; i < 2; i++)
        TRY(comm_wait(&handles[i == world->rank ? 0 : 1]));
    if (world->rank == 0) TRY(comm_all_reduce(&other, one, one, REDUCE_SUM));
    TRY(comm_wait(&handles[2]));
    if (world->rank == 1) TRY(comm_all_reduce(&other, one, one, REDUCE_SUM));
    for (int c = 0; c < 3; c++)
        if (rooms[c].all[N] != (float)(1 + c)) FAIL(ERR_FORMAT, "%d", c);
    group_free(&other);
    return sum == RANKS ? OK : ERR_FORMAT;
}

TEST(calls_that_are_held_back_keep_nobody)
{
    for (int mode = CHECK_OFF; mode <= CHECK_LATE; mode++) {
        check_choose((enum check_lives)mode);
        IS_OK(ranks_run(RANKS, crossing_body, NULL));
    }
    check_choose(CHECK_OFF);
}

TEST(fills_are_nan_in_every_type)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F64, DTYPE_BF16,
                                       DTYPE_F16};
    static const enum check_fill fills[] = {FILL_DEAD, FILL_UNDER_WAY};
    double data[4];

    for (int f = 0; f < 2; f++) {
        check_fill(data, sizeof data, fills[f]);
        CHECK(check_filled(data, sizeof data, fills[f]));
        CHECK(!check_filled(data, sizeof data, fills[1 - f]));
        for (int t = 0; t < ROWS(types); t++) {
            const struct tensor view = tensor_1d(data, types[t], 4);

            for (int i = 0; i < 4; i++) CHECK(isnan(tensor_get(&view, i)));
        }
    }
}

TEST_MAIN(mistakes_are_found_whenever_messages_move,
          memory_of_a_device_is_filled_in_the_order_of_its_stream,
          calls_go_in_their_order, calls_that_are_held_back_keep_nobody,
          fills_are_nan_in_every_type)
