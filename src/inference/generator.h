/* SPDX-License-Identifier: Apache-2.0 */
/* generator.h - the logits of the next token, over a key-value cache: ids in,
 * logits out. They equal those of a full forward pass in every bit, however
 * the ids are cut into calls. (Those over a cache of latents, which a session
 * may ask for, differ from these by roundings.) */
#ifndef LOCKSTEP_INFERENCE_GENERATOR_H
#define LOCKSTEP_INFERENCE_GENERATOR_H

#include "inference/session.h"

enum { GENERATOR_TOKENS = 256, /* of a prompt at once */
       GENERATOR_TEXTS = 16, /* that suffice: a token of each costs little more
                              * than the reading of the weights */
       GENERATOR_TEXTS_MOST = 1024 };

/* Modules that predict later tokens, as a program of generation has them. */
struct generator_modules {
    int depth;            /* 0: the generator leaves them out */
    int ends[1 + MTP_MOST]; /* events of F up to the model's head, and up to
                           * that of each module */
    int32_t *inputs;      /* owned, [depth][length]: nn/run.h */
    int64_t first;        /* position of the first token of the last call */
};

/* How much a generator has room for. */
struct generator_room {
    int64_t prompt;       /* tokens of a first call, to size the work (longer
                           * ones are cut) */
    int64_t context;      /* tokens of a text in all; both are at most the
                           * model's context */
    int texts;            /* under way at once; 0: 1 */
    bool fewer;           /* if their caches are not small beside the weights */
};

/* The next token of a text that is under way. */
struct generator_next { int32_t id, position, text; };

struct generator {
    struct stage stage;   /* owned; matrices of products lie in strips
                           * (kernels.h) where its kernels have them */
    bool *strips;         /* owned, [parameters] */
    int64_t text;         /* that is fed: number of its cache */
    int64_t position;     /* its tokens in the cache */
    int texts;            /* caches */
    int32_t *each;        /* owned, [3][texts]: ids, positions, texts */
    int64_t context;      /* positions of the cache, at most the model's */
    struct generator_modules modules;
    struct tensor logits; /* [1, vocab] of the last token, or [n, vocab] of
                           * those asked for, or of each text; owned by stage,
                           * until the next call */
};

status generator_open(struct generator *generator, struct session *session,
                      enum dtype dtype, int threads,
                      const struct generator_room *room);
void generator_close(struct generator *generator);
/* Appends `count` ids, each in [0, vocab). ERR_CONFIG: beyond the context. */
status generator_feed(struct generator *generator, const int32_t *ids,
                      int64_t count);
/* Like generator_feed, with the logits of the last `last` ids, at most 1 +
 * depth of the modules. */
status generator_feed_last(struct generator *generator, const int32_t *ids,
                           int64_t count, int64_t last);
/* Another text begins in cache number `text`, which forgets its ids; it is the
 * one that is fed. */
void generator_begin(struct generator *generator, int text);
/* Appends a token to each of `count` texts, all different, whose earlier tokens
 * were fed; row i of the logits is that of next[i]. The weights are read once.
 * Bits are those of feeding each alone. Not with modules. */
status generator_feed_each(struct generator *generator,
                           const struct generator_next *next, int count);
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
