/* SPDX-License-Identifier: Apache-2.0 */
/* lora.h - which matrices of a model have low-rank adapters, of which rank.
 * Source: Hu et al. 2021, arXiv:2106.09685. */
#ifndef LOCKSTEP_MODELS_LORA_H
#define LOCKSTEP_MODELS_LORA_H

#include "models/model.h"

struct outside;

enum {
    LORA_FEED_FORWARD = 9, /* parts from here on are of a dense block, */
    LORA_ROUTER = 13,      /* one is the router, */
    LORA_SHARED = 14,      /* then those of the expert of all tokens, */
    LORA_EXPERTS = 18,     /* and of every expert that tokens choose: */
    LORA_EXPERTS_DOWN = 20, /* gate, up, down */
    LORA_NAME_BYTES = 128,
    LORA_MODULE_BYTES = 256
};

/* The adapters that the options ask for: one rank, the same matrices in every
 * block. */
struct lora_wish {
    int rank;                   /* 0: none */
    double alpha;
    bool root;                  /* alpha over the root of the rank */
    const char *const *targets; /* [count] such as q_proj, or all: but for
                                 * experts that tokens choose */
    int count;
};

/* model->lora. ERR_CONFIG: not a matrix of the family's blocks (names the
 * nearest). */
status lora_choose(struct model *model, const struct lora_wish *wish);

/* A matcher of the regular expressions in settings of PEFT, who also knows the
 * tensors beside them. */
struct lora_matcher {
    /* *yes: does the pattern match all of the name? */
    status (*matches)(void *argument, const char *pattern, const char *name,
                      bool *yes);
    /* Has the file an adapter of the module? */
    bool (*has)(void *argument, const char *module);
    void *argument;
};
/* adapter_config.json, as PEFT has it (lora_config.c, lora_write.c). Reading
 * sets model->lora; NULL: only plain names can be read. ERR_CONFIG names what
 * is not computed here: DoRA, biases, modules that are saved whole. */
/* joined: for files where all experts share a tensor (lora_is_joined). */
status lora_write_config(const struct model *model, bool joined,
                         struct text *out);
status lora_read_config(struct model *model, const char *path,
                        const struct lora_matcher *matcher);

/* The class, from 1 on, of what stands beside a matrix of a block; 0:
 * nothing. */
int lora_at(const struct model *model, int layer, const struct outside *part);
/* The factor of the adapter products of a class. */
double lora_scale(const struct lora *lora, int class);
/* Has it adapters that PEFT finds in tensors of all experts only, or under
 * another name of the router (joined of struct decoder)? */
bool lora_is_joined(const struct model *model);
/* Has it adapters of dense blocks, or of the expert of all tokens, that PEFT
 * 0.21 takes for those of experts that tokens choose, whose names end alike? */
bool lora_loses_dense(const struct model *model);
/* The rank of the adapters of gate and up together, or of down, of all experts
 * of a block, and their alpha; 0: there are none. */
int lora_joint(const struct model *model, int layer, bool down, double *alpha);
/* Does the same stand beside the same? The rest of two models is equal. */
bool lora_same(const struct model *a, const struct model *b);

/* ---- for lora_config.c, lora_write.c ---- */

/* Part i of LORA_PARTS of the model's blocks; NULL: it has none such. */
const struct outside *lora_part(const struct model *model, int index);
/* Does this block have it? */
bool lora_has(const struct model *model, int layer, int index);
/* How many matrices of a block are that part: one, or as many as experts. */
int lora_copies(const struct model *model, int index);
/* "self_attn.q_proj" of "self_attn.q_proj.weight"; "experts.3.w1" where the
 * part is one of every expert, "experts.w1" with the number -1. */
void lora_stem(const struct outside *part, int expert,
               char out[LORA_NAME_BYTES]);
/* "model.layers.0.self_attn.q_proj"; `expert`: of a part that every expert
 * has. */
void lora_module(const struct model *model, int layer,
                 const struct outside *part, int expert,
                 char out[LORA_MODULE_BYTES]);
/* Is it, as PEFT calls it, the parameter that has the part of every expert
 * ("experts.gate_up_proj", "experts.down_proj"), or the router's weight? */
bool lora_is_parameter(const struct model *model, const char *name, int index);
/* "q_proj" of it. */
const char *lora_last(const char *stem);
/* Class of rank and alpha, made if there is none. ERR_CONFIG: too many. */
status lora_class(struct lora *lora, int rank, double alpha, int *class);
int lora_site(const struct lora *lora, int layer, int part);
/* The layer's site; layers come in order, each with all its parts. */
status lora_add_layer(struct lora *lora, int layer,
                      const struct lora_site *site);
/* After all layers. ERR_CONFIG: rows of q and k that only v tells apart. */
status lora_check(const struct model *model);

#endif
