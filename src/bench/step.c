/* SPDX-License-Identifier: Apache-2.0 */
/* step.c - whole training steps on random tokens, beside the time that their
 * matrix products alone would take. */
#include "bench/step.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/random.h"
#include "train/step.h"

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The shapes of the published comparisons (benchmarks/). */
struct preset {
    const char *name;
    const struct model_kind *kind;
    int64_t vocab, width, feed_forward;
    int layers, heads, kv_heads;
    bool tied;
    int64_t batch, length;
};

static const struct preset presets[] = {
    {"gpt2-124m", &model_gpt2, 50257, 768, 3072, 12, 12, 12, true, 4, 256},
    {"llama-58m", &model_llama, 32000, 512, 1376, 8, 8, 8, false, 8, 512},
    {"llama-10m", &model_llama, 8192, 288, 768, 6, 6, 6, false, 16, 256},
    {"llama-1m", &model_llama, 2048, 128, 352, 4, 4, 2, false, 16, 128},
};
enum { PRESETS = sizeof presets / sizeof *presets, STEPS_MAX = 64 };

static status preset_find(const char *name, const struct preset **out)
{
    const char *names[PRESETS];

    *out = &presets[0];
    if (name == NULL) return OK;
    for (int i = 0; i < PRESETS; i++) {
        names[i] = presets[i].name;
        *out = &presets[i];
        if (strcmp(name, names[i]) == 0) return OK;
    }
    const char *near = text_nearest(name, names, PRESETS);

    FAIL(ERR_CONFIG, "bench step: %s is not gpt2-124m, llama-58m, llama-10m or "
                     "llama-1m%s%s", name, near ? "; nearest: " : "",
         near ? near : "");
}

static struct model preset_model(const struct preset *p, int64_t length)
{
    return (struct model){
        .kind = p->kind, .vocab = p->vocab, .layers = p->layers,
        .heads = p->heads, .kv_heads = p->kv_heads,
        .head_width = (int)(p->width / p->heads), .width = p->width,
        .feed_forward = p->feed_forward, .context = length, .tied = p->tied,
        .attention_bias = p->kind == &model_gpt2,
        .mlp_bias = p->kind == &model_gpt2, .rope_base = 10000,
        .norm_epsilon = 1e-5,
        .activation = p->kind == &model_gpt2 ? ACTIVATION_GELU_TANH
                                             : ACTIVATION_SILU,
        .init_std = 0.02, .bos = -1, .eos = -1};
}

/* Random tokens, a function of (sequence, position). */
struct random_tokens { int64_t vocab, length; };

static status fill(void *argument, int64_t index, int32_t *inputs,
                   int32_t *targets, int32_t *positions, int32_t *documents)
{
    const struct random_tokens *tokens = argument;
    const struct random_key key = random_key_make(1, "bench.tokens");

    for (int64_t t = 0; t < tokens->length; t++) {
        const uint64_t at = (uint64_t)(index * (tokens->length + 1) + t);

        inputs[t] = (int32_t)random_below(key, at, (uint64_t)tokens->vocab);
        targets[t] =
            (int32_t)random_below(key, at + 1, (uint64_t)tokens->vocab);
        positions[t] = (int32_t)t;
        documents[t] = 0;
    }
    return OK;
}

/* ---- the bound ---- */

/* Seconds of one product [m, k] x [k, n] in the given form, best of three,
 * over the stage's own memory: a and b from the weights, c in the gradients
 * (all large enough for the shapes of the step). */
static status product_time(struct stage *stage, const int64_t shape[3],
                           int form, double *seconds)
{
    const int64_t m = shape[0], n = shape[1], k = shape[2];
    const struct sum_segment segment = {.length = k};
    const struct sum_order order = {&segment, 1, 1};
    void *w = stage->memory[MEMORY_WEIGHTS].data;
    void *v = stage->memory[MEMORY_SECOND_MOMENT].data;
    void *c = stage->memory[MEMORY_GRADIENTS].data;
    struct matmul call = {.c = tensor_2d(c, DTYPE_F32, m, n), .order = &order};

    call.a = form == 2 ? tensor_transpose(tensor_2d(v, DTYPE_F32, k, m))
                       : tensor_2d(v, DTYPE_F32, m, k);
    call.b = form == 0 ? tensor_transpose(tensor_2d(w, DTYPE_F32, n, k))
                       : tensor_2d(w, DTYPE_F32, k, n);
    *seconds = 1e9;
    for (int i = 0; i < 3; i++) {
        const double began = now_s();

        TRY(stage->kernels.matmul(&stage->stream, &call));
        const double took = now_s() - began;

        if (took < *seconds) *seconds = took;
    }
    return OK;
}

/* All products of a step: y = x W^T, dx = dy W, dW = dy^T x. */
static status products_time(struct stage *stage, double *seconds,
                            double *flops)
{
    const struct program *p = &stage->program;

    *seconds = *flops = 0;
    for (int i = 0; i < p->step_count; i++) {
        const struct step *step = &p->steps[i];
        const char *name = step->layer->name;
        const bool head = strcmp(name, "head") == 0;

        if (!head && strcmp(name, "linear") != 0) continue;
        if (step->block > 0) continue; /* blocks are alike */
        const struct param_spec *spec = &p->params.items[step->param[0]].spec;
        const int64_t t = p->tokens, r = spec->rows, c = spec->cols;
        const int64_t shapes[3][3] = {{t, r, c}, {t, c, r}, {r, c, t}};
        int times = 1;

        for (int j = i + 1; step->block == 0 && j < p->step_count; j++)
            times += p->steps[j].layer == step->layer &&
                     p->steps[j].block > 0 &&
                     p->params.items[p->steps[j].param[0]].spec.rows == r &&
                     p->params.items[p->steps[j].param[0]].spec.cols == c &&
                     p->params.items[p->steps[j].param[0]].spec.split_rows ==
                         spec->split_rows;
        for (int form = 0; form < 3; form++) {
            double took;

            TRY(product_time(stage, shapes[form], form, &took));
            *seconds += times * took;
            *flops += 2.0 * times * (double)(t * r) * (double)c;
        }
    }
    return OK;
}

/* ---- measuring ---- */

struct measured {
    double step_ms[STEPS_MAX];
    int steps;
    double median_ms;
    double products_s, products_flops; /* of one step */
    double update_ms;                  /* norm, clip, AdamW: of the median */
};

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static status measure(struct pipeline *pipeline, const struct preset *preset,
                      int steps, double *spent, struct measured *out)
{
    struct stage *stage = &pipeline->stages[0];
    struct random_tokens tokens = {preset->vocab, stage->program.length};
    const struct sample_source source = {fill, &tokens};
    struct train_step step;
    struct step_result result;
    status end;

    TRY_GOTO(done, end, train_step_build(&step, pipeline, NULL));
    step.update.beta1 = 0.9;
    step.update.beta2 = 0.95;
    step.update.epsilon = 1e-8;
    step.update.weight_decay = 0.1;
    step.update.clip = 1;
    TRY_GOTO(done, end, train_step_run(&step, &source, 1e-4, 1, &result));
    stage->run.clock = now_s;
    stage->run.spent = spent;
    for (int i = 0; i < steps; i++) {
        const double began = now_s();

        TRY_GOTO(done, end, train_step_run(&step, &source, 1e-4, i + 2,
                                           &result));
        out->step_ms[i] = 1e3 * (now_s() - began);
    }
    out->steps = steps;
    qsort(out->step_ms, (size_t)steps, sizeof *out->step_ms, by_value);
    out->median_ms = out->step_ms[steps / 2];
    TRY_GOTO(done, end, products_time(stage, &out->products_s,
                                      &out->products_flops));
done:
    train_step_free(&step);
    return end;
}

/* ---- printing ---- */

struct kind_time { const char *name; double ms[4]; };
enum { KINDS_MAX = 16 };

/* Milliseconds per step by layer and pass. */
static int by_kind(const struct stage *stage, const double *spent, int steps,
                   struct kind_time rows[KINDS_MAX])
{
    int count = 0;

    for (int i = 0; i < stage->frame.event_count; i++) {
        const struct event *event = &stage->frame.events[i];
        const char *name = stage->program.steps[event->step].layer->name;
        int at = 0;

        while (at < count && strcmp(rows[at].name, name) != 0) at++;
        if (at == count) {
            CHECK(count < KINDS_MAX);
            rows[count++] = (struct kind_time){.name = name};
        }
        rows[at].ms[event->pass] += 1e3 * spent[i] / steps;
    }
    return count;
}

struct figures {
    double tokens_per_s, rate, bound, fraction;
};

static struct figures figures_of(const struct stage *stage,
                                 const struct measured *m)
{
    const struct program *p = &stage->program;
    const double tokens = (double)(p->batch * p->length);
    struct figures f;

    f.tokens_per_s = tokens / (1e-3 * m->median_ms);
    f.rate = m->products_flops / m->products_s;
    f.bound = f.rate / (6.0 * (double)p->params.parameters);
    f.fraction = f.tokens_per_s / f.bound;
    return f;
}

static void print_text(const struct stage *stage, const struct preset *preset,
                       const struct measured *m, const double *spent,
                       FILE *out)
{
    struct kind_time rows[KINDS_MAX];
    const int count = by_kind(stage, spent, m->steps, rows);
    const struct figures f = figures_of(stage, m);
    double sum = 0;

    fprintf(out, "%s, %lld x %lld tokens, %s, %d threads, grid %d x %d\n",
            preset->name, (long long)stage->program.batch,
            (long long)stage->program.length, stage->kernels.backend,
            stage->request.threads, stage->program.grid.data,
            stage->program.grid.tensor);
    fprintf(out, "%-14s %10s %10s %10s %10s   ms per step\n", "layer",
            "F", "F again", "B", "W");
    for (int i = 0; i < count; i++) {
        fprintf(out, "%-14s %10.1f %10.1f %10.1f %10.1f\n", rows[i].name,
                rows[i].ms[0], rows[i].ms[1], rows[i].ms[2], rows[i].ms[3]);
        for (int j = 0; j < 4; j++) sum += rows[i].ms[j];
    }
    fprintf(out, "%-14s %43.1f\n", "update, data", m->median_ms - sum);
    fprintf(out, "step           %.1f ms (%.1f to %.1f), %.1f tokens/s\n",
            m->median_ms, m->step_ms[0], m->step_ms[m->steps - 1],
            f.tokens_per_s);
    fprintf(out, "products       %.1f GFLOP/s on these shapes, bound %.1f "
                 "tokens/s, reached %.1f%%\n", 1e-9 * f.rate, f.bound,
            100 * f.fraction);
}

static void write_json(const struct stage *stage, const struct preset *preset,
                       const struct measured *m, const double *spent,
                       struct json_writer *json)
{
    static const char *const passes[] = {"forward", "recompute",
                                         "backward_input", "backward_weight"};
    struct kind_time rows[KINDS_MAX];
    const int count = by_kind(stage, spent, m->steps, rows);
    const struct figures f = figures_of(stage, m);

    json_write_object(json);
    json_write_key(json, "model");
    json_write_string(json, preset->name);
    json_write_key(json, "backend");
    json_write_string(json, stage->kernels.backend);
    json_write_key(json, "threads");
    json_write_integer(json, stage->request.threads);
    json_write_key_real(json, "step_ms", m->median_ms);
    json_write_key_real(json, "step_ms_least", m->step_ms[0]);
    json_write_key_real(json, "step_ms_most", m->step_ms[m->steps - 1]);
    json_write_key_real(json, "tokens_per_s", f.tokens_per_s);
    json_write_key_real(json, "product_gflops", 1e-9 * f.rate);
    json_write_key_real(json, "bound_tokens_per_s", f.bound);
    json_write_key_real(json, "bound_fraction", f.fraction);
    json_write_key(json, "layers_ms");
    json_write_object(json);
    for (int i = 0; i < count; i++) {
        json_write_key(json, rows[i].name);
        json_write_object(json);
        for (int j = 0; j < 4; j++)
            json_write_key_real(json, passes[j], rows[i].ms[j]);
        json_write_object_end(json);
    }
    json_write_object_end(json);
    json_write_object_end(json);
}

status bench_step(const struct bench_step_settings *settings, FILE *out,
                  struct json_writer *json)
{
    const int steps = settings->steps > 0 && settings->steps <= STEPS_MAX
                          ? settings->steps : 3;
    const struct preset *preset;
    struct pipeline pipeline = {0};
    struct measured measured = {.steps = 0};
    void *spent = NULL;
    status result;

    TRY(preset_find(settings->model, &preset));
    const int64_t batch = settings->batch ? settings->batch : preset->batch;
    const int64_t length = settings->length ? settings->length
                                            : preset->length;
    const struct model model = preset_model(preset, length);
    const struct grid_facts facts = {batch, model.heads, model.kv_heads,
                                     model.head_width, model.feed_forward};
    static const char *const none[] = {"none"};
    struct pipeline_request request = {.stage = {
        .model = &model, .mode = PROGRAM_TRAIN, .dtype = DTYPE_F32,
        .isa = settings->isa, .batch = batch, .micro_batch = batch,
        .length = length, .backward = BACKWARD_FUSED, .optimizer = true,
        .threads = settings->threads ? settings->threads : threads_cores(),
        .recompute = none, .recompute_count = 1}};

    TRY_GOTO(done, result, grid_resolve(&request.stage.grid, &(struct grid){0},
                                        &facts));
    TRY_GOTO(done, result, pipeline_plan(&pipeline, &request));
    struct stage *stage = &pipeline.stages[0];

    TRY_GOTO(done, result, memory_take((size_t)stage->frame.event_count,
                                       sizeof(double), &spent));
    TRY_GOTO(done, result, pipeline_open(&pipeline));
    TRY_GOTO(done, result, stage_init_weights(stage, &model, 1));
    TRY_GOTO(done, result, measure(&pipeline, preset, steps, spent, &measured));
    if (json != NULL) write_json(stage, preset, &measured, spent, json);
    else print_text(stage, preset, &measured, spent, out);
done:
    memory_free(spent);
    pipeline_free(&pipeline);
    return result;
}
