/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_decode.c - ids to text. */
#include <string.h>
#include "data/tokenizer.h"

static status check_id(const struct tokenizer *tokenizer, int32_t id)
{
    if (tokenizer_kind(tokenizer, id) != TOKEN_MISSING) return OK;
    FAIL(ERR_CONFIG, "token id %d is outside the vocabulary of %s (%lld ids)",
         id, tokenizer->source, (long long)tokenizer->vocab);
}

status tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids,
                        int64_t count, struct text *out)
{
    TRY(text_append(out, "", 0)); /* there is a string even for no ids */
    for (int64_t i = 0; i < count; i++) {
        const unsigned char *bytes;
        size_t length;

        TRY(check_id(tokenizer, ids[i]));
        bytes = tokenizer_bytes(tokenizer, ids[i], &length);
        TRY(text_append(out, bytes, length));
    }
    return OK;
}

/* Bytes that the character at `byte` has by its first byte; 1 when it starts
 * none. */
static int length_of(unsigned char byte)
{
    if (byte >= 0xF0 && byte <= 0xF4) return 4;
    if (byte >= 0xE0 && byte < 0xF0) return 3;
    if (byte >= 0xC2 && byte < 0xE0) return 2;
    return 1;
}

/* One more byte: what is held plus this one is complete, hopeless or still
 * the start of a character. */
static status stream_byte(struct token_stream *stream, unsigned char byte,
                          struct text *out)
{
    const bool follows = (byte & 0xC0) == 0x80;

    if (stream->held_count > 0 && !follows)
        TRY(token_stream_end(stream, out)); /* it was broken */
    if (stream->held_count == 0 && length_of(byte) == 1) {
        TRY(text_append(out, &byte, 1));
        return OK;
    }
    stream->held[stream->held_count++] = byte;
    if (stream->held_count == length_of(stream->held[0]))
        TRY(token_stream_end(stream, out));
    return OK;
}

status token_stream_next(struct token_stream *stream, int32_t id,
                         struct text *out)
{
    const unsigned char *bytes;
    size_t length;

    TRY(check_id(stream->tokenizer, id));
    TRY(text_append(out, "", 0));
    bytes = tokenizer_bytes(stream->tokenizer, id, &length);
    for (size_t i = 0; i < length; i++)
        TRY(stream_byte(stream, bytes[i], out));
    return OK;
}

status token_stream_end(struct token_stream *stream, struct text *out)
{
    TRY(text_append(out, stream->held, (size_t)stream->held_count));
    stream->held_count = 0;
    return OK;
}
