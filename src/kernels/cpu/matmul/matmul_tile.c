/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_tile.c - the steps of a slab for one tile of c.
 *
 * Slots of the stack are tiles in the first-level cache; slot 0 is c itself
 * where that is allowed. What follows the sum, the bias and what is to the left
 * of it, is added in float32 wherever c is stored, and c is rounded once. */
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/element.h"

/* A panel of a tile while it is computed. */
struct panel {
    const struct matmul_tile *tile;
    int row, rows;   /* of the tile */
    float *first;    /* slot 0 */
    int64_t first_stride;
    float (*stack)[TILE];
    bool finished;   /* c has been stored */
    bool past_caches;    /* c is stored once, past the caches */
};

static void tile_copy(float *to, int64_t to_stride, const float *from,
                      int64_t from_stride, int rows, int columns)
{
    if (columns == TILE_COLUMNS) {
        for (int i = 0; i < rows; i++)
            memcpy(to + i * to_stride, from + i * from_stride,
                   sizeof(float) * TILE_COLUMNS);
        return;
    }
    for (int i = 0; i < rows; i++)
        memcpy(to + i * to_stride, from + i * from_stride,
               sizeof(float) * (size_t)columns);
}

/* left = left + right; right is dense. */
static void tile_add(float *left, int64_t stride, const float *right, int rows)
{
    for (int i = 0; i < rows; i++) {
        UNROLL for (int v = 0; v < TILE_VECTORS; v++) {
            float *at = left + i * stride + v * WIDTH;

            vector_store(at, vector_load(at) +
                                 vector_load(right + i * TILE_COLUMNS +
                                             v * WIDTH));
        }
    }
}

static void row_copy(float *to, const float *from, int columns)
{
    if (columns == TILE_COLUMNS)
        memcpy(to, from, sizeof *to * TILE_COLUMNS);
    else
        memcpy(to, from, sizeof *to * (size_t)columns);
}

/* Adds a row of an operand to a row of sums. A full row is a loop of known
 * length. */
INLINE void row_add(float *sum, const void *from, const enum dtype dtype,
                    int columns)
{
    if (columns == TILE_COLUMNS)
        SIMD for (int j = 0; j < TILE_COLUMNS; j++)
            sum[j] = element_get(from, dtype, j) + sum[j];
    else
        for (int j = 0; j < columns; j++)
            sum[j] = element_get(from, dtype, j) + sum[j];
}

static void row_add_any(float *sum, const void *from, enum dtype dtype,
                        int columns)
{
    if (dtype == DTYPE_F32) row_add(sum, from, DTYPE_F32, columns);
    else if (dtype == DTYPE_BF16) row_add(sum, from, DTYPE_BF16, columns);
    else row_add(sum, from, DTYPE_F16, columns);
}

INLINE void row_store(void *to, const enum dtype dtype, const float *sum,
                      int columns)
{
    if (columns == TILE_COLUMNS)
        SIMD for (int j = 0; j < TILE_COLUMNS; j++)
            element_set(to, dtype, j, sum[j]);
    else
        for (int j = 0; j < columns; j++) element_set(to, dtype, j, sum[j]);
}

static void row_store_any(void *to, enum dtype dtype, const float *sum,
                          int columns)
{
    if (dtype == DTYPE_F32)
        row_copy(to, sum, columns);
    else if (dtype == DTYPE_BF16)
        row_store(to, DTYPE_BF16, sum, columns);
    else
        row_store(to, DTYPE_F16, sum, columns);
}

#if defined(__AVX512F__)
/* A row of c in bfloat16 is one line then, and caches would not keep it. */
static bool row_goes_past(const struct matmul_tile *t)
{
    return t->past && t->c_type == DTYPE_BF16 && t->columns == TILE_COLUMNS &&
           (uintptr_t)t->c % LINE == 0 && t->c_stride % TILE_COLUMNS == 0;
}

static void row_store_past(void *to, const float *sum)
{
    uint16_t row[TILE_COLUMNS] __attribute__((aligned(LINE)));

    row_store(row, DTYPE_BF16, sum, TILE_COLUMNS);
    _mm512_stream_si512((__m512i *)to, *(const __m512i *)(const void *)row);
}
#else
static bool row_goes_past(const struct matmul_tile *t)
{
    (void)t;
    return false;
}

/* Never called. */
static void row_store_past(void *to, const float *sum)
{
    (void)to, (void)sum;
}
#endif

void CPU(matmul_row_finish)(const struct matmul_tile *t, int64_t row,
                            float *sums)
{
    void *to = element_at(t->c, t->c_type, row * t->c_stride);

    if (t->bias) row_add_any(sums, t->bias, t->bias_type, t->columns);
    if (t->left)
        row_add_any(sums, element_at(t->left, t->left_type,
                                     row * t->left_stride),
                    t->left_type, t->columns);
    if (row_goes_past(t)) row_store_past(to, sums);
    else row_store_any(to, t->c_type, sums, t->columns);
}

/* c = left + (sum + bias), each where present; sum == c allowed. */
static void panel_finish(const struct panel *panel)
{
    const struct matmul_tile *t = panel->tile;

    if (panel->finished || (!t->bias && !t->left && t->direct)) return;
    for (int i = 0; i < panel->rows; i++) {
        float row[TILE_COLUMNS];

        row_copy(row, panel->first + i * panel->first_stride, t->columns);
        CPU(matmul_row_finish)(t, panel->row + i, row);
    }
}

/* Copies slots [first, count) between the stack and where they wait. */
static void slots_move(const struct panel *panel, int count, bool load)
{
    const struct matmul_tile *t = panel->tile;
    int64_t slots_at = panel->row * t->slot_stride;
    int from = panel->first == panel->stack[0] ? 0 : 1;

    for (int s = from; s < count; s++) {
        bool in_c = s == 0 && !t->keep_first;
        float *stack = panel->stack[s];
        float *home = in_c ? (float *)t->c + panel->row * t->c_stride
                           : t->slots + s * t->slot_size + slots_at;
        int64_t stride = in_c ? t->c_stride : t->slot_stride;
        int columns = in_c ? t->columns : TILE_COLUMNS;

        if (load) {
            if (columns < TILE_COLUMNS) memset(stack, 0, sizeof(float) * TILE);
            tile_copy(stack, TILE_COLUMNS, home, stride, panel->rows, columns);
        } else {
            tile_copy(home, stride, stack, TILE_COLUMNS, panel->rows, columns);
        }
    }
}

/* Whether the sums of a tile are made at once, so that c is not touched before
 * its last granule stores it: slot 0 is dense then. */
static bool sums_stay(const struct matmul_tile *t)
{
    return t->past_caches && t->direct && t->format->merges && !t->memory &&
           !t->bias && t->slab->slots_before == 0 && t->slab->last;
}

static void panel_begin(struct panel *panel, const struct matmul_tile *t,
                        int index)
{
    const int rows = t->format->rows;

    panel->tile = t;
    panel->finished = false;
    panel->row = index * rows;
    panel->rows = t->rows - panel->row < rows ? t->rows - panel->row : rows;
    panel->first = panel->stack[0];
    panel->first_stride = TILE_COLUMNS;
    panel->past_caches = sums_stay(t);
    if (t->direct && !panel->past_caches) {
        panel->first = (float *)t->c + panel->row * t->c_stride;
        panel->first_stride = t->c_stride;
    } else if (t->keep_first && (t->slab->slots_before || !t->slab->last)) {
        panel->first = t->slots + panel->row * t->slot_stride;
        panel->first_stride = t->slot_stride;
    }
    slots_move(panel, t->slab->slots_before, true);
    if (!t->slab->last || panel->past_caches) return;
    for (int i = 0; i < panel->rows; i++) {
        const int64_t at = panel->row + i;

        if (!row_goes_past(t))
            __builtin_prefetch(element_at(t->c, t->c_type, at * t->c_stride),
                               1);
        if (t->left)
            __builtin_prefetch(element_at(t->left, t->left_type,
                                          at * t->left_stride));
    }
}

/* A granule of few rows, b read where it lies. */
static void panel_few(const struct panel *panel, const struct matmul_step *step,
                      const struct matmul_granule *g)
{
    const struct matmul_tile *t = panel->tile;
    float sums[FEW_DIRECT * TILE_COLUMNS] __attribute__((aligned(64)));
    const int64_t size = t->memory_size;
    struct matmul_few f = {.stride = t->memory_stride,
                           .length = step->length};
    int64_t after = step->first + step->length;

    f.b = t->memory + step->first * size * (f.stride ? 1 : TILE_COLUMNS);
    f.next = after + step->length <= t->depth
                 ? t->memory + after * size
                 : t->memory + TILE_COLUMNS * t->memory_stride;
    for (int row = 0; row < g->rows; row += FEW_GROUP) {
        f.a = g->a + row;
        f.to = sums + row * TILE_COLUMNS;
        f.rows = g->rows - row < FEW_GROUP ? g->rows - row : FEW_GROUP;
        t->format->few(&f);
    }
    for (int i = 0; i < g->rows; i++) {
        float *to = g->to + i * g->stride;
        const float *from = sums + i * TILE_COLUMNS;

        for (int v = 0; v < TILE_COLUMNS; v += WIDTH) {
            vector x = vector_load(from + v);

            vector_store(to + v, g->assign ? x : vector_load(to + v) + x);
        }
    }
}

/* a of a granule where it lies. */
static void granule_in_place(const struct panel *panel,
                             const struct matmul_step *step,
                             struct matmul_rows *rows,
                             struct matmul_granule *g)
{
    const struct matmul_tile *t = panel->tile;
    const int64_t row = t->a_row * (int64_t)sizeof *t->a;

    g->a = t->a + panel->row * t->a_row + step->first * t->a_word;
    g->a_word = t->a_word;
    for (int i = 0; i < AHEAD_OPERANDS; i++) {
        g->ahead[i] = t->ahead[i];
        if (step->offset < t->ahead[i].count)
            g->ahead[i].from += step->offset * t->ahead[i].step;
        else
            g->ahead[i] = (struct matmul_ahead){(const char *)g->a, 0, 0};
    }
    if (t->a_word != 1) return;
    g->in_rows = rows;
    for (int i = 0; i < ROWS_GROUPS; i++)
        rows->first[i] = (const char *)g->a + i * ROWS_GROUP * row;
    for (int i = 0; i < ROWS_GROUP; i++) rows->apart[i] = i * row;
}

static float *slot_at(const struct panel *panel, int slot, int64_t *stride)
{
    *stride = slot ? TILE_COLUMNS : panel->first_stride;
    return slot ? panel->stack[slot] : panel->first;
}

/* Whether c can be stored by the granule that completes its sums. */
static bool ends_here(const struct matmul_tile *t,
                      const struct matmul_step *step)
{
    return t->slab->last && step == &t->slab->steps[t->slab->count - 1] &&
           t->columns == TILE_COLUMNS && t->c_type == DTYPE_F32 && !t->bias &&
           (!t->left || t->left_type == DTYPE_F32);
}

/* The step's merges as part of its granule: each is an addition to the left of
 * what there is, as is adding to a slot. */
static void granule_merges(struct panel *panel, const struct matmul_step *step,
                           struct matmul_granule *g)
{
    const struct matmul_tile *t = panel->tile;
    const int top = step->slot - (step->assign ? 1 : 0);
    const int last = step->slot - step->merges;

    if (top >= last) {
        g->top = panel->stack[top];
        g->count = top - last;
        g->below = slot_at(panel, last, &g->below_stride);
    }
    g->to = slot_at(panel, last, &g->stride);
    if (!ends_here(t, step)) return;
    panel->finished = true;
    g->to = (float *)t->c + panel->row * t->c_stride;
    g->stride = t->c_stride;
    g->past_caches = panel->past_caches;
    if (!t->left) return;
    g->left = (const float *)t->left + panel->row * t->left_stride;
    g->left_stride = t->left_stride;
}

static void panel_merge(const struct panel *panel,
                        const struct matmul_step *step)
{
    int top = step->slot;

    for (int merge = 0; merge < step->merges; merge++, top--)
        tile_add(top > 1 ? panel->stack[top - 1] : panel->first,
                 top > 1 ? TILE_COLUMNS : panel->first_stride,
                 panel->stack[top], panel->rows);
}

static void panel_granule(struct panel *panel, const struct matmul_step *step)
{
    const struct matmul_tile *t = panel->tile;
    const int64_t rows = t->format->rows;
    const int64_t word =
        t->whole ? step->first / t->format->per_word : step->offset;
    struct matmul_rows in_rows;
    struct matmul_granule g = {
        .a = t->a, .a_word = rows,
        .b = t->memory ? NULL /* read where it lies */
                       : t->b + word * t->b_word,
        .b_word = t->b_word, .words = step->words, .rows = panel->rows,
        .assign = step->assign, .plain = t->plain};

    if (t->in_place) granule_in_place(panel, step, &in_rows, &g);
    else g.a += panel->row * t->slab->words + step->offset * rows;
    if (t->format->merges && !t->memory) {
        granule_merges(panel, step, &g);
        t->format->granule(&g);
        return;
    }
    g.to = slot_at(panel, step->slot, &g.stride);
    if (!g.assign) {
        g.below = g.to;
        g.below_stride = g.stride;
    }
    if (t->memory) panel_few(panel, step, &g);
    else t->format->granule(&g);
    panel_merge(panel, step);
}

void CPU(matmul_tile_run)(const struct matmul_tile *t)
{
    float stacks[TOGETHER_MAX][SLOTS][TILE] __attribute__((aligned(64)));
    struct panel panels[TOGETHER_MAX];
    const struct matmul_slab *slab = t->slab;
    int count = (t->rows + t->format->rows - 1) / t->format->rows;

    for (int p = 0; p < count; p++) {
        panels[p].stack = stacks[p];
        panel_begin(&panels[p], t, p);
    }
    for (int i = 0; i < slab->count; i++) {
        const struct matmul_step *step = &slab->steps[i];

        for (int p = 0; p < count; p++) panel_granule(&panels[p], step);
    }
    for (int p = 0; p < count; p++) {
        if (slab->last) panel_finish(&panels[p]);
        else slots_move(&panels[p], slab->slots_after, false);
    }
}
