/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_manifest.c - can a manifest from a stranger hurt us? The input is its
 * text, whose own checksum is not looked at, or the fuzzer would see nothing
 * else. What is accepted must be written and read again alike. */
#include <stdlib.h>
#include <string.h>
#include "checkpoint/manifest.h"
#include "tests/fuzz/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_and_read(const struct manifest *manifest)
{
    struct text first = {0}, second = {0};
    struct arena arena;
    struct manifest again;

    arena_init(&arena, "fuzz again", 0);
    CHECK(manifest_write(&first, manifest) == OK);
    CHECK(manifest_read(&again, &arena, first.bytes, first.length, "again") ==
          OK);
    CHECK(manifest_write(&second, &again) == OK);
    CHECK(strcmp(first.bytes, second.bytes) == 0);
    arena_free(&arena);
    text_free(&first);
    text_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct manifest manifest;

    arena_init(&arena, "fuzz", 0);
    if (manifest_parse(&manifest, &arena, (const char *)data, size, "fuzz") ==
        OK) {
        write_and_read(&manifest);
        for (int i = 0; i < manifest.tensor_count; i++) {
            const struct manifest_tensor *tensor = &manifest.tensors[i];

            CHECK(tensor->first >= 8 && tensor->first + tensor->bytes <=
                                            manifest.files[tensor->file].bytes);
        }
    }
    status_clear();
    arena_free(&arena);
    CHECK(arena_bytes_out() == 0);
    return 0;
}

/* ---- the mutator ---- */

static const char *const words[] = {
    "state.json", "model-00001-of-00001.safetensors", "../state.json",
    "F32", "BF16", "F64", "U64", "weight", "m", "deadbeef", "00000000", NULL};
static const struct grammar grammar = {json_grammar_read, json_grammar_write,
                                       words};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    return mutate_from(&grammar, data, size, room, 0);
}
