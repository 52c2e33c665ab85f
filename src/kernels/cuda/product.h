/* SPDX-License-Identifier: Apache-2.0 */
/* product.h - a tile of a product, for kernels of CUDA: of one matrix, or of
 * one expert, whose rows lie where their tokens do. */
#ifndef LOCKSTEP_KERNELS_CUDA_PRODUCT_H
#define LOCKSTEP_KERNELS_CUDA_PRODUCT_H

#include "kernels/cuda/words.h"
#include "kernels/expert_index.h"
#include "kernels/flush.h"

enum {
    PATCH = 4,      /* rows and columns of a thread */
    DEPTH = 16,     /* elements of the sum that are loaded at a time */
    ROW_PAD = 4,    /* so that threads write to different banks */
    SIDE = PRODUCT_TILE / PATCH,
    LEVELS_MOST = 6 /* LEAVES_MAX leaves */
};
struct product_shared {
    float a[DEPTH][PRODUCT_TILE + ROW_PAD], b[DEPTH][PRODUCT_TILE + ROW_PAD];
};

/* The PATCH x PATCH elements of a thread. */
struct patch { float at[PATCH][PATCH]; };

/* The nodes that wait, bit l of `waits` for level l. They are looked at once in
 * a leaf, so they are no registers: loops over them are LOOPED. */
struct leaf_tree {
    struct patch levels[LEVELS_MOST];
    unsigned waits;
};

#define EACH_OF_PATCH                          \
    UNROLLED for (int i = 0; i < PATCH; i++)   \
        UNROLLED for (int j = 0; j < PATCH; j++)

/* The expert of a tile. Where `contracted`, elements of the sum are its rows,
 * else rows of a are. */
struct product_expert {
    const struct expert_groups *groups;
    int number;
    bool contracted;
};

/* Element of an operand one of whose indices is a row of an expert; `dtype` is
 * the operand's, where it is known. */
DEVICE float operand_gather(const struct product_operand *x, int64_t outer,
                            int64_t inner, const struct product_expert *of,
                            enum dtype dtype)
{
    const bool by_outer = of->contracted == x->summed;
    const int64_t g = of->groups->offsets[of->number] +
                      (by_outer ? outer : inner);
    const int64_t row =
        x->gathered ? of->groups->entries[g] / of->groups->choices : g;
    const float value = element_get(
        x->data, dtype, by_outer ? row * x->outer + inner * x->inner
                                 : outer * x->outer + row * x->inner);

    return x->scales ? element_scaled(
                           value, x->scales[of->groups->entries[g]], dtype)
                     : value;
}

DEVICE float operand_get(const struct product_operand *x, int64_t outer,
                         int64_t inner, const struct product_expert *of,
                         enum dtype dtype)
{
    if (of && x->of_rows) return operand_gather(x, outer, inner, of, dtype);
    return element_get(x->data, dtype, outer * x->outer + inner * x->inner);
}

/* A product as a kernel makes it; `kind` and `one` are constants. */
struct product_work {
    const struct tiled *p;
    const struct product_expert *of; /* or NULL */
    enum granule_kind kind;
    bool one;                        /* there is one leaf */
};

/* Whether multiply-adds flush, as those of bfloat16 do (kernels/flush.h). */
DEVICE bool kind_flushes(enum granule_kind kind)
{
    return kind == GRANULE_PAIRS || kind == GRANULE_TILES;
}

/* a * b + c; where it flushes, a, b and c are flushed already. What was rounded
 * to 2^-126 is the only number that does not say whether it was below. */
DEVICE float kind_fma(enum granule_kind kind, float a, float b, float c)
{
    const float r = __builtin_fmaf(a, b, c);

    if (!kind_flushes(kind)) return r;
    if (__builtin_fabsf(r) == 0x1p-126f)
        return flushed_result(r, (double)a * (double)b + (double)c);
    return flushed(r);
}

/* The sum of flushed numbers, flushed: one that is denormal is exact. */
DEVICE float add_flushed(float a, float b)
{
    return flushed(a + b);
}

/* Rows (of b: columns) rows[0] to rows[0] + PRODUCT_TILE, at most rows[1], of
 * an operand and elements sum[0] to sum[1] of the sum, then +0 up to sum[2].
 * Threads that follow each other read what follows each other in memory. */
DEVICE void tile_load(const struct product_work *w,
                      float (*out)[PRODUCT_TILE + ROW_PAD],
                      const struct product_operand *x,
                      const int64_t rows[2], const int64_t sum[3])
{
    const int depth = (int)(sum[1] - sum[0]), all = (int)(sum[2] - sum[0]);
    const bool along = (x->inner == 1) != x->summed; /* the sum is dense */
    const enum dtype dtype = product_dtype(w->kind);

    UNROLLED for (int i = 0; i < DEPTH * PRODUCT_TILE / BLOCK_THREADS; i++) {
        const int element = i * BLOCK_THREADS + THREAD;
        const int at = along ? element / DEPTH : element % PRODUCT_TILE;
        const int of_sum = along ? element % DEPTH : element / PRODUCT_TILE;
        float value = 0;

        if (of_sum >= all) continue;
        if (of_sum < depth && rows[0] + at < rows[1])
            value = x->summed ? operand_get(x, sum[0] + of_sum, rows[0] + at,
                                            w->of, dtype)
                              : operand_get(x, rows[0] + at, sum[0] + of_sum,
                                            w->of, dtype);
        out[of_sum][at] = kind_flushes(w->kind) ? flushed(value) : value;
    }
}

DEVICE void chains_step(enum granule_kind kind, const struct product_shared *s,
                        int k, struct patch *chain)
{
    const int row = THREAD / SIDE * PATCH, column = THREAD % SIDE * PATCH;
    float a[PATCH], b[PATCH];

    UNROLLED for (int i = 0; i < PATCH; i++) a[i] = s->a[k][row + i];
    UNROLLED for (int j = 0; j < PATCH; j++) b[j] = s->b[k][column + j];
    EACH_OF_PATCH chain->at[i][j] =
        kind_fma(kind, a[i], b[j], chain->at[i][j]);
}

/* Elements sum[0] to sum[2] of both operands, for tile_load. */
DEVICE void operands_load(const struct product_work *w,
                          struct product_shared *s, const int64_t tile[2],
                          const int64_t sum[3])
{
    const int64_t rows[2] = {tile[0], w->p->m}, columns[2] = {tile[1], w->p->n};

    tile_load(w, s->a, &w->p->a, rows, sum);
    tile_load(w, s->b, &w->p->b, columns, sum);
    BARRIER;
}

/* chain = the granule of elements part[0] to part[1]. Of a pair the odd element
 * comes first; an odd end is filled. */
DEVICE void granule_chain(const struct product_work *w,
                          struct product_shared *s, const int64_t tile[2],
                          const int64_t part[2], struct patch *chain)
{
    const int swap = w->kind == GRANULE_PAIRS;

    EACH_OF_PATCH chain->at[i][j] = 0;
    for (int64_t first = part[0]; first < part[1]; first += DEPTH) {
        const int64_t left = part[1] - first;
        const int depth = left < DEPTH ? (int)left : DEPTH;
        const int all = depth + (depth & swap);
        const int64_t sum[3] = {first, first + depth, first + all};

        operands_load(w, s, tile, sum);
        if (all == DEPTH && !kind_flushes(w->kind)) {
            UNROLLED for (int k = 0; k < DEPTH; k++)
                chains_step(w->kind, s, k, chain);
        } else {
            LOOPED for (int k = 0; k < all; k++)
                chains_step(w->kind, s, k ^ swap, chain);
        }
        BARRIER;
    }
}

/* Like granule_chain, in blocks of PRODUCT_BLOCK elements, the last one filled:
 * two chains, of the even and of the odd elements, added to each other and to
 * the granule. */
DEVICE void granule_tiles(const struct product_work *w,
                          struct product_shared *s, const int64_t tile[2],
                          const int64_t part[2], struct patch *chain)
{
    EACH_OF_PATCH chain->at[i][j] = 0;
    for (int64_t block = part[0]; block < part[1]; block += PRODUCT_BLOCK) {
        struct patch even, odd;

        EACH_OF_PATCH even.at[i][j] = odd.at[i][j] = 0;
        LOOPED for (int done = 0; done < PRODUCT_BLOCK; done += DEPTH) {
            const int64_t first = block + done, end = first + DEPTH;
            const int64_t there = part[1] < first ? first
                                  : part[1] < end ? part[1] : end;
            const int64_t sum[3] = {first, there, end};

            operands_load(w, s, tile, sum);
            LOOPED for (int k = 0; k < DEPTH; k += 2) {
                chains_step(w->kind, s, k, &even);
                chains_step(w->kind, s, k + 1, &odd);
            }
            BARRIER;
        }
        EACH_OF_PATCH chain->at[i][j] =
            add_flushed(chain->at[i][j],
                        add_flushed(even.at[i][j], odd.at[i][j]));
    }
}

/* To so many significant bits, towards zero; no operand is a denormal. */
DEVICE double number_cut(double x, int bits)
{
    union { double number; uint64_t bits; } of = {x};

    of.bits &= ~(((uint64_t)1 << (53 - bits)) - 1);
    return of.number;
}

/* The power of two at or below a magnitude, times 2^(1 - bits): what products
 * are cut to multiples of. */
DEVICE double unit_below(double largest, int bits)
{
    union { double number; uint64_t bits; } of = {largest}, down;

    of.bits &= (uint64_t)0x7FF << 52;
    down.bits = (uint64_t)(1023 + 1 - bits) << 52;
    return of.number * down.number;
}

/* Products of a granule: their largest magnitude and plain sum, then the sum
 * of what is left of each. */
struct cut_sums { double largest[PATCH][PATCH], sum[PATCH][PATCH]; };

DEVICE void cut_step(const struct product_shared *s, int k, bool counts,
                     int bits, struct cut_sums *x)
{
    const int row = THREAD / SIDE * PATCH, column = THREAD % SIDE * PATCH;

    EACH_OF_PATCH {
        const double p = (double)s->a[k][row + i] *
                         (double)s->b[k][column + j];
        const double size = __builtin_fabs(p);

        if (!counts) {
            x->sum[i][j] = x->sum[i][j] + p;
            if (size > x->largest[i][j]) x->largest[i][j] = size;
        } else {
            const double units = p / unit_below(x->largest[i][j], bits);

            if (__builtin_fabs(units) < 0x1p31) /* it is finite */
                x->sum[i][j] = x->sum[i][j] + (double)(int32_t)units;
        }
    }
}

/* One of the two looks at the granule of elements part[0] to part[1]. */
DEVICE void cut_look(const struct product_work *w, struct product_shared *s,
                     const int64_t tile[2], const int64_t part[2], bool counts,
                     struct cut_sums *x)
{
    for (int64_t first = part[0]; first < part[1]; first += DEPTH) {
        const int64_t left = part[1] - first;
        const int depth = left < DEPTH ? (int)left : DEPTH;
        const int64_t sum[3] = {first, first + depth, first + depth};

        operands_load(w, s, tile, sum);
        LOOPED for (int k = 0; k < depth; k++)
            cut_step(s, k, counts, w->p->accumulator.bits, x);
        BARRIER;
    }
}

/* chain = what a matrix unit of few bits makes of elements part[0] to part[1]
 * (docs/numerics.md, "Accumulators of hardware"). */
DEVICE void granule_cut(const struct product_work *w, struct product_shared *s,
                        const int64_t tile[2], const int64_t part[2],
                        struct patch *chain)
{
    const struct accumulator of = w->p->accumulator;
    double c[PATCH][PATCH];

    EACH_OF_PATCH c[i][j] = 0;
    LOOPED for (int64_t first = part[0]; first < part[1];
                first += of.granule) {
        const int64_t end = part[1] - first < of.granule
                                ? part[1] : first + of.granule;
        const int64_t granule[2] = {first, end};
        struct cut_sums x;
        unsigned plain = 0; /* a bit for each element that is not finite */

        EACH_OF_PATCH x.largest[i][j] = x.sum[i][j] = 0;
        cut_look(w, s, tile, granule, false, &x);
        EACH_OF_PATCH {
            const bool ends =
                !(__builtin_fabs(x.sum[i][j]) <= 0x1.fffffffffffffp1023);

            if (ends) {
                plain |= 1u << (i * PATCH + j);
                c[i][j] = number_cut(c[i][j] + x.sum[i][j], of.bits);
            }
            if (ends || !(x.largest[i][j] > 0)) x.largest[i][j] = 1;
            x.sum[i][j] = 0;
        }
        cut_look(w, s, tile, granule, true, &x);
        EACH_OF_PATCH {
            const double t = number_cut(
                x.sum[i][j] * unit_below(x.largest[i][j], of.bits), of.bits);

            if (!(plain >> (i * PATCH + j) & 1))
                c[i][j] = number_cut(c[i][j] + t, of.bits);
        }
    }
    EACH_OF_PATCH chain->at[i][j] = (float)c[i][j];
}

DEVICE void node_merge(struct patch *node, bool *there,
                       const struct patch *left)
{
    EACH_OF_PATCH node->at[i][j] =
        *there ? left->at[i][j] + node->at[i][j] : left->at[i][j];
    *there = true;
}

/* Adds leaf `number`, in ascending order. One that is not there is missing: its
 * parent is the other child. */
DEVICE void leaf_push(struct leaf_tree *tree, int number, struct patch *node,
                      bool there)
{
    int l = 0;

    LOOPED for (; number >> l & 1; l++) {
        if (!(tree->waits >> l & 1)) continue;
        node_merge(node, &there, &tree->levels[l]);
        tree->waits &= ~(1u << l);
    }
    if (!there) return;
    tree->levels[l] = *node;
    tree->waits |= 1u << l;
}

/* The node of all leaves, from the last one. */
DEVICE void tree_root(struct leaf_tree *tree, struct patch *node, bool *there)
{
    LOOPED for (int l = 0; l < LEVELS_MOST; l++)
        if (tree->waits >> l & 1) node_merge(node, there, &tree->levels[l]);
}

/* Like tree_root, of one number. The last leaf may be pushed, or given to the
 * root. */
struct number_tree {
    float levels[LEVELS_MOST + 1];
    unsigned waits;
};

DEVICE void number_merge(float *node, bool *there, float left)
{
    *node = *there ? left + *node : left;
    *there = true;
}

DEVICE void number_push(struct number_tree *tree, int leaf, float node,
                        bool there)
{
    int l = 0;

    for (; leaf >> l & 1; l++) {
        if (!(tree->waits >> l & 1)) continue;
        number_merge(&node, &there, tree->levels[l]);
        tree->waits &= ~(1u << l);
    }
    if (!there) return;
    tree->levels[l] = node;
    tree->waits |= 1u << l;
}

DEVICE void number_root(const struct number_tree *tree, float *node,
                        bool *there)
{
    for (int l = 0; tree->waits >> l; l++)
        if (tree->waits >> l & 1) number_merge(node, there, tree->levels[l]);
}

/* Rounded once where c is narrow. */
DEVICE void patch_store(const struct product_work *w, const int64_t tile[2],
                        const struct patch *sum)
{
    const struct tiled *p = w->p;
    const bool narrow = w->kind != GRANULE_CHAIN;
    const enum dtype left = narrow ? p->left_dtype : DTYPE_F32;

    EACH_OF_PATCH {
        const int64_t r = tile[0] + THREAD / SIDE * PATCH + i;
        const int64_t c = tile[1] + THREAD % SIDE * PATCH + j;
        float result = sum->at[i][j];

        if (r >= p->m || c >= p->n) continue;
        if (p->bias)
            result = result + element_get(p->bias, product_dtype(w->kind), c);
        if (p->left)
            result = element_get(p->left, left, r * p->left_stride + c) +
                     result;
        element_set(p->c, narrow ? p->c_dtype : DTYPE_F32,
                    r * p->c_stride + c, result);
    }
}

/* Elements that are summed before the float32 sum of the leaf gets them. */
DEVICE int64_t granule_of(const struct product_work *w, int64_t length)
{
    if (w->kind != GRANULE_CUT) return GRANULE;
    return w->p->accumulator.promote > 0 ? w->p->accumulator.promote : length;
}

/* The patch of a thread in a tile of c, whose first row and column are `tile`.
 * Returns whether it has a term. What it continues is float32. */
DEVICE bool product_sum(const struct product_work *w, const int64_t tile[2],
                        struct patch *sum)
{
    const struct tiled *p = w->p;
    const int64_t row = tile[0] + THREAD / SIDE * PATCH;
    const int64_t column = tile[1] + THREAD % SIDE * PATCH;
    struct leaf_tree tree;
    struct patch chain;
    bool there = p->continues;
    int leaf = 0;
    SHARED(struct product_shared, s);

    tree.waits = 0;
    EACH_OF_PATCH sum->at[i][j] =
        there && row + i < p->m && column + j < p->n
            ? ((float *)p->c)[(row + i) * p->c_stride + column + j] : 0.0f;
    for (int64_t n = 0; n < p->segment_count; n++) {
        struct sum_segment segment = p->segments[n];

        if (!w->one && segment.leaf != leaf) {
            leaf_push(&tree, leaf, sum, there);
            leaf = segment.leaf;
            there = false;
        }
        if (w->of && w->of->contracted)
            segment = expert_segment(w->of->groups, w->of->number, &segment);
        const int64_t granule = granule_of(w, segment.length);

        for (int64_t done = 0; done < segment.length; done += granule) {
            const int64_t left = segment.length - done;
            const int64_t first = segment.first + done;
            const int64_t part[2] = {
                first, first + (left < granule ? left : granule)};

            if (w->kind == GRANULE_CUT)
                granule_cut(w, s, tile, part, &chain);
            else if (w->kind == GRANULE_TILES)
                granule_tiles(w, s, tile, part, &chain);
            else
                granule_chain(w, s, tile, part, &chain);
            EACH_OF_PATCH sum->at[i][j] =
                there ? sum->at[i][j] + chain.at[i][j] : chain.at[i][j];
            there = true;
        }
    }
    if (!w->one) tree_root(&tree, sum, &there);
    return there;
}

/* The kernels of PRODUCT_NAMES; body(call, kind, one). */
#define PRODUCT_KERNELS(bound, name, body)                                 \
    PRODUCT_KERNEL_PAIR(bound, name, body, GRANULE_CHAIN)                  \
    PRODUCT_KERNEL_PAIR(bound, name##_pairs, body, GRANULE_PAIRS)          \
    PRODUCT_KERNEL_PAIR(bound, name##_tiles, body, GRANULE_TILES)          \
    PRODUCT_KERNEL_PAIR(bound, name##_f16, body, GRANULE_WIDENED)          \
    PRODUCT_KERNEL_PAIR(bound, name##_cut, body, GRANULE_CUT)
#define PRODUCT_KERNEL_PAIR(bound, name, body, kind)                       \
    bound(name##_leaf) { body(&p->call, kind, true); }                     \
    bound(name##_tree) { body(&p->call, kind, false); }

#endif
