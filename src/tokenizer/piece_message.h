/* SPDX-License-Identifier: Apache-2.0 */
/* piece_message.h - the fields of a protobuf message in a SentencePiece file,
 * with errors that name the file and the message. */
#ifndef LOCKSTEP_TOKENIZER_PIECE_MESSAGE_H
#define LOCKSTEP_TOKENIZER_PIECE_MESSAGE_H

#include "base/protobuf.h"
#include "base/status.h"

struct piece_message {
    struct proto_reader reader;
    const char *source, *name; /* for errors: the file, the message in it */
};

struct piece_message piece_message_of(const struct proto_field *from,
                                      const char *source, const char *name);
/* *more = false at the end. ERR_FORMAT: cut short, or no protobuf. */
status piece_message_next(struct piece_message *in, struct proto_field *field,
                          bool *more);
/* ERR_FORMAT when the field has another wire type. */
status piece_message_expect(const struct piece_message *in,
                            const struct proto_field *field,
                            enum proto_wire wire);

#endif
