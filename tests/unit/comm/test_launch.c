/* SPDX-License-Identifier: Apache-2.0 */
/* test_launch.c - mirrors src/comm/launch.c, mpi.c, mpi_world.c and
 * mpi/plugin.c.
 *
 * Started by hand it runs three ranks as threads; tests/cases/mpi.sh starts it
 * under mpirun, where the same body runs over MPI. LOCKSTEP_DRILL makes rank 1
 * late, fail, send another size, asks for another number of ranks, or limits
 * the wait for a rank that never begins. */
#include "comm/launch.h"

#include <sys/mman.h>

#include "comm/progress.h"
#include "tests/test.h"

enum { N = 40007, SCRATCH_BYTES = 1 << 24 };

/* Sums of these are exact in float32. */
static float number(int rank, int64_t i)
{
    return (float)((rank * 31 + i * 7) % 1009);
}

static status reduce_check(struct group *g, struct comm_call *call, float *out)
{
    const int64_t first = call->kind == COMM_ALL_REDUCE ? 0 : g->rank * N;

    TRY(comm_run(g, call));
    for (int64_t i = 0; i < N; i++) {
        float sum = 0;

        for (int r = 0; r < g->size; r++) sum += number(r, first + i);
        if (out[i] != sum)
            FAIL(ERR_VERIFY, "%s by %s: element %lld is %g, expected %g",
                 comm_kind_name(call->kind), algorithm_name(call->algorithm),
                 (long long)i, (double)out[i], (double)sum);
    }
    return OK;
}

static status gather_check(struct group *g, struct comm_call *call, float *out)
{
    TRY(comm_run(g, call));
    for (int r = 0; r < g->size; r++)
        for (int64_t i = 0; i < N; i++)
            if (out[r * N + i] != number(r, i))
                FAIL(ERR_VERIFY, "all-gather by %s: element %lld of rank %d",
                     algorithm_name(call->algorithm), (long long)i, r);
    return OK;
}

static status algorithms_check(struct group *g, float *in, float *out)
{
    const int64_t whole = (int64_t)N * g->size;

    for (int a = 0; a < ALGORITHM_COUNT; a++) {
        struct comm_call call = {
            .kind = COMM_ALL_REDUCE, .algorithm = (enum algorithm)a,
            .in = tensor_1d(in, DTYPE_F32, N),
            .out = tensor_1d(out, DTYPE_F32, N)};

        TRY(reduce_check(g, &call, out));
        call.kind = COMM_REDUCE_SCATTER;
        call.in = tensor_1d(in, DTYPE_F32, whole);
        TRY(reduce_check(g, &call, out));
        call.kind = COMM_ALL_GATHER;
        call.in = tensor_1d(in, DTYPE_F32, N);
        call.out = tensor_1d(out, DTYPE_F32, whole);
        TRY(gather_check(g, &call, out));
    }
    return OK;
}

/* Rank r's block has 1000 r elements. */
static status uneven_check(struct group *g, float *in, float *out)
{
    int64_t counts[64], whole = 0;
    const int64_t mine = 1000 * g->rank;
    struct comm_call call = {.kind = COMM_REDUCE_SCATTER, .in_counts = counts};

    CHECK(g->size <= ROWS(counts));
    for (int r = 0; r < g->size; whole += counts[r++]) counts[r] = 1000 * r;
    for (int a = 0; a < ALGORITHM_COUNT; a++) {
        call.algorithm = (enum algorithm)a;
        call.in = tensor_1d(in, DTYPE_F32, whole);
        call.out = tensor_1d(out, DTYPE_F32, mine);
        TRY(comm_run(g, &call));
        for (int64_t i = 0; i < mine; i++) {
            float sum = 0;

            for (int r = 0; r < g->size; r++)
                sum += number(r, 500 * g->rank * (g->rank - 1) + i);
            if (out[i] != sum) FAIL(ERR_VERIFY, "uneven reduce-scatter");
        }
    }
    call.kind = COMM_ALL_GATHER;
    call.out_counts = counts;
    for (int a = 0; a < ALGORITHM_COUNT; a++) {
        call.algorithm = (enum algorithm)a;
        call.in = tensor_1d(in, DTYPE_F32, mine);
        call.out = tensor_1d(out, DTYPE_F32, whole);
        TRY(comm_run(g, &call));
        for (int r = 0; r < g->size; r++)
            for (int64_t i = 0; i < counts[r]; i++)
                if (out[500 * r * (r - 1) + i] != number(r, i))
                    FAIL(ERR_VERIFY, "uneven all-gather");
    }
    return OK;
}

/* 70 rows, cut alike; then each rank's token of every row to everybody, in
 * pieces of one number. */
static status rows_check(struct group *g, float *in, float *out)
{
    enum { SEVENTY = 70 };
    struct comm_block send[64], receive[64];
    const int64_t size = g->size;
    struct comm_call call = {
        .kind = COMM_REDUCE_SCATTER, .rows = SEVENTY,
        .in = tensor_1d(in, DTYPE_F32, SEVENTY * 5 * size),
        .out = tensor_1d(out, DTYPE_F32, SEVENTY * 5)};

    TRY(comm_run(g, &call));
    for (int64_t p = 0; p < SEVENTY * 5; p++) {
        float sum = 0;

        for (int r = 0; r < size; r++)
            sum += number(r, p / 5 * 5 * size + g->rank * 5 + p % 5);
        if (out[p] != sum) FAIL(ERR_VERIFY, "reduce-scatter of rows");
    }
    call = (struct comm_call){
        .kind = COMM_ALL_GATHER, .rows = SEVENTY,
        .in = tensor_1d(in, DTYPE_F32, SEVENTY * 5),
        .out = tensor_1d(out, DTYPE_F32, SEVENTY * 5 * size)};
    TRY(comm_run(g, &call));
    for (int64_t i = 0; i < SEVENTY * 5 * size; i++)
        if (out[i] != number((int)(i / 5 % size),
                             i / (5 * size) * 5 + i % 5))
            FAIL(ERR_VERIFY, "all-gather of rows");
    call = (struct comm_call){.kind = COMM_EXCHANGE, .send = send,
                              .receive = receive};
    for (int r = 0; r < size; r++) {
        send[r] = (struct comm_block){in + r, 4, 10, 4 * size, 7, 40 * size};
        send[r].plane_stride += 8;
        receive[r] = (struct comm_block){out + 70 * r, 280, 1, 0, 1, 0};
    }
    TRY(comm_run(g, &call));
    for (int64_t i = 0; i < 70 * size; i++)
        if (out[i] != number((int)(i / 70), g->rank + i % 70 * size +
                             i % 70 / 10 * 2))
            FAIL(ERR_VERIFY, "exchange");
    return OK;
}

/* Two in the background, a message around the ranks meanwhile. */
static status overlap_check(struct group *g, float *in, float *out)
{
    struct comm_handle handle[2], send;
    double token = g->rank, got = -1;
    const int right = (g->rank + 1) % g->size;
    const int left = (g->rank + g->size - 1) % g->size;
    struct comm_call call = {.kind = COMM_ALL_GATHER};

    for (int i = 0; i < 2; i++) {
        call.in = tensor_1d(in, DTYPE_F32, N);
        call.out = tensor_1d(out + i * N * g->size, DTYPE_F32, N * g->size);
        TRY(comm_start(g, &call, &handle[i]));
    }
    call = (struct comm_call){.kind = COMM_SEND, .peer = right, .tag = 3,
                              .in = tensor_1d(&token, DTYPE_F64, 1)};
    TRY(comm_start(g, &call, &send));
    TRY(comm_recv(g, tensor_1d(&got, DTYPE_F64, 1), left, 3));
    TRY(comm_wait(&send));
    TRY(comm_wait(&handle[1]));
    TRY(comm_wait(&handle[0]));
    if (got != left || out[N + 5] != number(1 % g->size, 5) ||
        out[N * g->size + 5] != number(0, 5))
        FAIL(ERR_VERIFY, "overlapping calls: %g from rank %d", got, left);
    return OK;
}

/* Eight leaves, whatever the ranks: the bits of the tree. */
static status leaves_check(struct group *g)
{
    double roots[COMM_ROOTS_MAX], tree, out;
    struct comm_root owned[COMM_ROOTS_MAX];
    const int count = comm_roots(8, g->size, g->rank, owned);
    struct comm_call call = {.kind = COMM_ALL_REDUCE, .leaves = 8,
                             .in = tensor_1d(roots, DTYPE_F64, count),
                             .out = tensor_1d(&out, DTYPE_F64, 1)};
    double leaf[8];

    for (int i = 0; i < 8; i++) leaf[i] = 1.0 / (3 + i * i);
    for (int r = 0; r < count; r++) {
        const double *l = leaf + owned[r].first;

        roots[r] = owned[r].leaves == 1   ? l[0]
                   : owned[r].leaves == 2 ? l[0] + l[1]
                   : (l[0] + l[1]) + (l[2] + l[3]);
        if (owned[r].leaves == 8)
            roots[r] += (l[4] + l[5]) + (l[6] + l[7]);
    }
    tree = ((leaf[0] + leaf[1]) + (leaf[2] + leaf[3])) +
           ((leaf[4] + leaf[5]) + (leaf[6] + leaf[7]));
    TRY(comm_run(g, &call));
    if (out != tree) FAIL(ERR_VERIFY, "%a, the tree gives %a", out, tree);
    return OK;
}

/* More rounds than messages of a rank can be under way: all-reduce in place,
 * then a reduce-scatter of which one rank takes nearly all. */
enum { LONG = 5000011 };

static status long_check(struct group *g, struct arena *arena)
{
    struct comm_call call = {.kind = COMM_ALL_REDUCE};
    int64_t counts[64] = {0};
    void *data;

    TRY(arena_take_array(arena, LONG, sizeof(float), &data));
    for (int64_t i = 0; i < LONG; i++) ((float *)data)[i] = number(g->rank, i);
    call.in = call.out = tensor_1d(data, DTYPE_F32, LONG);
    TRY(comm_run(g, &call));
    for (int64_t i = 0; i < LONG; i++) {
        float sum = 0;

        for (int r = 0; r < g->size; r++) sum += number(r, i);
        if (((float *)data)[i] != sum) FAIL(ERR_VERIFY, "long all-reduce");
        ((float *)data)[i] = number(g->rank, i);
    }
    counts[0] = 5;
    counts[g->size - 1] = LONG - 5;
    if (g->size == 1) counts[0] = LONG;
    call.kind = COMM_REDUCE_SCATTER;
    call.in_counts = counts;
    call.out = tensor_1d((float *)data + (g->rank == g->size - 1 &&
                                          g->rank > 0 ? 5 : 0),
                         DTYPE_F32, counts[g->rank]);
    TRY(comm_run(g, &call));
    for (int64_t i = 0; i < counts[g->rank]; i++) {
        const int64_t at = (float *)call.out.data + i - (float *)data;
        float sum = 0;

        for (int r = 0; r < g->size; r++) sum += number(r, at);
        if (((float *)data)[at] != sum)
            FAIL(ERR_VERIFY, "long reduce-scatter");
    }
    return OK;
}

static status drill_run(struct group *g, const char *drill)
{
    float x[4] = {0};
    const bool me = g->rank == 1;

    group_limit_ms(g, strcmp(drill, "late") == 0 ? 1000 : 20000);
    if (strcmp(drill, "late") == 0 && me) {
        sleep(6); /* other ranks may begin late, too */
        return OK;
    }
    if (strcmp(drill, "chain") == 0) {
        /* rank 2 waits for rank 0, which waits for the one that is late */
        if (me) sleep(6);
        group_limit_ms(g, g->rank == 2 ? 2000 : 5000);
        return comm_agree(g, OK);
    }
    if (strcmp(drill, "fail") == 0 && me)
        FAIL(ERR_IO, "the disk of rank 1 is full");
    if (strcmp(drill, "agree") == 0) {
        if (me) status_fail(ERR_IO, __FILE__, __LINE__, "rank 1 has a cold");
        return comm_agree(g, me ? ERR_IO : OK);
    }
    if (strcmp(drill, "size") == 0)
        return comm_broadcast(g, tensor_1d(x, DTYPE_F32, me ? 3 : 4), 0);
    return comm_broadcast(g, tensor_1d(x, DTYPE_F32, 4), 1);
}

/* Rank 1 fails while a large message to it is under way. The memory of the
 * message is freed, and must be there until MPI has ended. */
static status pending_run(struct group *g)
{
    enum { LARGE = 1 << 26 };
    struct arena arena;
    unsigned char page;
    void *data;
    status result;

    group_limit_ms(g, 5000);
    if (g->rank == 1) {
        sleep(1);
        FAIL(ERR_IO, "the disk of rank 1 is full");
    }
    IS_OK(arena_init_planned(&arena, "large", LARGE));
    IS_OK(arena_take(&arena, LARGE, &data));
    result = comm_send(g, tensor_1d(data, DTYPE_U8, LARGE), 1, 0);
    arena_free(&arena);
    data = (void *)(((uintptr_t)data + LARGE / 2) & ~(uintptr_t)4095);
    if (mincore(data, 1, &page) == 0)
        printf("rank %d: memory under way is there\n", g->rank);
    return result;
}

/* A message that nobody took of a group stays its own when the group is built
 * anew, with the same label and ranks: what is received there is the new one.
 * Many groups live at once. */
static status incarnations_check(struct group *g)
{
    enum { GROUPS = 12 };
    struct group groups[GROUPS] = {{0}};
    struct comm_handle handles[GROUPS];
    int members[64];
    int64_t sent[GROUPS], got = -1;
    status result = OK;

    if (g->size == 1) return OK;
    memset(handles, 0, sizeof handles);
    CHECK(g->size <= ROWS(members));
    for (int i = 0; i < g->size; i++) members[i] = g->size - 1 - i;
    for (int i = 0; i < GROUPS; i++)
        TRY(group_build(&groups[i], g, "again", members, g->size));
    for (int i = 0; i < GROUPS && groups[0].rank == 0; i++) {
        struct comm_call call = {.kind = COMM_SEND, .peer = g->size - 1,
                                 .tag = 5};

        sent[i] = 100 + i;
        call.in = tensor_1d(&sent[i], DTYPE_I64, 1);
        TRY(comm_start(&groups[i], &call, &handles[i]));
    }
    /* The last one first: all the others' messages are there by then. */
    for (int i = GROUPS - 1; i >= 0 && groups[0].rank == g->size - 1; i--) {
        TRY(comm_recv(&groups[i], tensor_1d(&got, DTYPE_I64, 1), 0, 5));
        if (got != 100 + i)
            FAIL(ERR_VERIFY, "incarnation %d of a group took the message of "
                             "%lld", i, (long long)(got - 100));
    }
    for (int i = 0; i < GROUPS && groups[0].rank == 0 && result == OK; i++)
        result = comm_wait(&handles[i]);
    TRY(comm_agree(g, result));
    for (int i = 0; i < GROUPS; i++) group_free(&groups[i]);
    return OK;
}

static status all_run(struct group *g, struct arena *arena)
{
    const char *drill = getenv("LOCKSTEP_DRILL");
    const int64_t whole = (int64_t)N * g->size;
    void *in, *out, *scratch;

    if (drill != NULL && strcmp(drill, "pending") == 0) return pending_run(g);
    if (drill != NULL) return drill_run(g, drill);
    group_limit_ms(g, 60000);
    TRY(arena_take_array(arena, (size_t)whole, sizeof(float), &in));
    TRY(arena_take_array(arena, 2 * (size_t)whole, sizeof(float), &out));
    TRY(arena_take(arena, SCRATCH_BYTES, &scratch));
    group_scratch(g, scratch, SCRATCH_BYTES);
    for (int64_t i = 0; i < whole; i++)
        ((float *)in)[i] = number(g->rank, i);
    TRY(algorithms_check(g, in, out));
    TRY(leaves_check(g));
    TRY(uneven_check(g, in, out));
    TRY(rows_check(g, in, out));
    TRY(overlap_check(g, in, out));
    TRY(long_check(g, arena));
    TRY(incarnations_check(g));
    return OK;
}

static status body(void *argument, struct group *world)
{
    struct arena arena;
    status result;

    (void)argument;
    arena_init(&arena, "test", 0);
    result = all_run(world, &arena);
    arena_free(&arena);
    return result;
}

TEST(ranks_do_the_same_however_they_are_launched)
{
    const char *drill = getenv("LOCKSTEP_DRILL");
    const bool counts = drill != NULL && strcmp(drill, "count") == 0;

    const struct launch launch = {
        .ranks = counts ? 77 : launch_rank() < 0 ? 3 : 0,
        .limit_ms = drill != NULL && strcmp(drill, "begin") == 0 ? 1500
                                                               : 60000};

    IS_OK(launch_run(&launch, body, NULL));
}

static const char *const variables[] = {
    "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "PMI_RANK",
    "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "LOCKSTEP_MPI"};

/* The variables of Slurm, and others that may lie about in the environment. */
TEST(the_environment_says_who_started_us)
{
    static const struct {
        const char *set[3];
        int rank;
        const char *words;
    } rows[] = {
        {{"SLURM_PROCID=3", "SLURM_STEP_NUM_TASKS=4"}, 3,
         "srun started 4 tasks that do not know of each other"},
        {{"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1"}, -1, NULL},
        {{"SLURM_PROCID=0", "SLURM_NTASKS=8"}, -1, NULL},
        {{"PMI_RANK=2", "SLURM_PROCID=1", "LOCKSTEP_MPI=other"}, 2,
         "LOCKSTEP_MPI is \"other\""},
        {{"PMIX_RANK=1", "OMPI_COMM_WORLD_RANK=5", "LOCKSTEP_MPI=none"}, 5,
         "LOCKSTEP_MPI is \"none\""},
    };
    const struct launch launch = {.ranks = 2, .limit_ms = 20000};

    if (launch_rank() >= 0) return; /* under a real one */
    for (int i = 0; i < ROWS(rows); i++) {
        for (int v = 0; v < 3 && rows[i].set[v] != NULL; v++) {
            char name[40];
            const char *equals = strchr(rows[i].set[v], '=');

            snprintf(name, sizeof name, "%.*s",
                     (int)(equals - rows[i].set[v]), rows[i].set[v]);
            setenv(name, equals + 1, 1);
        }
        EQUAL_INT(launch_rank(), rows[i].rank);
        if (rows[i].words != NULL)
            FAILS(launch_run(&launch, body, NULL), ERR_CONFIG, rows[i].words);
        for (int v = 0; v < ROWS(variables); v++) unsetenv(variables[v]);
    }
}

TEST_MAIN(ranks_do_the_same_however_they_are_launched,
          the_environment_says_who_started_us)
