/* SPDX-License-Identifier: Apache-2.0 */
/* protobuf.h - the wire format of protocol buffers: fields of five kinds,
 * written and read by hand.
 *
 * A message is a list of fields. A field is a key, number << 3 | wire type, and
 * a value. The reader copies and trusts nothing: every length is checked
 * against what is left. Source: protobuf.dev/programming-guides/encoding. */
#ifndef LOCKSTEP_BASE_PROTOBUF_H
#define LOCKSTEP_BASE_PROTOBUF_H

#include <stdbool.h>
#include <stdint.h>
#include "base/text.h"

enum proto_wire {
    PROTO_VARINT = 0, PROTO_64 = 1, PROTO_BYTES = 2, PROTO_32 = 5
};

/* ---- writing: each appends one field ---- */

status proto_integer(struct text *out, int field, int64_t value);
status proto_double(struct text *out, int field, double value);
status proto_float(struct text *out, int field, float value);
status proto_bytes(struct text *out, int field, const void *bytes,
                   size_t length);
status proto_string(struct text *out, int field, const char *string);
/* A message inside; `message` is freed, whatever happens. */
status proto_message(struct text *out, int field, struct text *message);
/* Packed. */
status proto_doubles(struct text *out, int field, const double *values,
                     int count);

/* ---- reading ---- */

struct proto_reader {
    const unsigned char *at, *end; /* borrowed */
    const char *bad;  /* says why the bytes are no message; NULL: they are one
                       * so far */
};

struct proto_field {
    int number;
    enum proto_wire wire;
    uint64_t integer;           /* PROTO_VARINT; bits of the other numbers */
    const unsigned char *bytes; /* PROTO_BYTES, borrowed */
    size_t length;
};

struct proto_reader proto_open(const void *bytes, size_t length);
/* The next field; false at the end and, with reader->bad, where the bytes are
 * no message. */
bool proto_next(struct proto_reader *reader, struct proto_field *field);
/* The number in a field of 64 or 32 bits; 0 for other fields. */
double proto_real(const struct proto_field *field);

#endif
