/* SPDX-License-Identifier: Apache-2.0 */
/* test_token_foreign.c - mirrors src/data/token_foreign.c: files as the other
 * projects write them, and what is wrong with those that are not. */
#include "data/token_foreign.h"

#include "tests/test.h"

static char room[PATH_BYTES];

static const char *put(const char *name, const void *bytes, size_t length)
{
    static char path[PATH_BYTES];

    IS_OK(path_join(path, sizeof path, room, name));
    IS_OK(file_write_atomic(path, bytes, length));
    return path;
}

/* Documents joined by '|'. */
static void expect(const char *path, int32_t end, const char *documents)
{
    struct token_file file;
    struct text out = {0};

    IS_OK(token_file_open(&file, path));
    IS_OK(token_file_verify(&file));
    IS_OK(token_file_split(&file, end, NULL));
    for (int64_t d = 0; d < file.documents; d++) {
        for (int64_t i = token_file_start(&file, d);
             i < token_file_start(&file, d + 1); i++)
            IS_OK(text_printf(&out, "%d ", token_file_at(&file, i)));
        IS_OK(text_append_string(&out, "| "));
    }
    EQUAL_TEXT(out.bytes, documents);
    text_free(&out);
    token_file_close(&file);
}

static void refuse(const char *path, const char *words)
{
    struct token_file file;
    status result = token_file_open(&file, path);

    if (result == OK) result = token_file_verify(&file);
    FAILS(result, ERR_FORMAT, words);
    status_clear();
    token_file_close(&file);
}

/* Two documents, three and two tokens of 16 bits; the bytes were worked out by
 * hand from Megatron-LM's indexed_dataset.py. */
static const unsigned char index_bytes[82] =
    "MMIDIDX\0\0" "\1\0\0\0\0\0\0\0" "\10" "\2\0\0\0\0\0\0\0"
    "\3\0\0\0\0\0\0\0" "\3\0\0\0" "\2\0\0\0" "\0\0\0\0\0\0\0\0"
    "\6\0\0\0\0\0\0\0" "\0\0\0\0\0\0\0\0" "\1\0\0\0\0\0\0\0"
    "\2\0\0\0\0\0\0"; /* and the NUL of the literal */
static const unsigned char bin_bytes[] = {5, 0, 6, 0, 7, 0, 8, 0, 9, 0};

TEST(megatron_pairs_are_read)
{
    static const struct { int at; unsigned char value; const char *words; }
        rows[] = {{8, 'X', "does not begin with MMIDIDX"},
                  {9, 2, "version 2"}, {17, 6, "type 6"}, {17, 4, "(trunc"},
                  {18, 3, "take another number"},
                  {26, 4, "take another number"}, {42, 2, "at byte 2"},
                  {34, 4, "begins at byte 6, expected 8"},
                  {38, 3, "the .bin at 10"}, {66, 9, "before the one ahead"},
                  {58, 1, "not from 0"}, {74, 1, "not from 0"}};
    unsigned char bytes[sizeof index_bytes];

    test_directory(room);
    put("a.bin", bin_bytes, sizeof bin_bytes);
    expect(put("a.idx", index_bytes, sizeof index_bytes), 0,
           "5 6 7 | 8 9 | ");
    for (int i = 0; i < ROWS(rows); i++) {
        memcpy(bytes, index_bytes, sizeof bytes);
        bytes[rows[i].at] = rows[i].value;
        refuse(put("a.idx", bytes, sizeof bytes), rows[i].words);
    }
    refuse(put("a.idx", index_bytes, 81), "take another number");
    memcpy(bytes, "TNTIDX", 6);
    refuse(put("a.idx", bytes, sizeof bytes), "old form");
    IS_OK(directory_remove(room));
}

TEST(llm_c_documents_begin_with_their_token)
{
    static unsigned char bytes[1024 + 12];
    const uint32_t header[] = {20240520, 1, 5};
    const uint16_t tokens[] = {50256, 7, 8, 50256, 9};
    const uint32_t wide[] = {128000, 70000, 128000};

    test_directory(room);
    memcpy(bytes, header, sizeof header);
    memcpy(bytes + 1024, tokens, sizeof tokens);
    expect(put("a.bin", bytes, 1034), 9, "50256 7 8 | 50256 9 | ");
    refuse(put("a.bin", bytes, 1033), "not a whole number of tokens");
    refuse(put("a.bin", bytes, 1032), "says 5 tokens (byte 8), the file has 4");
    bytes[4] = 3;
    refuse(put("a.bin", bytes, 1034), "magic 20240520 and version 3");
    memcpy(bytes, (uint32_t[]){20240801, 7, 3}, 12);
    memcpy(bytes + 1024, wide, sizeof wide);
    expect(put("a.bin", bytes, 1036), 9, "128000 70000 | 128000 | ");
    IS_OK(directory_remove(room));
}

TEST(nanosets_have_ends_beside)
{
    const uint16_t tokens[] = {1, 2, 3, 4, 5};
    const uint64_t ends[] = {2, 3, 5}, falling[] = {3, 2, 5};
    const uint32_t wide[] = {1, 2, 3, 4, 70000};
    static const struct { const char *text, *words; } said[] = {
        {"Unknown Tokenizer|2|2\n5\n5.00 T", NULL}, {"none|2", NULL},
        {"none|4\n5\n", "4 bytes for a token; by the index the file has 2"},
        {"none|2\n6\n", "6 tokens, the file has 5"},
        {"none\n5\n", "not TOKENIZER|BYTES"}, {"", "not TOKENIZER|BYTES"},
        {"none|2x\n5\n", "not TOKENIZER|BYTES"},
        {"none|\n5\n", "not TOKENIZER|BYTES"}};
    char path[PATH_BYTES];

    test_directory(room);
    snprintf(path, sizeof path, "%s", put("a.ds", tokens, sizeof tokens));
    put("a.ds.index", ends, sizeof ends);
    expect(path, 0, "1 2 | 3 | 4 5 | ");
    put("a.ds", wide, sizeof wide);
    expect(path, 0, "1 2 | 3 | 4 70000 | ");
    put("a.ds", wide, 19);
    refuse(path, "expected 2 or 4 bytes for each");
    put("a.ds", tokens, sizeof tokens);
    for (int i = 0; i < ROWS(said); i++) {
        put("a.ds.metadata", said[i].text, strlen(said[i].text));
        if (said[i].words != NULL) refuse(path, said[i].words);
        else expect(path, 0, "1 2 | 3 | 4 5 | ");
    }
    put("a.ds.metadata", said[0].text, strlen(said[0].text));
    put("a.ds.index", falling, sizeof falling);
    refuse(path, "before the one ahead of it");
    put("a.ds.index", falling, 23);
    refuse(path, "23 bytes, expected the end");
    IS_OK(directory_remove(room));
}

TEST(arrays_and_raw_tokens_are_cut_at_the_end_token)
{
    static const char good[] = "\x93NUMPY\1\0\x76\0{'descr': '<u2', "
        "'fortran_order': False, 'shape': (4,), }                         "
        "                                   \n\1\0\2\0\11\0\3\0";
    static const struct { const char *from, *to, *words; } rows[] = {
        {"'<u2'", "'<f4'", "elements are"}, {"'<u2'", "'>u2'", "elements"},
        {"(4,)", "(5,)", "says 5 elements"}, {"(4,)", "(4 )", "the shape is"},
        {"NUMPY", "NUMPX", "does not begin"}, {"\x76", "\xF6", "header of"}};
    const uint32_t wide[] = {70000, 3};

    test_directory(room);
    expect(put("a.npy", good, sizeof good - 1), 9, "1 2 9 | 3 | ");
    for (int i = 0; i < ROWS(rows); i++) {
        char bytes[sizeof good];
        const size_t length = strlen(rows[i].from);

        memcpy(bytes, good, sizeof good);
        for (size_t at = 0; at + length < sizeof good; at++)
            if (memcmp(bytes + at, rows[i].from, length) == 0) {
                memcpy(bytes + at, rows[i].to, length);
                break;
            }
        refuse(put("a.npy", bytes, sizeof good - 1), rows[i].words);
    }
    expect(put("a.u16", bin_bytes, sizeof bin_bytes), 7, "5 6 7 | 8 9 | ");
    expect(put("a.u32", wide, sizeof wide), 7, "70000 3 | ");
    refuse(put("a.u32", wide, 7), "not a whole number");
    IS_OK(directory_remove(room));
}

TEST(only_files_of_tokens_are_taken_for_such)
{
    char path[PATH_BYTES];

    test_directory(room);
    snprintf(path, sizeof path, "%s", put("a.bin", "weights", 7));
    CHECK(!token_file_is(path, true));
    put("a.idx", index_bytes, sizeof index_bytes);
    CHECK(token_file_is(path, true));
    CHECK(!token_file_is(path, false)); /* its index is, once */
    snprintf(path + strlen(path) - 3, 4, "idx");
    CHECK(token_file_is(path, false));
    IS_OK(directory_remove(room));
}

TEST(a_table_that_lies_stays_inside)
{
    struct token_file file = {.path = "a.idx", .layout = TOKENS_MEGATRON,
                              .image = bin_bytes, .length = sizeof bin_bytes};
    unsigned char bytes[sizeof index_bytes];

    memcpy(bytes, index_bytes, sizeof bytes);
    bytes[66] = 1;
    bytes[50 + 7] = 0x7F; /* offset of the second sequence */
    file.table.bytes = bytes;
    file.table.length = sizeof bytes;
    IS_OK(token_foreign_parse(&file));
    EQUAL_INT(token_file_start(&file, 1), 5); /* not beyond the end */
}

/* tests/golden/make_token_files.py */
TEST(files_of_the_real_writers_are_read)
{
    static const struct { const char *name, *documents; } rows[] = {
        {"megatron_u16.idx", "5 6 7 | 8 9 | | 10 | 1 2 3 | "},
        {"megatron_i32.bin", "5 6 7 | 8 9 | | 10 | 1 2 3 | "},
        {"nanoset_2.ds", "5 6 7 | 8 9 | 10 | 1 2 3 | "},
        {"nanoset_4.ds", "5 6 7 | 8 9 | 10 | 1 2 3 | "},
        {"numpy_u2.npy", "5 6 7 0 | 8 9 0 | "},
        {"numpy_i8.npy", "5 6 7 0 | 8 9 0 | "},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        char path[PATH_BYTES];

        IS_OK(path_join(path, sizeof path, "tests/golden/data",
                        rows[i].name));
        CHECK(token_file_is(path, true));
        expect(path, 0, rows[i].documents);
    }
}

TEST_MAIN(files_of_the_real_writers_are_read, megatron_pairs_are_read,
          llm_c_documents_begin_with_their_token,
          nanosets_have_ends_beside,
          arrays_and_raw_tokens_are_cut_at_the_end_token,
          only_files_of_tokens_are_taken_for_such,
          a_table_that_lies_stays_inside)
