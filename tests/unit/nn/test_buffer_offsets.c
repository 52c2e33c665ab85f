/* SPDX-License-Identifier: Apache-2.0 */
/* test_buffer_offsets.c - offsets are those of a search among all buffers, at a
 * cost that grows with their number and not with its square. */
#include <time.h>

#include "base/random.h"
#include "nn/buffer_offsets.h"
#include "tests/test.h"

enum { MOST = 240, DRAWS = 300, LAYERS = 20000 };

/* The largest first (the first of equal ones), each at the lowest offset that
 * no placed one alive at the same time covers. */
static int64_t place_slowly(struct placed_buffer *rooms, int count)
{
    bool placed[MOST] = {false};
    int64_t most = 0;

    for (int n = 0; n < count; n++) {
        int best = -1;
        bool moved = true;

        for (int i = 0; i < count; i++)
            if (!placed[i] &&
                (best < 0 || rooms[i].bytes > rooms[best].bytes))
                best = i;
        struct placed_buffer *room = &rooms[best];

        room->offset = 0;
        while (moved) {
            moved = false;
            for (int i = 0; i < count; i++) {
                const struct placed_buffer *other = &rooms[i];

                if (!placed[i] || other->last < room->first ||
                    room->last < other->first ||
                    other->offset + other->bytes <= room->offset ||
                    other->offset >= room->offset + room->bytes)
                    continue;
                room->offset = other->offset + other->bytes;
                moved = true;
            }
        }
        placed[best] = true;
        if (room->offset + room->bytes > most)
            most = room->offset + room->bytes;
    }
    return most;
}

static int64_t draw(uint64_t *at, int64_t below)
{
    return (int64_t)random_below(random_key_make(7, "rooms"), (*at)++,
                                 (uint64_t)below);
}

TEST(offsets_are_those_of_a_search_among_all)
{
    static struct placed_buffer rooms[MOST], slow[MOST];
    uint64_t at = 0;

    for (int n = 0; n < DRAWS; n++) {
        const int count = (int)draw(&at, MOST) + 1;
        const int events = (int)draw(&at, 500) + 1;
        const int64_t sizes = draw(&at, 40) + 1;
        int64_t most;

        for (int i = 0; i < count; i++) {
            const int first = (int)draw(&at, events);

            rooms[i] = (struct placed_buffer){
                .bytes = draw(&at, sizes) * 64, .first = first,
                .last = first + (int)draw(&at, events - first)};
            slow[i] = rooms[i];
        }
        IS_OK(buffers_place(rooms, count, events, &most));
        EQUAL_INT(most, place_slowly(slow, count));
        for (int i = 0; i < count; i++)
            EQUAL_INT(rooms[i].offset, slow[i].offset);
    }
}

/* Layers keep some rows from F to B; their B needs others for a moment. */
TEST(many_layers_take_a_moment)
{
    static struct placed_buffer rooms[4 * LAYERS];
    const clock_t begin = clock();
    int64_t most;

    for (int i = 0; i < LAYERS; i++) {
        const int f = 2 * i, b = 4 * LAYERS - 2 * i - 2;

        rooms[4 * i] = (struct placed_buffer){640, f, b, 0};
        rooms[4 * i + 1] = (struct placed_buffer){128, f + 1, b + 1, 0};
        rooms[4 * i + 2] = (struct placed_buffer){256, b, b + 1, 0};
        rooms[4 * i + 3] = (struct placed_buffer){640, b, b, 0};
    }
    IS_OK(buffers_place(rooms, 4 * LAYERS, 4 * LAYERS, &most));
    CHECK(most >= (640 + 128) * (int64_t)LAYERS);
    /* All pairs: more than a minute. */
    CHECK((clock() - begin) / CLOCKS_PER_SEC < 15);
}

TEST(sizes_beyond_63_bits_are_refused)
{
    struct placed_buffer rooms[] = {{INT64_MAX - 64, 0, 1, 0}, {128, 0, 1, 0}};
    int64_t most;

    FAILS(buffers_place(rooms, 2, 2, &most), ERR_CONFIG, "2^63 bytes");
}

TEST_MAIN(offsets_are_those_of_a_search_among_all, many_layers_take_a_moment,
          sizes_beyond_63_bits_are_refused)
