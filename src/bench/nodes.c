/* SPDX-License-Identifier: Apache-2.0 */
/* nodes.c - the stages of one rank, and their figures on rank 0. */
#include "bench/nodes.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/threads.h"
#include "bench/cases.h"
#include "bench/probe.h"
#include "comm/launch.h"
#include "comm/message.h"
#include "setup/cores.h"

enum { SIDE = 256, ROUNDS = 3, EACH = 8, STORAGE_BYTES = 8 << 20,
       FLOATS = 4 * SIDE * SIDE, AREA = 32 << 20,
       COLUMNS = NODES_MEASURES + NODES_PROOFS + NODES_NAME_BYTES };

struct node {
    const struct nodes_request *request;
    struct group *world;
    struct arena arena;
    struct kernels kernels;
    struct stream stream;
    struct operands *operands;
    double *row;   /* [COLUMNS + 2 size]: what rank 0 gets */
    double *all;   /* [size, the same] */
};

static void note_wrong(struct node *n, enum nodes_proof proof, double count)
{
    n->row[NODES_MEASURES + proof] += count;
}

/* A fault of this rank, for drills: `nodes.NAME-RANK`. */
static const char *fault_name(const struct node *n, const char *name,
                              char out[48])
{
    snprintf(out, 48, "nodes.%s-%d", name, n->world->rank);
    return out;
}

static status node_open(struct node *n)
{
    const int64_t size[] = {SIDE, SIDE, SIDE};
    struct threads *threads = NULL;
    void *memory = NULL;
    int count = 1;

    TRY(kernels_get(&n->kernels, DTYPE_F32, ISA_AUTO));
    TRY(cores_share(n->world, 0, &count));
    TRY(threads_build(&threads, count));
    n->stream.threads = threads;
    n->stream.scratch_bytes = kernels_scratch_bytes(&n->kernels, count, SIDE,
                                                    SIDE);
    TRY(arena_take(&n->arena, n->stream.scratch_bytes, &n->stream.scratch));
    TRY(arena_take(&n->arena, sizeof *n->operands, &memory));
    n->operands = memory;
    memset(n->operands, 0, sizeof *n->operands);
    n->operands->capacity = FLOATS;
    n->operands->dtype = n->operands->narrow = DTYPE_F32;
    TRY(arena_take_array(&n->arena, FLOATS, sizeof(float), &memory));
    n->operands->data = memory;
    case_product_nt(n->operands, size);
    return OK;
}

static status products(struct node *n, int count)
{
    for (int i = 0; i < count; i++)
        TRY(case_product_run(&n->kernels, &n->stream, n->operands));
    return OK;
}

static status measure_cores(struct node *n)
{
    char name[48];

    TRY(products(n, 1)); /* warm */
    for (int round = 0; round < ROUNDS; round++) {
        const double before = probe_now_s();

        TRY(products(n, EACH));
        TRY(fault_point(fault_name(n, "cores", name)));
        const double rate = EACH * n->operands->flops /
                            (probe_now_s() - before);

        if (rate > n->row[NODES_CORES]) n->row[NODES_CORES] = rate;
    }
    return OK;
}

static status measure_storage(struct node *n)
{
    struct text text = {0};
    char path[PATH_BYTES];
    void *memory = NULL;
    double before;
    status result;

    if (snprintf(path, sizeof path, "%s/lockstep-doctor-%d-%d.tmp",
                 n->request->place, n->world->rank, (int)getpid()) >=
        (int)sizeof path)
        FAIL(ERR_CONFIG, "--place: the name of the directory is too long");
    TRY(memory_take(STORAGE_BYTES, 1, &memory));
    for (int i = 0; i < STORAGE_BYTES; i++)
        ((unsigned char *)memory)[i] = (unsigned char)(i * 31 + i / 251);
    before = probe_now_s();
    TRY_GOTO(done, result, file_write_atomic(path, memory, STORAGE_BYTES));
    TRY_GOTO(done, result, file_read_own(path, STORAGE_BYTES, &text));
    n->row[NODES_STORAGE] = STORAGE_BYTES / (probe_now_s() - before);
    if (text.length != STORAGE_BYTES ||
        memcmp(text.bytes, memory, STORAGE_BYTES) != 0)
        note_wrong(n, PROOF_STORAGE, 1);
done:
    unlink(path);
    text_free(&text);
    memory_free(memory);
    return result;
}

static uint32_t product_bits(const struct node *n)
{
    const struct tensor *c = &n->operands->t[0];

    return crc32c(0, c->data, (size_t)SIDE * SIDE * sizeof(float));
}

/* The same product again and again: its bits must never change, and be those
 * of every other rank. */
static status burn(struct node *n)
{
    const double end = probe_now_s() + n->request->seconds;
    const double before = probe_now_s();
    uint32_t expected, bits = 0;
    double count = 0;
    char name[48];

    TRY(products(n, 1));
    expected = product_bits(n);
    TRY(comm_broadcast(n->world, tensor_1d(&expected, DTYPE_I32, 1), 0));
    do {
        TRY(products(n, 1));
        if (fault_due(fault_name(n, "flip", name)))
            ((unsigned char *)n->operands->t[0].data)[4000] ^= 1;
        bits = product_bits(n);
        if (bits != expected) note_wrong(n, PROOF_BURN, 1);
        count++;
    } while (probe_now_s() < end);
    n->row[NODES_BURN] = count / (probe_now_s() - before);
    return OK;
}

static status links(struct node *n)
{
    struct nodes_links found = {.latency = n->row + COLUMNS,
                                .rate = n->row + COLUMNS + n->world->size};

    TRY(nodes_links_run(&found, n->world));
    memcpy(n->row + NODES_SUM, found.sums, sizeof found.sums);
    note_wrong(n, PROOF_LINKS, found.wrong_links);
    note_wrong(n, PROOF_SUMS, found.wrong_sums);
    return OK;
}

static void write_name(struct node *n)
{
    char name[NODES_NAME_BYTES] = "";

    if (gethostname(name, sizeof name - 1) != 0) name[0] = '\0';
    for (int i = 0; i < NODES_NAME_BYTES; i++)
        n->row[NODES_MEASURES + NODES_PROOFS + i] = name[i];
}

/* Each part begins when all ranks have ended the one before. */
static status stages(struct node *n)
{
    static status (*const all[])(struct node *) = {measure_cores,
                                                   measure_storage};
    const int64_t width = COLUMNS + 2 * n->world->size;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        TRY(comm_agree(n->world, all[i](n)));
    TRY(comm_agree(n->world, probe_memory_rate(&n->kernels, &n->stream, AREA,
                                               &n->row[NODES_MEMORY])));
    TRY(links(n));
    TRY(burn(n));
    write_name(n);
    return comm_all_gather(n->world,
                           tensor_1d(n->all, DTYPE_F64,
                                     width * n->world->size),
                           tensor_1d(n->row, DTYPE_F64, width));
}

/* Rows of ranks become tables of their own. */
static status deliver(struct node *n)
{
    const int size = n->world->size, width = COLUMNS + 2 * size;
    char (*names)[NODES_NAME_BYTES];
    double *figures, *wrong, *latency, *rate;

    TRY(arena_take(&n->arena, (size_t)size * sizeof *names,
                   (void **)&names));
    TRY(arena_take_array(&n->arena, (size_t)size * NODES_MEASURES,
                         sizeof(double), (void **)&figures));
    TRY(arena_take_array(&n->arena, (size_t)size * NODES_PROOFS,
                         sizeof(double), (void **)&wrong));
    TRY(arena_take_array(&n->arena, (size_t)size * (size_t)size,
                         sizeof(double), (void **)&latency));
    TRY(arena_take_array(&n->arena, (size_t)size * (size_t)size,
                         sizeof(double), (void **)&rate));
    for (int r = 0; r < size; r++) {
        const double *row = n->all + (size_t)r * (size_t)width;

        memcpy(figures + r * NODES_MEASURES, row,
               NODES_MEASURES * sizeof(double));
        memcpy(wrong + r * NODES_PROOFS, row + NODES_MEASURES,
               NODES_PROOFS * sizeof(double));
        for (int i = 0; i < NODES_NAME_BYTES; i++)
            names[r][i] = (char)row[NODES_MEASURES + NODES_PROOFS + i];
        memcpy(latency + (size_t)r * (size_t)size, row + COLUMNS,
               (size_t)size * sizeof(double));
        memcpy(rate + (size_t)r * (size_t)size, row + COLUMNS + size,
               (size_t)size * sizeof(double));
    }
    return n->request->print(n->request->argument, &(struct nodes_page){
        size, n->world->ops->name,
        (const char (*)[NODES_NAME_BYTES])names, figures, wrong, latency,
        rate, n->request->seconds});
}

static status rank_body(void *argument, struct group *world)
{
    struct node n = {.request = argument, .world = world};
    const size_t width = (size_t)(COLUMNS + 2 * world->size);
    status result;

    if (world->size > NODES_RANKS_MOST)
        FAIL(ERR_CONFIG, "doctor --nodes: %d ranks; one for each machine, at "
             "most %d, is enough", world->size, NODES_RANKS_MOST);
    arena_init(&n.arena, "doctor", 0);
    TRY_GOTO(done, result, arena_take_array(&n.arena, width, sizeof(double),
                                            (void **)&n.row));
    TRY_GOTO(done, result, arena_take_array(&n.arena,
                                            width * (size_t)world->size,
                                            sizeof(double), (void **)&n.all));
    memset(n.row, 0, width * sizeof(double));
    TRY_GOTO(done, result, comm_agree(world, node_open(&n)));
    TRY_GOTO(done, result, stages(&n));
    result = comm_agree(world, world->rank == 0 ? deliver(&n) : OK);
done:
    threads_free(n.stream.threads);
    arena_free(&n.arena);
    return result;
}

status nodes_run(const struct nodes_request *request)
{
    struct nodes_request copy = *request;

    return launch_run(&(struct launch){request->ranks, request->limit_ms},
                      rank_body, &copy);
}
