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
static status hold_byte(struct token_decoder *decoder, unsigned char byte,
                        struct text *out)
{
    const bool follows = (byte & 0xC0) == 0x80;

    if (decoder->held_count > 0 && !follows)
        TRY(token_decoder_end(decoder, out)); /* it was broken */
    if (decoder->held_count == 0 && length_of(byte) == 1) {
        TRY(text_append(out, &byte, 1));
        return OK;
    }
    decoder->held[decoder->held_count++] = byte;
    if (decoder->held_count == length_of(decoder->held[0]))
        TRY(token_decoder_end(decoder, out));
    return OK;
}

status token_decoder_next(struct token_decoder *decoder, int32_t id,
                          struct text *out)
{
    struct text bytes = {0};
    status result;

    TRY(text_append(out, "", 0));
    TRY_GOTO(done, result,
             append_token(decoder->tokenizer, &decoder->state, id, &bytes));
    for (size_t i = 0; i < bytes.length; i++)
        TRY_GOTO(done, result,
                 hold_byte(decoder, (unsigned char)bytes.bytes[i], out));
done:
    text_free(&bytes);
    return result;
}

status token_decoder_end(struct token_decoder *decoder, struct text *out)
{
    TRY(text_append(out, decoder->held, (size_t)decoder->held_count));
    decoder->held_count = 0;
    return OK;
}
