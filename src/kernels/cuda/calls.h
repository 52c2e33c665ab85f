/* SPDX-License-Identifier: Apache-2.0 */
/* calls.h - the calls of kernels of CUDA. All numbers are float32, but for
 * operands that are views or tensors, or have a type: those may be narrow. */
#ifndef LOCKSTEP_KERNELS_CUDA_CALLS_H
#define LOCKSTEP_KERNELS_CUDA_CALLS_H

#include "device/parts.h"
#include "device/roots.h"
#include "kernels/code8.h"
#include "kernels/kernels.h"
#include "kernels/view.h"

/* to[0] (and to[1]) = the operation of from[0], from[1], from[2], element by
 * element; what the operation does not read has no data. A row is done by
 * `row_blocks` blocks. */
enum elementwise_op {
    OP_ADD,              /* from0 + from1 */
    OP_SUM,              /* from2 + (from0 + from1) */
    OP_SCALE,            /* from0 constant0 */
    OP_FORWARD,          /* of from0 by `activation` */
    OP_BACKWARD,         /* from0: dy, from1: x */
    OP_GATED,            /* from0: gate, from1: up */
    OP_GATED_BACKWARD,   /* to: dgate, dup; from: dout, gate, up */
    OP_SOFTCAP,          /* constants: cap, 1 / cap */
    OP_SOFTCAP_BACKWARD, /* from0: dy, from1: y */
    OP_CLAMPED,          /* as gated; constants: alpha, limit */
    OP_CLAMPED_BACKWARD
};
struct elementwise_call {
    enum elementwise_op op;
    enum activation activation;
    struct view to[2], from[3];
    float constant[2];
    int64_t row_blocks;
};

struct adamw_call {
    float *weight, *m, *v;
    const float *gradient;
    void *copy; /* in 16 bits; NULL: none */
    enum dtype copy_type;
    int64_t count;
    float scale, beta1, beta2, rest1, rest2, epsilon, root, step, keep;
};

struct descend_call {
    float *weight;
    const float *step;
    void *copy; /* as of adamw */
    enum dtype copy_type;
    int64_t count;
    float rate, keep;
};

/* As struct masters. */
struct masters_call {
    float *values;
    uint16_t *weights, *lower;
    unsigned char *ties;
    int64_t first, count;
};
struct masters_join_call { struct masters_call of; };
struct masters_split_call { struct masters_call of; };

struct fixed_add_call {
    int64_t *sums;
    const int64_t *integers; /* NULL: numbers */
    const float *numbers;
    int64_t count;
    double scale;
    int spare;
    bool first;
};

/* Elements [start, start + count) are read. */
struct fixed_read_call {
    float *out;
    const int64_t *sums;
    int64_t start, count;
    double scale;
    int spare;
    float back;
};

/* As struct element_update. */
struct update_state {
    void *data; /* NULL: none */
    enum dtype dtype;
    float *scales;
};
struct update_codes {
    float tables[UPDATE_STATES][CODE8_COUNT];
    struct code8_bins bins[UPDATE_STATES];
};
struct update_elements_call {
    enum update_formula formula;
    struct view weight, gradient, copy; /* copy.data NULL: none */
    struct update_state states[UPDATE_STATES];
    const struct update_codes *codes;
    int64_t count;
    float scale, beta1, beta2, rest1, rest2, epsilon, root, step, keep, decay,
          lr, share, push;
};
/* A thread has a master, a block whole bytes of their bits. States are no
 * codes. */
struct update_masters_call {
    struct update_elements_call of;
    struct masters_call masters;
};

struct rope_call {
    void *x; /* [tokens, heads, width] */
    enum dtype dtype; /* of x */
    int64_t tokens, heads, token_stride, head_stride;
    const int32_t *positions;
    const float *table;
    int64_t table_stride, half;
    bool backward;
};

/* The rows of a norm, 16 of them in a block. stats: of RMSNorm [tokens], of
 * LayerNorm [tokens, 2]. */
struct norm_call {
    struct view to, x, dy; /* to: y, or dx; all are of x's type */
    const void *weight, *bias; /* so are these */
    float *stats;
    float epsilon;
    bool adds;
};
struct rmsnorm_forward_call { struct norm_call norm; };
/* norm.x becomes left + y, or left + (y + bias). left.data NULL: y, or y +
 * bias. */
struct add_norm_call {
    struct norm_call norm;
    struct view left, y;
    const void *bias; /* of x's type; NULL: none */
    bool layer;
};
struct rmsnorm_backward_call { struct norm_call norm; };
struct layernorm_forward_call { struct norm_call norm; };
struct layernorm_backward_call { struct norm_call norm; };

/* sums [units, width] in token_order; a block has TOKEN_COLUMNS columns of one
 * unit, `unit_blocks` blocks a unit. */
enum { TOKEN_COLUMNS = 32 };
enum token_term {
    TERM_ROWS,   /* chain + dy */
    TERM_RMS,    /* fma(dy, x r, chain) */
    TERM_LAYER   /* fma(dy, (x - mean) r, chain) */
};
struct token_sums_call {
    enum token_term term;
    struct view sums, dy, x;
    const float *stats;
    struct token_order order;
    int64_t unit_blocks;
};

/* out [width] = the tree over rows of `in`, which is spoiled. */
struct fold_call {
    struct view in;
    float *out;
    int64_t leaves, parts;
};

struct sum_squares_call {
    struct view x; /* times the factor */
    double *sums;
    float factor;
};

/* sums[0] = squares_factor; by one block. */
struct squares_tree_call {
    double *sums;
    int64_t count;
    double least;
};
/* x [count] times *factor. */
struct normalize_call {
    float *x;
    int64_t count;
    const double *factor;
};

/* As struct factored. */
struct factored_sums_call {
    float *x;
    int64_t rows, cols, row_blocks;
    double *row_sums, *col_sums;
};
struct factored_moments_call {
    float *row, *col;
    int64_t rows, cols;
    double *row_sums, *col_sums;
    double epsilon, fresh;
};
struct factored_matrix_call {
    float *x;
    int64_t cols, count;
    const double *row_sums, *col_sums;
    double least;
};
struct factored_elements_call {
    float *x, *moments;
    int64_t count;
    double least, fresh;
};
struct factored_rate_call {
    double *blocks;
    int64_t count, elements;
    double *size;
    double rate;
    bool ends;
};

/* As struct turned. */
struct turned_moments_call {
    const float *x, *gradient;
    float *m, *v;
    int64_t count;
    double beta1, beta2;
};
struct turned_step_call {
    float *x;
    const float *v;
    int64_t count;
    double correction1, correction2, epsilon;
};

struct gather_rows_call {
    struct view out, table;
    const int32_t *index;
    bool adds;
    int64_t row_blocks;
};

/* tokens [count] = the tokens by their row. */
struct rows_sort_call {
    const int32_t *index;
    int64_t count;
    int32_t *tokens;
};
struct scatter_rows_call {
    struct view table, dout;
    const int32_t *index, *tokens;
    int64_t count, row_blocks;
    struct token_order order;
    int leaves; /* of the tree */
};

struct dropout_call {
    struct view y, x, left; /* left.data NULL: none */
    struct random_key key;
    const struct dropout_row *rows;
    uint32_t least;
    float factor;
    int64_t row_blocks;
};

/* As struct cross_entropy. */
struct loss_numbers {
    float *logits;
    int64_t stride, columns, first, leaf_columns;
    const int32_t *targets;
    double *losses, *z_losses;
    int leaves;
    bool gradient;
    float scale, twice_z_loss;
    double z_loss;
    enum loss_phase phase;
    float *maximum, *target, *sum;
    enum dtype dtype; /* of the gradient */
};
struct cross_entropy_call { struct loss_numbers loss; };

/* An operand of a product: element (outer, inner) is data[outer * `outer` +
 * inner * `inner`]. summed: the outer index counts elements of the sum.
 * of_rows: an index is that of an expert's rows, as in struct expert_rows. */
struct product_operand {
    const void *data;
    enum dtype dtype;
    int64_t outer, inner;
    bool summed, of_rows, gathered;
    const float *scales; /* NULL: none */
};
enum { PRODUCT_TILE = 64 /* rows and columns of a block */ };
struct tiled {
    struct product_operand a, b;
    void *c;
    enum dtype c_dtype, left_dtype; /* of a product of narrow operands */
    int64_t c_stride, m, n;
    const struct sum_segment *segments;
    int64_t segment_count;
    bool continues;
    const void *bias, *left; /* or NULL; bias is of the type of operands */
    int64_t left_stride;
    int64_t column_tiles;
    struct accumulator accumulator; /* GRANULE_CUT */
};
/* The kernels of a product: for one leaf or for trees, by enum granule_kind. */
#define PRODUCT_NAMES(X, name)                                             \
    X(name##_leaf) X(name##_tree) X(name##_pairs_leaf)                     \
    X(name##_pairs_tree) X(name##_tiles_leaf) X(name##_tiles_tree)         \
    X(name##_f16_leaf) X(name##_f16_tree) X(name##_cut_leaf)               \
    X(name##_cut_tree)
#define TILED_CALL(name) struct name##_call { struct tiled call; };
PRODUCT_NAMES(TILED_CALL, matmul)
#undef TILED_CALL

/* Products of all experts: strides from expert to expert. */
struct experts_call {
    struct tiled product; /* of expert 0 */
    struct expert_groups groups;
    int64_t b_stride, c_stride, bias_stride;
    int64_t row_tiles; /* of an expert (experts_product: of all together) */
    bool adds;
};
#define EXPERTS_CALL(name) struct name##_call { struct experts_call call; };
PRODUCT_NAMES(EXPERTS_CALL, experts_product)
PRODUCT_NAMES(EXPERTS_CALL, experts_gradient)
#undef EXPERTS_CALL
struct experts_sums_call {
    struct expert_groups groups;
    struct product_operand a; /* [rows, width] */
    float *c;
    int64_t c_stride, width, column_blocks, segment_count;
    const struct sum_segment *segments;
    bool continues, adds;
};
struct experts_combine_call {
    struct experts_combine of;
    struct tensor left; /* data NULL: none */
};
struct experts_gates_call { struct experts_gates of; };

struct router_choose_call { struct router of; };
struct router_losses_call { struct router_losses of; };
struct router_backward_call { struct router_losses of; };
struct jitter_call {
    struct view y, x;
    struct random_key key;
    const struct dropout_row *rows;
    float epsilon;
    int64_t row_blocks;
};

/* Granules of attention: less than 2^levels, counted from position 0. */
enum { CUDA_ATTENTION_LEVELS = 14 };
enum { ATTENTION_TILE = 4096 /* rows of a block times class of width */ };
struct attention_call {
    struct attention of;
    float scale, cap, inverse_cap, keep;
    uint32_t least;
    bool drops;
    const float *slopes; /* [heads]; NULL: no linear biases */
    int64_t tiles;       /* of a head of a sequence; blocks are (sequence,
                          * head, tile), the tile fastest */
};
/* By the class of the head's width. */
struct attention_forward_64_call { struct attention_call call; };
struct attention_forward_128_call { struct attention_call call; };
struct attention_forward_256_call { struct attention_call call; };
struct attention_queries_64_call { struct attention_call call; };
struct attention_queries_128_call { struct attention_call call; };
struct attention_queries_256_call { struct attention_call call; };
struct attention_keys_64_call { struct attention_call call; };
struct attention_keys_128_call { struct attention_call call; };
struct attention_keys_256_call { struct attention_call call; };
/* On tensor cores (flash_tile.h): `tiles` are those of FLASH_ROWS queries, or
 * keys; backward, of heads wider than FLASH_NARROW, of FLASH_ROOM. */
enum { FLASH_ROWS = 128, FLASH_NARROW = 128 };
/* Rows that fit in a block's memory, by the class of the width. */
#define FLASH_ROOM(span) ((span) <= FLASH_NARROW ? FLASH_ROWS : FLASH_ROWS / 2)
/* A block makes, forward, a half of the elements of values so wide. */
#define FLASH_PARTS(span) ((span) <= FLASH_NARROW ? 1 : 2)
struct flash_call {
    struct attention_call of;
    float scale;         /* times log2 e */
    bool is_plain;       /* scores are products times the scale */
};
/* The kernels of a pass: by the class of the head's width, and of the value's
 * where it has one of its own. */
#define FLASH_WIDER_NAMES(X, name)                                         \
    X(name##_96) X(name##_128) X(name##_192_128) X(name##_192)             \
    X(name##_256)
#define FLASH_NAMES(X, name) X(name##_64) FLASH_WIDER_NAMES(X, name)
#define FLASH_CALL(name) struct name##_call { struct flash_call call; };
FLASH_NAMES(FLASH_CALL, flash_forward)
FLASH_NAMES(FLASH_CALL, flash_queries)
FLASH_NAMES(FLASH_CALL, flash_keys)
FLASH_WIDER_NAMES(FLASH_CALL, flash_values)
#undef FLASH_CALL
struct attention_merge_call {
    struct attention_node left, right;
    int64_t rows, heads, width;
};
struct attention_finish_call {
    struct tensor out, lse;
    struct attention_node root;
    int64_t rows, heads, width;
};
struct attention_heads_call {
    struct tensor out, in;
    int leaves;
};
struct attention_delta_call { struct attention of; };

struct numbers_clear_call { float *to; int64_t count; };

/* A format, and what else block_scale asks for. */
struct coding_numbers {
    struct code_format format;
    struct grid_format e4m3;
    float largest;
    int bits;
    int64_t all; /* blocks along columns */
};
/* A thread has CODES_OF_THREAD columns of a row, whose codes fill bytes. Spans
 * are copies. */
enum { CODES_OF_THREAD = 4, CODES_SHARES = 16 /* blocks of a region */ };
struct codes_call {
    struct block_encode of;
    struct coding_numbers numbers;
    int64_t row_blocks;
};
struct codes_peaks_call { struct codes_call codes; };
struct codes_scales_call { struct codes_call codes; };
struct codes_write_call { struct codes_call codes; };
struct codes_sums_call { struct codes_call codes; };
struct codes_means_call { struct codes_call codes; };
struct sums_clear_call { int64_t *to; int64_t count; };
struct codes_read_call {
    struct block_decode of;
    struct coding_numbers numbers;
    int64_t row_blocks;
};
struct codes_row_scales_call {
    struct block_decode of;
    struct coding_numbers numbers;
};

/* A matrix in spans, each of which is cut in cells (cells.h). */
struct cells {
    const struct quantize_span *rows, *cols; /* copies */
    int64_t row_spans, col_spans;
    int64_t high, wide; /* rows, columns of a cell; 0: the span */
    int64_t count, all; /* of all, of those along columns */
};

/* `team` threads, a power of two, have a cell: a block that has a scale, or
 * part of one where scales are known before. */
enum { QUANTIZE_SHARES = 16 /* blocks of a region that look at it */ };
struct quantize_call {
    struct quantize of;
    struct cells cells;
    struct grid_format format, e4m3;
    bool looks;   /* the scale is that of the cell's own elements */
    bool whole;   /* ... that of the region's: peaks has the largest */
    int team;
};
struct quantize_peaks_call { struct quantize_call call; };
struct quantize_means_call { struct quantize_call call; };
struct quantize_blocks_call { struct quantize_call call; };

/* A thread has a run. */
struct rotate_runs_call { struct rotate of; struct cells cells; };
struct unrotate_runs_call {
    struct unrotate of;
    struct tensor left; /* data NULL: none */
    struct cells cells;
    struct grid_format e4m3;
    float largest;
};

/* A thread has a unit: `unit` bytes, of which a part has `units`. */
struct copy_parts_call {
    struct device_parts of;
    int64_t units;
    int unit;
};

/* A thread has an element; a row is done by `row_blocks` blocks. */
struct sum_roots_call {
    struct device_roots of;
    int64_t row_blocks;
};

struct integer_tiles_call {
    struct integer_product of;
    struct tensor bias, left; /* data NULL: none */
    const struct sum_segment *segments;
    int leaves;
    int64_t column_tiles;
};

#endif
