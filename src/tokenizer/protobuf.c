/* SPDX-License-Identifier: Apache-2.0 */
/* protobuf.c - the fields of a protobuf message, one after the other. */
#include "tokenizer/protobuf.h"

#include <string.h>

enum { VARINT_BYTES = 10, NUMBER_MAX = 536870911 };

static status cut_short(const struct protobuf *in)
{
    FAIL(ERR_FORMAT, "%s: %s ends in the middle of a field", in->source,
         in->message);
}

static status read_varint(struct protobuf *in, uint64_t *out)
{
    *out = 0;
    for (int i = 0; i < VARINT_BYTES; i++) {
        const unsigned char byte = in->at < in->end ? *in->at : 0;

        if (in->at == in->end) return cut_short(in);
        in->at++;
        if (i == VARINT_BYTES - 1 && byte > 1) break;
        *out |= (uint64_t)(byte & 0x7F) << (7 * i);
        if (byte < 0x80) return OK;
    }
    FAIL(ERR_FORMAT, "%s: %s has a number of more than 64 bits", in->source,
         in->message);
}

static status read_fixed(struct protobuf *in, int bytes, uint64_t *out)
{
    *out = 0;
    if (in->end - in->at < bytes) return cut_short(in);
    for (int i = bytes - 1; i >= 0; i--) *out = *out << 8 | in->at[i];
    in->at += bytes;
    return OK;
}

static status read_bytes(struct protobuf *in, struct protobuf_field *field)
{
    uint64_t length;

    TRY(read_varint(in, &length));
    if (length > (uint64_t)(in->end - in->at)) return cut_short(in);
    field->bytes = in->at;
    field->length = (size_t)length;
    in->at += length;
    return OK;
}

status protobuf_next(struct protobuf *in, struct protobuf_field *field,
                     bool *more)
{
    uint64_t key;

    *field = (struct protobuf_field){0};
    *more = in->at < in->end;
    if (!*more) return OK;
    TRY(read_varint(in, &key));
    if (key >> 3 == 0 || key >> 3 > NUMBER_MAX)
        FAIL(ERR_FORMAT, "%s: %s has a field number %llu", in->source,
             in->message, (unsigned long long)(key >> 3));
    field->number = (int)(key >> 3);
    field->wire = (enum protobuf_wire)(key & 7);
    switch (key & 7) {
    case WIRE_VARINT: return read_varint(in, &field->value);
    case WIRE_64: return read_fixed(in, 8, &field->value);
    case WIRE_BYTES: return read_bytes(in, field);
    case WIRE_32: return read_fixed(in, 4, &field->value);
    default: break;
    }
    FAIL(ERR_FORMAT, "%s: %s: field %d has wire type %d", in->source,
         in->message, field->number, (int)(key & 7));
}

status protobuf_expect(const struct protobuf *in,
                       const struct protobuf_field *field,
                       enum protobuf_wire wire)
{
    if (field->wire == wire) return OK;
    FAIL(ERR_FORMAT, "%s: %s: field %d has wire type %d, not %d", in->source,
         in->message, field->number, (int)field->wire, (int)wire);
}

float protobuf_float(const struct protobuf_field *field)
{
    const uint32_t bits = (uint32_t)field->value;
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}
