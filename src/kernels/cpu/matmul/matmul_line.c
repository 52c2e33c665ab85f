/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_line.c - one row times a weight in strips: what generation does.
 *
 * The sums of a few strips side by side stay in registers and the first cache,
 * the row is read as it is, and nothing is decided again from strip to strip.
 * Strips side by side are as many places that memory is read from at once: a
 * core guesses ahead within a page of each, so that more lines are under way.
 * Threads share out vectors of columns. */
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/scratch.h"
#include "kernels/element.h"

struct line {
    const struct matmul *p;
    const struct matmul_format *format;
    const char *a;              /* as the format's line reads it */
    int a_bytes;                /* of an element of it */
    struct matmul_slab slab;  /* all steps */
};

static void sums_add(float *to, const float *from, const int count)
{
    for (int j = 0; j < count; j += WIDTH)
        vector_store(to + j, vector_load(to + j) + vector_load(from + j));
}

enum { LINE_COLUMNS = LINE_STRIPS * TILE_COLUMNS };

/* Columns that are made together. */
struct group {
    const char *b, *next; /* at the first column of it, of the one after it */
    int64_t apart;        /* bytes from strip to strip */
    int strips, vectors;  /* vectors of each strip */
};

/* Sums of a group of columns, in stack[0]. */
static void line_sums(const struct line *line, const struct group *group,
                      float (*stack)[LINE_COLUMNS])
{
    const int64_t row = dtype_bytes(line->p->b.dtype) * TILE_COLUMNS;
    const int count = group->strips * group->vectors * WIDTH;

    for (int i = 0; i < line->slab.count; i++) {
        const struct matmul_step *step = &line->slab.steps[i];
        float granule[LINE_COLUMNS] __attribute__((aligned(64)));
        int top = step->slot;
        const struct matmul_line l = {
            .a = line->a + step->first * line->a_bytes,
            .b = group->b + step->first * row, .apart = group->apart,
            .next = i + 1 < line->slab.count ? group->b + step[1].first * row
                                              : group->next,
            .length = step->length, .strips = group->strips,
            .vectors = group->vectors,
            .to = step->assign ? stack[top] : granule};

        line->format->line(&l);
        if (!step->assign) sums_add(stack[top], granule, count);
        for (int merge = 0; merge < step->merges; merge++, top--)
            sums_add(stack[top - 1], stack[top], count);
    }
}

/* Where vector `first` of columns begins. */
static const char *vector_at(const struct matmul *p, int64_t first)
{
    const int64_t strip = first / TILE_VECTORS, inside = first % TILE_VECTORS;

    return (const char *)p->b.data +
           strip * TILE_COLUMNS * p->b.shape[0] * dtype_bytes(p->b.dtype) +
           inside * WIDTH * 4;
}

/* The group from vector `first` of columns on. */
static void line_columns(const struct line *line, int64_t first,
                         const struct group *group)
{
    const struct matmul *p = line->p;
    const int64_t column = first * WIDTH;
    float stack[SLOTS][LINE_COLUMNS] __attribute__((aligned(64)));
    struct matmul_tile tile = {
        .columns = group->strips * group->vectors * WIDTH,
        .c_type = p->c.dtype, .c = element_at(p->c.data, p->c.dtype, column)};

    if (p->bias) {
        tile.bias_type = p->bias->dtype;
        tile.bias = element_at(p->bias->data, p->bias->dtype, column);
    }
    if (p->left) {
        tile.left_type = p->left->dtype;
        tile.left = element_at(p->left->data, p->left->dtype, column);
    }
    line_sums(line, group, stack);
    CPU(matmul_row_finish)(&tile, 0, stack[0]);
}

/* Whole strips as many as there are kernels for, else what is left of one. */
static void line_body(void *argument, int index, int count)
{
    const struct line *line = argument;
    const struct matmul *p = line->p;
    const int64_t strips = p->c.shape[1] / TILE_COLUMNS;
    struct group group = {.apart = TILE_COLUMNS * p->b.shape[0] *
                                   dtype_bytes(p->b.dtype)};
    int64_t first, last;

    threads_split(strips * TILE_VECTORS, 1, index, count, &first, &last);
    while (first < last) {
        const int64_t left = last - first;
        const int64_t rest = TILE_VECTORS - first % TILE_VECTORS;

        group.strips = 1;
        while (rest == TILE_VECTORS && group.strips < LINE_STRIPS &&
               left >= 2 * group.strips * TILE_VECTORS)
            group.strips *= 2;
        group.vectors = (int)(rest < left ? rest : left);
        group.b = vector_at(p, first);
        group.next = vector_at(p, first + group.strips * group.vectors);
        line_columns(line, first, &group);
        first += group.strips * group.vectors;
    }
}

/* The row as floats, of each pair the odd element first. */
static void row_widen(float *out, const uint16_t *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = element_get(from, DTYPE_BF16, i ^ 1);
}

bool CPU(matmul_line)(struct stream *stream, const struct matmul *p,
                      const struct matmul_format *format)
{
    const int64_t k = p->a.shape[1];
    struct line line = {.p = p, .format = format, .a = p->a.data,
                        .a_bytes = dtype_bytes(p->a.dtype)};
    struct matmul_cursor cursor;

    if (!p->strips || p->c.shape[0] != 1 || format->line == NULL ||
        p->continues || p->a.stride[1] != 1)
        return false;
    CPU(matmul_cursor_init)(&cursor, format, INT32_MAX, p->order, false);
    if (!CPU(matmul_slab_next)(&cursor, &line.slab) || !line.slab.last)
        return false;
    if (format->widened) {
        if (k * (int64_t)sizeof(float) > (int64_t)stream->scratch_bytes)
            return false;
        row_widen(stream->scratch, p->a.data, k);
        line.a = stream->scratch;
        line.a_bytes = sizeof(float);
    }
    threads_run(stream->threads, line_body, &line);
    return true;
}
