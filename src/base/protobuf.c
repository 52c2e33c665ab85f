/* SPDX-License-Identifier: Apache-2.0 */
/* protobuf.c - the wire format of protocol buffers. */
#include "base/protobuf.h"

#include <string.h>

#include "base/varint.h"

enum { FIELD_MOST = (1 << 29) - 1 };

/* ---- writing ---- */

static status put_varint(struct text *out, uint64_t value)
{
    unsigned char bytes[VARINT_BYTES];
    size_t length = 0;

    do {
        bytes[length] = (unsigned char)(value & 0x7F);
        value >>= 7;
        if (value != 0) bytes[length] |= 0x80;
        length++;
    } while (value != 0);
    return text_append(out, bytes, length);
}

static status put_key(struct text *out, int field, enum proto_wire wire)
{
    return put_varint(out, (uint64_t)field << 3 | (uint64_t)wire);
}

/* The least byte first, on any machine. */
static status put_fixed(struct text *out, uint64_t bits, size_t length)
{
    unsigned char bytes[8];

    for (size_t i = 0; i < length; i++)
        bytes[i] = (unsigned char)(bits >> 8 * i);
    return text_append(out, bytes, length);
}

static uint64_t bits_of(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

status proto_integer(struct text *out, int field, int64_t value)
{
    TRY(put_key(out, field, PROTO_VARINT));
    return put_varint(out, (uint64_t)value);
}

status proto_double(struct text *out, int field, double value)
{
    TRY(put_key(out, field, PROTO_64));
    return put_fixed(out, bits_of(value), 8);
}

status proto_float(struct text *out, int field, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    TRY(put_key(out, field, PROTO_32));
    return put_fixed(out, bits, 4);
}

status proto_bytes(struct text *out, int field, const void *bytes,
                   size_t length)
{
    TRY(put_key(out, field, PROTO_BYTES));
    TRY(put_varint(out, length));
    return text_append(out, bytes, length);
}

status proto_string(struct text *out, int field, const char *string)
{
    return proto_bytes(out, field, string, strlen(string));
}

status proto_message(struct text *out, int field, struct text *message)
{
    const status result =
        proto_bytes(out, field, message->bytes, message->length);

    text_free(message);
    return result;
}

status proto_doubles(struct text *out, int field, const double *values,
                     int count)
{
    TRY(put_key(out, field, PROTO_BYTES));
    TRY(put_varint(out, 8 * (uint64_t)count));
    for (int i = 0; i < count; i++)
        TRY(put_fixed(out, bits_of(values[i]), 8));
    return OK;
}

/* ---- reading ---- */

struct proto_reader proto_open(const void *bytes, size_t length)
{
    const unsigned char *at = bytes;

    return (struct proto_reader){.at = at,
                                 .end = length > 0 ? at + length : at};
}

static bool is_bad(struct proto_reader *reader, const char *why)
{
    reader->bad = why;
    return false;
}

static bool is_cut(struct proto_reader *reader)
{
    return is_bad(reader, "ends in the middle of a field");
}

static bool get_varint(struct proto_reader *reader, uint64_t *out)
{
    switch (varint_read(&reader->at, reader->end, out)) {
    case VARINT_READ: return true;
    case VARINT_CUT: return is_cut(reader);
    default: return is_bad(reader, "has a number of more than 64 bits");
    }
}

static bool get_fixed(struct proto_reader *reader, size_t length,
                      uint64_t *out)
{
    uint64_t value = 0;

    if ((size_t)(reader->end - reader->at) < length) return is_cut(reader);
    for (size_t i = 0; i < length; i++)
        value |= (uint64_t)*reader->at++ << 8 * i;
    *out = value;
    return true;
}

static bool get_bytes(struct proto_reader *reader, struct proto_field *field)
{
    uint64_t length;

    if (!get_varint(reader, &length)) return false;
    if (length > (uint64_t)(reader->end - reader->at)) return is_cut(reader);
    field->bytes = reader->at;
    field->length = (size_t)length;
    reader->at += length;
    return true;
}

bool proto_next(struct proto_reader *reader, struct proto_field *field)
{
    uint64_t key;

    *field = (struct proto_field){0};
    if (reader->bad != NULL || reader->at == reader->end) return false;
    if (!get_varint(reader, &key)) return false;
    if (key >> 3 == 0 || key >> 3 > FIELD_MOST)
        return is_bad(reader, "has a field number that no message has");
    field->number = (int)(key >> 3);
    field->wire = (enum proto_wire)(key & 7);
    switch (key & 7) {
    case PROTO_VARINT: return get_varint(reader, &field->integer);
    case PROTO_64: return get_fixed(reader, 8, &field->integer);
    case PROTO_32: return get_fixed(reader, 4, &field->integer);
    case PROTO_BYTES: return get_bytes(reader, field);
    default: break; /* groups: nobody writes them any more */
    }
    return is_bad(reader, "has a field of an unknown wire type");
}

double proto_real(const struct proto_field *field)
{
    double real = 0;

    if (field->wire == PROTO_64) {
        memcpy(&real, &field->integer, sizeof real);
    } else if (field->wire == PROTO_32) {
        const uint32_t bits = (uint32_t)field->integer;
        float narrow;

        memcpy(&narrow, &bits, sizeof narrow);
        real = (double)narrow;
    }
    return real;
}
