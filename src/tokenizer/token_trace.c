/* SPDX-License-Identifier: Apache-2.0 */
/* token_trace.c - the positions that an encoding call records on request.
 *
 * The rules are those of the libraries. To `tokenizers` a token stands for all
 * bytes from the first origin of its first byte to the last of its last one;
 * then a post-processor may take the white space off its ends, which is counted
 * in characters. */
#include "tokenizer/token_trace.h"

#include <string.h>
#include "tokenizer/unicode.h"
#include "tokenizer/word_merge.h"

#define SPACE_BYTE "\xC4\xA0" /* U+0120, how the byte alphabet writes a space */

void token_trace_word(struct token_trace *trace, const unsigned char *word,
                      size_t length, const struct origin *from)
{
    trace->word = word;
    trace->from = from;
    trace->length = length;
    trace->at = trace->done = trace->sum = 0;
}

static bool blank_at(const unsigned char *text, size_t at, size_t *size)
{
    if ((unicode_at(text, at, size) & CLASS_SPACE) != 0) return true;
    return *size == 2 && memcmp(text + at, SPACE_BYTE, 2) == 0;
}

static uint32_t blanks_before(const unsigned char *text, size_t length)
{
    uint32_t count = 0;
    size_t size;

    for (size_t at = 0; at < length && blank_at(text, at, &size); at += size)
        count++;
    return count;
}

static uint32_t blanks_after(const unsigned char *text, size_t length)
{
    uint32_t count = 0;
    size_t size;

    while (length > 0) {
        const size_t at = length - unicode_before(text, length);

        if (!blank_at(text, at, &size)) break;
        length = at;
        count++;
    }
    return count;
}

status token_trace_origin(struct token_trace *trace, struct origin origin,
                          const unsigned char *spelled, size_t length)
{
    struct traced_token token = {.origin = origin};

    if (trace->count == trace->capacity) {
        const int64_t capacity = trace->capacity * 2 + 64;
        void *grown = trace->items;

        TRY(memory_grow(&grown, (size_t)capacity, sizeof *trace->items));
        trace->items = grown;
        trace->capacity = capacity;
    }
    if (spelled != NULL && trace->tokenizer->trim_count > 0) {
        token.before = blanks_before(spelled, length);
        token.after = blanks_after(spelled, length);
    }
    trace->items[trace->count++] = token;
    return OK;
}

status token_trace_token(struct token_trace *trace, struct span part,
                         const unsigned char *spelled, size_t length)
{
    struct origin origin = {0, 0};

    if (part.start < trace->length)
        origin = trace->from[part.start];
    if (part.stop > part.start)
        origin.stop = trace->from[part.stop - 1].stop;
    else
        origin.stop = origin.start;
    return token_trace_origin(trace, origin, spelled, length);
}

/* Passes bytes until their sizes reach `stop`. */
static void advance(struct token_trace *trace, size_t stop)
{
    while (trace->at < trace->length && trace->done < stop)
        trace->done += (size_t)word_byte_size(trace->tokenizer,
                                              trace->word[trace->at++]);
}

/* A byte that the alphabet writes as two may be cut by what was dropped before
 * it: both sides have it. */
status token_trace_merged(struct token_trace *trace, const int32_t *ids,
                          int64_t count)
{
    const struct tokenizer *tokenizer = trace->tokenizer;
    size_t sum = trace->sum;

    for (int64_t i = 0; i < count; i++) {
        const int32_t id = ids[i];
        struct span part;

        part.start = trace->done > sum ? trace->at - 1 : trace->at;
        sum += (size_t)trace->sizes.ids[i];
        advance(trace, sum);
        part.stop = trace->at;
        if (trace->sizes.ids[i] == 0) part.stop = part.start;
        TRY(token_trace_token(trace, part,
                        (const unsigned char *)tokenizer->names[id],
                        tokenizer->name_lengths[id]));
    }
    trace->sum = sum;
    trace->sizes.count = 0;
    return OK;
}

void token_trace_fuse(struct token_trace *trace, int64_t count)
{
    const int64_t at = trace->count - count;

    trace->items[at - 1].origin.stop = trace->items[at].origin.stop;
    trace->count--;
    for (int64_t i = at; i < trace->count; i++)
        trace->items[i] = trace->items[i + 1];
}

/* Trims as ByteLevel and RobertaProcessing do with trim_offsets. The only space
 * of the first token may be one that the tokenizer added. */
static void trim(const struct tokenizer_trim *rule,
                 const struct traced_token *token, bool first,
                 struct token_range *range)
{
    int64_t before = token->before;
    const int64_t after = token->after;

    if ((first || range->start == 0) && rule->prefix && before == 1)
        before = 0;
    range->start = range->start + before < range->stop ? range->start + before
                                                       : range->stop;
    if (after > 0 && range->stop >= after)
        range->stop = range->stop - after > range->start ? range->stop - after
                                                         : range->start;
}

/* Numbers of characters and places of bytes, both ways. */
struct rulers {
    uint32_t *character; /* owned [length + 1]: that the byte belongs to */
    uint32_t *byte;      /* owned [characters + 1]: where it begins */
    uint32_t characters;
};

static void rulers_free(struct rulers *rulers)
{
    memory_free(rulers->character);
    memory_free(rulers->byte);
}

static status rulers_build(struct rulers *rulers, const char *text,
                           size_t length)
{
    uint32_t count = 0;
    void *memory = NULL;

    *rulers = (struct rulers){0};
    TRY(memory_take(length + 1, sizeof *rulers->character, &memory));
    rulers->character = memory;
    for (size_t i = 0; i < length; i++) {
        count += (text[i] & 0xC0) != 0x80;
        rulers->character[i] = count - 1;
    }
    rulers->character[length] = rulers->characters = count;
    memory = NULL;
    TRY(memory_take((size_t)count + 1, sizeof *rulers->byte, &memory));
    rulers->byte = memory;
    for (size_t i = length; i > 0; i--)
        rulers->byte[rulers->character[i - 1]] = (uint32_t)(i - 1);
    rulers->byte[count] = (uint32_t)length;
    return OK;
}

/* The i-th token of the text; special: the template's stand around it. */
static struct token_place place_of(const struct token_trace *trace, int64_t i,
                                   bool special, const struct rulers *rulers)
{
    const struct tokenizer *tokenizer = trace->tokenizer;
    const struct traced_token *token = &trace->items[i];
    struct token_range range = {rulers->character[token->origin.start],
                                rulers->character[token->origin.stop]};

    for (int t = 0; t < tokenizer->trim_count; t++) {
        const struct tokenizer_trim *rule = &tokenizer->trims[t];
        const bool behind = special && rule->behind;

        trim(rule, token, i == 0 && !behind, &range);
    }
    return (struct token_place){
        .characters = range,
        .bytes = {rulers->byte[range.start], rulers->byte[range.stop]}};
}

status token_trace_places(const struct token_trace *trace, const char *text,
                          size_t length, bool special,
                          struct token_places *out)
{
    struct rulers rulers;
    status result;

    TRY_GOTO(done, result, rulers_build(&rulers, text, length));
    for (int64_t i = 0; i < trace->count; i++) {
        const struct token_place place = place_of(trace, i, special, &rulers);

        TRY_GOTO(done, result, token_places_add(out, &place));
    }
done:
    rulers_free(&rulers);
    return result;
}

void token_trace_free(struct token_trace *trace)
{
    memory_free(trace->items);
    token_list_free(&trace->sizes);
    *trace = (struct token_trace){.tokenizer = trace->tokenizer};
}
