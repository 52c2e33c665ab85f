/* SPDX-License-Identifier: Apache-2.0 */
/* test_history.c - mirrors src/checkpoint/history.c. */
#include "tests/unit/checkpoint/room.h"
#include "checkpoint/history.h"

TEST(names_of_steps)
{
    static const struct {
        const char *name;
        int64_t step; /* -1: refused */
    } rows[] = {
        {"step-00000000", 0},
        {"step-00001000", 1000},
        {"step-123456789", 123456789},
        {"step-0123456789", -1},
        {"step-0000001", -1},
        {"step-", -1},
        {"step-0000000x", -1},
        {".tmp-step-00000001", -1},
        {"step-00000001 ", -1},
        {"step--0000001", -1},
        {"latest", -1},
        {"step-999999999999", -1},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        int64_t step = -1;
        char name[32];

        CHECK(step_parse(rows[i].name, &step) == (rows[i].step >= 0));
        if (rows[i].step < 0) continue;
        EQUAL_INT(step, rows[i].step);
        step_name(name, step);
        EQUAL_TEXT(name, rows[i].name);
    }
}

TEST(the_pointer_leads_and_its_damage_is_harmless)
{
    char path[PATH_BYTES];
    int64_t step = -1;

    room_open();
    FAILS(checkpoint_find_newest(room, path, &step), ERR_MISSING,
          "no checkpoint");
    small_save(1, 10);
    small_save(2, 20);
    IS_OK(checkpoint_find_newest(room, path, &step));
    EQUAL_INT(step, 20);
    EQUAL_TEXT(path, room_path("ckpt/step-00000020"));
    room_write("ckpt/latest", "step-00000010\n", 14);
    IS_OK(checkpoint_find_newest(room, path, &step));
    EQUAL_INT(step, 10);
    for (int i = 0; i < 6; i++) {
        static const char *const damaged[] = {
            "",
            "\n",
            "step-00000030\n",
            "../../etc\n",
            "step-0000001\n",
            "a text that is much longer than a pointer may be, so it is\n"};

        room_write("ckpt/latest", damaged[i], strlen(damaged[i]));
        IS_OK(checkpoint_find_newest(room, path, &step));
        EQUAL_INT(step, 20);
    }
    room_close();
}

/* One bit in each file of the newest in turn, and each file removed and cut:
 * always the one before is taken, and the notice says why. */
TEST(damage_falls_back_to_the_one_before)
{
    static const struct {
        const char *file;
        size_t byte;
    } rows[] = {
        {"manifest.json", 0},
        {"manifest.json", 130},
        {"manifest.json", 900},
        {"state.json", 3},
        {"config.json", 1},
        {"model.safetensors.index.json", 40},
        {"model-00001-of-00001.safetensors", 2},
        {"model-00001-of-00001.safetensors", 30},
        {"model-00001-of-00001.safetensors", 1500000},
        {"optim-00001-of-00001.safetensors", 3000000},
    };
    char path[128];

    room_open();
    small_save(1, 10);
    small_save(2, 20);
    for (int i = 0; i < 3 * ROWS(rows); i++) {
        const int row = i / 3;
        struct checkpoint checkpoint;
        struct text notice = {0}, before;

        snprintf(path, sizeof path, "ckpt/step-00000020/%s", rows[row].file);
        before = room_read(path);
        if (i % 3 == 0) room_flip(path, rows[row].byte, i % 8);
        if (i % 3 == 1) room_write(path, before.bytes, before.length - 1);
        if (i % 3 == 2) EQUAL_INT(unlink(room_path(path)), 0);
        IS_OK(checkpoint_open_newest_valid(&checkpoint, room, NULL, &notice));
        EQUAL_INT(checkpoint.manifest.step, 10);
        CHECK(strstr(notice.bytes, "step 20 is damaged") != NULL);
        CHECK(strstr(notice.bytes, rows[row].file) != NULL);
        checkpoint_close(&checkpoint);
        text_free(&notice);
        room_write(path, before.bytes, before.length);
        text_free(&before);
    }
    struct checkpoint checkpoint;
    struct text notice = {0};

    IS_OK(checkpoint_open_newest_valid(&checkpoint, room, NULL, &notice));
    EQUAL_INT(checkpoint.manifest.step, 20);
    EQUAL_INT(notice.length, 0);
    checkpoint_close(&checkpoint);
    room_close();
}

TEST(two_damaged_take_the_third_and_none_is_an_error)
{
    static const int64_t steps[] = {10, 20, 30};
    struct checkpoint checkpoint;
    struct text notice = {0};
    char path[128];

    room_open();
    for (int i = 0; i < 3; i++) small_save(i, steps[i]);
    room_flip("ckpt/step-00000030/state.json", 2, 1);
    room_flip("ckpt/step-00000020/manifest.json", 60, 1);
    IS_OK(checkpoint_open_newest_valid(&checkpoint, room, NULL, &notice));
    EQUAL_INT(checkpoint.manifest.step, 10);
    CHECK(strstr(notice.bytes, "step 30") && strstr(notice.bytes, "step 20"));
    checkpoint_close(&checkpoint);
    text_free(&notice);
    snprintf(path, sizeof path, "ckpt/step-00000010/%s",
             "model-00001-of-00001.safetensors");
    room_flip(path, 5000, 7);
    FAILS(checkpoint_open_newest_valid(&checkpoint, room, NULL, &notice),
          ERR_FORMAT, "none of its 3 checkpoints is whole");
    checkpoint_close(&checkpoint);
    text_free(&notice);
    room_close();
}

/* A shard of another step is valid by itself; the checksums know better. */
TEST(exchanged_shards_are_found)
{
    const char *shard = "model-00001-of-00001.safetensors";
    struct checkpoint checkpoint;
    struct text notice = {0}, other;
    char path[128];

    room_open();
    small_save(1, 10);
    small_save(2, 20);
    snprintf(path, sizeof path, "ckpt/step-00000010/%s", shard);
    other = room_read(path);
    snprintf(path, sizeof path, "ckpt/step-00000020/%s", shard);
    room_write(path, other.bytes, other.length);
    text_free(&other);
    IS_OK(checkpoint_open_newest_valid(&checkpoint, room, NULL, &notice));
    EQUAL_INT(checkpoint.manifest.step, 10);
    checkpoint_close(&checkpoint);
    text_free(&notice);
    room_close();
}

static void make_steps(const char *steps)
{
    char path[64], name[32];

    if (file_exists(room_path("ckpt")))
        IS_OK(directory_remove(room_path("ckpt")));
    for (const char *at = steps; *at;) {
        char *end;

        step_name(name, strtoll(at, &end, 10));
        snprintf(path, sizeof path, "ckpt/%s", name);
        IS_OK(directory_make(room_path(path)));
        snprintf(path, sizeof path, "ckpt/%s/manifest.json", name);
        room_write(path, "{}", 2);
        at = *end == ' ' ? end + 1 : end;
    }
}

/* A step that somebody moved to an archive and linked back stays, and so does
 * what it points to; a ckpt that is a link is refused before a removal. */
TEST(prune_never_follows_a_link)
{
    char archive[PATH_BYTES];

    room_open();
    test_directory(archive);
    make_steps("10 20 30 40");
    room_write("ckpt/latest", "step-00000040\n", 14);
    EQUAL_INT(rename(room_path("ckpt/step-00000010"), archive), 0);
    EQUAL_INT(symlink(archive, room_path("ckpt/step-00000010")), 0);
    EQUAL_INT(symlink(archive, room_path("ckpt/.tmp-step-00000050")), 0);
    EQUAL_INT(symlink(archive, room_path("ckpt/.tmp-old-step-00000020")), 0);
    IS_OK(checkpoint_prune(room, 1, 0, -1));
    CHECK(!file_exists(room_path("ckpt/step-00000020")));
    CHECK(!file_exists(room_path("ckpt/step-00000030")));
    CHECK(file_exists(room_path("ckpt/step-00000010/manifest.json")));
    IS_OK(checkpoint_clean(room));
    CHECK(!file_is_link(room_path("ckpt/.tmp-step-00000050")));
    CHECK(file_exists(room_path("ckpt/step-00000010/manifest.json")));
    EQUAL_INT(unlink(room_path("ckpt/step-00000010")), 0);
    EQUAL_INT(rename(room_path("ckpt"), room_path("elsewhere")), 0);
    EQUAL_INT(symlink("elsewhere", room_path("ckpt")), 0);
    FAILS(checkpoint_prune(room, 1, 0, -1), ERR_FORMAT, "ckpt: is a link");
    FAILS(checkpoint_clean(room), ERR_FORMAT, "ckpt: is a link");
    IS_OK(directory_remove(archive));
    room_close();
}

TEST(prune_keeps_what_it_should)
{
    static const struct {
        const char *before;
        int64_t latest, keep_last, keep_every; /* latest -1: no pointer */
        const char *after;
        int64_t best;
    } rows[] = {
        {"10 20 30 40", 40, 1, 0, "20 40 ", 20},
        {"10 20 30 40", 40, 1, 30, "10 30 40 ", 10},
        {"10 20 30 40", 40, 1, 0, "40 ", 25},
        {"10 20 30 40", 40, 2, 0, "30 40 ", -1},
        {"10 20 30 40", 40, 1, 0, "40 ", -1},
        {"10 20 30 40", 40, 9, 0, "10 20 30 40 ", -1},
        {"10 20 30 40 50", 50, 1, 20, "20 40 50 ", -1},
        {"10 20 30 40", 20, 1, 0, "20 30 40 ", -1}, /* a given-up future */
        {"10 20 30 40", -1, 1, 0, "10 20 30 40 ", -1},
        {"0 10 20", 20, 1, 0, "20 ", -1},
        {"5", 5, 1, 0, "5 ", -1},
        {"5 6", 6, 0, 0, "6 ", -1}, /* never what latest names */
    };

    room_open();
    for (int i = 0; i < ROWS(rows); i++) {
        struct text left = {0};
        int64_t *steps = NULL;
        int count = 0;
        char name[32];

        make_steps(rows[i].before);
        if (rows[i].latest >= 0) {
            step_name(name, rows[i].latest);
            strcat(name, "\n");
            room_write("ckpt/latest", name, strlen(name));
        }
        IS_OK(checkpoint_prune(room, rows[i].keep_last, rows[i].keep_every,
                               rows[i].best));
        IS_OK(checkpoint_steps(room, &steps, &count));
        for (int j = 0; j < count; j++)
            IS_OK(text_printf(&left, "%lld ", (long long)steps[j]));
        EQUAL_TEXT(left.bytes, rows[i].after);
        memory_free(steps);
        text_free(&left);
    }
    room_close();
}

/* Guards runs that were killed at each save before `latest` was there: they
 * ended without it. */
TEST(the_newest_gets_a_name_where_latest_names_none)
{
    static const struct { const char *latest; int64_t after; } rows[] = {
        {NULL, 20}, {"", 20}, {"step-00000030\n", 20}, {"nonsense\n", 20},
        {"step-00000010\n", 10},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        char path[PATH_BYTES];
        int64_t step = -1;
        bool named;

        room_open();
        make_steps("10 20");
        if (rows[i].latest != NULL)
            room_write("ckpt/latest", rows[i].latest, strlen(rows[i].latest));
        IS_OK(checkpoint_is_named(room, &named));
        CHECK(named == (rows[i].after == 10));
        IS_OK(checkpoint_name_newest(room, 30)); /* is not there */
        IS_OK(checkpoint_is_named(room, &named));
        CHECK(named == (rows[i].after == 10));
        IS_OK(checkpoint_name_newest(room, 20));
        IS_OK(checkpoint_is_named(room, &named));
        CHECK(named);
        IS_OK(checkpoint_find_newest(room, path, &step));
        EQUAL_INT(step, rows[i].after);
        room_close();
    }
}

TEST(leftovers_are_ignored_and_removed)
{
    int64_t *steps = NULL;
    int count = 0;

    room_open();
    IS_OK(checkpoint_clean(room)); /* nothing there at all */
    make_steps("10");
    IS_OK(directory_make(room_path("ckpt/.tmp-step-00000020")));
    room_write("ckpt/.tmp-step-00000020/manifest.json", "{}", 2);
    IS_OK(directory_make(room_path("ckpt/.tmp-old-step-00000001")));
    IS_OK(checkpoint_steps(room, &steps, &count));
    EQUAL_INT(count, 1);
    memory_free(steps);
    IS_OK(checkpoint_clean(room));
    CHECK(!file_exists(room_path("ckpt/.tmp-step-00000020")));
    CHECK(!file_exists(room_path("ckpt/.tmp-old-step-00000001")));
    CHECK(file_exists(room_path("ckpt/step-00000010/manifest.json")));
    room_close();
}

TEST_MAIN(names_of_steps, the_pointer_leads_and_its_damage_is_harmless,
          damage_falls_back_to_the_one_before,
          two_damaged_take_the_third_and_none_is_an_error,
          exchanged_shards_are_found, prune_never_follows_a_link,
          prune_keeps_what_it_should,
          the_newest_gets_a_name_where_latest_names_none,
          leftovers_are_ignored_and_removed)
