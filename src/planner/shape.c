/* SPDX-License-Identifier: Apache-2.0 */
/* shape.c - the sizes of a model, counted in its program. */
#include "planner/shape.h"

#include <string.h>

/* `each` matrices, of which each sees `tokens` of the tokens. */
static struct shape_product *
count_product(struct shape *shape, const struct param *param,
                          double each, double tokens)
{
    const bool expert = tokens < 1;
    const struct param_spec *spec = &param->spec;
    const bool outputs = spec->split_rows == AXIS_TENSOR;
    const bool whole = !outputs && spec->split_cols != AXIS_TENSOR;
    const bool frozen = shape->model.lora.rank > 0 && !spec->adapter;
    struct shape_product *p;
    int i = 0;

    for (; i < shape->product_count; i++) {
        p = &shape->products[i];
        if (p->outputs == spec->rows && p->inputs == spec->cols &&
            p->split_outputs == outputs && p->whole == whole &&
            p->tokens == tokens && p->expert == expert && p->frozen == frozen)
            break;
    }
    if (i == SHAPE_PRODUCTS) i--;
    p = &shape->products[i];
    if (i == shape->product_count) {
        *p = (struct shape_product){
            .outputs = spec->rows, .inputs = spec->cols,
            .split_outputs = outputs, .whole = whole, .expert = expert,
            .frozen = frozen, .tokens = tokens};
        shape->product_count++;
    }
    p->each_block += each;
    return p;
}

/* Whether the block ends with it: nothing reads in a backward pass what it
 * makes, but for the sum with the residual, which the next block has. */
static bool is_last(const struct program *p, int i)
{
    return i + 1 == p->step_count || p->steps[i + 1].block != p->steps[i].block;
}

/* Torch that is not compiled moves so many elements of 16 bits for one that a
 * step makes: each operation of torchtitan of 2024-08 is a kernel
 * (models/norms.py, models/llama/model.py). RMSNorm: to float32,
 * square, mean, product, back, weight. RoPE: to float32, complex product, back.
 * Gates: silu, product. Sums: of both. */
static void count_eager(struct shape *shape, const struct step *step,
                        const struct program *p, double elements)
{
    static const struct { double f, b; } rms = {18, 46}, layer = {2, 5},
        turned = {10, 10}, gate = {5, 9}, curve = {2, 3}, sum = {3, 3};
    const enum layer_kind kind = step->layer->kind;
    const double width = (double)shape->width;
    struct moved_elements *f = &shape->eager[0], *b = &shape->eager[1];

    if (kind == LAYER_NORM) {
        /* It keeps no mean. Norms of heads keep nothing. */
        const bool root = step->aux >= 0 &&
                          p->slots[step->aux].width == 1;

        f->whole += elements / 2 * (root ? rms.f : layer.f);
        b->whole += elements / 2 * (root ? rms.b : layer.b);
    } else if (kind == LAYER_ROPE) {
        f->split += elements / 2 * turned.f;
        b->split += elements / 2 * turned.b;
    } else if (kind == LAYER_ACTIVATION) {
        const double in = (double)p->slots[step->input].width;
        const double each = (double)p->slots[step->output].width;
        const double out = elements * each / (in + each);
        const bool gated = in > each;

        f->split += out * (gated ? gate.f : curve.f);
        b->split += out * (gated ? gate.b : curve.b);
        if (gated) b->whole += sum.b * width; /* of gate's and up's gradients */
    } else if (kind == LAYER_ATTENTION) {
        const double q = (double)shape->heads * shape->head_width;
        const double kv = (double)shape->kv_heads * shape->head_width;
        const double again = shape->kv_heads < shape->heads ? 2 * (q + kv) : 0;

        f->split += again; /* keys and values for all heads */
        b->split += again;
        b->whole += 2 * sum.b * width; /* of gradients by q, k and v */
    } else if (kind != LAYER_LINEAR && kind != LAYER_DOWN) {
        f->whole += 2 * elements;
        b->whole += 2 * 1.7 * elements;
    }
    if (step->left < 0) return;
    f->whole += sum.f * width;
    b->whole += sum.b * width;
}

/* Whether a product of the block reads what step `i` makes: one of an adapter,
 * or of a weight that is frozen beside them. */
static bool is_read(const struct program *p, int i, bool adapter)
{
    const struct step *from = &p->steps[i];

    for (int j = i + 1;
         j < p->step_count && p->steps[j].block == from->block; j++) {
        const struct step *step = &p->steps[j];

        if (step->input == from->output && step->param[0] >= 0 &&
            p->params.items[step->param[0]].spec.adapter == adapter)
            return true;
    }
    return false;
}

static void count_unread(struct shape *shape, const struct program *p, int i)
{
    const enum layer_kind kind = p->steps[i].layer->kind;

    if (shape->model.lora.rank <= 0 || is_read(p, i, true) ||
        !is_read(p, i, false))
        return;
    shape->unread.norms += kind == LAYER_NORM;
    shape->unread.gates += kind == LAYER_ACTIVATION;
    shape->unread.attention += kind == LAYER_ATTENTION;
}

static void count_moved(struct shape *shape, const struct step *step,
                        const struct program *p)
{
    const struct step_cost cost = step->layer->cost(step, p);
    const double elements = cost.bytes_moved / dtype_bytes(p->dtype) /
                            (double)p->size.tokens;
    const enum layer_kind kind = step->layer->kind;

    if (kind == LAYER_ADAPTER) { /* its weights are small */
        const bool cut = p->params.items[step->param[0]].spec.split_rows ==
                         AXIS_TENSOR;
        const double in = (double)p->slots[step->input].width;
        const double out = (double)p->slots[step->output].width;

        shape->moved.whole += in;
        *(cut ? &shape->moved.split : &shape->moved.whole) += out;
        for (int pass = 0; pass < 2; pass++)
            shape->eager[pass].whole += 2 * (in + out);
        return;
    }
    if ((kind == LAYER_EXPERTS || kind == LAYER_ROUTER) &&
        step->param[0] >= 0)
        return;
    count_eager(shape, step, p, elements);
    if (step->output >= 0 && p->slots[step->output].latent &&
        kind == LAYER_ROPE)
        shape->latent_moved += elements;
    if (kind == LAYER_ACTIVATION || kind == LAYER_ROPE)
        shape->moved.split += elements;
    else if (kind != LAYER_LINEAR && kind != LAYER_DOWN &&
             kind != LAYER_ATTENTION)
        shape->moved.whole += elements;
    if (step->left >= 0) shape->moved.whole += 2 * (double)shape->width;
    if (kind == LAYER_ACTIVATION && step->input >= 0 && step->output >= 0)
        shape->gated = p->slots[step->input].width >
                       p->slots[step->output].width;
}

/* Keys of a causal query, mean over the positions of a sequence. */
static double mean_keys(int64_t sequence, const struct step *step)
{
    const double window = (double)step->set.attention.window;
    const int64_t chunk = step->set.attention.chunk;
    const double all = (double)sequence;

    if (chunk > 0 && chunk < sequence) {
        const double rest = (double)(sequence % chunk);
        const double whole = (double)(sequence / chunk) * (double)chunk;

        return (whole * (double)(chunk + 1) + rest * (rest + 1)) / (2 * all);
    }
    if (window <= 0 || window >= all) return (all + 1) / 2;
    return window - window * (window - 1) / (2 * all);
}

/* Tensor ranks divide its inputs, so they add their products. All of them have
 * the router. */
static bool is_joined(const struct step *step, const struct program *p)
{
    const enum layer_kind kind = step->layer->kind;

    return (kind == LAYER_LINEAR || kind == LAYER_DOWN ||
            kind == LAYER_EXPERTS) && step->param[0] >= 0 &&
           p->params.items[step->param[0]].spec.split_cols == AXIS_TENSOR;
}

/* Elements of the weights that a token meets in a product of a block. */
static double work_of(const struct step *step, const struct program *p)
{
    const enum layer_kind kind = step->layer->kind;
    const struct param_spec *spec;

    if (step->param[0] < 0 ||
        (kind != LAYER_LINEAR && kind != LAYER_DOWN && kind != LAYER_ROUTER &&
         kind != LAYER_EXPERTS))
        return 0;
    spec = &p->params.items[step->param[0]].spec;
    return (double)spec->rows * (double)spec->cols *
           (kind == LAYER_EXPERTS ? step->set.experts.form.choices : 1);
}

static void note_local(struct shape *shape, const struct step *step,
                       const struct program *p)
{
    const enum layer_kind kind = step->layer->kind;
    double *most = step->block >= shape->layers ? &shape->mtp.local
                                                : &shape->block.local;

    if ((kind == LAYER_DOWN || kind == LAYER_ROUTER) && step->param[0] >= 0 &&
        work_of(step, p) > *most)
        *most = work_of(step, p);
}

static void count_steps(struct shape *shape, const struct program *p,
                        int64_t sequence)
{
    int attentions = 0;
    bool routed = false; /* in this block, already */

    for (int i = 0; i < p->step_count; i++) {
        const struct step *step = &p->steps[i];
        const enum layer_kind kind = step->layer->kind;

        if (step->block < 0) continue;
        note_local(shape, step, p);
        if (step->block >= shape->layers) {
            shape->mtp.blocks += work_of(step, p);
            continue;
        }
        if (i > 0 && p->steps[i - 1].block != step->block) routed = false;
        routed = routed || kind == LAYER_ROUTER;
        shape->block.instructions += 1;
        if (step->param[0] >= 0 && (kind == LAYER_LINEAR ||
                                    kind == LAYER_DOWN ||
                                    kind == LAYER_ROUTER ||
                                    kind == LAYER_EXPERTS))
            shape->block.product_kinds += 1;
        if (kind == LAYER_LINEAR || kind == LAYER_DOWN ||
            (kind == LAYER_ROUTER && step->param[0] >= 0)) {
            struct shape_product *product =
                count_product(shape, &p->params.items[step->param[0]], 1, 1);

            product->few += kind == LAYER_LINEAR;
            product->kept += kind == LAYER_LINEAR && p->params
                                 .items[step->param[0]].spec.after_attention;
            product->beside += routed && kind != LAYER_ROUTER;
            product->latent += p->slots[step->output].latent;
            product->last += is_last(p, i);
            shape->last += is_last(p, i);
        }
        shape->joins += is_joined(step, p);
        if (kind == LAYER_EXPERTS && step->param[0] >= 0) {
            const struct param *weight = &p->params.items[step->param[0]];

            shape->choices = step->set.experts.form.choices;
            shape->in_experts.tensors += step->each;
            shape->in_experts.parameters += (double)step->each *
                                        (double)weight->spec.rows *
                                        (double)weight->spec.cols;
            shape->expert_blocks += weight->spec.split_rows != AXIS_TENSOR;
            count_product(shape, weight, step->each,
                          (double)shape->choices / step->each)->few +=
                step->each;
        }
        if (kind == LAYER_ATTENTION) {
            shape->keys += mean_keys(sequence, step);
            attentions++;
        }
        count_moved(shape, step, p);
        count_unread(shape, p, i);
    }
    if (attentions > 0) shape->keys /= attentions;
}

static bool is_whole(const struct param *param)
{
    return param->spec.split_rows != AXIS_TENSOR &&
           param->spec.split_cols != AXIS_TENSOR;
}

static void count_parameters(struct shape *shape, const struct program *p)
{
    for (int i = 0; i < p->params.count; i++) {
        const struct param *param = &p->params.items[i];
        const double elements = (double)param->elements;
        const bool whole = is_whole(param);

        shape->parameters += elements;
        if (param->layer < 0) continue;
        if (param->layer >= shape->layers) {
            shape->mtp.parameters += elements;
            if (whole) shape->mtp.vectors += elements;
            continue;
        }
        if (blocks_has(&shape->model.moe.dense, param->layer) &&
            shape->model.moe.experts > 0)
            shape->block.plain += elements;
        shape->block.parameters += elements;
        shape->block.tensors += 1;
        if (whole) shape->block.vectors += elements;
        if (!param->spec.adapter) continue;
        shape->lora.all += elements;
        if (param->number_at > 0) shape->lora.experts += elements;
        if (whole && param->number_at > 0)
            shape->lora.expert_vectors += elements;
        else if (whole)
            shape->lora.vectors += elements;
    }
    for (int i = 0; i < p->step_count; i++) {
        const struct step *step = &p->steps[i];

        if (step->block >= 0 || step->param[0] < 0) continue;
        const struct param *param = &p->params.items[step->param[0]];
        const double elements = (double)param->elements;

        if (step->layer->kind == LAYER_EMBEDDING && is_whole(param))
            shape->outside.vectors += elements;
        if (step->layer->kind == LAYER_EMBEDDING)
            shape->outside.embedding += elements;
        else if (step->layer->kind == LAYER_HEAD && !shape->tied)
            shape->outside.head += elements;
    }
}

/* Products of the blocks, for one token; `passes` times each, one less where no
 * gradient of the weight is made. */
static double block_work(const struct shape *shape, double passes)
{
    double work = 0;

    for (int i = 0; i < shape->product_count; i++) {
        const struct shape_product *p = &shape->products[i];

        work += (passes - (p->frozen && passes > 1)) * p->each_block *
                p->tokens * (double)p->outputs * (double)p->inputs;
    }
    return work;
}

/* Before the means are made: sums of all blocks. */
static void count_later(struct shape *shape, const struct program *p)
{
    if (shape->mtp.blocks > 0)
        shape->mtp.blocks *= shape->layers / block_work(shape, 1);
    for (int i = 0; i < p->step_count; i++) {
        const struct step *step = &p->steps[i];

        if (step->block >= shape->layers && step->param[0] >= 0 &&
            step->layer->kind == LAYER_EXPERTS)
            shape->mtp.experts +=
                (double)step->each *
                (double)p->params.items[step->param[0]].elements;
    }
}

static void divide_product(struct shape_product *p, double blocks)
{
    p->each_block /= blocks;
    p->few /= blocks;
    p->kept /= blocks;
    p->latent /= blocks;
    p->last /= blocks;
    p->beside /= blocks;
}

status shape_of(struct shape *shape, const struct model *model,
                int64_t sequence)
{
    struct program program = {0};
    double blocks;
    status result;

    *shape = (struct shape){
        .model = *model,
        .facts = {.length = sequence, .heads = model->heads,
                  .kv_heads = model->kv_heads,
                  .head_width = model->head_width,
                  .feed_forward = model_inner(model),
                  .experts = model->moe.experts,
                  .groups = model->moe.groups},
        .regular = {.rows_bound = 2, .balance = 0.01},
        .mtp.depth = model->mtp_depth,
        .layers = model->layers, .heads = model->heads,
        .kv_heads = model->kv_heads, .head_width = model->head_width,
        .value_width = model->mla.rank > 0 ? (int)model->mla.value
                                           : model->head_width,
        .width = model->width, .feed_forward = model->feed_forward,
        .vocab = model->vocab, .sequence = sequence, .tied = model->tied,
        .experts = model->moe.experts,
        .biased = model->biases.mlp || model->kind->biases.mlp};
    if (model->moe.experts > 0) /* the width that a token goes through */
        shape->feed_forward = model->moe.top_k * model->moe.width +
                              model->moe.shared_width;
    blocks = model->layers;
    TRY_GOTO(done, result, model_build_whole(&program, model));
    count_steps(shape, &program, sequence);
    count_parameters(shape, &program);
    count_later(shape, &program);
    for (int i = 0; i < shape->product_count; i++)
        divide_product(&shape->products[i], blocks);
    shape->last /= blocks;
    shape->joins /= blocks;
    shape->moved.whole /= blocks;
    shape->moved.split /= blocks;
    shape->latent_moved /= blocks;
    for (int pass = 0; pass < 2; pass++) {
        shape->eager[pass].whole /= blocks;
        shape->eager[pass].split /= blocks;
    }
    shape->unread.norms /= blocks;
    shape->unread.gates /= blocks;
    shape->unread.attention /= blocks;
    shape->block.instructions /= blocks;
    shape->block.product_kinds /= blocks;
    shape->block.parameters /= blocks;
    shape->block.vectors /= blocks;
    shape->lora.all /= blocks;
    shape->lora.experts /= blocks;
    shape->lora.vectors /= blocks;
    shape->lora.expert_vectors /= blocks;
    shape->block.tensors /= blocks;
    shape->in_experts.tensors /= blocks;
    shape->in_experts.parameters /= blocks;
    shape->expert_blocks /= blocks;
    if (shape->block.plain > 0)
        shape->block.plain /= blocks * (1 - shape->expert_blocks);
done:
    program_free(&program);
    return result;
}

int shape_head_passes(const struct shape *shape)
{
    return shape->lora.all > 0 ? 2 : 3;
}

static double flops(const struct shape *shape, double keys)
{
    const double blocks = shape->layers + shape->mtp.blocks;
    const double head = (double)shape->width * (double)shape->vocab *
                        shape_head_passes(shape);

    return 2 * (head * (1 + shape->mtp.depth) +
                blocks * block_work(shape, 3)) +
           6 * blocks * shape->heads *
               (shape->head_width + shape->value_width) * keys;
}

double shape_flops_causal(const struct shape *shape)
{
    return flops(shape, shape->keys);
}

double shape_flops_full(const struct shape *shape)
{
    return flops(shape, (double)shape->sequence);
}

double shape_flops_again(const struct shape *shape)
{
    const double blocks = shape->layers + shape->mtp.blocks;

    return 2 * blocks * block_work(shape, 1) +
           2 * blocks * shape->heads *
               (shape->head_width + shape->value_width) *
               (double)shape->sequence;
}

double shape_flops_latent(const struct shape *shape)
{
    double work = 0;

    for (int i = 0; i < shape->product_count; i++)
        work += shape->products[i].latent *
                (double)shape->products[i].outputs *
                (double)shape->products[i].inputs;
    return 2 * (shape->layers + shape->mtp.blocks) * work;
}

bool shape_has_codes(const struct shape *s)
{
    return s->precision.on && (s->precision.kept || s->gathers_codes);
}
