/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_token_foreign.c - can a token file of another project hurt us? The first
 * byte of the input chooses the layout, the next two say how many bytes are the
 * second file's; then come that file and the first. A nanoset may have a third,
 * the end of the first. */
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "data/token_foreign.h"
#include "tests/fuzz/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads everything that a loader may read, whether verified or not. */
static void read_all(struct token_file *file)
{
    int64_t sum = 0;

    for (int64_t i = 0; i <= file->documents; i++) {
        const int64_t start = token_file_start(file, i);

        CHECK(start >= 0 && start <= file->count);
    }
    for (int64_t i = 0; i < file->count; i++) sum += token_file_at(file, i);
    CHECK(sum >= -file->count);
}

/* From the disk, with what it says of itself. */
static void open_nanoset(const uint8_t *data, size_t size, size_t cut)
{
    enum { METADATA_MOST = 48 };
    const size_t said = (size - cut) % METADATA_MOST;
    struct token_file file = {0};
    char path[PATH_BYTES];

    scratch_make();
    scratch_put("a.ds.index", data, cut);
    scratch_put("a.ds", data + cut, size - cut - said);
    scratch_put("a.ds.metadata", data + size - said, said);
    CHECK(path_join(path, PATH_BYTES, scratch, "a.ds") == OK);
    if (token_file_open(&file, path) == OK) read_all(&file);
    token_file_close(&file);
    status_clear();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const paths[] = {"a.u16", "a.idx", "a.bin", "a.ds",
                                        "a.npy", "a.u32"};
    struct token_file file = {0};
    unsigned char *image, *table;
    size_t cut;

    if (size < 3) return 0;
    file.layout = data[0] % 6 == 0 ? TOKENS_RAW
                                   : (enum token_layout)(data[0] % 6);
    file.path = paths[data[0] % 6];
    cut = (size_t)data[1] | (size_t)data[2] << 8;
    data += 3;
    size -= 3;
    if (cut > size) cut = size;
    if (strcmp(file.path, "a.ds") == 0) open_nanoset(data, size, cut);
    table = malloc(cut + 1); /* of their own, so that overruns show */
    image = malloc(size - cut + 1);
    if (table == NULL || image == NULL) abort();
    if (cut > 0) memcpy(table, data, cut);
    if (size > cut) memcpy(image, data + cut, size - cut);
    file.table.bytes = table;
    file.table.length = cut;
    file.image = image;
    file.length = size - cut;
    if (token_foreign_parse(&file) == OK) {
        read_all(&file);
        if (token_foreign_verify(&file) == OK &&
            token_file_split(&file, 9, NULL) == OK)
            read_all(&file);
    }
    memory_free(file.found_image);
    status_clear();
    free(image);
    free(table);
    CHECK(arena_bytes_out() == 0);
    return 0;
}
