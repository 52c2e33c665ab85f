/* SPDX-License-Identifier: Apache-2.0 */
/* merge.c - low-rank adapters into the matrices beside which they stand. */
#include "inference/merge.h"

#include <string.h>

/* One adapter of one piece of a matrix. */
struct merging {
    struct tensor w, a, b; /* [out, in], [rank, in], [out, rank] */
    double scale;
    double *row;           /* [in] */
};

static void merge_rows(const struct merging *m)
{
    const int64_t rows = m->w.shape[0], cols = m->w.shape[1];
    const int64_t rank = m->a.shape[0];

    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++) m->row[j] = 0;
        for (int64_t k = 0; k < rank; k++) {
            const double factor = tensor_get(&m->b, i * rank + k);

            for (int64_t j = 0; j < cols; j++)
                m->row[j] += factor * tensor_get(&m->a, k * cols + j);
        }
        for (int64_t j = 0; j < cols; j++)
            tensor_set(&m->w, i * cols + j,
                       tensor_get(&m->w, i * cols + j) +
                           m->scale * m->row[j]);
    }
}

static const struct param *find(const struct param_table *table,
                                const char *wanted)
{
    for (int i = 0; i < table->count; i++)
        if (strcmp(table->items[i].name, wanted) == 0)
            return &table->items[i];
    return NULL;
}

/* A and W beside a B: names that end otherwise. A second adapter of a matrix
 * has its number before the ending. */
static void find_beside(const struct param_table *table, const char *name,
                        const struct param **a, const struct param **w)
{
    const size_t length = strlen(name) - strlen(".lora_b");
    char wanted[PARAM_NAME_BYTES + 8], *dot;

    snprintf(wanted, sizeof wanted, "%.*s.lora_a", (int)length, name);
    *a = find(table, wanted);
    wanted[length] = 0;
    *w = find(table, wanted);
    if (*w != NULL) return;
    dot = strrchr(wanted, '.');
    CHECK(dot != NULL);
    *dot = 0;
    *w = find(table, wanted);
}

/* Rows of W that a piece of B has: those of the same module outside. */
static struct layout_span rows_of(const struct param_spec *w,
                                  const struct param_spec *b, int piece)
{
    struct layout_span span = {0, w->rows};
    const char *name, *end;

    if (b->piece_count == 0 || b->pieces[0].outside_name == NULL) return span;
    name = b->pieces[piece].outside_name;
    end = strstr(name, ".lora_B");
    for (int i = 0; i < w->piece_count; i++) {
        span.count = w->pieces[i].rows;
        if (strncmp(w->pieces[i].outside_name, name,
                    (size_t)(end - name) + 1) == 0)
            return span;
        span.first += span.count;
    }
    CHECK(false); /* built together */
    return span;
}

static void merge_one(const struct stage *stage, const struct param *param,
                      double *row)
{
    const struct param_table *table = &stage->program.params;
    const struct param *a, *w;
    const enum dtype dtype = stage_keeps_dtype(stage);
    void *arena = stage->memory[stage_keeps(stage)].data;
    const struct tensor b = param_tensor(param, arena, dtype);
    const int64_t rank = param->spec.cols;
    int64_t first = 0;

    find_beside(table, param->name, &a, &w);
    CHECK(w != NULL && a != NULL);
    for (int i = 0; i < a->spec.rows / rank; i++) {
        const struct layout_span rows = rows_of(&w->spec, &param->spec, i);
        const struct merging merging = {
            .w = tensor_rows(param_tensor(w, arena, dtype), rows.first,
                             rows.count),
            .a = tensor_rows(param_tensor(a, arena, dtype), i * rank, rank),
            .b = tensor_rows(b, first, rows.count),
            .scale = param->spec.adapter_scale, .row = row};

        merge_rows(&merging);
        first += rows.count;
    }
    memset(b.data, 0, (size_t)(param->elements * dtype_bytes(dtype)));
}

status adapters_merge(struct stage *stage)
{
    const struct param_table *table = &stage->program.params;
    int64_t most = 0;
    void *row = NULL;

    for (int i = 0; i < table->count; i++)
        if (table->items[i].cols > most) most = table->items[i].cols;
    TRY(memory_take((size_t)most + 1, sizeof(double), &row));
    for (int i = 0; i < table->count; i++)
        if (table->items[i].spec.expands)
            merge_one(stage, &table->items[i], row);
    memory_free(row);
    return OK;
}
