/* SPDX-License-Identifier: Apache-2.0 */
/* attention.h - the parts that the two directions of the fast attention share.
 *
 * Scores stand transposed: a row is a key, and queries are adjacent, so that
 * maxima, exponentials and sums over keys work on vectors of queries and
 * nothing is ever folded inside a vector. Only a query alone has keys in the
 * lanes (attention_one.c).
 *
 * Letters: G = ATTENTION_GRANULE positions. `width` is head_width, `padded`
 * the same in whole vectors: tails of rows are +0 and never reach a chain over
 * the width, which has exactly head_width elements. */
#ifndef LOCKSTEP_KERNELS_CPU_ATTENTION_ATTENTION_H
#define LOCKSTEP_KERNELS_CPU_ATTENTION_ATTENTION_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/vector.h"
#include "kernels/element.h"

enum {
    G = ATTENTION_GRANULE,
    QUERIES = ATTENTION_QUERIES,
    CHAINS_WHOLE = 1 << 30, /* lag: all of `length` */
    STRIP_COLUMNS = 32      /* of operands that are packed for tiles */
};

/* Rows that are needed soon, asked of memory while tiles work: some rows with
 * each tile, or a line every few steps, which leaves the tile's own operands
 * more of the places that wait for memory. The last part is asked for first. */
enum { AHEAD_PARTS = 8 };
struct ahead {
    struct {
        const char *row;
        int64_t stride; /* bytes */
        int rows, bytes, byte;
    } parts[AHEAD_PARTS];
    int count;
    int tile_rows; /* asked for with each tile; 0: lines, every few steps */
};

static inline void ahead_add(struct ahead *ahead, const struct tensor *t,
                             int64_t row, int head, int64_t rows)
{
    const int bytes = dtype_is_narrow(t->dtype) ? 2 : 4;
    const int part = ahead->count;

    if (rows <= 0 || t->data == NULL || part == AHEAD_PARTS) return;
    ahead->parts[part].row = element_at(
        t->data, t->dtype, row * t->stride[0] + head * t->stride[1]);
    ahead->parts[part].bytes = bytes * (int)t->shape[2];
    ahead->parts[part].byte = 0;
    ahead->parts[part].stride = bytes * t->stride[0];
    ahead->parts[part].rows = rows < ATTENTION_GRANULE ? (int)rows
                                                       : ATTENTION_GRANULE;
    ahead->count++;
}

/* Asks for the next line of memory, into the second level. */
INLINE void ahead_step(struct ahead *ahead)
{
    const int last = ahead->count - 1;
    int byte;

    if (last < 0) return;
    byte = ahead->parts[last].byte;
    __builtin_prefetch(ahead->parts[last].row + byte, 0, 2);
    byte += LINE;
    if (byte >= ahead->parts[last].bytes) {
        ahead->parts[last].row += ahead->parts[last].stride;
        ahead->count -= --ahead->parts[last].rows == 0;
        byte = 0;
    }
    ahead->parts[last].byte = byte;
}

/* Asks for the rows that are due with a tile. */
static inline void ahead_tile(struct ahead *ahead)
{
    for (int n = ahead->tile_rows; n > 0 && ahead->count > 0; n--) {
        const int last = ahead->count - 1;
        const char *row = ahead->parts[last].row;

        for (int byte = 0; byte < ahead->parts[last].bytes; byte += LINE)
            __builtin_prefetch(row + byte, 0, 2);
        ahead->parts[last].row = row + ahead->parts[last].stride;
        ahead->count -= --ahead->parts[last].rows == 0;
    }
}

/* c[i][j] = (chain over e of a[i * a_row + e * a_step] * b[e * b_step + j])
 * + (+0), for rows i and columns j in whole vectors. a_row or a_step is 1.
 * Row i needs the first lag + i + 1 elements of its chain; what follows is +0
 * in a and may be left out. */
struct chains {
    int rows, columns, length, lag;
    const float *a;
    int64_t a_row, a_step;
    const float *b;
    int64_t b_step;
    float *c;
    int64_t c_row;
    int first;           /* number of the first element in its granule, where
                          * tiles count */
    /* For the processor's tiles: all of a, or of b, packed before; strips of 32
     * columns lie b_strip words apart. NULL: it is not. */
    const uint32_t *a_panels, *b_strips;
    int64_t b_strip;
    struct ahead *ahead; /* NULL: nothing to ask for */
};
void CPU(attention_chains)(const struct chains *chains);

/* On the processor's tiles; and what packs a, rows x words in panels of 32
 * rows, or b, strips of words x 32, and looks at nothing of the other. */
void CPU(attention_tiles)(const struct chains *chains);
void CPU(attention_panels_pack)(const struct chains *chains, uint32_t *out);
void CPU(attention_strips_pack)(const struct chains *chains, uint32_t *out);

/* The products of a call, of elements in chains or in tiles. */
struct attention_products {
    void (*run)(const struct chains *chains);
    void (*begin)(void), (*end)(void); /* around a thread's work, or NULL */
    /* Operands that are read more than once should be packed, if heads are
     * whole blocks wide; else NULL. */
    void (*panels_pack)(const struct chains *chains, uint32_t *out);
    void (*strips_pack)(const struct chains *chains, uint32_t *out);
};
const struct attention_products *
CPU(attention_products)(const struct attention *p);

/* Numbers as products in tiles take them. */
static inline void attention_round(float *x, int count)
{
    SIMD for (int i = 0; i < count; i++)
        x[i] = f32_of_bits(element_to_bf16(x[i]) << 16);
}

/* out[e * columns + j] = element e of row j, for rows [from, to) of which x is
 * the first; other columns are +0. columns: a multiple of LANES. */
void CPU(attention_pack_columns)(float *out, int columns, const float *x,
                                 int64_t stride, const int range[2],
                                 int width);

/* Rows [row, row + count) of a head as float32, *stride apart: where they are,
 * or in `copy` [count, padded]. `vectors`: they will be read in whole vectors
 * and many times, so that a copy, which has tails of +0 and does not crowd few
 * sets of the cache, pays. */
struct attention_part {
    const struct tensor *of;
    int64_t row;
    int head, count;
    bool vectors;
};
const float *CPU(attention_rows)(const struct attention_part *part,
                                 float *copy, int64_t *stride);
/* Sets `count` rows of a head from `from` [count, padded], each times its
 * factor (NULL: as it is), rounded where the tensor is narrow. */
void CPU(attention_write)(const struct attention_part *part,
                          const float *from, const float *factors);

/* Forward, where there is one query a head and nothing out of the ordinary;
 * else false, and nothing is done. */
bool CPU(attention_one)(struct stream *stream, const struct attention *p);

static inline int attention_padded(int width)
{
    return (width + WIDTH - 1) / WIDTH * WIDTH;
}

/* First row of a sequence's queries. */
static inline int64_t attention_query_first(const struct attention *p,
                                            int64_t sequence)
{
    return sequence * (p->query_stride ? p->query_stride : p->queries);
}

static inline int64_t attention_key_first(const struct attention *p,
                                          int64_t sequence)
{
    return sequence * (p->key_stride ? p->key_stride : p->keys);
}

/* First element of a row and head. */
static inline void *attention_row(const struct tensor *t, int64_t row,
                                  int head)
{
    return element_at(t->data, t->dtype,
                      row * t->stride[0] + head * t->stride[1]);
}

#endif
