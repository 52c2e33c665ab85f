/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_tile.c - the inner loop of the product.
 *
 * A granule is TILE_ROWS x TILE_COLUMNS chains in registers; there is one copy
 * of the code for every row count, so that a short panel costs no more than its
 * rows. Slots of the stack are tiles in the first-level cache; slot 0 is c
 * itself where that is allowed. */
#include "kernels/cpu/matmul.h"

/* to = chains over `length` elements, or to += them. */
INLINE void granule(const int rows, int length, const float *restrict a,
                    const float *restrict b, float *restrict to,
                    int64_t stride, bool assign)
{
    vector sum[TILE_ROWS][TILE_VECTORS];

    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int v = 0; v < TILE_VECTORS; v++)
            sum[i][v] = vector_fill(0);
        __builtin_prefetch(to + i * stride, 1);
        __builtin_prefetch(to + i * stride + TILE_COLUMNS - 1, 1);
    }
    for (int e = 0; e < length; e++) {
        vector row[TILE_VECTORS];

        UNROLL for (int v = 0; v < TILE_VECTORS; v++)
            row[v] = vector_load(b + v * WIDTH);
        UNROLL for (int i = 0; i < rows; i++) {
            vector x = vector_fill(a[i]);

            UNROLL for (int v = 0; v < TILE_VECTORS; v++)
                sum[i][v] = vector_fma(x, row[v], sum[i][v]);
        }
        a += TILE_ROWS;
        b += TILE_COLUMNS;
    }
    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int v = 0; v < TILE_VECTORS; v++) {
            float *at = to + i * stride + v * WIDTH;

            vector_store(at, assign ? sum[i][v] : vector_load(at) + sum[i][v]);
        }
    }
}

typedef void granule_of_rows(int length, const float *a, const float *b,
                             float *to, int64_t stride, bool assign);

#define ROWS(n)                                                            \
    __attribute__((noinline)) static void granule_##n(                     \
        int length, const float *a, const float *b, float *to,             \
        int64_t stride, bool assign)                                       \
    {                                                                      \
        granule(n, length, a, b, to, stride, assign);                      \
    }
ROWS(1)
ROWS(2)
ROWS(3)
ROWS(4)
ROWS(5)
ROWS(6)
#if defined(__AVX512F__)
ROWS(7)
ROWS(8)
ROWS(9)
ROWS(10)
ROWS(11)
ROWS(12)
ROWS(13)
ROWS(14)
#endif

static granule_of_rows *const granules[TILE_ROWS + 1] = {
    NULL,      granule_1,  granule_2,  granule_3,  granule_4, granule_5,
    granule_6,
#if defined(__AVX512F__)
    granule_7, granule_8,  granule_9,  granule_10, granule_11, granule_12,
    granule_13, granule_14
#endif
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

/* c = left + (sum + bias), each where present; sum == c allowed. */
static void tile_finish(const struct matmul_tile *t, const float *sum,
                        int64_t stride)
{
    if (!t->bias && !t->left) {
        if (sum != t->c)
            tile_copy(t->c, t->c_stride, sum, stride, t->rows, t->columns);
        return;
    }
    for (int i = 0; i < t->rows; i++) {
        const float *left = t->left ? t->left + i * t->left_stride : NULL;
        float *c = t->c + i * t->c_stride;

        for (int j = 0; j < t->columns; j++) {
            float result = sum[i * stride + j];

            if (t->bias) result = result + t->bias[j];
            if (left) result = left[j] + result;
            c[j] = result;
        }
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
    bool direct = !t->keep_first && t->columns == TILE_COLUMNS;
    float *first = direct ? t->c : stack[0];
    int64_t first_stride = direct ? t->c_stride : TILE_COLUMNS;

    slots_move(t, stack, direct ? 1 : 0, chunk->slots_before, true);
    for (int i = 0; i < chunk->count; i++) {
        const struct matmul_step *step = &chunk->steps[i];
        int top = step->slot;

        granules[t->rows](step->length,
                          t->a + (int64_t)step->offset * TILE_ROWS,
                          t->b + (int64_t)step->offset * TILE_COLUMNS,
                          top ? stack[top] : first,
                          top ? TILE_COLUMNS : first_stride, step->assign);
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
