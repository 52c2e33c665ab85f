/* SPDX-License-Identifier: Apache-2.0 */
/* piece_message.c - the fields of a message in a SentencePiece file. */
#include "tokenizer/piece_message.h"

struct piece_message piece_message_of(const struct proto_field *from,
                                      const char *source, const char *name)
{
    return (struct piece_message){proto_open(from->bytes, from->length),
                                  source, name};
}

status piece_message_next(struct piece_message *in, struct proto_field *field,
                          bool *more)
{
    *more = proto_next(&in->reader, field);
    if (in->reader.bad != NULL)
        FAIL(ERR_FORMAT, "%s: %s %s", in->source, in->name, in->reader.bad);
    return OK;
}

status piece_message_expect(const struct piece_message *in,
                            const struct proto_field *field,
                            enum proto_wire wire)
{
    if (field->wire == wire) return OK;
    FAIL(ERR_FORMAT, "%s: %s: field %d has wire type %d, not %d", in->source,
         in->name, field->number, (int)field->wire, (int)wire);
}
