/* SPDX-License-Identifier: Apache-2.0 */
/* test_weights.c - mirrors src/checkpoint/weights.c. */
#include <math.h>
#include "tests/unit/checkpoint/room.h"
#include "checkpoint/weights.h"
#include "checkpoint/weights_write.h"

enum { TENSORS = 4 };

static const struct safetensors_tensor tensors[TENSORS] = {
    {"embed.weight", DTYPE_F32, 2, {4, 2}},
    {"a.weight", DTYPE_F32, 1, {2}},
    {"b.weight", DTYPE_BF16, 1, {4}},
    {"rope.inv_freq", DTYPE_F64, 1, {1}},
};
static const float embed[8] = {0, 1, 2, 3, 4, 5, 6, 7}, a[2] = {-1, -2};
static const uint16_t b[4] = {0x3f80, 0x4000, 0x4040, 0xc080}; /* 1 2 3 -4 */
static const double rope[1] = {0.25};

static void write_directory(const char *name, int64_t limit)
{
    struct weights_writer writer = {0};

    IS_OK(
        weights_writer_open(&writer, room_path(name), tensors, TENSORS, limit));
    IS_OK(weights_writer_put(&writer, 0, 5, 3, embed + 5));
    IS_OK(weights_writer_put(&writer, 0, 0, 5, embed));
    IS_OK(weights_writer_put(&writer, 1, 0, 2, a));
    IS_OK(weights_writer_put(&writer, 2, 0, 4, b));
    IS_OK(weights_writer_put(&writer, 3, 0, 1, rope));
    IS_OK(weights_writer_commit(&writer));
    weights_writer_free(&writer);
}

static int need(struct weights *weights, int which)
{
    int index = -1;

    IS_OK(weights_need(weights, tensors[which].name, tensors[which].dimensions,
                       tensors[which].shape, &index));
    return index;
}

static void check_directory(const char *name, int files)
{
    static const char *const buffers[] = {".inv_freq"};
    struct weights weights = {0};
    float read[8];

    IS_OK(weights_open(&weights, room_path(name)));
    EQUAL_INT(weights.file_count, files);
    EQUAL_INT(weights.count, TENSORS);
    IS_OK(weights_read(&weights, need(&weights, 0), 0, 8, DTYPE_F32, read));
    EQUAL_BYTES(read, embed, sizeof embed);
    IS_OK(weights_read(&weights, need(&weights, 2), 1, 3, DTYPE_F32, read));
    CHECK(read[0] == 2 && read[1] == 3 && read[2] == -4);
    FAILS(weights_all_used(&weights, buffers, 1), ERR_FORMAT,
          "1 of 4 tensors were not used: a.weight");
    FAILS(weights_all_used(&weights, NULL, 0), ERR_FORMAT,
          "2 of 4 tensors were not used: a.weight, rope.inv_freq");
    IS_OK(weights_read(&weights, need(&weights, 1), 0, 2, DTYPE_F32, read));
    CHECK(read[0] == -1 && read[1] == -2);
    IS_OK(weights_all_used(&weights, buffers, 1));
    need(&weights, 1);
    FAILS(weights_all_used(&weights, buffers, 1), ERR_FORMAT,
          "1 tensors were used more than once: a.weight");
    weights_close(&weights);
    weights_close(&weights);
}

TEST(one_file_and_several_are_read_alike)
{
    room_open();
    write_directory("one", 0);
    check_directory("one", 1);
    CHECK(!file_exists(room_path("one/model.safetensors.index.json")));
    write_directory("many", 16); /* 32 | 8 + 8 | 8 bytes */
    check_directory("many", 3);
    CHECK(file_exists(room_path("many/model-00003-of-00003.safetensors")));
    /* The other kind, over it: what was there must not be read. */
    write_directory("many", 0);
    check_directory("many", 1);
    write_directory("one", 16);
    check_directory("one", 3);
    room_close();
}

TEST(shards_are_split_greedily_in_order)
{
    static const struct {
        int64_t limit;
        int shard_of[TENSORS], shards;
    } rows[] = {
        {1000, {0, 0, 0, 0}, 1}, {56, {0, 0, 0, 0}, 1}, {55, {0, 0, 0, 1}, 2},
        {40, {0, 0, 1, 1}, 2},   {16, {0, 1, 1, 2}, 3}, {1, {0, 1, 2, 3}, 4},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        int shard_of[TENSORS], shards = 0;

        IS_OK(
            weights_split(tensors, TENSORS, rows[i].limit, shard_of, &shards));
        EQUAL_INT(shards, rows[i].shards);
        EQUAL_BYTES(shard_of, rows[i].shard_of, sizeof shard_of);
    }
}

TEST(what_is_asked_must_be_there)
{
    static const int64_t wrong[] = {2, 4};
    struct weights weights = {0};
    int index;

    room_open();
    write_directory("hf", 0);
    IS_OK(weights_open(&weights, room_path("hf")));
    FAILS(weights_need(&weights, "embed.weight", 2, wrong, &index), ERR_FORMAT,
          "has shape [4, 2], the model needs [2, 4]");
    FAILS(weights_need(&weights, "embed.weights", 2, wrong, &index), ERR_FORMAT,
          "has no tensor embed.weights");
    EQUAL_INT(weights_find(&weights, "zzz"), -1);
    EQUAL_INT(weights_find(&weights, ""), -1);
    weights_close(&weights);
    room_close();
}

TEST(indexes_that_lie_are_refused)
{
    static const struct {
        const char *index, *words;
    } rows[] = {
        {"{}", "weight_map"},
        {"{\"weight_map\": {}}", "weight_map"},
        {"{\"weight_map\": []}", "weight_map"},
        {"{\"weight_map\": {\"a\": 3}}", "plain file name"},
        {"{\"weight_map\": {\"a\": \"../one/model.safetensors\"}}",
         "plain file name"},
        {"{\"weight_map\": {\"a\": \"/etc/passwd\"}}", "plain file name"},
        {"{\"weight_map\": {\"a\": \"..\"}}", "plain file name"},
        {"{\"weight_map\": {\"a\": \"x\\u0000y\"}}", "plain file name"},
        {"{\"weight_map\": {\"c.weight\": \"model.safetensors\"}}",
         "has no such tensor"},
        {"{\"weight_map\": {\"a.weight\": \"model.safetensors\", "
         "\"b.weight\": \"copy.safetensors\"}}",
         "is in two of its files"},
        {"not json", "model.safetensors.index.json"},
    };
    struct text bytes;

    room_open();
    write_directory("hf", 0);
    bytes = room_read("hf/model.safetensors");
    room_write("hf/copy.safetensors", bytes.bytes, bytes.length);
    text_free(&bytes);
    for (int i = 0; i < ROWS(rows); i++) {
        struct weights weights = {0};

        room_write("hf/model.safetensors.index.json", rows[i].index,
                   strlen(rows[i].index));
        FAILS(weights_open(&weights, room_path("hf")), ERR_FORMAT,
              rows[i].words);
        weights_close(&weights);
    }
    room_close();
}

/* Values with which no model can compute, also in a narrower type. */
TEST(values_must_be_finite)
{
    static const float rows[8] = {0, 1, 2, 1e30f, 4, (float)NAN, 6,
                                  (float)-INFINITY};
    struct weights_writer writer = {0};
    struct weights weights = {0};
    double read[8];
    int index;

    room_open();
    IS_OK(weights_writer_open(&writer, room_path("one"), tensors, 1, 0));
    IS_OK(weights_writer_put(&writer, 0, 0, 8, rows));
    IS_OK(weights_writer_commit(&writer));
    weights_writer_free(&writer);
    IS_OK(weights_open(&weights, room_path("one")));
    index = need(&weights, 0);
    IS_OK(weights_read(&weights, index, 0, 8, DTYPE_F32, read));
    IS_OK(weights_read_finite(&weights, index, 0, 5, DTYPE_F64, read));
    CHECK(read[4] == 4);
    for (int i = 0; i < 3; i++) {
        static const enum dtype kinds[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F64};

        FAILS(weights_read_finite(&weights, index, 4, 4, kinds[i], read),
              ERR_FORMAT, "embed.weight: the value at [2, 1] is NaN; weights "
                          "must be finite");
        FAILS(weights_read_finite(&weights, index, 6, 2, kinds[i], read),
              ERR_FORMAT, "the value at [3, 1] is infinite; weights");
    }
    FAILS(weights_read_finite(&weights, index, 0, 4, DTYPE_F16, read),
          ERR_FORMAT, "the value at [1, 1] is infinite as float16");
    weights_close(&weights);
    room_close();
}

TEST(an_index_must_name_the_file_of_a_tensor)
{
    static const char index[] =
        "{\"weight_map\": "
        "{\"embed.weight\": \"model-00002-of-00003.safetensors\", "
        "\"a.weight\": \"model-00001-of-00003.safetensors\"}}";
    struct weights weights = {0};

    room_open();
    write_directory("many", 16);
    room_write("many/model.safetensors.index.json", index, strlen(index));
    FAILS(weights_open(&weights, room_path("many")), ERR_FORMAT,
          "promises embed.weight in model-00002-of-00003.safetensors, it is "
          "in another file");
    weights_close(&weights);
    room_close();
}

/* Some programs save names with "module." before all of them. */
TEST(a_name_with_a_prefix_is_the_nearest)
{
    static const struct safetensors_tensor one[] = {
        {"module.model.a.weight", DTYPE_F32, 1, {2}}};
    static const int64_t shape[] = {2};
    struct weights_writer writer = {0};
    struct weights weights = {0};
    int index;

    room_open();
    IS_OK(weights_writer_open(&writer, room_path("one"), one, 1, 0));
    IS_OK(weights_writer_put(&writer, 0, 0, 2, a));
    IS_OK(weights_writer_commit(&writer));
    weights_writer_free(&writer);
    IS_OK(weights_open(&weights, room_path("one")));
    FAILS(weights_need(&weights, "a.weight", 1, shape, &index), ERR_FORMAT,
          "has no tensor a.weight");
    EQUAL_TEXT(status_hint_text(),
               "the nearest name is module.model.a.weight");
    weights_close(&weights);
    room_close();
}

TEST(directories_without_weights)
{
    static const char index[] =
        "{\"weight_map\": {\"a\": \"gone.safetensors\"}}";
    struct weights weights = {0};

    room_open();
    FAILS(weights_open(&weights, room), ERR_MISSING, "has neither");
    weights_close(&weights);
    room_write("pytorch_model.bin", "x", 1);
    FAILS(weights_open(&weights, room), ERR_MISSING, "a pickle");
    weights_close(&weights);
    room_write("model.safetensors.index.json", index, strlen(index));
    FAILS(weights_open(&weights, room), ERR_MISSING, "gone.safetensors");
    weights_close(&weights);
    room_close();
}

TEST_MAIN(one_file_and_several_are_read_alike, values_must_be_finite,
          shards_are_split_greedily_in_order, what_is_asked_must_be_there,
          indexes_that_lie_are_refused,
          an_index_must_name_the_file_of_a_tensor,
          a_name_with_a_prefix_is_the_nearest, directories_without_weights)
