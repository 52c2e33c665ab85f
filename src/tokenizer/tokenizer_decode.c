/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_decode.c - ids to text. */
#include <string.h>
#include "tokenizer/tokenizer.h"

static status check_id(const struct tokenizer *tokenizer, int32_t id)
{
    if (tokenizer_kind(tokenizer, id) != TOKEN_MISSING) return OK;
    FAIL(ERR_CONFIG, "token id %d is outside the vocabulary of %s (%lld ids)",
         id, tokenizer->source, (long long)tokenizer->vocab);
}

/* The first token's name without the marks that stand for spaces, as the
 * Metaspace decoder of the library writes it. */
static status append_unmarked(const struct tokenizer *tokenizer, int32_t id,
                              struct text *out)
{
    const struct decoder *decoder = &tokenizer->decoder;
    const char *name = tokenizer->names[id];
    size_t length = tokenizer->name_lengths[id];

    while (length > 0) {
        const char *hit = memmem(name, length, decoder->mark,
                                 decoder->mark_length);
        const size_t run = hit == NULL ? length : (size_t)(hit - name);

        TRY(text_append(out, name, run));
        if (hit == NULL) break;
        name += run + decoder->mark_length;
        length -= run + decoder->mark_length;
    }
    return OK;
}

/* Appends what the id adds to the text so far. */
static status append_token(const struct tokenizer *tokenizer,
                           struct decode_state *state, int32_t id,
                           struct text *out)
{
    const struct decoder *decoder = &tokenizer->decoder;
    const bool first = !state->begun;
    const unsigned char *bytes;
    size_t length;

    TRY(check_id(tokenizer, id));
    bytes = tokenizer_bytes(tokenizer, id, &length);
    state->begun = true;
    if (!first && decoder->spaced) TRY(text_append(out, " ", 1));
    if (first && decoder->drop_first &&
        tokenizer->kinds[id] == TOKEN_LEARNED)
        return append_unmarked(tokenizer, id, out);
    while (!state->text && state->stripped < decoder->strip && length > 0 &&
           bytes[0] == decoder->strip_byte) {
        state->stripped++;
        bytes++;
        length--;
        if (decoder->strip_once) break;
    }
    if (length > 0) state->text = true;
    return text_append(out, bytes, length);
}

status tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids,
                        int64_t count, struct text *out)
{
    struct decode_state state = {0};

    TRY(text_append(out, "", 0)); /* there is a string even for no ids */
    for (int64_t i = 0; i < count; i++)
        TRY(append_token(tokenizer, &state, ids[i], out));
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

/* Takes one more byte. With it, the bytes held are a whole character, the start
 * of one, or can be neither. */
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
    struct text bytes = {0};
    status result;

    TRY(text_append(out, "", 0));
    TRY_GOTO(done, result,
             append_token(stream->tokenizer, &stream->state, id, &bytes));
    for (size_t i = 0; i < bytes.length; i++)
        TRY_GOTO(done, result,
                 stream_byte(stream, (unsigned char)bytes.bytes[i], out));
done:
    text_free(&bytes);
    return result;
}

status token_stream_end(struct token_stream *stream, struct text *out)
{
    TRY(text_append(out, stream->held, (size_t)stream->held_count));
    stream->held_count = 0;
    return OK;
}
