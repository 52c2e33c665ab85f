/* SPDX-License-Identifier: Apache-2.0 */
/* decoder.h - a transformer as a table: which parts a family's block has, and
 * what its tensors are called in Hugging Face files. decoder.c builds it. */
#ifndef LOCKSTEP_MODELS_DECODER_H
#define LOCKSTEP_MODELS_DECODER_H

#include "models/model.h"

/* Names of a tensor, its bias and its adapter, without the layer's prefix;
 * weight NULL: the family has no such part. */
struct outside { const char *weight, *bias, *lora_a, *lora_b; };
#define OUTSIDE(name) \
    {name ".weight", name ".bias", name ".lora_A.weight", \
     name ".lora_B.weight"}
#define OUTSIDE_WEIGHT(name) \
    {name ".weight", NULL, name ".lora_A.weight", name ".lora_B.weight"}

/* A tensor outside that has a part of every expert of a block, whose names here
 * are those of members (inference/expert_stack.h). */
struct outside_stack {
    const char *name;        /* without the layer's prefix */
    const char *members[2];  /* with the expert's number, %d: gate and up, or
                              * one and NULL */
    bool transposed;         /* of each expert [cols, rows] */
    bool pairs;              /* rows of gate and up alternate */
};
enum { STACKS_MAX = 4 };

struct decoder {
    bool scaled_embedding;   /* by the root of the width */
    bool transposed;         /* matrices of blocks are [in, out] outside */
    const char *embedding, *positions, *head; /* positions NULL: rotary */
    const char *head_bias;   /* NULL: none */
    struct outside norm;     /* after the last block */
    struct {
        bool layernorm;      /* LayerNorm; else RMSNorm */
        bool plus_one;       /* weights of RMSNorm are stored less 1 */
        bool parallel;       /* side by side, attention and feed-forward read
                              * one norm even if there are two names */
        bool whole;          /* q_norm, k_norm: over all heads at once */
        bool each;           /* ... LayerNorm, each head with weights of its
                              * own, whose number is the %d of the name */
        bool square;         /* where the model has qk_norm, queries and keys of
                              * blocks that turn are divided by the root of
                              * their mean square afterwards, without weights */
    } norms;
    struct {
        struct outside norm, after; /* before it; of what it adds */
        struct outside q, k, v, qkv; /* three tensors, or one */
        struct outside q_norm, k_norm, out;
        const char *sinks;   /* NULL: none */
        bool by_group;       /* qkv: each key-value head follows its queries */
        bool pairs;          /* neighbours turn together, not halves */
    } attention;
    struct { struct outside q_down, q_up, kv_down, kv_up; } latent; /* mla.c */
    struct {
        struct outside norm, after;
        struct outside gate, up, gate_up; /* two tensors, or one; up alone: not
                              * gated */
        struct outside down;
        bool gated;          /* down(silu(gate) up), else activation alone */
        bool gelu;           /* always GeGLU: gelu, tanh form, not silu */
    } ffn;
    struct {                 /* a mixture of experts */
        struct outside router; /* makes their logits */
        const char *bias;    /* of the choice; NULL: published files of the
                              * family have none */
        bool bias_row;       /* it is a row outside, not a vector */
        struct outside gate, up, down; /* one of each, its number %d */
        const char *biases;  /* of the down products of all experts; NULL:
                              * experts and router have no biases */
        bool gated_inputs;   /* gates multiply what experts read, not what they
                              * write */
        struct outside_stack stacks[STACKS_MAX]; /* tensors of several */
        const char *joined, *joined_router; /* the modules of transformers 5 by
                              * which PEFT finds adapters of all experts of a
                              * block, in one tensor, and of the router; NULL:
                              * by the names here */
        bool joined_turned;  /* PEFT takes what these experts read for what they
                              * write: its A has what B has here */
    } moe;
    struct {                 /* the expert of all tokens */
        struct outside gate, up, gate_up; /* two tensors, or one */
        struct outside down;
        struct outside share; /* the logit of the share that it counts */
    } shared;
};

static inline const struct decoder *model_decoder(const struct model *model)
{
    return model->decoder != NULL ? model->decoder : model->kind->decoder;
}

/* The names that Llama and its relatives share. */
#define DECODER_LLAMA \
    .ffn.gated = true, .embedding = "model.embed_tokens.weight", \
    .head = "lm_head.weight", \
    .attention.q = OUTSIDE("self_attn.q_proj"), \
    .attention.k = OUTSIDE("self_attn.k_proj"), \
    .attention.v = OUTSIDE("self_attn.v_proj"), \
    .attention.out = OUTSIDE("self_attn.o_proj"), \
    .ffn.gate = OUTSIDE("mlp.gate_proj"), \
    .ffn.up = OUTSIDE("mlp.up_proj"), \
    .ffn.down = OUTSIDE("mlp.down_proj"), \
    .norm = OUTSIDE_WEIGHT("model.norm")

/* A product, with the adapters that the model has beside it. weight_bias[1]
 * with rows 0: no bias. names [count]: of its pieces outside, or of all of them
 * together. down: of a small matrix that no axis cuts (nn_down). */
slot decoder_linear(struct program *p, const struct model *m, slot x,
                    const struct param_spec weight_bias[2],
                    const struct outside *const *names, int count);
slot decoder_down(struct program *p, const struct model *m, slot x,
                  const struct param_spec *weight,
                  const struct outside *name);
status decoder_build(struct program *program, const struct model *model);

#endif
