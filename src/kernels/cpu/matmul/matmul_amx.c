/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_amx.c - products of bfloat16 on the processor's tiles (AMX).
 *
 * Registers: four sums of 16 x 16, two tiles of a (16 rows of 32 elements) and
 * two of b (16 pairs of 16 columns). A panel of a is 32 rows in squares of 16
 * words, one after the other; a strip of b is packed in pairs as for
 * VDPBF16PS. */
#include "kernels/cpu/matmul/matmul_amx.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#include "kernels/cpu/scratch.h"
#include "kernels/narrow_product.h"

enum {
    AMX_PANELS = 64, AMX_SLAB = 512,
    ROWS_AHEAD = 4 /* few: b comes from memory */
};

/* Palette 1; from byte 16 on bytes of a row of each register, two bytes each,
 * from byte 48 on rows. Constant: what the instruction reads is not told to the
 * compiler, which could leave out stores. */
static const uint8_t shapes[64] = {
    1, [16] = ROW_BYTES, [18] = ROW_BYTES, [20] = ROW_BYTES, [22] = ROW_BYTES,
    [24] = ROW_BYTES, [26] = ROW_BYTES, [28] = ROW_BYTES, [30] = ROW_BYTES,
    [48] = SIDE, SIDE, SIDE, SIDE, SIDE, SIDE, SIDE, SIDE
};

TILES_TARGET void CPU(tiles_begin)(void)
{
    _tile_loadconfig(shapes);
}

TILES_TARGET void CPU(tiles_end)(void)
{
    _tile_release();
    _mm_sfence(); /* before another thread reads what went past the caches */
}

/* A granule's operands, where its panel and strip begin. */
struct blocks {
    const uint32_t *a, *b;
    int count; /* of blocks */
    int rows;
    struct matmul_later *later; /* what is to be done meanwhile */
};

/* How many parts of what waits each block does. */
static int parts_each(const struct blocks *g)
{
    const int parts = CPU(matmul_later_parts)(g->later);

    return (parts + g->count - 1) / g->count;
}

static void later_end(struct matmul_later *later)
{
    while (later->first < later->count) CPU(matmul_later_part)(later);
    later->first = later->count = 0;
}

INLINE void lines_ask(struct matmul_lines *ahead)
{
    for (int i = 0; i < ahead->each && ahead->rows > 0; i++) {
        __builtin_prefetch(ahead->row + ahead->line * LINE, 0, 2);
        if (++ahead->line < ahead->lines) continue;
        ahead->line = 0;
        if (--ahead->rows > 0) ahead->row += ahead->stride;
    }
}

/* The other work of a block, beside its products. */
INLINE void block_meanwhile(struct matmul_later *later, int parts)
{
    for (int which = 0; which < LINES_COUNT; which++)
        lines_ask(&later->lines[which]);
    for (int part = 0; part < parts; part++) CPU(matmul_later_part)(later);
}

/* sums = blocks of the granule: 32 rows. */
TILES_TARGET __attribute__((noinline)) static void
blocks_sum(const struct blocks *g, float *sums)
{
    const uint32_t *a = g->a, *b = g->b;
    const int parts = parts_each(g);

    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int i = 0; i < g->count; i++) {
        _tile_loadd(6, b, STRIDE);
        _tile_loadd(4, a, ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + SIDE, STRIDE);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + SIDE * SIDE, ROW_BYTES);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        block_meanwhile(g->later, parts);
        a += BLOCK_WORDS;
        b += SIDE * TILE_COLUMNS;
    }
    later_end(g->later);
    _tile_stored(0, sums, STRIDE);
    _tile_stored(1, sums + SIDE, STRIDE);
    _tile_stored(2, sums + SIDE * TILE_COLUMNS, STRIDE);
    _tile_stored(3, sums + SIDE * TILE_COLUMNS + SIDE, STRIDE);
}

/* The sums of the first 16 rows alone. */
TILES_TARGET __attribute__((noinline)) static void
half_sum(const struct blocks *g, float *sums)
{
    const uint32_t *a = g->a, *b = g->b;
    const int parts = parts_each(g);

    _tile_zero(0);
    _tile_zero(1);
    for (int i = 0; i < g->count; i++) {
        for (int row = 0; row < SIDE && g->rows <= ROWS_AHEAD; row++)
            matmul_ahead(b + row * TILE_COLUMNS);
        _tile_loadd(4, a, ROW_BYTES);
        _tile_loadd(6, b, STRIDE);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + SIDE, STRIDE);
        _tile_dpbf16ps(1, 4, 7);
        block_meanwhile(g->later, parts);
        a += BLOCK_WORDS;
        b += SIDE * TILE_COLUMNS;
    }
    later_end(g->later);
    _tile_stored(0, sums, STRIDE);
    _tile_stored(1, sums + SIDE, STRIDE);
}

static void granule_sum(const struct blocks *g, float *sums)
{
    if (g->rows > SIDE) blocks_sum(g, sums);
    else half_sum(g, sums);
}

static void granule_tiles(const struct matmul_granule *g)
{
    float sums[TILE] __attribute__((aligned(64)));
    const float *from = sums;
    struct matmul_later none;
    const struct blocks blocks = {.a = g->a, .b = g->b,
                                  .count = g->words / SIDE, .rows = g->rows,
                                  .later = &none};

    none.first = none.count = 0;
    for (int i = 0; i < LINES_COUNT; i++) none.lines[i].each = 0;
    granule_sum(&blocks, sums);
    for (int i = 0; i < g->rows; i++, from += TILE_COLUMNS) {
        float *to = g->to + i * g->stride;

        UNROLL for (int v = 0; v < TILE_COLUMNS; v += WIDTH) {
            vector x = vector_load(from + v);

            vector_store(to + v, g->assign ? x : vector_load(to + v) + x);
        }
    }
}

/* ---- tiles of c ---- */

/* A panel of a tile. Slots are dense: those that wait between slabs are used
 * where they lie, the others in the first cache. */
struct panel {
    const struct matmul_tile *tile;
    int row, rows; /* of the tile */
    float *stack[SLOTS];
};

static struct matmul_work *work_add(struct matmul_later *later, float *to,
                                    const float *from, int rows)
{
    struct matmul_work *work = &later->works[later->count++];

    CHECK(later->count <= WORKS);
    *work = (struct matmul_work){to, from, 0, rows, false};
    return work;
}

/* Notes the work that remains after a step: its sums are added to its slot,
 * slots that meet are merged, and the last of them becomes c. */
static void step_later(const struct panel *panel,
                       const struct matmul_step *step, bool finishes)
{
    const struct matmul_tile *t = panel->tile;
    struct matmul_later *later = t->later;
    const int rows = panel->rows > SIDE ? PANEL : SIDE;
    struct matmul_work *last = NULL;

    if (!step->assign)
        last = work_add(later, panel->stack[step->slot], later->sums, rows);
    for (int top = step->slot; top > step->slot - step->merges; top--)
        last = work_add(later, panel->stack[top - 1], panel->stack[top], rows);
    if (!finishes) return;
    if (last == NULL) last = work_add(later, panel->stack[0], NULL, rows);
    last->rows = panel->rows;
    last->finishes = true;
    later->result = (struct matmul_result){
        .c_stride = t->c_stride * dtype_bytes(t->c_type),
        .c_type = t->c_type, .bias = t->bias, .past = t->past};
    later->result.c = (char *)t->c + panel->row * later->result.c_stride;
    if (!t->left) return;
    later->result.left_type = t->left_type;
    later->result.left_stride = t->left_stride * dtype_bytes(t->left_type);
    later->result.left =
        (const char *)t->left + panel->row * later->result.left_stride;
}

static void step_run(const struct panel *panel, const struct matmul_step *step,
                     bool finishes)
{
    const struct matmul_tile *t = panel->tile;
    const volatile struct matmul_tile *fields = t; /* as in matmul_work */
    const int64_t word = t->whole ? step->first / 2 : step->offset;
    const struct blocks g = {
        .a = fields->a + panel->row * t->slab->words + step->offset * PANEL,
        .b = fields->b + word * TILE_COLUMNS, .count = step->words / SIDE,
        .rows = panel->rows, .later = t->later};

    granule_sum(&g, step->assign ? panel->stack[step->slot] : t->later->sums);
    step_later(panel, step, finishes);
}

/* An unfinished leaf that begins in c. */
static void panel_load(const struct panel *panel)
{
    const struct matmul_tile *t = panel->tile;
    const size_t bytes = sizeof(float) * (size_t)t->columns;
    const float *from = (const float *)t->c + panel->row * t->c_stride;
    float *to = panel->stack[0];

    memset(to, 0, sizeof(float) * TILE);
    for (int i = 0; i < panel->rows; i++)
        memcpy(to + i * TILE_COLUMNS, from + i * t->c_stride, bytes);
}

/* Asks for the sums that waited. */
static void panel_wakes(const struct panel *panel)
{
    for (int s = 0; s < panel->tile->slab->slots_before; s++)
        for (int i = 0; i < panel->rows * TILE_COLUMNS; i += WIDTH)
            __builtin_prefetch(panel->stack[s] + i, 1);
}

static void panel_begin(struct panel *panel, const struct matmul_tile *t,
                        int index)
{
    const int row = index * PANEL;

    panel->tile = t;
    panel->row = row;
    panel->rows = t->rows - row < PANEL ? t->rows - row : PANEL;
    for (int s = 0; s < SLOTS; s++)
        panel->stack[s] = s < t->waiting
                              ? t->slots + index * t->slot_size + s * TILE
                              : t->later->stacks[index][s];
}

static void panel_finish(const struct panel *panel)
{
    float *sums = panel->stack[0];

    for (int i = 0; i < panel->rows; i++, sums += TILE_COLUMNS)
        CPU(matmul_row_finish)(panel->tile, panel->row + i, sums);
}

/* Lines of a matrix whose first row is at `from`, of which each block of the
 * tile asks for its part. stride: bytes. */
static struct matmul_lines tile_lines(const struct matmul_tile *t,
                                      const void *from, int64_t stride,
                                      enum dtype dtype)
{
    const int64_t start = (intptr_t)from % LINE;
    const int64_t bytes = start + t->columns * dtype_bytes(dtype);
    const int panels = (t->rows + PANEL - 1) / PANEL;
    struct matmul_lines lines = {
        .row = (const char *)from - start, .stride = stride, .rows = t->rows,
        .lines = (int)((bytes + LINE - 1) / LINE)};

    lines.each = (t->rows * lines.lines * SIDE) /
                     (panels * t->slab->words) + 1;
    return lines;
}

/* Asks for what will be read or filled in part when the tile becomes c. */
static void tile_ahead(const struct matmul_tile *t)
{
    struct matmul_lines *lines = t->later->lines;
    const int64_t c_row = t->c_stride * dtype_bytes(t->c_type);
    const bool past =
        t->past && (uintptr_t)t->c % LINE == 0 && c_row % LINE == 0;

    lines[LINES_RESULT].each = lines[LINES_LEFT].each = 0;
    if (!t->slab->last) return;
    if (!past)
        lines[LINES_RESULT] = tile_lines(t, t->c, c_row, t->c_type);
    if (t->left)
        lines[LINES_LEFT] =
            tile_lines(t, t->left, t->left_stride * dtype_bytes(t->left_type),
                       t->left_type);
}

/* As CPU(matmul_tile_run), but that the last panel's sums may wait in
 * tile->later when it returns. */
static void tile_run(const struct matmul_tile *t)
{
    struct panel panels[TOGETHER_MAX];
    const struct matmul_slab *slab = t->slab;
    const bool whole = t->columns == TILE_COLUMNS;
    const int count = (t->rows + PANEL - 1) / PANEL;

    for (int p = 0; p < count; p++) {
        panel_begin(&panels[p], t, p);
        if (!slab->first) {
            panel_wakes(&panels[p]);
        } else if (slab->slots_before > 0) {
            later_end(t->later); /* it uses the stacks */
            panel_load(&panels[p]);
        }
    }
    tile_ahead(t);
    for (int i = 0; i < slab->count; i++)
        for (int p = 0; p < count; p++)
            step_run(&panels[p], &slab->steps[i],
                     slab->last && whole && i == slab->count - 1);
    if (!slab->last || whole) return;
    later_end(t->later);
    for (int p = 0; p < count; p++) panel_finish(&panels[p]);
}

const struct matmul_format CPU(format_tiles) = {
    .rows = PANEL, .grain = PRODUCT_BLOCK, .per_word = 2,
    .slab_words = AMX_SLAB, .panels = AMX_PANELS, .together = TOGETHER_MAX,
    .pack_rows = CPU(matmul_rows_tiles),
    .pack_columns = CPU(matmul_columns_tiles), .granule = granule_tiles,
    .tile = tile_run, .settle = later_end,
    .begin = CPU(tiles_begin), .end = CPU(tiles_end)};
#else
/* A file has at least one declaration. */
extern const struct matmul_format CPU(format_tiles);
#endif
