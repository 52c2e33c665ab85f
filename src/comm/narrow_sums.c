/* SPDX-License-Identifier: Apache-2.0 */
/* narrow_sums.c - reduce-scatters whose numbers travel as integers of few bits,
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
 * With struct comm_narrow's starts a rank rounds its own numbers as well,
 * inside and between, and adds all by their ranks.
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

/* Elements [first, first + count) of the call's, and what of them begins. */
struct span { const struct comm_narrow *how; int64_t first, count; };

/* The first start behind an element; the end of the span: none before it. */
static int64_t next_start(const struct span *s, int64_t at)
{
    const struct comm_narrow *how = s->how;
    const int64_t end = s->first + s->count;
    int64_t low = 0, high = how->start_count;

    while (low < high) {
        const int64_t middle = (low + high) / 2;

        if (how->starts[middle] <= at) low = middle + 1;
        else high = middle;
    }
    return low < how->start_count && how->starts[low] < end ? how->starts[low]
                                                            : end;
}

/* Numbers of the block that begins at element `at` of the span. */
static int64_t block_length(const struct span *s, int64_t at)
{
    const int64_t all = s->how->starts == NULL
                            ? s->count - at
                            : next_start(s, s->first + at) - s->first - at;

    return all < BLOCK ? all : BLOCK;
}

/* Bytes of the numbers of one block. */
static int64_t code_bytes(const struct span *s, int64_t length)
{
    return (length * s->how->bits + 7) / 8;
}

/* Blocks of a span, and the bytes of their numbers. */
struct extent { int64_t blocks, bytes; };

static struct extent extent_of(const struct span *s)
{
    struct extent all = {0, 0};

    for (int64_t at = 0, end; at < s->count; at = end) {
        end = s->how->starts == NULL
                  ? s->count : next_start(s, s->first + at) - s->first;
        all.blocks += (end - at + BLOCK - 1) / BLOCK;
        all.bytes += (end - at) / BLOCK * code_bytes(s, BLOCK) +
                     code_bytes(s, (end - at) % BLOCK);
    }
    return all;
}

static int64_t coded_bytes(const struct span *s)
{
    const struct extent all = extent_of(s);

    return all.blocks * (int64_t)sizeof(float) +
           (all.bytes + ALIGN - 1) / ALIGN * ALIGN;
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

static void encode(char *out, const struct source *from, struct span s)
{
    const int bits = s.how->bits, limit = (1 << (bits - 1)) - 1;
    uint8_t *to = (uint8_t *)out + extent_of(&s).blocks *
                                       (int64_t)sizeof(float);
    int64_t length;

    for (int64_t at = 0; at < s.count; at += length, out += sizeof(float)) {
        int8_t codes[BLOCK];
        uint8_t pairs[BLOCK / 2];
        float block[BLOCK];

        length = block_length(&s, at);
        read_numbers(block, from, at, length);
        const float scale = scale_of(block, limit);

        memcpy(out, &scale, sizeof scale);
        find_codes(codes, block, scale, limit);
        for (int i = 0; i < BLOCK / 2 && bits == 4; i++)
            pairs[i] = (uint8_t)((codes[2 * i] & 15) |
                                 (codes[2 * i + 1] & 15) << 4);
        memcpy(to, bits == 8 ? (const void *)codes : pairs,
               (size_t)code_bytes(&s, length));
        to += code_bytes(&s, length);
    }
}

/* sums += the numbers of the codes of a span. */
static void decode(float *sums, const char *in, struct span s)
{
    const int bits = s.how->bits;
    const uint8_t *from = (const uint8_t *)in + extent_of(&s).blocks *
                                                    (int64_t)sizeof(float);
    int64_t length;

    for (int64_t at = 0; at < s.count; at += length, in += sizeof(float)) {
        int8_t codes[BLOCK] = {0};
        uint8_t pairs[BLOCK / 2] = {0};
        float block[BLOCK] = {0}, scale;

        length = block_length(&s, at);
        memcpy(&scale, in, sizeof scale);
        memcpy(block, sums + at, (size_t)length * sizeof *block);
        memcpy(bits == 8 ? (void *)codes : pairs, from,
               (size_t)code_bytes(&s, length));
        from += code_bytes(&s, length);
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
    const struct comm_narrow *how;
    int each, nodes;         /* ranks of a node; nodes */
    int node, place;         /* of this rank */
    int posted;
};

static int ranks_of_node(const struct comm_narrow *how, int size)
{
    return how->node > 0 && size % how->node == 0 ? how->node : size;
}

static struct span rank_span(const struct comm_narrow *how,
                             const int64_t *counts, int rank)
{
    struct span s = {how, 0, counts[rank]};

    for (int r = 0; r < rank; r++) s.first += counts[r];
    return s;
}

static struct span span_of(const struct narrow *n, int node, int place)
{
    return rank_span(n->how, n->call->in_counts, node * n->each + place);
}

static struct source block_of(const struct narrow *n, int node, int place)
{
    const struct comm_call *call = n->call;
    struct source from = {
        .data = (char *)call->in.data +
                span_of(n, node, place).first * (int64_t)sizeof(float),
        .roots = comm_own_roots(n->op->group, call->leaves)};

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

    for (int node = 0; node < n->nodes; node++) {
        const struct span s = span_of(n, node, place);

        bytes += coded_bytes(&s);
    }
    return bytes;
}

static status post(struct narrow *n, int to, const char *data, int64_t bytes)
{
    const struct comm_block block = block_plain(data, bytes);

    return block_post(n->op, to, &block, &n->posted);
}

/* This rank's blocks for a place of each node, coded. */
static char *code_blocks(struct narrow *n, int place)
{
    char *data = operation_scratch(n->op, message_bytes(n, place)), *at = data;

    for (int node = 0; node < n->nodes; node++) {
        const struct source from = block_of(n, node, place);
        const struct span s = span_of(n, node, place);

        encode(at, &from, s);
        at += coded_bytes(&s);
    }
    return data;
}

static status post_inside(struct narrow *n)
{
    for (int i = 1; i < n->each; i++) {
        const int place = (n->place + i) % n->each;

        TRY(post(n, n->node * n->each + place, code_blocks(n, place),
                 message_bytes(n, place)));
    }
    return OK;
}

/* The sums begin with this rank's numbers; they may lie where those do. */
static void begin_sums(struct narrow *n, float **sums)
{
    for (int node = 0; node < n->nodes; node++) {
        const struct source own = block_of(n, node, n->place);
        const int64_t count = span_of(n, node, n->place).count;

        for (int64_t at = 0; at < count; at += BLOCK) {
            float block[BLOCK];
            const int64_t length = count - at < BLOCK ? count - at : BLOCK;

            read_numbers(block, &own, at, length);
            memcpy(sums[node] + at, block, (size_t)length * sizeof *block);
        }
    }
}

static void add_blocks(struct narrow *n, float **sums, const char *at)
{
    for (int node = 0; node < n->nodes; node++) {
        const struct span s = span_of(n, node, n->place);

        decode(sums[node], at, s);
        at += coded_bytes(&s);
    }
}

static void clear(float *sums, const struct span *s)
{
    memset(sums, 0, (size_t)s->count * sizeof *sums);
}

/* sums [nodes]: of this node's ranks, for this place of each node. */
static status inside(struct narrow *n, float **sums)
{
    const int64_t bytes = message_bytes(n, n->place);
    const bool apart = n->how->starts != NULL;
    const char *own = apart ? code_blocks(n, n->place) : NULL;

    TRY(post_inside(n));
    if (!apart) begin_sums(n, sums);
    for (int node = 0; node < n->nodes && apart; node++) {
        const struct span s = span_of(n, node, n->place);

        clear(sums[node], &s);
    }
    for (int i = apart ? 0 : 1; i < n->each; i++) {
        const int place = apart ? i : (n->place + n->each - i) % n->each;

        if (place == n->place) {
            add_blocks(n, sums, own);
            continue;
        }
        char *at = operation_scratch(n->op, bytes);
        const struct comm_block in = block_plain(at, bytes);

        TRY(block_take(n->op, n->node * n->each + place, &in));
        add_blocks(n, sums, at);
    }
    return OK;
}

/* The sums of a node's blocks, coded. */
static char *code_sums(struct narrow *n, const float *sums, int node)
{
    const struct span s = span_of(n, node, n->place);
    const struct source from = {(const char *)sums, 1, 0};
    char *data = operation_scratch(n->op, coded_bytes(&s));

    encode(data, &from, s);
    return data;
}

static status between(struct narrow *n, float **sums)
{
    const struct span own = span_of(n, n->node, n->place);
    const bool apart = n->how->starts != NULL && n->nodes > 1;
    const char *mine = apart ? code_sums(n, sums[n->node], n->node) : NULL;

    for (int i = 1; i < n->nodes; i++) {
        const int node = (n->node + i) % n->nodes;
        const struct span s = span_of(n, node, n->place);

        TRY(post(n, node * n->each + n->place, code_sums(n, sums[node], node),
                 coded_bytes(&s)));
    }
    if (apart) clear(sums[n->node], &own);
    for (int i = apart ? 0 : 1; i < n->nodes; i++) {
        const int node = apart ? i : (n->node + n->nodes - i) % n->nodes;

        if (node == n->node) {
            decode(sums[node], mine, own);
            continue;
        }
        char *data = operation_scratch(n->op, coded_bytes(&own));
        const struct comm_block in = block_plain(data, coded_bytes(&own));

        TRY(block_take(n->op, node * n->each + n->place, &in));
        decode(sums[n->node], data, own);
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
                                             span_of(n, node, n->place).count *
                                                 (int64_t)sizeof(float));
    TRY(inside(n, sums));
    return between(n, sums);
}

status narrow_reduce(struct operation *op)
{
    const int size = op->group->size, me = op->group->rank;
    const int each = ranks_of_node(&op->call->narrow, size);
    struct narrow n = {
        .op = op, .call = op->call, .how = &op->call->narrow,
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
    const int own = call->narrow.starts != NULL;
    int64_t most = 0, coded = 0;

    for (int i = 0; i < group->size; i++) {
        const struct span s = rank_span(&call->narrow, call->in_counts, i);
        const int64_t bytes = coded_bytes(&s);

        if (s.count > most) most = s.count;
        if (bytes > coded) coded = bytes;
    }
    return roomy(nodes * (int64_t)sizeof(float *), 1) +
           roomy(most * (int64_t)sizeof(float), nodes - 1) +
           roomy(coded * nodes, 2 * (each - 1) + own) +
           roomy(coded, 2 * (nodes - 1) + own);
}

/* A block of another rank is sent to the one of its place here or, added up, to
 * the rank itself. */
int64_t comm_narrow_sent(const struct comm_narrow *how, const int64_t *counts,
                         int size, int rank)
{
    int64_t bytes = 0;

    for (int i = 0; i < size; i++) {
        const struct span s = rank_span(how, counts, i);

        if (i != rank) bytes += coded_bytes(&s);
    }
    return bytes;
}
