/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - the memory table of a rank, printed. */
#include "plan/stage.h"

status memory_print(const struct memory_row *rows, struct text *out)
{
    char bytes[32];
    size_t sum = 0;

    for (int i = 0; i < MEMORY_OWNERS; i++) {
        sum += rows[i].bytes;
        if (rows[i].bytes > 0)
            TRY(text_printf(out, "%-32s %-12s %11s %15zu bytes\n",
                            rows[i].name, rows[i].life,
                            text_bytes(bytes, rows[i].bytes), rows[i].bytes));
    }
    return text_printf(out, "%-32s %-12s %11s %15zu bytes\n", "total", "",
                       text_bytes(bytes, sum), sum);
}

void memory_write(const struct memory_row *rows, struct json_writer *out)
{
    json_write_array(out);
    for (int i = 0; i < MEMORY_OWNERS; i++) {
        if (rows[i].bytes == 0) continue;
        json_write_object(out);
        json_write_key(out, "name");
        json_write_string(out, rows[i].name);
        json_write_key(out, "life");
        json_write_string(out, rows[i].life);
        json_write_key(out, "bytes");
        json_write_integer(out, (int64_t)rows[i].bytes);
        json_write_object_end(out);
    }
    json_write_array_end(out);
}
