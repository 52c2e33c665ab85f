/* SPDX-License-Identifier: Apache-2.0 */
/* test_protobuf.c - mirrors src/base/protobuf.c. */
#include "tests/test.h"
#include "base/protobuf.h"

TEST(fields_are_the_bytes_of_the_specification)
{
    /* protobuf.dev/programming-guides/encoding: 150 in field 1, "testing" in
     * field 2, -2 as ten bytes. */
    static const struct { int64_t value; const char *bytes; size_t length; }
    rows[] = {{150, "\x08\x96\x01", 3}, {0, "\x08\x00", 2},
              {-2, "\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11}};
    struct text out = {0};

    for (int i = 0; i < ROWS(rows); i++) {
        IS_OK(proto_integer(&out, 1, rows[i].value));
        EQUAL_INT(out.length, rows[i].length);
        EQUAL_BYTES(out.bytes, rows[i].bytes, rows[i].length);
        text_free(&out);
    }
    IS_OK(proto_string(&out, 2, "testing"));
    EQUAL_INT(out.length, 9);
    EQUAL_BYTES(out.bytes, "\x12\x07testing", 9);
    text_free(&out);
}

TEST(what_was_written_is_read)
{
    const double reals[] = {1, -2.5};
    struct text out = {0}, inner = {0};
    struct proto_reader reader;
    struct proto_field field;

    IS_OK(proto_integer(&inner, 1, 7));
    IS_OK(proto_double(&out, 1, 0.1));
    IS_OK(proto_float(&out, 2, 0.5f));
    IS_OK(proto_message(&out, 3, &inner));
    CHECK(inner.bytes == NULL);
    IS_OK(proto_doubles(&out, 1 << 20, reals, 2));
    reader = proto_open(out.bytes, out.length);
    CHECK(proto_next(&reader, &field));
    CHECK(field.number == 1 && proto_real(&field) == 0.1);
    CHECK(proto_next(&reader, &field));
    CHECK(field.number == 2 && proto_real(&field) == 0.5);
    CHECK(proto_next(&reader, &field));
    EQUAL_INT(field.wire, PROTO_BYTES);
    EQUAL_INT(field.length, 2);
    CHECK(proto_next(&reader, &field));
    EQUAL_INT(field.number, 1 << 20);
    EQUAL_INT(field.length, 16);
    CHECK(!proto_next(&reader, &field) && reader.bad == NULL);
    text_free(&out);
}

TEST(what_is_no_message_is_said_to_be_none)
{
    static const struct { const char *bytes; size_t length; } rows[] = {
        {"\x08", 1},             /* a key without its value */
        {"\x08\x80", 2},         /* a number without its end */
        {"\x09\x00\x00", 3},     /* half of 64 bits */
        {"\x0d\x00\x00\x00", 4}, /* three of four bytes */
        {"\x12\x05no", 4},       /* longer than what follows */
        {"\x0b\x0c", 2},         /* a group */
        {"\x00\x01", 2},         /* field 0 */
        {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 11}, /* 70 bits */
        {"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11}};

    for (int i = 0; i < ROWS(rows); i++) {
        struct proto_reader reader =
            proto_open(rows[i].bytes, rows[i].length);
        struct proto_field field;

        CHECK(!proto_next(&reader, &field));
        CHECK(reader.bad != NULL);
    }
}

TEST_MAIN(fields_are_the_bytes_of_the_specification, what_was_written_is_read,
          what_is_no_message_is_said_to_be_none)
