/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_parquet.c - can a Parquet file hurt us? The input is the file; its
 * column of text and its column of ids are read. Checksums of pages are part
 * of the input, but most seeds have none. */
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "data/parquet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WORK_MAX = 1 << 20 };

/* Reads every byte and id; stops what would go on for ever. */
static status take(void *context, const struct parquet_row *row)
{
    int64_t *work = context;
    uint32_t sum = 0;

    for (size_t i = 0; i < row->length; i++)
        sum += (unsigned char)row->text[i];
    for (int64_t i = 0; i < row->count; i++) sum += (uint32_t)row->ids[i];
    *work += (int64_t)row->length + row->count + 1 + (sum == 0);
    return *work > WORK_MAX ? ERR_STOPPED : OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const columns[] = {"text", "ids", "few"};
    unsigned char *bytes = malloc(size + 1); /* alone: overruns show */

    if (bytes == NULL) abort();
    if (size > 0) memcpy(bytes, data, size);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        int64_t work = 0, at;

        (void)parquet_read(&(struct parquet_file){"fuzz", bytes, size},
                           columns[i], take, &work, &at);
        status_clear();
    }
    free(bytes);
    CHECK(arena_bytes_out() == 0);
    return 0;
}
