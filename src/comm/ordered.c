/* SPDX-License-Identifier: Apache-2.0 */
/* ordered.c - straight from who has it to who needs it; sums by the grid's
 * tree, so that the bits do not depend on the number of ranks.
 *
 * Every rank sends block j of the roots that it owns to rank j, which then has
 * block j of all roots and adds them as numerics.md, section 1, says. Roots
 * come from left to right; two neighbours that are siblings are added at once,
 * so only a stack of partial sums is kept, of a segment that stays in cache.
 *
 * An all-reduce goes on in rounds: a part of the own block is summed and posted
 * to all, then the others' parts of the round before are copied, while they are
 * still in a cache. Nobody waits for anything but the part that it needs. */
#include <string.h>
#include "base/arena.h"
#include "comm/algorithms.h"

enum {
    SEGMENT_BYTES = 8192,
    DEPTH_MAX = 16,
    ROUNDS_MOST = MESSAGES_EACH - 1,
    ROUND_BYTES_LEAST = 1 << 18 /* a handshake should cost little beside it */
};

int comm_roots(int leaves, int size, int rank,
               struct comm_root roots[COMM_ROOTS_MAX])
{
    const int64_t all = leaves;
    const int last = (int)(all * (rank + 1) / size);
    int first = (int)(all * rank / size), count = 0;

    while (first < last) {
        int span = 1;

        /* A node beyond the last leaf is complete when it reaches it. */
        while (span < leaves && first % (2 * span) == 0 &&
               (first + 2 * span <= last ||
                (last == leaves && first + 2 * span > leaves)))
            span *= 2;
        CHECK(count < COMM_ROOTS_MAX);
        roots[count++] = (struct comm_root){
            first, first + span > leaves ? leaves - first : span, span};
        first += roots[count - 1].leaves;
    }
    return count;
}

static int leaves_of(const struct group *group, int leaves)
{
    return leaves > 0 ? leaves : group->size;
}

/* Partial sums of one segment, left to right. */
struct sums {
    struct {
        const char *data;
        int first, span;
    } node[DEPTH_MAX + 1];
    int count, leaves;
    char buffer[DEPTH_MAX][SEGMENT_BYTES];
};

/* The node takes the place of the empty ones to its right. */
static void sums_grow(struct sums *s, int index)
{
    const int first = s->node[index].first;

    while (first > 0 && first + s->node[index].span >= s->leaves &&
           first % (2 * s->node[index].span) == 0)
        s->node[index].span *= 2;
}

/* Adds a root. When it is the last one the sum goes to `out`, which may be
 * where a root lies: by then all have been read. */
static void sums_add(struct sums *s, const struct comm_call *call,
                     const struct comm_root *root, const char *data,
                     struct block out)
{
    const bool last = root->first + root->leaves == s->leaves;

    CHECK(s->count < DEPTH_MAX);
    s->node[s->count].data = data;
    s->node[s->count].first = root->first;
    s->node[s->count].span = root->span;
    sums_grow(s, s->count++);
    while (s->count >= 2 &&
           s->node[s->count - 2].span == s->node[s->count - 1].span) {
        const int left = s->count - 2;
        char *into = last && left == 0 ? out.data : s->buffer[left];

        combine(call, into, s->node[left].data, s->node[left + 1].data,
                out.bytes);
        s->node[left].data = into;
        s->node[left].span *= 2;
        s->count--;
        sums_grow(s, left);
    }
    if (last && s->node[0].data != out.data)
        memcpy(out.data, s->node[0].data, (size_t)out.bytes);
}

/* Where bytes from `first` on of a piece of a rank's root are. */
static const char *root_data(const struct parcel *parcel, int root,
                             int64_t piece, int64_t first)
{
    const struct comm_block *b = &parcel->block;

    return (const char *)b->data + root * b->plane_stride + piece * b->stride +
           first;
}

/* parcels [size]: block `me` of every rank's roots, of which the bytes from
 * `first` on of a piece are summed into `out`. */
static void tree_sum(const struct operation *op, int leaves, int64_t piece,
                     int64_t first, struct block out)
{
    const struct parcel *parcels = op->group->parcels[op->channel];
    struct sums sums;

    sums.leaves = leaves;
    for (int64_t at = 0; at < out.bytes; at += SEGMENT_BYTES) {
        const int64_t left = out.bytes - at;
        const struct block segment = {
            out.data + at, left < SEGMENT_BYTES ? left : SEGMENT_BYTES};

        sums.count = 0;
        for (int i = 0; i < op->group->size; i++) {
            struct comm_root roots[COMM_ROOTS_MAX];
            const int count = comm_roots(leaves, op->group->size, i, roots);

            for (int r = 0; r < count; r++)
                sums_add(&sums, op->call, &roots[r],
                         root_data(&parcels[i], r, piece, first + at),
                         segment);
        }
    }
}

/* A part of a block: bytes [first, first + length) as far as there are any. */
static struct block block_part(struct block block, int64_t first,
                               int64_t length)
{
    const int64_t left = block.bytes - first;

    if (left <= 0) return (struct block){block.data, 0};
    return (struct block){block.data + first, left < length ? left : length};
}

/* To everybody else. */
static status part_post(struct operation *op, struct block part, int *posted)
{
    const struct comm_block block = block_plain(part.data, part.bytes);
    const int size = op->group->size, me = op->group->rank;

    for (int i = 1; i < size; i++)
        TRY(block_post(op, (me + i) % size, &block, posted));
    return OK;
}

/* From everybody else, each a part of its block. */
static status parts_take(struct operation *op, const struct cut *cut,
                         int64_t first, int64_t length)
{
    const int size = op->group->size, me = op->group->rank;

    for (int i = 1; i < size; i++) {
        const int peer = (me + size - i) % size;
        const struct block in = block_part(
            cut_blocks(cut, size, peer, peer + 1), first, length);
        const struct comm_block block = block_plain(in.data, in.bytes);

        TRY(block_take(op, peer, &block));
    }
    return OK;
}

/* What a rank sends to another, or keeps: the other's block of its roots. */
static struct comm_block roots_block(const struct ordered *o, int size,
                                     int rank, int roots)
{
    struct comm_block block = cut_rows(&o->cut, size, rank, o->pieces);

    block.planes = roots;
    block.plane_stride = o->root_bytes;
    return block;
}

static status blocks_post(struct operation *op, const struct ordered *o,
                          int roots, int *posted)
{
    const int size = op->group->size, me = op->group->rank;

    for (int i = 1; i < size; i++) {
        const int peer = (me + i) % size;
        const struct comm_block block = roots_block(o, size, peer, roots);

        TRY(block_post(op, peer, &block, posted));
    }
    return OK;
}

/* bytes: of a piece. */
static status blocks_borrow(struct operation *op, const struct ordered *o,
                            int64_t bytes, int *borrowed)
{
    const int size = op->group->size, me = op->group->rank;

    for (; bytes > 0 && *borrowed < size - 1; ++*borrowed) {
        const int peer = (me + size - 1 - *borrowed) % size;
        struct comm_root roots[COMM_ROOTS_MAX];
        const int count = comm_roots(o->leaves, size, peer, roots);
        struct parcel *parcel = &op->group->parcels[op->channel][peer];

        *parcel = (struct parcel){.block = {
            .bytes = bytes, .pieces = o->pieces, .stride = bytes,
            .planes = count, .plane_stride = bytes * o->pieces}};
        parcel->block.data = operation_room(op, block_bytes(&parcel->block));
        TRY(op->group->ops->borrow(op, peer, parcel));
    }
    return OK;
}

/* What blocks_borrow began. */
static void blocks_give_back(struct operation *op, int borrowed)
{
    const int size = op->group->size, me = op->group->rank;

    for (int i = 0; i < borrowed; i++)
        op->group->ops->give_back(
            op, &op->group->parcels[op->channel][(me + size - 1 - i) % size]);
}

/* Block 0 is the longest. */
static int64_t round_bytes(const struct cut *cut, int size)
{
    const int64_t longest = cut_blocks(cut, size, 0, 1).bytes;
    int64_t bytes = longest / ROUNDS_MOST / ARENA_ALIGN * ARENA_ALIGN +
                    ARENA_ALIGN;

    if (longest / ROUNDS_MOST < ROUND_BYTES_LEAST) bytes = ROUND_BYTES_LEAST;
    return bytes;
}

static status rounds_run(struct operation *op, const struct ordered *o,
                         struct block out, const struct cut *gathered,
                         int *posted)
{
    const int size = op->group->size;
    const int64_t longest = cut_blocks(gathered, size, 0, 1).bytes;
    const int64_t round = round_bytes(gathered, size);
    int64_t at = 0;

    for (; at < longest; at += round) {
        const struct block part = block_part(out, at, round);

        tree_sum(op, o->leaves, 0, at, part);
        TRY(part_post(op, part, posted));
        if (at > 0) TRY(parts_take(op, gathered, at - round, round));
    }
    if (at > 0) TRY(parts_take(op, gathered, at - round, round));
    return OK;
}

/* Piece by piece; out is dense. */
static void pieces_sum(struct operation *op, const struct ordered *o,
                       struct block out)
{
    for (int64_t p = 0; p < o->pieces; p++) {
        const struct block piece = {out.data + p * out.bytes, out.bytes};

        tree_sum(op, o->leaves, p, 0, piece);
    }
}

status ordered_reduce(struct operation *op, const struct ordered *ordered,
                      const struct cut *gathered)
{
    const int size = op->group->size, me = op->group->rank;
    struct ordered o = *ordered;
    const struct block out = {
        o.out, cut_blocks(&o.cut, size, me, me + 1).bytes};
    struct comm_root roots[COMM_ROOTS_MAX];
    int posted = 0, borrowed = 0, count;
    status result, ended;

    o.leaves = leaves_of(op->group, o.leaves);
    count = comm_roots(o.leaves, size, me, roots);
    op->group->parcels[op->channel][me] = (struct parcel){
        .block = roots_block(&o, size, me, count)};
    TRY_GOTO(done, result, blocks_post(op, &o, count, &posted));
    TRY_GOTO(done, result, blocks_borrow(op, &o, out.bytes, &borrowed));
    if (gathered == NULL) pieces_sum(op, &o, out);
    else TRY_GOTO(done, result, rounds_run(op, &o, out, gathered, &posted));
done:
    blocks_give_back(op, borrowed);
    ended = posts_end(op, posted, result != OK);
    return result != OK ? result : ended;
}

size_t ordered_scratch(const struct group *group, const struct comm_call *call,
                       int64_t block_bytes)
{
    const int leaves = leaves_of(group, call->leaves);
    size_t bytes = 0;

    if (group->ops->borrows) return 0;
    for (int i = 0; i < group->size; i++) {
        struct comm_root roots[COMM_ROOTS_MAX];
        const int count = comm_roots(leaves, group->size, i, roots);

        bytes += (size_t)(block_bytes * count) + ARENA_ALIGN;
    }
    return bytes;
}
