/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.h - the parts of the fast matrix product.
 *
 *   matmul_slab.c    cuts the contracted dimension into slabs and each slab
 *                     into steps: granules and where their sums go
 *   matmul_pack.c     copies a slab of a into panels of rows and of b into
 *   matmul_narrow.c   strips of TILE_COLUMNS columns, element by element (or
 *                     pair by pair) of the contracted dimension
 *   matmul_granule.c  one granule of one tile
 *   matmul_few.c      the same for few rows, without packing b
 *   matmul_amx.c      granules and tiles of c with the processor's tiles
 *   matmul_amx_sums.c what becomes of their sums, while the next are made
 *   matmul_amx_pack.c operands for them
 *   matmul_line.c     one row times a weight in strips, without all that
 *   matmul_strips.c   rearranges a weight as b is packed, for good
 *   matmul_tile.c     runs the steps of a slab for one tile of c
 *   matmul_apart.c    rows of operands that lie apart: experts' rows
 *   matmul_plan.c     how a product is cut into all that
 *   matmul_experts.c  products over all experts, each a product of its rows
 *   matmul.c          loops over tiles and threads
 *
 * A struct matmul_format says how operands are packed and how a granule is
 * computed from them; all else is the same for every product. Packed operands
 * are made of words of 32 bits: a float32 element or a pair of bfloat16.
 *
 * The tree over leaves is a stack of tiles: a finished leaf is pushed and
 * merges with its left neighbours as a binary counter carries. */
#ifndef LOCKSTEP_KERNELS_CPU_MATMUL_MATMUL_H
#define LOCKSTEP_KERNELS_CPU_MATMUL_MATMUL_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector.h"

enum {
    SLAB_STEPS = 64,
    SLOTS = 8,              /* of the stack: log2(LEAVES_MAX) + 2 */
    PANEL_ROWS_MAX = 32,
    TOGETHER_MAX = 3,       /* panels of one tile */
    FEW_DIRECT = 6,         /* rows that do not pay for packing b, */
    FEW_GROUP = 4,          /* at most so many at a time */
    TILE = PANEL_ROWS_MAX * TILE_COLUMNS
};

struct matmul_step {
    int64_t first; /* index in the contracted dimension */
    int offset;    /* words of a row or column before it, in the slab */
    int words;     /* of a row or column, what it is filled with included */
    int length;    /* elements, at most GRANULE */
    int slot;      /* of the stack, where the granule goes */
    bool assign;   /* else added */
    int merges;    /* then: so many times the top is added to the one below */
};

struct matmul_slab {
    struct matmul_step steps[SLAB_STEPS];
    int count, words;
    int slots_before, slots_after; /* of the stack */
    bool first, last;
};

/* Part of an operand: element (i, e), row of a or column of b, at
 * from[i * stride + e * step]; one of the strides is 1. */
struct matmul_source {
    const void *from;
    int64_t stride, step;
    int count;     /* rows or columns that are present */
    const uint32_t *strip; /* columns of bfloat16 that lie in strips: word
                            * [e / 2][TILE_COLUMNS]; or NULL */
};

struct matmul_tile;
struct matmul_later; /* matmul_amx.h */

/* Rows of a panel that are read where they lie, words of a row contiguous:
 * three rows to start from and four distances, for processors have few
 * registers for addresses. */
enum { ROWS_GROUP = 5, ROWS_GROUPS = 3 };
struct matmul_rows {
    const char *first[ROWS_GROUPS]; /* rows 0, 5 and 10, at the granule */
    int64_t apart[ROWS_GROUP];      /* bytes from the first row to the others */
};

/* Lines that memory is asked for meanwhile, one at each word: what no processor
 * guesses is there when it is needed. */
struct matmul_ahead {
    const char *from;
    int64_t step;  /* bytes */
    int64_t count; /* lines; 0: none */
};
enum { AHEAD_OPERANDS = 2 };

/* One granule of one panel and one strip. Where the format knows of it, to its
 * sums are added, each to the left of what there is: tiles of the stack from
 * the top down, the one below them, and what is left of c. */
struct matmul_granule {
    const uint32_t *a, *b; /* of panel and strip, at the granule */
    int64_t a_word, b_word; /* words from a word of each to the next */
    const struct matmul_rows *in_rows; /* instead of a; or NULL */
    struct matmul_ahead ahead[AHEAD_OPERANDS];
    int words, rows;
    float *to;             /* set, or added to */
    int64_t stride;
    bool assign;
    bool plain;            /* no sum can be denormal (matmul_plain) */
    /* format.merges: then `to` is set in any case, */
    bool past_caches;          /* past the caches; it starts a line, as rows
                                * do */
    const float *top;      /* dense, */
    int count;             /* each TILE before the one above it */
    const float *below, *left; /* or NULL */
    int64_t below_stride, left_stride;
};

/* Like struct matmul_granule, for at most FEW_GROUP rows and TILE_COLUMNS
 * columns that are read where they lie, the contracted dimension contiguous. */
struct matmul_few {
    const uint32_t *a;     /* of the panel, at the granule */
    const char *b, *next;  /* column 0 at the granule, and at the next one */
    int64_t stride;        /* from column to column, in bytes; 0: b is a strip
                            * of words [length / 2, TILE_COLUMNS] */
    int length, rows;      /* elements */
    float *to;             /* set, [rows, TILE_COLUMNS] */
};

/* Like struct matmul_few, for one row and LINE_STRIPS, 2 or 1 strips of words
 * side by side, or some vectors of one: a core that reads from several places
 * at once waits for memory less. */
#if defined(__AVX2__)
enum { LINE_STRIPS = 4 };
#else
enum { LINE_STRIPS = 2 };
#endif
struct matmul_line {
    const void *a;     /* the row from the granule on: elements, pairs, or
                        * floats of widened pairs, the odd ones first */
    const char *b;     /* word 0 of the granule, at the first column */
    int64_t apart;     /* bytes from strip to strip */
    const char *next;  /* where the granule after it begins */
    int length, strips, vectors; /* vectors of each strip */
    float *to;         /* set, [strips, vectors, WIDTH] */
};

/* Asks for what lies some way behind a row of a strip: strips follow each
 * other, but processors stop guessing at the end of a page. */
INLINE void matmul_ahead(const void *row)
{
    enum { DISTANCE = 8192 };

    UNROLL for (int at = 0; at < TILE_COLUMNS * 4; at += LINE)
        __builtin_prefetch((const char *)row + DISTANCE + at, 0, 2);
}

struct matmul_format {
    int rows;         /* of a panel, at most PANEL_ROWS_MAX */
    int grain;        /* a granule is filled with +0 to a multiple of it */
    int per_word;     /* elements */
    int slab_words;  /* of a row, at most */
    int panels;       /* packed at a time, or as many as fit */
    int together;     /* panels of a tile: the granule of a strip of b is read
                       * so many times while the first cache has it */
    bool widened;     /* packed words of b are not those of strips */
    bool in_place;    /* granules can read a where it lies, */
    bool merges;      /* and know tops and left */
    bool flushes;     /* granules flush what is denormal, unless `plain` says
                       * that nothing can be */
    /* Panels of `rows` rows, one after the other: panel[w * rows + i] = word w
     * of row i for the words of a slab (in order of its steps); rows from
     * `count` on are anything. May write WIDTH words past the last panel. */
    void (*pack_rows)(uint32_t *out, const struct matmul_source *source,
                      const struct matmul_slab *slab);
    /* One strip, the same with TILE_COLUMNS columns of b; from `count` on they
     * are +0. */
    void (*pack_columns)(uint32_t *out, const struct matmul_source *source,
                         const struct matmul_slab *slab);
    void (*granule)(const struct matmul_granule *g);
    void (*few)(const struct matmul_few *f); /* or NULL */
    void (*line)(const struct matmul_line *l); /* or NULL */
    /* A tile with packed operands; NULL: matmul_tile_run. Some of it may wait
     * in tile->later, until `settle` or another tile. */
    void (*tile)(const struct matmul_tile *tile);
    void (*settle)(struct matmul_later *later); /* or NULL */
    void (*begin)(void), (*end)(void); /* around a thread's work, or NULL */
};

/* The formats of the fast kernels in this object. */
extern const struct matmul_format CPU(format_f32), CPU(format_f16),
    CPU(format_pairs_emulated), CPU(format_tiles_emulated);
#if defined(__AVX512F__)
extern const struct matmul_format CPU(format_pairs), CPU(format_tiles);
/* Whether VDPBF16PS is faster than two FMAs. */
bool CPU(matmul_pairs_pay)(void);
#endif

struct matmul_cursor {
    const struct sum_order *order;
    const struct matmul_format *format;
    int words;             /* of a slab, at most */
    int64_t segment, done; /* next segment, elements of it that are done */
    int64_t begin, end;    /* of the segments, */
    int leaf;              /* and the leaf that they begin with */
    int slots;             /* of the stack now, */
    int node[SLOTS];       /* and the first leaf of each, from `leaf` */
    bool unfinished;       /* slot 0 is a leaf that goes on */
};

void CPU(matmul_cursor_init)(struct matmul_cursor *cursor,
                             const struct matmul_format *format, int words,
                             const struct sum_order *order, bool continues);
/* Leaves [first, first + count) alone: a node of the tree. */
void CPU(matmul_cursor_leaves)(struct matmul_cursor *cursor, int first,
                               int count);
/* false: nothing is left. */
bool CPU(matmul_slab_next)(struct matmul_cursor *cursor,
                           struct matmul_slab *out);

/* The words of `length` elements: out[w * width + j] = word w of row or column
 * j. Words from `count` on are +0, and so is what an odd end lacks. */
void CPU(matmul_pack_pairs)(uint32_t *out, int width,
                            const struct matmul_source *source, int length);

void CPU(matmul_rows_pairs)(uint32_t *out, const struct matmul_source *source,
                            const struct matmul_slab *slab);
void CPU(matmul_columns_pairs)(uint32_t *out,
                               const struct matmul_source *source,
                               const struct matmul_slab *slab);
/* Pairs, each as two words of float32, the odd element first; columns that lie
 * in strips are the caller's. */
void CPU(matmul_rows_widened)(uint32_t *out, const struct matmul_source *source,
                              const struct matmul_slab *slab);
void CPU(matmul_columns_widened)(uint32_t *out,
                                 const struct matmul_source *source,
                                 const struct matmul_slab *slab);
void CPU(matmul_rows_tiles)(uint32_t *out, const struct matmul_source *source,
                            const struct matmul_slab *slab);
void CPU(matmul_columns_tiles)(uint32_t *out,
                               const struct matmul_source *source,
                               const struct matmul_slab *slab);

/* matmul_few.c: words of float32; pairs by VDPBF16PS; pairs by two FMAs, whose
 * panel has the odd elements first. */
void CPU(matmul_few_f32)(const struct matmul_few *f);
void CPU(matmul_few_pairs)(const struct matmul_few *f);
void CPU(matmul_few_widened)(const struct matmul_few *f);

void CPU(matmul_line_f32)(const struct matmul_line *l);
void CPU(matmul_line_pairs)(const struct matmul_line *l);
void CPU(matmul_line_widened)(const struct matmul_line *l);

/* Chains of FMAs over float32 words, in the format of f32; and such that flush
 * denormal numbers, where the processor has a mode for it (flushing.h). What is
 * added to their sums is not flushed. */
void CPU(matmul_chains)(const struct matmul_granule *g);
void CPU(matmul_chains_flushing)(const struct matmul_granule *g);

/* The smallest magnitude that is not zero, as bits less 1; all ones: there is
 * none. Of packed words. */
uint32_t CPU(matmul_least)(const uint32_t *words, int64_t count);

/* Whether nothing can be flushed in sums of products of widened bfloat16 whose
 * matmul_least are a and b. A number with the biased exponent e is a multiple
 * of 2^(e - 134), so products are multiples of the product of both units, and
 * so are their sums, rounded or not: none that is not zero is smaller. */
INLINE bool matmul_plain(uint32_t a, uint32_t b)
{
    enum { MOST = 255, UNITS = 2 * 134 - 126 };
    const uint32_t x = a == UINT32_MAX ? MOST : (a + 1) >> 23;
    const uint32_t y = b == UINT32_MAX ? MOST : (b + 1) >> 23;

    return x > 0 && y > 0 && x + y >= UNITS;
}

/* struct kernels strips.turn. */
bool CPU(strips_turn)(struct stream *stream, struct tensor weight);

/* One tile of c, `together` panels high or less, and where its stack lives
 * between slabs. */
struct matmul_tile {
    const struct matmul_format *format;
    const struct matmul_slab *slab;
    const uint32_t *a, *b;   /* panel and strip */
    bool past_caches;            /* c, where it is not read before */
    bool plain;              /* for its granules */
    bool in_place;           /* a is the operand itself, from the tile on */
    int64_t a_row, a_word;
    struct matmul_ahead ahead[AHEAD_OPERANDS];
    bool whole;              /* b has all words of the strip, not of a slab, */
    int64_t b_word;          /* so far apart */
    const char *memory;      /* of b, at this strip, instead of b packed; or
                              * NULL */
    int64_t memory_stride;   /* bytes from column to column (0: struct
                              * matmul_few), */
    int memory_size;         /* of an element */
    int64_t depth;           /* of the product, elements */
    int64_t column;          /* of c */
    int rows, columns;
    void *c;
    enum dtype c_type, left_type, bias_type;
    int64_t c_stride;
    float *slots;            /* of the blocks: slot s at + s * slot_size, */
    int64_t slot_stride, slot_size; /* row i at + i * slot_stride */
    int waiting;             /* format.tile: slots that lie there all the time,
                              * each a dense TILE, one after the other; those of
                              * the next panel slot_size further on */
    bool keep_first;         /* slot 0 between slabs: in slots, else in c */
    bool direct;             /* slot 0 is c all the time */
    const void *bias, *left; /* at this tile, or NULL */
    int64_t left_stride;
    struct matmul_later *later; /* of this thread */
    bool past; /* caches would not keep c for who reads it next */
};
void CPU(matmul_tile_run)(const struct matmul_tile *tile);
/* Finishes the sums [TILE_COLUMNS] of a row of a tile, and stores them. */
void CPU(matmul_row_finish)(const struct matmul_tile *tile, int64_t row,
                            float *sums);

/* One row times a weight in strips, but for the columns that fill no strip.
 * false: this product is none, or has no line of its own. */
bool CPU(matmul_line)(struct stream *stream, const struct matmul *p,
                      const struct matmul_format *format);

#endif
