/* SPDX-License-Identifier: Apache-2.0 */
/* program.h - the computation of one pipeline stage as a flat list of steps.
 *
 * A model file calls the nn_ functions once, at start-up, in forward order. The
 * program they leave behind is run forwards for F and backwards for B and W;
 * the planner adds up its costs; `plan --explain program` prints it. Nothing is
 * recorded at run time and nothing is allocated in a step.
 *
 *   slot    an activation of one micro-batch, [tokens, width]; its layout says
 *           which mesh axes divide its tokens and its width, and over which it
 *           is a partial sum
 *   step    one layer applied to slots and parameters
 *   use     the gradient of one use of a parameter (param.h) */
#ifndef LOCKSTEP_NN_PROGRAM_H
#define LOCKSTEP_NN_PROGRAM_H

#include "base/text.h"
#include "comm/comm.h"
#include "kernels/experts.h"
#include "kernels/kernels.h"
#include "mesh/grid.h"
#include "mesh/param.h"
#include "nn/precision.h"
#include "nn/rope.h"

typedef int slot; /* index in the program's slot table; -1: none */

struct run;
struct step;
struct program;
struct exchange_case;
struct layer_exchanges;

struct step_cost { /* real: products of sizes pass what integers hold */
    double flops;       /* of the forward pass */
    double bytes_moved; /* read and written by the forward pass */
    double bytes_sent;  /* to other ranks */
};

enum layer_kind {
    LAYER_EMBEDDING, LAYER_NORM, LAYER_LINEAR, LAYER_ADAPTER, LAYER_ROPE,
    LAYER_ATTENTION, LAYER_ACTIVATION, LAYER_DROPOUT, LAYER_ADD,
    LAYER_RELAYOUT, LAYER_HEAD, LAYER_ROUTER, LAYER_EXPERTS,
    LAYER_DOWN /* a product that the tensor axis does not cut */
};

/* Steps between slots that the tensor axis cuts by tokens and others. */
enum relayout { RELAYOUT_NONE, RELAYOUT_GATHER, RELAYOUT_SCATTER };

/* One kind of layer. The passes are separate so that a schedule may place W
 * anywhere after B; backward_weight is NULL where nothing is left for W (small
 * vectors take their gradient inside B). The keeps flags say what must
 * survive; the frame planner reads nothing else. */
struct layer {
    const char *name;
    enum layer_kind kind; /* recompute policies name some of them */
    status (*forward)(const struct step *, struct run *);
    status (*backward_input)(const struct step *, struct run *);
    status (*backward_weight)(const struct step *, struct run *);
    struct step_cost (*cost)(const struct step *, const struct program *);
    /* Bytes of layer scratch; NULL: none. */
    size_t (*scratch)(const struct step *, const struct program *);
    /* Bytes of scratch for calls over the tensor group; NULL: none. */
    size_t (*messages)(const struct step *, const struct program *,
                       const struct group *tensor);
    /* Its collectives over the tensor and context groups (exchange.h), which
     * its passes make; NULL: none. */
    void (*exchanges)(const struct step *, const struct program *,
                      const struct exchange_case *, struct layer_exchanges *);
    enum relayout relayout;
    bool starts_forward, starts_backward; /* F, B end with messages under way,
                                 * for which the next step with these slots
                                 * waits */
    bool keeps_codes;           /* the input waits for B as codes, and what F
                                 * wrote is made of them again (glu_codes.h) */
    bool looks_up;              /* reads the rows of its table that tokens
                                 * name */
    bool in_place;              /* output slot is the input slot */
    bool makes_norm;            /* F of one without a message makes the norm
                                 * after it, too, where the program joins them
                                 * and the event says so */
    bool made_before;           /* a norm that F of such a step can make */
    bool two_matrices;          /* the second parameter is a matrix, too: W
                                 * makes its gradient */
    bool aux_gradient;          /* B writes a gradient of aux, which W reads,
                                 * and both read aux */
    bool reads_in_w;            /* W reads weights */
    bool second_gradient;       /* B makes the gradient of the second input */
    bool forgets_second;        /* F alone reads it */
    bool keeps_input_for_b, keeps_output_for_b, keeps_aux_for_b;
    bool keeps_input_for_w, keeps_output_gradient_for_w;
};

enum { STEP_PARAMS_MAX = 7, ROPE_TABLES_MAX = 4, MTP_MOST = 2 };

struct rope_table {
    struct rope_scaling scaling;
    double base;
    int rotary;         /* elements of a head that turn */
    double temper;      /* nothing turns: cos at position t is 1 + temper
                         * log(1 + floor((t + 1) / temper_floor)); 0: it does.
                         * Source: Nakanishi 2025, arXiv:2501.19399, in the
                         * form that Llama 4 was released with */
    double temper_floor;
};

/* An adapter beside a product of experts: `pieces` times so many rows of B,
 * each of `rank`, and the columns of the product, of `width` in all, that they
 * add to. */
struct expert_beside {
    double scale;
    int pieces;         /* 0: no adapter */
    int64_t rank, rows, width;
    int64_t column[2];
};

/* Heads of multi-head latent attention: elements of a query or key that stay
 * as they are and that turn, and of a value. */
struct latent_heads { int heads; int64_t still, rotary, value; };

struct step {
    const struct layer *layer;
    int index;                 /* in the program */
    int block;                 /* block of the model, -1 outside */
    slot input;                /* what the flags speak of; -1: tokens */
    slot second;               /* an input that every pass reads too, or -1 */
    slot left;                 /* residual added to the result, or -1 */
    slot output;               /* -1: the loss */
    slot aux;                  /* second output (statistics), or -1 */
    slot source, result;       /* what an earlier step read, and a later one
                                * writes: every pass reads the first again, B
                                * and W the gradient of the second; or -1 */
    int param[STEP_PARAMS_MAX];  /* index in the table, or -1 */
    int use[STEP_PARAMS_MAX]; /* index in the uses, or -1 */
    int each;                  /* parameters (and uses) that follow each
                                * other from these on, one of every expert; 1 */
    bool few;                  /* products by the recipe */
    int named;                 /* parameter that it asks the shape of, and no
                                * more; -1: none */
    union {
        struct { double epsilon;
                 bool plus_one; /* the weight is stored less 1 */
        } norm;
        struct { double softcap; /* of logits; 0: none */ } head;
        struct { double factor; } scale;
        struct { uint64_t site; } dropout;
        struct { enum activation activation; } activation;
        struct { int heads, kv_heads, head_width, cache;
                 int replicas; /* ranks that hold the same kv heads */
                 double scale, softcap;
                 int64_t window, chunk, value;
                 int alibi;        /* heads of the whole model; 0: none */
        } attention;
        struct { int heads, kv_heads, head_width, table; } rope;
        struct { int heads, kv_heads, head_width; /* of this rank */
                 int all[2];       /* rows of a token: of q, of k */
                 int64_t width[2]; /* of a row */
                 double epsilon;
                 bool plus_one, each; } qk_norm;
        struct { int runs;        /* of a row, equally long */
                 int64_t first, count; /* columns of a run */ } part;
        struct latent_heads latent; /* of this rank */
        struct { struct latent_heads heads; int cache; double scale; }
            cached; /* attention over a cache of latents */
        struct { struct router_form form;
                 double alpha, limit; /* of a clamped gate */
                 bool gelu;        /* GeGLU */
                 int leaf;         /* experts of a leaf of the grid */
                 int64_t width, inner; /* of a row; of an expert */
                 bool by_entry;    /* rows lie as tokens and choices do */
                 bool scaled;      /* B: their gradient takes the gates, which
                                    * products take elsewhere */
                 struct expert_beside beside[2]; /* of up and down */
                 bool codes[2];    /* x, and gate dy, go as codes to the ranks
                                    * of the experts (row_codes.h) */
        } experts;
        struct { int pieces;       /* of a fused matrix that have one */
                 int64_t column[PARAM_PIECES_MAX]; /* where each writes */
        } adapter;
    } set;
};

/* Parameter and use `index` of a step; -1: none. They are counted expert by
 * expert. */
struct step_use { int param, use; };
static inline int step_uses(const struct step *step)
{
    return STEP_PARAMS_MAX * step->each;
}
static inline struct step_use step_use(const struct step *step, int index)
{
    const int which = index % STEP_PARAMS_MAX, expert = index / STEP_PARAMS_MAX;

    if (step->param[which] < 0) return (struct step_use){-1, -1};
    return (struct step_use){step->param[which] + expert,
                             step->use[which] + expert};
}

/* Masks of mesh axes (1 << AXIS_...). */
struct slot_layout { unsigned tokens, width, partial; };

struct slot_info {
    const char *name;   /* of the layer that wrote it */
    int64_t width;      /* elements of a row */
    int64_t bound;      /* rows for each token, the most that choices can bring
                         * to this rank; how many there are is known in each
                         * pass (expert_ranks.h). 0: a token is a row */
    int block;
    enum dtype dtype;   /* of its elements: the program's; real in statistics
                         * and in sums that are not complete, which are rounded
                         * once; 32-bit integers in a router's choice
                         * (experts.h) */
    enum dtype gradient_dtype; /* of those of its gradient: real where it is a
                         * sum over ranks. Neither has a scale: each product
                         * rounds what it reads in blocks of its own
                         * (docs/decisions/0038) */
    bool dropped;       /* not kept: B runs its writers again */
    bool again;         /* dropped under every policy */
    bool coded;         /* ... and then made of codes: of other numbers than F
                         * read (glu_codes.h) */
    bool latent;        /* made of latents or of what attention made of them:
                         * train.recompute: latent drops it */
    int64_t gradient_width; /* of its gradient, where that is another; 0: as
                         * wide */
    slot local;         /* while building: its sum over ranks, cut by tokens */
    struct slot_layout layout;
};

/* One use of one parameter. */
struct use_info {
    int param;
    int number;         /* of its parameter's uses, from 0 on */
    bool vector;        /* token_order accumulators with parts */
    bool local;         /* vector: of the tokens (or heads) that this rank
                         * holds; the ranks' sums are joined when it is
                         * complete */
    bool head;          /* cut by the logits chunk */
    bool scatter;       /* rows of a table: sums cannot start from a sibling */
    bool enters;        /* the lookup before the blocks, which may be in another
                         * stage than the other uses */
    int sources;        /* ranks whose tokens it sums, each rank's leaves in a
                         * tree of its own (gradient.h); 1 */
    int contexts;       /* ranks of each source, which have its context leaves;
                         * 1: this one, or they all sum their own */
    int64_t rows;       /* of the table that a step can name, where only those
                         * are kept (tied_rows.h); 0: the whole table is */
};

/* Gradients of data leaves are added as integers (docs/numerics.md). */
struct integer_sums {
    bool integer;  /* else as numbers, by the tree */
    int exponent;  /* 2^exponent stands for 1, before the loss scale */
    int spare;     /* there are at most 2^spare leaves */
};

enum program_mode { PROGRAM_TRAIN, PROGRAM_GENERATE };

/* The tokens whose choices weigh the experts in a balance loss. */
enum balance_scope {
    BALANCE_SEQUENCE,
    BALANCE_BATCH,      /* of the step before */
    BALANCE_MICRO_BATCH
};

/* Terms that training adds to a loss, and the shares that it leaves out at
 * random: passed from the options to the layers as one, so that another number
 * is a field here, a row of options.def, its line in setup.c, and the layer
 * that reads it. */
struct regularization {
    double z_loss;      /* coefficient of the head's z-loss; 0: none */
    double balance;     /* coefficient of the routers' balance loss; 0: none */
    double device_loss; /* likewise, of that between groups of experts */
    int devices;        /* ... so many; 0: those of the router's form */
    enum balance_scope scope; /* of both */
    double router_z;    /* likewise, of their z-loss */
    double rows_bound;  /* room for rows of experts that ranks divide, times
                         * their mean; 0: for as many as can come */
    double bias_rate;   /* of the routers' selection biases; 0: they stay */
    double jitter;      /* of what routers read, while training; 0: none */
    double capacity;    /* of an expert in a sequence, in means, while training;
                         * 0: no choice is dropped */
    double dropout;     /* probability; 0: the program has no such steps */
    double attention_dropout; /* of attention's weights; 0: none */
    double mtp_weight[2]; /* of the losses of later tokens: in the first
                         * mtp_steps steps, after these */
    int64_t mtp_steps;  /* 0: the first weight always counts */
};

/* How ranks of the context axis attend to each other's tokens. */
struct context_method {
    int exchange;       /* neighbours that exchange heads for tokens; 1 (in a
                         * request also 0): none */
    bool ring;          /* the others pass keys on, instead of all getting all;
                         * in a request: where spans allow it */
    bool strict;        /* ... or it is refused */
    bool striped;       /* a ring, and token i of a sequence is on rank i modulo
                         * the ranks: outside the grid */
    bool loose;         /* a ring may cut sums as the ranks do
                         * (numerics.mode=fast) */
};

/* Messages between tensor ranks that overlap with products. */
struct message_overlap {
    int count;   /* sub-batches of a micro-batch; 0 or 1: nothing overlaps */
    bool domino; /* F: they go through a block one behind the other, so that
                  * messages of one go beside all work of the next */
};

/* How ranks divide a program. */
struct program_layout {
    struct grid grid;   /* data: this rank's leaves */
    struct mesh mesh;   /* in a request also all zero: one rank */
    struct place place; /* of this rank */
    struct context_method method;
    struct message_overlap overlap; /* between tensor ranks */
};

struct program_size {
    int64_t batch;      /* sequences of a step */
    int64_t sequences;  /* of one micro-batch */
    int64_t length;     /* tokens of a sequence that this rank has (generate:
                         * of one call) */
    int64_t tokens;     /* sequences * length */
    int context_chunks; /* of a sequence on this rank; 1: it is one leaf */
    int64_t context;    /* positions that tables and caches hold */
    int64_t vocab;
    int64_t logits_chunk; /* tokens whose logits exist at once */
};

struct program {
    enum program_mode mode;
    enum dtype dtype;   /* of activations and of weights as kernels read them */
    struct program_layout layout;
    struct program_size size;
    struct {
        int depth;      /* modules that predict later tokens */
        int block;      /* number of the first one's block */
    } later;
    struct regularization regular;
    bool one_turn;      /* rows of experts come in one turn (nn/experts.c) */
    struct {
        bool peaks;     /* largest scores */
        bool roundings; /* what roundings do */
    } watched;
    struct {                        /* F makes a norm in one pass over rows */
        bool sums, products;        /* with the sum, the product before it */
    } joins_norms;
    struct precision_use precision; /* of products */
    struct integer_sums sums;       /* of gradients */
    int block;          /* being built; -1 outside */

    struct step *steps;           /* owned */
    int step_count, step_capacity;
    struct slot_info *slots;      /* owned */
    int slot_count, slot_capacity;
    struct use_info *uses;     /* owned */
    int use_count, use_capacity;
    struct param_table params;
    struct rope_table rope[ROPE_TABLES_MAX];
    int rope_count;
    struct {            /* of the whole program (slice.h) */
        slot entry, exit; /* -1: none */
        int first_step; /* number in the whole program */
    } slice;
    struct {            /* PROGRAM_GENERATE has them */
        int count;      /* attention steps; in each mode */
        int texts;      /* that are under way at once; 1 from init on */
        int64_t width;  /* elements per position: k and v, or a latent and its
                         * rotary key */
        bool latent;    /* the latter, where a model has latent attention */
    } caches;
    status error;       /* first failure while building; nn_ calls after it do
                         * nothing */
};

/* Whether W of the step reads weights. */
static inline bool program_reads_in_w(const struct program *p,
                                      const struct step *step)
{
    return step->layer->reads_in_w ||
           (step->few && p->precision.recipe.straight && step->param[0] >= 0);
}

/* The layout but its grid, and sizes, are set by the caller after init and
 * before the first nn_ call, as are regular, peaks and the recipe. */
void program_init(struct program *program, enum program_mode mode,
                  enum dtype dtype, const struct grid *grid);
void program_free(struct program *program);

/* ---- what a model file calls; all return the slot they write ---- */

void program_enter_block(struct program *p, int block); /* -1: leaves it */

/* Rows of the table at the tokens. */
slot nn_embedding(struct program *p, const struct param_spec *table);
/* factor x; overwrites x; no earlier step may read x. */
slot nn_scale_over(struct program *p, slot x, double factor);
/* x + rows of the table at the positions; written over x. */
slot nn_position_embedding(struct program *p, slot x,
                           const struct param_spec *table);
slot nn_rmsnorm(struct program *p, slot x, const struct param_spec *weight,
                double epsilon);
/* y = (x r) (1 + weight). */
slot nn_rmsnorm_plus_one(struct program *p, slot x,
                         const struct param_spec *weight, double epsilon);
/* bias NULL: none. */
slot nn_layernorm(struct program *p, slot x, const struct param_spec *weight,
                  const struct param_spec *bias, double epsilon);
/* y = x W^T (+ bias). bias NULL: none. */
slot nn_linear(struct program *p, slot x, const struct param_spec *weight,
               const struct param_spec *bias);
/* Like nn_linear, with low-rank adapters beside it (adapter.c): + scale (x Aᵀ)
 * Bᵀ, A [rank, in], B [out, rank]. */
struct adapter {
    int rank;
    double scale;
    bool named;    /* pieces have tensors of their own outside; else there is
                    * one adapter for the whole matrix */
    int pieces;    /* that have one; 0: none */
    struct { int piece;          /* of the weight */
             const char *a, *b;  /* outside names */
    } of[PARAM_PIECES_MAX];
};
/* adapters [count]: pieces with one rank and scale are in one. */
slot nn_linear_adapted(struct program *p, slot x,
                       const struct param_spec *weight,
                       const struct param_spec *bias,
                       const struct adapter *adapters, int count);
/* nn_router and nn_down with an adapter; nn_router's may have no pieces. */
slot nn_router_adapted(struct program *p, slot x,
                       const struct param_spec *weight,
                       const struct param_spec *bias,
                       const struct adapter *adapter);
slot nn_down_adapted(struct program *p, slot x, const struct param_spec *weight,
                     const struct adapter *adapter);
/* Turns q and k of qkv [tokens, (heads + 2 kv_heads) head_width] in place.
 * scaling NULL: plain. */
slot nn_rope(struct program *p, slot qkv, int heads, int kv_heads,
             double base, const struct rope_scaling *scaling);
/* Like nn_rope, where only the first `rotary` elements of a head turn. */
slot nn_rope_part(struct program *p, slot qkv, int heads, int kv_heads,
                  const struct rope_table *table);
/* Queries times a factor that grows with their position (struct rope_table). */
slot nn_temper(struct program *p, slot qkv, int heads, int kv_heads,
               const struct rope_table *table);
struct qk_norm {
    struct param_spec weights[2];
    double epsilon;
    bool plain;    /* without weights, whose cols alone count */
    bool plus_one; /* weights are stored less 1 */
    bool each;     /* LayerNorm without bias of each head, which has weights of
                    * its own, one head after the other */
};
/* RMSNorm of each row of q and of k: a head where the weight [cols] is as long
 * as one, else all heads (tensor ranks gather those). weights: of q, of k. */
slot nn_qk_norm(struct program *p, slot qkv, int heads, int kv_heads,
                const struct qk_norm *norm);
/* Causal attention of the fused qkv. */
slot nn_attention(struct program *p, slot qkv, int heads, int kv_heads);
/* Whether the step is one of these, which has set.attention. */
bool nn_is_attention(const struct step *step);
/* Like nn_attention, by other rules than the usual ones, which are zeros. */
struct attention_rule {
    double scale;   /* of scores; 0: 1 / root of the head width */
    double softcap; /* of scores; 0: none */
    int64_t window; /* tokens that a token sees; 0: all before it */
    int64_t chunk;  /* it sees those of its attention chunk of so many; 0:
                     * likewise */
    int64_t value;  /* elements of a value, the others are zeros: for the cost
                     * alone; 0: as wide as a head */
    bool alibi;     /* linear biases of scores (kernels/attention.h) */
};
slot nn_attention_ruled(struct program *p, slot qkv, int heads, int kv_heads,
                        const struct attention_rule *rule);
/* Directly after attention x: a score of each head, spec [heads], that takes
 * its share of the softmax. */
slot nn_sinks(struct program *p, slot x, const struct param_spec *spec);
/* Multi-head latent attention (latent.c). y = x Wᵀ of a matrix that no axis
 * cuts. */
slot nn_down(struct program *p, slot x, const struct param_spec *weight);
/* These columns of each of `runs` equal runs of a row (on this rank). Slots
 * whose parts are read have no other readers, and parts do not overlap. */
slot nn_part(struct program *p, slot x, int runs,
             const struct layout_span *columns);
/* Keys and values of attention from those of each head and from the rotary key
 * of all heads; and queries before them: then nn_rope_part and attention. */
slot nn_latent_keys(struct program *p, slot up, slot turning,
                    const struct latent_heads *heads);
slot nn_latent_join(struct program *p, slot queries, slot keys,
                    const struct latent_heads *heads);
/* Like nn_latent_join, over a cache of latents (latent_cache.c): queries and
 * the rotary key for nn_rope_part with one key head, then attention, [tokens,
 * heads value], of these and the latents; weight: rows of keys, then of values,
 * of each head. */
slot nn_latent_turning(struct program *p, slot queries, slot turning,
                       const struct latent_heads *heads);
slot nn_latent_attention(struct program *p, slot turned, slot latent,
                         const struct param_spec *weight,
                         const struct latent_heads *heads, double scale);
slot nn_swiglu(struct program *p, slot gate_up);
slot nn_geglu(struct program *p, slot gate_up);
slot nn_activation(struct program *p, slot x, enum activation activation);
/* The router of a mixture of experts: logits of every expert, weight [experts,
 * width], bias [experts] or NULL. */
slot nn_router(struct program *p, slot x, const struct param_spec *weight,
               const struct param_spec *bias);
/* x times random factors near 1, where the program has jitter, and while
 * training: else x. */
slot nn_jitter(struct program *p, slot x);
/* The choice of each token by these logits: read by the layers below. */
slot nn_choose(struct program *p, slot logits, const struct router_form *form);
/* With biases [experts, 1] that count in the choice, not in gates; NULL: none.
 */
slot nn_choose_biased(struct program *p, slot logits,
                      const struct router_form *form,
                      const struct param_spec *bias);
/* Experts of two matrices each (nn/experts.c): chosen rows only. x is [tokens,
 * width]; specs are those of expert 1, whose names have a %d. */
struct experts_spec {
    struct param_spec up, down;  /* up: gate, then up */
    struct param_spec up_bias;   /* of each expert [2 f, 1]; rows 0: none */
    struct param_spec down_bias; /* of all of them [experts, width]; likewise */
    struct adapter up_adapter, down_adapter; /* names have a %d, too */
    double alpha, limit;         /* of a clamped gate (kernels/experts.h);
                                  * limit 0: SwiGLU, or, */
    bool gelu;                   /* ... GeGLU: gelu, tanh form, of the gate */
    struct router_form form;
    int leaf;                    /* experts of a leaf of the grid */
};
slot nn_experts(struct program *p, slot x, slot choice,
                const struct experts_spec *spec);
/* y + shared, the results of nn_experts and of the experts of all tokens, which
 * the steps from `first` on make, those from `down` on out of their inner rows.
 * Where ranks divide the experts, these steps are computed while rows travel.
 */
slot nn_add_shared(struct program *p, slot y, slot shared, int first,
                   int down);
/* y = x times the gate that each token has by logits [tokens, 1]: their
 * sigmoid. */
slot nn_share(struct program *p, slot x, slot logits);
/* x times the gate of each token's one choice, for experts that take their
 * gates on the way in: *choice becomes the same choice with gates of 1. */
slot nn_gated(struct program *p, slot x, slot *choice,
              const struct experts_spec *spec);
/* x with elements set to zero at random, where the program has dropout, and
 * while training: else x. `use` < DROPOUT_USES tells apart the uses of a block.
 */
enum { DROPOUT_EMBEDDING = 0, DROPOUT_ATTENTION, DROPOUT_FEED_FORWARD,
       DROPOUT_USES };
slot nn_dropout(struct program *p, slot x, int use);
/* x + y. Becomes the epilogue of the product that wrote y. */
slot nn_add(struct program *p, slot x, slot y);
/* Like nn_add, in a step of its own, so that x may be made after y. */
slot nn_add_later(struct program *p, slot x, slot y);
/* Logits and cross-entropy, chunked over tokens. The weight is `spec`, or the
 * table of the embedding when spec is NULL (tied). */
void nn_head(struct program *p, slot x, const struct param_spec *spec);
/* Modules that predict later tokens (mtp.c), in blocks of their own behind
 * nn_head. Rows of the embedding's table at later tokens; [a | b]; logits and
 * losses of later tokens by the head's weight. */
slot nn_mtp_embedding(struct program *p);
slot nn_mtp_join(struct program *p, slot a, slot b);
void nn_mtp_head(struct program *p, slot x);
/* After it: logits become cap tanh(logits / cap). */
void nn_head_softcap(struct program *p, double cap);
/* After it: logits + bias, a matrix [vocab, 1] cut as the head is. */
void nn_head_bias(struct program *p, const struct param_spec *spec);

/* After the last layer of a whole model: the gradient of looking up a tied
 * table becomes one of the rows that a step names, where no other rank has
 * steps. */
void program_name_rows(struct program *p);

/* ---- readers ---- */

/* Tokens by which the step looks ahead of the next one: 0 but in modules that
 * predict later tokens. */
static inline int program_ahead(const struct program *program,
                                const struct step *step)
{
    return program->later.depth > 0 && step->block >= program->later.block
               ? step->block - program->later.block + 1 : 0;
}

/* Tokens of a whole sequence. With C ranks along the context axis rank r has
 * spans r and 2 C - 1 - r of its 2 C (docs/context_parallelism.md). */
int64_t program_sequence(const struct program *program);
/* Position of this rank's token `token` of a sequence. */
int64_t program_position(const struct program *program, int64_t token);
/* Like program_position, of another context rank's token. */
int64_t program_position_at(const struct program *program, int context,
                            int64_t token);

/* Forward cost of all steps. */
struct step_cost program_cost(const struct program *program);
/* The FLOPs of one micro-batch in training: the cost of each F, B and W. A
 * frozen matrix has no W. */
double program_training_flops(const struct program *program);
/* One line per step: kind, slots, shapes, layouts, parameters, cost. */
status program_print(const struct program *program, struct text *out);
/* Marks slots as dropped. policy: "none", "block", or kinds of layers.
 * ERR_CONFIG: an unknown kind (names the nearest). */
status program_recompute(struct program *program, const char *const *policy,
                         int count);
/* The words of train.recompute, as program_recompute reads them; or auto,
 * alone. ERR_CONFIG: another word. */
status program_check_recompute(const char *const *policy, int count);
/* Bytes of layer scratch: the most that a step asks for. */
size_t program_scratch_bytes(const struct program *program);
/* Scratch that the step's calls over the tensor group need, bytes. */
size_t program_message_bytes(const struct program *program,
                             const struct group *tensor);

/* This rank's share of the tensor axis: the leaves [first, first + count) of
 * the grid; or, in slots that the axis cuts by tokens, the tokens [first, first
 * + count) of every context chunk of a sequence (rank: any rank of the
 * axis). */
struct layout_span program_leaves(const struct program *program);
struct layout_span program_part(const struct program *program, int rank);
int program_tensor_ranks(const struct program *program);
/* Context chunks of all sequences of a micro-batch. */
int64_t program_rows(const struct program *program);
/* Elements of a row, of a slot or of its gradient. */
static inline int64_t program_slot_width(const struct program *program,
                                         slot which, bool gradient)
{
    const struct slot_info *info = &program->slots[which];

    return gradient && info->gradient_width > 0 ? info->gradient_width
                                                : info->width;
}
/* Rows for which a slot has room. */
int64_t program_slot_rows(const struct program *program, slot which);
/* The type of sums, of statistics and of parameters' gradients. */
static inline enum dtype program_real(const struct program *program)
{
    return dtype_real(program->dtype);
}

/* The type of those sums until they are complete. */
static inline enum dtype program_sum(const struct program *program)
{
    return program->sums.integer ? DTYPE_I64 : program_real(program);
}

/* How a step's batch meets the trees of a use. */
struct cut program_cut(const struct program *program, bool head);

/* ---- for layers (nn/ only) ---- */

int program_add_step(struct program *p, const struct layer *layer, slot input);
/* Steps [middle, last) go before those of [first, middle). */
void program_swap(struct program *p, int first, int middle, int last);
slot program_add_slot(struct program *p, const char *name, int64_t width,
                      bool statistic);
/* The slot lies, and is divided, as another does. */
void program_lay_as(struct program *p, slot which, slot other);
/* It is a partial sum over the ranks of an axis; or over none. */
void program_set_partial(struct program *p, slot which, enum axis axis);
void program_set_complete(struct program *p, slot which);
void program_add_param(struct program *p, int step, int which,
                       const struct param_spec *spec);
void program_add_use(struct program *p, int step, int which, int param);

#endif
