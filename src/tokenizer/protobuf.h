/* SPDX-License-Identifier: Apache-2.0 */
/* protobuf.h - the fields of a protobuf message, one after the other.
 *
 * A message is a run of (number << 3 | wire type), value. Nothing is copied
 * and nothing is trusted: every length is checked against what is left.
 * Source: Protocol Buffers, Encoding. */
#ifndef LOCKSTEP_TOKENIZER_PROTOBUF_H
#define LOCKSTEP_TOKENIZER_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

enum protobuf_wire { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 5 };

struct protobuf {
    const unsigned char *at, *end;
    const char *source;  /* for messages */
    const char *message; /* its name there */
};

struct protobuf_field {
    int number;
    enum protobuf_wire wire;
    uint64_t value;             /* WIRE_VARINT, WIRE_32 and WIRE_64 */
    const unsigned char *bytes; /* WIRE_BYTES, in the message */
    size_t length;
};

/* *more = false at the end. ERR_FORMAT: cut short, or no protobuf. */
status protobuf_next(struct protobuf *in, struct protobuf_field *field,
                     bool *more);
/* ERR_FORMAT when the field has another wire type. */
status protobuf_expect(const struct protobuf *in,
                       const struct protobuf_field *field,
                       enum protobuf_wire wire);
/* The value of a WIRE_32 field as a number. */
float protobuf_float(const struct protobuf_field *field);

#endif
