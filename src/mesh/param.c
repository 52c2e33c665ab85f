/* SPDX-License-Identifier: Apache-2.0 */
/* param.c - the parameter table, a by-product of building the program. */
#include "mesh/param.h"

#include <stdio.h>
#include <string.h>

#include "base/sizes.h"

/* Appends `length` bytes of `text` and a number (none: -1) as far as they fit.
 * A search builds models of 40,000 parameters again and again: printf took a
 * quarter of its time. */
static char *append(char *at, const char *end, const char *text,
                    size_t length, int number)
{
    char digits[12];
    int count = 0;

    for (; length > 0 && at < end; length--) *at++ = *text++;
    for (int left = number; number >= 0 && (left > 0 || count == 0);
         left /= 10)
        digits[count++] = (char)('0' + left % 10);
    while (count > 0 && at < end) *at++ = digits[--count];
    *at = 0;
    return at;
}

/* "model.layers.%d." with a number; "" with none, -1. */
static void numbered(char *out, size_t size, const char *name, int number)
{
    const char *const end = out + size - 1;

    out[0] = 0;
    if (number < 0) return;
    const char *mark = strstr(name, "%d");

    CHECK(mark != NULL);
    out = append(out, end, name, (size_t)(mark - name), number);
    append(out, end, mark + 2, strlen(mark + 2), -1);
}

/* "layers.3.attention.wo", "layers.3.experts.5.w2". */
static void name_param(struct param *param, const char *name)
{
    const char *const end = param->name + sizeof param->name - 1;
    char *at = param->name;

    if (param->layer >= 0) {
        at = append(at, end, "layers.", 7, param->layer);
        at = append(at, end, ".", 1, -1);
    }
    if (param->spec.expert <= 0) {
        append(at, end, name, strlen(name), -1);
        return;
    }
    numbered(at, (size_t)(end - at) + 1, name, param->spec.expert - 1);
    param->number_at = (int)(at - param->name) +
                       (int)(strstr(name, "%d") - name);
}

status param_table_beside(const struct param_table *table, int away,
                          struct param_table *out)
{
    void *memory = NULL;

    TRY(memory_take((size_t)table->count + 1, sizeof *table->items, &memory));
    *out = *table;
    out->items = memory;
    out->capacity = table->count + 1;
    for (int i = 0; i < table->count; i++) {
        const struct param *own = &table->items[i];
        struct param *param = &out->items[i];
        const int further = away * own->spec.spread;

        *param = *own;
        if (further == 0) continue;
        param->spec.expert += further;
        param->order += further;
        const char *rest = own->name + own->number_at;

        snprintf(param->name, sizeof param->name, "%.*s%d%s", own->number_at,
                 own->name, param->spec.expert - 1,
                 rest + strspn(rest, "0123456789"));
    }
    return OK;
}

/* Counts a parameter among those of the whole model. */
static status count_whole(struct param_table *table, const char *name,
                          int layer, const struct param_spec *spec)
{
    const int64_t limit = (int64_t)1 << 46;
    const int64_t room = PARAMETERS_MOST - table->whole;

    if (spec->rows < 1 || spec->cols < 1 || spec->rows > limit / spec->cols)
        FAIL(ERR_CONFIG, "%s: a matrix of %lld x %lld elements", name,
             (long long)spec->rows, (long long)spec->cols);
    if (spec->rows * spec->cols > room)
        FAIL(ERR_CONFIG, "%s of block %d: a model of more than 2^50 "
                         "parameters; set model.layers, model.width, "
                         "model.feed_forward or model.vocab lower", name,
             layer < 0 ? 0 : layer);
    table->whole += spec->rows * spec->cols;
    table->orders++;
    return OK;
}

status param_skip(struct param_table *table, const struct param_spec *spec)
{
    return count_whole(table, spec->name, -1, spec);
}

status param_add(struct param_table *table, const char *name, int layer,
                 const struct param_spec *spec, const int64_t held[2],
                 int *index)
{
    TRY(count_whole(table, name, layer, spec));
    void *items = table->items;

    TRY(memory_next(&items, &table->capacity, table->count, 64,
                    sizeof *table->items));
    table->items = items;
    struct param *param = &table->items[table->count];

    *param = (struct param){.spec = *spec, .layer = layer,
                            .frozen = spec->fixed,
                            .order = table->orders - 1,
                            .rows = held != NULL ? held[0] : spec->rows,
                            .cols = held != NULL ? held[1] : spec->cols};
    name_param(param, name);
    if (spec->split_rows == AXIS_EXPERT || spec->split_cols == AXIS_EXPERT) {
        CHECK(spec->leaves > 0); /* the norm is of experts, not of ranks */
        if (spec->leaves > table->experts) table->experts = spec->leaves;
    }
    param->spec.name = NULL; /* the table's name is the whole one */
    param->elements = param->rows * param->cols;
    param->offset = table->elements;
    table->parameters += param->elements;
    table->elements += param_room(param->elements);
    param->gradient = table->gradients;
    table->gradients += param_gradient_room(param);
    *index = table->count++;
    return OK;
}

void param_place_gradients(struct param_table *table)
{
    table->gradients = 0;
    for (int i = 0; i < table->count; i++) {
        table->items[i].gradient = table->gradients;
        table->gradients += param_gradient_room(&table->items[i]);
    }
}

void param_table_free(struct param_table *table)
{
    memory_free(table->items);
    *table = (struct param_table){0};
}

struct tensor param_tensor(const struct param *param, void *arena,
                           enum dtype dtype)
{
    return param_shaped(param,
                        (char *)arena + param->offset * dtype_bytes(dtype),
                        dtype);
}

struct tensor param_weight(const struct param *param, void *arena)
{
    return param_tensor(param, arena, param->dtype);
}

struct tensor param_shaped(const struct param *param, void *data,
                           enum dtype dtype)
{
    if (param->spec.vector) return tensor_1d(data, dtype, param->elements);
    return tensor_2d(data, dtype, param->rows, param->cols);
}

int param_tensors(const struct param_spec *spec)
{
    if (spec->outside_each > 0) return (int)(spec->cols / spec->outside_each);
    return spec->piece_count > 0 && spec->pieces[0].outside_name != NULL
               ? spec->piece_count : 1;
}

bool param_outside(const struct param *param, const char *layer_prefix,
                   int piece, struct param_outside *out)
{
    const struct param_spec *spec = &param->spec;
    const char *name = spec->outside_name;
    char prefix[PARAM_NAME_BYTES], own[PARAM_NAME_BYTES];

    if (piece >= param_tensors(spec)) return false;
    *out = (struct param_outside){.rows = spec->rows, .cols = spec->cols,
                                  .vector = spec->vector ||
                                            spec->outside_vector,
                                  .transposed = spec->outside_transposed};
    if (spec->outside_each > 0) {
        numbered(own, sizeof own, name, piece);
        name = own;
        out->first_row = piece * spec->outside_each;
        out->cols = spec->outside_each;
    } else if (spec->piece_count > 0 && spec->pieces[0].outside_name != NULL) {
        for (int i = 0; i < piece; i++) out->first_row += spec->pieces[i].rows;
        name = spec->pieces[piece].outside_name;
        out->rows = spec->pieces[piece].rows;
        if (spec->vector) { /* rows are elements */
            out->cols = out->rows;
            out->rows = 1;
        }
    }
    if (spec->expert > 0) {
        numbered(own, sizeof own, name, spec->expert - 1);
        name = own;
    }
    numbered(prefix, sizeof prefix, layer_prefix, param->layer);
    snprintf(out->name, sizeof out->name, "%s%s", prefix, name);
    return true;
}

bool param_is_permuted(const struct param_spec *spec)
{
    return spec->outside_by_head || spec->outside_pairs > 0;
}

/* The rows of row `row` of a piece whose heads have pairs. */
static struct param_rows rows_paired(const struct param_piece *piece,
                                     int64_t pairs, int64_t row)
{
    const int64_t head = row / piece->head * piece->head, at = row - head;
    const int64_t half = pairs / 2;

    if (at < half) return (struct param_rows){head + 2 * at, 2, half - at};
    if (at < pairs)
        return (struct param_rows){head + 2 * (at - half) + 1, 2,
                                   pairs - at};
    return (struct param_rows){row, 1, piece->head - at};
}

struct param_rows param_rows_outside(const struct param_spec *spec,
                                     int64_t row)
{
    const struct param_piece *last = spec->pieces + spec->piece_count - 1;
    int64_t before = 0, all = 0, first = 0; /* rows of a group; of pieces */
    const struct param_piece *piece = spec->pieces;

    CHECK(param_is_permuted(spec));
    while (row - first >= piece->rows) first += piece++->rows;
    if (!spec->outside_by_head) {
        struct param_rows rows = {row - first, 1, piece->rows - row + first};

        if (spec->outside_pairs > 0 && piece < last)
            rows = rows_paired(piece, spec->outside_pairs, row - first);
        rows.first += first;
        return rows;
    }
    const int64_t groups = last->rows / last->head;
    const int64_t each = piece->rows / groups, at = (row - first) % each;

    for (const struct param_piece *p = spec->pieces; p <= last; p++) {
        if (p < piece) before += p->rows / groups;
        all += p->rows / groups;
    }
    return (struct param_rows){(row - first) / each * all + before + at, 1,
                               each - at};
}
