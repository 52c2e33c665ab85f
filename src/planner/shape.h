/* SPDX-License-Identifier: Apache-2.0 */
/* shape.h - the sizes of a model that costs and memory depend on, read from
 * the program that the model makes: nothing about a family is stated twice. */
#ifndef LOCKSTEP_PLANNER_SHAPE_H
#define LOCKSTEP_PLANNER_SHAPE_H

#include "mesh/grid.h"
#include "models/model.h"

enum { SHAPE_PRODUCTS = 24 /* DeepSeek-V3 has 13 kinds */ };

struct shape_product {
    int64_t outputs, inputs; /* of the whole matrix */
    bool split_outputs;      /* tensor ranks divide outputs; else inputs */
    bool whole;              /* each of them has all of it */
    double each_block;       /* how many a block has, on the average */
    double beside;           /* of those, in experts of all tokens, while rows
                              * of the others travel */
    double last;             /* of those, nothing reads in a backward pass
                              * what they make: the last ones of a block */
    double few;              /* of those, products that a recipe makes */
    double kept;             /* of these, after attention */
    double latent;           /* of all, those that multiply latents */
    bool expert;             /* expert ranks divide them */
    bool frozen;             /* no gradient is made: adapters learn instead */
    double tokens;           /* share of the tokens that one of them sees: 1,
                              * or choices / experts */
};

struct moved_elements {
    double whole;            /* of the width */
    double split;            /* of what tensor ranks divide */
};

struct shape {
    struct model model;      /* of which it is */
    struct grid_facts facts; /* for its grid, without a batch */
    struct regularization regular; /* what training adds and has room for */
    struct precision_use precision; /* recipe of products; zeroed: none */
    bool gathers_codes;      /* ... weights travel as its codes, where they can
                              * (fsdp.gather_format) */
    bool integer_sums;       /* of gradients (numerics.sums) */
    int layers, heads, kv_heads, head_width;
    int value_width;    /* of a head */
    int64_t width, feed_forward, vocab, sequence;
    int choices;             /* experts that a token chooses; 0: none */
    int experts;             /* of a block */
    bool gated, tied;
    bool biased;             /* biases and learned positions, as GPT has */
    struct shape_product products[SHAPE_PRODUCTS];
    int product_count;
    double last;             /* products with which a block ends */
    double joins;            /* sums over tensor ranks in a block's F */
    double expert_blocks;    /* share of blocks with experts */
    double keys;             /* that a query attends to, mean over blocks and
                              * positions: causal, with windows */
    struct moved_elements moved;    /* by a block's F, for a token, outside
                                     * products and attention */
    double latent_moved;     /* of moved.split: what is made of latents before
                              * attention reads it, and of its result */
    struct moved_elements eager[2]; /* by F and by B of torch that is not
                                     * compiled */
    struct {            /* mean over blocks, experts included: */
        double instructions;  /* of F */
        double product_kinds; /* of those, products with a weight */
        double parameters;
        double tensors;       /* how many they are */
        double vectors;       /* of parameters, not divided by tensor ranks */
        double plain;         /* parameters of a block without experts, where
                               * others have some */
        double local;         /* elements of the largest matrix that each tensor
                               * rank has whole */
    } block;
    struct { double parameters, tensors; } in_experts; /* of those of a block */
    struct {            /* low-rank parameters of a block: nothing else
                         * learns; */
        double all;     /* 0: all do */
        double experts; /* of those, in experts */
        double vectors; /* of the rest, not divided by tensor ranks */
        double expert_vectors; /* of those in experts, not divided */
    } lora;
    struct {            /* modules for later tokens, in the last stage */
        int depth;      /* how many */
        double blocks;  /* products of all of them, in those of a mean block;
                         * each also has the head */
        double parameters; /* of all */
        double experts; /* of those, in experts */
        double vectors; /* ... not divided by tensor ranks */
        double local;   /* as of a block */
    } mtp;
    struct {            /* parameters */
        double embedding, head; /* tied: the head has 0 */
        double vectors; /* of positions: not divided by tensor ranks */
    } outside;
    struct {            /* of a block with adapters: outputs that frozen
                         * products alone read; nobody keeps them for W */
        double norms, gates, attention;
    } unread;
    double parameters;       /* of the whole model */
};

/* `sequence`: tokens of a sample. `regular` and `precision` are what options
 * are by default. */
status shape_of(struct shape *shape, const struct model *model,
                int64_t sequence);

/* Whether a layout may keep or gather weights as codes of the recipe. */
bool shape_has_codes(const struct shape *shape);

/* Products of the head for one token: forward, of the input's gradient, and of
 * the weight's, which adapters have not. */
int shape_head_passes(const struct shape *shape);
/* FLOPs of the model for one token, forward and backward. Products only: 6
 * for each weight of a matrix but the embedding, 4 where it is frozen;
 * attention by the keys that a causal query sees, or by all of them. */
double shape_flops_causal(const struct shape *shape);
double shape_flops_full(const struct shape *shape);
/* FLOPs of all blocks for one token, forward, with all keys; and of the
 * products of latents alone. */
double shape_flops_again(const struct shape *shape);
double shape_flops_latent(const struct shape *shape);

#endif
