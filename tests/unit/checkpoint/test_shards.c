/* SPDX-License-Identifier: Apache-2.0 */
/* test_shards.c - mirrors src/checkpoint/shards.c and shards_gather.c. */
#include "tests/unit/checkpoint/holders.h"
#include <stdlib.h>
#include <unistd.h>
#include "checkpoint/checkpoint.h"
#include "checkpoint/history.h"
#include "checkpoint/shards.h"

enum { HOLDERS = 2, CUT = 70000 };
static const char nodes[] =
    "{\"nodes\": [{\"name\": \"a\", \"ranks\": [0]}, "
    "{\"name\": \"b\", \"ranks\": [1]}]}";

/* Two machines save what they hold, each below ROOM/shards. */
static void save_apart(const struct small *small, int64_t step)
{
    const struct checkpoint_file beside = {"nodes.json", nodes,
                                           sizeof nodes - 1};
    struct checkpoint_save saves[HOLDERS];
    struct checkpoint_plan plans[HOLDERS];
    const char *const stores[] = {"shards/a", "shards/b"};
    char paths[HOLDERS][PATH_BYTES];
    void *sum;

    for (int i = 0; i < HOLDERS; i++) {
        snprintf(paths[i], sizeof paths[i], "%.2000s", room_path(stores[i]));
        IS_OK(directory_make(paths[i]));
        plans[i] = small->plan;
        plans[i].run = paths[i];
        plans[i].step = step;
        plans[i].part = true;
        plans[i].beside = &beside;
        plans[i].beside_count = 1;
        IS_OK(checkpoint_save_begin(&saves[i], &plans[i]));
        write_holder(&saves[i], small, CUT, i);
        IS_OK(checkpoint_save_keep_own(&saves[i]));
    }
    sum = calloc(1, checkpoint_share_bytes(&saves[0]));
    CHECK(sum != NULL);
    checkpoint_save_share(&saves[1], sum);
    checkpoint_save_add(&saves[0], sum);
    checkpoint_save_share(&saves[0], sum);
    checkpoint_save_set(&saves[1], sum);
    free(sum);
    for (int i = 0; i < HOLDERS; i++) {
        IS_OK(checkpoint_save_finish(&saves[i]));
        IS_OK(checkpoint_save_check(&saves[i], 0, 1));
        IS_OK(checkpoint_save_commit(&saves[i]));
        checkpoint_save_free(&saves[i]);
    }
}

struct reader {
    struct stores stores;
    struct shard_place place;
    struct shard_list list;
    struct shard_set set;
};

static void reader_open(struct reader *r)
{
    memset(r, 0, sizeof *r);
    snprintf(r->stores.directory, PATH_BYTES, "%.2000s", room_path("shards"));
    snprintf(r->stores.run, PATH_BYTES, "%.2000s", room_path("run"));
    r->place = shard_place_here("here", &r->stores);
    IS_OK(shard_list_add(&r->list, &r->place, 0));
}

static status reader_take(struct reader *r, int64_t step)
{
    const status result = shards_open(&r->set, &r->place, &r->list, step);

    return result == OK ? shards_check_whole(&r->set) : result;
}

static void reader_close(struct reader *r)
{
    shards_close(&r->set);
    shard_list_free(&r->list);
}

static void same_file(const char *a, const char *b)
{
    struct text x = room_read(a), y = room_read(b);

    EQUAL_INT(x.length, y.length);
    EQUAL_BYTES(x.bytes, y.bytes, x.length);
    text_free(&x);
    text_free(&y);
}

/* Gathered, and read without that, it is what one machine would have saved. */
TEST(two_machines_make_one_checkpoint)
{
    static const char *const files[] = {
        "manifest.json", "state.json", "config.json",
        "model.safetensors.index.json", "model-00001-of-00001.safetensors",
        "optim-00001-of-00001.safetensors"};
    struct small *small = small_make(7);
    struct checkpoint checkpoint = {0};
    struct saved_part part = small->parts[0];
    float *read = calloc(SMALL_FLOATS, sizeof *read);
    struct reader r;

    room_open();
    CHECK(read != NULL);
    IS_OK(checkpoint_save(&small->plan));
    save_apart(small, 5);
    reader_open(&r);
    EQUAL_INT(shard_list_newest(&r.list, INT64_MAX), 5);
    EQUAL_INT(shard_list_newest(&r.list, 5), -1);
    IS_OK(reader_take(&r, 5));
    EQUAL_INT(r.set.count, 2);
    IS_OK(checkpoint_open_shards(&checkpoint, &r.set, NULL));
    IS_OK(checkpoint_verify(&checkpoint));
    part.data = read;
    part.run_count = 0;
    IS_OK(checkpoint_read_tensor(&checkpoint, &part));
    EQUAL_BYTES(read, small->parts[0].data, 2 * 300001 * sizeof *read);
    checkpoint_close(&checkpoint);
    IS_OK(directory_make(room_path("got")));
    IS_OK(shards_gather(&r.set, room_path("got"), true));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char one[128], other[128];

        snprintf(one, sizeof one, "ckpt/step-00000005/%s", files[i]);
        snprintf(other, sizeof other, "got/ckpt/step-00000005/%s", files[i]);
        same_file(one, other);
    }
    reader_close(&r);
    free(read);
    free(small);
    room_close();
}

TEST(a_missing_machine_is_named)
{
    struct small *small = small_make(8);
    struct reader r;

    room_open();
    save_apart(small, 5);
    IS_OK(directory_remove(room_path("shards/b")));
    reader_open(&r);
    FAILS(reader_take(&r, 5), ERR_MISSING, "the shards of b are not here");
    reader_close(&r);
    free(small);
    room_close();
}

/* A machine whose lists are damaged, empty or of another run counts as
 * missing. */
TEST(damaged_lists_are_not_believed)
{
    static const char *const lists[] = {
        "shards/b/ckpt/step-00000005/shards.json",
        "shards/b/ckpt/step-00000005/manifest.json"};
    struct small *small = small_make(9), *other = small_make(10);
    struct reader r;

    room_open();
    for (int i = 0; i < 2; i++) {
        save_apart(small, 5);
        room_flip(lists[i], 300, 1);
        reader_open(&r);
        FAILS(reader_take(&r, 5), ERR_MISSING, "the shards of b");
        reader_close(&r);
        save_apart(small, 5);
        room_write(lists[i], "", 0);
        reader_open(&r);
        FAILS(reader_take(&r, 5), ERR_MISSING, "the shards of b");
        reader_close(&r);
    }
    save_apart(other, 5); /* b comes back with the disk of another run */
    EQUAL_INT(rename(room_path("shards/b"), room_path("shards/old")), 0);
    save_apart(small, 5);
    IS_OK(directory_remove(room_path("shards/b")));
    EQUAL_INT(rename(room_path("shards/old"), room_path("shards/b")), 0);
    reader_open(&r);
    FAILS(reader_take(&r, 5), ERR_MISSING, "is not whole");
    reader_close(&r);
    free(small);
    free(other);
    room_close();
}

TEST(a_damaged_block_is_named)
{
    struct small *small = small_make(11);
    struct checkpoint checkpoint = {0};
    struct reader r;

    room_open();
    save_apart(small, 5);
    room_flip("shards/b/ckpt/step-00000005/model-00001-of-00001.safetensors",
              700000, 3);
    reader_open(&r);
    IS_OK(reader_take(&r, 5));
    IS_OK(checkpoint_open_shards(&checkpoint, &r.set, NULL));
    FAILS(checkpoint_verify(&checkpoint), ERR_FORMAT, "on here: is damaged");
    checkpoint_close(&checkpoint);
    IS_OK(directory_make(room_path("got")));
    FAILS(shards_gather(&r.set, room_path("got"), true), ERR_FORMAT,
          "is damaged");
    CHECK(!file_exists(room_path("got/ckpt/step-00000005")));
    reader_close(&r);
    free(small);
    room_close();
}

/* A path is a file of a step, or one of a few of the run; links are none. */
TEST(other_files_are_not_read)
{
    static const char *const paths[] = {
        "", "/etc/passwd", "../x", "a/ckpt/step-00000005/../x", "run/lock",
        "a/ckpt/latest", "a/ckpt/step-5x/f", "run/../secret", "a//ckpt/x",
        "run/config.yaml/x", ".x/ckpt/step-00000005/f"};
    struct reader r;
    char byte;
    size_t got;

    room_open();
    IS_OK(directory_make(room_path("shards/a/ckpt/step-00000005")));
    IS_OK(directory_make(room_path("run")));
    room_write("run/lock", "x", 1);
    room_write("secret", "x", 1);
    EQUAL_INT(symlink(room_path("secret"),
                      room_path("shards/a/ckpt/step-00000005/link")), 0);
    reader_open(&r);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        FAILS(stores_read(&r.stores, paths[i], 0, &byte, 1, &got), ERR_CONFIG,
              "is no file of a store");
    FAILS(stores_read(&r.stores, "a/ckpt/step-00000005/link", 0, &byte, 1,
                      &got), ERR_IO, "link");
    FAILS(stores_read(&r.stores, "run/config.yaml", 0, &byte, 1, &got),
          ERR_MISSING, "config.yaml");
    reader_close(&r);
    room_close();
}

TEST_MAIN(two_machines_make_one_checkpoint, a_missing_machine_is_named,
          damaged_lists_are_not_believed, a_damaged_block_is_named,
          other_files_are_not_read)
