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

/* The loops go over whole blocks, whose length compilers know. Numbers [BLOCK]
 * from element `at` on, of which there are `count`; then 0. */
static void read_numbers(float *numbers, const struct source *from, int64_t at,
                         int64_t count)
{
    const char *root = from->data + at * (int64_t)sizeof(float);

    if (count < BLOCK) memset(numbers, 0, BLOCK * sizeof(float));
    memcpy(numbers, root, (size_t)count * sizeof(float));
    for (int r = 1; r < from->roots; r++) {
        float more[BLOCK] = {0};

        memcpy(more, root + r * from->stride, (size_t)count * sizeof(float));
        for (int i = 0; i < BLOCK; i++) numbers[i] += more[i];
    }
}

/* The scale of a block; NaN: it has what is not finite. */
static float scale_of(const float *block, int limit)
{
    uint32_t most = 0, bits[BLOCK]; /* they ascend as magnitudes do */
    float largest;

    memcpy(bits, block, sizeof bits);
    for (int i = 0; i < BLOCK; i++) {
        const uint32_t one = bits[i] & 0x7FFFFFFFu;

        most = one > most ? one : most;
    }
    if (most >= 0x7F800000u) most = 0x7FC00000u;
    memcpy(&largest, &most, sizeof largest);
    return largest / (float)limit;
}

/* Nearest integers to numbers over the scale, which is 0 or NaN where they are
 * to be 0. */
static void find_codes(int8_t *codes, const float *block, float scale,
                       int limit)
{
    const float by = scale > 0 ? scale : 1, most = (float)limit;
    int whole[BLOCK];

    for (int i = 0; i < BLOCK; i++) {
        const float number = block[i] / by;
        const float half = number < 0 ? number - 0.5f : number + 0.5f;
        const float low = half > -most ? half : -most; /* NaN: any */

        whole[i] = (int)(low < most ? low : most);
    }
    if (!(scale > 0)) memset(whole, 0, sizeof whole);
    for (int i = 0; i < BLOCK; i++) codes[i] = (int8_t)whole[i];
}

static void encode(char *out, const struct source *from, int64_t count,
                   int bits)
{
    const int limit = (1 << (bits - 1)) - 1;
    uint8_t *to = (uint8_t *)out + (count + BLOCK - 1) / BLOCK *
                                       (int64_t)sizeof(float);

    for (int64_t at = 0; at < count; at += BLOCK, out += sizeof(float)) {
        const int64_t length = count - at < BLOCK ? count - at : BLOCK;
        int8_t codes[BLOCK];
        uint8_t pairs[BLOCK / 2];
        float block[BLOCK];

        read_numbers(block, from, at, length);
        const float scale = scale_of(block, limit);

        memcpy(out, &scale, sizeof scale);
        find_codes(codes, block, scale, limit);
        if (bits == 8) memcpy(to + at, codes, (size_t)length);
        if (bits == 8) continue;
        for (int i = 0; i < BLOCK / 2; i++)
            pairs[i] = (uint8_t)((codes[2 * i] & 15) |
                                 (codes[2 * i + 1] & 15) << 4);
        memcpy(to + at / 2, pairs, (size_t)(length + 1) / 2);
    }
}

/* sums += the numbers of `count` codes. */
static void decode(float *sums, const char *in, int64_t count, int bits)
{
    const uint8_t *from = (const uint8_t *)in + (count + BLOCK - 1) / BLOCK *
                                                    (int64_t)sizeof(float);

    for (int64_t at = 0; at < count; at += BLOCK, in += sizeof(float)) {
        const int64_t length = count - at < BLOCK ? count - at : BLOCK;
        int8_t codes[BLOCK] = {0};
        uint8_t pairs[BLOCK / 2] = {0};
        float block[BLOCK] = {0}, scale;

        memcpy(&scale, in, sizeof scale);
        memcpy(block, sums + at, (size_t)length * sizeof *block);
        if (bits == 8) memcpy(codes, from + at, (size_t)length);
        else memcpy(pairs, from + at / 2, (size_t)(length + 1) / 2);
        for (int i = 0; i < BLOCK / 2 && bits == 4; i++) {
            codes[2 * i] = (int8_t)((pairs[i] & 15) - ((pairs[i] & 8) << 1));
            codes[2 * i + 1] =
                (int8_t)((pairs[i] >> 4) - ((pairs[i] & 128) >> 3));
        }
        for (int i = 0; i < BLOCK; i++) block[i] += (float)codes[i] * scale;
        memcpy(sums + at, block, (size_t)length * sizeof *block);
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

        const int64_t count = count_of(n, node, n->place);

        for (int64_t at = 0; at < count; at += BLOCK) {
            float block[BLOCK]; /* the sums may lie where the numbers do */
            const int64_t length = count - at < BLOCK ? count - at : BLOCK;

            read_numbers(block, &own, at, length);
            memcpy(sums[node] + at, block, (size_t)length * sizeof *block);
        }
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
