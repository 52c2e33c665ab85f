/* SPDX-License-Identifier: Apache-2.0 */
/* tied_rows.c - the rows of a table that the tokens of a step name. */
#include "nn/tied_rows.h"

status tied_rows_build(struct tied_rows *named, int64_t table, int64_t most)
{
    void *places = NULL, *rows = NULL;

    *named = (struct tied_rows){.table = table, .most = most};
    TRY(memory_take((size_t)table, sizeof *named->places, &places));
    named->places = places;
    TRY(memory_take((size_t)most, sizeof *named->rows, &rows));
    named->rows = rows;
    for (int64_t i = 0; i < table; i++) named->places[i] = -1;
    return OK;
}

void tied_rows_free(struct tied_rows *named)
{
    memory_free(named->places);
    memory_free(named->rows);
    *named = (struct tied_rows){0};
}

void tied_rows_reset(struct tied_rows *named)
{
    for (int64_t i = 0; i < named->count; i++)
        named->places[named->rows[i]] = -1;
    named->count = 0;
}

void tied_rows_find(struct tied_rows *named, const int32_t *index,
                     int64_t count, int32_t *out)
{
    for (int64_t i = 0; i < count; i++) {
        const int32_t row = index[i];

        CHECK(row >= 0 && row < named->table);
        if (named->places[row] < 0) {
            CHECK(named->count < named->most);
            named->rows[named->count] = row;
            named->places[row] = (int32_t)named->count++;
        }
        out[i] = named->places[row];
    }
}
