/* SPDX-License-Identifier: Apache-2.0 */
/* test_manifest.c - mirrors src/checkpoint/manifest.c. */
#include "tests/unit/checkpoint/room.h"
#include "checkpoint/manifest.h"

/* The pieces of a block in any order give the checksum of the block. */
TEST(checksums_of_parts_join)
{
    enum { LENGTH = 5000 };
    static const size_t cuts[][2] = {
        {0, 1}, {1, 4999}, {100, 101}, {2500, 2500}, {17, 4000}};
    unsigned char bytes[LENGTH];

    for (int i = 0; i < LENGTH; i++) bytes[i] = (unsigned char)(i * 37 + 11);
    for (int i = 0; i < ROWS(cuts); i++) {
        const size_t ends[4] = {0, cuts[i][0], cuts[i][1], LENGTH};
        uint32_t joined = crc32c_zeros(LENGTH);

        for (int j = 2; j >= 0; j--) { /* last piece first */
            const size_t n = ends[j + 1] - ends[j];

            joined ^= crc32c_contribution(crc32c(0, bytes + ends[j], n), n,
                                          LENGTH - ends[j + 1]);
        }
        EQUAL_INT(joined, crc32c(0, bytes, LENGTH));
    }
    memset(bytes, 0, LENGTH);
    EQUAL_INT(crc32c_zeros(LENGTH), crc32c(0, bytes, LENGTH));
    EQUAL_INT(crc32c_zeros(0), 0);
}

static void make(struct text *out)
{
    static uint32_t crcs[2] = {0x01234567, 0x89abcdef}, crc = 7;
    static struct manifest_file files[] = {
        {"state.json", 10, 0xdeadbeef, false},
        {"model-00001-of-00001.safetensors", 5000000, 1, true}};
    static struct manifest_tensor tensors[] = {
        {"w",
         "weight",
         DTYPE_F32,
         2,
         {524288, 1},
         524288,
         1,
         4096,
         2097152,
         2,
         crcs},
        {"s", "m", DTYPE_F64, 0, {0}, 1, 1, 2101248, 8, 1, &crc}};
    const struct manifest manifest = {.lockstep = "0.1.0",
                                      .numerics = 3,
                                      .step = 12,
                                      .tokens = 345,
                                      .grid = {8, 4, 2, 1},
                                      .model = "aa",
                                      .tokenizer = "",
                                      .file_count = 2,
                                      .files = files,
                                      .tensor_count = 2,
                                      .tensors = tensors};

    IS_OK(manifest_write(out, &manifest));
}

TEST(round_trip)
{
    struct text text = {0};
    struct arena arena;
    struct manifest manifest;

    make(&text);
    arena_init(&arena, "test", 0);
    IS_OK(manifest_read(&manifest, &arena, text.bytes, text.length, "m"));
    EQUAL_TEXT(manifest.lockstep, "0.1.0");
    EQUAL_INT(manifest.numerics, 3);
    EQUAL_INT(manifest.step, 12);
    EQUAL_INT(manifest.tokens, 345);
    EQUAL_INT(manifest.grid.context, 2);
    EQUAL_TEXT(manifest.model, "aa");
    EQUAL_INT(manifest.file_count, 2);
    CHECK(!manifest.files[0].holds_tensors && manifest.files[1].holds_tensors);
    EQUAL_INT(manifest.files[0].crc, 0xdeadbeef);
    EQUAL_INT(manifest.tensor_count, 2);
    EQUAL_TEXT(manifest.tensors[0].name, "w");
    EQUAL_INT(manifest.tensors[0].crcs[1], 0x89abcdef);
    EQUAL_INT(manifest.tensors[1].elements, 1);
    EQUAL_INT(manifest.tensors[1].blocks, 1);
    arena_free(&arena);
    text_free(&text);
}

/* Every bit of it, and every length: the checksum at its end sees all. */
TEST(every_flip_and_truncation_is_refused)
{
    struct text text = {0};
    struct manifest manifest;

    make(&text);
    for (size_t i = 0; i < 8 * text.length; i++) {
        struct arena arena;

        arena_init(&arena, "test", 0);
        text.bytes[i / 8] = (char)(text.bytes[i / 8] ^ (1 << i % 8));
        EQUAL_INT(
            manifest_read(&manifest, &arena, text.bytes, text.length, "m"),
            ERR_FORMAT);
        text.bytes[i / 8] = (char)(text.bytes[i / 8] ^ (1 << i % 8));
        if (i < text.length)
            EQUAL_INT(manifest_read(&manifest, &arena, text.bytes, i, "m"),
                      ERR_FORMAT);
        arena_free(&arena);
    }
    status_clear();
    text_free(&text);
}

/* One replacement each in a good manifest whose checksum is not looked at. */
static const struct {
    const char *from, *to, *words;
} lies[] = {
    {"lockstep checkpoint", "lockstep model", "format"},
    {"\"version\": 1", "\"version\": 2", "reads version 1"},
    {"\"step\": 12", "\"step\": -1", "step is -1"},
    {"\"step\": 12", "\"step\": 1.5", "step"},
    {"\"data\": 8", "\"data\": 0", "data is 0"},
    {"\"data\": 8", "\"data\": 70000", "65536"},
    {"1048576", "1048577", "block_bytes"},
    {"\"aa\"", "\"a a\"", "model"},
    {"state.json", "../state", "one plain component"},
    {"state.json", "/etc/x", "one plain component"},
    {"state.json", "..", "one plain component"},
    {"state.json", "model-00001-of-00001.safetensors", "twice"},
    {"\"file\": 1", "\"file\": 2", "is in file 2, there are 2"},
    {"\"file\": 1", "\"file\": -1", "file is -1"},
    {"\"first\": 4096", "\"first\": 4999999", "leaves its file"},
    {"\"first\": 4096", "\"first\": 9223372036854775807", "leaves its file"},
    {"\"first\": 4096", "\"first\": 7", "first is 7"},
    {"[524288, 1]", "[524289, 1]", "do not follow"},
    {"[524288, 1]", "[4611686018427387904, 4]", "2^63"},
    {"[524288, 1]", "[2305843009213693952, 1]", "2^62"},
    {"[524288, 1]", "[-524288, -1]", "dimension 0"},
    {"[524288, 1]", "[524288, 1, 1, 1, 1]", "at most 4"},
    {"\"bytes\": 2097152", "\"bytes\": 2097153", "do not follow"},
    {"0123456789abcdef", "0123456789abcde", "crc32c"},
    {"0123456789abcdef", "0123456789abcdeg", "crc32c"},
    {"0123456789abcdef", "0123456789abcdef01234567", "crc32c"},
    {"\"name\": \"s\", \"kind\": \"m\"", "\"name\": \"\", \"kind\": \"m\"",
     "plain text"},
    {"\"kind\": \"m\"", "\"kind\": \"a/b\"", "plain text"},
    {"\"F64\"", "\"F8_E5M2\"", "unknown dtype"},
    {"\"tensors\": [", "\"tensors\": [3, ", ""},
    {"\"tensors\": [", "\"others\": [", "array of at most"},
    {"\"files\": [", "\"f\": [", "array of at most"},
    {"\"grid\"", "\"g\"", "grid"},
};

TEST(lies_are_refused)
{
    for (int i = 0; i < ROWS(lies); i++) {
        struct text text = {0}, changed = {0};
        struct arena arena;
        struct manifest manifest;
        const char *at;

        make(&text);
        arena_init(&arena, "test", 0);
        at = strstr(text.bytes, lies[i].from);
        CHECK(at != NULL);
        IS_OK(text_append(&changed, text.bytes, (size_t)(at - text.bytes)));
        IS_OK(text_append_string(&changed, lies[i].to));
        IS_OK(text_append_string(&changed, at + strlen(lies[i].from)));
        FAILS(manifest_parse(&manifest, &arena, changed.bytes, changed.length,
                             "m"),
              ERR_FORMAT, lies[i].words);
        arena_free(&arena);
        text_free(&text);
        text_free(&changed);
    }
}

TEST_MAIN(checksums_of_parts_join, round_trip,
          every_flip_and_truncation_is_refused, lies_are_refused)
