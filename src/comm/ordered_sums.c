/* SPDX-License-Identifier: Apache-2.0 */
/* ordered_sums.c - sums by the grid's tree, so that the bits do not depend on
 * the number of ranks.
 *
 * Every rank sends block j of the roots that it owns to rank j, which then has
 * block j of all roots and adds them (sums.c). It goes on in rounds: a part of
 * the own block is summed and, in an all-reduce, posted to all; then the
 * others' parts of the round before are copied, while they are still in a
 * cache. Nobody waits for anything but the part that it needs.
 *
 * Between threads a block is lent whole. A back end that copies carries its
 * parts a few rounds ahead, and they arrive in the same room again and again:
 * it stays in a cache, and is small. */
#include "base/arena.h"
#include "comm/algorithms.h"

enum {
    ROUND_BYTES = 1 << 18, /* a handshake should cost little beside it */
    LEAST_BYTES = 1 << 12, /* of each of many rows, at least */
    ROUNDS_AHEAD = 4       /* of the blocks' parts, where they are copied; less
                            * than half of a ring */
};

/* Messages under way, oldest first; each is finished before its place is taken
 * again. */
struct ring {
    struct message *places;
    int capacity;
    int64_t posted, finished;
};

/* One reduction of this rank. */
struct rounds {
    struct operation *op;
    const struct ordered *o;
    int leaves, own_roots;
    struct block out;      /* of a row */
    int64_t longest;       /* bytes of the longest block of a row */
    int64_t step;          /* bytes of a round, of each row */
    int64_t part;          /* bytes of a message of roots, of each row */
    struct ring sent;      /* parts of the roots */
    struct ring results;   /* parts of the sum */
};

static status ring_post(struct operation *op, struct ring *ring, int to,
                        const struct comm_block *block)
{
    const struct comm_ops *ops = op->group->ops;
    struct message *m = &ring->places[ring->posted % ring->capacity];

    if (block_bytes(block) == 0) return OK;
    if (ring->posted - ring->finished == ring->capacity) {
        ring->finished++;
        TRY(ops->finish(op, m, false));
    }
    *m = (struct message){.block = *block};
    TRY(ops->post(op, to, m));
    ring->posted++;
    return OK;
}

static status ring_end(struct operation *op, struct ring *ring, bool withdraw)
{
    status result = OK;

    for (; ring->finished < ring->posted; ring->finished++) {
        const status sent = op->group->ops->finish(
            op, &ring->places[ring->finished % ring->capacity],
            withdraw || result != OK);

        if (result == OK) result = sent;
    }
    return result;
}

/* ---- parts of the roots ---- */

/* Bytes [first, first + length) of each row, as far as there are any. */
static struct comm_block part_of(struct comm_block block, int64_t first,
                                 int64_t length)
{
    const int64_t left = block.bytes - first;

    if (left <= 0) return (struct comm_block){0};
    block.data = (char *)block.data + first;
    block.bytes = left < length ? left : length;
    return block;
}

/* The block of its roots that a rank sends to another, or keeps. */
static struct comm_block roots_block(const struct rounds *r, int rank)
{
    struct comm_block block = cut_rows(&r->o->cut, r->op->group->size, rank,
                                       r->o->rows);

    block.planes = r->own_roots;
    block.plane_stride = r->o->root_bytes;
    return block;
}

/* The part of every other rank's block that begins at byte `first`. */
static status roots_post(struct rounds *r, int64_t first)
{
    const int size = r->op->group->size, me = r->op->group->rank;

    for (int i = 1; i < size && first < r->longest; i++) {
        const int peer = (me + i) % size;
        const struct comm_block block = part_of(roots_block(r, peer), first,
                                                r->part);

        TRY(ring_post(r->op, &r->sent, peer, &block));
    }
    return OK;
}

/* From everybody else, `bytes` of each row of this rank's block. */
static status roots_borrow(struct rounds *r, int64_t bytes)
{
    struct operation *op = r->op;
    const struct operation saved = *op;
    const int size = op->group->size, me = op->group->rank;
    status result = OK;

    for (int i = 1; bytes > 0 && i < size && result == OK; i++) {
        const int peer = (me + size - i) % size;
        struct comm_root roots[COMM_ROOTS_MAX];
        const int count = comm_roots(r->leaves, size, peer, roots);
        struct parcel *parcel = &op->group->parcels[op->channel][peer];

        *parcel = (struct parcel){.block = {
            .bytes = bytes, .rows = r->o->rows, .stride = bytes,
            .planes = count, .plane_stride = bytes * r->o->rows}};
        parcel->block.data = operation_room(op, block_bytes(&parcel->block));
        result = op->group->ops->borrow(op, peer, parcel);
    }
    op->scratch = saved.scratch; /* for the next round */
    op->scratch_left = saved.scratch_left;
    return result;
}

/* All that are held. */
static void roots_give_back(struct operation *op)
{
    for (int i = 0; i < op->group->size; i++)
        op->group->ops->give_back(op,
                                  &op->group->parcels[op->channel][i]);
}

/* ---- parts of the sum ---- */

/* To everybody else. */
static status result_post(struct rounds *r, struct block part)
{
    const struct comm_block block = block_plain(part.data, part.bytes);
    const int size = r->op->group->size, me = r->op->group->rank;
    status result = OK;

    r->op->tag |= TAG_RESULT;
    for (int i = 1; i < size && result == OK; i++)
        result = ring_post(r->op, &r->results, (me + i) % size, &block);
    r->op->tag &= ~TAG_RESULT;
    return result;
}

/* From everybody else, each a part of its block. */
static status results_take(struct rounds *r, const struct cut *cut,
                           int64_t first)
{
    const int size = r->op->group->size, me = r->op->group->rank;
    status result = OK;

    r->op->tag |= TAG_RESULT;
    for (int i = 1; i < size && result == OK; i++) {
        const int peer = (me + size - i) % size;
        const struct comm_block in = part_of(cut_rows(cut, size, peer, 1),
                                             first, r->step);

        result = block_take(r->op, peer, &in);
    }
    r->op->tag &= ~TAG_RESULT;
    return result;
}

/* ---- rounds ---- */

static int64_t round_step(int64_t rows)
{
    const int64_t bytes = ROUND_BYTES / rows / ARENA_ALIGN * ARENA_ALIGN;

    return bytes > LEAST_BYTES ? bytes : LEAST_BYTES;
}

/* The roots of this rank's block from byte `first` on. */
static status round_take(struct rounds *r, int64_t first, int64_t bytes)
{
    const struct group *group = r->op->group;
    struct parcel *own = &group->parcels[r->op->channel][group->rank];

    own->block = part_of(roots_block(r, group->rank), first, r->part);
    TRY(roots_borrow(r, bytes));
    return OK;
}

/* The part of this rank's block that begins at byte `first`, of each row. */
static status round_sum(struct rounds *r, int64_t first, struct block *part)
{
    const bool lends = r->op->group->ops->borrows;
    const int64_t left = r->out.bytes - first;

    part->bytes = left < 0 ? 0 : left < r->step ? left : r->step;
    part->data = part->bytes > 0 ? r->out.data + first : NULL;
    if (!lends) {
        TRY(roots_post(r, first + ROUNDS_AHEAD * r->step));
        TRY(round_take(r, first, part->bytes));
    }
    for (int64_t p = 0; part->bytes > 0 && p < r->o->rows; p++)
        tree_sum(r->op, r->leaves, p, lends ? first : 0,
                 (struct block){part->data + p * r->out.bytes, part->bytes});
    return OK;
}

static status rounds_run(struct rounds *r, const struct cut *gathered)
{
    struct block part;
    int64_t at = 0;

    if (r->op->group->ops->borrows) {
        TRY(roots_post(r, 0));
        TRY(round_take(r, 0, r->out.bytes));
    } else {
        for (int64_t i = 0; i < ROUNDS_AHEAD; i++)
            TRY(roots_post(r, i * r->step));
    }
    for (; at < r->longest; at += r->step) {
        TRY(round_sum(r, at, &part));
        if (gathered == NULL) continue;
        TRY(result_post(r, part));
        if (at > 0) TRY(results_take(r, gathered, at - r->step));
    }
    if (gathered != NULL && at > 0)
        TRY(results_take(r, gathered, at - r->step));
    return OK;
}

static int64_t longest_block(const struct cut *cut, int size)
{
    int64_t longest = 0;

    for (int i = 0; i < size; i++) {
        const int64_t bytes = cut_blocks(cut, size, i, i + 1).bytes;

        if (bytes > longest) longest = bytes;
    }
    return longest;
}

status ordered_reduce(struct operation *op, const struct ordered *ordered,
                      const struct cut *gathered)
{
    const int size = op->group->size, me = op->group->rank;
    const int capacity = MESSAGES_EACH / 2 * size;
    struct message *places = op->group->messages[op->channel];
    struct rounds r = {
        .op = op, .o = ordered,
        .leaves = comm_leaves(op->group, ordered->leaves),
        .own_roots = comm_own_roots(op->group, ordered->leaves),
        .out = {ordered->out, cut_blocks(&ordered->cut, size, me,
                                         me + 1).bytes},
        .longest = longest_block(&ordered->cut, size),
        .step = round_step(ordered->rows),
        .sent = {.places = places, .capacity = capacity},
        .results = {.places = places + capacity, .capacity = capacity}};
    status result, sent, told;

    r.part = op->group->ops->borrows ? INT64_MAX : r.step;
    result = rounds_run(&r, gathered);
    roots_give_back(op);
    sent = ring_end(op, &r.sent, result != OK);
    told = ring_end(op, &r.results, result != OK || sent != OK);
    if (result == OK) result = sent != OK ? sent : told;
    return result;
}

size_t ordered_scratch(const struct group *group, const struct comm_call *call,
                       int64_t rows, int64_t row_bytes)
{
    const int leaves = comm_leaves(group, call->leaves);
    const int64_t step = round_step(rows);
    const int64_t part = row_bytes < step ? row_bytes : step;
    size_t bytes = 0;

    if (group->ops->borrows) return 0;
    for (int i = 0; i < group->size; i++) {
        struct comm_root roots[COMM_ROOTS_MAX];
        const int count = comm_roots(leaves, group->size, i, roots);

        bytes += (size_t)(part * rows * count) + ARENA_ALIGN;
    }
    return bytes;
}
