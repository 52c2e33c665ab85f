/* SPDX-License-Identifier: Apache-2.0 */
/* test_exchange.c - mirrors src/comm/exchange.c and the blocks of message.c:
 * strided blocks from rank to rank. */
#include "comm/message.h"
#include "comm/traffic.h"
#include "tests/test.h"

enum { RANKS_MOST = 7, CELLS = 4096 };

/* ---- blocks ---- */

/* Byte number i of a block, by its definition. */
static char *block_at(const struct comm_block *b, int64_t i)
{
    const int64_t rows = b->rows > 0 ? b->rows : 1;

    return (char *)b->data + i / (b->bytes * rows) * b->plane_stride +
           i / b->bytes % rows * b->stride + i % b->bytes;
}

TEST(blocks_are_copied_in_any_arrangement)
{
    static char a[CELLS], b[CELLS];
    /* each of 24 bytes */
    struct comm_block rows[] = {
        {a, 24, 1, 0, 1, 0}, {a, 24, 0, 0, 0, 0}, {a, 1, 24, 7, 1, 0},
        {a, 8, 3, 8, 1, 0}, {a, 8, 3, 100, 1, 0}, {a, 2, 3, 2, 4, 6},
        {a, 2, 3, 5, 4, 15}, {a, 2, 3, 5, 4, 40}, {a, 4, 3, 4, 2, 50},
        {a, 6, 1, 0, 4, 9}, {a, 6, 1, 0, 4, 6}, {a, 1, 2, 1, 12, 3},
        {a, 4, 2, 40, 3, 11}};

    for (int i = 0; i < ROWS(rows); i++)
        for (int j = 0; j < ROWS(rows); j++) {
            struct comm_block to = rows[j];

            EQUAL_INT(block_bytes(&rows[i]), 24);
            memset(a, 0, sizeof a);
            memset(b, 0, sizeof b);
            to.data = b;
            for (int k = 0; k < 24; k++) *block_at(&rows[i], k) = (char)(k + 1);
            block_copy(&to, &rows[i]);
            for (int k = 0; k < 24; k++) {
                EQUAL_INT(*block_at(&to, k), k + 1);
                *block_at(&to, k) = 0;
            }
            for (int k = 0; k < CELLS; k++) EQUAL_INT(b[k], 0);
        }
}

TEST(blocks_become_few_runs)
{
    static const struct {
        struct comm_block block;
        int64_t bytes, rows, planes;
    } rows[] = {
        {{NULL, 5, 0, 0, 0, 0}, 5, 1, 1},
        {{NULL, 5, 4, 5, 0, 0}, 20, 1, 1},
        {{NULL, 5, 4, 6, 0, 0}, 5, 4, 1},
        {{NULL, 5, 4, 5, 3, 20}, 60, 1, 1},
        {{NULL, 5, 4, 5, 3, 21}, 20, 3, 1},
        {{NULL, 5, 4, 6, 3, 24}, 5, 12, 1},
        {{NULL, 5, 4, 6, 3, 25}, 5, 4, 3},
        {{NULL, 5, 1, 0, 3, 5}, 15, 1, 1},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        const struct comm_block b = block_simplify(&rows[i].block);

        EQUAL_INT(b.bytes, rows[i].bytes);
        EQUAL_INT(b.rows, rows[i].rows);
        EQUAL_INT(b.planes, rows[i].planes);
    }
}

/* ---- exchanges ---- */

/* Heads against tokens, as in attention over several ranks: a rank has its
 * tokens of all heads and gets all tokens of its head. [sequences][its
 * tokens][heads], a cell of 3 numbers; tokens are cut unevenly, one rank has
 * none when there are four. */
enum { SEQUENCES = 70, CELL = 3 };

static int64_t tokens_before(int rank)
{
    static const int64_t first[] = {0, 1, 6, 6, 9, 11, 12, 19};

    return first[rank];
}

static int64_t tokens_of(int rank)
{
    return tokens_before(rank + 1) - tokens_before(rank);
}

static float number(int64_t sequence, int64_t token, int64_t head, int64_t i)
{
    return (float)(((sequence * 19 + token) * 7 + head) * CELL + i);
}

static void heads_fill(float *in, const struct group *g)
{
    for (int64_t s = 0; s < SEQUENCES; s++)
        for (int64_t t = 0; t < tokens_of(g->rank); t++)
            for (int64_t h = 0; h < g->size; h++)
                for (int64_t i = 0; i < CELL; i++)
                    *in++ = number(s, tokens_before(g->rank) + t, h, i);
}

static status heads_check(const float *out, const struct group *g)
{
    for (int64_t s = 0; s < SEQUENCES; s++)
        for (int64_t t = 0; t < tokens_before(g->size); t++)
            for (int64_t i = 0; i < CELL; i++)
                if (*out++ != number(s, t, g->rank, i))
                    FAIL(ERR_VERIFY, "rank %d of %d: sequence %d, token %d",
                         g->rank, g->size, (int)s, (int)t);
    return OK;
}

static status heads_run(struct group *g, float *in, float *out)
{
    struct comm_block send[RANKS_MOST], receive[RANKS_MOST];
    const struct comm_call call = {.kind = COMM_EXCHANGE, .send = send,
                                   .receive = receive};
    const int64_t cell = CELL * (int64_t)sizeof(float);
    const int64_t mine = tokens_of(g->rank), all = tokens_before(g->size);
    int64_t sent = 0;

    for (int r = 0; r < g->size; r++) {
        send[r] = (struct comm_block){
            in + r * CELL, mine > 0 ? cell : 0, mine, g->size * cell,
            SEQUENCES, mine * g->size * cell};
        receive[r] = (struct comm_block){
            out + tokens_before(r) * CELL,
            tokens_of(r) * cell, 1, 0, SEQUENCES, all * cell};
        if (r != g->rank) sent += block_bytes(&send[r]);
    }
    heads_fill(in, g);
    for (int twice = 0; twice < 2; twice++) {
        memset(out, 0, (size_t)(SEQUENCES * all * cell));
        comm_traffic_reset(g);
        TRY(comm_run(g, &call));
        TRY(heads_check(out, g));
        if (comm_traffic_bytes(g, COMM_EXCHANGE) != sent)
            FAIL(ERR_VERIFY, "sent %lld bytes, expected %lld",
                 (long long)comm_traffic_bytes(g, COMM_EXCHANGE),
                 (long long)sent);
    }
    return OK;
}

static status heads_body(void *argument, struct group *world)
{
    const size_t most = SEQUENCES * 19 * RANKS_MOST * CELL;
    struct arena arena;
    void *in, *out;
    status result;

    (void)argument;
    arena_init(&arena, "test", 0);
    group_limit_ms(world, 20000);
    result = arena_take_array(&arena, most, sizeof(float), &in);
    if (result == OK)
        result = arena_take_array(&arena, most, sizeof(float), &out);
    if (result == OK) result = heads_run(world, in, out);
    arena_free(&arena);
    return result;
}

TEST(heads_and_tokens_change_places)
{
    for (int size = 1; size <= RANKS_MOST; size++)
        IS_OK(ranks_run(size, heads_body, NULL));
}

static status size_body(void *argument, struct group *world)
{
    static float cells[2][8];
    struct comm_block send[2], receive[2];
    const struct comm_call call = {.kind = COMM_EXCHANGE, .send = send,
                                   .receive = receive};
    const bool own = *(bool *)argument;

    group_limit_ms(world, 20000);
    for (int r = 0; r < 2; r++) {
        send[r] = (struct comm_block){.data = cells[world->rank], .bytes = 8};
        receive[r] = (struct comm_block){.data = cells[world->rank] + 4,
                                         .bytes = 8};
    }
    receive[own ? world->rank : 1 - world->rank].bytes = 16;
    return comm_run(world, &call);
}

TEST(blocks_of_another_size_are_refused)
{
    bool own = true;

    FAILS(ranks_run(2, size_body, &own), ERR_CONFIG,
          "does not receive from itself what it sends to itself");
    own = false;
    FAILS(ranks_run(2, size_body, &own), ERR_PEER, "expected 16 bytes from");
}

TEST_MAIN(blocks_are_copied_in_any_arrangement, blocks_become_few_runs,
          heads_and_tokens_change_places, blocks_of_another_size_are_refused)
