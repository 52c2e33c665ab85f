/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c - whether two models are the same, and if not, where first. */
#include "checkpoint/compare.h"
#include <stdio.h>
#include <string.h>
#include "base/arena.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/convert.h"
#include "checkpoint/weights.h"

/* Elements at once: a checkpoint's block of float32, so that each is read and
 * verified once. */
static const int64_t AT_ONCE = CHECKPOINT_BLOCK_BYTES / 4;

/* One side, whichever it is. */
struct side {
    bool is_checkpoint;
    struct checkpoint checkpoint;
    struct weights weights;
    int count;
    void *buffer; /* owned, AT_ONCE float64 */
};

struct side_tensor {
    const char *name, *kind;
    enum dtype dtype;
    int dimensions;
    const int64_t *shape;
    int64_t elements;
};

static status side_open(struct side *side, const char *directory)
{
    char path[PATH_BYTES];

    TRY(path_join(path, sizeof path, directory, "manifest.json"));
    side->is_checkpoint = file_exists(path);
    TRY(memory_take((size_t)AT_ONCE, sizeof(double), &side->buffer));
    if (side->is_checkpoint) {
        TRY(checkpoint_open(&side->checkpoint, directory, NULL));
        side->count = side->checkpoint.manifest.tensor_count;
        return OK;
    }
    TRY(weights_open(&side->weights, directory));
    side->count = side->weights.count;
    return OK;
}

static void side_close(struct side *side)
{
    checkpoint_close(&side->checkpoint);
    weights_close(&side->weights);
    memory_free(side->buffer);
    memset(side, 0, sizeof *side);
}

static struct side_tensor side_tensor(const struct side *side, int index)
{
    if (side->is_checkpoint) {
        const struct manifest_tensor *tensor =
            &side->checkpoint.manifest.tensors[index];

        return (struct side_tensor){tensor->name, tensor->kind, tensor->dtype,
                                    tensor->dimensions, tensor->shape,
                                    tensor->elements};
    }
    const struct safetensors_entry *entry =
        side->weights.entries[index].tensor;
    return (struct side_tensor){entry->name, "weight", entry->dtype,
                                entry->dimensions, entry->shape,
                                entry->elements};
}

static status side_read(struct side *side, int index, int64_t first,
                        int64_t count, enum dtype dtype)
{
    if (side->is_checkpoint)
        return checkpoint_read_range(
            &side->checkpoint, &side->checkpoint.manifest.tensors[index],
            first, count, dtype, side->buffer);
    return weights_read(&side->weights, index, first, count, dtype,
                        side->buffer);
}

/* Maps the bits of a float to an integer, so that the difference of two is the
 * number of floats between them; -0 lies next to 0. */
static int64_t ulp_key(uint64_t bits, int width)
{
    const uint64_t sign = (uint64_t)1 << (width - 1);

    return bits & sign ? -(int64_t)(bits ^ sign) - 1 : (int64_t)bits;
}

static uint64_t ulp_distance(enum dtype dtype, const void *a, const void *b,
                             int64_t index)
{
    const int bytes = dtype_bytes(dtype);
    uint64_t left = 0, right = 0;
    int64_t from, to;

    memcpy(&left, (const char *)a + index * bytes, (size_t)bytes);
    memcpy(&right, (const char *)b + index * bytes, (size_t)bytes);
    from = ulp_key(left, 8 * bytes);
    to = ulp_key(right, 8 * bytes);
    return from < to ? (uint64_t)to - (uint64_t)from
                     : (uint64_t)from - (uint64_t)to;
}

static bool has_ulps(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F64 || dtype == DTYPE_BF16 ||
           dtype == DTYPE_F16;
}

/* Adds what some elements of a tensor have to say. */
static void add_elements(struct compare_report *report, const struct tensor *a,
                         const struct tensor *b, int64_t offset)
{
    struct tensor_difference found;

    tensor_compare(a, b, &found);
    if (found.max_scale > report->max_scale)
        report->max_scale = found.max_scale;
    if (found.count == 0) return;
    if (report->count == 0) {
        report->first = offset + found.first;
        report->value_a = tensor_get(a, found.first);
        report->value_b = tensor_get(b, found.first);
    }
    report->count += found.count;
    if (!(found.max_abs <= report->max_abs)) report->max_abs = found.max_abs;
    for (int64_t i = found.first;
         has_ulps(a->dtype) && report->dtype_a == report->dtype_b &&
         i < a->shape[0]; i++) {
        const uint64_t ulp = ulp_distance(a->dtype, a->data, b->data, i);

        if (ulp > report->max_ulp) report->max_ulp = ulp;
    }
}

/* The numbers of one pair of tensors of equal shape, into a fresh report. */
static status compare_elements(struct side *a, int index_a, struct side *b,
                               int index_b, struct compare_report *report)
{
    const struct side_tensor left = side_tensor(a, index_a);
    const struct side_tensor right = side_tensor(b, index_b);
    const enum dtype dtype =
        left.dtype == right.dtype ? left.dtype : DTYPE_F64;

    if (dtype == DTYPE_COUNT)
        FAIL(ERR_FORMAT, "%s: has a type that cannot be compared", left.name);
    for (int64_t at = 0; at < left.elements; at += AT_ONCE) {
        const int64_t rest = left.elements - at;
        const int64_t n = rest < AT_ONCE ? rest : AT_ONCE;
        const struct tensor part_a = tensor_1d(a->buffer, dtype, n);
        const struct tensor part_b = tensor_1d(b->buffer, dtype, n);

        TRY(side_read(a, index_a, at, n, dtype));
        TRY(side_read(b, index_b, at, n, dtype));
        add_elements(report, &part_a, &part_b, at);
    }
    return OK;
}

static bool shapes_equal(const struct side_tensor *a,
                         const struct side_tensor *b)
{
    if (a->dimensions != b->dimensions) return false;
    for (int i = 0; i < a->dimensions; i++)
        if (a->shape[i] != b->shape[i]) return false;
    return true;
}

static status compare_pair(struct side *a, int index_a, struct side *b,
                           int index_b, struct compare_report *report,
                           const struct compare_visit *visit)
{
    const struct side_tensor left = side_tensor(a, index_a);
    const struct side_tensor right = side_tensor(b, index_b);
    struct compare_report one = {.elements = left.elements,
                                 .dtype_a = left.dtype,
                                 .dtype_b = right.dtype, .first = -1};

    report->tensors++;
    one.shapes_differ = !shapes_equal(&left, &right);
    if (!one.shapes_differ)
        TRY(compare_elements(a, index_a, b, index_b, &one));
    if (!one.shapes_differ && one.count == 0) return OK;
    report->equal = false;
    tensor_file_name(one.name, left.name, left.kind);
    shape_text(one.shape_a, left.dimensions, left.shape);
    shape_text(one.shape_b, right.dimensions, right.shape);
    if (visit != NULL) TRY(visit->tensor(visit->argument, &one));
    if (report->differing++ > 0) return OK;
    one.tensors = report->tensors;
    one.differing = report->differing;
    one.only_a = report->only_a;
    one.only_b = report->only_b;
    memcpy(one.first_only, report->first_only, sizeof one.first_only);
    *report = one;
    return OK;
}

static int order_of(const struct side_tensor *a, const struct side_tensor *b)
{
    const bool a_weight = strcmp(a->kind, "weight") == 0;
    const bool b_weight = strcmp(b->kind, "weight") == 0;
    const int order = strcmp(a->kind, b->kind);

    if (a_weight != b_weight) return a_weight ? -1 : 1;
    return order ? order : strcmp(a->name, b->name);
}

static void note_only(struct compare_report *report,
                      const struct side_tensor *tensor, int64_t *count)
{
    report->equal = false;
    if (report->first_only[0] == 0)
        tensor_file_name(report->first_only, tensor->name, tensor->kind);
    (*count)++;
}

/* Both sides are sorted in the same way: one walk. */
static status compare_sides(struct side *a, struct side *b,
                            struct compare_report *report,
                            const struct compare_visit *visit)
{
    const bool weights_only = !a->is_checkpoint || !b->is_checkpoint;
    int i = 0, j = 0;

    while (i < a->count || j < b->count) {
        struct side_tensor left = {0}, right = {0};
        int order = i == a->count ? 1 : -1;

        if (i < a->count) left = side_tensor(a, i);
        if (j < b->count) right = side_tensor(b, j);
        if (i < a->count && j < b->count) order = order_of(&left, &right);
        if (weights_only && strcmp((order <= 0 ? left : right).kind, "weight"))
            break; /* only other kinds are left */
        if (order == 0) TRY(compare_pair(a, i, b, j, report, visit));
        else if (order < 0) note_only(report, &left, &report->only_a);
        else note_only(report, &right, &report->only_b);
        i += order <= 0;
        j += order >= 0;
    }
    return OK;
}

status weights_compare(const char *a, const char *b,
                       struct compare_report *report,
                       const struct compare_visit *visit)
{
    struct side left = {0}, right = {0};
    status result;

    *report = (struct compare_report){.equal = true, .first = -1};
    TRY_GOTO(done, result, side_open(&left, a));
    TRY_GOTO(done, result, side_open(&right, b));
    TRY_GOTO(done, result, compare_sides(&left, &right, report, visit));
done:
    side_close(&left);
    side_close(&right);
    return result;
}

static status describe_first(const struct compare_report *report,
                             struct text *out)
{
    const double scale = report->max_scale > 0 ? report->max_scale : 1;

    if (report->shapes_differ)
        return text_printf(out, "%s has shape %s in the first and %s in the "
                           "second", report->name, report->shape_a,
                           report->shape_b);
    TRY(text_printf(out,
                    "%s is the first that differs: %lld of %lld elements, "
                    "first at %lld (%.9g and %.9g), by at most %.3g, %.3g of "
                    "its largest value",
                    report->name, (long long)report->count,
                    (long long)report->elements, (long long)report->first,
                    report->value_a, report->value_b, report->max_abs,
                    report->max_abs / scale));
    if (report->dtype_a != report->dtype_b)
        return text_printf(out, "; types %s and %s",
                           dtype_name(report->dtype_a),
                           dtype_name(report->dtype_b));
    if (report->max_ulp > 0)
        return text_printf(out, ", %llu units in the last place",
                           (unsigned long long)report->max_ulp);
    return OK;
}

status compare_describe(const struct compare_report *report,
                        struct text *out)
{
    if (report->equal)
        return text_printf(out, "equal: %lld tensors, every bit",
                           (long long)report->tensors);
    if (report->differing > 0) TRY(describe_first(report, out));
    if (report->differing > 1)
        TRY(text_printf(out, "; %lld of %lld tensors differ",
                        (long long)report->differing,
                        (long long)report->tensors));
    if (report->only_a + report->only_b > 0)
        TRY(text_printf(out,
                        "%s%lld tensors are only in the first, %lld only in "
                        "the second, such as %s", out->length ? "; " : "",
                        (long long)report->only_a, (long long)report->only_b,
                        report->first_only));
    return OK;
}
