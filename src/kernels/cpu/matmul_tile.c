/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_tile.c - the steps of a chunk for one tile of c.
 *
 * Slots of the stack are tiles in the first-level cache; slot 0 is c itself
 * where that is allowed. What follows the sum, the bias and what is to the left
 * of it, is added in float32 wherever c is stored, and c is rounded once. */
#include "kernels/cpu/matmul.h"
#include "kernels/element.h"

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

/* Adds a row of an operand to a row of sums. */
INLINE void row_add(float *sum, const void *from, const enum dtype dtype,
                    int columns)
{
    SIMD for (int j = 0; j < columns; j++)
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
    SIMD for (int j = 0; j < columns; j++) element_set(to, dtype, j, sum[j]);
}

static void row_store_any(void *to, enum dtype dtype, const float *sum,
                          int columns)
{
    if (dtype == DTYPE_F32)
        memcpy(to, sum, sizeof *sum * (size_t)columns);
    else if (dtype == DTYPE_BF16)
        row_store(to, DTYPE_BF16, sum, columns);
    else
        row_store(to, DTYPE_F16, sum, columns);
}

/* c = left + (sum + bias), each where present; sum == c allowed. */
static void tile_finish(const struct matmul_tile *t, const float *sum,
                        int64_t stride)
{
    if (!t->bias && !t->left && sum == t->c) return;
    for (int i = 0; i < t->rows; i++) {
        float row[TILE_COLUMNS];

        memcpy(row, sum + i * stride, sizeof *row * (size_t)t->columns);
        if (t->bias) row_add_any(row, t->bias, t->bias_type, t->columns);
        if (t->left)
            row_add_any(row, element_at(t->left, t->left_type,
                                        i * t->left_stride),
                        t->left_type, t->columns);
        row_store_any(element_at(t->c, t->c_type, i * t->c_stride), t->c_type,
                      row, t->columns);
    }
}

/* Copies slots [first, count) between the stack and where they wait. */
static void slots_move(const struct matmul_tile *t, float (*stack)[TILE],
                       int first, int count, bool load)
{
    for (int s = first; s < count; s++) {
        bool in_c = s == 0 && !t->keep_first;
        float *home = in_c ? t->c : t->slots + s * t->slot_size;
        int64_t stride = in_c ? t->c_stride : t->slot_stride;
        int columns = in_c ? t->columns : TILE_COLUMNS;

        if (load) {
            if (columns < TILE_COLUMNS) memset(stack[s], 0, sizeof stack[s]);
            tile_copy(stack[s], TILE_COLUMNS, home, stride, t->rows, columns);
        } else {
            tile_copy(home, stride, stack[s], TILE_COLUMNS, t->rows, columns);
        }
    }
}

void CPU(matmul_tile_run)(const struct matmul_tile *t)
{
    float stack[SLOTS][TILE] __attribute__((aligned(64)));
    const struct matmul_chunk *chunk = t->chunk;
    const int64_t panel_rows = t->format->rows;
    bool direct = !t->keep_first && t->columns == TILE_COLUMNS;
    float *first = direct ? t->c : stack[0];
    int64_t first_stride = direct ? t->c_stride : TILE_COLUMNS;

    slots_move(t, stack, direct ? 1 : 0, chunk->slots_before, true);
    for (int i = 0; i < chunk->count; i++) {
        const struct matmul_step *step = &chunk->steps[i];
        int top = step->slot;

        t->format->granule(&(struct matmul_granule){
            .a = t->a + step->offset * panel_rows,
            .b = t->b + (int64_t)step->offset * TILE_COLUMNS,
            .words = step->words, .rows = t->rows,
            .to = top ? stack[top] : first,
            .stride = top ? TILE_COLUMNS : first_stride,
            .assign = step->assign});
        for (int merge = 0; merge < step->merges; merge++, top--)
            tile_add(top > 1 ? stack[top - 1] : first,
                     top > 1 ? TILE_COLUMNS : first_stride, stack[top],
                     t->rows);
    }
    if (chunk->last)
        tile_finish(t, first, first_stride);
    else
        slots_move(t, stack, direct ? 1 : 0, chunk->slots_after, false);
}
