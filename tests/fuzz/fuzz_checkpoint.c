/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_checkpoint.c - can a damaged or forged checkpoint hurt us? The input is
 * a list of changes to the files of a good one:
 *
 *    byte 0        bit 0: give the manifest a right checksum again
 *    4 each        file, offset (16 bits), value to xor
 *    last 1 to 3   byte to cut a file at
 *
 * or, where byte 0 is '{', a manifest without its last line, which has the
 * checksum. Whatever is changed, opening and reading either fails or gives
 * exactly the tensors that were saved. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "checkpoint/checkpoint.h"
#include "checkpoint/save.h"
#include "tests/fuzz/grammar.h"
#include "tests/fuzz/scratch.h"

enum { FILES = 5, ELEMENTS = 300,
       MANIFEST_END = 24 }; /* bytes: the line of its checksum */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[FILES] = {
    "manifest.json", "state.json", "model-00001-of-00001.safetensors",
    "optim-00001-of-00001.safetensors", "config.json"};
static char step[PATH_BYTES];
static struct text good[FILES];
static float saved[2][ELEMENTS];
static struct saved_part parts[2] = {{.name = "a.weight",
                                      .kind = "weight",
                                      .dimensions = 2,
                                      .shape = {3, 100},
                                      .data = saved[0]},
                                     {.name = "a.weight",
                                      .kind = "m",
                                      .dimensions = 2,
                                      .shape = {3, 100},
                                      .data = saved[1]}};

static void make_once(void)
{
    static const struct checkpoint_file file = {"config.json", "{}\n", 3};
    const struct checkpoint_plan plan = {.run = scratch,
                                         .step = 1,
                                         .grid = {1, 1, 1, 1},
                                         .lockstep = "fuzz",
                                         .state_json = "{\"a\": 1}\n",
                                         .parts = parts,
                                         .part_count = 2,
                                         .files = &file,
                                         .file_count = 1};

    if (!scratch_make()) return;
    for (int i = 0; i < 2 * ELEMENTS; i++)
        saved[i / ELEMENTS][i % ELEMENTS] = (float)i;
    CHECK(checkpoint_save(&plan) == OK);
    CHECK(path_join(step, sizeof step, scratch, "ckpt/step-00000001") == OK);
    for (int i = 0; i < FILES; i++) {
        char path[PATH_BYTES];

        CHECK(path_join(path, sizeof path, step, names[i]) == OK);
        CHECK(file_read(path, 1 << 20, &good[i]) == OK);
    }
}

static void put_file(int file, const char *bytes, size_t length)
{
    char path[PATH_BYTES];
    FILE *out;

    CHECK(path_join(path, sizeof path, step, names[file]) == OK);
    out = fopen(path, "wb");
    CHECK(out != NULL && fwrite(bytes, 1, length, out) == length);
    CHECK(fclose(out) == 0);
}

/* The digits of the checksum stand 12 bytes before the end. */
static void mend_manifest(char *bytes, size_t length)
{
    char digits[9];

    if (length < 64) return;
    snprintf(digits, sizeof digits, "%08x",
             crc32c(0, bytes, length - MANIFEST_END));
    memcpy(bytes + length - 12, digits, 8);
}

/* A forged manifest, whose checksum is right. */
static void forge(const uint8_t *data, size_t size)
{
    char digits[32];
    struct text text = {0};

    CHECK(text_append(&text, data, size) == OK);
    snprintf(digits, sizeof digits, "\n\"crc32c\": \"%08x\"\n}\n",
             crc32c(0, text.bytes, text.length));
    CHECK(text_append(&text, digits, strlen(digits)) == OK);
    put_file(0, text.bytes, text.length);
    text_free(&text);
}

/* Applies the input; true when a byte differs in the end. */
static bool damage(const uint8_t *data, size_t size)
{
    char *copies[FILES];
    size_t lengths[FILES];
    bool changed = false;

    for (int i = 0; i < FILES; i++) {
        lengths[i] = good[i].length;
        copies[i] = malloc(lengths[i] + 1);
        CHECK(copies[i] != NULL);
        memcpy(copies[i], good[i].bytes, lengths[i] + 1);
    }
    for (size_t at = 1; at < size; at += 4) {
        const int file = data[at] % FILES;
        const size_t left = size - at;
        const size_t offset = (size_t)(left > 1 ? data[at + 1] : 0) |
                              (size_t)(left > 2 ? data[at + 2] : 0) << 8;

        if (left > 3)
            copies[file][offset % good[file].length] ^= (char)data[at + 3];
        else
            lengths[file] = offset % (good[file].length + 1);
    }
    if (data[0] & 1) mend_manifest(copies[0], lengths[0]);
    for (int i = 0; i < FILES; i++) {
        if (lengths[i] != good[i].length ||
            memcmp(copies[i], good[i].bytes, lengths[i]) != 0) {
            changed = true;
            put_file(i, copies[i], lengths[i]);
        }
        free(copies[i]);
    }
    return changed;
}

/* True when all was read; then it is what was saved. */
static bool open_and_read(void)
{
    struct checkpoint checkpoint;
    bool whole = checkpoint_open(&checkpoint, step, NULL) == OK &&
                 checkpoint_verify(&checkpoint) == OK;

    for (int i = 0; i < 2 && whole; i++) {
        struct saved_part part = parts[i];
        float read[ELEMENTS];

        part.data = read;
        whole = checkpoint_read_tensor(&checkpoint, &part) == OK;
        if (whole) CHECK(memcmp(read, saved[i], sizeof read) == 0);
    }
    checkpoint_close(&checkpoint);
    status_clear();
    return whole;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t held;
    bool changed, whole;

    make_once();
    if (size == 0) return 0;
    held = arena_bytes_out();
    if (data[0] == '{') forge(data, size);
    changed = data[0] == '{' || damage(data, size);
    whole = open_and_read();
    CHECK(arena_bytes_out() == held);
    /* With a mended manifest its numbers may be forged, but not silently the
     * tensors' bytes; without, any change at all is found. */
    if (data[0] != '{' && !(data[0] & 1)) CHECK(whole == !changed);
    for (int i = 0; changed && i < FILES; i++)
        put_file(i, good[i].bytes, good[i].length);
    return 0;
}

/* ---- the mutator ---- */

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    static const char *const words[] = {
        "state.json", "model-00001-of-00001.safetensors", "config.json",
        "optim-00001-of-00001.safetensors", "../config.json", "a.weight", "m",
        "F32", "BF16", "manifest.json", "weight", NULL};
    static const struct grammar grammar = {open_manifest_read,
                                           open_manifest_write, words};

    mutate_seed(seed);
    make_once();
    if (draw(8) == 0 && good[0].length - MANIFEST_END <= room) {
        size = good[0].length - MANIFEST_END;
        memcpy(data, good[0].bytes, size);
    }
    if (size == 0 || data[0] != '{')
        return LLVMFuzzerMutate(data, size, room);
    return mutate_from(&grammar, data, size, room, 0);
}
