/* SPDX-License-Identifier: Apache-2.0 */
/* cost.c - seconds of the passes of a block, of the embedding and of the head:
 * a roofline with constants of the machine, or what was measured there. */
#include "planner/cost.h"

#include <string.h>

#include "planner/cost_parts.h"
#include "planner/network.h"

const char *const cause_names[CAUSES] = {
    "products", "rounding", "attention", "memory-bound", "launch", "update",
    "host", "tensor", "context", "expert", "pipe", "data", "shard", "offload",
    "idle"};

double spent_seconds(const struct spent *span)
{
    double sum = 0;

    for (int i = 0; i < CAUSES; i++) sum += span->seconds[i];
    return sum;
}

void spent_add(struct spent *to, const struct spent *from, double times)
{
    for (int i = 0; i < CAUSES; i++)
        to->seconds[i] += times * from->seconds[i];
    to->guessed += times * from->guessed;
    to->network += times * from->network;
}

static double larger(double a, double b) { return a > b ? a : b; }

int cost_threads(const struct cost *cost)
{
    return cost->layout->threads > 1 ? cost->layout->threads : 1;
}

void cost_started(const struct cost *cost, double kernels, struct spent *out)
{
    const struct machine *m = cost->machine;
    const double seconds = kernels * m->value[M_GAP];

    if (cost->layout->as != AS_LOCKSTEP || m->product_count > 0) return;
    out->seconds[CAUSE_LAUNCH] += seconds;
    if (m->mark[M_GAP] == MARK_ASSUMED) out->guessed += seconds;
}

enum constant cost_offload_path(const struct layout *layout)
{
    return layout->offload & OFFLOAD_DISK ? M_DISK_RATE : M_HOST_RATE;
}

/* Seconds of the host for the experts of a rank beyond the first one. Their
 * products run beside each other, so the device has no gaps between them. */
static double expert_starts(const struct cost *cost)
{
    const struct shape *s = cost->shape;
    const double local = (double)s->experts /
                         layout_experts(cost->layout).places;

    return local > 1 ? habits_of[cost->layout->as].each_expert * (local - 1) *
                           s->expert_blocks : 0;
}

/* Seconds of kernels that make rows of a rank's experts narrow, in F and in B:
 * one expert after the other, before both products. Scales of whole tensors
 * take four of them: zero, largest value, scale, codes (TransformerEngine of
 * 2025-10: pytorch/csrc/extensions/cast.cpp, split_quantize, and
 * common/recipe/current_scaling.cu). */
static double expert_codes(const struct cost *cost)
{
    const struct layout *l = cost->layout;
    const double local = (double)cost->shape->experts /
                         layout_experts(l).places;

    if (l->bits != 8 || !habits_of[l->as].codes_kept) return 0;
    return 2 * (l->tensor_scales ? 4 : 1) * cost->machine->value[M_LAUNCH] *
           local * cost->shape->expert_blocks;
}

/* The library's all-to-all asks the host how many rows go where: after it the
 * device has nothing else to do, and experts take as long as the host starts
 * them, or as they compute. `experts`: of expert_starts. */
static void experts_in_turn(const struct cost *cost, double experts,
                            struct passes *out)
{
    const struct shape *s = cost->shape;
    struct passes work = {0};

    for (int i = 0; i < s->product_count; i++)
        if (s->products[i].expert)
            cost_products(cost, &s->products[i], s->products[i].each_block,
                          &work);
    for (int pass = 0; pass < COST_PASSES; pass++) {
        const double host = pass == COST_W ? 2 * experts
                                           : experts + expert_codes(cost);
        const double longer = host - spent_seconds(&work.pass[pass]);

        if (longer > 0) out->pass[pass].seconds[CAUSE_LAUNCH] += longer;
    }
}

/* Starts of kernels make the passes of a block longer. W also hands over the
 * gradient of each matrix. */
static void block_started(const struct cost *cost, struct passes *out)
{
    const struct habits *h = &habits_of[cost->layout->as];
    const struct shape *s = cost->shape;
    const bool in_turn = cost->layout->rows_straight;
    const double starts = expert_starts(cost);
    const double experts = in_turn ? 0 : starts;
    const double codes = in_turn ? 0 : expert_codes(cost);
    double behind = 0; /* the device is done before the host: in one pass, or
                        * in B and W that follow each other */
    const double sums = cost->layout->tensor > 1 ? s->joins : 0;
    const double kernels[COST_PASSES] = {
        h->kernels * s->block.instructions + sums,
        h->kernels * 1.5 * s->block.instructions + sums,
        h->kernels * s->block.product_kinds};

    if (in_turn) experts_in_turn(cost, starts, out);
    for (int pass = 0; pass < COST_PASSES; pass++) {
        double *launch = &out->pass[pass].seconds[CAUSE_LAUNCH];
        const double host = h->host * kernels[pass] +
                            (pass == COST_W ? 2 * experts : experts + codes);

        cost_started(cost, kernels[pass], &out->pass[pass]);
        *launch += kernels[pass] * h->gap;
        behind += host - spent_seconds(&out->pass[pass]);
        if (pass == COST_B && !layout_defers(cost->layout)) continue;
        if (behind > 0) *launch += behind;
        behind = 0;
    }
}

/* ---- products ---- */

double cost_element_bytes(const struct cost *cost)
{
    return cost->layout->bits == 32 ? 4 : 2;
}

double cost_peak(const struct cost *cost, int bits)
{
    const double *v = cost->machine->value;
    const bool four = v[M_PEAK_4] > 0 && cost->layout->four_bits;
    const double narrow = v[four ? M_PEAK_4 : M_PEAK_8];

    return cost_threads(cost) * (bits == 32   ? v[M_PEAK_32]
                                 : bits == 16 ? v[M_PEAK_16] : narrow);
}

void cost_product(const struct cost *cost, struct product_size size,
                  double times, enum cause cause, struct spent *out)
{
    const double *v = cost->machine->value;
    const double flops = 2 * size.m * size.n * size.k;
    const double bytes = cost_element_bytes(cost) *
                         (size.m * size.n + size.m * size.k +
                          size.n * size.k);
    bool exact;
    double rate = measured_product_rate(
        cost->machine, &size, cost->layout->bits, cost_threads(cost), &exact);
    double seconds;

    if (rate <= 0 && size.accumulator.bits > 0) { /* nobody measured them */
        size.accumulator = (struct accumulator){0};
        rate = measured_product_rate(cost->machine, &size, cost->layout->bits,
                                     cost_threads(cost), &exact);
        exact = false;
    }
    if (rate > 0) {
        seconds = flops / rate;
        if (!exact) out->guessed += times * seconds;
    } else {
        const double slow = 1 + v[M_GEMM_HALF] * (1 / size.m + 1 / size.n +
                                                  1 / size.k);

        seconds = larger(flops / (cost_peak(cost, cost->layout->bits) *
                                  v[M_GEMM]) * slow,
                         bytes / (v[M_MEMORY_RATE] * v[M_MEMORY]));
        if (cost->machine->mark[M_GEMM] == MARK_ASSUMED)
            out->guessed += times * seconds;
    }
    out->seconds[cause] += times * seconds;
    if (seconds < v[M_LAUNCH])
        out->seconds[CAUSE_LAUNCH] += times * (v[M_LAUNCH] - seconds);
}

void cost_moved(const struct cost *cost, double bytes, struct spent *out)
{
    const double *v = cost->machine->value;
    const double seconds = bytes / (v[M_MEMORY_RATE] * v[M_MEMORY] *
                                    cost_threads(cost));

    out->seconds[CAUSE_MEMORY] += seconds;
    if (cost->machine->mark[M_MEMORY] == MARK_ASSUMED)
        out->guessed += seconds;
    if (seconds < v[M_LAUNCH])
        out->seconds[CAUSE_LAUNCH] += v[M_LAUNCH] - seconds;
}

void cost_worked(const struct cost *cost, const struct worked *worked,
                 struct spent *out)
{
    const double rate =
        measured_work_rate(cost->machine, worked->work, worked->rows,
                           worked->width, cost->layout->bits,
                           cost_threads(cost));

    if (rate <= 0) {
        cost_moved(cost, worked->bytes, out);
        return;
    }
    out->seconds[CAUSE_MEMORY] += worked->bytes / rate;
    if (measured_work_is_guess(cost->machine, worked->work, worked->rows,
                               worked->width, cost->layout->bits,
                               cost_threads(cost)))
        out->guessed += worked->bytes / rate;
}

/* ---- a block ---- */

double cost_tokens(const struct cost *cost)
{
    return (double)cost->layout->micro_batch *
           (double)cost->shape->sequence / cost->layout->context;
}

/* Bytes that are read and written where inputs of a product of 8 bits become
 * narrow; their scales come from the operation before. Programs without kept
 * codes make both inputs of each product. Others write rows and gradients of
 * outputs once, as they are and transposed (half of the rows by the norm before
 * them, which has read them), and weights once in a step. */
static double narrowed(const struct cost *cost, int pass,
                       struct product_size size)
{
    const double left = size.m * size.k, right = size.n * size.k;

    if (cost->layout->bits != 8) return 0;
    if (!habits_of[cost->layout->as].codes_kept) return 3 * (left + right);
    if (pass == COST_F)
        return 3 * left + 4 * right / cost->layout->microbatches;
    return pass == COST_B ? 4 * left : 0;
}

/* Bytes of sums of gradients over micro-batches that a product reads and
 * writes. */
static double summed(const struct cost *cost, int pass,
                     struct product_size size)
{
    return pass == COST_W && habits_of[cost->layout->as].sums_fused &&
                   cost->layout->microbatches > 1 && cost->layout->bits < 32
               ? 2 * habits_of[cost->layout->as].gradient_bytes * size.m *
                     size.n : 0;
}

/* `times` products with what they need beside them. Sums are read and written
 * while the product computes. */
static void one_product(const struct cost *cost, int pass,
                        struct product_size size, double times,
                        struct spent *out)
{
    const double *v = cost->machine->value;
    const double rate = v[M_MEMORY_RATE] * v[M_MEMORY];
    struct spent product = {.guessed = 0};
    double moved;

    cost_product(cost, size, 1, CAUSE_PRODUCT, &product);
    moved = (summed(cost, pass, size) +
             cost_element_bytes(cost) * (size.m * size.k + size.n * size.k)) /
                rate -
            spent_seconds(&product);
    if (summed(cost, pass, size) > 0 && moved > 0)
        product.seconds[CAUSE_MEMORY] += moved;
    product.seconds[CAUSE_MEMORY] += narrowed(cost, pass, size) / rate;
    spent_add(out, &product, times);
}

void cost_products(const struct cost *cost, const struct shape_product *p,
                   double times, struct passes *out)
{
    const struct expert_ranks experts = layout_experts(cost->layout);
    const double m = cost_tokens(cost);
    const double t = p->whole    ? 1
                     : p->expert ? experts.cut : cost->layout->tensor;
    const double n = (double)p->outputs / (p->split_outputs ? t : 1);
    const double k = (double)p->inputs / (p->split_outputs ? 1 : t);
    /* Ranks that divide the experts send each other their tokens. */
    const double e = p->expert ? experts.places : 1;
    const double seen = m * p->tokens * (p->expert ? experts.sources : 1);
    /* Each tensor rank takes its own tokens where all have the matrix. */
    const double own = p->whole && cost->layout->sequence_parallel
                           ? seen / cost->layout->tensor : seen;
    const double rows = own < 1 ? 1 : own;
    const struct product_size sizes[COST_PASSES] = {
        {rows, n, k, PRODUCT_NT, ACCUMULATOR_NONE},
        {rows, k, n, PRODUCT_NN, ACCUMULATOR_NONE},
        {n, k, rows, PRODUCT_TN, ACCUMULATOR_NONE}};

    for (int pass = 0; pass < (p->frozen ? COST_W : COST_PASSES); pass++)
        one_product(cost, pass, sizes[pass], times / e, &out->pass[pass]);
    cost_recipe(cost, &(struct recipe_products){p, sizes, times / e}, out);
}

static void block_products(const struct cost *cost, struct passes *out)
{
    const struct shape *s = cost->shape;

    for (int i = 0; i < s->product_count; i++)
        cost_products(cost, &s->products[i], s->products[i].each_block, out);
}

/* The share of sums over tensor ranks that nothing hides. Pieces of products
 * run beside parts of messages; Megatron hides only those of B, under the
 * gradients of weights, and where ranks divide tokens only half of them. */
static double exposed_share(const struct cost *cost, int pass, double seconds,
                            const struct passes *block)
{
    const struct layout *l = cost->layout;
    const double beside = block->pass[COST_W].seconds[CAUSE_PRODUCT];
    double hidden = seconds * (l->sequence_parallel ? 0.5 : 1);

    if (!l->overlap_tensor || seconds <= 0) return 1;
    if (!habits_of[l->as].scores) return 0.35;
    if (pass == COST_F) return 1;
    if (hidden > beside) hidden = beside;
    return 1 - hidden / seconds;
}

/* Lockstep's tensor ranks divide tokens between products. What B reads of the
 * others is gathered again, unless F is made again anyway. Sums are float32
 * (decision 0014). Those of experts are of every row apart: a token has one of
 * each choice, and they are added in its own order. */
static void own_tensor(const struct cost *cost, struct passes *out)
{
    const struct layout *l = cost->layout;
    const struct shape *s = cost->shape;
    const struct group_shape group = group_of(l, CAUSE_TENSOR);
    const double elements = cost_tokens(cost) * (double)s->width;
    const double bytes = elements * cost_element_bytes(cost);
    const double mixed = s->expert_blocks;
    const double dense = s->joins - mixed;
    const double cut = layout_experts(l).folded ? 0 : mixed;
    double guessed = 0;
    const double gather = cost_collective(cost, COLLECTIVE_ALL_GATHER, group,
                                          bytes, &guessed);
    const double add = cost_collective(cost, COLLECTIVE_REDUCE_SCATTER, group,
                                       4 * elements, &guessed);
    const double rows_gather = cost_collective(cost, COLLECTIVE_ALL_GATHER,
                                               group, s->choices * bytes,
                                               &guessed);
    const double rows_add = cost_collective(cost, COLLECTIVE_REDUCE_SCATTER,
                                            group, 4 * s->choices * elements,
                                            &guessed);
    const double again = l->recompute == RECOMPUTE_BLOCK ? 0 : dense + cut;
    const double seconds[] = {
        [COST_F] = dense * (gather + add) + cut * (gather + rows_add),
        [COST_B] = dense * (gather + add) + cut * (rows_gather + rows_add) +
                   again * gather};

    for (int pass = COST_F; pass <= COST_B; pass++) {
        const double share = l->overlap_tensor ? 0.35 : 1;

        out->pass[pass].seconds[CAUSE_TENSOR] += share * seconds[pass];
        if (guessed > 0) out->pass[pass].guessed += share * seconds[pass];
    }
}

/* The sum with which a block ends. `f`: its first pass. Others have a gather
 * and a sum for each join, the sum longer where gathers are of codes. */
static double last_sum(const struct cost *cost, const struct spent *f)
{
    const struct layout *l = cost->layout;
    const bool codes = l->bits == 8 && habits_of[l->as].codes_gathered;
    double guessed = 0;

    if (l->tensor == 1 || cost->shape->joins <= 0) return 0;
    if (l->as != AS_LOCKSTEP)
        return f->seconds[CAUSE_TENSOR] * cost->shape->last /
               cost->shape->joins * (codes ? 2.0 / 3 : 0.5);
    return cost->shape->last * (l->overlap_tensor ? 0.35 : 1) *
           cost_collective(cost, COLLECTIVE_REDUCE_SCATTER,
                           group_of(l, CAUSE_TENSOR),
                           4 * cost_tokens(cost) * (double)cost->shape->width,
                           &guessed);
}

/* Sums over tensor ranks: all-reduce, or its halves where they divide
 * tokens. */
static void block_tensor(const struct cost *cost, struct passes *out)
{
    const struct layout *l = cost->layout;
    const double bytes = cost_tokens(cost) * (double)cost->shape->width *
                         cost_element_bytes(cost);
    const struct group_shape group = group_of(l, CAUSE_TENSOR);
    const double joins = cost->shape->joins -
                         (layout_experts(l).folded ? cost->shape->expert_blocks
                                                   : 0);
    double guessed = 0, seconds;

    if (l->tensor == 1) return;
    if (l->as == AS_LOCKSTEP) {
        own_tensor(cost, out);
        return;
    }
    seconds = cost_collective(cost, COLLECTIVE_ALL_REDUCE, group, bytes,
                              &guessed) * joins;
    guessed *= joins;
    if (l->bits == 8 && habits_of[l->as].codes_gathered) seconds *= 0.75;
    for (int pass = COST_F; pass <= COST_B; pass++) {
        const double share = exposed_share(cost, pass, seconds, out);

        out->pass[pass].seconds[CAUSE_TENSOR] += share * seconds;
        out->pass[pass].guessed += share * guessed;
    }
}

struct tensors { double elements, count; }; /* elements: of all */

/* Sums of `tensors` of these elements in all. */
static double sums_of(const struct cost *cost, double elements, double tensors,
                      double *guessed)
{
    const struct group_shape group = group_of(cost->layout, CAUSE_CONTEXT);

    if (tensors < 1) return 0;
    return tensors * cost_collective(cost, COLLECTIVE_ALL_REDUCE, group,
                                     4 * elements / tensors, guessed);
}

/* Lockstep's context ranks add up each leaf of the batch, tensor by tensor,
 * when a micro-batch completes it: of experts, the leaves of every rank that
 * sends them tokens. */
static void context_sums(const struct cost *cost, struct tensors dense,
                         struct tensors experts, struct spent *out)
{
    const struct layout *l = cost->layout;
    double guessed = 0, seconds;

    if (l->as != AS_LOCKSTEP || l->context == 1) return;
    seconds = sums_of(cost, dense.elements, dense.count, &guessed);
    if (!l->expert_context)
        seconds += layout_experts(l).sources *
                   sums_of(cost, experts.elements, experts.count, &guessed);
    seconds *= layout_leaves_each(l, cost->shape);
    out->seconds[CAUSE_CONTEXT] += seconds;
    if (guessed > 0) out->guessed += seconds;
}

#define BACKWARD_ATTENDS 2.5 /* times that attention takes longer in B */

/* Keys and values of the other context ranks. `attends`: attention in F. */
static void block_context(const struct cost *cost, double attends,
                          struct passes *out)
{
    const struct layout *l = cost->layout;
    const struct shape *s = cost->shape;
    const double kv = s->kv_heads < l->tensor ? 1
                                              : (double)s->kv_heads / l->tensor;
    const double bytes = 2 * kv * s->head_width * cost_element_bytes(cost) *
                         (double)l->micro_batch * (double)s->sequence;

    if (l->context == 1) return;
    context_sums(cost,
                 (struct tensors){layout_block_learns(l, s).dense,
                                  s->block.tensors - s->in_experts.tensors},
                 (struct tensors){layout_block_learns(l, s).experts,
                                  s->in_experts.tensors /
                                      layout_experts(l).places},
                 &out->pass[COST_W]);
    if (habits_of[l->as].ring) {
        cost_ring(cost, out);
        return;
    }
    cost_keys(cost, bytes, (const double[]){attends,
                                            BACKWARD_ATTENDS * attends}, out);
}

/* torchtitan makes every second product again and all that is no product.
 * `before`: F without attention. */
static void recompute_parts(const struct spent *before, struct spent *out)
{
    struct spent again = *before;

    again.seconds[CAUSE_PRODUCT] *= 0.5;
    again.seconds[CAUSE_TENSOR] = again.seconds[CAUSE_CONTEXT] = 0;
    again.guessed = 0;
    spent_add(out, &again, 1);
}

/* Norms, and the product of a gate: what they read and write. */
static void recompute_moved(const struct cost *cost, struct spent *out)
{
    const struct shape *s = cost->shape;
    const struct layout *l = cost->layout;
    const double elements =
        4 * (double)s->width / (l->sequence_parallel ? l->tensor : 1) +
        3 * (double)s->feed_forward / l->tensor;

    cost_moved(cost, cost_tokens(cost) * elements * cost_element_bytes(cost),
               out);
}

/* Products of gate and up that are not made again, of those of a block: their
 * codes are there. */
static double kept_for_glu(const struct cost *cost,
                           const struct shape_product *p)
{
    const struct precision_use *use = &cost->shape->precision;
    const struct moe *moe = &cost->shape->model.moe;
    const bool feeds = p->outputs == 2 * model_inner(&cost->shape->model) ||
                       (moe->experts > 0 &&
                        (p->outputs == 2 * moe->width ||
                         p->outputs == 2 * moe->shared_width));

    return feeds && use->on && use->recipe.glu.format != FORMAT_BF16
               ? p->each_block * (use->end - use->first) / cost->shape->layers
               : 0;
}

/* F once more. Lockstep leaves out what nothing reads: the products with which
 * blocks end, and their sums over tensor ranks. */
static void recompute_block(const struct cost *cost, struct passes *out)
{
    const struct shape *s = cost->shape;
    const struct spent again = out->pass[COST_F];
    struct passes last = {0};

    spent_add(&out->pass[COST_B], &again, 1);
    if (cost->layout->as != AS_LOCKSTEP &&
        !habits_of[cost->layout->as].ends_early)
        return;
    for (int i = 0; i < s->product_count; i++)
        cost_products(cost, &s->products[i],
                      s->products[i].last +
                          kept_for_glu(cost, &s->products[i]), &last);
    last.pass[COST_F].seconds[CAUSE_TENSOR] = last_sum(cost, &again);
    if (habits_of[cost->layout->as].ends_early) /* rows come back for nothing */
        last.pass[COST_F].seconds[CAUSE_EXPERT] =
            again.seconds[CAUSE_EXPERT] / 2;
    spent_add(&out->pass[COST_B], &last.pass[COST_F], -1);
}

static double slower_attention(const struct layout *l, int pass)
{
    const double times = habits_of[l->as].attention[pass];

    return times > 0 ? times : 1;
}

void cost_block(const struct cost *cost, struct passes *out)
{
    const struct layout *l = cost->layout;
    const struct block_learns learns = layout_block_learns(l, cost->shape);
    struct spent attends = {0}, before;

    *out = (struct passes){0};
    block_products(cost, out);
    cost_elementwise(cost, out);
    block_tensor(cost, out);
    cost_experts(cost, out);
    cost_attention(cost, 1, &attends);
    block_context(cost, spent_seconds(&attends), out);
    before = out->pass[COST_F];
    spent_add(&out->pass[COST_F], &attends, slower_attention(l, COST_F));
    spent_add(&out->pass[COST_B], &attends,
              cost_writes_scores(cost) ? 2
                                       : BACKWARD_ATTENDS *
                                             slower_attention(l, COST_B));
    block_started(cost, out);
    if (l->recompute == RECOMPUTE_BLOCK) {
        recompute_block(cost, out);
    } else if (l->recompute == RECOMPUTE_SELECTIVE &&
               (habits_of[l->as].masks || l->as == AS_LOCKSTEP)) {
        if (l->again_moved) recompute_moved(cost, &out->pass[COST_B]);
        else spent_add(&out->pass[COST_B], &attends, 1);
    } else if (l->recompute == RECOMPUTE_SELECTIVE) {
        recompute_parts(&before, &out->pass[COST_B]);
    }
    if (l->again_latent) cost_latents(cost, &out->pass[COST_B]);
    cost_glu(cost, out);
    /* Sums of gradients over micro-batches are float32. */
    if (l->microbatches > 1 && l->bits < 32 && l->as != AS_LOCKSTEP &&
        !habits_of[l->as].sums_fused)
        cost_moved(cost, (4 + habits_of[l->as].gradient_bytes) *
                             (learns.dense + learns.experts),
                   &out->pass[COST_W]);
    cost_copies(cost, out);
}

void cost_embedding(const struct cost *cost, struct passes *out)
{
    const double bytes = cost_tokens(cost) * (double)cost->shape->width *
                         cost_element_bytes(cost);
    double guessed = 0;

    *out = (struct passes){0};
    cost_moved(cost, 2 * bytes, &out->pass[COST_F]);
    if (cost->shape->lora.all <= 0) {
        cost_moved(cost, 3 * bytes, &out->pass[COST_W]);
        context_sums(cost,
                     (struct tensors){cost->shape->outside.embedding /
                                      cost->layout->tensor, 1},
                     (struct tensors){0, 0}, &out->pass[COST_W]);
    }
    if (cost->layout->tensor == 1) return;
    out->pass[COST_F].seconds[CAUSE_TENSOR] =
        cost_collective(cost, COLLECTIVE_ALL_REDUCE,
                        group_of(cost->layout, CAUSE_TENSOR), bytes, &guessed);
    out->pass[COST_F].guessed += guessed;
}

/* Lockstep makes logits and losses in B, and once more in W where that does not
 * follow at once (nn/head.c). */
static void own_head(const struct cost *cost, bool frozen, struct passes *out)
{
    const struct spent made = out->pass[COST_F];

    out->pass[COST_F] = (struct spent){.guessed = 0};
    spent_add(&out->pass[COST_B], &made, 1);
    if (layout_defers(cost->layout) && !frozen)
        spent_add(&out->pass[COST_W], &made, 1);
}

void cost_head(const struct cost *cost, struct passes *out)
{
    const double m = cost_tokens(cost), k = (double)cost->shape->width;
    const double n = (double)cost->shape->vocab / cost->layout->tensor;
    const bool whole = habits_of[cost->layout->as].logits_whole;
    const double seen = whole ? (double)cost->shape->vocab : n;
    const struct product_size sizes[COST_PASSES] = {
        {m, n, k, PRODUCT_NT, ACCUMULATOR_NONE},
        {m, k, n, PRODUCT_NN, ACCUMULATOR_NONE},
        {n, k, m, PRODUCT_TN, ACCUMULATOR_NONE}};
    struct layout wide = *cost->layout;
    const struct cost head = {cost->machine, cost->shape, &wide};
    const bool frozen = cost->shape->lora.all > 0;
    double guessed = 0;

    if (wide.bits < 16) wide.bits = 16; /* recipes leave it out */
    *out = (struct passes){0};
    for (int pass = 0; pass < (frozen ? COST_W : COST_PASSES); pass++)
        cost_product(&head, sizes[pass], 1, CAUSE_PRODUCT, &out->pass[pass]);
    cost_moved(cost, 12 * m * seen, &out->pass[COST_F]); /* logits, loss */
    cost_moved(cost, 8 * m * seen, &out->pass[COST_B]);
    if (cost->layout->as == AS_LOCKSTEP) own_head(cost, frozen, out);
    if (!frozen)
        context_sums(cost, (struct tensors){k * n, 1}, (struct tensors){0, 0},
                     &out->pass[COST_W]);
    if (cost->layout->tensor == 1) return;
    out->pass[COST_B].seconds[CAUSE_TENSOR] =
        cost_collective(cost, COLLECTIVE_ALL_REDUCE,
                        group_of(cost->layout, CAUSE_TENSOR),
                        m * k * cost_element_bytes(cost), &guessed);
    out->pass[COST_B].guessed += guessed;
    if (!whole) return;
    guessed = 0;
    out->pass[COST_F].seconds[CAUSE_TENSOR] =
        cost_collective(cost, COLLECTIVE_ALL_GATHER,
                        group_of(cost->layout, CAUSE_TENSOR),
                        m * seen * cost_element_bytes(cost), &guessed);
    out->pass[COST_F].guessed += guessed;
}

double cost_border_bytes(const struct cost *cost)
{
    const struct layout *l = cost->layout;
    const double bytes = cost_tokens(cost) * (double)cost->shape->width *
                         cost_element_bytes(cost);

    return l->sequence_parallel || habits_of[l->as].border_divided
               ? bytes / l->tensor : bytes;
}
