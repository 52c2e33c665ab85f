/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_shards.c - can another machine's answers hurt a rank that reads shards?
 * Machine a is sound. The input is what b lists ("L...": its steps), or its
 * shards.json without the last line ("{..."), whose checksum is mended. What
 * is read as whole is what was saved. */
#include <stdlib.h>
#include <string.h>
#include "checkpoint/checkpoint.h"
#include "checkpoint/shards.h"
#include "tests/fuzz/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ELEMENTS = 300, BYTES = 4 * ELEMENTS, FIRST = 104, HALF = 500,
       FILE_BYTES = FIRST + BYTES, STEP = 7 };
static const char file_name[] = "model-00001-of-00001.safetensors";
static const char sound_list[] = "b/ckpt/step-00000007\n";

static unsigned char files[2][FILE_BYTES]; /* of a and b: half of each */
static unsigned char whole[BYTES];
static struct text lists[2], manifest;     /* shards.json of a and b */
static struct text forged, listed;         /* of b, this time */

static void write_list(struct text *out, uint32_t crc)
{
    struct manifest_file names[2] = {
        {"state.json", 2, crc32c(0, "{}", 2), false},
        {file_name, FILE_BYTES, crc32c(0, files[0], FIRST), true}};
    struct manifest_tensor tensor = {
        .name = "a.weight", .kind = "weight", .dtype = DTYPE_F32,
        .dimensions = 2, .shape = {3, 100}, .elements = ELEMENTS, .file = 1,
        .first = FIRST, .bytes = BYTES, .blocks = 1, .crcs = &crc};
    struct manifest m = {.lockstep = "0", .numerics = 1, .step = STEP,
                         .grid = {1, 1, 1, 1}, .file_count = 2,
                         .files = names, .tensor_count = 1,
                         .tensors = &tensor};

    memset(m.model, 'a', DIGEST_BYTES - 1);
    CHECK(manifest_write(out, &m) == OK);
}

static void make_once(void)
{
    if (manifest.length > 0) return;
    for (int i = 0; i < BYTES; i++) whole[i] = (unsigned char)(i * 7 + 1);
    memcpy(files[0] + FIRST, whole, HALF);
    memcpy(files[1] + FIRST + HALF, whole + HALF, BYTES - HALF);
    write_list(&manifest, crc32c(0, whole, BYTES));
    for (int i = 0; i < 2; i++)
        write_list(&lists[i], crc32c(0, files[i] + FIRST, BYTES));
}

static status list_of(void *argument, struct text *out)
{
    const bool b = *(const int *)argument == 1;

    return b ? text_append(out, listed.bytes, listed.length)
             : text_append_string(out, "a/ckpt/step-00000007\n");
}

static bool ends_with(const char *path, const char *name)
{
    const size_t length = strlen(path), end = strlen(name);

    return length > end && path[length - end - 1] == '/' &&
           strcmp(path + length - end, name) == 0;
}

static status read_of(void *argument, const char *path, int64_t offset,
                      void *bytes, size_t length, size_t *got)
{
    const int b = *(const int *)argument;
    const struct text state = {.bytes = (char *)(uintptr_t)"{}", .length = 2};
    const struct text data = {.bytes = (char *)files[b], .length = FILE_BYTES};
    const struct text *of = NULL;

    if (ends_with(path, "manifest.json")) of = &manifest;
    if (ends_with(path, "shards.json")) of = b ? &forged : &lists[0];
    if (ends_with(path, "state.json")) of = &state;
    if (ends_with(path, file_name)) of = &data;
    *got = 0;
    if (of == NULL) FAIL(ERR_MISSING, "no such file");
    CHECK(offset >= 0);
    if ((uint64_t)offset >= of->length) return OK;
    *got = of->length - (size_t)offset;
    if (*got > length) *got = length;
    memcpy(bytes, of->bytes + offset, *got);
    return OK;
}

/* b's list with a checksum of its own. */
static void forge(const uint8_t *data, size_t size)
{
    static const char end[] = "\n\"crc32c\": \"00000000\"\n}\n";

    forged.length = 0;
    CHECK(text_append(&forged, (const char *)data, size) == OK);
    CHECK(text_printf(&forged, "%.12s%08x%s", end,
                      crc32c(0, forged.bytes, size), end + 20) == OK);
}

static void read_step(const struct shard_place *places,
                      const struct shard_list *list, int64_t step)
{
    struct checkpoint checkpoint = {0};
    struct shard_set set;
    unsigned char read[BYTES];
    struct saved_part part = {.name = "a.weight", .kind = "weight",
                              .dtype = DTYPE_F32, .dimensions = 2,
                              .shape = {3, 100}, .data = read};

    if (shards_open(&set, places, list, step) == OK &&
        shards_check_whole(&set) == OK &&
        checkpoint_open_shards(&checkpoint, &set, NULL) == OK &&
        checkpoint_verify(&checkpoint) == OK) {
        CHECK(checkpoint_read_tensor(&checkpoint, &part) == OK);
        CHECK(memcmp(read, whole, BYTES) == 0);
    }
    checkpoint_close(&checkpoint);
    shards_close(&set);
    status_clear();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int numbers[2] = {0, 1};
    struct shard_place places[2] = {
        {.name = "a", .argument = &numbers[0], .list = list_of,
         .read = read_of},
        {.name = "b", .argument = &numbers[1], .list = list_of,
         .read = read_of}};
    struct shard_list list = {.count = 0};
    size_t held;

    make_once();
    if (size == 0 || size > 60000) return 0;
    listed.length = forged.length = 0;
    if (data[0] == '{') forge(data, size);
    else CHECK(text_append(&forged, lists[1].bytes, lists[1].length) == OK);
    CHECK(data[0] == '{'
              ? text_append_string(&listed, sound_list) == OK
              : text_append(&listed, (const char *)data + 1, size - 1) == OK);
    CHECK(text_append_string(&listed, "") == OK);
    held = arena_bytes_out();
    for (int i = 0; i < 2; i++)
        if (shard_list_add(&list, places, i) != OK) status_clear();
    read_step(places, &list, STEP);
    read_step(places, &list, shard_list_newest(&list, INT64_MAX));
    shard_list_free(&list);
    CHECK(arena_bytes_out() == held);
    return 0;
}

/* ---- the mutator ---- */

static const char *const words[] = {
    "state.json", "model-00001-of-00001.safetensors", "../state.json", "F32",
    "BF16", "weight", "a.weight", "m", "deadbeef", "nodes.json", NULL};
static const struct grammar lists_of = {open_manifest_read,
                                        open_manifest_write, words};
static const char *const marks[] = {"/ckpt/step-", "a", "b", "/ckpt/.none",
                                    "00000007", "\n", "..", "/", NULL};
static const struct grammar steps = {words_grammar_read, words_grammar_write,
                                     marks};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    make_once();
    if (draw(8) == 0 && lists[1].length - 24 <= room) {
        memcpy(data, lists[1].bytes, lists[1].length - 24);
        return lists[1].length - 24;
    }
    if (size > 0 && data[0] == '{')
        return mutate_from(&lists_of, data, size, room, 0);
    return mutate_from(&steps, data, size, room, 1);
}
