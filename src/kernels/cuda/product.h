/* SPDX-License-Identifier: Apache-2.0 */
/* product.h - a tile of a product, for kernels of CUDA: of one matrix, or of
 * one expert, whose rows lie where their tokens do. */
#ifndef LOCKSTEP_KERNELS_CUDA_PRODUCT_H
#define LOCKSTEP_KERNELS_CUDA_PRODUCT_H

#include "kernels/cuda/words.h"
#include "kernels/expert_index.h"

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

/* Rows (of b: columns) rows[0] to rows[0] + PRODUCT_TILE, at most rows[1], of
 * an operand and elements sum[0] to sum[1] of the sum. Threads that follow each
 * other read what follows each other in memory. */
DEVICE void tile_load(float (*out)[PRODUCT_TILE + ROW_PAD],
                      const struct product_operand *x,
                      const int64_t rows[2], const int64_t sum[2],
                      const struct product_expert *of)
{
    const int depth = (int)(sum[1] - sum[0]);
    const bool along = (x->inner == 1) != x->summed; /* the sum is dense */

    UNROLLED for (int i = 0; i < DEPTH * PRODUCT_TILE / BLOCK_THREADS; i++) {
        const int element = i * BLOCK_THREADS + THREAD;
        const int at = along ? element / DEPTH : element % PRODUCT_TILE;
        const int of_sum = along ? element % DEPTH : element / PRODUCT_TILE;

        if (of_sum < depth)
            out[of_sum][at] =
                rows[0] + at >= rows[1] ? 0.0f
                : x->summed ? operand_get(x, sum[0] + of_sum, rows[0] + at, of,
                                          DTYPE_F32)
                            : operand_get(x, rows[0] + at, sum[0] + of_sum, of,
                                          DTYPE_F32);
    }
}

DEVICE void chains_step(const struct product_shared *s, int k, int row,
                        int column, struct patch *chain)
{
    float a[PATCH], b[PATCH];

    UNROLLED for (int i = 0; i < PATCH; i++) a[i] = s->a[k][row + i];
    UNROLLED for (int j = 0; j < PATCH; j++) b[j] = s->b[k][column + j];
    EACH_OF_PATCH chain->at[i][j] =
        __builtin_fmaf(a[i], b[j], chain->at[i][j]);
}

/* chain = the granule of elements part[0] to part[1]. */
DEVICE void granule_chain(const struct tiled *p, struct product_shared *s,
                          const int64_t tile[2], const int64_t part[2],
                          const struct product_expert *of,
                          struct patch *chain)
{
    const int length = (int)(part[1] - part[0]);
    const int64_t rows[2] = {tile[0], p->m}, columns[2] = {tile[1], p->n};
    const int row = THREAD / SIDE * PATCH, column = THREAD % SIDE * PATCH;

    EACH_OF_PATCH chain->at[i][j] = 0;
    for (int done = 0; done < length; done += DEPTH) {
        const int depth = length - done < DEPTH ? length - done : DEPTH;

        const int64_t sum[2] = {part[0] + done, part[0] + done + depth};

        tile_load(s->a, &p->a, rows, sum, of);
        tile_load(s->b, &p->b, columns, sum, of);
        BARRIER;
        if (depth == DEPTH) {
            UNROLLED for (int k = 0; k < DEPTH; k++)
                chains_step(s, k, row, column, chain);
        } else {
            LOOPED for (int k = 0; k < depth; k++)
                chains_step(s, k, row, column, chain);
        }
        BARRIER;
    }
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

/* The same of one number. The last leaf may be pushed, or given to the root. */
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

DEVICE void patch_store(const struct tiled *p, int64_t row, int64_t column,
                        const struct patch *sum)
{
    EACH_OF_PATCH {
        const int64_t r = row + i, c = column + j;
        float result = sum->at[i][j];

        if (r >= p->m || c >= p->n) continue;
        if (p->bias) result = result + p->bias[c];
        if (p->left) result = p->left[r * p->left_stride + c] + result;
        p->c[r * p->c_stride + c] = result;
    }
}

/* The patch of a thread in a tile of c, whose first row and column are `tile`.
 * `one`: there is one leaf. Returns whether it has a term. */
DEVICE bool product_sum(const struct tiled *p, const int64_t tile[2],
                        const struct product_expert *of, bool one,
                        struct patch *sum)
{
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
            ? p->c[(row + i) * p->c_stride + column + j] : 0.0f;
    for (int64_t n = 0; n < p->segment_count; n++) {
        struct sum_segment segment = p->segments[n];

        if (!one && segment.leaf != leaf) {
            leaf_push(&tree, leaf, sum, there);
            leaf = segment.leaf;
            there = false;
        }
        if (of && of->contracted)
            segment = expert_segment(of->groups, of->number, &segment);
        for (int64_t done = 0; done < segment.length; done += GRANULE) {
            const int64_t left = segment.length - done;
            const int64_t first = segment.first + done;
            const int64_t part[2] = {
                first, first + (left < GRANULE ? left : GRANULE)};

            granule_chain(p, s, tile, part, of, &chain);
            EACH_OF_PATCH sum->at[i][j] =
                there ? sum->at[i][j] + chain.at[i][j] : chain.at[i][j];
            there = true;
        }
    }
    if (!one) tree_root(&tree, sum, &there);
    return there;
}

/* Tile `number` of c, row by row of tiles. */
DEVICE void product_tile(const struct tiled *p, int64_t number, bool one)
{
    const int64_t tile[2] = {number / p->column_tiles * PRODUCT_TILE,
                             number % p->column_tiles * PRODUCT_TILE};
    struct patch sum;

    product_sum(p, tile, NULL, one, &sum);
    patch_store(p, tile[0] + THREAD / SIDE * PATCH,
                tile[1] + THREAD % SIDE * PATCH, &sum);
}

#endif
