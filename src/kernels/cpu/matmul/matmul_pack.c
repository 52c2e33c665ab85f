/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_pack.c - copies operands into the order in which tiles read them.
 *
 * Where rows of the copy are contiguous in memory they are copied, or two of
 * them woven into pairs; else squares of WIDTH words are transposed in
 * registers. Panels that are narrower than a vector are written with whole
 * vectors in ascending order: what spills into the next row is overwritten by
 * it. `per_word` is 1 for float32 and 2 for elements of 16 bits, a constant
 * after inlining. Where `wide` is true, a pair of bfloat16 becomes two rows of
 * float32, the odd element first. */
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/scratch.h"

/* How far reading runs ahead: rows of the copy, bytes of a row of memory. */
enum { AHEAD = 16, AHEAD_BYTES = 256 };
enum { ROWS_TURNED = 3 }; /* of a panel: fewer are not worth squares */

/* Element (j, e) of a source, in bytes. */
INLINE const char *source_at(const struct matmul_source *s, int per_word,
                             int64_t j, int64_t e)
{
    return (const char *)s->from + (j * s->stride + e * s->step) * 4 / per_word;
}

INLINE vector_bits halves_load(const char *from)
{
    return __builtin_convertvector(*(const vector_halves *)from, vector_bits);
}

/* The word of an element, or of a pair whose second one is `apart` bytes on (0:
 * there is none). */
INLINE uint32_t word_load(const char *from, int per_word, int64_t apart)
{
    uint32_t word;
    uint16_t low, high = 0;

    if (per_word == 1) {
        memcpy(&word, from, sizeof word);
        return word;
    }
    memcpy(&low, from, sizeof low);
    if (apart) memcpy(&high, from + apart, sizeof high);
    return low | (uint32_t)high << 16;
}

/* WIDTH words of one row of the copy. */
INLINE void words_weave(uint32_t *to, const char *from, int per_word,
                        int64_t apart)
{
    vector_bits x;

    if (per_word == 1) {
        vector_store_words(to, vector_load_words(from));
        return;
    }
    x = halves_load(from);
    if (apart) x |= halves_load(from + apart) << 16;
    memcpy(to, &x, sizeof x);
}

/* Row `row` of the copy, words [column, column + WIDTH). */
INLINE void row_store(uint32_t *out, const int width, int row, int column,
                      vector x)
{
    uint32_t *to = out + row * width + column;

    if (column + WIDTH <= width || width < WIDTH)
        vector_store_words(to, x);
    else
        memcpy(to, &x, sizeof *to * (size_t)(width % WIDTH));
}

/* Word `word` of the rows [column, column + WIDTH), as one row or two. */
INLINE void pack_store(uint32_t *out, const int width, const bool wide,
                       int word, int column, vector x)
{
    if (!wide) {
        row_store(out, width, word, column, x);
        return;
    }
    row_store(out, width, 2 * word, column, vector_odd(x));
    row_store(out, width, 2 * word + 1, column, vector_even(x));
}

/* Stores one vector of words, widened or not. */
INLINE void word_store(uint32_t *to, const int width, const bool wide,
                       uint32_t word)
{
    *to = wide ? word & 0xFFFF0000u : word;
    if (wide) to[width] = word << 16;
}

/* Few rows of a panel, word by word: the other rows are anything. */
INLINE void rows_scatter(uint32_t *out, const int per_word, const bool wide,
                         const struct matmul_source *s, int length)
{
    for (int row = 0; row < s->count; row++) {
        uint32_t *to = out + row;

        for (int e = 0; e < length; e += per_word, to += TILE_ROWS << wide)
            word_store(to, TILE_ROWS, wide,
                       word_load(source_at(s, per_word, row, e), per_word,
                                 e + 1 < length ? 4 / per_word : 0));
    }
}

/* The contracted dimension is contiguous in memory. */
INLINE void pack_transposed(uint32_t *out, const int width, const int per_word,
                            const bool wide, const struct matmul_source *s,
                            int length)
{
    const int count = length / per_word; /* of whole words */

    if (width == TILE_ROWS && s->count < ROWS_TURNED) {
        rows_scatter(out, per_word, wide, s, length);
        return;
    }
    for (int column = 0; column < width; column += WIDTH) {
        int present = s->count - column, w = 0;

        for (; w + WIDTH <= count; w += WIDTH) {
            vector square[WIDTH];

            if (present >= WIDTH) {
                UNROLL for (int j = 0; j < WIDTH; j++) {
                    const char *from =
                        source_at(s, per_word, column + j, w * per_word);

                    __builtin_prefetch(from + AHEAD_BYTES);
                    square[j] = vector_load_words(from);
                }
            } else {
                UNROLL for (int j = 0; j < WIDTH; j++)
                    square[j] = j < present
                                    ? vector_load_words(source_at(
                                          s, per_word, column + j,
                                          w * per_word))
                                    : vector_fill(0);
            }
            vector_transpose(square);
            UNROLL for (int j = 0; j < WIDTH; j++)
                pack_store(out, width, wide, w + j, column, square[j]);
        }
        for (; w * per_word < length; w++)
            for (int j = column; j < width && j < column + WIDTH; j++)
                word_store(
                    out + (w << wide) * width + j, width, wide,
                    j < s->count
                        ? word_load(source_at(s, per_word, j, w * per_word),
                                    per_word, w < count ? 4 / per_word : 0)
                        : 0);
    }
}

/* WIDTH words of a row of the copy, or of two. */
INLINE void pack_weave(uint32_t *to, const int width, const int per_word,
                       const bool wide, const char *from, int64_t apart)
{
    if (!wide) {
        words_weave(to, from, per_word, apart);
        return;
    }
    vector_store_words(to, apart ? vector_widen(from + apart)
                                 : vector_fill(0));
    vector_store_words(to + width, vector_widen(from));
}

/* A row of the copy is contiguous in memory, or woven from two such. */
INLINE void pack_straight(uint32_t *out, const int width, const int per_word,
                          const bool wide, const struct matmul_source *s,
                          int length)
{
    for (int e = 0; e < length; e += per_word, out += width << wide) {
        const char *from = source_at(s, per_word, 0, e);
        int64_t apart = e + 1 < length ? s->step * 4 / per_word : 0;
        int j = 0;

        /* Rows are far apart: no processor guesses the next ones. */
        for (int ahead = 0; ahead < per_word; ahead++)
            __builtin_prefetch(source_at(s, per_word, 0, e + AHEAD + ahead));
        if (s->count == width)
            for (; j + WIDTH <= width; j += WIDTH)
                pack_weave(out + j, width, per_word, wide,
                           from + j * 4 / per_word, apart);
        for (; j < width; j++)
            word_store(out + j, width, wide,
                       j < s->count ? word_load(from + j * 4 / per_word,
                                                per_word, apart)
                                    : 0);
    }
}

INLINE void pack_words(uint32_t *out, const int width, const int per_word,
                       const bool wide, const struct matmul_source *s,
                       int length)
{
    if (s->stride == 1 && s->step != 1)
        pack_straight(out, width, per_word, wide, s, length);
    else
        pack_transposed(out, width, per_word, wide, s, length);
}

/* All steps of a slab; then what a granule is filled with. */
INLINE void pack(uint32_t *out, const int width, const int per_word,
                 const bool wide, const struct matmul_source *source,
                 const struct matmul_slab *slab)
{
    for (int i = 0; i < slab->count; i++) {
        const struct matmul_step *step = &slab->steps[i];
        int count = (step->length + per_word - 1) / per_word << wide;
        uint32_t *to = out + (int64_t)step->offset * width;
        struct matmul_source s = *source;

        s.from = source_at(source, per_word, 0, step->first);
        pack_words(to, width, per_word, wide, &s, step->length);
        if (count < step->words)
            memset(to + count * width, 0,
                   sizeof *to * (size_t)((step->words - count) * width));
    }
}

/* Rows of a that are contiguous in memory, several panels at a time: a line of
 * memory is then read once. Whole vectors are stored where what spills over is
 * written again later. */
INLINE void panels_straight(uint32_t *out, const int per_word, const bool wide,
                            const struct matmul_source *source,
                            const struct matmul_slab *slab)
{
    int64_t size = (int64_t)TILE_ROWS * slab->words;

    for (int i = 0; i < slab->count; i++) {
        const struct matmul_step *s = &slab->steps[i];

        for (int e = 0; e < s->length; e += per_word) {
            const char *from = source_at(source, per_word, 0, s->first + e);
            int64_t apart = e + 1 < s->length ? source->step * 4 / per_word : 0;
            int w = s->offset + (e / per_word << wide), row = 0;
            uint32_t *to = out + (int64_t)w * TILE_ROWS;

            for (; w + 1 + wide < slab->words && row + WIDTH <= source->count &&
                   TILE_ROWS < WIDTH; row += TILE_ROWS, to += size)
                pack_weave(to, TILE_ROWS, per_word, wide,
                           from + row * 4 / per_word, apart);
            for (; per_word == 1 && row + TILE_ROWS <= source->count;
                 row += TILE_ROWS, to += size)
                memcpy(to, from + row * 4, sizeof *to * TILE_ROWS);
            for (; row < source->count; row += TILE_ROWS, to += size)
                for (int j = 0; j < TILE_ROWS; j++)
                    word_store(to + j, TILE_ROWS, wide,
                               row + j < source->count
                                   ? word_load(from +
                                                   (row + j) * 4 / per_word,
                                               per_word, apart)
                                   : 0);
        }
    }
}

INLINE void pack_rows(uint32_t *out, const int per_word, const bool wide,
                      const struct matmul_source *source,
                      const struct matmul_slab *slab)
{
    int64_t size = (int64_t)TILE_ROWS * slab->words;

    if (source->stride == 1 && source->step != 1) {
        panels_straight(out, per_word, wide, source, slab);
        return;
    }
    for (int row = 0; row < source->count; row += TILE_ROWS, out += size) {
        struct matmul_source s = *source;

        s.from = source_at(source, per_word, row, 0);
        s.count = source->count - row < TILE_ROWS ? source->count - row
                                                  : TILE_ROWS;
        pack(out, TILE_ROWS, per_word, wide, &s, slab);
    }
}

static void rows_f32(uint32_t *out, const struct matmul_source *source,
                     const struct matmul_slab *slab)
{
    pack_rows(out, 1, false, source, slab);
}

static void columns_f32(uint32_t *out, const struct matmul_source *source,
                        const struct matmul_slab *slab)
{
    pack(out, TILE_COLUMNS, 1, false, source, slab);
}

#if defined(__AVX512F__)
void CPU(matmul_rows_pairs)(uint32_t *out, const struct matmul_source *source,
                            const struct matmul_slab *slab)
{
    pack_rows(out, 2, false, source, slab);
}

void CPU(matmul_columns_pairs)(uint32_t *out,
                               const struct matmul_source *source,
                               const struct matmul_slab *slab)
{
    pack(out, TILE_COLUMNS, 2, false, source, slab);
}
#endif

void CPU(matmul_rows_widened)(uint32_t *out, const struct matmul_source *source,
                              const struct matmul_slab *slab)
{
    pack_rows(out, 2, true, source, slab);
}

void CPU(matmul_columns_widened)(uint32_t *out,
                                 const struct matmul_source *source,
                                 const struct matmul_slab *slab)
{
    pack(out, TILE_COLUMNS, 2, true, source, slab);
}

void CPU(matmul_pack_pairs)(uint32_t *out, int width,
                            const struct matmul_source *source, int length)
{
    if (width == TILE_ROWS)
        pack_words(out, TILE_ROWS, 2, false, source, length);
    else
        pack_words(out, TILE_COLUMNS, 2, false, source, length);
}

const struct matmul_format CPU(format_f32) = {
    .rows = TILE_ROWS, .grain = 1, .per_word = 1, .slab_words = MATMUL_SLAB,
    .panels = MATMUL_PANELS, .together = 1, .in_place = true, .merges = true,
    .pack_rows = rows_f32,
    .pack_columns = columns_f32, .granule = CPU(matmul_chains),
    .few = CPU(matmul_few_f32), .line = CPU(matmul_line_f32)};
