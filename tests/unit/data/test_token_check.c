/* SPDX-License-Identifier: Apache-2.0 */
/* test_token_check.c - mirrors src/data/token_check.c and token_starts.c: large
 * files of others open by their tables, are read beside the work, and what is
 * found of them is kept. */
#include "data/token_set.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/random.h"
#include "tests/test.h"

enum { LARGE = 65 << 20, END = 7 };

struct place {
    char directory[PATH_BYTES], cache[PATH_BYTES], path[PATH_BYTES];
};

static void begin(struct place *place, const char *name)
{
    test_directory(place->directory);
    IS_OK(path_join(place->cache, PATH_BYTES, place->directory, "cache"));
    IS_OK(path_join(place->path, PATH_BYTES, place->directory, name));
}

static void put(const char *path, int64_t at, const void *bytes, size_t count)
{
    const int file = open(path, O_WRONLY | O_CREAT, 0666);

    CHECK(file >= 0);
    CHECK(pwrite(file, bytes, count, (off_t)at) == (ssize_t)count);
    close(file);
}

/* A file with a hole: it has the size, and takes no place. */
static bool make_sparse(const char *path, int64_t bytes)
{
    put(path, 0, "", 1);
    return truncate(path, (off_t)bytes) == 0;
}

/* .bin and .idx of `documents` documents of as many 2-byte tokens each. */
static bool make_megatron(const struct place *place, int64_t documents,
                          int64_t tokens)
{
    unsigned char head[34] = "MMIDIDX\0\0\1";
    char bin[PATH_BYTES];
    int64_t at = sizeof head;
    const int32_t length = (int32_t)tokens;

    snprintf(bin, sizeof bin, "%.*sbin", (int)strlen(place->path) - 3,
             place->path);
    head[17] = 8;
    memcpy(head + 18, &documents, 8);
    documents++;
    memcpy(head + 26, &documents, 8);
    documents--;
    put(place->path, 0, head, sizeof head);
    for (int64_t i = 0; i < documents; i++, at += 4)
        put(place->path, at, &length, 4);
    for (int64_t i = 0; i < documents; i++, at += 8) {
        const int64_t offset = 2 * i * tokens;

        put(place->path, at, &offset, 8);
    }
    for (int64_t i = 0; i <= documents; i++, at += 8)
        put(place->path, at, &i, 8);
    return make_sparse(bin, 2 * documents * tokens);
}

static status open_for(struct token_set *set, const struct place *place,
                       int64_t vocab)
{
    static const char *paths[1];

    paths[0] = place->path;
    return token_set_open(set, &(struct token_set_request){
                                   .paths = paths, .count = 1, .vocab = vocab,
                                   .end_token = END, .cache = place->cache});
}

static status open_set(struct token_set *set, const struct place *place)
{
    return open_for(set, place, 0);
}

static long pages_touched(void)
{
    struct rusage usage;

    CHECK(getrusage(RUSAGE_THREAD, &usage) == 0);
    return usage.ru_minflt + usage.ru_majflt;
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Opening 100 GB touches the table and a few pages of code and stack: 24 KiB of
 * table here, where reading it all would be 24 million pages. */
TEST(a_file_of_100_gigabytes_opens_by_its_table)
{
    const int64_t bytes = 100000000000;
    struct token_set set;
    struct place place;
    long touched;
    double began;
    int32_t ids[2];

    begin(&place, "a.idx");
    if (!make_megatron(&place, 1000, bytes / 2000)) {
        print_message("no file of 100 GB can be made here\n");
        IS_OK(directory_remove(place.directory));
        return;
    }
    touched = pages_touched();
    began = now_s();
    IS_OK(open_set(&set, &place));
    print_message("opened in %.2f ms\n", 1e3 * (now_s() - began));
    CHECK(pages_touched() - touched < 500);
    EQUAL_INT(set.tokens, bytes / 2);
    EQUAL_INT(set.documents, 1000);
    CHECK(set.files[0].unread);
    IS_OK(token_set_read(&set, set.tokens - 2, 2, 10, ids));
    EQUAL_INT(ids[1], 0);
    began = now_s();
    token_set_close(&set); /* the check beside ends early */
    print_message("closed in %.2f ms\n", 1e3 * (now_s() - began));
    IS_OK(directory_remove(place.directory));
}

TEST(what_was_opened_unread_is_read_and_sealed)
{
    struct token_set set, other;
    struct token_file file;
    struct place place;
    uint32_t crc;

    begin(&place, "a.idx");
    CHECK(make_megatron(&place, 65, 1 << 19));
    IS_OK(token_file_open(&file, place.path));
    IS_OK(token_file_verify(&file));
    crc = file.crc;
    token_file_close(&file);
    IS_OK(open_set(&set, &place));
    CHECK(set.files[0].unread);
    IS_OK(open_set(&other, &place)); /* at once: one reads for both */
    IS_OK(token_set_settle(&set));
    EQUAL_INT(set.crc, crc);
    IS_OK(token_set_settle(&other));
    EQUAL_INT(other.crc, crc);
    EQUAL_INT(other.key, set.key);
    token_set_close(&other);
    token_set_close(&set);
    IS_OK(open_set(&set, &place)); /* the seal says it at once */
    CHECK(!set.files[0].unread && set.check == NULL);
    EQUAL_INT(set.crc, crc);
    token_set_close(&set);
    IS_OK(directory_remove(place.directory));
}

TEST(a_change_of_what_had_a_seal_is_known_at_once)
{
    static const uint16_t id = 5;
    char bin[PATH_BYTES];
    struct token_set set;
    struct place place;
    uint32_t crc;

    begin(&place, "a.idx");
    CHECK(make_megatron(&place, 65, 1 << 19));
    IS_OK(path_join(bin, sizeof bin, place.directory, "a.bin"));
    IS_OK(open_set(&set, &place));
    IS_OK(token_set_settle(&set));
    crc = set.crc;
    token_set_close(&set);
    put(bin, LARGE / 2, &id, sizeof id);
    IS_OK(open_set(&set, &place));
    CHECK(!set.files[0].unread);
    CHECK(set.crc != crc);
    token_set_close(&set);
    CHECK(truncate(bin, LARGE - 100) == 0);
    FAILS(open_set(&set, &place), ERR_FORMAT, "truncated");
    token_set_close(&set);
    IS_OK(directory_remove(place.directory));
}

TEST(what_reading_finds_is_an_error_of_settling)
{
    static const int32_t wrong = -5;
    const int64_t end = LARGE / 4;
    char index[PATH_BYTES];
    struct token_set set;
    struct place place;

    begin(&place, "a.ds");
    IS_OK(path_join(index, sizeof index, place.directory, "a.ds.index"));
    put(index, 0, &end, sizeof end);
    CHECK(make_sparse(place.path, LARGE));
    put(place.path, LARGE / 2, &wrong, sizeof wrong);
    IS_OK(open_set(&set, &place));
    CHECK(set.files[0].unread);
    FAILS(token_set_settle(&set), ERR_FORMAT, "token 8519680 is 4294967291");
    token_set_close(&set);
    IS_OK(directory_remove(place.directory));
}

/* Whole, and none that a model of fewer tokens can learn from: said by the
 * check, by a sample that is there first, and by the seal. */
TEST(ids_are_compared_with_the_vocabulary)
{
    static const int32_t high = 70000;
    static const char sentence[] =
        "a.ds: token 8519680 is 70000, outside the model's vocabulary of ";
    const int64_t end = LARGE / 4;
    char index[PATH_BYTES];
    struct token_set set;
    struct place place;
    int64_t read = 0, bytes = 0;
    int32_t ids[2];

    begin(&place, "a.ds");
    IS_OK(path_join(index, sizeof index, place.directory, "a.ds.index"));
    put(index, 0, &end, sizeof end);
    CHECK(make_sparse(place.path, LARGE));
    put(place.path, LARGE / 2, &high, sizeof high);
    IS_OK(open_for(&set, &place, 70000));
    CHECK(set.files[0].unread);
    FAILS(token_set_read(&set, LARGE / 8 - 1, 2, 70000, ids), ERR_CONFIG,
          sentence);
    FAILS(token_set_settle(&set), ERR_CONFIG, sentence);
    token_set_close(&set);
    IS_OK(open_for(&set, &place, 70001)); /* it left no seal */
    CHECK(set.files[0].unread);
    IS_OK(token_set_settle(&set));
    CHECK(token_set_settled(&set, &read, &bytes) && bytes == 0);
    EQUAL_INT(set.files[0].largest, high);
    token_set_close(&set);
    FAILS(open_for(&set, &place, 70000), ERR_CONFIG, sentence);
    token_set_close(&set);
    IS_OK(directory_remove(place.directory));
}

static void note(void *argument, double done, double total)
{
    double *last = argument;

    CHECK(done > last[0] && done <= total);
    last[0] = done;
    last[1] = total;
}

TEST(reading_to_open_is_told)
{
    static const char *paths[1];
    const int64_t passes[] = {2, 0, 1}; /* unknown; known; without the table */
    struct token_set set;
    struct place place;
    char kept[PATH_BYTES], name[32], hex[65];

    begin(&place, "a.u16");
    paths[0] = place.path;
    CHECK(make_sparse(place.path, LARGE));
    sha256_hex(place.path, strlen(place.path), hex);
    snprintf(name, sizeof name, "%.16s.seal.starts", hex);
    IS_OK(path_join(kept, sizeof kept, place.cache, name));
    for (int round = 0; round < 3; round++) {
        double last[2] = {0, 0};

        if (round == 2) CHECK(unlink(kept) == 0);
        IS_OK(token_set_open(&set, &(struct token_set_request){
                                       .paths = paths, .count = 1,
                                       .end_token = END, .cache = place.cache,
                                       .progress = note, .argument = last}));
        CHECK(last[0] == last[1]);
        CHECK(last[1] == (double)(passes[round] * LARGE));
        token_set_close(&set);
    }
    IS_OK(directory_remove(place.directory));
}

/* Against a loop that looks at one token after the other. */
TEST(documents_are_found_wherever_they_end)
{
    enum { TOKENS = 5000 };
    static const char *const names[] = {"a.u16", "a.u32"};
    const struct random_key key = random_key_make(5, "test");
    unsigned char bytes[4 * TOKENS] = {0};
    struct token_file file;
    struct place place;

    for (int round = 0; round < 40; round++) {
        const int size = round % 2 == 0 ? 2 : 4;
        const int count = round < 4 ? TOKENS : 1 + 127 * round;
        int64_t documents = 0;

        begin(&place, names[round % 2]);
        memset(bytes, 0, sizeof bytes);
        for (int i = 0; i < count; i++)
            bytes[size * i] = (unsigned char)
                random_below(key, (uint64_t)(round * TOKENS + i),
                             round < 2 ? 8 : 200 + 20 * (uint64_t)round % 50);
        bytes[size * (count - 1)] = round % 3 == 0 ? END : 1;
        put(place.path, 0, bytes, (size_t)(size * count));
        IS_OK(token_file_open(&file, place.path));
        IS_OK(token_file_split(&file, END, NULL));
        for (int i = 0; i < count; i++)
            if (i == 0 || bytes[size * (i - 1)] == END)
                EQUAL_INT(token_file_start(&file, documents++), i);
        EQUAL_INT(file.documents, documents);
        EQUAL_INT(token_file_start(&file, documents), count);
        token_file_close(&file);
        IS_OK(directory_remove(place.directory));
    }
}

TEST(found_documents_are_kept)
{
    static const uint16_t end = END;
    struct token_set set;
    struct place place;
    char kept[PATH_BYTES], **names;
    struct text bytes;
    int count, found = 0;

    begin(&place, "a.u16");
    CHECK(make_sparse(place.path, LARGE));
    for (int64_t i = 1; i <= 60; i++)
        put(place.path, i << 20, &end, sizeof end);
    for (int round = 0; round < 3; round++) {
        IS_OK(open_set(&set, &place));
        EQUAL_INT(set.documents, 61);
        EQUAL_INT(token_set_start(&set, 2), (1 << 20) + 1);
        EQUAL_INT(set.files[0].starts_map.bytes != NULL, round == 1);
        token_set_close(&set);
        IS_OK(directory_list(place.cache, &names, &count));
        for (int i = 0; i < count; i++)
            if (strstr(names[i], ".starts") != NULL) {
                IS_OK(path_join(kept, sizeof kept, place.cache, names[i]));
                found++;
            }
        directory_list_free(names, count);
        EQUAL_INT(found, round + 1);
        if (round != 1) continue; /* then it is damaged, and made again */
        IS_OK(file_read(kept, 1 << 20, &bytes));
        bytes.bytes[100] ^= 1;
        IS_OK(file_write_atomic(kept, bytes.bytes, bytes.length));
        text_free(&bytes);
    }
    IS_OK(directory_remove(place.directory));
}

TEST_MAIN(a_file_of_100_gigabytes_opens_by_its_table,
          what_was_opened_unread_is_read_and_sealed,
          a_change_of_what_had_a_seal_is_known_at_once,
          what_reading_finds_is_an_error_of_settling,
          ids_are_compared_with_the_vocabulary, reading_to_open_is_told,
          documents_are_found_wherever_they_end,
          found_documents_are_kept)
