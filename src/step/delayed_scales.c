/* SPDX-License-Identifier: Apache-2.0 */
/* delayed_scales.c - scales of operands from the steps before.
 *
 *     "largest": ["3f80...", ...]    a row for each step, oldest first: four
 *                                    hexadecimal digits of each value
 */
#include "step/delayed_scales.h"

#include <string.h>

#include "nn/operand_peaks.h"
#include "tensor/tensor.h"

enum { DIGITS = 4, INFINITE = 0x7F80 };

status delayed_build(struct delayed *d, struct pipeline *pipeline)
{
    void *memory = NULL;

    *d = (struct delayed){
        .pipeline = pipeline, .values = pipeline_late_values(pipeline),
        .window = pipeline->stages[0].program.precision.history};
    if (d->values == 0) return OK;
    CHECK(d->window > 0);
    TRY(memory_take((size_t)d->values, sizeof *d->table, &memory));
    d->table = memory;
    TRY(memory_take((size_t)d->values * (size_t)d->window,
                    sizeof *d->history, &memory));
    d->history = memory;
    return OK;
}

void delayed_free(struct delayed *d)
{
    memory_free(d->table);
    memory_free(d->history);
    *d = (struct delayed){0};
}

static size_t row_bytes(const struct delayed *d)
{
    return (size_t)d->values * sizeof *d->history;
}

static uint16_t *row_of(const struct delayed *d, int row)
{
    return d->history + (int64_t)row * d->values;
}

void delayed_take(struct delayed *d, const struct delayed *from)
{
    CHECK(d->values == from->values && d->window == from->window);
    if (d->values == 0) return;
    d->rows = from->rows;
    memcpy(d->history, from->history, row_bytes(d) * (size_t)d->rows);
    delayed_begin(d);
}

void delayed_begin(struct delayed *d)
{
    for (int64_t i = 0; i < d->values; i++) {
        uint16_t most = 0; /* bits of numbers ascend as the numbers do */

        for (int row = 0; row < d->rows; row++)
            if (row_of(d, row)[i] > most) most = row_of(d, row)[i];
        d->table[i] = (double)bf16_to_f32(most);
    }
    for (int i = 0; i < d->pipeline->count && d->values > 0; i++)
        operand_peaks_set(&d->pipeline->stages[i].run, d->table);
}

status delayed_share(struct delayed *d, struct team *team)
{
    if (d->values == 0) return OK;
    TRY(pipeline_finish(d->pipeline));
    for (int64_t i = 0; i < d->values; i++) d->table[i] = 0;
    for (int i = 0; i < d->pipeline->count; i++)
        operand_peaks_collect(&d->pipeline->stages[i].run, d->table);
    return team_largest(team, d->table, d->values);
}

/* The next bfloat16 that is not smaller; the largest finite one at most. */
static uint16_t rounded_up(double most)
{
    const uint16_t near = bf16_from_f32((float)most);
    const bool below = (double)bf16_to_f32(near) < most;

    return near < INFINITE - 1 ? (uint16_t)(near + below) : INFINITE - 1;
}

void delayed_keep(struct delayed *d)
{
    if (d->values == 0 || d->pipeline->stages[0].run.now.high) return;
    if (d->rows == d->window)
        memmove(d->history, row_of(d, 1),
                row_bytes(d) * (size_t)(d->window - 1));
    else
        d->rows++;
    for (int64_t i = 0; i < d->values; i++)
        row_of(d, d->rows - 1)[i] = rounded_up(d->table[i]);
    delayed_begin(d);
}

/* ---- checkpoints ---- */

status delayed_write(const struct delayed *d, struct json_writer *w)
{
    static const char digits[] = "0123456789abcdef";
    const size_t length = DIGITS * (size_t)d->values;
    void *memory = NULL;
    char *text;

    if (d->values == 0) return OK;
    TRY(memory_take(length + 1, 1, &memory));
    text = memory;
    json_write_key(w, "largest");
    json_write_array(w);
    for (int row = 0; row < d->rows; row++) {
        for (size_t i = 0; i < length; i++)
            text[i] = digits[row_of(d, row)[i / DIGITS] >>
                                 4 * (DIGITS - 1 - i % DIGITS) & 15];
        text[length] = 0;
        json_write_string(w, text);
    }
    json_write_array_end(w);
    memory_free(memory);
    return OK;
}

/* The value of four digits; INFINITE: they are none. */
static uint32_t value_of(const char *text)
{
    uint32_t value = 0;

    for (int i = 0; i < DIGITS; i++) {
        const char c = text[i];

        if (c >= '0' && c <= '9') value = value * 16 + (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value * 16 + (uint32_t)(c - 'a' + 10);
        else return INFINITE;
    }
    return value < INFINITE ? value : INFINITE;
}

static status read_row(struct delayed *d, const struct json *row, int index,
                       const char *source)
{
    const size_t length = DIGITS * (size_t)d->values;

    if (row->kind != JSON_STRING || strlen(row->string) != length)
        FAIL(ERR_FORMAT, "%s: largest, row %d is not a text of %zu digits, %d "
                         "for each operand", source, index, length, DIGITS);
    for (int64_t i = 0; i < d->values; i++) {
        const uint32_t value = value_of(row->string + DIGITS * i);

        if (value == INFINITE)
            FAIL(ERR_FORMAT, "%s: largest, row %d, value %lld: \"%.4s\" is not "
                             "the bits of a finite magnitude in four lower-"
                             "case hexadecimal digits", source, index,
                 (long long)i, row->string + DIGITS * i);
        row_of(d, index)[i] = (uint16_t)value;
    }
    return OK;
}

status delayed_read(struct delayed *d, const struct json *state,
                    const char *source)
{
    const struct json *rows = json_get(state, "largest");

    d->rows = 0;
    if (d->values == 0) return OK;
    if (rows == NULL || rows->kind != JSON_ARRAY || rows->count > d->window)
        FAIL(ERR_FORMAT, "%s: \"largest\" should be up to %d rows of largest "
                         "magnitudes, which late scales need", source,
             d->window);
    for (int i = 0; i < rows->count; i++)
        TRY(read_row(d, &rows->items[i], i, source));
    d->rows = rows->count;
    delayed_begin(d);
    return OK;
}
