/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h - every numerical kernel, as one typed table per backend.
 *
 * The reference backend (kernels/reference/, plain C) fills every row, once
 * for float32 and once for float64, and defines the bits. Another backend
 * fills the rows it has and kernels_get takes the rest from the
 * reference, so a new machine works before it is fast. `bench kernels` prints
 * which backend each row came from. Fast rows equal the reference in every
 * bit: docs/numerics.md states each sum.
 *
 * Kernels never allocate (scratch comes with the stream) and check their
 * shapes with CHECK. "real" below is f64 in the table of f64, else f32.
 * Matrices are row-major; the last dimension has stride 1 unless said.
 * Gradients marked += are added to, others are set.
 *
 * Tables of a narrow type, bfloat16 or float16. These tensors have the narrow
 * type: activations, their gradients and the weights that kernels read (x y
 * dx dy q k v out dout dq dk dv, weight, bias, table of gather_rows, ...).
 * These are real, which is f32: statistics (rrms, stats, lse, delta, maxima,
 * denominators), gradients of parameters (sums, dtable, fold), tables of rope,
 * logits, moments and the weights that adamw updates.
 * A row is then: its inputs widened, the float32 row, each element rounded once
 * to nearest even where it is stored. Only matmul has a definition of its own
 * (enum product), and attention in tiles. Where a row allows more types it says
 * so; memory that two operands share has one type. */
#ifndef LOCKSTEP_KERNELS_KERNELS_H
#define LOCKSTEP_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/random.h"
#include "base/status.h"
#include "device/device.h"
#include "kernels/accumulator.h"
#include "kernels/attention.h"
#include "kernels/codes.h"
#include "kernels/experts.h"
#include "kernels/fixed_point.h"
#include "kernels/integers.h"
#include "kernels/masters.h"
#include "kernels/quantize.h"
#include "kernels/rotate.h"
#include "kernels/sums.h"
#include "kernels/factored.h"
#include "kernels/turned.h"
#include "kernels/updates.h"
#include "tensor/tensor.h"

/* The norm of the rows that another row of the table makes, in the same pass
 * over them: as rmsnorm_forward and layernorm_forward below. */
struct norm_after {
    bool layer;           /* LayerNorm; else RMSNorm, without bias */
    struct tensor y, stats, weight, bias;
    double epsilon;
};

/* x [tokens, width] = left + y as row add has it, and the norm of x. y == x
 * allowed. Narrow tables: x, left and the norm narrow, y narrow or f32. */
struct add_norm {
    struct tensor x, left, y;
    struct norm_after norm;
};

/* c [m, n] = a [m, k] times b [k, n].
 * a and b may have any strides as long as one of the two is 1.
 * result = the sum in `order`; then, in this order and each if not NULL:
 *   continues: result = c + granules, one by one (c is an unfinished leaf;
 *              order->leaves must be 1)
 *   bias  [n]:    result = result + bias
 *   left  [m, n]: result = left + result (left->data == c.data allowed where
 *                 it does not continue)
 * Narrow tables: a, b and bias narrow; c and left each narrow or f32 (c f32
 * where it continues). All after the granules is float32, c is rounded once. */
struct matmul {
    struct tensor c, a, b;
    const struct sum_order *order;
    bool continues;
    bool strips; /* b is W transposed, and W lies in strips (below) */
    const struct tensor *bias;
    const struct tensor *left;
    const struct norm_after *norm; /* of the rows of c, which have no granules
                                    * to come. NULL: none. Tables of the device
                                    * cuda only */
    const struct accumulator *accumulator; /* instead of enum product; NULL:
                                            * none. Tables of bfloat16 only,
                                            * and no strips */
    bool own; /* never by a library of products: the host makes it, too */
};

/* The granule of a product of bfloat16 (docs/numerics.md): pairs of elements,
 * one FMA after the other, or blocks of 32 with two chains each. A product of
 * float16 is that of float32 on widened operands. */
enum product { PRODUCT_PAIRS, PRODUCT_TILES };

enum activation { ACTIVATION_GELU_TANH, ACTIVATION_GELU_ERF,
                  ACTIVATION_SILU, ACTIVATION_RELU };

/* y [rows, width] = x, where elements are set to +0 with probability `rate` and
 * the others are multiplied by 1 / (1 - rate), rounded to real once; left + y
 * where there is a left. y == x allowed. Which elements: element e of a row is
 * word e / DROPOUT_BLOCKS % 4 of block e / (4 DROPOUT_BLOCKS) DROPOUT_BLOCKS +
 * e % DROPOUT_BLOCKS of the generator (base/random.h), counted from the row's
 * counter, and is kept when that word is at least dropout_least. */
enum { DROPOUT_BLOCKS = 16 };
struct dropout_row { uint64_t low, high; }; /* 20 low bits of high are 0 */
struct dropout {
    struct tensor y, x, left;         /* of one type; left.data NULL: none */
    struct random_key key;
    const struct dropout_row *rows;   /* [rows] */
    double rate;                      /* in [0, 1) */
};

/* The phases of a cross-entropy whose vocabulary ranks share. The same bits as
 * the whole, for every cut into subtrees of leaves:
 *   MAXIMUM  sets maximum [tokens], and target, the target's logit or -inf.
 *            Then the ranks take the maximum of each of the two.
 *   SUM      from maximum: sets sum, of the rank's leaves by the tree; logits
 *            become exponentials if `gradient`. Then the ranks' sums are added
 *            by the tree.
 *   END      from all three: losses, and the gradient. */
enum loss_phase { LOSS_WHOLE, LOSS_MAXIMUM, LOSS_SUM, LOSS_END };

/* Cross-entropy over a logits chunk; vocabulary leaves of
 * ceil(vocab / leaves) columns.
 *   logits  [tokens, vocab]  in: logits; out: softmax - onehot, unscaled (zero
 *                            rows where the target is -1) if `gradient`
 *   targets [tokens] i32, -1: no target
 *   losses  [tokens] f64, 0 where there is no target
 * Narrow tables: logits are f32, the gradient is written narrow in place: its
 * row i is the first half of the bytes of row i of the logits, the other half
 * is left as anything. LOSS_SUM leaves float32 exponentials. */
struct cross_entropy {
    struct tensor logits;
    const int32_t *targets;
    double *losses;
    int leaves;
    bool gradient;
    double scale;       /* of the gradient, rounded to real once; 0: 1 */
    /* c of c log(Z)^2, Z the sum of e^logit, which is added to the loss of each
     * token as the gradient sees it; 0: none. Source: Chowdhery et al. 2022
     * (PaLM), arXiv:2204.02311, section 5. */
    double z_loss;
    double *z_losses;   /* [tokens] set with z_loss: that term; losses stay
                         * without it */
    /* For a rank that has some leaves of the vocabulary only. The rest is zero
     * for all of it. */
    enum loss_phase phase;
    int64_t first;      /* token that column 0 stands for */
    int64_t block;      /* columns of a leaf (the last may have fewer); 0:
                         * ceil(columns / leaves) */
    void *maximum, *target, *sum; /* [tokens] real */
};

/* Weights that lie as products read them, for those that read the same weight
 * again and again with few rows: of W [rows, cols] each strip of `rows` rows
 * becomes [cols, rows], of words of 32 bits (pairs of 16-bit elements), in its
 * own place; the rows after the last whole strip stay as they are. The bits of
 * a product do not show it. Segments of the sum begin and end at multiples of
 * `grain`. */
struct strips {
    int rows;  /* 0: the backend has no strips */
    int grain; /* elements */
    /* false: it was left as it is, since scratch is too small for a strip. */
    bool (*turn)(struct stream *, struct tensor weight);
};
bool strips_fit(const struct strips *strips, const struct sum_order *order);
/* out [cols] = row `row` of a weight in strips, + 0.0. */
void strips_row(const struct strips *strips, const struct tensor *weight,
                int64_t row, void *out);

struct kernels {
    const char *backend; /* "reference", "cpu avx512", ... */
    enum dtype dtype;    /* of activations and weights; `real` may be wider */
    enum product product; /* of bfloat16 */
    struct strips strips;

    status (*matmul)(struct stream *, const struct matmul *);

    /* y [n] = a [n] + b [n]; aliasing allowed. Narrow tables: each narrow or
     * f32. */
    status (*add)(struct stream *, struct tensor y, struct tensor a,
                  struct tensor b);
    /* y [n] = x [n] * factor (rounded to real once); y == x allowed. Narrow
     * tables: each narrow or f32, so that a factor of 1 converts. */
    status (*scale)(struct stream *, struct tensor y, struct tensor x,
                    double factor);
    /* out [width] = tree over rows of in [leaves * parts, width]: parts by the
     * tree inside each leaf, then leaves by the tree. `in` is destroyed. Both
     * are real. */
    status (*fold)(struct stream *, struct tensor out, struct tensor in,
                   int leaves, int parts);
    /* sums [leaves * contexts * parts, width] of dy [tokens, width] (struct
     * token_order). Gradient of a bias. Sums are real in this and other
     * rows. */
    status (*sum_rows)(struct stream *, struct tensor sums, struct tensor dy,
                       const struct token_order *);

    /* y = (x * rrms) * weight, rrms = 1 / sqrt(sum(x^2) / width + epsilon).
     *   y, x, dy, dx [tokens, width]   weight [width]   rrms [tokens] real */
    status (*rmsnorm_forward)(struct stream *, struct tensor y,
                              struct tensor rrms, struct tensor x,
                              struct tensor weight, double epsilon);
    /* dx = gradient of x, or dx += when `adds`; then sums [leaves * parts,
     * width] of dy * (x * rrms) in token_order (fma chains). */
    status (*rmsnorm_backward)(struct stream *, struct tensor dx, bool adds,
                               struct tensor sums, struct tensor dy,
                               struct tensor x, struct tensor rrms,
                               struct tensor weight,
                               const struct token_order *);
    /* y = fma((x - mean) * rstd, weight, bias); stats [tokens, 2] real =
     * mean, rstd. epsilon is inside the root. */
    status (*layernorm_forward)(struct stream *, struct tensor y,
                                struct tensor stats, struct tensor x,
                                struct tensor weight, struct tensor bias,
                                double epsilon);
    status (*add_norm)(struct stream *, const struct add_norm *);
    /* sums_weight and sums_bias [leaves * parts, width]. */
    status (*layernorm_backward)(struct stream *, struct tensor dx, bool adds,
                                 struct tensor sums_weight,
                                 struct tensor sums_bias, struct tensor dy,
                                 struct tensor x, struct tensor stats,
                                 struct tensor weight,
                                 const struct token_order *);

    /* x [tokens, heads, width] (strides as in struct attention) turned in
     * place, halves convention: (x1, x2) = (x1 c - x2 s, x2 c + x1 s), s
     * negated when `backward`. positions [tokens]; table [positions,
     * rotary / 2, 2] real, cosine and sine. Only the first `rotary` elements of
     * a head turn. */
    status (*rope)(struct stream *, struct tensor x, const int32_t *positions,
                   struct tensor table, int rotary, bool backward);

    /* out [tokens, width] = silu(gate) * up; gate and up are the halves of
     * gate_up [tokens, 2 * width]. */
    status (*swiglu_forward)(struct stream *, struct tensor out,
                             struct tensor gate_up);
    /* dgate_up set; == gate_up allowed. */
    status (*swiglu_backward)(struct stream *, struct tensor dgate_up,
                              struct tensor dout, struct tensor gate_up);
    /* Like swiglu, with gelu, tanh form, of the gate. */
    status (*geglu_forward)(struct stream *, struct tensor out,
                            struct tensor gate_up);
    status (*geglu_backward)(struct stream *, struct tensor dgate_up,
                             struct tensor dout, struct tensor gate_up);
    /* y = cap tanh(x / cap), with a reciprocal rounded once; y == x allowed. */
    status (*softcap_forward)(struct stream *, struct tensor y,
                              struct tensor x, double cap);
    /* dx, the gradient of y, becomes that of x: times 1 - (y / cap)^2. */
    status (*softcap_backward)(struct stream *, struct tensor dx,
                               struct tensor y, double cap);
    status (*activation_forward)(struct stream *, struct tensor y,
                                 struct tensor x, enum activation);
    /* dx set; == dy allowed. */
    status (*activation_backward)(struct stream *, struct tensor dx,
                                  struct tensor dy, struct tensor x,
                                  enum activation);

    /* out [tokens, width] = table [rows, width] at index (+ 0.0), or out +=
     * when `adds`. index [tokens] in [0, rows), checked by the caller; -1: a
     * row that another rank has, +0 here. */
    status (*gather_rows)(struct stream *, struct tensor out, bool adds,
                          struct tensor table, const int32_t *index);
    /* dtable [rows, width] real of one call: for each row and leaf, the leaf's
     * tokens that name it, in order: granules of up to GRANULE tokens counted
     * from the start of each sequence (context chunk), a chain of additions
     * from +0 each, granules added in order (the first that names the row
     * assigned); then the tree over leaves times contexts, a leaf without the
     * row being +0. continues: one leaf; dtable is that leaf, unfinished. not
     * continues: every row is set. order->parts is ignored, and so are tokens
     * whose index is -1. */
    status (*scatter_rows)(struct stream *, struct tensor dtable,
                           struct tensor dout, const int32_t *index,
                           const struct token_order *);

    status (*attention_forward)(struct stream *, const struct attention *);
    status (*attention_backward)(struct stream *, const struct attention *);
    /* left = left merged with right, which has the later keys. */
    status (*attention_merge)(struct stream *,
                              const struct attention_node *left,
                              const struct attention_node *right);
    /* out and lse [rows, heads] of the root. */
    status (*attention_finish)(struct stream *, struct tensor out,
                               struct tensor lse,
                               const struct attention_node *root);
    /* out [tokens, kv_heads, head_width] = in [tokens, heads, head_width]
     * summed over the query heads of each key-value head, as dk and dv are.
     * Narrow tables: each narrow or f32. */
    status (*attention_heads)(struct stream *, struct tensor out,
                              struct tensor in, int leaves);
    /* Sets `delta` of the queries from dout and out. */
    status (*attention_delta)(struct stream *, const struct attention *);
    status (*dropout)(struct stream *, const struct dropout *);
    /* Not of real numbers: the same in every table. */
    status (*quantize)(struct stream *, const struct quantize *);
    status (*block_encode)(struct stream *, const struct block_encode *);
    status (*block_decode)(struct stream *, const struct block_decode *);
    status (*integer_product)(struct stream *, const struct integer_product *);
    status (*rotate)(struct stream *, const struct rotate *);
    status (*unrotate)(struct stream *, const struct unrotate *);

    status (*cross_entropy)(struct stream *, const struct cross_entropy *);

    /* Mixtures of experts: kernels/experts.h. */
    status (*router_choose)(struct stream *, const struct router *);
    status (*router_losses)(struct stream *, const struct router_losses *);
    status (*router_backward)(struct stream *, const struct router_losses *);
    status (*jitter)(struct stream *, const struct jitter *);
    status (*experts_product)(struct stream *, const struct experts_product *);
    status (*experts_gradient)(struct stream *,
                               const struct experts_gradient *);
    status (*experts_sums)(struct stream *, const struct experts_sums *);
    status (*experts_combine)(struct stream *, const struct experts_combine *);
    status (*experts_gates)(struct stream *, const struct experts_gates *);
    status (*clamped_forward)(struct stream *, const struct clamped_glu *);
    status (*clamped_backward)(struct stream *, const struct clamped_glu *);

    /* x *= factor (rounded to real once; 1: x is only read); then sums
     * [ceil(elements / SQUARES_BLOCK)] = float64 sums of squares of the
     * blocks of x [rows, cols] (any row stride, the matrix taken as one
     * row-major run), 16 lanes each. The caller adds them by the binary tree
     * over absolute block numbers (optimizer/update.c), wherever the blocks
     * were summed. */
    status (*sum_squares)(struct stream *, double *sums, struct tensor x,
                          double factor);
    /* x [rows, cols], dense, times 1 / |x| (rounded to real once). sums: the
     * blocks of its squares (sum_squares), which are destroyed. A norm of at
     * most `least` counts as that. */
    status (*normalize)(struct stream *, struct tensor x, double *sums,
                        double least);
    /* weight = fma(-lr / correction1, m / fma(sqrt(v), 1 / sqrt(correction2),
     * epsilon), weight * (1 - lr * decay)); decoupled decay. */
    status (*adamw)(struct stream *, const struct adamw *);
    status (*update_elements)(struct stream *, const struct element_update *);
    /* weight = fma(-rate, step, weight * keep). */
    status (*descend)(struct stream *, const struct descent *);
    /* Adafactor's step: kernels/factored.h. */
    status (*factored)(struct stream *, const struct factored *);
    /* Adam in the axes of an eigenbasis: kernels/turned.h. */
    status (*turned)(struct stream *, const struct turned *);
    /* Split masters as numbers, and back. */
    status (*masters_join)(struct stream *, const struct masters *);
    status (*masters_split)(struct stream *, const struct masters *);

    /* sums [n] int64 += integers of x [n] (fixed_point.h); x is float32, or
     * integers that were added up elsewhere. */
    status (*fixed_add)(struct stream *, struct tensor sums, struct tensor x,
                        struct fixed);
    /* y [n] float32 = what the sums [n] int64 stand for. y may begin where they
     * do. */
    status (*fixed_read)(struct stream *, struct tensor y, struct tensor sums,
                         struct fixed);
};

/* The rows as lists, for code that treats all alike: those that kernels/cpu
 * fills itself, and all. */
#define KERNELS_CPU_ROWS(X)                                               \
    X(matmul) X(add) X(scale) X(fold) X(sum_rows) X(rmsnorm_forward)      \
    X(rmsnorm_backward) X(layernorm_forward) X(layernorm_backward)        \
    X(rope) X(swiglu_forward) X(swiglu_backward) X(geglu_forward)         \
    X(geglu_backward) X(softcap_forward) X(softcap_backward)              \
    X(activation_forward) X(activation_backward) X(gather_rows)           \
    X(scatter_rows) X(dropout) X(quantize) X(integer_product)             \
    X(block_encode) X(block_decode) X(rotate) X(unrotate)                 \
    X(attention_forward) X(attention_backward) X(attention_delta)         \
    X(attention_finish) X(attention_heads)                                \
    X(router_choose) X(router_losses) X(router_backward) X(jitter)        \
    X(experts_product) X(experts_gradient) X(experts_sums)                \
    X(experts_combine) X(experts_gates) X(clamped_forward)                \
    X(clamped_backward)                                                   \
    X(cross_entropy) X(sum_squares) X(normalize) X(adamw)                 \
    X(update_elements)                                                    \
    X(descend) X(masters_join) X(masters_split) X(fixed_add) X(fixed_read) \
    X(add_norm) X(factored) X(turned)
#define KERNELS_ROWS(X) KERNELS_CPU_ROWS(X) X(attention_merge)
/* The function type of a row, to declare what fills it. */
#define KERNELS_TYPE(row) __typeof__(*((struct kernels *)0)->row)

/* ISA_EMULATED: kernels of CUDA under an emulator (kernels/cuda/emulator.c);
 * its narrow tables have other rows from ISA_PLAIN. Unit tests link it, the
 * program does not; nobody chooses it. */
enum isa { ISA_AUTO, ISA_PLAIN, ISA_AVX2, ISA_AVX512, ISA_NEON, ISA_EMULATED,
           ISA_COUNT, ISA_CHOICES = ISA_EMULATED };
const char *isa_name(enum isa isa);
enum isa isa_best(void); /* of this machine and this build */
/* A complete table. dtype f64: the reference; bfloat16: products in pairs.
 * ERR_CONFIG: this machine or build has no such instruction set (names what it
 * has). */
status kernels_get(struct kernels *out, enum dtype dtype, enum isa isa);
/* Like kernels_get; `product` is heeded where dtype is bfloat16. */
status kernels_get_product(struct kernels *out, enum dtype dtype, enum isa isa,
                           enum product product);
/* Name of the backend that fills a row, for printing. */
struct kernels_row { const char *name; const char *backend; };
int kernels_rows(const struct kernels *table, struct kernels_row *rows,
                 int capacity);
/* Every row of the two tables measures itself (base/meter.h) and calls what was
 * there, which moves to inner [2] and must outlive the stream. Only calls on
 * this stream, or on copies of it, are possible afterwards. */
void kernels_meter(struct kernels *table, struct kernels *real,
                   struct kernels *inner, struct stream *stream);
/* Every row of the two tables is run later by the device of the stream, which
 * is apart from the host; what was there moves to behind [2], which must
 * outlive the stream. Then device_join. */
void kernels_launch(struct kernels *table, struct kernels *real,
                    struct kernels *behind, struct stream *stream);
/* The table becomes that of the device cuda. NULL, or the name of the first row
 * that has no kernel there. */
const char *kernels_cuda(struct kernels *table);
extern const struct kernels kernels_reference_f32, kernels_reference_f64;
/* Products of a table of the reference become those of a narrow type. */
void kernels_reference_products(struct kernels *table, enum dtype dtype,
                                enum product product);

/* Scratch that the largest call of any row needs with `threads` threads when
 * no operand dimension exceeds `widest` (columns, vocabulary) and a call has at
 * most `tokens` tokens (of all its sequences together). */
size_t kernels_scratch_bytes(const struct kernels *table, int threads,
                             int64_t widest, int64_t tokens);

#endif
