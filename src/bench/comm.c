/* SPDX-License-Identifier: Apache-2.0 */
/* comm.c - times collectives between ranks, beside memcpy and MPI's own, in
 * turns. */
#include "bench/comm.h"

#include <inttypes.h>
#include <string.h>

#include "bench/probe.h"
#include "comm/launch.h"
#include "comm/message.h"
#include "comm/traffic.h"

/* Rows take turns, so that what else the machine does meets all of them. */
enum { SIZES = 4, ROUNDS_LEAST = 3, ROUNDS_MOST = 1000, TURNS = 4, ROWS = 10,
       SCRATCH = 3, BUFFERS = 2 + SCRATCH /* a rank's, of the largest size */ };
static const int64_t sizes[SIZES] = {1 << 16, 1 << 20, 1 << 24, 1 << 26};

struct bench_comm_run {
    struct bench_comm_settings settings;
    FILE *out;
    struct json_writer *json;
};

struct bench_row {
    enum comm_kind kind;
    enum algorithm algorithm;
};

/* ALGORITHM_COUNT: the sum of the library that carries our messages. */
static const struct bench_row bench_rows[ROWS] = {
    {COMM_ALL_REDUCE, ALGORITHM_COUNT},
    {COMM_ALL_REDUCE, ALGORITHM_ORDERED}, {COMM_ALL_REDUCE, ALGORITHM_RING},
    {COMM_ALL_REDUCE, ALGORITHM_HALVING}, {COMM_ALL_REDUCE, ALGORITHM_TREE},
    {COMM_REDUCE_SCATTER, ALGORITHM_ORDERED},
    {COMM_ALL_GATHER, ALGORITHM_ORDERED},
    {COMM_ALL_GATHER, ALGORITHM_RING}, {COMM_ALL_TO_ALL, ALGORITHM_AUTO},
    {COMM_BROADCAST, ALGORITHM_TREE},
};

struct bench_rank {
    struct bench_comm_run *run;
    struct group *world;
    struct arena arena;
    float *in, *out; /* [whole] each, in the arena */
    void *scratch;
    size_t scratch_bytes;
    double memcpy_rate; /* bytes a second of one rank, all at once */
};

/* The operations that are timed. */
struct timed {
    enum { TIMED_CALL, TIMED_COPY, TIMED_NATIVE } what;
    const struct comm_call *call;
    int64_t bytes; /* of a copy, or of MPI's own sum */
};

static status timed_once(struct bench_rank *rank, const struct timed *timed,
                         double *seconds)
{
    double before;

    TRY(comm_agree(rank->world, OK));
    before = probe_now_s();
    if (timed->what == TIMED_CALL)
        TRY(comm_run(rank->world, timed->call));
    else if (timed->what == TIMED_COPY)
        memcpy(rank->out, rank->in, (size_t)timed->bytes);
    else
        TRY(rank->world->ops->native_sum(
            rank->world, rank->out, rank->in,
            timed->bytes / (int64_t)sizeof(float)));
    *seconds = probe_now_s() - before;
    return OK;
}

/* *best, 0 at first, as the best of as many rounds as fit, the same on all
 * ranks. */
static status timed_best(struct bench_rank *rank, const struct timed *timed,
                         double *best)
{
    double seconds, rounds;
    const double limit = rank->run->settings.seconds / TURNS;

    TRY(timed_once(rank, timed, &seconds));
    rounds = limit / (seconds + 1e-6);
    if (rounds > ROUNDS_MOST) rounds = ROUNDS_MOST;
    TRY(comm_broadcast(rank->world, tensor_1d(&rounds, DTYPE_F64, 1), 0));
    if (*best <= 0 || seconds < *best) *best = seconds;
    for (int i = 0; i < ROUNDS_LEAST || i < (int)rounds; i++) {
        TRY(timed_once(rank, timed, &seconds));
        if (seconds < *best) *best = seconds;
    }
    return OK;
}

static struct comm_call row_call(const struct bench_rank *rank,
                                 const struct bench_row *row, int64_t bytes)
{
    const int64_t n = bytes / (int64_t)sizeof(float) / rank->world->size;
    const int64_t whole = n * rank->world->size;
    struct comm_call call = {
        .kind = row->kind, .algorithm = row->algorithm,
        .scratch = rank->scratch, .scratch_bytes = rank->scratch_bytes,
        .in = tensor_1d(rank->in, DTYPE_F32, whole),
        .out = tensor_1d(rank->out, DTYPE_F32, whole)};

    if (row->kind == COMM_ALL_GATHER)
        call.in = tensor_1d(rank->in, DTYPE_F32, n);
    if (row->kind == COMM_REDUCE_SCATTER)
        call.out = tensor_1d(rank->out, DTYPE_F32, n);
    return call;
}

static void row_print(const struct bench_rank *rank,
                      const struct bench_row *row, int64_t bytes,
                      double seconds, int64_t sent)
{
    const char *way = row->algorithm == ALGORITHM_COUNT
                          ? "MPI's own" : algorithm_name(row->algorithm);
    const double rate = (double)bytes / seconds;
    struct json_writer *json = rank->run->json;

    if (json == NULL) {
        fprintf(rank->run->out,
                "%-15s %-10s %10" PRId64 " %10.1f %8.2f %8.2f %7.0f%%\n",
                comm_kind_name(row->kind), way,
                bytes, 1e6 * seconds, 1e-9 * rate,
                1e-9 * (double)sent / seconds, 100 * rate / rank->memcpy_rate);
        return;
    }
    json_write_object(json);
    json_write_key(json, "operation");
    json_write_string(json, comm_kind_name(row->kind));
    json_write_key(json, "algorithm");
    json_write_string(json, way);
    json_write_key(json, "bytes");
    json_write_integer(json, bytes);
    json_write_key(json, "time_us");
    json_write_real(json, 1e6 * seconds);
    json_write_key(json, "bytes_per_s");
    json_write_real(json, rate);
    json_write_key(json, "sent_per_s");
    json_write_real(json, (double)sent / seconds);
    json_write_key(json, "of_memcpy");
    json_write_real(json, rate / rank->memcpy_rate);
    json_write_object_end(json);
}

/* The measurements of a row. */
struct measured { double seconds; int64_t sent; };

static status row_run(struct bench_rank *rank, const struct bench_row *row,
                      int64_t bytes, struct measured *m)
{
    const bool native = row->algorithm == ALGORITHM_COUNT;
    const struct comm_call call = row_call(rank, row, bytes);
    const struct timed timed = {native ? TIMED_NATIVE : TIMED_CALL, &call,
                                bytes};
    struct traffic_row counted[TRAFFIC_ROWS_MAX];
    int count;

    if (native && rank->world->ops->native_sum == NULL) return OK;
    comm_traffic_reset(rank->world);
    TRY(timed_best(rank, &timed, &m->seconds));
    count = comm_traffic(rank->world, counted, TRAFFIC_ROWS_MAX);
    for (int i = 0; i < count; i++)
        if (counted[i].kind == row->kind && row->kind != COMM_BROADCAST)
            m->sent = counted[i].bytes / counted[i].calls;
    if (row->kind == COMM_BROADCAST) m->sent = bytes;
    return OK;
}

static status buffers_take(struct bench_rank *rank, int64_t bytes)
{
    const int64_t count = bytes / (int64_t)sizeof(float);

    rank->scratch_bytes = SCRATCH * (size_t)bytes + (1 << 16);
    TRY(arena_take(&rank->arena, (size_t)bytes, (void **)&rank->in));
    TRY(arena_take(&rank->arena, (size_t)bytes, (void **)&rank->out));
    TRY(arena_take(&rank->arena, rank->scratch_bytes, &rank->scratch));
    for (int64_t i = 0; i < count; i++) /* zeros would run faster */
        rank->in[i] = rank->out[i] = 1.0f + (float)(i % 1021) * 0x1p-10f;
    memset(rank->scratch, 1, rank->scratch_bytes);
    return OK;
}

static void head_print(struct bench_rank *rank, int64_t bytes)
{
    struct json_writer *json = rank->run->json;

    if (json == NULL) {
        fprintf(rank->run->out,
                "%d ranks by %s; memcpy of %" PRId64 " bytes by each at once: "
                "%.2f GB/s\n%-15s %-10s %10s %10s %8s %8s %8s\n",
                rank->world->size, rank->world->ops->name, bytes,
                1e-9 * rank->memcpy_rate, "operation", "by", "bytes", "us",
                "GB/s", "sent", "memcpy");
        return;
    }
    json_write_key(json, "ranks");
    json_write_integer(json, rank->world->size);
    json_write_key(json, "back_end");
    json_write_string(json, rank->world->ops->name);
    json_write_key(json, "memcpy_per_s");
    json_write_real(json, rank->memcpy_rate);
    json_write_key(json, "rows");
    json_write_array(json);
}

static status size_run(struct bench_rank *rank, int64_t bytes)
{
    struct measured measured[ROWS] = {{0}};

    for (int turn = 0; turn < TURNS; turn++)
        for (int r = 0; r < ROWS; r++)
            TRY(row_run(rank, &bench_rows[r], bytes, &measured[r]));
    for (int r = 0; r < ROWS && rank->world->rank == 0; r++)
        if (measured[r].seconds > 0)
            row_print(rank, &bench_rows[r], bytes, measured[r].seconds,
                      measured[r].sent);
    return OK;
}

static int64_t most_bytes(const struct bench_comm_settings *settings)
{
    return settings->bytes > 0 ? settings->bytes : sizes[SIZES - 1];
}

/* The ranks of this process together: each of their buffers might fit. */
static status check_memory(const struct bench_comm_settings *settings)
{
    const double ranks = settings->ranks > 0 ? settings->ranks : 1;

    return probe_memory("bench comm",
                        BUFFERS * ranks * (double)most_bytes(settings),
                        "fewer --ranks or --bytes");
}

static status rank_run(struct bench_rank *rank)
{
    const int64_t only = rank->run->settings.bytes;
    const int64_t most = most_bytes(&rank->run->settings);
    const struct timed copy = {TIMED_COPY, NULL,
                               most < 1 << 24 ? most : 1 << 24};
    double seconds = 0;

    TRY(buffers_take(rank, most));
    TRY(timed_best(rank, &copy, &seconds));
    rank->memcpy_rate = (double)copy.bytes / seconds;
    if (rank->world->rank == 0) head_print(rank, copy.bytes);
    for (int i = 0; i < (only > 0 ? 1 : SIZES); i++)
        TRY(size_run(rank, only > 0 ? only : sizes[i]));
    return OK;
}

static status rank_body(void *argument, struct group *world)
{
    struct bench_rank rank = {.run = argument, .world = world};
    status result;

    arena_init(&rank.arena, "bench comm", 0);
    group_limit_ms(world, rank.run->settings.limit_ms);
    result = rank_run(&rank);
    arena_free(&rank.arena);
    return result;
}

status bench_comm(const struct bench_comm_settings *settings, FILE *out,
                  struct json_writer *json)
{
    struct bench_comm_run run = {*settings, out, json};

    if (run.settings.ranks == 0 && launch_rank() < 0) run.settings.ranks = 2;
    if (run.settings.seconds <= 0) run.settings.seconds = 0.2;
    if (run.settings.limit_ms == 0) run.settings.limit_ms = 60000;
    if (run.settings.bytes > 0 && run.settings.bytes < 4 * run.settings.ranks)
        FAIL(ERR_USAGE, "--bytes %" PRId64 ": less than 4 bytes, a number, for "
                        "each of %d ranks; %d is enough", run.settings.bytes,
             run.settings.ranks, 4 * run.settings.ranks);
    TRY(check_memory(&run.settings));
    if (json != NULL) json_write_object(json);
    TRY(launch_run(&(struct launch){run.settings.ranks,
                                    run.settings.limit_ms}, rank_body, &run));
    if (json != NULL && launch_rank() <= 0) json_write_array_end(json);
    if (json != NULL) json_write_object_end(json);
    return OK;
}
