/* SPDX-License-Identifier: Apache-2.0 */
/* param.c - the parameter table, a by-product of building the program. */
#include "mesh/param.h"

#include <stdio.h>
#include <string.h>

status param_add(struct param_table *table, const char *name, int layer,
                 const struct param_spec *spec, const int64_t held[2],
                 int *index)
{
    const int64_t limit = (int64_t)1 << 46;

    if (spec->rows < 1 || spec->cols < 1 || spec->rows > limit / spec->cols)
        FAIL(ERR_CONFIG, "%s: a matrix of %lld x %lld elements", name,
             (long long)spec->rows, (long long)spec->cols);
    if (table->count == table->capacity) {
        const int capacity = table->capacity ? 2 * table->capacity : 64;
        void *items = table->items;

        TRY(memory_grow(&items, (size_t)capacity, sizeof *table->items));
        table->items = items;
        table->capacity = capacity;
    }
    struct param *param = &table->items[table->count];

    *param = (struct param){.spec = *spec, .layer = layer,
                            .order = table->count,
                            .rows = held != NULL ? held[0] : spec->rows,
                            .cols = held != NULL ? held[1] : spec->cols};
    if (layer >= 0)
        snprintf(param->name, sizeof param->name, "layers.%d.%s", layer, name);
    else
        snprintf(param->name, sizeof param->name, "%s", name);
    param->spec.name = NULL; /* the table's name is the whole one */
    param->elements = param->rows * param->cols;
    param->offset = table->elements;
    table->parameters += param->elements;
    table->elements += param_room(param->elements);
    *index = table->count++;
    table->orders++;
    return OK;
}

void param_table_free(struct param_table *table)
{
    memory_free(table->items);
    *table = (struct param_table){0};
}

struct tensor param_tensor(const struct param *param, void *arena,
                           enum dtype dtype)
{
    char *data = (char *)arena + param->offset * dtype_bytes(dtype);

    if (param->spec.vector) return tensor_1d(data, dtype, param->elements);
    return tensor_2d(data, dtype, param->rows, param->cols);
}

/* "model.layers.%d." with the layer's number; "" outside the blocks. */
static void outside_prefix(char *out, size_t size, const char *layer_prefix,
                           int layer)
{
    out[0] = 0;
    if (layer < 0) return;
    const char *mark = strstr(layer_prefix, "%d");

    CHECK(mark != NULL);
    snprintf(out, size, "%.*s%d%s", (int)(mark - layer_prefix), layer_prefix,
             layer, mark + 2);
}

bool param_outside(const struct param *param, const char *layer_prefix,
                   int piece, struct param_outside *out)
{
    const struct param_spec *spec = &param->spec;
    const char *name = spec->outside_name;
    char prefix[PARAM_NAME_BYTES];

    *out = (struct param_outside){.rows = spec->rows, .cols = spec->cols,
                                  .vector = spec->vector,
                                  .transposed = spec->outside_transposed};
    if (spec->piece_count > 0 && spec->pieces[0].outside_name != NULL) {
        if (piece >= spec->piece_count) return false;
        for (int i = 0; i < piece; i++) out->first_row += spec->pieces[i].rows;
        name = spec->pieces[piece].outside_name;
        out->rows = spec->pieces[piece].rows;
        if (spec->vector) {
            out->cols = out->rows;
            out->rows = 1;
        }
    } else if (piece > 0) {
        return false;
    }
    outside_prefix(prefix, sizeof prefix, layer_prefix, param->layer);
    snprintf(out->name, sizeof out->name, "%s%s", prefix, name);
    return true;
}
