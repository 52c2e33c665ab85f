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
 * into calls: keys that a token does not see add +0. */
#include <math.h>

#include "nn/layer.h"

enum { ROWS_AT_ONCE = 64 }; /* heads of tokens */

/* Sizes, and where the parts of the scratch lie: queries with the matrix of
 * keys, scores, mixed latents, numbers of rows,
 * scores of keys that are hidden. Scores and latents are there
 * once more as products read them where that type is narrow. */
struct cached {
    const struct latent_heads *heads;
    int64_t rank, row;  /* elements of a latent; of a row of the cache */
    int64_t tokens;     /* at once */
    size_t scores, scores_in, mixed, mixed_in, targets, numbers, hidden, all;
};

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
    const size_t values = rows * (size_t)c.rank;

    c.scores = arena_aligned(rows * (size_t)c.row * own);
    c.scores_in = c.scores + arena_aligned(keys * real);
    c.mixed = c.scores_in + (own < real ? arena_aligned(keys * own) : 0);
    c.mixed_in = c.mixed + arena_aligned(values * real);
    c.targets = c.mixed_in + (own < real ? arena_aligned(values * own) : 0);
    c.numbers = c.targets + arena_aligned(rows * sizeof(int32_t));
    c.hidden = c.numbers + arena_aligned(3 * rows * real);
    c.all = c.hidden + arena_aligned((size_t)c.tokens * real);
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

/* The rows of the cache that the layer has. */
static struct tensor cache_of(const struct step *step, const struct run *run)
{
    const struct program *p = run->program;
    const int64_t each =
        p->size.context * p->caches.width * dtype_bytes(p->dtype);

    return tensor_2d((char *)run->cache + step->set.cached.cache * each,
                     p->dtype, p->size.context, p->caches.width);
}

/* Rotary keys, which follow the queries, and latents of the call go into the
 * cache. */
static status fill_cache(const struct step *step, const struct run *run,
                         const struct cached *c)
{
    const struct latent_heads *h = c->heads;
    const struct tensor cache = cache_of(step, run);
    const struct tensor turned = run_slot(run, step->input);
    const struct tensor latent = run_slot(run, step->second);
    const int64_t tokens = run->batch.tokens, at = run->batch.first_position;

    CHECK(cache.shape[1] == c->row);
    TRY(run_copy_rows(run, window(cache, element(cache, at, 0), tokens,
                                  h->rotary, cache.stride[0]),
                      window(turned, element(turned, 0, h->heads *
                                             (h->still + h->rotary)),
                             tokens, h->rotary, turned.stride[0])));
    return run_copy_rows(run, window(cache, element(cache, at, h->rotary),
                                     tokens, c->rank, cache.stride[0]),
                         latent);
}

/* Tokens of the call that are worked on together. */
struct group_of_tokens { int64_t first, count, keys; };

/* [rows, row] of the cache's form: rotary parts as they are, others times the
 * matrix of keys. */
static status absorb(const struct step *step, struct run *run,
                     const struct cached *c, const struct group_of_tokens *g,
                     struct tensor *out)
{
    const struct latent_heads *h = c->heads;
    const struct tensor turned = run_slot(run, step->input);
    const struct tensor weight = run_weight(run, step, 0);
    const int64_t key = h->still + h->rotary;

    *out = tensor_2d(run->scratch, turned.dtype, g->count * h->heads, c->row);
    for (int i = 0; i < h->heads; i++)
        TRY(run_copy_rows(
            run,
            window(*out, element(*out, i, 0), g->count, h->rotary,
                   h->heads * c->row),
            window(turned, element(turned, g->first, i * key), g->count,
                   h->rotary, turned.stride[0])));
    for (int i = 0; i < h->heads; i++)
        TRY(product(run,
                    window(*out, element(*out, i, h->rotary), g->count,
                           c->rank, h->heads * c->row),
                    window(turned,
                           element(turned, g->first, i * key + h->rotary),
                           g->count, h->still, turned.stride[0]),
                    tensor_rows(weight, i * (h->still + h->value),
                                h->still)));
    return OK;
}

/* Keys behind a token's own position have no weight. */
static status hide_later(struct run *run, const struct cached *c,
                         const struct group_of_tokens *g, struct tensor scores)
{
    const int64_t most = g->count - 1;
    struct tensor none = tensor_1d((char *)run->lists + c->hidden,
                                   scores.dtype, most);

    for (int64_t j = 0; j < most; j++) tensor_set(&none, j, -(double)INFINITY);
    for (int64_t i = 0; i < scores.shape[0]; i++) {
        const int64_t later = most - i / c->heads->heads;

        TRY(device_write(run->stream,
                         element(scores, i, scores.shape[1] - later),
                         none.data,
                         (size_t)(later * dtype_bytes(scores.dtype))));
    }
    return OK;
}

/* Scores become exponentials; returns where their sums are. */
static status exponentials(struct run *run, const struct cached *c,
                           struct tensor scores, void **sums)
{
    char *numbers = (char *)run->scratch + c->numbers;
    int32_t *targets =
        (int32_t *)(void *)((char *)run->lists + c->targets);
    const int64_t each = scores.shape[0] * dtype_bytes(scores.dtype);
    struct cross_entropy call = {
        .logits = scores, .targets = targets, .leaves = 1, .gradient = true,
        .phase = LOSS_MAXIMUM, .maximum = numbers, .target = numbers + each,
        .sum = numbers + 2 * each};

    for (int64_t i = 0; i < scores.shape[0]; i++) targets[i] = 0;
    TRY(run->kernels->cross_entropy(run->stream, &call));
    call.phase = LOSS_SUM;
    *sums = call.sum;
    return run->kernels->cross_entropy(run->stream, &call);
}

/* Rows of results by the sums of their weights, on the host. */
static status divide_rows(struct run *run, struct tensor rows, void *by)
{
    const size_t bytes = (size_t)tensor_bytes(&rows);
    const struct tensor sums = tensor_1d(run_list(run, by), rows.dtype,
                                         rows.shape[0]);
    const struct tensor own = tensor_2d(run_list(run, rows.data), rows.dtype,
                                        rows.shape[0], rows.shape[1]);

    TRY(device_read(run->stream, sums.data, by,
                    (size_t)tensor_bytes(&sums)));
    TRY(device_read(run->stream, own.data, rows.data, bytes));
    for (int64_t i = 0; i < rows.shape[0]; i++)
        for (int64_t j = 0; j < rows.shape[1]; j++)
            if (rows.dtype == DTYPE_F64)
                *(double *)(void *)element(own, i, j) /=
                    ((const double *)sums.data)[i];
            else
                *(float *)(void *)element(own, i, j) /=
                    ((const float *)sums.data)[i];
    return device_write(run->stream, rows.data, own.data, bytes);
}

/* Latents, each with its weight: [rows, rank], as products read them. */
static status mix(const struct step *step, struct run *run,
                  const struct cached *c, const struct group_of_tokens *g,
                  struct tensor *out)
{
    const struct tensor cache =
        tensor_rows(cache_of(step, run), 0, g->keys);
    const enum dtype real = program_real(run->program);
    char *at = run->scratch;
    struct tensor queries;

    TRY(absorb(step, run, c, g, &queries));
    const int64_t rows = queries.shape[0];
    const struct tensor scores =
        tensor_2d(at + c->scores, real, rows, g->keys);
    const struct tensor mixed = tensor_2d(at + c->mixed, real, rows, c->rank);
    const struct tensor flat = tensor_1d(scores.data, real, rows * g->keys);
    struct tensor weights = scores;
    void *sums;

    TRY(product(run, scores, queries, tensor_transpose(cache)));
    TRY(run->kernels->scale(run->stream, flat, flat, step->set.cached.scale));
    TRY(hide_later(run, c, g, scores));
    TRY(exponentials(run, c, scores, &sums));
    if (cache.dtype != real) {
        weights = tensor_2d(at + c->scores_in, cache.dtype, rows, g->keys);
        TRY(convert(run, weights, scores));
    }
    TRY(product(run, mixed, weights,
                tensor_cols(cache, c->heads->rotary, c->rank)));
    TRY(divide_rows(run, mixed, sums));
    *out = mixed;
    if (cache.dtype == real) return OK;
    *out = tensor_2d(at + c->mixed_in, cache.dtype, rows, c->rank);
    return convert(run, *out, mixed);
}

static status cached_forward(const struct step *step, struct run *run)
{
    const struct cached c = cached_of(step, run->program);
    const struct latent_heads *h = c.heads;
    const struct tensor weight = run_weight(run, step, 0);
    const struct tensor out = run_slot(run, step->output);
    const int64_t tokens = run->batch.tokens;

    TRY(fill_cache(step, run, &c));
    for (int64_t t = 0; t < tokens; t += c.tokens) {
        const int64_t left = tokens - t;
        struct group_of_tokens g = {t, left < c.tokens ? left : c.tokens, 0};
        struct tensor mixed;

        g.keys = run->batch.first_position + t + g.count;
        TRY(mix(step, run, &c, &g, &mixed));
        for (int i = 0; i < h->heads; i++)
            TRY(product(run,
                        window(out, element(out, t, i * h->value), g.count,
                               h->value, out.stride[0]),
                        window(mixed, element(mixed, i, 0), g.count, c.rank,
                               h->heads * c.rank),
                        tensor_transpose(tensor_rows(
                            weight, i * (h->still + h->value) + h->still,
                            h->value))));
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
