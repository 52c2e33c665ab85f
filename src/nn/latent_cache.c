/* SPDX-License-Identifier: Apache-2.0 */
/* latent_cache.c - attention of generation over a cache of latents. Source:
 * DeepSeek-V2, arXiv:2405.04434, section 2.1.2: the matrix of keys is absorbed
 * into the queries, that of values into the result.
 *
 *   query of a head   [rotary | still Wk]           Wk [still, rank] of it
 *   cache of a token  [rotary key | latent]         one for all heads
 *   score             query . cache
 *   value of a head   (softmax of scores . latents) Wvᵀ
 *
 * In exact arithmetic that is attention over keys and values; products are
 * summed in another order, so bits differ. They do not show how tokens were cut
 * into calls: keys that a token does not see add +0.
 *
 * Tokens are worked on in groups. Rows of a group lie head by head, so that the
 * matrices of all heads are one product, as those of experts are; the host
 * reads nothing, and only tells which rows a head has. */
#include "device/parts.h"
#include "nn/layer.h"

enum { ROWS_AT_ONCE = 128 }; /* heads of tokens */

/* Sizes, and where the parts of the scratch lie: queries with the matrix of
 * keys, scores, mixed latents, values, numbers of rows, scores of keys that are
 * hidden, lists of the rows of heads. Scores and latents are there once more as
 * products read them where that type is narrow. */
struct cached {
    const struct latent_heads *heads;
    int64_t rank, row;  /* elements of a latent; of a row of the cache */
    int64_t tokens;     /* at once */
    size_t scores, scores_in, mixed, mixed_in, values, targets, numbers,
        hidden, lists, all;
};

static size_t lists_bytes(const struct latent_heads *h, int64_t tokens)
{
    return (size_t)(h->heads + 1 + h->heads * tokens) * sizeof(int32_t);
}

static struct cached cached_of(const struct step *step,
                               const struct program *p)
{
    const struct latent_heads *h = &step->set.cached.heads;
    const size_t real = (size_t)dtype_bytes(program_real(p));
    const size_t own = (size_t)dtype_bytes(p->dtype);
    struct cached c = {.heads = h, .rank = p->slots[step->second].width};

    c.row = h->rotary + c.rank;
    c.tokens = h->heads < ROWS_AT_ONCE ? ROWS_AT_ONCE / h->heads : 1;
    if (c.tokens > p->size.length) c.tokens = p->size.length;
    const size_t rows = (size_t)(c.tokens * h->heads);
    const size_t keys = rows * (size_t)p->size.context;
    const size_t latents = rows * (size_t)c.rank;

    c.scores = arena_aligned(rows * (size_t)c.row * own);
    c.scores_in = c.scores + arena_aligned(keys * real);
    c.mixed = c.scores_in + (own < real ? arena_aligned(keys * own) : 0);
    c.mixed_in = c.mixed + arena_aligned(latents * real);
    c.values = c.mixed_in + (own < real ? arena_aligned(latents * own) : 0);
    c.targets = c.values + arena_aligned(rows * (size_t)h->value * own);
    c.numbers = c.targets + arena_aligned(rows * sizeof(int32_t));
    c.hidden = c.numbers + arena_aligned(3 * rows * real);
    c.lists = c.hidden + arena_aligned((size_t)c.tokens * real);
    c.all = c.lists + arena_aligned(lists_bytes(h, c.tokens));
    return c;
}

static size_t cached_scratch(const struct step *step, const struct program *p)
{
    return cached_of(step, p).all;
}

static char *element(struct tensor view, int64_t row, int64_t col)
{
    return (char *)view.data +
           (row * view.stride[0] + col) * dtype_bytes(view.dtype);
}

/* [rows, cols] from an element on; rows lie `stride` elements apart. */
static struct tensor window(struct tensor of, void *first, int64_t rows,
                            int64_t cols, int64_t stride)
{
    struct tensor view = tensor_2d(first, of.dtype, rows, cols);

    view.stride[0] = stride;
    return view;
}

static status product(struct run *run, struct tensor c, struct tensor a,
                      struct tensor b)
{
    const struct sum_order order = run_order_whole(run, a.shape[1]);
    const struct matmul call = {.c = c, .a = a, .b = b, .order = &order};

    return run->kernels->matmul(run->stream, &call);
}

/* All of it in another type. */
static status convert(struct run *run, struct tensor out, struct tensor in)
{
    const int64_t n = tensor_count(&in);

    return run->kernels->scale(run->stream, tensor_1d(out.data, out.dtype, n),
                               tensor_1d(in.data, in.dtype, n), 1.0);
}

/* The rows of the cache that the layer has for a text. */
static struct tensor cache_of(const struct step *step, const struct run *run,
                              int64_t text)
{
    const struct program *p = run->program;
    const int64_t each =
        p->size.context * p->caches.width * dtype_bytes(p->dtype);
    const int64_t number = step->set.cached.cache * p->caches.texts + text;

    return tensor_2d((char *)run->cache + number * each, p->dtype,
                     p->size.context, p->caches.width);
}

/* Rotary keys, which follow the queries, and latents of tokens of the call go
 * into a cache, from position `at` on. */
static status fill_cache(const struct step *step, const struct run *run,
                         struct tensor cache, int64_t first, int64_t tokens,
                         int64_t at)
{
    const struct latent_heads *h = &step->set.cached.heads;
    const struct tensor turned = run_slot(run, step->input);
    const struct tensor latent = run_slot(run, step->second);
    const int64_t rank = latent.shape[1];

    CHECK(cache.shape[1] == h->rotary + rank);
    TRY(run_copy_rows(run, window(cache, element(cache, at, 0), tokens,
                                  h->rotary, cache.stride[0]),
                      window(turned, element(turned, first, h->heads *
                                             (h->still + h->rotary)),
                             tokens, h->rotary, turned.stride[0])));
    return run_copy_rows(run, window(cache, element(cache, at, h->rotary),
                                     tokens, rank, cache.stride[0]),
                         tensor_rows(latent, first, tokens));
}

/* Tokens of the call that are worked on together; row `head * count + i` is
 * that of token i. */
struct group_of_tokens {
    int64_t first, count, keys;
    struct tensor cache; /* of their text */
    struct expert_groups heads;
    int64_t listed;      /* count that heads is for */
};

/* Lists for groups of so many tokens: a row of each for every head. Heads of a
 * token of `turned` lie one behind the other, two more behind them. */
static struct expert_groups rows_of_heads(const struct run *run,
                                          const struct cached *c, int64_t count)
{
    const int heads = c->heads->heads;
    int32_t *offsets = (int32_t *)(void *)((char *)run->lists + c->lists);
    int32_t *entries = offsets + heads + 1;

    for (int i = 0; i <= heads; i++) offsets[i] = (int32_t)(i * count);
    for (int64_t i = 0; i < heads * count; i++)
        entries[i] = (int32_t)(i % count * (heads + 2) + i / count);
    return (struct expert_groups){.experts = heads, .choices = 1,
                                  .offsets = offsets, .entries = entries};
}

/* c = rows of heads times b [heads, k, n] of their head. */
static status heads_product(struct run *run, const struct group_of_tokens *g,
                            struct tensor c, struct expert_rows a,
                            struct tensor b)
{
    const struct sum_order order = run_order_whole(run, b.shape[1]);

    return run->kernels->experts_product(
        run->stream, &(struct experts_product){
            .groups = &g->heads, .c = c, .a = a, .b = b, .order = &order});
}

/* Rows [first, first + count) of the part of the weight that each head has. */
static struct tensor of_heads(const struct latent_heads *h,
                              struct tensor weight, int64_t first,
                              int64_t count)
{
    struct tensor view = tensor_3d(element(weight, first, 0), weight.dtype,
                                   h->heads, count, weight.shape[1]);

    view.stride[0] = (h->still + h->value) * weight.stride[0];
    view.stride[1] = weight.stride[0];
    return view;
}

/* Parts of rows of one type: so many elements of each part. */
struct parts_of_rows { char *at; int64_t apart, part; };

static status copy_parts(struct run *run, enum dtype dtype, int64_t count,
                         const int64_t many[2],
                         const struct parts_of_rows both[2])
{
    const int bytes = dtype_bytes(dtype);

    return device_copy_parts(run->stream, &(struct device_parts){
        .to = {both[0].at, both[0].apart * bytes},
        .from = {both[1].at, both[1].apart * bytes},
        .rows = many[0], .parts = many[1], .to_part = both[0].part * bytes,
        .from_part = both[1].part * bytes, .bytes = (size_t)(count * bytes)});
}

/* [rows, row] of the cache's form: rotary parts as they are, others times the
 * matrix of keys. */
static status absorb(const struct step *step, struct run *run,
                     const struct cached *c, const struct group_of_tokens *g,
                     struct tensor *out)
{
    const struct latent_heads *h = c->heads;
    const struct tensor turned = run_slot(run, step->input);
    const struct tensor weight = run_weight(run, step, 0);
    const int64_t key = h->still + h->rotary, rows = g->count * h->heads;

    CHECK(turned.shape[1] == (h->heads + 2) * key);
    CHECK(turned.stride[0] == turned.shape[1]);
    *out = tensor_2d(run->scratch, turned.dtype, rows, c->row);
    TRY(copy_parts(run, out->dtype, h->rotary,
                   (const int64_t[]){g->count, h->heads},
                   (const struct parts_of_rows[]){
                       {element(*out, 0, 0), c->row, g->count * c->row},
                       {element(turned, g->first, 0), turned.stride[0],
                        key}}));
    return heads_product(
        run, g,
        window(*out, element(*out, 0, h->rotary), rows, c->rank, c->row),
        (struct expert_rows){
            .matrix = window(turned, element(turned, g->first, h->rotary),
                             g->count * (h->heads + 2), h->still, key),
            .gathered = true},
        of_heads(h, weight, 0, h->still));
}

/* Scores of keys that are hidden, of so many tokens at once: a negative number
 * of any type, times a large one, is -infinity. */
static status make_hidden(struct run *run, const struct cached *c,
                          int64_t count)
{
    const struct tensor none = tensor_1d((char *)run->scratch + c->hidden,
                                         program_real(run->program), count);

    TRY(device_fill(run->stream, none.data, 0xfe,
                    (size_t)tensor_bytes(&none)));
    return run->kernels->scale(run->stream, none, none, 1e30);
}

/* Keys behind a token's own position have no weight. */
static status hide_later(struct run *run, const struct cached *c,
                         const struct group_of_tokens *g, struct tensor scores)
{
    const int64_t most = g->count - 1;

    for (int64_t i = 0; i < most; i++)
        TRY(copy_parts(run, scores.dtype, most - i,
                       (const int64_t[]){1, c->heads->heads},
                       (const struct parts_of_rows[]){
                           {element(scores, i, g->keys - most + i), 0,
                            g->count * scores.stride[0]},
                           {(char *)run->scratch + c->hidden, 0, 0}}));
    return OK;
}

/* Scores become exponentials; out: maxima and sums of rows, as attention has
 * them. */
static status exponentials(struct run *run, const struct cached *c,
                           struct tensor scores, struct attention_node *out)
{
    char *numbers = (char *)run->scratch + c->numbers;
    int32_t *targets =
        (int32_t *)(void *)((char *)run->lists + c->targets);
    const int64_t rows = scores.shape[0];
    const int64_t each = rows * dtype_bytes(scores.dtype);
    struct cross_entropy call = {
        .logits = scores, .targets = targets, .leaves = 1, .gradient = true,
        .phase = LOSS_MAXIMUM, .maximum = numbers, .target = numbers + each,
        .sum = numbers + 2 * each};

    for (int64_t i = 0; i < rows; i++) targets[i] = 0;
    TRY(run->kernels->cross_entropy(run->stream, &call));
    call.phase = LOSS_SUM;
    out->maximum = tensor_2d(call.maximum, scores.dtype, rows, 1);
    out->denominator = tensor_2d(call.sum, scores.dtype, rows, 1);
    return run->kernels->cross_entropy(run->stream, &call);
}

/* Rows of out = those of mixed by the sums of their weights, in parts that a
 * head of attention may have. */
static status divide_rows(struct run *run, const struct cached *c,
                          struct tensor out, struct tensor mixed,
                          struct attention_node *root)
{
    const int64_t rows = mixed.shape[0];
    const struct tensor lse = /* nobody asks; in the place of targets */
        tensor_2d((char *)run->scratch + c->numbers +
                      rows * dtype_bytes(mixed.dtype), mixed.dtype, rows, 1);

    for (int64_t at = 0; at < c->rank; at += HEAD_WIDTH_MAX) {
        const int64_t left = c->rank - at;
        const int64_t width = left < HEAD_WIDTH_MAX ? left : HEAD_WIDTH_MAX;
        struct tensor to = tensor_3d(element(out, 0, at), out.dtype, rows, 1,
                                     width);

        root->values = tensor_3d(element(mixed, 0, at), mixed.dtype, rows, 1,
                                 width);
        to.stride[0] = root->values.stride[0] = c->rank;
        TRY(run->kernels->attention_finish(run->stream, to, lse, root));
    }
    return OK;
}

/* Latents, each with its weight: [rows, rank], as products read them. */
static status mix(const struct step *step, struct run *run,
                  const struct cached *c, const struct group_of_tokens *g,
                  struct tensor *out)
{
    const struct tensor cache = tensor_rows(g->cache, 0, g->keys);
    const enum dtype real = program_real(run->program);
    char *at = run->scratch;
    struct attention_node root;
    struct tensor queries;

    TRY(absorb(step, run, c, g, &queries));
    const int64_t rows = queries.shape[0];
    const struct tensor scores =
        tensor_2d(at + c->scores, real, rows, g->keys);
    const struct tensor mixed = tensor_2d(at + c->mixed, real, rows, c->rank);
    const struct tensor flat = tensor_1d(scores.data, real, rows * g->keys);
    struct tensor weights = scores;

    TRY(product(run, scores, queries, tensor_transpose(cache)));
    TRY(run->kernels->scale(run->stream, flat, flat, step->set.cached.scale));
    TRY(hide_later(run, c, g, scores));
    TRY(exponentials(run, c, scores, &root));
    *out = mixed;
    if (cache.dtype != real) {
        weights = tensor_2d(at + c->scores_in, cache.dtype, rows, g->keys);
        TRY(convert(run, weights, scores));
        *out = tensor_2d(at + c->mixed_in, cache.dtype, rows, c->rank);
    }
    TRY(product(run, mixed, weights,
                tensor_cols(cache, c->heads->rotary, c->rank)));
    return divide_rows(run, c, *out, mixed, &root);
}

/* Values of the tokens of a group: mixed latents times the matrix of values. */
static status give_values(const struct step *step, struct run *run,
                          const struct cached *c,
                          const struct group_of_tokens *g, struct tensor mixed)
{
    const struct latent_heads *h = c->heads;
    const struct tensor out = run_slot(run, step->output);
    const struct tensor values = tensor_2d((char *)run->scratch + c->values,
                                           out.dtype, mixed.shape[0], h->value);
    struct tensor weight = of_heads(h, run_weight(run, step, 0), h->still,
                                    h->value);
    const int64_t apart = weight.stride[1];

    weight.shape[1] = c->rank;
    weight.shape[2] = h->value;
    weight.stride[1] = 1;
    weight.stride[2] = apart;
    TRY(heads_product(run, g, values, (struct expert_rows){.matrix = mixed},
                      weight));
    return copy_parts(run, out.dtype, h->value,
                      (const int64_t[]){g->count, h->heads},
                      (const struct parts_of_rows[]){
                          {element(out, g->first, 0), out.stride[0], h->value},
                          {values.data, h->value, g->count * h->value}});
}

/* Lists of heads stay as long as the count of tokens does. */
static status attend_group(const struct step *step, struct run *run,
                           const struct cached *c, struct group_of_tokens *g)
{
    struct tensor mixed;

    if (g->count != g->listed) {
        g->heads = rows_of_heads(run, c, g->count);
        TRY(make_hidden(run, c, g->count));
        g->listed = g->count;
    }
    TRY(mix(step, run, c, g, &mixed));
    return give_values(step, run, c, g, mixed);
}

/* Each token continues a text of its own. */
static status attend_each(const struct step *step, struct run *run,
                          const struct cached *c)
{
    struct group_of_tokens g = {.count = 1};

    for (; g.first < run->batch.tokens; g.first++) {
        const int64_t at = run->batch.positions[g.first];

        g.cache = cache_of(step, run, run->batch.texts[g.first]);
        g.keys = at + 1;
        TRY(fill_cache(step, run, g.cache, g.first, 1, at));
        TRY(attend_group(step, run, c, &g));
    }
    return OK;
}

static status cached_forward(const struct step *step, struct run *run)
{
    const struct cached c = cached_of(step, run->program);
    const int64_t tokens = run->batch.tokens, at = run->batch.first_position;
    struct group_of_tokens g = {
        .cache = cache_of(step, run, run->batch.text)};

    if (run->batch.texts != NULL) return attend_each(step, run, &c);
    TRY(fill_cache(step, run, g.cache, 0, tokens, at));
    for (; g.first < tokens; g.first += c.tokens) {
        const int64_t left = tokens - g.first;

        g.count = left < c.tokens ? left : c.tokens;
        g.keys = at + g.first + g.count;
        TRY(attend_group(step, run, &c, &g));
    }
    return OK;
}

static struct step_cost cached_cost(const struct step *step,
                                    const struct program *p)
{
    const struct cached c = cached_of(step, p);
    const double heads = (double)p->size.tokens * c.heads->heads;
    const double keys = (double)p->size.context;
    const double each =
        (double)(c.rank * (c.heads->still + c.heads->value)) +
        keys * (double)(c.row + c.rank);

    return (struct step_cost){
        .flops = 2 * heads * each,
        .bytes_moved = keys * (double)(c.row * dtype_bytes(p->dtype))};
}

static const struct layer layer_cached = {
    .name = "latent attention", .kind = LAYER_ATTENTION,
    .forward = cached_forward, .cost = cached_cost,
    .scratch = cached_scratch};

slot nn_latent_attention(struct program *p, slot turned, slot latent,
                         const struct param_spec *weight,
                         const struct latent_heads *heads, double scale)
{
    const int step = program_add_step(p, &layer_cached, turned);
    const slot output =
        program_add_slot(p, "attention", heads->heads * heads->value, false);

    if (p->error != OK) return -1;
    p->steps[step].second = latent;
    p->steps[step].output = output;
    p->steps[step].set.cached.heads = *heads;
    p->steps[step].set.cached.scale = scale;
    p->steps[step].set.cached.cache = p->caches.count++;
    p->caches.width = heads->rotary + p->slots[latent].width;
    program_lay_as(p, output, turned);
    p->slots[output].layout.width |= 1u << weight->split_rows;
    program_add_param(p, step, 0, weight);
    return output;
}
