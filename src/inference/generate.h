/* SPDX-License-Identifier: Apache-2.0 */
/* generate.h - text that continues a prompt, token by token, over a key-value
 * cache: `lockstep generate`. */
#ifndef LOCKSTEP_INFERENCE_GENERATE_H
#define LOCKSTEP_INFERENCE_GENERATE_H

#include "tokenizer/token_list.h"
#include "inference/generator.h"
#include "inference/sample.h"
#include "inference/stop_text.h"

enum generate_stop { STOP_TOKENS, STOP_END_OF_TEXT, STOP_CONTEXT, STOP_TEXT };

struct generate_result;

struct generate_request {
    const char *model;   /* a path, session.h */
    enum device_kind device; /* where it is computed; zeroed: cpu */
    bool average;        /* the moving average of its weights */
    const char *prompt;  /* UTF-8; "": from the beginning of a text */
    const char *const *prompts; /* several, whose texts come in this order;
                          * NULL: `prompt` alone */
    int64_t prompt_count;
    const char *prompt_file; /* whose lines they are; NULL: of none */
    const int64_t *prompt_lines; /* [prompt_count], with prompt_file */
    int texts;           /* most that are made at once; 0: chosen so that
                          * caches are small beside the weights. Not where
                          * speculative: 1 */
    int64_t tokens;      /* most tokens to make */
    struct sampling sampling; /* the seed of the first; each later one has the
                          * next */
    struct stop_texts stops; /* the text ends before the first of them */
    enum dtype dtype;    /* of what is computed; zeroed: DTYPE_F32 */
    int threads;         /* 0: the cores of this process */
    bool latent_cache;   /* keeps latents instead of keys and values */
    bool speculative;    /* modules that predict later tokens guess them, and
                          * the model checks several at once: the same text */
    /* Takes text as soon as it is certain; UTF-8 unless the model makes bytes
     * that are not. NULL: nobody listens. */
    status (*write)(void *argument, const char *bytes, size_t length);
    /* A text is over; NULL: nobody asks. */
    status (*finish)(void *argument, int64_t index,
                     const struct generate_result *result);
    void *argument;
    bool echo;           /* the prompt first, once it is sure to be continued */
    struct token_list *ids; /* gains the tokens of a text before finish; NULL:
                          * nobody asks */
    bool stats;          /* weight_rate is wanted, which takes some reads */
};

struct generate_result {
    int64_t prompt_tokens, tokens; /* without the end of text */
    enum generate_stop stop;       /* STOP_CONTEXT deserves a notice */
    int64_t context;               /* of the model */
    double prompt_s, tokens_s;     /* seconds for each of the two; those that
                                    * other texts took meanwhile count */
    int64_t guessed, right;        /* tokens that modules guessed, and that the
                                    * model then chose */
    int64_t weight_bytes;          /* that every token reads */
    int64_t cache_bytes;           /* of a text's cache, for all positions */
    int64_t cache_positions;
    double weight_rate;            /* bytes a second of reading them; 0: not
                                    * asked for */
    char notice[512];              /* about damage that was passed over; "" */
};

/* The result is that of the last text. The weights are read once for the next
 * token of all texts that are under way; the bits of a text do not depend on
 * the others. ERR_MISSING: no tokenizer.json there; ERR_CONFIG: a tokenizer
 * with more ids than the model, a prompt that fills the context, a setting
 * outside its range. */
status generate(const struct generate_request *request,
                struct generate_result *result);

#endif
