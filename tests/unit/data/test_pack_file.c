/* SPDX-License-Identifier: Apache-2.0 */
/* test_pack_file.c - mirrors src/data/pack_file.c: the index of a file is that
 * of memory; damage, other documents and two at once. */
#include "data/pack_file.h"

#include <pthread.h>

#include "base/random.h"
#include "tests/test.h"

enum { DOCUMENTS = 150000, SEQUENCE = 256 };

static int64_t starts[DOCUMENTS + 1];

/* context: counts calls, NULL: nobody does. */
static int64_t start(const void *context, int64_t index)
{
    if (context != NULL) ++*(int64_t *)(uintptr_t)context;
    return starts[index];
}

static struct pack_facts facts_of(void)
{
    return (struct pack_facts){
        .set = 5, .documents = DOCUMENTS,
        .tokens = (uint64_t)starts[DOCUMENTS], .sequence = SEQUENCE};
}

static void prepare(char cache[PATH_BYTES], struct pack_source *source)
{
    const struct random_key key = random_key_make(3, "test");

    for (int i = 0; i < DOCUMENTS; i++)
        starts[i + 1] = starts[i] + 1 +
                        (int64_t)random_below(key, (uint64_t)i,
                                              i % 7 ? 80 : 900);
    test_directory(cache);
    *source = (struct pack_source){.documents = DOCUMENTS,
                                   .sequence = SEQUENCE, .start = start};
}

static void open_kept(struct pack *pack, const struct pack_source *source,
                      const struct pack_facts *facts, const char *cache)
{
    bool kept;

    IS_OK(pack_file_open(pack, source, facts, cache, &kept));
    CHECK(kept);
}

static void only_file(const char *cache, char path[PATH_BYTES])
{
    char **names;
    int count;

    IS_OK(directory_list(cache, &names, &count));
    EQUAL_INT(count, 1);
    IS_OK(path_join(path, PATH_BYTES, cache, names[0]));
    directory_list_free(names, count);
}

TEST(the_kept_index_is_that_of_memory)
{
    char cache[PATH_BYTES], path[PATH_BYTES];
    struct pack_source source;
    struct pack memory, file;
    int64_t calls = 0;

    prepare(cache, &source);
    struct pack_facts now = facts_of();

    IS_OK(pack_build(&memory, &source));
    for (int round = 0; round < 2; round++) { /* made; found */
        source.context = round == 1 ? &calls : NULL;
        open_kept(&file, &source, &now, cache);
        only_file(cache, path);
        EQUAL_INT(file.samples, memory.samples);
        EQUAL_INT(file.fragment_count, memory.fragment_count);
        EQUAL_INT(file.padding, memory.padding);
        EQUAL_BYTES(file.first, memory.first,
                    8 * (size_t)(memory.samples + 1));
        EQUAL_BYTES(file.fragments, memory.fragments,
                    16 * (size_t)memory.fragment_count);
        for (int64_t s = 0; s < file.samples; s++)
            IS_OK(pack_file_check(&file, s));
        pack_free(&file);
    }
    EQUAL_INT(calls, 0); /* no document was looked at */
    now.set++;           /* others: an index of their own */
    source.context = &calls;
    open_kept(&file, &source, &now, cache);
    CHECK(calls > DOCUMENTS);
    pack_free(&file);
    pack_free(&memory);
    IS_OK(directory_remove(cache));
}

TEST(damage_is_made_again_or_named)
{
    char cache[PATH_BYTES], path[PATH_BYTES];
    struct pack_source source;
    struct pack_facts facts;
    struct pack pack;
    struct text bytes;
    int64_t calls = 0, samples, named = 0;

    prepare(cache, &source);
    facts = facts_of();
    open_kept(&pack, &source, &facts, cache);
    samples = pack.samples;
    pack_free(&pack);
    only_file(cache, path);
    IS_OK(file_read(path, 1 << 26, &bytes));
    source.context = &calls;
    /* Damage in the header is seen at once, and the file is made again. */
    bytes.bytes[80] ^= 1;
    IS_OK(file_write_atomic(path, bytes.bytes, bytes.length));
    open_kept(&pack, &source, &facts, cache);
    CHECK(calls > DOCUMENTS);
    EQUAL_INT(pack.samples, samples);
    pack_free(&pack);
    /* A fragment of the middle is seen by the samples that lie there. */
    bytes.bytes[80] ^= 1;
    bytes.bytes[128 + 16 * 40000] ^= 1;
    IS_OK(file_write_atomic(path, bytes.bytes, bytes.length));
    open_kept(&pack, &source, &facts, cache);
    for (int64_t s = 0; s < samples; s++) {
        const status result = pack_file_check(&pack, s);

        CHECK(result == OK || result == ERR_FORMAT);
        named += result != OK;
        status_clear();
    }
    CHECK(named > 0 && named < 2 * 4096 / 16 + 2);
    pack_free(&pack);
    /* A file that is cut is made again. */
    IS_OK(file_write_atomic(path, bytes.bytes, bytes.length - 4));
    open_kept(&pack, &source, &facts, cache);
    IS_OK(pack_file_check(&pack, samples - 1));
    pack_free(&pack);
    text_free(&bytes);
    IS_OK(directory_remove(cache));
}

/* A fragment of the middle is damaged while the file is used. */
TEST(a_plan_in_use_is_made_again)
{
    char cache[PATH_BYTES], path[PATH_BYTES];
    struct pack_source source;
    struct pack_facts facts, found;
    struct pack pack, other, memory;
    struct text bytes;
    int64_t bad = -1;

    prepare(cache, &source);
    facts = facts_of();
    IS_OK(pack_build(&memory, &source));
    open_kept(&pack, &source, &facts, cache);
    pack_free(&pack);
    only_file(cache, path);
    IS_OK(pack_file_verify(path, &found));
    EQUAL_BYTES(&found, &facts, sizeof facts);
    IS_OK(file_read(path, 1 << 26, &bytes));
    bytes.bytes[128 + 16 * 40000] ^= 1;
    IS_OK(file_write_atomic(path, bytes.bytes, bytes.length));
    FAILS(pack_file_verify(path, &found), ERR_FORMAT, "a checksum of its "
                                                      "fragments is wrong");
    open_kept(&pack, &source, &facts, cache);
    open_kept(&other, &source, &facts, cache); /* another rank */
    while (pack_file_check(&pack, ++bad) == OK) CHECK(bad < pack.samples);
    IS_OK(pack_file_renew(&pack, &source, &facts, cache, bad));
    EQUAL_BYTES(pack.first, memory.first, 8 * (size_t)(memory.samples + 1));
    EQUAL_BYTES(pack.fragments, memory.fragments,
                16 * (size_t)memory.fragment_count);
    IS_OK(pack_file_check(&pack, bad));
    IS_OK(pack_file_verify(path, &found));
    CHECK(pack_file_check(&other, bad) == ERR_FORMAT);
    IS_OK(pack_file_renew(&other, &(struct pack_source){0}, &facts, cache,
                          bad)); /* finds what the first one made */
    IS_OK(pack_file_check(&other, bad));
    pack_free(&other);
    /* Without a place for it: in memory. */
    IS_OK(file_write_atomic(path, bytes.bytes, bytes.length));
    open_kept(&other, &source, &facts, cache);
    CHECK(pack_file_check(&other, bad) == ERR_FORMAT);
    IS_OK(directory_remove(cache));
    IS_OK(pack_file_renew(&other, &source, &facts, cache, bad));
    CHECK(other.image == NULL);
    EQUAL_BYTES(other.fragments, memory.fragments,
                16 * (size_t)memory.fragment_count);
    pack_free(&other);
    pack_free(&pack);
    pack_free(&memory);
    text_free(&bytes);
}

struct one {
    const struct pack_source *source;
    const struct pack_facts *facts;
    const char *cache;
    struct pack pack;
};

static void *open_one(void *argument)
{
    struct one *one = argument;
    bool kept;

    IS_OK(pack_file_open(&one->pack, one->source, one->facts, one->cache,
                         &kept));
    CHECK(kept);
    return NULL;
}

TEST(two_may_make_it_at_once)
{
    enum { COUNT = 3 };
    char cache[PATH_BYTES], path[PATH_BYTES];
    struct pack_source source;
    struct pack_facts facts;
    struct one ones[COUNT];
    pthread_t threads[COUNT];

    prepare(cache, &source);
    facts = facts_of();
    for (int i = 0; i < COUNT; i++) {
        ones[i] = (struct one){&source, &facts, cache, {0}};
        EQUAL_INT(pthread_create(&threads[i], NULL, open_one, &ones[i]), 0);
    }
    for (int i = 0; i < COUNT; i++) pthread_join(threads[i], NULL);
    only_file(cache, path); /* and nothing temporary */
    for (int i = 0; i < COUNT; i++) {
        EQUAL_INT(ones[i].pack.samples, ones[0].pack.samples);
        IS_OK(pack_file_check(&ones[i].pack, ones[i].pack.samples - 1));
    }
    for (int i = 0; i < COUNT; i++) pack_free(&ones[i].pack);
    IS_OK(directory_remove(cache));
}

TEST(without_a_place_nothing_is_kept)
{
    char cache[PATH_BYTES], path[PATH_BYTES];
    struct pack_source source;
    struct pack_facts facts;
    struct pack pack;
    bool kept = true;

    prepare(cache, &source);
    facts = facts_of();
    IS_OK(path_join(path, sizeof path, cache, "file"));
    IS_OK(file_write_atomic(path, "a", 1)); /* a file: no directory is made */
    IS_OK(pack_file_open(&pack, &source, &facts, path, &kept));
    CHECK(!kept);
    IS_OK(directory_remove(cache));
}

TEST_MAIN(the_kept_index_is_that_of_memory, damage_is_made_again_or_named,
          a_plan_in_use_is_made_again,
          two_may_make_it_at_once, without_a_place_nothing_is_kept)
