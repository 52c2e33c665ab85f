/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.c - the fast matrix product: blocks, threads and scratch.
 *
 *   for each block of columns of c           (packed b fits the last cache)
 *     for each block of rows of c            (all, unless a stack must wait)
 *       for each chunk of the contracted dimension
 *         pack b; for each few panels of a: pack them; tiles
 *
 * Threads share either the rows (b is packed together) or the columns (each
 * packs its own strips just before their first use). How c is cut shows in no
 * bit: an element is computed by one tile, in the order of the chunks.
 * Source of the loop order: Goto and van de Geijn, "Anatomy of
 * high-performance matrix multiplication", 2008. */
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/scratch.h"

enum { COLUMNS_MAX = 4096 }; /* of a block of columns */

/* A product cut into blocks; the same in every thread. */
struct plan {
    struct matmul p;
    struct threads *threads;
    float *a_packed, *b_packed, *slots;
    int64_t columns; /* of a block, a multiple of TILE_COLUMNS */
    int64_t rows;    /* of a block, a multiple of TILE_ROWS */
    int elements;    /* of the largest chunk */
    bool keep_first;
    bool by_columns; /* threads share columns */
};

/* What one thread does in one block. */
struct block {
    int64_t row, column;       /* first of the block */
    int64_t row_end, column_end;
    int64_t panel, panel_end;  /* of this thread, from row */
    int64_t strip, strip_end;  /* of this thread, from column */
    float *a_packed;           /* of this thread */
};

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static float *b_strip(const struct plan *plan, const struct block *block,
                      int64_t strip)
{
    /* Strips that only this thread uses, and only once, share one place. */
    bool once = plan->by_columns &&
                block->panel_end - block->panel <= MATMUL_PANELS;

    return plan->b_packed +
           (once ? block->strip : strip) * TILE_COLUMNS * plan->elements;
}

static void strip_pack(const struct plan *plan, const struct block *block,
                       int64_t strip, const struct matmul_chunk *chunk)
{
    const struct tensor *b = &plan->p.b;
    int64_t column = block->column + strip * TILE_COLUMNS;

    CPU(matmul_pack_columns)(b_strip(plan, block, strip),
                             (const float *)b->data + column * b->stride[1],
                             b->stride[1], b->stride[0],
                             (int)smaller(TILE_COLUMNS,
                                          block->column_end - column),
                             chunk);
}

static void panels_pack(const struct plan *plan, const struct block *block,
                        int64_t first, int64_t last,
                        const struct matmul_chunk *chunk)
{
    const struct tensor *a = &plan->p.a;
    int64_t row = block->row + first * TILE_ROWS;
    int64_t end = smaller(block->row + last * TILE_ROWS, block->row_end);

    CPU(matmul_pack_rows)(block->a_packed,
                          (const float *)a->data + row * a->stride[0],
                          a->stride[0], a->stride[1], (int)(end - row), chunk);
}

static void tile_at(const struct plan *plan, const struct block *block,
                    int64_t panel, int64_t strip, struct matmul_tile *tile)
{
    const struct matmul *p = &plan->p;
    int64_t row = block->row + panel * TILE_ROWS;
    int64_t column = block->column + strip * TILE_COLUMNS;

    tile->rows = (int)smaller(TILE_ROWS, block->row_end - row);
    tile->columns = (int)smaller(TILE_COLUMNS, block->column_end - column);
    tile->b = b_strip(plan, block, strip);
    tile->c = (float *)p->c.data + row * p->c.stride[0] + column;
    tile->c_stride = p->c.stride[0];
    tile->slots = plan->slots + (row - block->row) * plan->columns + column -
                  block->column;
    tile->slot_stride = plan->columns;
    tile->slot_size = plan->columns * plan->rows;
    tile->keep_first = plan->keep_first;
    tile->bias = p->bias ? (const float *)p->bias->data + column : NULL;
    tile->left = NULL;
    if (p->left) {
        tile->left_stride = p->left->stride[0];
        tile->left = (const float *)p->left->data + row * tile->left_stride +
                     column;
    }
}

/* This thread's tiles of one block and chunk; b is packed here when the
 * columns are ours alone. */
static void chunk_run(const struct plan *plan, const struct block *block,
                      const struct matmul_chunk *chunk)
{
    struct matmul_tile tile = {.chunk = chunk};
    int64_t size = (int64_t)TILE_ROWS * chunk->elements;

    for (int64_t first = block->panel; first < block->panel_end;
         first += MATMUL_PANELS) {
        int64_t last = smaller(first + MATMUL_PANELS, block->panel_end);

        panels_pack(plan, block, first, last, chunk);
        for (int64_t strip = block->strip; strip < block->strip_end; strip++) {
            if (plan->by_columns && first == block->panel)
                strip_pack(plan, block, strip, chunk);
            for (int64_t panel = first; panel < last; panel++) {
                tile_at(plan, block, panel, strip, &tile);
                tile.a = block->a_packed + (panel - first) * size;
                CPU(matmul_tile_run)(&tile);
            }
        }
    }
}

static void block_run(const struct plan *plan, struct block *block, int index,
                      int count)
{
    int64_t panels = ceil_div(block->row_end - block->row, TILE_ROWS);
    int64_t strips = ceil_div(block->column_end - block->column, TILE_COLUMNS);
    int64_t strip, strip_end;
    struct matmul_cursor cursor;
    struct matmul_chunk chunk;

    block->panel = block->strip = 0;
    block->panel_end = panels;
    block->strip_end = strips;
    threads_split(strips, 1, index, count, &strip, &strip_end);
    if (plan->by_columns) {
        block->strip = strip;
        block->strip_end = strip_end;
    } else {
        threads_split(panels, 1, index, count, &block->panel,
                      &block->panel_end);
    }
    CPU(matmul_cursor_init)(&cursor, plan->p.order, plan->p.continues);
    while (CPU(matmul_chunk_next)(&cursor, &chunk)) {
        if (!plan->by_columns) {
            for (int64_t s = strip; s < strip_end; s++)
                strip_pack(plan, block, s, &chunk);
            threads_barrier(plan->threads);
        }
        chunk_run(plan, block, &chunk);
        if (!plan->by_columns) threads_barrier(plan->threads);
    }
}

static void matmul_body(void *argument, int index, int count)
{
    const struct plan *plan = argument;
    int64_t m = plan->p.c.shape[0], n = plan->p.c.shape[1];
    struct block block = {0};

    block.a_packed = plan->a_packed + (int64_t)index * MATMUL_A_FLOATS;
    for (int64_t column = 0; column < n; column += plan->columns) {
        for (int64_t row = 0; row < m; row += plan->rows) {
            block.column = column;
            block.column_end = smaller(column + plan->columns, n);
            block.row = row;
            block.row_end = smaller(row + plan->rows, m);
            block_run(plan, &block, index, count);
        }
    }
}

/* Whether sharing columns leaves less idle than sharing rows. Columns need no
 * barrier; rows pack a only once, which pays when c is tall. */
static bool columns_are_shared(int64_t panels, int64_t strips, int threads)
{
    double idle_rows = (double)(ceil_div(panels, threads) * threads) /
                       (double)panels;
    double idle_columns = (double)(ceil_div(strips, threads) * threads) /
                          (double)strips;

    if (panels > 2 * strips) idle_rows *= 0.98;
    return idle_columns <= idle_rows * 1.005;
}

static void plan_build(struct plan *plan, int threads)
{
    const struct matmul *p = &plan->p;
    int64_t m = p->c.shape[0], n = p->c.shape[1], blocks;
    int slots = 0;
    struct matmul_cursor cursor;
    struct matmul_chunk chunk;

    plan->elements = 1;
    plan->keep_first = p->left && p->left->data == p->c.data;
    CPU(matmul_cursor_init)(&cursor, p->order, p->continues);
    while (CPU(matmul_chunk_next)(&cursor, &chunk)) {
        if (chunk.elements > plan->elements) plan->elements = chunk.elements;
        if (!chunk.last && chunk.slots_after > slots)
            slots = chunk.slots_after;
    }
    if (slots == 1 && !plan->keep_first) slots = 0; /* it waits in c */

    plan->columns = smaller(MATMUL_B_FLOATS / plan->elements, COLUMNS_MAX);
    plan->columns = plan->columns / TILE_COLUMNS * TILE_COLUMNS;
    blocks = ceil_div(n, plan->columns);
    plan->columns = ceil_div(ceil_div(n, blocks), TILE_COLUMNS) * TILE_COLUMNS;
    plan->rows = ceil_div(m, TILE_ROWS) * TILE_ROWS;
    if (slots) {
        int64_t fit = MATMUL_SLOT_FLOATS / (slots * plan->columns);

        fit = fit / TILE_ROWS * TILE_ROWS;
        CHECK(fit > 0);
        blocks = ceil_div(m, fit);
        plan->rows = ceil_div(ceil_div(m, blocks), TILE_ROWS) * TILE_ROWS;
    }
    plan->by_columns =
        columns_are_shared(plan->rows / TILE_ROWS,
                           plan->columns / TILE_COLUMNS, threads);
}

static void matmul_check(const struct matmul *p)
{
    int64_t m = p->c.shape[0], n = p->c.shape[1], k = p->a.shape[1];

    CHECK(p->c.dtype == DTYPE_F32 && p->a.dtype == DTYPE_F32);
    CHECK(p->b.dtype == DTYPE_F32 && p->c.stride[1] == 1);
    CHECK(p->a.shape[0] == m && p->b.shape[1] == n && p->b.shape[0] == k);
    CHECK(p->a.stride[0] == 1 || p->a.stride[1] == 1);
    CHECK(p->b.stride[0] == 1 || p->b.stride[1] == 1);
    CHECK(!p->left || p->left->stride[1] == 1);
    CHECK(!p->continues || p->order->leaves == 1);
}

status CPU(matmul)(struct stream *stream, const struct matmul *p)
{
    int threads = threads_count(stream->threads);
    struct plan plan = {.p = *p, .threads = stream->threads};

    matmul_check(p);
    CHECK(stream->scratch_bytes >= matmul_scratch_bytes(threads));
    plan.slots = stream->scratch;
    plan.b_packed = plan.slots + MATMUL_SLOT_FLOATS;
    plan.a_packed = plan.b_packed + MATMUL_B_FLOATS;
    plan_build(&plan, threads);
    threads_run(stream->threads, matmul_body, &plan);
    return OK;
}
