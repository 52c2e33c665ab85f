/* SPDX-License-Identifier: Apache-2.0 */
/* test_transfer.c - mirrors src/checkpoint/transfer.c. */
#include "tests/unit/checkpoint/room.h"
#include <fcntl.h>
#include "checkpoint/transfer.h"

TEST(reads_and_writes_at_offsets)
{
    char bytes[8] = {0};
    int64_t length = 0;
    int file;

    room_open();
    file = open(room_path("f"), O_RDWR | O_CREAT, 0600);
    CHECK(file >= 0);
    IS_OK(transfer_write(file, "f", 3, "cde", 3));
    IS_OK(transfer_write(file, "f", 0, "abc", 3));
    IS_OK(transfer_sync(file, "f"));
    IS_OK(transfer_read(file, "f", 1, bytes, 4));
    EQUAL_TEXT(bytes, "bccd");
    FAILS(transfer_read(file, "f", 4, bytes, 4), ERR_FORMAT,
          "f: ends at byte 6, 2 more were expected");
    close(file);
    IS_OK(transfer_open(room_path("f"), false, &file, &length));
    EQUAL_INT(length, 6);
    FAILS(transfer_write(file, "f", 0, "x", 1), ERR_IO,
          "writing at byte 0 failed");
    close(file);
    EQUAL_TEXT(transfer_name("a/b/c"), "c");
    EQUAL_TEXT(transfer_name("c"), "c");
    room_close();
}

TEST(a_full_disk_is_named)
{
    const int full = open("/dev/full", O_WRONLY);

    if (full < 0) skip();
    FAILS(transfer_write(full, "f", 0, "x", 1), ERR_IO, "disk full");
    close(full);
}

TEST_MAIN(reads_and_writes_at_offsets, a_full_disk_is_named)
