/* SPDX-License-Identifier: Apache-2.0 */
/* test_token_pages.c - mirrors src/data/token_pages.c: bits that flip under a
 * seal that holds are seen, at openings and in each epoch. */
#include "data/token_pages.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/test.h"

enum { DOCUMENTS = 900, LENGTH = 60000 }; /* 108 MB: 7 pages */

static void write_tokens(const char *path)
{
    static int32_t ids[LENGTH];
    struct token_writer writer;

    for (int i = 0; i < LENGTH; i++) ids[i] = i % 3000;
    IS_OK(token_writer_open(&writer, path, 3001, 3000, NULL, NULL));
    for (int i = 0; i < DOCUMENTS; i++)
        IS_OK(token_writer_add(&writer, ids, LENGTH, 10));
    IS_OK(token_writer_close(&writer));
    token_writer_free(&writer);
}

/* One bit, at the time of change that was. */
static void flip(const char *path, off_t at)
{
    const int descriptor = open(path, O_RDWR);
    struct stat facts;
    unsigned char byte;

    EQUAL_INT(fstat(descriptor, &facts), 0);
    EQUAL_INT(pread(descriptor, &byte, 1, at), 1);
    byte ^= 1;
    EQUAL_INT(pwrite(descriptor, &byte, 1, at), 1);
    EQUAL_INT(futimens(descriptor,
                       (struct timespec[]){facts.st_atim, facts.st_mtim}), 0);
    close(descriptor);
}

TEST(a_flipped_bit_under_a_seal_is_seen)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    struct token_file file;
    int seen = 0;

    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "a.tokens"));
    write_tokens(path);
    IS_OK(token_file_open(&file, path));
    IS_OK(token_file_trust(&file, NULL, TRUST_READ));
    EQUAL_INT(file.pages.count, 7);
    /* Pages that a pass finds are those that the writer kept. */
    uint32_t kept[7];

    memcpy(kept, file.pages.crcs, sizeof kept);
    IS_OK(token_file_verify(&file));
    EQUAL_INT(file.pages.count, 7);
    EQUAL_BYTES(file.pages.crcs, kept, sizeof kept);
    for (uint64_t epoch = 0; epoch < 20; epoch++)
        IS_OK(token_pages_check(&file, epoch));
    flip(path, 70000000);
    CHECK(token_file_sealed(&file, NULL));
    for (uint64_t epoch = 0; epoch < 40; epoch++) {
        const status result = token_pages_check(&file, epoch * 77777);

        seen += result != OK;
        if (result != OK)
            FAILS(result, ERR_FORMAT, "bytes 67109056 to 83886271 are not "
                  "what they were when the file was sealed");
        status_clear();
    }
    CHECK(seen > 8 && seen < 35); /* four of seven pages at once: 46% */
    token_file_close(&file);
    IS_OK(directory_remove(directory));
}

/* A file of few pages is compared whole at each opening. */
TEST(a_small_file_is_compared_whole)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    const int32_t ids[] = {1, 2, 3};
    struct token_writer writer;
    struct token_file file;

    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "a.tokens"));
    IS_OK(token_writer_open(&writer, path, 100, 99, NULL, NULL));
    IS_OK(token_writer_add(&writer, ids, 3, 10));
    IS_OK(token_writer_close(&writer));
    token_writer_free(&writer);
    IS_OK(token_file_open(&file, path));
    IS_OK(token_file_trust(&file, NULL, TRUST_LATER));
    EQUAL_INT(file.pages.count, 1);
    token_file_close(&file);
    flip(path, 194);
    IS_OK(token_file_open(&file, path));
    FAILS(token_file_trust(&file, NULL, TRUST_LATER), ERR_FORMAT,
          "are not what they were when the file was sealed");
    status_clear();
    token_file_close(&file);
    IS_OK(directory_remove(directory));
}

TEST_MAIN(a_flipped_bit_under_a_seal_is_seen, a_small_file_is_compared_whole)
