/* SPDX-License-Identifier: Apache-2.0 */
/* experts.h - the calls of mixtures of experts: the router's choice, products
 * over all experts in one call, and rows that return to their tokens.
 * docs/numerics.md states the sums.
 *
 *   tokens x choices   entry = token * choices + choice   (router)
 *   groups             the entries of each expert, ascending, one expert after
 *                      the other: row g of the groups is entry entries[g]
 *
 *   x [tokens, width] --gather--> h [rows, n] --> act --> z [rows, width]
 *     --combine, gates--> y [tokens, width]
 *
 * No padded and no permuted copy of an operand is made: products read rows
 * where they lie, times their gate where one is given, and write rows of
 * groups. Source: Tan et al. 2024 (ScatterMoE), arXiv:2403.08245, section 3.
 * "real" as in kernels.h. */
#ifndef LOCKSTEP_KERNELS_EXPERTS_H
#define LOCKSTEP_KERNELS_EXPERTS_H

#include "base/random.h"
#include "device/device.h"
#include "tensor/tensor.h"

enum {
    EXPERTS_MAX = 1024,  /* of a router */
    CHOICES_MAX = 64     /* of a token */
};

/* ---- the router ---- */

enum router_score {
    ROUTER_SOFTMAX,  /* of all logits, before the choice */
    ROUTER_SIGMOID,  /* of each logit */
    ROUTER_CHOSEN,   /* softmax of the chosen logits, after the choice */
    ROUTER_NEAR      /* of each choice a softmax of the logits near it: those of
                      * experts not chosen before, at most `near` times the
                      * larger of |logit| and the chosen logit below it. Source:
                      * SparseMixer-v2, Liu et al. 2024 (GRIN),
                      * arXiv:2409.12136, without its sampling */
};
/* The score of a group of experts. Sources: DeepSeek-V2, arXiv:2405.04434,
 * section 2.2.2; DeepSeek-V3, arXiv:2412.19437, section 2.1.2. */
enum router_group { ROUTER_GROUP_MAX, ROUTER_GROUP_TOP2 };

struct router_form {
    enum router_score score;
    bool normalised;  /* gates are divided by the sum of the chosen scores */
    double scale;     /* of gates, rounded to real once; 0: 1 */
    int experts, choices;
    int groups;       /* equal runs of experts; 0 or 1: none */
    int groups_chosen; /* a token's experts lie in that many groups at most */
    enum router_group group;
    double near;      /* ROUTER_NEAR; rounded to real once */
};
/* ERR_CONFIG: one sentence on the first thing that cannot be. */
status router_form_check(const struct router_form *form);

/* Chooses experts. A choice is the expert with the largest key of those not
 * chosen before; keys are scores (ROUTER_CHOSEN, ROUTER_NEAR:
 * logits) plus bias; equal keys:
 * the lower expert; NaN is larger than all.
 *   logits [tokens, experts] real     bias [experts] real or NULL
 *   chosen [tokens, choices] set      gates [tokens, choices] real, set */
struct router {
    struct router_form form;
    struct tensor logits, gates;
    const void *bias;
    int32_t *chosen;
};

/* Losses of the router and its gradient. Of a token whose mask is not 0
 *   balance loss   sum of weights [sequence, expert] * p, p the softmax of all
 *                  logits; ROUTER_SIGMOID: scores divided by their sum
 *   z loss         z_loss * log(sum of e^logit)^2, Zoph et al. 2022 (ST-MoE),
 *                  arXiv:2202.08906, equation 5
 * Sums over tokens are the caller's. */
struct router_losses {
    struct router_form form;
    struct tensor logits;         /* [tokens, experts] real */
    const double *weights;        /* [sequences, experts], rounded to real once
                                   * (router_balance); NULL: no balance loss */
    int64_t length;               /* tokens of a sequence */
    double z_loss;                /* 0: none */
    const int32_t *mask;          /* [tokens], negative: no losses (targets of
                                   * the loss); NULL: every token has them */
    /* Forward: */
    double *balance, *z;          /* [tokens] set, 0 where there is none; NULL:
                                   * nobody asks */
    /* Backward: */
    struct tensor dlogits;        /* [tokens, experts] real, set; == logits
                                   * allowed */
    struct tensor dgates;         /* [tokens, choices] real; data NULL: 0 */
    struct tensor gates;          /* [tokens, choices] real, as chosen */
    const int32_t *chosen;        /* [tokens, choices], dropped ones (see
                                   * router_drop), whose dgate is 0, too */
    double scale;                 /* of both losses' gradient; 0: 1 */
};

/* y = x * fma(epsilon, u, 1), u uniform in [-1, 1): 2^-23 times the 24 high
 * bits of the element's word, minus 1. Words and rows as in struct dropout. Its
 * own gradient: dx = dy times the same. y == x allowed. Source: Fedus et al.
 * 2021 (Switch), arXiv:2101.03961, appendix. */
struct dropout_row;
struct jitter {
    struct tensor y, x;           /* [rows, width] of one type */
    struct random_key key;
    const struct dropout_row *rows;
    double epsilon;               /* in [0, 1), rounded to real once */
};

/* ---- integers of the router, on the calling thread ---- */

/* counts [experts] += choices of tokens [first, first + tokens), dropped ones,
 * too; tokens with a negative mask (NULL: none has) do not count. */
struct router_tokens {
    const int32_t *chosen;        /* [.., choices], the first token's at 0 */
    const int32_t *mask;
    int64_t first, tokens;
    int choices;
};
void router_count(const struct router_tokens *of, int64_t *counts);

/* weights [experts] of the balance loss of one sequence from counts of tokens
 * (its own, or those of more sequences):
 *   f_i = experts * count_i / total    (1 where all are equal; total 0: f = 0)
 *   weight_i = alpha f_i + alpha_device * mean of f over the device of i
 * in float64; `devices` equal runs of experts. Sources: Switch, section 2.2;
 * DeepSeekMoE, arXiv:2401.06066, equations 12 to 17. */
struct router_balance {
    const int64_t *counts;        /* [experts] */
    int experts, devices;
    double alpha, alpha_device;
};
void router_balance(const struct router_balance *of, double *weights);

/* bias[i] += gamma * sign(total - experts * counts[i]): Wang et al. 2024,
 * arXiv:2408.15664, algorithm 1. */
static inline void router_bias_step(float *bias, const int64_t *counts,
                                    int experts, double gamma)
{
    int64_t total = 0;

    for (int i = 0; i < experts; i++) total += counts[i];
    for (int i = 0; i < experts; i++) {
        const int64_t below = total - experts * counts[i];

        if (below > 0) bias[i] = bias[i] + (float)gamma;
        if (below < 0) bias[i] = bias[i] - (float)gamma;
    }
}

/* Places of an expert in a sequence of `length` tokens:
 * ceil(factor * (choices * length) / experts) in float64, not beyond length. */
static inline int64_t router_capacity(double factor, int choices,
                                      int64_t length, int experts)
{
    const double exact =
        factor * ((double)choices * (double)length) / (double)experts;

    if (exact >= (double)length) return length;
    return (int64_t)exact + ((double)(int64_t)exact < exact ? 1 : 0);
}
/* Sets chosen to -1 - chosen (the expert stays readable) where `capacity`
 * earlier choices (by position, then choice) of the sequence have taken the
 * expert's places. used [experts]: places taken before, and after. Returns how
 * many were dropped. */
int64_t router_drop(const struct router_tokens *of, int32_t *chosen,
                    int64_t capacity, int64_t *used);

/* ---- groups ---- */

struct expert_groups {
    int experts;             /* of this call */
    int choices;             /* entries of a token */
    const int32_t *offsets;  /* [experts + 1]: where each one's rows begin */
    const int32_t *entries;  /* [offsets[experts]], ascending in an expert */
    const int32_t *counted;  /* offsets that the host can read; NULL: those */
};

/* Rows of all, on the host. */
static inline int64_t expert_groups_rows(const struct expert_groups *groups)
{
    return (groups->counted ? groups->counted
                            : groups->offsets)[groups->experts];
}
/* Groups of the experts [first, first + experts) that tokens have chosen:
 * offsets, entries, and places [tokens * choices], the row of each entry, -1:
 * it has none. */
struct expert_lists {
    int32_t *offsets, *entries, *places;
};
void expert_groups_make(const struct router_tokens *of, int first, int experts,
                        const struct expert_lists *out);

/* Operand: row g of the groups is row g of the matrix, or, where it is
 * gathered, that of the entry's token. With scales it is multiplied by that of
 * its entry (gathered or not), rounded once to the matrix's type. */
struct expert_rows {
    struct tensor matrix;    /* [any, width], last stride 1 */
    bool gathered;
    const void *scales;      /* [tokens * choices] real; NULL: none */
};

/* ---- products ---- */

struct sum_order;
struct accumulator;
/* c [rows, n] = a [rows, k] times b[e] [k, n] of the row's expert, plus bias[e]
 * [n]: in every row what matmul makes of it. b may have any strides as long as
 * one of the last two is 1. Narrow tables: a, b and bias narrow, c narrow or
 * f32. */
struct experts_product {
    const struct expert_groups *groups;
    struct tensor c;
    struct expert_rows a;
    struct tensor b;         /* [experts, k, n] */
    struct tensor bias;      /* [experts, n]; data NULL: none */
    const struct sum_order *order; /* over k */
    const struct accumulator *accumulator; /* as of matmul */
};

/* c[e] [n, k] = sum over the rows of expert e of a (row) [n] times b (row) [k].
 * `order` is that of a dense product over tokens; each segment becomes the rows
 * of the expert whose tokens lie in it, those with none are left out, and a
 * leaf without any is a missing child of the tree. Granules have up to GRANULE
 * of those rows, so a segment must not end inside a context chunk of a
 * sequence.
 *   continues  c is an unfinished leaf (order->leaves 1)
 *   adds       c = c + result
 * An expert without rows: c[e] = +0, or stays as it is with the two. */
struct experts_gradient {
    const struct expert_groups *groups;
    struct tensor c;         /* [experts, n, k] real */
    struct expert_rows a, b;
    const struct sum_order *order; /* over tokens */
    bool continues, adds;
    const struct accumulator *accumulator; /* as of matmul */
};

/* Like struct experts_gradient, for biases: c[e] [n] = sum of the rows of a, by
 * additions. c is [experts, n] real. */
struct experts_sums {
    const struct expert_groups *groups;
    struct tensor c;
    struct expert_rows a;
    const struct sum_order *order;
    bool continues, adds;
};

/* y [tokens, width] from the rows of each token's entries: from +0, in a leaf
 * by expert number, y = fma(gate, row, y) (no gates: y + row); leaves of
 * `leaf_experts` experts by the tree, absent ones missing; then + 0, then
 * left + y where there is a left. A token without entries: +0.
 * Narrow tables: y, rows and left each narrow or f32; y is rounded once.
 * The nodes of ranks are merged alike: rows are nodes, their numbers those of
 * nodes, leaf_experts 1. */
struct experts_combine {
    struct tensor y;
    struct tensor rows;      /* [rows of groups, width] */
    const int32_t *places;   /* [tokens, choices], -1: none */
    const int32_t *numbers;  /* [tokens, choices]: experts of the whole model;
                              * those without place are not looked at */
    const void *gates;       /* [tokens, choices] real; NULL: none */
    int choices;
    int leaf_experts;        /* numerics.grid_expert: experts of a leaf */
    const struct tensor *left; /* == y allowed */
};

/* dgates [tokens, choices] = 16-lane dot of dy's row and the entry's, +0
 * without a place. */
struct experts_gates {
    struct tensor dgates;    /* real */
    struct tensor dy, rows;  /* [tokens, width], [rows of groups, width] */
    const int32_t *places;
    int choices;
};

/* out [rows, width] = (up + 1) (gate sigmoid(alpha gate)), gate and up the
 * halves of gate_up, gate at most `limit` and up in [-limit, limit]. A clamped
 * element has no gradient. Source: gpt-oss, as released (alpha 1.702,
 * limit 7). */
struct clamped_glu {
    struct tensor out, gate_up;   /* forward: out set */
    struct tensor dout, dgate_up; /* backward: dgate_up set; == gate_up
                                   * allowed */
    double alpha, limit;          /* rounded to real once */
};

#endif
