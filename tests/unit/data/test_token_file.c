/* SPDX-License-Identifier: Apache-2.0 */
/* test_token_file.c - mirrors src/data/token_file.c: what is written comes
 * back; every damage is noticed. */
#include "data/token_file.h"

#include "tests/test.h"

static const int32_t first[] = {5, 0, 65535, 7}, second[] = {1};

static void write_file(const char *path, int64_t vocab)
{
    struct token_writer writer;

    IS_OK(token_writer_open(&writer, path, vocab, 3, "0123abcd", "source"));
    IS_OK(token_writer_add(&writer, first, 4, 11));
    IS_OK(token_writer_add(&writer, second, 1, 2));
    IS_OK(token_writer_add(&writer, NULL, 0, 0));
    IS_OK(token_writer_close(&writer));
    token_writer_free(&writer);
}

TEST(what_is_written_comes_back)
{
    static const int64_t vocabs[] = {65536, 65537};
    static const int32_t all[] = {5, 0, 65535, 7, 3, 1, 3, 3};
    static const int64_t starts[] = {0, 5, 7, 8};
    char directory[PATH_BYTES], path[PATH_BYTES];

    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "t.tokens"));
    for (int i = 0; i < 2; i++) {
        struct token_file file;

        write_file(path, vocabs[i]);
        IS_OK(token_file_open(&file, path));
        IS_OK(token_file_verify(&file));
        EQUAL_INT(file.bytes_per_token, i == 0 ? 2 : 4);
        EQUAL_INT(file.count, 8);
        EQUAL_INT(file.documents, 3);
        EQUAL_INT(file.text_bytes, 13);
        EQUAL_INT(file.end_token, 3);
        EQUAL_TEXT(file.tokenizer, "0123abcd");
        EQUAL_TEXT(file.source, "source");
        for (int j = 0; j < 8; j++) EQUAL_INT(token_file_at(&file, j), all[j]);
        for (int j = 0; j < 4; j++)
            EQUAL_INT(token_file_start(&file, j), starts[j]);
        token_file_close(&file);
    }
    IS_OK(directory_remove(directory));
}

/* Every byte flipped and every length cut off. */
TEST(every_damage_is_noticed)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    struct text whole;

    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "t.tokens"));
    write_file(path, 65537);
    IS_OK(file_read(path, 1 << 20, &whole));
    for (size_t i = 0; i < whole.length; i++) {
        struct token_file file;

        if (i >= 184 && i < 192) continue; /* reserved, not checked */
        whole.bytes[i] ^= 1;
        IS_OK(file_write_atomic(path, whole.bytes, whole.length));
        whole.bytes[i] ^= 1;
        if (token_file_open(&file, path) == OK)
            CHECK(token_file_verify(&file) == ERR_FORMAT);
        token_file_close(&file);
        status_clear();
    }
    for (size_t length = 0; length < whole.length; length++) {
        struct token_file file;

        IS_OK(file_write_atomic(path, whole.bytes, length));
        FAILS(token_file_open(&file, path), ERR_FORMAT, path);
        token_file_close(&file);
        status_clear();
    }
    text_free(&whole);
    IS_OK(directory_remove(directory));
}

TEST(wrong_ids_never_reach_a_file)
{
    static const int32_t wrong[] = {1, 10};
    char directory[PATH_BYTES], path[PATH_BYTES];
    struct token_writer writer;
    struct token_file file;

    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "t.tokens"));
    IS_OK(token_writer_open(&writer, path, 10, 0, NULL, NULL));
    FAILS(token_writer_add(&writer, wrong, 2, 0), ERR_FORMAT,
          "id 10 is outside the vocabulary of 10");
    token_writer_free(&writer);
    status_clear();
    FAILS(token_file_open(&file, path), ERR_MISSING, "t.tokens");
    token_file_close(&file);
    IS_OK(directory_remove(directory));
}

static long resident_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    CHECK(file != NULL);
    CHECK(fscanf(file, "%*s %ld", &pages) == 1);
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

/* Verifying reads all of a file; a run that trains on more text than it may
 * take memory must not keep it. */
TEST(verifying_keeps_no_pages)
{
    enum { DOCUMENTS = 64, TOKENS = 1 << 18 }; /* 64 MiB of 4 bytes */
    char directory[PATH_BYTES], path[PATH_BYTES];
    struct token_writer writer;
    struct token_file file;
    int32_t *ids = test_calloc(TOKENS, sizeof *ids);

    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "t.tokens"));
    IS_OK(token_writer_open(&writer, path, 65537, 3, NULL, NULL));
    for (int i = 0; i < DOCUMENTS; i++)
        IS_OK(token_writer_add(&writer, ids, TOKENS, TOKENS));
    IS_OK(token_writer_close(&writer));
    token_writer_free(&writer);
    IS_OK(token_file_open(&file, path));
    const long before = resident_bytes();

    IS_OK(token_file_verify(&file));
    CHECK(resident_bytes() - before < 20000000);
    EQUAL_INT(token_file_at(&file, file.count - 1), 3);
    token_file_close(&file);
    test_free(ids);
    IS_OK(directory_remove(directory));
}

TEST_MAIN(what_is_written_comes_back, every_damage_is_noticed,
          wrong_ids_never_reach_a_file, verifying_keeps_no_pages)
