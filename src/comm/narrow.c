/* SPDX-License-Identifier: Apache-2.0 */
/* narrow.c - reduce-scatters whose numbers travel as integers of few bits,
 * first to the ranks of one node, then between nodes.
 *
 *   block of 128 numbers   scale = largest magnitude / 127 (4 bits: 7)
 *                          code = nearest integer to number / scale
 *
 *   inside    to each rank of the node: the blocks of all ranks with its place;
 *             it adds what it gets, as float32
 *   between   its sums of other nodes' blocks, coded again, to the ranks with
 *             its place there, which add them
 *
 * So a number is rounded once inside a node and once between them, whatever
 * their size, and few bytes cross. Source: Wang et al. 2023 (ZeRO++, qgZ),
 * arXiv:2306.10209, section 3.3. The sums show who divides: not exact. */
#include "base/arena.h"
#include "comm/algorithms.h"

#include <string.h>

enum { BLOCK = 128, ALIGN = 4 };

/* The numbers of a block, sums of as many roots. */
struct source {
    const char *data;
    int roots;
    int64_t stride;          /* bytes from root to root */
};

static int64_t coded_bytes(int64_t count, int bits)
{
    const int64_t scales = (count + BLOCK - 1) / BLOCK;

    return scales * (int64_t)sizeof(float) +
           ((count * bits + 7) / 8 + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- numbers ---- */

static float number_at(const struct source *from, int64_t at)
{
    float sum = 0;

    for (int r = 0; r < from->roots; r++) {
        float one;

        memcpy(&one, from->data + r * from->stride +
                         at * (int64_t)sizeof one, sizeof one);
        sum = r == 0 ? one : sum + one;
    }
    return sum;
}

/* The scale of a block; NaN: it has what is not finite. */
static float scale_of(const float *block, int64_t count, int limit)
{
    uint32_t most = 0; /* bits of magnitudes ascend as the magnitudes do */
    float largest;

    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;

        memcpy(&bits, &block[i], sizeof bits);
        bits &= 0x7FFFFFFFu;
        if (bits > most) most = bits;
    }
    if (most >= 0x7F800000u) most = 0x7FC00000u;
    memcpy(&largest, &most, sizeof largest);
    return largest / (float)limit;
}

/* A number, over a scale that is one. */
static int code_of(float number, float scale, int limit)
{
    const float over = scale > 0 ? number / scale : 0;

    if (over >= (float)limit) return limit;
    if (over <= -(float)limit) return -limit;
    return (int)(over < 0 ? over - 0.5f : over + 0.5f);
}

static void encode(char *out, const struct source *from, int64_t count,
                   int bits)
{
    const int limit = (1 << (bits - 1)) - 1;
    uint8_t *codes = (uint8_t *)out + (count + BLOCK - 1) / BLOCK *
                                          (int64_t)sizeof(float);

    for (int64_t at = 0; at < count; at += BLOCK, out += sizeof(float)) {
        const int64_t length = count - at < BLOCK ? count - at : BLOCK;
        float block[BLOCK];

        for (int64_t i = 0; i < length; i++)
            block[i] = number_at(from, at + i);
        const float scale = scale_of(block, length, limit);

        memcpy(out, &scale, sizeof scale);
        for (int64_t i = 0; i < length; i++) {
            const int code = code_of(block[i], scale, limit);

            if (bits == 8)
                codes[at + i] = (uint8_t)code;
            else if (i % 2 == 0)
                codes[(at + i) / 2] = (uint8_t)(code & 15);
            else
                codes[(at + i) / 2] |= (uint8_t)((code & 15) << 4);
        }
    }
}

/* sums += the numbers of `count` codes. */
static void decode(float *sums, const char *in, int64_t count, int bits)
{
    const uint8_t *codes = (const uint8_t *)in + (count + BLOCK - 1) / BLOCK *
                                                     (int64_t)sizeof(float);

    for (int64_t i = 0; i < count; i++) {
        const uint8_t byte = codes[bits == 8 ? i : i / 2];
        const int nibble = i % 2 == 0 ? byte & 15 : byte >> 4;
        const int code = bits == 8 ? (int8_t)byte
                                   : (nibble > 7 ? nibble - 16 : nibble);
        float scale;

        memcpy(&scale, in + i / BLOCK * (int64_t)sizeof scale, sizeof scale);
        sums[i] += (float)code * scale;
    }
}

/* ---- ranks ---- */

struct narrow {
    struct operation *op;
    const struct comm_call *call;
    int bits, each, nodes;   /* ranks of a node; nodes */
    int node, place;         /* of this rank */
    int posted;
};

static int ranks_of_node(const struct comm_narrow *how, int size)
{
    return how->node > 0 && size % how->node == 0 ? how->node : size;
}

static int64_t count_of(const struct narrow *n, int node, int place)
{
    return n->call->in_counts[node * n->each + place];
}

static struct source block_of(const struct narrow *n, int node, int place)
{
    const struct comm_call *call = n->call;
    struct comm_root roots[COMM_ROOTS_MAX];
    struct source from = {.data = call->in.data, .roots = 1};

    for (int r = 0; r < node * n->each + place; r++)
        from.data += call->in_counts[r] * (int64_t)sizeof(float);
    if (call->leaves > 0)
        from.roots = comm_roots(call->leaves, n->op->group->size,
                                n->op->group->rank, roots);
    from.stride = call->root_stride > 0
                      ? call->root_stride
                      : tensor_count(&call->in) / from.roots *
                            (int64_t)sizeof(float);
    return from;
}

/* Bytes for a place of a node: its blocks of all nodes. */
static int64_t message_bytes(const struct narrow *n, int place)
{
    int64_t bytes = 0;

    for (int node = 0; node < n->nodes; node++)
        bytes += coded_bytes(count_of(n, node, place), n->bits);
    return bytes;
}

static status post(struct narrow *n, int to, const char *data, int64_t bytes)
{
    const struct comm_block block = block_plain(data, bytes);

    return block_post(n->op, to, &block, &n->posted);
}

static status post_inside(struct narrow *n)
{
    for (int i = 1; i < n->each; i++) {
        const int place = (n->place + i) % n->each;
        const int64_t bytes = message_bytes(n, place);
        char *data = operation_scratch(n->op, bytes), *at = data;

        for (int node = 0; node < n->nodes; node++) {
            const struct source from = block_of(n, node, place);
            const int64_t count = count_of(n, node, place);

            encode(at, &from, count, n->bits);
            at += coded_bytes(count, n->bits);
        }
        TRY(post(n, n->node * n->each + place, data, bytes));
    }
    return OK;
}

/* sums [nodes]: of this node's ranks, for this place of each node. */
static status inside(struct narrow *n, float **sums)
{
    const int64_t bytes = message_bytes(n, n->place);

    TRY(post_inside(n));
    for (int node = 0; node < n->nodes; node++) {
        const struct source own = block_of(n, node, n->place);

        for (int64_t i = 0; i < count_of(n, node, n->place); i++)
            sums[node][i] = number_at(&own, i);
    }
    for (int i = 1; i < n->each; i++) {
        const int place = (n->place + n->each - i) % n->each;
        char *at = operation_scratch(n->op, bytes);
        const struct comm_block in = block_plain(at, bytes);

        TRY(block_take(n->op, n->node * n->each + place, &in));
        for (int node = 0; node < n->nodes; node++) {
            const int64_t count = count_of(n, node, n->place);

            decode(sums[node], at, count, n->bits);
            at += coded_bytes(count, n->bits);
        }
    }
    return OK;
}

static status between(struct narrow *n, float **sums)
{
    const int64_t own = count_of(n, n->node, n->place);
    const int64_t bytes = coded_bytes(own, n->bits);

    for (int i = 1; i < n->nodes; i++) {
        const int node = (n->node + i) % n->nodes;
        const int64_t count = count_of(n, node, n->place);
        const int64_t out = coded_bytes(count, n->bits);
        const struct source from = {(const char *)sums[node], 1, 0};
        char *data = operation_scratch(n->op, out);

        encode(data, &from, count, n->bits);
        TRY(post(n, node * n->each + n->place, data, out));
    }
    for (int i = 1; i < n->nodes; i++) {
        const int node = (n->node + n->nodes - i) % n->nodes;
        char *data = operation_scratch(n->op, bytes);
        const struct comm_block in = block_plain(data, bytes);

        TRY(block_take(n->op, node * n->each + n->place, &in));
        decode(sums[n->node], data, own, n->bits);
    }
    return OK;
}

static status sum_levels(struct narrow *n)
{
    float **sums = operation_scratch(n->op,
                                     n->nodes * (int64_t)sizeof *sums);

    for (int node = 0; node < n->nodes; node++)
        sums[node] = node == n->node
                         ? n->call->out.data
                         : operation_scratch(n->op,
                                             count_of(n, node, n->place) *
                                                 (int64_t)sizeof(float));
    TRY(inside(n, sums));
    return between(n, sums);
}

status narrow_reduce(struct operation *op)
{
    const int size = op->group->size, me = op->group->rank;
    const int each = ranks_of_node(&op->call->narrow, size);
    struct narrow n = {
        .op = op, .call = op->call, .bits = op->call->narrow.bits,
        .each = each, .nodes = size / each, .node = me / each,
        .place = me % each};
    const status result = sum_levels(&n);
    const status ended = posts_end(op, n.posted, result != OK);

    return result != OK ? result : ended;
}

static size_t roomy(int64_t bytes, int times)
{
    return arena_aligned((size_t)bytes) * (size_t)times;
}

size_t narrow_scratch(const struct group *group, const struct comm_call *call)
{
    const int each = ranks_of_node(&call->narrow, group->size);
    const int nodes = group->size / each;
    int64_t most = 0;

    for (int i = 0; i < group->size; i++)
        if (call->in_counts[i] > most) most = call->in_counts[i];
    const int64_t coded = coded_bytes(most, call->narrow.bits);

    return roomy(nodes * (int64_t)sizeof(float *), 1) +
           roomy(most * (int64_t)sizeof(float), nodes - 1) +
           roomy(coded * nodes, 2 * (each - 1)) + roomy(coded, 2 * (nodes - 1));
}

/* A block of another rank is sent to the one of its place here or, added up, to
 * the rank itself. */
int64_t comm_narrow_sent(const int64_t *counts, int size, int rank, int bits)
{
    int64_t bytes = 0;

    for (int i = 0; i < size; i++)
        if (i != rank) bytes += coded_bytes(counts[i], bits);
    return bytes;
}
