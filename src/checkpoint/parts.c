/* SPDX-License-Identifier: Apache-2.0 */
/* parts.c - the part of a whole tensor that this process holds, as runs. */
#include "checkpoint/parts.h"
#include <string.h>

status part_elements(const char *name, int dimensions, const int64_t *shape,
                     enum dtype dtype, int64_t *elements)
{
    int64_t product = 1, bytes;

    if (dimensions < 0 || dimensions > TENSOR_DIMENSIONS_MAX)
        FAIL(ERR_FORMAT, "%s: has %d dimensions, at most %d are possible",
             name, dimensions, TENSOR_DIMENSIONS_MAX);
    for (int i = 0; i < dimensions; i++) {
        if (shape[i] < 0)
            FAIL(ERR_FORMAT, "%s: dimension %d is %lld, expected 0 or more",
                 name, i, (long long)shape[i]);
        if (__builtin_mul_overflow(product, shape[i], &product))
            FAIL(ERR_FORMAT, "%s: its shape has more than 2^63 elements",
                 name);
    }
    if (__builtin_mul_overflow(product, (int64_t)dtype_bytes(dtype), &bytes) ||
        bytes > (int64_t)1 << 62)
        FAIL(ERR_FORMAT, "%s: its shape has more than 2^62 bytes", name);
    *elements = product;
    return OK;
}

static bool run_fits(const struct saved_run *run, int64_t elements)
{
    int64_t last;

    if (run->whole_first < 0 || run->length < 0 || run->repeats < 0 ||
        run->local_first < 0 || run->local_stride < 0 || run->local_step < 0)
        return false;
    if (run->length == 0 || run->repeats == 0) return true;
    if (run->repeats > 1 && run->whole_stride < run->length) return false;
    if (__builtin_mul_overflow(run->repeats - 1, run->whole_stride, &last) ||
        __builtin_add_overflow(last, run->whole_first, &last) ||
        __builtin_add_overflow(last, run->length, &last))
        return false;
    return last <= elements;
}

status part_check(const struct saved_part *part)
{
    int64_t elements;

    if (!part->name || !name_is_safe(part->name))
        FAIL(ERR_CONFIG, "tensor name %s: expected 1 to 511 printable "
             "characters without spaces, quotes and backslashes",
             part->name ? part->name : "(none)");
    if (!part->kind || !file_name_is_safe(part->kind))
        FAIL(ERR_CONFIG, "%s: its kind must be letters, digits, _ or -",
             part->name);
    if ((unsigned)part->dtype >= DTYPE_COUNT)
        FAIL(ERR_CONFIG, "%s: unknown element type %d", part->name,
             (int)part->dtype);
    TRY(part_elements(part->name, part->dimensions, part->shape, part->dtype,
                      &elements));
    for (int i = 0; i < part->run_count; i++)
        if (!run_fits(&part->runs[i], elements))
            FAIL(ERR_CONFIG, "%s: run %d leaves the tensor of %lld elements",
                 part->name, i, (long long)elements);
    return OK;
}

bool part_is_weight(const struct saved_part *part)
{
    return strcmp(part->kind, "weight") == 0;
}

int part_runs(const struct saved_part *part, struct saved_run *whole,
              const struct saved_run **runs)
{
    int64_t elements = 1;

    if (part->run_count > 0 || !part->data) {
        *runs = part->runs;
        return part->run_count;
    }
    for (int i = 0; i < part->dimensions; i++) elements *= part->shape[i];
    *whole = (struct saved_run){.length = elements, .repeats = 1};
    *runs = whole;
    return 1;
}

bool run_next(const struct saved_run *run, int64_t first, int64_t last,
              int64_t *row, struct saved_stretch *stretch)
{
    const int64_t step = run->local_step ? run->local_step : 1;
    const int64_t stride =
        run->local_stride ? run->local_stride : run->length * step;
    const int64_t skip = first - run->whole_first - run->length;

    if (run->length == 0) return false;
    /* The first row that ends beyond `first`, in one division: a block of a
     * finely cut tensor must not walk the rows before it. */
    if (skip >= 0 && run->repeats > 1 && *row <= skip / run->whole_stride)
        *row = skip / run->whole_stride + 1;
    if (skip >= 0 && run->repeats <= 1) return false;
    if (*row >= run->repeats) return false;

    const int64_t begin = run->whole_first + *row * run->whole_stride;
    const int64_t end = begin + run->length;
    const int64_t from = begin > first ? begin : first;
    const int64_t to = end < last ? end : last;

    if (from >= to) return false;
    stretch->whole = from;
    stretch->count = to - from;
    stretch->local = run->local_first + *row * stride + (from - begin) * step;
    stretch->step = step;
    *row += 1;
    return true;
}

bool name_is_safe(const char *name)
{
    size_t length = 0;

    for (; name[length]; length++) {
        const char c = name[length];

        if (length >= 511 || c <= ' ' || c > '~' || c == '"' || c == '\\' ||
            c == '\'')
            return false;
    }
    /* The one key of a safetensors header that is not a tensor. */
    return length > 0 && strcmp(name, "__metadata__") != 0;
}

bool file_name_is_safe(const char *name)
{
    size_t length = 0;

    for (; name[length]; length++) {
        const char c = name[length];
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');

        if (!letter && !(c >= '0' && c <= '9') && !strchr("._-", c))
            return false;
    }
    return length > 0 && length <= 255 && name[0] != '.';
}
