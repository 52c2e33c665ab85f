/* SPDX-License-Identifier: Apache-2.0 */
/* generator.h - the logits of the next token, over a key-value cache: ids in,
 * logits out. They equal those of a full forward pass in every bit, however
 * the ids are cut into calls. (Those over a cache of latents, which a session
 * may ask for, differ from these by roundings.) */
#ifndef LOCKSTEP_INFERENCE_GENERATOR_H
#define LOCKSTEP_INFERENCE_GENERATOR_H

#include "inference/session.h"

enum { GENERATOR_TOKENS = 256 /* tokens of a prompt at once */ };

/* Modules that predict later tokens, as a program of generation has them. */
struct generator_modules {
    int depth;            /* 0: the generator leaves them out */
    int ends[1 + MTP_MOST]; /* events of F up to the model's head, and up to
                           * that of each module */
    int32_t *inputs;      /* owned, [depth][length]: nn/run.h */
    int64_t first;        /* position of the first token of the last call */
};

struct generator {
    struct stage stage;   /* owned; matrices of products lie in strips
                           * (kernels.h) where its kernels have them */
    bool *strips;         /* owned, [parameters] */
    int64_t position;     /* tokens in the cache */
    int64_t context;      /* positions of the cache, at most the model's */
    struct generator_modules modules;
    struct tensor logits; /* [1, vocab] of the last token, or [n, vocab] of
                           * those asked for; owned by stage, until the next
                           * call */
};

/* `prompt`: tokens of the first call, to size the work (longer ones are cut);
 * `context`: tokens in all. Both are at most the model's context. */
status generator_open(struct generator *generator, struct session *session,
                      enum dtype dtype, int threads, int64_t prompt,
                      int64_t context);
void generator_close(struct generator *generator);
/* Appends `count` ids, each in [0, vocab). ERR_CONFIG: beyond the context. */
status generator_feed(struct generator *generator, const int32_t *ids,
                      int64_t count);
/* Like generator_feed, with the logits of the last `last` ids, at most 1 +
 * depth of the modules. */
status generator_feed_last(struct generator *generator, const int32_t *ids,
                           int64_t count, int64_t last);
/* Forgets all ids: another text begins. */
void generator_begin(struct generator *generator);
/* Forgets ids of the last call from position `position` on. */
void generator_back(struct generator *generator, int64_t position);
/* Runs module number `module` (from 0 on) over the ids of the last call that
 * are left. ids: the whole text, [position + 1 + module], with what the modules
 * before it have guessed; logits: those of the token behind it. After
 * generator_feed, once for each module, in order. */
status generator_guess(struct generator *generator, int module,
                       const int32_t *ids);
/* run.logits.read of its stage: the generator is the argument. */
status generator_keep_logits(void *argument, int64_t token,
                             const struct tensor *logits);
/* Bytes of weights that every token reads: all but the rows of tables that it
 * does not look up. */
int64_t generator_weight_bytes(const struct generator *generator);
/* Bytes a second at which the threads read the weights where they lie; best of
 * several times; 0: they lie on a device apart. Weights that fit into a cache
 * come from there, here as in generation. */
double generator_weight_rate(struct generator *generator);

#endif
