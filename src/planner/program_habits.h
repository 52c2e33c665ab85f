/* SPDX-License-Identifier: Apache-2.0 */
/* program_habits.h - programs whose steps are predicted, and how each makes
 * one. */
#ifndef LOCKSTEP_PLANNER_PROGRAM_HABITS_H
#define LOCKSTEP_PLANNER_PROGRAM_HABITS_H

#include <stdbool.h>

/* It decides the types of reductions and which activations are kept. */
enum program_as {
    AS_LOCKSTEP,
    AS_MEGATRON,           /* Megatron-LM of 2021 and 2022 */
    AS_TORCHTITAN,         /* compiled, its loss, too (since 2025) */
    AS_MEGATRON_CORE,      /* Megatron-LM since 2023 */
    AS_MEGATRON_DEEPSPEED,
    AS_PYTORCH,            /* FSDP, not compiled */
    AS_NANOTRON,
    AS_NEMO,               /* NeMo and Megatron-Bridge */
    AS_LLM_FOUNDRY,        /* MosaicML's FSDP of 2023 */
    AS_TORCHTITAN_BF16,    /* as torchtitan and pytorch, but gradients are */
    AS_PYTORCH_BF16,       /* summed in bfloat16 (reduce_dtype of FSDP) */
    AS_AUTOMODEL,          /* NeMo's: FSDP, Transformer Engine, DeepEP */
    AS_JAX,                /* MaxText, PaLM */
    AS_INTERNLM,           /* of 2023 */
    AS_TORCHTITAN_2024,    /* its loss is not compiled */
    AS_KEMPNERFORGE,       /* FSDP, compiled but for its loss */
    AS_COUNT
};
extern const char *const as_names[AS_COUNT];

/* Programs on a GPU start some kernels for an instruction of ours. Between two
 * kernels the device waits a little (`gap`), and it is never faster than its
 * host (`host`). */
struct habits {
    double kernels;        /* for an instruction of a block's F */
    double gap, host;      /* seconds of a kernel; Lockstep: the machine's */
    double each_expert;    /* of the host for each expert of a rank beyond the
                            * first, in F and in B; W: twice as long */
    double attention[2];   /* times that attention takes longer than the fused
                            * one of the machine, in F and in B; 0: once */
    double attention_most; /* FLOP/s that its attention reaches; 0: the
                            * machine's */
    double moved;          /* times that what is no product moves its bytes:
                            * more where operations are not fused */
    bool eager;            /* each operation of torch is a kernel: what is no
                            * product moves what shape.h counts for it */
    bool copies;           /* FSDP of single parameters (cost_copies) */
    double update_bytes;   /* moved by the update of a parameter; Lockstep:
                            * layout_update_bytes counts them */
    double gradient_bytes; /* of a gradient, in memory and in sums, */
    double sent_bytes;     /* or in sums of ranks alone; 0: as in memory */
    int waits;             /* for messages between two passes of a pipeline */
    bool scores;           /* GPT's attention writes them */
    bool masks;            /* keeps dropout masks; of parts it makes attention
                            * again, others norms and gates */
    bool beside;           /* sums of gradients beside the last backward pass */
    bool gathers_beside;   /* the weights of zero 1 and 2: under the next F */
    bool border_divided;   /* tensor ranks send parts of what they all have */
    bool block_whole;      /* no sequence parallelism where blocks are made
                            * again, */
    bool tokens_whole;     /* or nowhere */
    bool sums_once;        /* gradients of micro-batches are added up whole in
                            * the type of sums, and over ranks in the last
                            * one alone */
    bool sums_whole;       /* all-reduce of gradients whatever zero is */
    bool owners;           /* zero 1 divides whole tensors: each owner tells
                            * the others, one after the other */
    bool ends_early;       /* a block that is made again ends with the last
                            * input that B reads */
    bool rows_once;        /* a token goes once to each node that has experts of
                            * it, and on from there, once to each rank */
    double rows_port, rows_link; /* shares of a network port, and of a link of
                            * the node, that exchanges of rows reach; 0: the
                            * machine's */
    double library_port;   /* of a port, with moe.exchange=flat; 0: as well */
    double shard_bytes;    /* of a weight, where shards are all that there is of
                            * it: 4, or 2, when its moments are narrow, too */
    bool codes_kept;       /* 8-bit inputs of products are made once: of weights
                            * in a step, of rows for F and W together */
    bool ring;             /* attention of context ranks is torch's ring
                            * (cost_context.c) */
    bool context_beside;   /* context ranks pass keys and values on in a ring
                            * while they attend to those before */
    bool codes_gathered;   /* tensor ranks gather 8-bit inputs of products */
    bool sums_fused;       /* products of W add to float32 sums of gradients */
    double logit_bytes;    /* of a logit while its loss is made: all types and
                            * its gradient; 0: 6 */
    bool logits_whole;     /* each tensor rank makes the loss of all logits */
    bool gate_apart;       /* keeps what silu makes beside its product */
    bool inputs_whole;     /* tensor ranks keep gathered inputs of products
                            * (not where messages lie beside those) */
    bool products_again;   /* recompute of parts: every second product */
    bool root_kept;        /* FSDP keeps table and head gathered */
    bool pipe_whole;       /* and in a pipeline all weights, and gradients */
};
extern const struct habits habits_of[AS_COUNT];

static inline double habits_logit_bytes(enum program_as as)
{
    return habits_of[as].logit_bytes > 0 ? habits_of[as].logit_bytes : 6;
}

/* Bytes of a gradient in sums of ranks. */
static inline double habits_sent(enum program_as as)
{
    const struct habits *h = &habits_of[as];

    return h->sent_bytes > 0 ? h->sent_bytes : h->gradient_bytes;
}

#endif
