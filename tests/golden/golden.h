/* SPDX-License-Identifier: Apache-2.0 */
/* golden.h - a stage with the weights and tokens of a golden directory, and
 * how far its results are from what the oracle wrote. For tests only. */
#ifndef LOCKSTEP_TESTS_GOLDEN_H
#define LOCKSTEP_TESTS_GOLDEN_H

#include "checkpoint/weights.h"
#include "plan/stage.h"
#include "tests/test.h"

/* The directory of golden files, from the root of the tree. */
#define GOLDEN "tests/golden"

/* Tensors of one file are found under the names of another by dropping this:
 * the first GPT-2 files have no such prefix. */
#define GOLDEN_PREFIX "transformer."

/* Elements of one piece of a parameter, between the flat arena of `dtype` and a
 * dense array of float64 in the outside order. */
static inline void golden_move(const struct param_outside *outside,
                               const struct param *param, char *flat,
                               char *dense, enum dtype dtype, bool into_flat)
{
    const struct tensor in_flat = tensor_1d(
        flat, dtype, param->offset + param->elements);
    const int64_t count = outside->rows * outside->cols;
    const struct tensor in_dense = tensor_1d(dense, DTYPE_F64, count);
    /* A piece of a vector counts in elements. */
    const int64_t first = param->offset
                          + outside->first_row
                                * (outside->vector ? 1 : outside->cols);

    for (int64_t i = 0; i < count; i++) {
        const int64_t cols = outside->vector ? 1 : outside->cols;
        int64_t row = i / cols, col = i % cols, out = i;

        if (param_is_permuted(&param->spec)) {
            row = param_rows_outside(&param->spec, outside->first_row + row)
                      .first - outside->first_row;
            out = row * cols + col;
        }
        if (outside->transposed) out = col * outside->rows + row;
        if (into_flat)
            tensor_set(&in_flat, first + i, tensor_get(&in_dense, out));
        else
            tensor_set(&in_dense, out, tensor_get(&in_flat, first + i));
    }
}

/* The entry of that name, with or without the prefix. */
static inline const struct safetensors_entry *
golden_find(const struct safetensors *file, const char *name)
{
    const struct safetensors_entry *entry = safetensors_find(file, name);

    if (!entry && strncmp(name, GOLDEN_PREFIX, strlen(GOLDEN_PREFIX)) == 0)
        entry = safetensors_find(file, name + strlen(GOLDEN_PREFIX));
    if (!entry) print_error("no tensor %s in %s\n", name, file->path);
    CHECK(entry);
    return entry;
}

/* Calls `each` for every outside tensor of the stage's parameters, with its
 * elements [count] read from the file as float64. */
typedef void golden_visitor(struct stage *stage, const struct param *param,
                            const struct param_outside *outside, char *dense,
                            void *argument);
static inline void golden_each(struct stage *stage, const char *path,
                               golden_visitor *each, void *argument)
{
    const struct param_table *table = &stage->program.params;
    const char *prefix = stage->request.model->kind->layer_prefix;
    struct safetensors file = {0};

    IS_OK(safetensors_open(&file, path, true));
    for (int i = 0; i < table->count; i++) {
        struct param_outside outside;

        for (int piece = 0;
             param_outside(&table->items[i], prefix, piece, &outside);
             piece++) {
            const struct safetensors_entry *entry =
                golden_find(&file, outside.name);
            void *dense = NULL;

            EQUAL_INT(entry->elements, outside.rows * outside.cols);
            IS_OK(memory_take((size_t)entry->elements, sizeof(double),
                              &dense));
            IS_OK(safetensors_read(&file, entry, 0, entry->elements,
                                   DTYPE_F64, dense));
            each(stage, &table->items[i], &outside, dense, argument);
            memory_free(dense);
        }
    }
    safetensors_close(&file);
}

static inline void golden_load(struct stage *stage, const struct param *param,
                               const struct param_outside *outside,
                               char *dense, void *argument)
{
    (void)argument;
    golden_move(outside, param, stage->memory[stage_keeps(stage)].data, dense,
                stage_keeps_dtype(stage), true);
}

/* The largest difference between a flat arena and a file: `within` times the
 * largest absolute value of the tensor. */
struct golden_limit {
    char *flat;
    bool gradients; /* flat is laid out as they are */
    double within;
    double worst; /* found: distance over the largest value */
};

static inline void golden_compare(struct stage *stage,
                                  const struct param *param,
                                  const struct param_outside *outside,
                                  char *dense, void *argument)
{
    struct golden_limit *limit = argument;
    const int64_t count = outside->rows * outside->cols;
    const enum dtype dtype = dtype_real(stage->request.dtype);
    double most = 0, apart = 0;
    struct param there = *param;
    void *ours = NULL;

    if (limit->gradients) there.offset = param->gradient;
    IS_OK(memory_take((size_t)count, sizeof(double), &ours));
    golden_move(outside, &there, limit->flat, ours, dtype, false);
    const struct tensor mine = tensor_1d(ours, DTYPE_F64, count);
    for (int64_t i = 0; i < count; i++) {
        const double expected = ((const double *)(const void *)dense)[i];
        const double gap = tensor_get(&mine, i) - expected;

        if (expected > most || -expected > most)
            most = expected < 0 ? -expected : expected;
        if (!(gap <= apart && -gap <= apart)) apart = gap < 0 ? -gap : gap;
    }
    memory_free(ours);
    if (!(apart <= limit->within * most)) {
        print_error("%s is off by %g of its largest value %g\n",
                    outside->name, apart / most, most);
        test_failed(__FILE__, __LINE__, "within the tolerance");
    }
    if (apart / most > limit->worst) limit->worst = apart / most;
}

#endif
