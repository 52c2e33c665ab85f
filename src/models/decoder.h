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
 * are those of members (inference/stack.h). */
struct outside_stack {
    const char *name;        /* without the layer's prefix */
    const char *members[2];  /* with the expert's number, %d: gate and up, or
                              * one and NULL */
    bool transposed;         /* of each expert [cols, rows] */
    bool pairs;              /* rows of gate and up alternate */
};
enum { STACKS_MAX = 4 };

struct decoder {
    bool layernorm;          /* LayerNorm; else RMSNorm */
    bool plus_one;           /* weights of RMSNorm are stored less 1 */
    bool scaled_embedding;   /* by the root of the width */
    bool gelu_gate;          /* always GeGLU: gelu, tanh form, not silu */
    bool gated;              /* down(silu(gate) up), else activation alone */
    bool parallel_norm;      /* side by side, attention and feed-forward read
                              * one norm even if there are two names */
    bool by_group;           /* qkv: each key-value head follows its queries */
    bool pairs;              /* neighbours turn together, not halves */
    bool transposed;         /* matrices of blocks are [in, out] outside */
    const char *embedding, *positions, *head; /* positions NULL: rotary */
    const char *head_bias;   /* NULL: none */
    const char *router_bias; /* of the choice; NULL: published files of the
                              * family have none */
    bool bias_row;           /* it is a row outside, not a vector */
    struct outside
        attention_norm, attention_after, /* before it; of what it adds */
        q, k, v, qkv,        /* three tensors, or one */
        q_norm, k_norm,
        out,
        q_down, q_up, kv_down, kv_up, /* of latent attention (mla.c) */
        ffn_norm, ffn_after,
        gate, up, gate_up,   /* two tensors, or one; up alone: not gated */
        down,
        router,              /* of a mixture of experts: their logits, */
        expert_gate, expert_up, expert_down, /* one of each, its number %d, */
        shared_gate, shared_up, /* the expert of all tokens: two tensors, */
        shared_gate_up, shared_down, /* or one */
        shared_share,        /* and the logit of the share that it counts */
        norm;                /* after the last block */
    const char *sinks;       /* of attention; NULL: none */
    const char *expert_biases; /* of the down products of all experts; NULL:
                              * experts and router have no biases */
    bool square_norm;        /* where the model has qk_norm, queries and keys of
                              * blocks that turn are divided by the root of
                              * their mean square afterwards, without weights */
    bool gated_inputs;       /* gates multiply what experts read, not what they
                              * write */
    bool whole_norm;         /* q_norm, k_norm: over all heads at once */
    bool each_norm;          /* ... LayerNorm, each head with weights of its
                              * own, whose number is the %d of the name */
    struct outside_stack stacks[STACKS_MAX]; /* tensors of several experts */
    const char *joined, *joined_router; /* the modules of transformers 5 by
                              * which PEFT finds adapters of all experts of a
                              * block, in one tensor, and of the router; NULL:
                              * by the names here */
    bool joined_turned;      /* PEFT takes what these experts read for what they
                              * write: its A has what B has here */
};

static inline const struct decoder *model_decoder(const struct model *model)
{
    return model->decoder != NULL ? model->decoder : model->kind->decoder;
}

/* The names that Llama and its relatives share. */
#define DECODER_LLAMA \
    .gated = true, .embedding = "model.embed_tokens.weight", \
    .head = "lm_head.weight", .q = OUTSIDE("self_attn.q_proj"), \
    .k = OUTSIDE("self_attn.k_proj"), .v = OUTSIDE("self_attn.v_proj"), \
    .out = OUTSIDE("self_attn.o_proj"), .gate = OUTSIDE("mlp.gate_proj"), \
    .up = OUTSIDE("mlp.up_proj"), .down = OUTSIDE("mlp.down_proj"), \
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
