/* SPDX-License-Identifier: Apache-2.0 */
/* added_tokens.c - finds added tokens in text. */
#include "tokenizer/added_tokens.h"

#include "base/arena.h"
#include "base/text.h"
#include "tokenizer/unicode.h"

static status node_add(struct added_matcher *matcher, unsigned char byte,
                       int32_t *out)
{
    if (matcher->count == matcher->capacity) {
        const int32_t capacity = matcher->capacity * 2 + 64;
        void *grown = matcher->nodes;

        if (matcher->capacity > INT32_MAX / 4)
            FAIL(ERR_MEMORY, "the added tokens have too many bytes");
        TRY(memory_grow(&grown, (size_t)capacity, sizeof *matcher->nodes));
        matcher->nodes = grown;
        matcher->capacity = capacity;
    }
    matcher->nodes[matcher->count] =
        (struct added_node){.token = -1, .byte = byte};
    *out = matcher->count++;
    return OK;
}

status added_init(struct added_matcher *matcher,
                  const struct added_token *tokens)
{
    int32_t root;

    *matcher = (struct added_matcher){.tokens = tokens};
    TRY(node_add(matcher, 0, &root));
    return OK;
}

static int32_t child_of(const struct added_matcher *matcher, int32_t node,
                        unsigned char byte)
{
    int32_t child = matcher->nodes[node].child;

    while (child != 0 && matcher->nodes[child].byte != byte)
        child = matcher->nodes[child].sibling;
    return child;
}

status added_insert(struct added_matcher *matcher, int32_t index,
                    const char *pattern, size_t length)
{
    int32_t node = 0, *found;

    if (length == 0) return OK;
    for (size_t i = 0; i < length; i++) {
        const unsigned char byte = (unsigned char)pattern[i];
        int32_t child = child_of(matcher, node, byte);

        if (child == 0) {
            TRY(node_add(matcher, byte, &child));
            matcher->nodes[child].sibling = matcher->nodes[node].child;
            matcher->nodes[node].child = child;
            if (node == 0) matcher->first[byte] = child;
        }
        node = child;
    }
    found = &matcher->nodes[node].token;
    if (*found < 0 || matcher->tokens[*found].id == matcher->tokens[index].id)
        *found = index; /* a token that is listed again: as it was last */
    return OK;
}

void added_free(struct added_matcher *matcher)
{
    memory_free(matcher->nodes);
    *matcher = (struct added_matcher){0};
}

/* Longest token at text[at], or -1. */
static int32_t longest(const struct added_matcher *matcher, const char *text,
                       size_t length, size_t at, size_t *stop)
{
    int32_t node = matcher->first[(unsigned char)text[at]], found = -1;

    while (node != 0) {
        at++;
        if (matcher->nodes[node].token >= 0) {
            found = matcher->nodes[node].token;
            *stop = at;
        }
        if (at == length) break;
        node = child_of(matcher, node, (unsigned char)text[at]);
    }
    return found;
}

size_t added_longest(const struct added_matcher *matcher, const char *text,
                     size_t length)
{
    size_t stop;

    return longest(matcher, text, length, 0, &stop) < 0 ? 0 : stop;
}

/* \w of the library's engine also has the symbols that are Alphabetic, letters
 * in circles and squares, and the two that join. */
static bool is_other_word(uint32_t code)
{
    return code == 0x200C || code == 0x200D ||
           (code >= 0x24B6 && code <= 0x24E9) ||
           (code >= 0x1F130 && code <= 0x1F149) ||
           (code >= 0x1F150 && code <= 0x1F169) ||
           (code >= 0x1F170 && code <= 0x1F189);
}

static bool word_at(const unsigned char *text, size_t at)
{
    uint32_t code;
    size_t length;

    if ((unicode_at(text, at, &length) & CLASS_WORD) != 0) return true;
    text_utf8_decode((const char *)text + at, length, &code);
    return is_other_word(code);
}

static bool stands_alone(const unsigned char *text, size_t length,
                         size_t start, size_t stop)
{
    if (start > 0 && word_at(text, start - unicode_before(text, start)))
        return false;
    return stop == length || !word_at(text, stop);
}

static bool space_at(const unsigned char *text, size_t at, size_t *length)
{
    return (unicode_at(text, at, length) & CLASS_SPACE) != 0;
}

/* The match grows over white space. */
static void strip(const struct added_search *search,
                  struct added_match *match)
{
    const unsigned char *bytes = (const unsigned char *)search->text;
    size_t step;

    if (match->token->lstrip && match->start < search->done)
        match->start = search->done;
    while (match->token->lstrip && match->start > search->done) {
        step = unicode_before(bytes, match->start);
        if (step > match->start - search->done ||
            !space_at(bytes, match->start - step, &step)) break;
        match->start -= step;
    }
    while (match->token->rstrip && match->stop < search->length &&
           space_at(bytes, match->stop, &step))
        match->stop += step;
}

bool added_next(const struct added_matcher *matcher,
                struct added_search *search, struct added_match *match)
{
    const unsigned char *bytes = (const unsigned char *)search->text;
    const size_t length = search->length;

    for (; search->at < length; search->at++) {
        const int32_t index = longest(matcher, search->text, length,
                                      search->at, &match->stop);

        if (index < 0) continue;
        match->token = &matcher->tokens[index];
        match->start = search->at;
        /* Checks the text after the bare match. */
        if (match->token->single_word &&
            !stands_alone(bytes, length, match->start, match->stop)) {
            search->at = match->stop - 1;
            continue;
        }
        search->at = match->stop;
        strip(search, match);
        if (match->start >= match->stop) { /* all of it was taken before */
            search->at--;
            continue;
        }
        search->done = match->stop;
        return true;
    }
    return false;
}
