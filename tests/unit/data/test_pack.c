/* SPDX-License-Identifier: Apache-2.0 */
/* test_pack.c - mirrors src/data/pack.c: every token once, nothing cut that
 * fits, tight. */
#include "data/pack.h"

#include "base/random.h"
#include "tests/test.h"

enum { DOCUMENTS = 140000 };

static int64_t starts[DOCUMENTS + 1];

static int64_t start(const void *context, int64_t index)
{
    (void)context;
    return starts[index];
}

static struct pack_source source_of(int64_t documents, int64_t sequence)
{
    return (struct pack_source){.documents = documents, .sequence = sequence,
                                .start = start};
}

static status build(struct pack *pack, int64_t documents, int64_t sequence)
{
    const struct pack_source source = source_of(documents, sequence);

    return pack_build(pack, &source);
}

/* Every token lies in one fragment; fragments that are cut begin whole
 * samples. */
static void check(const struct pack *pack, int64_t documents,
                  int64_t sequence)
{
    static unsigned char seen[16 << 20];
    int64_t padding = 0, tokens = 0;

    memset(seen, 0, (size_t)starts[documents]);
    for (int64_t s = 0; s < pack->samples; s++) {
        int64_t count = 0;

        for (int64_t i = pack->first[s]; i < pack->first[s + 1]; i++) {
            count += pack->fragments[i].count;
            for (int64_t t = 0; t < pack->fragments[i].count; t++)
                EQUAL_INT(seen[pack->fragments[i].at + t]++, 0);
        }
        CHECK(count > 0 && count <= sequence);
        padding += sequence - count;
        tokens += count;
    }
    EQUAL_INT(tokens, starts[documents]);
    EQUAL_INT(padding, pack->padding);
    EQUAL_INT(pack->first[pack->samples], pack->fragment_count);
}

TEST(the_drawing_in_the_header_is_true)
{
    static const int64_t lengths[] = {10, 3, 5, 2};
    struct pack pack;

    for (int i = 0; i < 4; i++) starts[i + 1] = starts[i] + lengths[i];
    IS_OK(build(&pack, 4, 6));
    check(&pack, 4, 6);
    EQUAL_INT(pack.samples, 4);
    EQUAL_INT(pack.fragments[pack.first[2]].at, 6); /* AAAA, with DD */
    EQUAL_INT(pack.first[3] - pack.first[2], 2);
    EQUAL_INT(pack.padding, 4);
    pack_free(&pack);
}

TEST(random_documents_are_packed_tightly)
{
    static const int64_t sequences[] = {1, 63, 64, 65, 256, 5000};
    const struct random_key key = random_key_make(3, "test");

    for (int i = 0; i < DOCUMENTS; i++)
        starts[i + 1] = starts[i] +
                        (int64_t)random_below(key, (uint64_t)i,
                                              i % 7 ? 80 : 400);
    for (int r = 0; r < ROWS(sequences); r++) {
        struct pack pack;

        IS_OK(build(&pack, DOCUMENTS, sequences[r]));
        check(&pack, DOCUMENTS, sequences[r]);
        CHECK(sequences[r] < 256 ||
              (double)pack.padding <
                  0.005 * (double)(pack.samples * sequences[r]));
        pack_free(&pack);
    }
}

TEST(documents_without_tokens_are_nothing)
{
    struct pack pack;

    memset(starts, 0, sizeof starts);
    IS_OK(build(&pack, 10, 4));
    EQUAL_INT(pack.samples, 0);
    pack_free(&pack);
}

TEST_MAIN(the_drawing_in_the_header_is_true,
          random_documents_are_packed_tightly,
          documents_without_tokens_are_nothing)
