/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.c - the fast matrix product: blocks, threads and scratch.
 *
 *   for each block of columns of c           (packed b fits the last cache)
 *     for each block of rows of c            (all, unless a stack must wait)
 *       for each slab of the contracted dimension
 *         pack b; for each few panels of a: pack them; tiles
 *
 * Threads share the rows (b is packed together), the columns (each packs its
 * own strips just before their first use), or the leaves (each sums its own;
 * their roots then meet in the tree). How c is cut shows in no
 * bit: an element is computed by one tile, in the order of the slabs.
 * Source of the loop order: Goto and van de Geijn, "Anatomy of
 * high-performance matrix multiplication", 2008. */
#include <stdatomic.h>
#include "kernels/cpu/matmul/matmul_amx.h"
#include "kernels/cpu/matmul/matmul_plan.h"
#include "kernels/cpu/scratch.h"
#include "kernels/element.h"
#include "kernels/features.h"
#include "kernels/narrow_product.h"

enum { PAST_BYTES = 4 << 20 /* of c: more than second caches have room for */ };

/* The work of one thread in one block. */
struct block {
    int64_t top;               /* its first row */
    int64_t row, column;       /* where panels and strips are counted from */
    int64_t row_end, column_end;
    int height;                /* of a panel */
    int64_t panel, panel_end;  /* of this thread, from row */
    int64_t strip, strip_end;  /* of this thread, from column */
    uint32_t *a_packed;        /* of this thread */
    uint32_t *a_least;         /* matmul_least of its panels */
    struct matmul_later *later;
};

/* Element (row, column) of a matrix. */
static void *matrix_at(const struct tensor *t, int64_t row, int64_t column)
{
    return element_at(t->data, t->dtype,
                      row * t->stride[0] + column * t->stride[1]);
}

static uint32_t *b_strip(const struct plan *plan, const struct block *block,
                         int64_t strip)
{
    /* Strips that only this thread uses, and only once, share one place. */
    bool once = plan->by_columns &&
                block->panel_end - block->panel <= plan->panels;

    return plan->b_packed +
           (once ? block->strip : strip) * TILE_COLUMNS * plan->words;
}

/* The words of a strip that lies in memory as a whole; NULL: it does not. A
 * strip of words takes the place of its columns. */
static const uint32_t *strip_in_memory(const struct plan *plan, int64_t column)
{
    const struct matmul *p = &plan->p;

    if (!p->strips || column + TILE_COLUMNS > p->c.shape[1]) return NULL;
    return matrix_at(&p->b, 0, column);
}

static void strip_pack(const struct plan *plan, const struct block *block,
                       int64_t strip, const struct matmul_slab *slab)
{
    const struct tensor *b = &plan->p.b;
    int64_t column = block->column + strip * TILE_COLUMNS;
    uint32_t *to = b_strip(plan, block, strip);
    struct matmul_source source = {
        matrix_at(b, 0, column), b->stride[1], b->stride[0],
        (int)smaller(TILE_COLUMNS, block->column_end - column),
        strip_in_memory(plan, column)};

    if (source.strip && plan->whole) return;
    if (plan->b_apart)
        CPU(matmul_apart_strip)(plan, to,
                                (struct matmul_part){column, source.count},
                                slab);
    else plan->format->pack_columns(to, &source, slab);
    if (plan->b_least)
        plan->b_least[strip] =
            CPU(matmul_least)(to, (int64_t)slab->words * TILE_COLUMNS);
}

/* The strip that strip_pack has prepared. */
static void tile_strip(const struct plan *plan, const struct block *block,
                       int64_t strip, struct matmul_tile *tile)
{
    tile->column = block->column + strip * TILE_COLUMNS;
    tile->b = plan->whole ? strip_in_memory(plan, tile->column) : NULL;
    tile->b_word = TILE_COLUMNS;
    if (plan->b_in_place) {
        tile->b = matrix_at(&plan->p.b, 0, tile->column);
        tile->b_word = plan->p.b.stride[0];
    }
    tile->whole = tile->b != NULL;
    if (!tile->whole) tile->b = b_strip(plan, block, strip);
}

static void panels_pack(const struct plan *plan, const struct block *block,
                        int64_t first, int64_t last,
                        const struct matmul_slab *slab)
{
    const struct tensor *a = &plan->p.a;
    int rows = plan->format->rows;
    int64_t row = block->row + first * rows;
    struct matmul_source source = {
        matrix_at(a, row, 0), a->stride[0], a->stride[1],
        (int)(smaller(block->row + last * rows, block->row_end) - row), NULL};

    if (plan->a_apart)
        CPU(matmul_apart_panels)(plan, block->a_packed,
                                 (struct matmul_part){row, source.count},
                                 slab);
    else
        plan->format->pack_rows(block->a_packed, &source, slab);
    for (int64_t i = 0, n = rows * slab->words;
         plan->b_least && i < last - first; i++)
        block->a_least[i] = CPU(matmul_least)(block->a_packed + i * n, n);
}

/* Where slots of a panel and a strip wait, one after the other. */
static float *dense_slots(const struct plan *plan, int64_t panel,
                          int64_t column)
{
    return plan->slots +
           (panel * plan->columns + column) / TILE_COLUMNS * plan->waiting *
               TILE;
}

/* The tile from `panel` on, up to `last`. */
static void tile_at(const struct plan *plan, const struct block *block,
                    int64_t panel, int64_t last, struct matmul_tile *tile)
{
    const struct matmul *p = &plan->p;
    int64_t row = block->row + panel * block->height;
    int64_t end = block->row + last * block->height;
    int64_t column = tile->column;

    tile->rows = (int)(smaller(end, block->row_end) - row);
    tile->columns = (int)smaller(TILE_COLUMNS, block->column_end - column);
    tile->direct = !tile->keep_first && tile->columns == TILE_COLUMNS;
    tile->c = matrix_at(&p->c, row, column);
    if (tile->in_place) tile->a = matrix_at(&p->a, row, 0);
    tile->slots = plan->dense
                      ? dense_slots(plan, panel, column - block->column)
                      : plan->slots + (row - block->top) * plan->columns +
                            column - block->column;
    tile->bias = p->bias ? element_at(p->bias->data, p->bias->dtype, column)
                         : NULL;
    tile->left = p->left ? matrix_at(p->left, row, column) : NULL;
}

/* Whether c is larger than caches that keep it for who reads it next. */
static bool is_past(const struct plan *plan)
{
    return plan->c_count * dtype_bytes(plan->p.c.dtype) > PAST_BYTES;
}

/* Sets the fields that all tiles of a slab share. */
static void tile_init(const struct plan *plan, const struct matmul_slab *slab,
                      struct matmul_tile *tile)
{
    const struct matmul *p = &plan->p;

    *tile = (struct matmul_tile){
        .format = plan->format, .slab = slab, .c_type = p->c.dtype,
        .c_stride = p->c.stride[0], .slot_stride = plan->columns,
        .slot_size = plan->columns * (plan->dense ? PANEL * plan->waiting
                                                  : plan->rows),
        .waiting = plan->waiting,
        .keep_first = plan->keep_first, .past_caches = plan->past_caches,
        .past = is_past(plan),
        .in_place = plan->in_place,
        .a_row = p->a.stride[0], .a_word = p->a.stride[1]};
    if (p->bias) tile->bias_type = p->bias->dtype;
    if (!p->left) return;
    tile->left_type = p->left->dtype;
    tile->left_stride = p->left->stride[0];
}

/* Where a thread is in a slab of a block. */
struct place {
    int64_t first;          /* panel of the group */
    int64_t panel, strip;
};

/* Prefetches one panel of the next group of panels: each strip prefetches the
 * panels with its own number. The rows of a panel follow each other, or its
 * words are far apart. */
static void panel_ahead(const struct plan *plan, const struct block *block,
                        const struct matmul_slab *slab,
                        const struct place *at, struct matmul_ahead *out)
{
    const struct tensor *a = &plan->p.a;
    const int64_t own = at->panel - at->first;
    const bool rows = a->stride[1] == 1;
    int64_t row = block->row + (at->first + plan->panels) * block->height;
    int64_t word = slab->steps[0].first;

    if ((at->strip - block->strip) != own % (block->strip_end - block->strip))
        return;
    if (row >= block->row_end) { /* the next slab's */
        row = block->row + block->panel * block->height;
        word += slab->words;
        if (slab->last) return;
    }
    if (rows) {
        out->from = matrix_at(a, row + own * block->height, word);
        out->step = LINE;
        out->count = block->height * a->stride[0] * dtype_bytes(a->dtype) /
                     LINE;
    } else {
        out->from = (const char *)matrix_at(a, row, word) + own * LINE;
        out->step = a->stride[1] * dtype_bytes(a->dtype);
        out->count = slab->words;
    }
}

/* A line of each of `count` rows of t. */
static void rows_ahead(const struct tensor *t, int64_t row, int64_t column,
                       int64_t count, struct matmul_ahead *out)
{
    out->from = matrix_at(t, row, column);
    out->step = t->stride[0] * dtype_bytes(t->dtype);
    out->count = count;
}

/* Prefetches the memory of the next strip: line by line, a panel each. */
static void strip_ahead(const struct plan *plan, const struct block *block,
                        const struct matmul_slab *slab,
                        const struct place *at, struct matmul_ahead *out)
{
    const struct matmul *p = &plan->p;
    const int64_t own = at->panel - at->first;
    const int64_t half = own % TILE_VECTORS * WIDTH;
    int64_t row = block->row + at->first * block->height;
    int64_t column = block->column + (at->strip + 1) * TILE_COLUMNS;

    if (plan->b_in_place) {
        int64_t word = slab->steps[0].first;

        if (own >= TILE_VECTORS) return;
        if (at->strip + 1 == block->strip_end) { /* the next slab's */
            if (slab->last || at->first + plan->panels < block->panel_end)
                return;
            column = block->column + block->strip * TILE_COLUMNS;
            word += slab->words;
        }
        rows_ahead(&p->b, word, column + half, slab->words, out);
        return;
    }
    if (p->a.stride[1] != 1 || !slab->last || plan->past_caches) return;
    if (at->strip + 1 == block->strip_end) {
        row += plan->panels * block->height;
        column = block->column + block->strip * TILE_COLUMNS;
    }
    if (row >= block->row_end) return;
    const int64_t count = smaller(plan->panels * block->height,
                                  block->row_end - row);

    if (own < TILE_VECTORS)
        rows_ahead(&p->c, row, column + half, count, out);
    else if (own < 2 * TILE_VECTORS && p->left)
        rows_ahead(p->left, row, column + half, count, out);
}

static void tile_ahead(const struct plan *plan, const struct block *block,
                       const struct matmul_slab *slab,
                       const struct place *at, struct matmul_tile *tile)
{
    tile->ahead[0].count = tile->ahead[1].count = 0;
    if (!plan->in_place) return;
    panel_ahead(plan, block, slab, at, &tile->ahead[0]);
    strip_ahead(plan, block, slab, at, &tile->ahead[1]);
}

/* The lines of a strip that is still to be packed: pieces of rows of b, or
 * columns of it. */
static void strip_unpacked(const struct plan *plan, const struct block *block,
                           const struct matmul_slab *slab, int64_t strip,
                           struct matmul_lines *ahead)
{
    const struct tensor *b = &plan->p.b;
    const struct matmul_step *last = &slab->steps[slab->count - 1];
    const int64_t first = slab->steps[0].first;
    const int64_t length = last->first + last->length - first;
    const int size = dtype_bytes(b->dtype);
    const bool rows = b->stride[1] == 1;

    if (plan->b_apart || length <= 0) return;
    ahead->row = matrix_at(b, first, block->column + strip * TILE_COLUMNS);
    ahead->rows = rows ? length : TILE_COLUMNS;
    ahead->stride = (rows ? b->stride[0] : b->stride[1]) * size;
    ahead->lines =
        (int)ceil_div((rows ? TILE_COLUMNS : length) * size, LINE);
}

/* Each block of tiles asks for a part of the strip that comes next: all strips
 * together are larger than the second cache. */
static void strip_lines(const struct plan *plan,
                        const struct block *block,
                        const struct matmul_slab *slab, int64_t first,
                        int64_t strip)
{
    const int64_t left = block->panel_end - first;
    const bool packed = !plan->by_columns || first > block->panel;
    struct matmul_lines *ahead = &block->later->lines[LINES_STRIP];

    *ahead = (struct matmul_lines){0};
    if (strip + 1 >= block->strip_end || plan->whole) return;
    ahead->each = (int)ceil_div(PANEL, smaller(left, plan->panels));
    if (!packed) {
        strip_unpacked(plan, block, slab, strip + 1, ahead);
        return;
    }
    ahead->row = (const char *)b_strip(plan, block, strip + 1);
    ahead->rows = 1;
    ahead->lines = slab->words * TILE_COLUMNS * 4 / LINE;
}

/* This thread's tiles of one block and slab; b is packed here when the
 * columns are ours alone. */
static void slab_run(const struct plan *plan, const struct block *block,
                     const struct matmul_slab *slab)
{
    struct matmul_tile tile;
    int64_t size = (int64_t)plan->format->rows * slab->words;
    int64_t packed = plan->panels, together = plan->format->together;
    void (*run)(const struct matmul_tile *) =
        plan->format->tile ? plan->format->tile : CPU(matmul_tile_run);

    tile_init(plan, slab, &tile);
    tile.later = block->later;
    for (int64_t first = block->panel; first < block->panel_end;
         first += packed) {
        int64_t last = smaller(first + packed, block->panel_end);

        if (!plan->in_place) panels_pack(plan, block, first, last, slab);
        for (int64_t strip = block->strip; strip < block->strip_end; strip++) {
            if (plan->by_columns && first == block->panel &&
                !plan->b_in_place)
                strip_pack(plan, block, strip, slab);
            tile_strip(plan, block, strip, &tile);
            if (plan->dense) strip_lines(plan, block, slab, first, strip);
            for (int64_t panel = first; panel < last; panel += together) {
                tile_at(plan, block, panel, smaller(panel + together, last),
                        &tile);
                if (!plan->in_place)
                    tile.a = block->a_packed + (panel - first) * size;
                tile.plain = plan->b_least &&
                             matmul_plain(block->a_least[panel - first],
                                          plan->b_least[strip]);
                tile_ahead(plan, block, slab,
                           &(struct place){first, panel, strip}, &tile);
                run(&tile);
            }
        }
    }
    if (plan->format->settle) plan->format->settle(block->later);
}

/* b of a tile of few rows. */
static void few_strip(const struct plan *plan, const struct block *block,
                      int64_t strip, struct matmul_tile *tile)
{
    const struct matmul *p = &plan->p;

    tile->column = block->column + strip * TILE_COLUMNS;
    if (plan->direct && tile->column + TILE_COLUMNS <= p->c.shape[1]) {
        tile->memory = matrix_at(&p->b, 0, tile->column);
        tile->memory_size = dtype_bytes(p->b.dtype);
        tile->memory_stride =
            p->strips ? 0 : p->b.stride[1] * tile->memory_size;
        tile->depth = p->b.shape[0];
    } else {
        strip_pack(plan, block, strip, tile->slab);
        tile_strip(plan, block, strip, tile);
    }
}

/* A product of few rows: all of a is packed at once, and a strip of b goes
 * through the first cache from one end to the other, as it lies in memory where
 * the contracted dimension is contiguous. */
static void few_run(const struct plan *plan, struct block *block)
{
    int rows = plan->format->rows;
    int64_t panels = block->panel_end;
    uint32_t *packed = block->a_packed;
    struct matmul_cursor cursor;
    struct matmul_slab slab;

    plan_cursor(plan, &cursor);
    while (CPU(matmul_slab_next)(&cursor, &slab)) {
        panels_pack(plan, block, 0, panels, &slab);
        block->a_packed += panels * rows * slab.words;
    }
    for (int64_t strip = block->strip; strip < block->strip_end; strip++) {
        block->a_packed = packed;
        plan_cursor(plan, &cursor);
        while (CPU(matmul_slab_next)(&cursor, &slab)) {
            struct matmul_tile tile;

            tile_init(plan, &slab, &tile);
            few_strip(plan, block, strip, &tile);
            for (int64_t panel = 0; panel < panels; panel++) {
                tile_at(plan, block, panel, panel + 1, &tile);
                tile.a = block->a_packed + panel * rows * slab.words;
                CPU(matmul_tile_run)(&tile);
            }
            block->a_packed += panels * rows * slab.words;
        }
    }
    block->a_packed = packed;
}

/* This thread's rows of a block. Where a is read in place they are as many as
 * those of the others, and its panels about equally high. */
static void rows_share(const struct plan *plan, struct block *block, int index,
                       int count)
{
    int64_t rows = block->row_end - block->row;
    int64_t panels = ceil_div(rows, plan->format->rows), first, last;

    block->top = block->row;
    block->height = plan->format->rows;
    block->panel = 0;
    block->panel_end = panels;
    if (!plan->in_place) {
        if (!plan->by_columns)
            threads_split(panels, 1, index, count, &block->panel,
                          &block->panel_end);
        return;
    }
    /* Without a barrier each keeps its rows in all blocks, as with columns
     * below: the last block is lower, and sums may wait there. */
    if (!plan->by_columns) {
        threads_split(plan->rows, 1, index, count, &first, &last);
        first = smaller(first, rows);
        last = smaller(last, rows);
        block->row_end = block->row + last;
        block->row += first;
        rows = last - first;
    }
    block->panel_end = panels = ceil_div(rows, plan->format->rows);
    if (panels > 0) block->height = (int)ceil_div(rows, panels);
}

static void block_run(const struct plan *plan, struct block *block, int index,
                      int count)
{
    int64_t strips = ceil_div(block->column_end - block->column, TILE_COLUMNS);
    int64_t strip, strip_end;
    struct matmul_cursor cursor;
    struct matmul_slab slab;
    const bool shares = !plan->by_columns && !plan->b_in_place;

    rows_share(plan, block, index, count);
    block->strip = 0;
    block->strip_end = strips;
    /* Threads that share columns never meet, so each keeps its strips in all
     * blocks: the last one is narrower, and packed strips and slots there would
     * be those that a slower thread still uses. */
    threads_split(plan->by_columns ? plan->columns / TILE_COLUMNS : strips, 1,
                  index, count, &strip, &strip_end);
    if (plan->by_columns) {
        block->strip = strip = smaller(strip, strips);
        block->strip_end = strip_end = smaller(strip_end, strips);
    }
    if (plan->few) {
        few_run(plan, block);
        return;
    }
    plan_cursor(plan, &cursor);
    while (CPU(matmul_slab_next)(&cursor, &slab)) {
        if (shares) {
            for (int64_t s = strip; s < strip_end; s++)
                strip_pack(plan, block, s, &slab);
            threads_barrier(plan->threads);
        }
        slab_run(plan, block, &slab);
        if (shares) threads_barrier(plan->threads);
    }
}

/* The root of a part: the first one is in c, unless something is to the left of
 * the sum, be it in c itself or elsewhere. */
static float *part_root(const struct plan *plan, int part)
{
    if (!plan->p.left && part == 0) return plan->p.c.data;
    return plan->partials + (part - (plan->p.left ? 0 : 1)) *
                                plan->p.c.shape[0] * plan->p.c.shape[1];
}

static void blocks_run(const struct plan *plan, int index, int count)
{
    int64_t m = plan->p.c.shape[0], n = plan->p.c.shape[1];
    struct matmul_later later;
    uint32_t a_least[MATMUL_PANELS];
    struct block block = {.later = &later, .a_least = a_least};

    later.first = later.count = 0;
    memset(later.lines, 0, sizeof later.lines);
    block.a_packed = plan->a_packed + (int64_t)index * MATMUL_A_FLOATS;
    if (plan->format->begin) plan->format->begin();
    for (int64_t column = 0; column < n; column += plan->columns) {
        for (int64_t row = 0; row < m; row += plan->rows) {
            block.column = column;
            block.column_end = smaller(column + plan->columns, n);
            block.row = row;
            block.row_end = smaller(row + plan->rows, m);
            block_run(plan, &block, index, count);
        }
    }
    if (plan->past_caches || is_past(plan))
        atomic_thread_fence(memory_order_seq_cst);
    if (plan->format->end) plan->format->end();
}

/* out = a + b, n numbers; out == a or b allowed. */
static void numbers_add(float *out, const float *a, const float *b, int64_t n)
{
    SIMD for (int64_t j = 0; j < n; j++) out[j] = a[j] + b[j];
}

/* c = left + the tree over the roots of the parts: a share of the rows. */
static void parts_add(const struct plan *plan, int index)
{
    const struct matmul *p = &plan->p;
    const int64_t m = p->c.shape[0], n = p->c.shape[1];
    const int64_t c_row = p->left ? n : p->c.stride[0];
    int64_t first, last;

    threads_split(m, 1, index, plan->parts, &first, &last);
    for (int apart = 1; apart < plan->parts; apart *= 2)
        for (int i = 0; i < plan->parts; i += 2 * apart)
            for (int64_t row = first; row < last; row++) {
                float *to = part_root(plan, i) + row * (i > 0 ? n : c_row);

                numbers_add(to, to, part_root(plan, i + apart) + row * n, n);
            }
    for (int64_t row = first; row < last && p->left; row++)
        numbers_add(matrix_at(&p->c, row, 0), matrix_at(p->left, row, 0),
                    part_root(plan, 0) + row * n, n);
}

/* All of c from this thread's leaves. */
static void part_run(const struct plan *plan, int index)
{
    struct plan own = *plan;

    own.part = index;
    own.slots += index * own.slot_floats;
    own.p.left = NULL;
    if (index > 0 || plan->p.left)
        own.p.c = tensor_2d(part_root(plan, index), DTYPE_F32,
                            own.p.c.shape[0], own.p.c.shape[1]);
    blocks_run(&own, 0, 1);
    threads_barrier(plan->threads);
    parts_add(plan, index);
}

static void matmul_body(void *argument, int index, int count)
{
    const struct plan *plan = argument;

    if (plan->parts > 1) part_run(plan, index);
    else blocks_run(plan, index, count);
}

static void matmul_check(const struct matmul *p, enum dtype dtype)
{
    int64_t m = p->c.shape[0], n = p->c.shape[1], k = p->a.shape[1];

    CHECK(p->a.dtype == dtype && p->b.dtype == dtype);
    CHECK(p->c.dtype == DTYPE_F32 || (p->c.dtype == dtype && !p->continues));
    CHECK(p->c.stride[1] == 1);
    CHECK(p->a.shape[0] == m && p->b.shape[1] == n && p->b.shape[0] == k);
    CHECK(p->a.stride[0] == 1 || p->a.stride[1] == 1);
    CHECK(p->b.stride[0] == 1 || p->b.stride[1] == 1);
    CHECK(!p->bias || p->bias->dtype == dtype);
    CHECK(!p->left || p->left->stride[1] == 1);
    CHECK(!p->continues || p->order->leaves == 1);
    CHECK(!p->continues || !p->left || p->left->data != p->c.data);
    CHECK(!p->strips || (p->b.stride[0] == 1 && p->b.stride[1] == k));
    sum_order_check(p->order, k, p->continues);
}

/* threads NULL: this one alone. */
static void plan_run(struct plan *plan, struct stream *stream,
                     struct threads *threads)
{
    const int count = threads_count(threads);
    float *scratch = stream->scratch;

    CHECK(stream->scratch_bytes >= matmul_scratch_bytes(count));
    plan->threads = threads;
    plan->slot_floats = MATMUL_SLOT_FLOATS;
    plan->b_floats = MATMUL_B_FLOATS;
    plan->c_count = plan->p.c.shape[0] * plan->p.c.shape[1];
    plan->slots = scratch;
    plan->b_packed = (uint32_t *)(scratch + MATMUL_SLOT_FLOATS);
    plan->a_packed = plan->b_packed + MATMUL_B_FLOATS;
    CPU(matmul_plan_build)(plan, count);
    threads_run(threads, matmul_body, plan);
}

void CPU(matmul_plan_run)(struct plan *plan)
{
    plan->threads = NULL;
    CPU(matmul_plan_build)(plan, 1);
    blocks_run(plan, 0, 1);
}

/* After a line: the columns that fill no strip, on this thread. */
static status line_rest(struct stream *stream, const struct matmul *p,
                        const struct matmul_format *format)
{
    const int64_t n = p->c.shape[1], rest = n % TILE_COLUMNS;
    struct plan plan = {.p = *p, .format = format};
    struct tensor bias, left;

    if (rest == 0) return OK;
    plan.p.strips = false;
    plan.p.c = tensor_cols(p->c, n - rest, rest);
    plan.p.b = tensor_cols(p->b, n - rest, rest);
    if (p->bias) {
        bias = tensor_1d(element_at(p->bias->data, p->bias->dtype, n - rest),
                         p->bias->dtype, rest);
        plan.p.bias = &bias;
    }
    if (p->left) {
        left = tensor_cols(*p->left, n - rest, rest);
        plan.p.left = &left;
    }
    plan_run(&plan, stream, NULL);
    return OK;
}

static status matmul_run(struct stream *stream, const struct matmul *p,
                         const struct matmul_format *format, enum dtype dtype)
{
    struct plan plan = {.p = *p, .format = format};

    matmul_check(p, dtype);
    if (p->c.shape[0] == 0 || p->c.shape[1] == 0) return OK;
    if (CPU(matmul_line)(stream, p, format))
        return line_rest(stream, p, format);
    plan_run(&plan, stream, stream->threads);
    return OK;
}

status CPU(matmul)(struct stream *stream, const struct matmul *p)
{
    return matmul_run(stream, p, &CPU(format_f32), DTYPE_F32);
}

status CPU(matmul_f16)(struct stream *stream, const struct matmul *p)
{
    return matmul_run(stream, p, &CPU(format_f16), DTYPE_F16);
}

const struct matmul_format *CPU(matmul_format_of)(enum dtype dtype,
                                                  enum product product)
{
    if (dtype == DTYPE_F32) return &CPU(format_f32);
    if (dtype == DTYPE_F16) return &CPU(format_f16);
#if defined(__AVX512F__)
    if (product == PRODUCT_TILES && features_tiles())
        return &CPU(format_tiles);
    if (product == PRODUCT_PAIRS && features_pairs() &&
        (features_even_slow() || CPU(matmul_pairs_pay)()))
        return &CPU(format_pairs);
#endif
    return product == PRODUCT_TILES ? &CPU(format_tiles_emulated)
                                    : &CPU(format_pairs_emulated);
}

status CPU(matmul_bf16_pairs)(struct stream *stream, const struct matmul *p)
{
    if (p->accumulator != NULL) return reference_matmul_bf16_pairs(stream, p);
    return matmul_run(stream, p,
                      CPU(matmul_format_of)(DTYPE_BF16, PRODUCT_PAIRS),
                      DTYPE_BF16);
}

status CPU(matmul_bf16_tiles)(struct stream *stream, const struct matmul *p)
{
    if (p->accumulator != NULL) return reference_matmul_bf16_tiles(stream, p);
    return matmul_run(stream, p,
                      CPU(matmul_format_of)(DTYPE_BF16, PRODUCT_TILES),
                      DTYPE_BF16);
}
