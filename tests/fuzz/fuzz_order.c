/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_order.c - is a run's order of samples a bijection, of any number of
 * samples under any seed, and are ranges that are left out the only gaps?
 *
 *    8 bytes   seed              2   samples of a small corpus, less one
 *    8         samples of a large one
 *    3 each    a range that is left out: place (16 bits), how many, less 1 */
#include <stdlib.h>
#include <string.h>
#include "base/random.h"
#include "data/ranges.h"
#include "tests/fuzz/mutate.h"

enum { HEAD = 18, RANGE = 3, PLACES = 1 << 16, LARGE_LOOKS = 64,
       RANGES = 100 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every sample once. */
static void check_small(struct random_key key, uint64_t count)
{
    static uint8_t seen[PLACES];

    memset(seen, 0, (size_t)count);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t at = random_permute(key, count, i);

        CHECK(at < count && seen[at] == 0);
        seen[at] = 1;
    }
}

/* Neighbours of a large corpus, from its beginning and at its end. */
static void check_large(struct random_key key, uint64_t count)
{
    uint64_t found[LARGE_LOOKS];

    for (uint64_t i = 0; i < LARGE_LOOKS && i < count; i++) {
        found[i] = random_permute(key, count,
                                  i % 2 == 0 ? i / 2 : count - 1 - i / 2);
        CHECK(found[i] < count);
        for (uint64_t k = 0; k < i; k++) CHECK(found[k] != found[i]);
    }
}

/* The places that are read are all but those that are left out, in order. */
static void check_ranges(const uint8_t *data, size_t size)
{
    static uint8_t out[PLACES + 256 + 1];
    struct ranges ranges = {.count = 0};
    int64_t place = 0, end = 0;

    memset(out, 0, sizeof out);
    for (size_t i = 0; i + RANGE <= size && i < RANGES * RANGE; i += RANGE) {
        const int64_t first = data[i] | data[i + 1] << 8;
        const int64_t count = data[i + 2] + 1;

        CHECK(ranges_add(&ranges, first, first + count) == OK);
        memset(out + first, 1, (size_t)count);
        if (first + count > end) end = first + count;
    }
    for (int64_t i = 0; place < end; i++, place++) {
        while (out[place]) place++;
        if (i % 97 == 0 || place + 1 >= end)
            CHECK(ranges_at(&ranges, 0, i) == place);
    }
    ranges_free(&ranges);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t seed, large;
    uint16_t small;

    if (size < HEAD) return 0;
    memcpy(&seed, data, sizeof seed);
    memcpy(&small, data + 8, sizeof small);
    memcpy(&large, data + 10, sizeof large);
    const struct random_key key = random_key_make(seed, "order");

    check_small(key, (uint64_t)small % 2048 + 1);
    check_large(key, large % (UINT64_C(1) << 62) + 1);
    check_ranges(data + HEAD, size - HEAD);
    return 0;
}

/* ---- the mutator ---- */

/* Ranges that touch, overlap and hold each other. */
static void draw_range(uint8_t *out)
{
    static const uint32_t firsts[] = {0, 1, 255, 256, 257, PLACES - 256,
                                      PLACES - 1};
    static uint32_t end; /* of the one before */
    const uint32_t first = draw(3) == 0 ? firsts[draw(7)]
                           : draw(2) == 0 ? end + (uint32_t)draw(3)
                                          : (uint32_t)draw(PLACES);
    const uint32_t count = draw(2) == 0 ? 1 + (uint32_t)draw(3)
                                        : 1 + (uint32_t)draw(256);

    out[0] = (uint8_t)(first % PLACES);
    out[1] = (uint8_t)(first % PLACES >> 8);
    out[2] = (uint8_t)(count - 1);
    end = first % PLACES + count;
}

/* Sizes around powers of two and of four: the permutation's own. */
static void change_sizes(uint8_t *data)
{
    struct out small = {.bytes = data + 8, .room = 2};
    struct out large = {.bytes = data + 10, .room = 8};

    put_integer(&small, (UINT64_C(1) << draw(12)) - 2 + draw(3), 2);
    put_integer(&large, (UINT64_C(1) << draw(63)) - 2 + draw(3), 8);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    static const struct record_form form = {HEAD, RANGE, RANGES, draw_range};

    mutate_seed(seed);
    if (size >= HEAD && draw(4) == 0) change_sizes(data);
    if (size >= HEAD && draw(4) == 0) mutate_integer(data, HEAD, 0, 8);
    return mutate_record_list(&form, data, size, room);
}
