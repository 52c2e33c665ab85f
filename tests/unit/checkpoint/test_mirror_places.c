/* SPDX-License-Identifier: Apache-2.0 */
/* test_mirror_places.c - mirrors src/checkpoint/mirror_places.c: names of steps
 * and of their versions. What lies in a storage is judged by
 * tests/drills/storage.sh, with a server. */
#include "checkpoint/mirror_places.h"

#include <string.h>

#include "tests/test.h"

TEST(a_name_is_its_place)
{
    static const struct {
        const char *name;
        struct mirror_place place;
    } rows[] = {{"step-00001000", {1000, 1}}, {"step-00001000-2", {1000, 2}},
                {"step-00000000-17", {0, 17}},
                {"step-123456789-100000", {123456789, 100000}}};

    for (int i = 0; i < ROWS(rows); i++) {
        char name[MIRROR_NAME_BYTES], key[MIRROR_NAME_BYTES + 16];
        struct mirror_place place;

        mirror_place_name(name, &rows[i].place);
        CHECK(strcmp(name, rows[i].name) == 0);
        snprintf(key, sizeof key, "%s/manifest.json", name);
        CHECK(mirror_place_parse(key, &place));
        CHECK(place.step == rows[i].place.step &&
              place.version == rows[i].place.version);
    }
}

TEST(other_names_are_no_places)
{
    static const char *const names[] = {
        "", "/", "step-", "step-1", "step-00001000-", "step-00001000-1",
        "step-00001000-0", "step-00001000-02", "step-00001000-2x",
        "step-00001000-100001", "step-00001000-9999999", "step--0001000",
        "latest", "../step-00001000", "step-00001000-2-3",
        "step-00001000-2222222222222222222222222222222222222222222222222"};
    struct mirror_place place;

    for (int i = 0; i < ROWS(names); i++)
        CHECK(!mirror_place_parse(names[i], &place));
}

/* The newest version that has a manifest; one on its way is none. */
TEST(the_newest_whole_version_counts)
{
    static struct mirror_object objects[] = {
        {{8, 1}, "step-00000008/manifest.json", true},
        {{8, 3}, "step-00000008-3/manifest.json", true},
        {{8, 4}, "step-00000008-4/model", false},
        {{9, 1}, "step-00000009/model", false}};
    const struct mirror_objects all = {.items = objects, .count = 4};

    CHECK(mirror_version(&all, 8) == 3);
    CHECK(mirror_version(&all, 9) == 0);
    CHECK(mirror_version(&all, 7) == 0);
}

TEST_MAIN(a_name_is_its_place, other_names_are_no_places,
          the_newest_whole_version_counts)
