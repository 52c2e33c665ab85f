/* SPDX-License-Identifier: Apache-2.0 */
/* test_safetensors.c - mirrors src/checkpoint/safetensors.c. */
#include "tests/unit/checkpoint/room.h"
#include <sys/stat.h>
#include <unistd.h>
#include "checkpoint/safetensors.h"

#define HEADER(text) text, sizeof text - 1

static const char MINIMAL[] =
    "{\"__metadata__\":{\"format\":\"pt\"},\"w\":{\"dtype\":\"F32\","
    "\"shape\":[2],\"data_offsets\":[0,8]}}   ";

/* The format's smallest example: 85 characters padded to 88, 104 bytes. */
TEST(minimal_file)
{
    static const float values[] = {1.5f, -2.0f};
    struct safetensors file = {0};
    const struct safetensors_entry *entry;
    char bytes[104] = {88};
    float read[2];
    double wide[1];

    room_open();
    EQUAL_INT(sizeof MINIMAL - 1, 88);
    memcpy(bytes + 8, MINIMAL, 88);
    memcpy(bytes + 96, values, 8);
    room_write("w.safetensors", bytes, sizeof bytes);
    IS_OK(safetensors_open(&file, room_path("w.safetensors"), true));
    EQUAL_INT(file.count, 1);
    entry = safetensors_find(&file, "w");
    CHECK(entry != NULL);
    CHECK(!safetensors_find(&file, "v"));
    EQUAL_INT(entry->first, 96);
    IS_OK(safetensors_read(&file, entry, 0, 2, DTYPE_F32, read));
    EQUAL_BYTES(read, values, 8);
    IS_OK(safetensors_read(&file, entry, 1, 1, DTYPE_F64, wide));
    CHECK(wide[0] == -2.0);
    FAILS(safetensors_read(&file, entry, 0, 1, DTYPE_I32, read), ERR_FORMAT,
          "does not convert");
    safetensors_close(&file);
    safetensors_close(&file); /* twice is right too */
    room_close();
}

/* Each of the 104 bytes missing, and one more than there should be. */
TEST(every_truncation_is_refused)
{
    char bytes[105] = {88};

    room_open();
    memcpy(bytes + 8, MINIMAL, 88);
    for (size_t length = 0; length <= sizeof bytes; length++) {
        struct safetensors file = {0};
        status result;

        room_write("w.safetensors", bytes, length);
        result = safetensors_open(&file, room_path("w.safetensors"), true);
        EQUAL_INT(result, length == 104 ? OK : ERR_FORMAT);
        safetensors_close(&file);
    }
    status_clear();
    room_close();
}

static const struct {
    const char *header;
    size_t length;
    int64_t data_bytes;
    const char *words; /* NULL: a good header */
} header_rows[] = {
    {HEADER("{}"), 0, NULL},
    {HEADER("{}   "), 0, NULL},
    {HEADER("{}"), 1, "the file has 1"},
    {HEADER(" {}"), 0, "does not begin with {"},
    {HEADER("[]"), 0, "does not begin with {"},
    {HEADER(""), 0, "does not begin with {"},
    {HEADER("{} x"), 0, ""},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[],"
            "\"data_offsets\":[0,4]}}"),
     4, NULL},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[0,5],"
            "\"data_offsets\":[0,0]}}"),
     0, NULL},
    {HEADER("{\"a\":{\"dtype\":\"F4\",\"shape\":[4],"
            "\"data_offsets\":[0,2]}}"),
     2, NULL},
    {HEADER("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],"
            "\"data_offsets\":[0,2]}}"),
     2, "12 bits"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],"
            "\"data_offsets\":[0,4]}}"),
     4, "64 bits"},
    {HEADER("{\"a\":{\"dtype\":\"F99\",\"shape\":[1],"
            "\"data_offsets\":[0,4]}}"),
     4, "unknown dtype F99"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],"
            "\"data_offsets\":[0,4]}}"),
     4, "dimension 0"},
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],"
            "\"data_offsets\":[0,4]}}"),
     4, "dimension 0"},
    /* 2^62 x 2^2 elements wrap to 0 */
    {HEADER("{\"a\":{\"dtype\":\"U8\",\"shape\":[4611686018427387904,4],"
            "\"data_offsets\":[0,0]}}"),
     0, "overflows"},
    /* 2^61 elements of 32 bits wrap to 0 bits */
    {HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[2305843009213693952],"
            "\"data_offsets\":[0,0]}}"),
     0, "overflows"},
    {HEADER("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
            "\"data_offsets\":[1,2]}}"),
     2, "begins at byte 1"},
    {HEADER("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
            "\"data_offsets\":[0,1]},\"b\":{\"dtype\":\"U8\","
            "\"shape\":[1],\"data_offsets\":[2,3]}}"),
     3, "begins at byte 2"},
    {HEADER("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],"
            "\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\","
            "\"shape\":[2],\"data_offsets\":[1,3]}}"),
     3, "begins at byte 1"},
    {HEADER("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
            "\"data_offsets\":[0,1]}}"),
     2, "the file has 2"},
    {HEADER("{\"a\":{\"dtype\":\"U8\",\"shape\":[5],"
            "\"data_offsets\":[0,5]}}"),
     4, "data have 4 bytes"},
    {HEADER("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
            "\"data_offsets\":[2,1]}}"),
     2, "data_offsets 2 to 1"},
    {HEADER("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
            "\"data_offsets\":[-1,0]}}"),
     2, "data_offsets -1"},
    {HEADER("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
            "\"data_offsets\":[0]}}"),
     1, "two integers"},
    {HEADER("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}"), 0, "exactly"},
    {HEADER("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"x\":1,"
            "\"data_offsets\":[0,1]}}"),
     1, "exactly"},
    {HEADER("{\"a\":3}"), 0, "exactly"},
    {HEADER("{\"a\":{\"dtype\":\"U8\",\"shape\":"
            "[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}"),
     1, "9 dimensions"},
    {HEADER("{\"\":{\"dtype\":\"U8\",\"shape\":[1],"
            "\"data_offsets\":[0,1]}}"),
     1, "name"},
    {HEADER("{\"a b\":{\"dtype\":\"U8\",\"shape\":[1],"
            "\"data_offsets\":[0,1]}}"),
     1, "name"},
    {HEADER("{\"a\\u0000\":{\"dtype\":\"U8\",\"shape\":[1],"
            "\"data_offsets\":[0,1]}}"),
     1, "name"},
    {HEADER("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],"
            "\"data_offsets\":[0,0]},\"a\":{\"dtype\":\"U8\","
            "\"shape\":[0],\"data_offsets\":[0,0]}}"),
     0, "a"},
    {HEADER("{\"__metadata__\":{\"format\":1}}"), 0, "__metadata__"},
    {HEADER("{\"__metadata__\":[]}"), 0, "__metadata__"},
    {HEADER("{\"a\xff\":1}"), 0, ""},
};

TEST(headers_that_lie_are_refused)
{
    room_open();
    for (size_t i = 0; i < sizeof header_rows / sizeof *header_rows; i++) {
        struct safetensors file = {0};
        const status result = safetensors_parse(
            &file, header_rows[i].header, header_rows[i].length,
            header_rows[i].data_bytes, "test");

        if (header_rows[i].words)
            FAILS(result, ERR_FORMAT, header_rows[i].words);
        else
            IS_OK(result);
        safetensors_close(&file);
    }
    room_close();
}

TEST(a_huge_header_costs_nothing)
{
    struct safetensors file = {0};
    unsigned char bytes[16] = {0};

    room_open();
    memset(bytes, 0xff, 8);
    room_write("w.safetensors", bytes, sizeof bytes);
    FAILS(safetensors_open(&file, room_path("w.safetensors"), true), ERR_FORMAT,
          "its header claims");
    safetensors_close(&file);
    /* A sparse file that really has its 17 MiB of header. */
    memset(bytes, 0, 8);
    bytes[3] = 1;
    bytes[2] = 16;
    room_write("w.safetensors", bytes, sizeof bytes);
    EQUAL_INT(truncate(room_path("w.safetensors"), 32 << 20), 0);
    FAILS(safetensors_open(&file, room_path("w.safetensors"), true), ERR_FORMAT,
          "at most");
    safetensors_close(&file);
    room_close();
}

TEST(only_regular_files_are_read)
{
    struct safetensors file = {0};

    room_open();
    FAILS(safetensors_open(&file, room_path("none"), true), ERR_MISSING,
          "no such file");
    EQUAL_INT(mkfifo(room_path("pipe"), 0600), 0);
    FAILS(safetensors_open(&file, room_path("pipe"), true), ERR_FORMAT,
          "regular file");
    EQUAL_INT(symlink("pipe", room_path("link")), 0);
    FAILS(safetensors_open(&file, room_path("link"), false), ERR_FORMAT,
          "is a link");
    FAILS(safetensors_open(&file, room, true), ERR_FORMAT, "regular file");
    safetensors_close(&file);
    room_close();
}

TEST_MAIN(minimal_file, every_truncation_is_refused,
          headers_that_lie_are_refused, a_huge_header_costs_nothing,
          only_regular_files_are_read)
