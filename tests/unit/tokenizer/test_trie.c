/* SPDX-License-Identifier: Apache-2.0 */
/* test_trie.c - mirrors src/tokenizer/trie.c and unigram.c: what a trie of
 * random keys finds, against a plain search; sums of scores worked out by hand.
 * */
#include "tokenizer/trie.h"

#include <string.h>
#include "tokenizer/unigram.h"
#include "tests/test.h"

enum { KEYS = 3000, KEY_BYTES = 6 };

/* Keys over three bytes share many beginnings; some are the same. */
static void make_keys(unsigned char bytes[][KEY_BYTES], struct trie_key *keys)
{
    uint32_t state = 12345;

    for (int i = 0; i < KEYS; i++) {
        const size_t length = 1 + (state >> 16) % KEY_BYTES;

        for (int j = 0; j < KEY_BYTES; j++) {
            state = state * 1664525 + 1013904223;
            bytes[i][j] = (unsigned char)("\x01\x7F\xFF"[(state >> 24) % 3]);
        }
        keys[i] = (struct trie_key){bytes[i], length, i};
    }
}

static int32_t find(const struct trie *trie, const unsigned char *bytes,
                    size_t length)
{
    int32_t node = 0;

    for (size_t i = 0; i < length && node >= 0; i++)
        node = trie_step(trie, node, bytes[i]);
    return node < 0 ? -1 : trie->units[node].id;
}

TEST(every_key_is_found_and_nothing_else)
{
    static unsigned char bytes[KEYS][KEY_BYTES];
    static struct trie_key keys[KEYS], sorted[KEYS];
    struct trie trie = {0};
    unsigned char word[2] = {0, 0};

    make_keys(bytes, keys);
    memcpy(sorted, keys, sizeof keys);
    IS_OK(trie_build(&trie, sorted, KEYS));
    for (int i = 0; i < KEYS; i++) {
        int32_t last = -1; /* of the same bytes */

        for (int j = 0; j < KEYS; j++)
            if (keys[j].length == keys[i].length &&
                memcmp(keys[j].bytes, keys[i].bytes, keys[i].length) == 0)
                last = j;
        EQUAL_INT(find(&trie, keys[i].bytes, keys[i].length), last);
    }
    for (int i = 0; i < 256; i++) { /* no key has any of these bytes */
        word[0] = (unsigned char)i;
        if (i != 0x01 && i != 0x7F && i != 0xFF)
            EQUAL_INT(find(&trie, word, 1), -1);
    }
    trie_free(&trie);
    IS_OK(trie_build(&trie, NULL, 0));
    EQUAL_INT(find(&trie, word, 1), -1);
    trie_free(&trie);
}

struct taken { char text[64]; };

static status take(void *context, int32_t id, size_t start, size_t stop)
{
    struct taken *taken = context;
    const size_t used = strlen(taken->text);

    snprintf(taken->text + used, sizeof taken->text - used, "%d:%zu-%zu ", id,
             start, stop);
    return OK;
}

static void cut(const char *word, const double *scores, bool single,
                const char *expected)
{
    static const char *const names[] = {"a", "b", "ab", "aa", "aba"};
    struct trie_key keys[5];
    struct unigram unigram = {.scores = scores, .unknown_score = -20,
                              .single = single};
    struct unigram_nodes nodes = {0};
    struct taken taken = {""};

    for (int i = 0; i < 5; i++)
        keys[i] = (struct trie_key){(const unsigned char *)names[i],
                                    strlen(names[i]), i};
    IS_OK(trie_build(&unigram.trie, keys, 5));
    IS_OK(unigram_run(&unigram, &nodes, (const unsigned char *)word,
                      strlen(word), take, &taken));
    EQUAL_TEXT(taken.text, expected);
    unigram_nodes_free(&nodes);
    unigram_free(&unigram);
}

TEST(the_largest_sum_wins)
{
    static const double even[] = {-1, -1, -2, -2, -9};
    static const double pairs[] = {-1, -1, -1.5, -1.5, -2.2};

    /* All sums are equal: the first one found stays. */
    cut("abaa", even, false, "2:0-2 3:2-4 ");
    cut("aba", pairs, false, "4:0-3 ");
    cut("aaa", pairs, false, "0:0-1 3:1-3 ");
    cut("", pairs, false, "");
    /* Text that no token spells is unknown, one character at a time. */
    cut("a\xC3\xA9z" "b", pairs, false, "0:0-1 -1:1-3 -1:3-4 1:4-5 ");
}

/* -0.1 twice is more than -0.2 in double, but equal in float. */
TEST(sums_are_rounded_as_the_library_does)
{
    const double scores[] = {(double)-0.1f, -9, -9, (double)-0.2f - 1e-12, -9};

    cut("aa", scores, false, "0:0-1 0:1-2 ");
    cut("aa", scores, true, "3:0-2 ");
}

TEST_MAIN(every_key_is_found_and_nothing_else, the_largest_sum_wins,
          sums_are_rounded_as_the_library_does)
