/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - rotary positions and causal attention over a fused slot of
 * queries, keys and values, [tokens, (heads + 2 kv_heads) head_width].
 * Source: Su et al. 2021, arXiv:2104.09864; Dao et al. 2022, arXiv:2205.14135
 * (tiles and online softmax); Ainslie et al. 2023, arXiv:2305.13245 (groups).
 *
 * In PROGRAM_GENERATE keys and values go into a cache, one per attention step,
 * and queries read them from there. */
#include "nn/context.h"
#include "nn/score_peaks.h"

#include <math.h>

/* [tokens, heads, head_width] from column `first` of a fused slot. */
static struct tensor heads_view(struct tensor fused, int64_t first, int heads,
                                int head_width)
{
    struct tensor view = {
        .data = (char *)fused.data + first * dtype_bytes(fused.dtype),
        .dtype = fused.dtype, .dimensions = 3,
        .shape = {fused.shape[0], heads, head_width},
        .stride = {fused.stride[0], head_width, 1}};

    return view;
}

static status rope_turn(const struct step *step, struct run *run,
                        struct tensor fused, bool backward)
{
    const int heads = step->set.rope.heads + step->set.rope.kv_heads;
    const int head_width = step->set.rope.head_width;
    const int table = step->set.rope.table;
    const int rotary = run->program->rope[table].rotary;

    return run->kernels->rope(
        run->stream, heads_view(fused, 0, heads, head_width),
        run->batch.positions,
        tensor_3d(run->rope[table], program_real(run->program),
                  run->program->size.context, rotary / 2, 2),
        rotary, backward);
}

static status rope_forward(const struct step *step, struct run *run)
{
    return rope_turn(step, run, run_slot(run, step->output), false);
}

static status rope_backward(const struct step *step, struct run *run)
{
    return rope_turn(step, run, run_gradient(run, step->output), true);
}

static struct step_cost rope_cost(const struct step *step,
                                  const struct program *p)
{
    const int64_t n = p->size.tokens * (step->set.rope.heads +
                                   step->set.rope.kv_heads) *
                      step->set.rope.head_width;

    return (struct step_cost){
        .flops = (double)(3 * n),
        .bytes_moved = (double)(2 * n * dtype_bytes(p->dtype))};
}

static const struct layer layer_rope = {
    .name = "rope", .kind = LAYER_ROPE, .forward = rope_forward,
    .backward_input = rope_backward, .cost = rope_cost, .in_place = true};

static int rope_table_find(struct program *p, const struct rope_table *table)
{
    for (int i = 0; i < p->rope_count; i++)
        if (p->rope[i].base == table->base &&
            p->rope[i].rotary == table->rotary &&
            p->rope[i].temper == table->temper &&
            p->rope[i].temper_floor == table->temper_floor &&
            rope_scaling_same(&p->rope[i].scaling, &table->scaling))
            return i;
    CHECK(p->rope_count < ROPE_TABLES_MAX);
    p->rope[p->rope_count] = *table;
    return p->rope_count++;
}

/* The number of `heads` that one rank has; 1 if there are fewer heads than
 * ranks. */
static int own_heads(const struct program *p, int heads)
{
    const int ranks = program_tensor_ranks(p);

    return heads > ranks ? heads / ranks : 1;
}

static int head_width_of(const struct program *p, slot qkv, int heads,
                         int kv_heads)
{
    return (int)(p->slots[qkv].width / (heads + 2 * kv_heads));
}

slot nn_rope_part(struct program *p, slot qkv, int heads, int kv_heads,
                  const struct rope_table *table)
{
    const int step = program_add_step(p, &layer_rope, qkv);

    if (p->error != OK) return -1;
    heads = own_heads(p, heads);
    kv_heads = own_heads(p, kv_heads);
    p->steps[step].output = qkv;
    p->steps[step].set.rope.heads = heads;
    p->steps[step].set.rope.kv_heads = kv_heads;
    p->steps[step].set.rope.head_width = head_width_of(p, qkv, heads,
                                                       kv_heads);
    p->steps[step].set.rope.table = rope_table_find(p, table);
    return qkv;
}

static const struct layer layer_temper = {
    .name = "temper", .kind = LAYER_ROPE, .forward = rope_forward,
    .backward_input = rope_backward, .cost = rope_cost, .in_place = true};

/* A turn of no angle, by a factor: of queries alone. */
slot nn_temper(struct program *p, slot qkv, int heads, int kv_heads,
               const struct rope_table *table)
{
    if (p->error != OK) return -1;
    const int step = p->step_count;

    qkv = nn_rope_part(p, qkv, heads, kv_heads, table);
    if (p->error != OK) return -1;
    p->steps[step].layer = &layer_temper;
    p->steps[step].set.rope.kv_heads = 0;
    return qkv;
}

slot nn_rope(struct program *p, slot qkv, int heads, int kv_heads,
             double base, const struct rope_scaling *scaling)
{
    struct rope_table table = {.base = base};

    if (p->error != OK) return -1;
    if (scaling != NULL) table.scaling = *scaling;
    table.rotary = head_width_of(p, qkv, own_heads(p, heads),
                                 own_heads(p, kv_heads));
    return nn_rope_part(p, qkv, heads, kv_heads, &table);
}

/* ---- attention ---- */

/* The dropout masks of a block; the layer's key is derived from the run's
 * key. */
static struct attention_dropout drop_of(const struct step *step,
                                        const struct run *run)
{
    const struct program *p = run->program;
    uint32_t words[4];

    if (p->regular.attention_dropout == 0 || run->gradients == NULL)
        return (struct attention_dropout){0};
    random_block(run->keys.attention, (uint64_t)step->block, 0, words);
    return (struct attention_dropout){
        .rate = p->regular.attention_dropout, .key = {{words[0], words[1]}},
        .sequence = (uint64_t)run->batch.sequence,
        .head = (int64_t)p->layout.place.at[AXIS_TENSOR] *
                step->set.attention.heads};
}

/* Everything but the gradients, from the slots of a training micro-batch. */
static struct attention describe(const struct step *step, struct run *run)
{
    const int heads = step->set.attention.heads;
    const int kv_heads = step->set.attention.kv_heads;
    const int width = step->set.attention.head_width;
    const struct program *p = run->program;
    const struct tensor qkv = run_slot(run, step->input);
    const struct tensor out = run_slot(run, step->output);

    return (struct attention){
        .q = heads_view(qkv, 0, heads, width),
        .k = heads_view(qkv, (int64_t)heads * width, kv_heads, width),
        .v = heads_view(qkv, (int64_t)(heads + kv_heads) * width, kv_heads,
                        width),
        .out = heads_view(out, 0, heads, width),
        .lse = run_slot(run, step->aux),
        .query_documents = run->batch.documents,
        .key_documents = run->batch.documents,
        .sequences = qkv.shape[0] / p->size.length,
        .queries = p->size.length, .keys = p->size.length, .heads = heads,
        .kv_heads = kv_heads, .head_width = width,
        .value_width = (int)step->set.attention.value,
        .leaves = (int)program_leaves(p).count,
        .tiles = run->kernels->product == PRODUCT_TILES,
        .scale = step->set.attention.scale,
        .softcap = step->set.attention.softcap,
        .window = step->set.attention.window,
        .chunk = step->set.attention.chunk,
        .drop = drop_of(step, run),
        .alibi = {step->set.attention.alibi,
                  (int64_t)p->layout.place.at[AXIS_TENSOR] * heads}};
}

/* The cache that the step has for a text: [context, width]. */
static struct tensor cache_of(const struct step *step, const struct run *run,
                              int64_t text)
{
    const struct program *p = run->program;
    const int64_t rows = (step->set.attention.cache * p->caches.texts + text) *
                         p->size.context;

    return tensor_2d(
        (char *)run->cache + rows * p->caches.width * dtype_bytes(p->dtype),
        p->dtype, p->size.context, p->caches.width);
}

/* Puts keys and values of `tokens` tokens of a text, which are the call's from
 * the first on, into its cache, behind `before` others; the queries then read
 * all that is there. */
static status use_cache(const struct step *step, struct run *run,
                        struct attention *call, struct tensor cache,
                        int64_t before)
{
    const int width = step->set.attention.head_width;
    const int64_t each = (int64_t)step->set.attention.kv_heads * width;
    const int64_t element = dtype_bytes(cache.dtype);
    const struct device_rows to = {tensor_rows(cache, before, 1).data,
                                   cache.stride[0] * element};
    const struct device_rows from = {call->k.data,
                                     call->k.stride[0] * element};

    /* k and v touch in the fused slot */
    TRY(device_copy_rows(run->stream, to, from, call->queries,
                         (size_t)(2 * each * element)));
    call->k = heads_view(cache, 0, step->set.attention.kv_heads, width);
    call->v = heads_view(cache, each, step->set.attention.kv_heads, width);
    call->sequences = 1;
    call->keys = before + call->queries;
    call->first_query = before;
    call->k.shape[0] = call->v.shape[0] = call->keys;
    return OK;
}

static struct tensor token_of(struct tensor heads, int64_t token)
{
    heads.data = (char *)heads.data +
                 token * heads.stride[0] * dtype_bytes(heads.dtype);
    heads.shape[0] = 1;
    return heads;
}

/* Each token continues a text of its own: a call as if it were alone. */
static status attend_each(const struct step *step, struct run *run,
                          const struct attention *all)
{
    for (int64_t t = 0; t < run->batch.tokens; t++) {
        struct attention call = *all;

        call.q = token_of(all->q, t);
        call.k = token_of(all->k, t);
        call.out = token_of(all->out, t);
        call.lse = tensor_rows(all->lse, t, 1);
        call.queries = 1;
        TRY(use_cache(step, run, &call,
                      cache_of(step, run, run->batch.texts[t]),
                      run->batch.positions[t]));
        TRY(run->kernels->attention_forward(run->stream, &call));
    }
    return OK;
}

static status attend_cached(const struct step *step, struct run *run,
                            struct attention *call)
{
    if (run->batch.texts != NULL) return attend_each(step, run, call);
    call->queries = run->batch.tokens;
    TRY(use_cache(step, run, call, cache_of(step, run, run->batch.text),
                  run->batch.first_position));
    return run->kernels->attention_forward(run->stream, call);
}

static status attention_forward(const struct step *step, struct run *run)
{
    struct attention call = describe(step, run);

    if (run->gradients != NULL && run->event->pass == PASS_FORWARD)
        call.peaks = score_peaks_of(run, step);
    if (run->program->mode == PROGRAM_GENERATE)
        return attend_cached(step, run, &call);
    if (run->batch.branches != NULL)
        return branches_attend(run->kernels, run->stream, &call,
                               run->batch.branches);
    if (run->groups[AXIS_CONTEXT] != NULL)
        return context_forward(run, &call, run->scratch);
    return run->kernels->attention_forward(run->stream, &call);
}

/* ---- key-value heads that several ranks hold ---- */

/* Each of them has the sum over its own query heads; the tree over the ranks
 * makes them whole, as one rank adds leaves. */
static struct tensor shared_columns(const struct step *step,
                                    struct tensor dqkv)
{
    const int width = step->set.attention.head_width;

    return tensor_cols(dqkv, (int64_t)step->set.attention.heads * width,
                       2 * (int64_t)step->set.attention.kv_heads * width);
}

static struct comm_block columns_block(struct tensor columns)
{
    const int64_t bytes = dtype_bytes(columns.dtype);

    return (struct comm_block){
        .data = columns.data, .bytes = columns.shape[1] * bytes,
        .rows = columns.shape[0], .stride = columns.stride[0] * bytes};
}

/* The type of dk and dv: real where ranks are yet to add them. */
static enum dtype attention_key_gradients(const struct step *step,
                                          const struct program *program)
{
    return step->set.attention.replicas > 1 ? program_real(program)
                                            : program->dtype;
}

/* Elements of dk and dv. */
static int64_t shared_elements(const struct step *step,
                               const struct program *p)
{
    return 2 * p->size.tokens * step->set.attention.kv_heads *
           step->set.attention.head_width;
}

/* Bytes of this rank's share of them, at the front of the layer scratch where
 * it does not lie in the slot. */
static size_t share_scratch(const struct step *step, const struct program *p)
{
    const enum dtype dtype = attention_key_gradients(step, p);
    const size_t bytes =
        (size_t)(shared_elements(step, p) * dtype_bytes(dtype));

    if (dtype == p->dtype) return 0;
    return arena_aligned(bytes);
}

static status exchange_replicas(const struct step *step, struct run *run,
                                struct tensor own, struct tensor all)
{
    const int replicas = step->set.attention.replicas;
    const int first = run->groups[AXIS_TENSOR]->rank / replicas * replicas;
    const struct comm_call call =
        run_exchange(run, run->groups[AXIS_TENSOR]);

    for (int i = 0; i < replicas; i++) {
        run->peers.send[first + i] = columns_block(own);
        run->peers.receive[first + i] = columns_block(
            tensor_rows(all, i * own.shape[0], own.shape[0]));
    }
    return comm_run(run->groups[AXIS_TENSOR], &call);
}

/* own: this rank's share of the sums, which are then set in `out`. */
static status sum_replicas(const struct step *step, struct run *run,
                           struct tensor own, struct tensor out)
{
    const int replicas = step->set.attention.replicas;
    const int64_t n = own.shape[0] * own.shape[1];
    const struct tensor all = tensor_2d(
        (char *)run->scratch + share_scratch(step, run->program), own.dtype,
        replicas * own.shape[0], own.shape[1]);
    const size_t row = (size_t)(out.shape[1] * dtype_bytes(out.dtype));
    struct tensor sum = tensor_1d(all.data, all.dtype, n);

    TRY(exchange_replicas(step, run, own, all));
    TRY(run->kernels->fold(run->stream, sum,
                           tensor_2d(all.data, all.dtype, replicas, n),
                           replicas, 1));
    if (out.dtype != own.dtype) {
        const struct tensor wide = sum;

        sum = tensor_1d(run->scratch, out.dtype, n); /* own is done with */
        TRY(run->kernels->scale(run->stream, sum, wide, 1.0));
    }
    return device_copy_rows(
        run->stream,
        (struct device_rows){out.data, out.stride[0] * dtype_bytes(out.dtype)},
        (struct device_rows){sum.data, (int64_t)row}, out.shape[0], row);
}

/* dk and dv that ranks are yet to add up are real. */
static struct attention heads_of(const struct step *step,
                                 const struct program *p)
{
    return (struct attention){.heads = step->set.attention.heads,
                              .kv_heads = step->set.attention.kv_heads,
                              .head_width = step->set.attention.head_width,
                              .dk.dtype = attention_key_gradients(step, p)};
}

static size_t attention_scratch(const struct step *step,
                                const struct program *p)
{
    const struct attention heads = heads_of(step, p);
    const size_t rows =
        p->layout.mesh.size[AXIS_CONTEXT] == 1 ? 0 : context_scratch(p, &heads);
    size_t shared = 0;

    if (step->set.attention.replicas > 1)
        shared = (size_t)(step->set.attention.replicas *
                          shared_elements(step, p)) *
                 (size_t)dtype_bytes(attention_key_gradients(step, p));
    return share_scratch(step, p) + (shared > rows ? shared : rows);
}

static status attention_backward(const struct step *step, struct run *run)
{
    struct attention call = describe(step, run);
    const struct tensor dqkv = run_gradient(run, step->input);
    const int64_t q = call.heads * (int64_t)call.head_width;
    const int64_t kv = call.kv_heads * (int64_t)call.head_width;
    const size_t front = share_scratch(step, run->program);
    struct tensor own = shared_columns(step, dqkv);

    CHECK(!run->event->adds); /* the fused slot has one reader */
    call.dq = heads_view(dqkv, 0, call.heads, call.head_width);
    call.dk = heads_view(dqkv, q, call.kv_heads, call.head_width);
    call.dv = heads_view(dqkv, q + kv, call.kv_heads, call.head_width);
    call.dout = heads_view(run_gradient(run, step->output), 0, call.heads,
                           call.head_width);
    if (front > 0) {
        own = tensor_2d(run->scratch, program_real(run->program),
                        dqkv.shape[0], 2 * kv);
        call.dk = heads_view(own, 0, call.kv_heads, call.head_width);
        call.dv = heads_view(own, kv, call.kv_heads, call.head_width);
    }
    if (run->groups[AXIS_CONTEXT] != NULL)
        TRY(context_backward(run, &call, (char *)run->scratch + front));
    else
        TRY(run->kernels->attention_backward(run->stream, &call));
    if (step->set.attention.replicas <= 1) return OK;
    return sum_replicas(step, run, own, shared_columns(step, dqkv));
}

/* Pairs of query and key of one sequence that this rank computes; of windows
 * and attention chunks, an equal share of all. */
static int64_t pairs_of(const struct step *step, const struct program *p)
{
    const int64_t length = program_sequence(p);
    const int64_t window = step->set.attention.window;
    const int64_t chunk = step->set.attention.chunk;

    if (chunk > 0 && chunk < length) {
        const int64_t rest = length % chunk;

        return (length / chunk * (chunk * (chunk + 1) / 2) +
                rest * (rest + 1) / 2) / p->layout.mesh.size[AXIS_CONTEXT];
    }
    if (window == 0 || window >= length) return context_pairs(p); /* causal */
    return (window * (window + 1) / 2 + (length - window) * window) /
           p->layout.mesh.size[AXIS_CONTEXT];
}

static struct step_cost attention_cost(const struct step *step,
                                       const struct program *p)
{
    const int64_t pairs = p->size.sequences * pairs_of(step, p);
    const struct attention heads = heads_of(step, p);
    const int64_t width =
        (int64_t)step->set.attention.heads * step->set.attention.head_width;

    return (struct step_cost){
        .flops = 2 * (double)pairs *
                 (double)(step->set.attention.heads *
                          (step->set.attention.head_width +
                           step->set.attention.value)),
        .bytes_moved = (double)(p->size.tokens *
                                (p->slots[step->input].width + width) *
                                dtype_bytes(p->dtype)),
        .bytes_sent = (double)context_bytes(p, &heads, false)};
}

/* Queries, keys and values for heads, and back, and what is gathered by those
 * that do not exchange; gradients of key-value heads that several tensor ranks
 * hold. */
static void attention_exchanges(const struct step *step,
                                const struct program *p,
                                const struct exchange_case *at,
                                struct layer_exchanges *out)
{
    const struct attention heads = heads_of(step, p);
    const int replicas = step->set.attention.replicas;
    const bool backward = exchange_backward(at);

    if (backward && replicas > 1)
        layer_exchanges_add(out, p, (struct layer_exchange){
            .axis = AXIS_TENSOR, .kind = COMM_EXCHANGE, .calls = 1,
            .what = SENT_KEY_VALUE_GRADIENTS, .after = true,
            .bytes = (replicas - 1) * shared_elements(step, p) *
                     dtype_bytes(program_real(p))});
    if (backward || exchange_forward(at))
        layer_exchanges_add(out, p, (struct layer_exchange){
            .axis = AXIS_CONTEXT, .kind = COMM_EXCHANGE,
            .what = backward ? SENT_ATTENTION_BACKWARD : SENT_ATTENTION_FORWARD,
            .calls = p->layout.mesh.size[AXIS_CONTEXT] > 1
                         ? context_calls(p, backward) : 0,
            .bytes = p->layout.mesh.size[AXIS_CONTEXT] > 1
                         ? context_bytes(p, &heads, backward) : 0});
}

const struct layer layer_attention = {
    .name = "attention", .kind = LAYER_ATTENTION, .forward = attention_forward,
    .backward_input = attention_backward, .cost = attention_cost,
    .scratch = attention_scratch,
    .exchanges = attention_exchanges,
    .keeps_input_for_b = true, .keeps_output_for_b = true,
    .keeps_aux_for_b = true};

static status fail_striped(const char *what)
{
    FAIL(ERR_CONFIG, "context.kind: striped tokens have no %s; take "
                     "allgather or ring", what);
}

bool nn_is_attention(const struct step *step)
{
    return step->layer == &layer_attention;
}

slot nn_attention(struct program *p, slot qkv, int heads, int kv_heads)
{
    return nn_attention_ruled(p, qkv, heads, kv_heads,
                              &(struct attention_rule){0});
}

slot nn_attention_ruled(struct program *p, slot qkv, int heads, int kv_heads,
                        const struct attention_rule *rule)
{
    const int step = program_add_step(p, &layer_attention, qkv);

    if (p->error != OK) return -1;
    p->steps[step].set.attention.alibi = rule->alibi ? heads : 0;
    p->steps[step].set.attention.replicas =
        kv_heads < program_tensor_ranks(p) ? program_tensor_ranks(p) / kv_heads
                                           : 1;
    heads = own_heads(p, heads);
    kv_heads = own_heads(p, kv_heads);
    const int width = head_width_of(p, qkv, heads, kv_heads);
    const slot output =
        program_add_slot(p, "attention", (int64_t)heads * width, false);
    const slot lse = program_add_slot(p, "log-sum-exp", heads, true);

    if (p->error != OK) return -1;
    p->steps[step].output = output;
    p->steps[step].aux = lse;
    p->steps[step].set.attention.heads = heads;
    p->steps[step].set.attention.kv_heads = kv_heads;
    p->steps[step].set.attention.head_width = width;
    p->steps[step].set.attention.scale =
        rule->scale > 0 ? rule->scale : 1.0 / sqrt((double)width);
    p->steps[step].set.attention.softcap = rule->softcap;
    p->steps[step].set.attention.window = rule->window;
    p->steps[step].set.attention.chunk = rule->chunk;
    p->steps[step].set.attention.value = rule->value > 0 ? rule->value : width;
    if (rule->window > 0 && p->layout.method.striped)
        p->error = fail_striped("windows");
    if (rule->chunk > 0 && p->layout.method.striped)
        p->error = fail_striped("attention chunks");
    if (rule->alibi && p->layout.method.striped)
        p->error = fail_striped("linear biases of scores");
    if (p->regular.attention_dropout > 0 && p->layout.method.striped)
        p->error = fail_striped("dropout of attention");
    p->steps[step].set.attention.cache = p->caches.count++;
    p->caches.width = 2 * (int64_t)kv_heads * width;
    program_lay_as(p, output, qkv);
    return output;
}
