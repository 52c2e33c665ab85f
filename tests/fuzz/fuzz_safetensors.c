/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_safetensors.c - can a weights file from a stranger hurt us? The input
 * is the image of a file; what is accepted must tile it exactly. */
#include <stdlib.h>
#include <string.h>
#include "checkpoint/safetensors.h"
#include "tests/fuzz/safetensors_shape.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look_at(const struct safetensors *file, int64_t data_bytes)
{
    int64_t end = file->data_first;

    for (int i = 0; i < file->count; i++) {
        const struct safetensors_entry *entry = &file->entries[i];

        CHECK(entry->first == end && entry->bytes >= 0);
        end += entry->bytes;
        CHECK(safetensors_find(file, entry->name) == entry);
        CHECK(entry->dimensions >= 0 &&
              entry->dimensions <= SAFETENSORS_DIMENSIONS_MAX);
        if (entry->dtype != DTYPE_COUNT)
            CHECK(entry->elements * dtype_bytes(entry->dtype) == entry->bytes);
    }
    CHECK(end == file->data_first + data_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors file = {0};
    uint64_t length = 0;
    int64_t data_bytes;

    if (size < 8) return 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | data[i];
    /* A length beyond the file is refused before the header is parsed. Here
     * the buffer need not exist, so 8 more bytes can claim any size. */
    if (length > size - 8) length = size - 8;
    data_bytes = (int64_t)(size - 8 - length);
    if (data_bytes == 8) memcpy(&data_bytes, data + 8 + length, 8);
    if (data_bytes < 0) return 0;
    if (safetensors_parse(&file, (const char *)data + 8, (size_t)length,
                          data_bytes, "fuzz") == OK)
        look_at(&file, data_bytes);
    status_clear();
    safetensors_close(&file);
    CHECK(arena_bytes_out() == 0);
    return 0;
}

/* ---- the mutator ---- */

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    safetensors_claims = true;
    return mutate_from(&safetensors_grammar, data, size, room, 0);
}
