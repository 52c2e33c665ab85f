/* SPDX-License-Identifier: Apache-2.0 */
/* chat.h - conversations as text with parts that are learned and parts that
 * are not.
 *
 *   chatml   <|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n
 *            Three.<|im_end|>\n
 *            ~~~~~~~~~~~~~~~~ learned: what the assistant says, and its stop
 *
 * A template is a row of strings. No token has a part of an answer and of what
 * stands before it: so the tokens before an answer are those of a prompt that
 * ends there, as at generation. Else they are those of the whole text. */
#ifndef LOCKSTEP_CORPUS_CHAT_H
#define LOCKSTEP_CORPUS_CHAT_H

#include "base/json.h"
#include "corpus/corpus.h"
#include "tokenizer/tokenizer.h"

struct chat_template {
    const char *name;
    const char *begin;          /* of a conversation */
    const char *before_role, *after_role;
    const char *stop;           /* after the content; learned with it */
    const char *after_stop;
    const char *assistant;      /* what the role is called in the text */
    bool trimmed;               /* white space around contents is dropped */
    bool system;                /* there may be a system message */
    const char *markers[4];     /* tokens that the tokenizer must have */
};

/* Raised when other text comes of the same messages: a part of what names a
 * cached token file. */
enum { CHAT_VERSION = 2 };

/* ERR_CONFIG names the templates there are. */
status chat_find(const char *name, const struct chat_template **out);
/* ERR_CONFIG: a marker of the template is no token. */
status chat_check(const struct chat_template *chat,
                  const struct tokenizer *tokenizer);

/* A text being put together. */
struct chat_text {
    struct text text;
    struct corpus_segment *segments; /* owned [segment_room] */
    bool headed; /* as in corpus_document */
    int segment_count, segment_room;
};
/* An array of {role, content}; from and value are read likewise, also human,
 * gpt for user, assistant. "weight": 0 in a message: it is not learned.
 * `source` names the record. ERR_FORMAT. */
status chat_render(struct chat_text *out, const struct chat_template *chat,
                   const struct json *messages, const char *source);
/* A prompt and its learned completion, nothing between them. */
status chat_pair(struct chat_text *out, const struct json *prompt,
                 const struct json *completion);
void chat_text_free(struct chat_text *out);

#endif
