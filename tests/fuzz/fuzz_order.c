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

enum { HEAD = 18, RANGE = 3, PLACES = 1 << 16, LARGE_LOOKS = 64 };

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
    for (size_t i = 0; i + RANGE <= size && i < 100 * RANGE; i += RANGE) {
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
