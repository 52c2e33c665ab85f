/* SPDX-License-Identifier: Apache-2.0 */
/* model.h - architectures: what a configuration says, and the program that it
 * makes. Each family is one short file with its block in forward order. */
#ifndef LOCKSTEP_MODELS_MODEL_H
#define LOCKSTEP_MODELS_MODEL_H

#include "base/json.h"
#include "base/options.h"
#include "models/blocks.h"
#include "nn/program.h"

struct decoder;
struct config_row;

/* Low-rank adapters (lora.h); rank 0: none. Not in config.json. */
enum {
    LORA_CLASSES_MAX = 15,
    LORA_LAYERS_MAX = 256,
    LORA_PARTS = 21 /* matrices of a block that may have one (lora.h) */
};
struct lora_class { int rank; double alpha; };
/* The class of each part, from 1 on; 0: no adapter. */
struct lora_site { unsigned char class[LORA_PARTS]; };
struct lora {
    int rank;              /* of what has none of its own */
    double alpha;          /* likewise; they count alpha / rank */
    bool root;             /* ... alpha over the root of the rank (rsLoRA) */
    bool varied;           /* by layer: sites[layer]; else sites[0] is all's */
    double dropout;        /* with which they were trained; here is none */
    int class_count;
    struct lora_class classes[LORA_CLASSES_MAX];
    struct lora_site sites[LORA_LAYERS_MAX];
};

/* The feed-forward part of a block as a mixture of experts
 * (docs/experts.md). */
struct moe {
    int experts;           /* of a block; 0: every block is dense */
    int top_k;             /* of them, for each token */
    int64_t width;         /* inner, of one expert */
    int64_t shared_width;  /* inner, of the expert of all tokens; 0: none */
    bool normalize;        /* gates of the chosen are over their sum */
    double scale;          /* of gates; 0: 1 */
    int groups;            /* equal runs of experts; 0, 1: no groups */
    int groups_chosen;     /* a token's experts lie in so many at most */
    bool bias;             /* a bias of each expert counts in the choice */
    struct blocks dense;   /* blocks without experts */
    double swiglu_alpha, swiglu_limit; /* of a gate that is clamped; 0: none */
    double noise;          /* ROUTER_NEAR: half the relative distance within
                            * which logits count in a gate */
};

/* Multi-head latent attention (docs/latent_attention.md): ranks of the
 * bottlenecks, and elements of a head. */
struct mla {
    int64_t query_rank;    /* of queries; 0: none, one matrix */
    int64_t rank;          /* of keys and values; 0: usual attention */
    int64_t nope, rope;    /* of a query or key: without positions, with */
    int64_t value;         /* of a value */
};

enum { MODEL_MORE_ENDS = 8 }; /* ids of eos_token_id after the first */

struct model {
    const struct model_kind *kind;
    const struct decoder *decoder; /* NULL: the family's */
    int64_t vocab;         /* tokens */
    int layers, heads, kv_heads, head_width;
    int64_t width;         /* of the residual stream */
    int64_t feed_forward;  /* inner width */
    int64_t context;       /* most tokens of a sequence */
    int mtp_depth;         /* modules that predict later tokens (mtp.c) */
    bool tied;             /* embedding and head are one matrix */
    enum activation activation;
    double norm_epsilon;
    double init_std;
    double mup;            /* width over the base width of muP (mup.h); 0: the
                            * standard parametrisation. Not in config.json */
    double dropout;        /* largest probability that a config.json names: read
                            * and reported; a run has that of its options */
    bool qk_norm;          /* of each query and key head, chosen by settle */
    bool alibi;            /* linear biases of scores; nothing turns */
    struct {
        bool attention, mlp;
        bool head;         /* of logits, in a family that may have it */
    } biases;
    struct {               /* attention and feed-forward side by side */
        bool on;
        int norms;         /* before them: 1, 2; 0: as the family's table has */
    } beside;
    struct {
        int64_t tokens;    /* that a token sees; 0: all before it; of a chunked
                            * family: of its chunk of so many */
        struct blocks whole; /* blocks without it; none where it is 0 */
    } window;
    struct {               /* queries that do not turn grow with the logarithm
                            * of their position over floor (rope_table) */
        double by;         /* 0: they do not */
        int64_t floor;
    } tempered;
    struct {
        double queries;    /* scores are over its root; 0: the family has none,
                            * and the head width is meant */
        double scores;     /* they are multiplied by it, instead; 0: none */
        bool layers;       /* scores of block i, from 1, are also over i */
        double embedding;  /* rows of the table are multiplied by it; 0: none */
        double residual;   /* what a block adds, likewise */
        double logits;     /* they are divided by it; 0: none */
    } scaled;
    struct { double attention, head; } softcap; /* of scores, of logits;
                            * 0: none */
    struct {               /* rotary positions */
        double base;
        double local_base; /* of blocks with a window, which are not stretched;
                            * 0: they turn as the others */
        struct rope_scaling scaling;
        int rotary;        /* elements of a head that turn; 0: all */
        struct blocks still; /* blocks that do not turn queries and keys */
    } rope;
    struct moe moe;
    struct mla mla;
    struct lora lora;
    struct {               /* ids written into config.json; -1: none */
        int64_t bos, eos;
        int more_count;    /* ids of eos_token_id after `eos` */
        int64_t more[MODEL_MORE_ENDS];
    } ends;
};

/* How heads are: any; width / heads wide; that, and as many key-value heads. */
enum heads { HEADS_FREE, HEADS_FILL_WIDTH, HEADS_ALIKE };

struct model_kind {
    const char *name;         /* "llama" */
    const char *type;         /* model_type of config.json; NULL: the name */
    const char *also;         /* another, which is read as this one */
    const char *architecture; /* "LlamaForCausalLM" */
    const char *layer_prefix; /* outside: "model.layers.%d." */
    const struct decoder *decoder; /* NULL: build does not read one */
    const struct config_row *rows; /* of config.json */
    int row_count;
    bool tied;                /* when options do not say */
    enum activation activation; /* of a feed-forward part without gate */
    struct {
        bool attention, mlp;  /* always has them */
        bool no_attention, no_mlp, no_output; /* never; output: of attention */
        bool head;            /* when a config.json does not say */
    } biases;
    struct {
        bool may;             /* it may have a window ... */
        bool layers;          /* ... in some of its blocks */
        int skip;             /* when options do not say */
        bool chunked;         /* it is a chunk */
    } window;
    struct {
        double by;            /* when options do not say; 0: never */
        int64_t floor;
    } tempered;
    struct {                  /* it may have */
        bool queries;         /* a scale of scores of its own */
        bool multipliers;     /* those of embeddings and so on */
        bool layers;          /* one of each block */
    } scaled;
    struct {
        double attention, head; /* when options do not say; 0: never has one */
    } softcap;
    enum heads heads;
    int kv_heads;             /* when options do not say; 0: as many as heads */
    bool qk_norm, alibi;      /* may have it */
    struct {                  /* attention and feed-forward side by side */
        bool always;          /* ... */
        bool choice;          /* ... unless it is said otherwise */
        bool norms;           /* may have one or two norms of them */
    } beside;
    struct {
        double share;         /* of a head, when options do not say; 0: all of
                               * it, always */
        int skip;             /* when options do not say; 0: never skips */
        double base;          /* where a config.json does not say; 0: 10000 */
        double local_base;    /* when nobody says; 0: never has one */
    } rope;
    struct {                  /* of a mixture; when options do not say: */
        enum router_score score; /* always */
        int experts, top_k;   /* 0: has no experts */
        bool normalize;       /* ... */
        bool normalize_choice; /* may be said */
        bool shared;          /* may have an expert of all tokens */
        int shared_count;     /* it is as wide as so many others; 0: as those of
                               * a token */
        double noise;         /* 0: other scores */
        double scale;         /* of gates, when a config.json does not say; 0:
                               * they are not scaled */
        int groups, groups_chosen; /* likewise; 0: may not be said */
        enum router_group group; /* what counts of a group */
        bool bias;            /* files have biases of the choice, always */
        double bias_rate;     /* of these */
        bool sizes;           /* experts have a width of their own, and some
                               * blocks may be dense */
        int first_dense;      /* its config.json may list which blocks are
                               * dense; where it says nothing, so many first
                               * ones are; 0: it has no such list */
        double swiglu_alpha, swiglu_limit; /* of a clamped gate; 0: it is not
                               * clamped */
        bool mxfp4;           /* files may have its stacks in MXFP4 */
        const struct model_kind *made; /* the family that copies of its
                               * feed-forward parts make; NULL: none */
    } moe;
    struct mla mla;           /* when options do not say; rank 0: none */
    struct {
        bool more_blocks;     /* they may have blocks behind the last one, which
                               * predict later tokens: not read unless the model
                               * has them */
        const char *left_out; /* ... or tensors whose names begin so, which are
                               * not read; NULL: none */
        bool adapters_apart;  /* PEFT does not take adapters of dense parts
                               * for those of experts */
    } files;
    /* Appends the steps of the whole model to a program whose sizes are set. */
    status (*build)(struct program *program, const struct model *model);
    /* Reads parts of a config.json that rows cannot express; NULL: nothing. */
    status (*read_more)(struct model *model, const struct json *config,
                        const char *source);
    void (*write_more)(const struct model *model, struct json_writer *out);
    /* Computes dependent values and refuses invalid ones; NULL: nothing. */
    status (*settle)(struct model *model);
};

extern const struct model_kind model_llama, model_gpt2, model_qwen2,
    model_qwen3, model_mistral, model_ministral, model_smollm3, model_olmo2,
    model_phi3, model_stablelm, model_starcoder2, model_gpt_neox, model_gptj,
    model_falcon, model_palm, model_gemma, model_gemma2, model_gemma3,
    model_mixtral, model_olmoe, model_qwen2_moe, model_qwen3_moe,
    model_granitemoe, model_glm4_moe, model_deepseek, model_deepseek_v2,
    model_deepseek_v3, model_gpt_oss, model_phimoe, model_llama4,
    model_dots1, model_glm4_moe_lite, model_minimax_m2, model_flex_olmo,
    model_ernie4_5_moe, model_granitemoeshared, model_solar_open;

/* From the options section `model` (and data.sequence for the context).
 * `vocab`: the tokenizer's size, used where model.vocab is 0. ERR_CONFIG: sizes
 * that do not divide, with the nearest that do. */
status model_from_options(struct model *model, const struct options *options,
                          int64_t vocab);
/* From DIR/config.json or the file itself. ERR_CONFIG names unsupported
 * fields. */
status model_from_config(struct model *model, const char *path);
/* A config.json that transformers v4 and v5 read. */
status model_write_config(const struct model *model, enum dtype dtype,
                          struct text *out);
/* As the option model.rope_scaling spells it; nothing for plain. */
status rope_to_text(const struct rope_scaling *scaling, struct text *out);
/* Blocks with those of modules that predict later tokens. */
static inline int model_blocks(const struct model *model)
{
    return model->layers + model->mtp_depth;
}
/* The inner width of the feed-forward part of a block, mean over blocks: what a
 * token uses, and what is there. */
double model_inner_used(const struct model *model);
double model_inner_held(const struct model *model);
/* The step of selection biases in a run with these options. */
double model_bias_rate(const struct model *model,
                       const struct options *options);
/* Parameters of experts that a token has not chosen. */
int64_t model_idle(const struct model *model);
/* The largest number that divides the inner widths of all feed-forward parts.
 */
int64_t model_inner(const struct model *model);
/* The whole model as one rank would build it for a single token: what its
 * parameters are. The caller frees it. */
status model_build_whole(struct program *program, const struct model *model);
/* The most tokens of a sequence: the context, or, where what tells positions
 * apart is made for longer ones too (dynamic scaling, linear biases of scores),
 * MODEL_TOKENS_MAX. */
enum { MODEL_TOKENS_MAX = 1 << 24 };
int64_t model_longest(const struct model *model);
/* Computes the values that follow from the others, the same for every source of
 * the description. ERR_CONFIG: impossible sizes: heads, groups, odd head
 * widths. */
status model_settle(struct model *model);

#endif
