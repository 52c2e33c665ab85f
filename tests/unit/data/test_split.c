/* SPDX-License-Identifier: Apache-2.0 */
/* test_split.c - mirrors src/data/split.c: which documents are held out, the
 * places of the others, the list that is kept. */
#include "data/split.h"

#include "base/random.h"
#include "tests/test.h"

enum { DOCUMENTS = 300000 };

static void write_many(char path[PATH_BYTES], char directory[PATH_BYTES])
{
    struct token_writer writer;

    test_directory(directory);
    IS_OK(path_join(path, PATH_BYTES, directory, "a.tokens"));
    IS_OK(token_writer_open(&writer, path, 10, 0, NULL, NULL));
    for (int32_t i = 0; i < DOCUMENTS; i++)
        IS_OK(token_writer_add(&writer, (const int32_t[]){1, 2, 3}, i % 3, 0));
    IS_OK(token_writer_close(&writer));
    token_writer_free(&writer);
}

static void check(const struct split *split, const struct token_set *set)
{
    const struct random_key key = random_key_make(7, "data.split");
    int64_t held = 0, trained = 0, tokens = 0;

    for (int64_t i = 0; i < DOCUMENTS; i++) {
        if (i > 0 && random_uniform(key, (uint64_t)i) < 0.01) {
            EQUAL_INT(split->held[held], i);
            EQUAL_INT(split->before[held++], tokens);
            tokens += token_set_start(set, i + 1) - token_set_start(set, i);
            continue;
        }
        EQUAL_INT(split_held_before(split, trained), held);
        EQUAL_INT(split_trained(split, trained++), i);
    }
    EQUAL_INT(split->count, held);
    EQUAL_INT(split->before[held], tokens);
    EQUAL_INT(split_trained(split, trained), DOCUMENTS);
}

/* Round 1: a bit of the file is another; 2: two of its documents change places,
 * and its checksum is that of what it says. */
static void damage(const char *path, int round)
{
    enum { HEAD = 64 }; /* bytes before the documents */
    struct text file;
    int64_t two[2], swapped[2];
    uint32_t crc;

    IS_OK(file_read(path, 1 << 24, &file));
    if (round == 1) {
        file.bytes[file.length / 2] ^= 1;
    } else {
        memcpy(two, file.bytes + HEAD, sizeof two);
        swapped[0] = two[1];
        swapped[1] = two[0];
        memcpy(file.bytes + HEAD, swapped, sizeof swapped);
        crc = crc32c(0, file.bytes, file.length - sizeof crc);
        memcpy(file.bytes + file.length - sizeof crc, &crc, sizeof crc);
    }
    IS_OK(file_write_atomic(path, file.bytes, file.length));
    text_free(&file);
}

TEST(a_list_is_kept_and_a_broken_one_made_again)
{
    char path[PATH_BYTES], directory[PATH_BYTES], cache[PATH_BYTES], **names;
    const char *paths[] = {path};
    struct split_request request = {.seed = 7, .share = 0.01, .cache = cache};
    struct token_set set;
    struct split split;
    int count;

    write_many(path, directory);
    IS_OK(path_join(cache, sizeof cache, directory, "cache"));
    IS_OK(token_set_open(&set, &(struct token_set_request){
                                   .paths = paths, .count = 1,
                                   .end_token = -1}));
    for (int round = 0; round < 4; round++) {
        IS_OK(split_build(&split, &set, &request));
        check(&split, &set);
        split_free(&split);
        IS_OK(directory_list(cache, &names, &count));
        EQUAL_INT(count, 1);
        IS_OK(path_join(path, sizeof path, cache, names[0]));
        directory_list_free(names, count);
        if (round > 0) damage(path, round < 2 ? 1 : 2);
    }
    token_set_close(&set);
    IS_OK(directory_remove(directory));
}

TEST_MAIN(a_list_is_kept_and_a_broken_one_made_again)
