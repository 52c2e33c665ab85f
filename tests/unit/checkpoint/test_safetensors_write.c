/* SPDX-License-Identifier: Apache-2.0 */
/* test_safetensors_write.c - mirrors src/checkpoint/safetensors_write.c. */
#include "tests/unit/checkpoint/room.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_write.h"

/* The example of the format: 8 bytes, a header of 88, 8 of data. */
TEST(the_minimal_file_byte_for_byte)
{
    static const char expected[] =
        "\x58\0\0\0\0\0\0\0"
        "{\"__metadata__\":{\"format\":\"pt\"},\"w\":{\"dtype\":\"F32\","
        "\"shape\":[2],\"data_offsets\":[0,8]}}   "
        "\0\0\xc0\x3f\0\0\0\xc0";
    static const struct safetensors_tensor tensor = {"w", DTYPE_F32, 1, {2}};
    static const float values[2] = {1.5f, -2.0f};
    struct safetensors_writer writer;
    struct text found;

    room_open();
    IS_OK(safetensors_writer_open(&writer, room_path("w"), &tensor, 1));
    CHECK(!file_exists(room_path("w"))); /* not before it is whole */
    IS_OK(safetensors_writer_put(&writer, 0, 1, 1, values + 1));
    IS_OK(safetensors_writer_put(&writer, 0, 0, 1, values));
    IS_OK(safetensors_writer_commit(&writer));
    safetensors_writer_free(&writer);
    found = room_read("w");
    EQUAL_INT(found.length, 104);
    EQUAL_BYTES(found.bytes, expected, 104);
    CHECK(!file_exists(room_path("w.tmp")));
    text_free(&found);
    room_close();
}

/* Widest type first, then by type and name; so everything is aligned to its
 * width. */
TEST(order_and_alignment)
{
    static const struct safetensors_tensor tensors[] = {
        {"z", DTYPE_U8, 1, {3}},  {"y", DTYPE_BF16, 1, {3}},
        {"x", DTYPE_F64, 1, {3}}, {"b", DTYPE_F32, 2, {1, 3}},
        {"a", DTYPE_F32, 0, {0}}, {"empty", DTYPE_I64, 2, {0, 5}},
    };
    static const char *const order[] = {"x", "empty", "a", "b", "y", "z"};
    struct safetensors_writer writer;
    struct safetensors file = {0};

    room_open();
    IS_OK(safetensors_writer_open(&writer, room_path("w"), tensors, 6));
    IS_OK(safetensors_writer_commit(&writer));
    safetensors_writer_free(&writer);
    IS_OK(safetensors_open(&file, room_path("w"), false));
    EQUAL_INT(file.count, 6);
    for (int i = 0; i < 6; i++) {
        EQUAL_TEXT(file.entries[i].name, order[i]);
        EQUAL_INT(file.entries[i].first % dtype_bytes(file.entries[i].dtype),
                  0);
    }
    safetensors_close(&file);
    room_close();
}

TEST(what_is_not_committed_vanishes)
{
    static const struct safetensors_tensor tensor = {"w", DTYPE_F32, 1, {2}};
    struct safetensors_writer writer;

    room_open();
    room_write("w", "old", 3);
    room_write("w.tmp", "left by a crash", 15);
    IS_OK(safetensors_writer_open(&writer, room_path("w"), &tensor, 1));
    safetensors_writer_free(&writer);
    safetensors_writer_free(&writer);
    CHECK(!file_exists(room_path("w.tmp")));
    struct text old = room_read("w");
    EQUAL_TEXT(old.bytes, "old");
    text_free(&old);
    room_close();
}

TEST(declarations_that_are_refused)
{
    static const struct {
        struct safetensors_tensor tensors[2];
        const char *words;
    } rows[] = {
        {{{"w", DTYPE_F32, 1, {1}}, {"w", DTYPE_F64, 1, {1}}}, "twice"},
        {{{"w", DTYPE_F32, 1, {1}}, {"w", DTYPE_F32, 1, {1}}}, "twice"},
        {{{"w", DTYPE_F32, 1, {1}}, {"", DTYPE_F32, 1, {1}}}, "name"},
        {{{"w", DTYPE_F32, 1, {1}}, {"a\"b", DTYPE_F32, 1, {1}}}, "name"},
        {{{"w", DTYPE_F32, 1, {1}}, {"__metadata__", DTYPE_F32, 1, {1}}},
         "name"},
        {{{"w", DTYPE_F32, 1, {1}}, {"v", DTYPE_F32, 1, {-1}}},
         "dimension 0 is -1"},
        {{{"w", DTYPE_F32, 1, {1}},
          {"v", DTYPE_F32, 2, {(int64_t)1 << 40, (int64_t)1 << 40}}},
         "elements"},
        {{{"v", DTYPE_U8, 1, {(int64_t)1 << 62}},
          {"w", DTYPE_U8, 1, {(int64_t)1 << 62}}},
         "2^63 bytes"},
    };

    room_open();
    for (int i = 0; i < ROWS(rows); i++) {
        struct safetensors_writer writer;
        const status result = safetensors_writer_open(&writer, room_path("w"),
                                                      rows[i].tensors, 2);

        CHECK(result == ERR_CONFIG || result == ERR_FORMAT);
        CHECK(strstr(status_message(), rows[i].words));
        safetensors_writer_free(&writer);
        CHECK(!file_exists(room_path("w.tmp")));
    }
    room_close();
}

TEST_MAIN(the_minimal_file_byte_for_byte, order_and_alignment,
          what_is_not_committed_vanishes, declarations_that_are_refused)
