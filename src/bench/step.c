/* SPDX-License-Identifier: Apache-2.0 */
/* step.c - whole training steps on random tokens, each kernel measured. */
#include "bench/step.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/median.h"
#include "base/random.h"
#include "bench/bound.h"
#include "bench/probe.h"
#include "bench/step_print.h"
#include "setup/micro_batch.h"
#include "step/step.h"
#include "observe/trace_file.h"

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
    {"gpt2-1.5b", &model_gpt2, 50257, 1600, 6400, 48, 25, 25, true, 1, 1024},
    {"llama-1b", &model_llama, 128256, 2048, 8192, 16, 32, 8, true, 1, 4096},
    {"llama-58m", &model_llama, 32000, 512, 1376, 8, 8, 8, false, 8, 512},
    {"llama-10m", &model_llama, 8192, 288, 768, 6, 6, 6, false, 16, 256},
    {"llama-1m", &model_llama, 2048, 128, 352, 4, 4, 2, false, 16, 128},
};
enum { PRESETS = sizeof presets / sizeof *presets };

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

    FAIL(ERR_CONFIG, "bench step: %s is not gpt2-124m, gpt2-1.5b, llama-1b, "
                     "llama-58m, llama-10m or llama-1m%s%s", name,
         near ? "; nearest: " : "", near ? near : "");
}

static struct model preset_model(const struct preset *p, int64_t length)
{
    return (struct model){
        .kind = p->kind, .vocab = p->vocab, .layers = p->layers,
        .heads = p->heads, .kv_heads = p->kv_heads,
        .head_width = (int)(p->width / p->heads), .width = p->width,
        .feed_forward = p->feed_forward, .context = length, .tied = p->tied,
        .biases.attention = p->kind == &model_gpt2,
        .biases.mlp = p->kind == &model_gpt2, .rope.base = 10000,
        .norm_epsilon = 1e-5,
        .activation = p->kind == &model_gpt2 ? ACTIVATION_GELU_TANH
                                             : ACTIVATION_SILU,
        .init_std = 0.02, .ends.bos = -1, .ends.eos = -1};
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

/* ---- measuring ---- */

/* Seconds since this process began; 0: /proc does not say. */
static double process_age_s(void)
{
    unsigned long long began = 0;
    FILE *file = fopen("/proc/self/stat", "r");
    int read = 0;

    if (file == NULL) return 0;
    /* Field 22, counted behind the name, which may hold anything but ')'. */
    if (fscanf(file, "%*d (%*[^)]) %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                     "%*s %*s %*s %*s %*s %*s %*s %*s %*s %llu", &began) == 1)
        read = 1;
    fclose(file);
    if (!read) return 0;
    return clock_read_s(CLOCK_BOOTTIME) -
           (double)began / (double)sysconf(_SC_CLK_TCK);
}

static size_t peak_resident_bytes(void)
{
    struct rusage usage;

    if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
    return (size_t)usage.ru_maxrss * 1024;
}

static status run_steps(struct step_figures *f, struct train_step *step,
                        const struct sample_source *source)
{
    struct step_result result;

    TRY(train_step_run(step, source, 1e-4, 1, &result)); /* to warm up */
    f->first_step_s = process_age_s();
    f->stage->run.timing.clock = probe_now_s;
    f->stage->run.timing.spent = f->spent;
    meter_record(&f->meter, f->settings->trace != NULL);
    for (int i = 0; i < f->steps; i++) {
        const double began = probe_now_s();

        meter_step_begin(&f->meter);
        TRY(train_step_run(step, source, 1e-4, i + 2, &result));
        TRY(device_finish(&f->stage->stream));
        meter_step_end(&f->meter);
        f->step_ms[i] = 1e3 * (probe_now_s() - began);
    }
    f->stage->run.timing.clock = NULL;
    f->resident_bytes = peak_resident_bytes();
    f->median_ms = median_take(f->step_ms, f->steps);
    return OK;
}

static status measure(struct step_figures *f, struct pipeline *pipeline)
{
    struct random_tokens tokens = {f->stage->program.size.vocab,
                                   f->stage->program.size.length};
    const struct sample_source source = {.fill = fill, .argument = &tokens};
    struct train_step step;
    status end;

    TRY_GOTO(done, end, train_step_build(&step, pipeline, NULL));
    TRY_GOTO(done, end, train_step_refresh(&step));
    step.update.beta1 = 0.9;
    step.update.beta2 = 0.95;
    step.update.epsilon = 1e-8;
    step.update.weight_decay = 0.1;
    step.update.clip = 1;
    TRY_GOTO(done, end, run_steps(f, &step, &source));
    if (f->settings->graphs) /* kernels have no times */
        profile_take(&f->shapes, &f->meter, &(struct profile_limits){0});
    else
        TRY_GOTO(done, end, bound_measure(&f->bound, f->stage, &f->meter,
                                          &f->shapes));
    f->profile = f->shapes;
    profile_merge(&f->profile);
done:
    train_step_free(&step);
    return end;
}

/* ---- what is wanted ---- */

static status write_drawing(const struct step_figures *f)
{
    struct text svg = {0};
    char title[128];
    status result;

    snprintf(title, sizeof title, "%s, %lld x %lld tokens, %s: a step of "
             "%.4g ms", f->name, (long long)f->stage->program.size.batch,
             (long long)f->stage->program.size.length,
             f->stage->kernels.backend, f->profile.step_ms);
    TRY_GOTO(done, result, profile_svg(&f->profile, title, &svg));
    TRY_GOTO(done, result, file_write_named(f->settings->draw, svg.bytes,
                                             svg.length));
done:
    text_free(&svg);
    return result;
}

static status deliver(const struct step_figures *f, FILE *out,
                      struct json_writer *json)
{
    const struct bench_step_settings *s = f->settings;

    if (s->draw != NULL) TRY(write_drawing(f));
    if (s->trace != NULL)
        TRY(trace_file_write(&f->meter, 0, f->name, s->trace));
    if (json != NULL) return step_write(f, json);
    return s->csv ? step_print_csv(f, out) : step_print(f, out);
}

enum { SPANS_OF_A_STEP = 1 << 16 };

static status open_all(struct step_figures *f, struct pipeline *pipeline,
                       const struct pipeline_request *request)
{
    const bool traced = f->settings->trace != NULL;
    void *spent = NULL;

    TRY(pipeline_plan(pipeline, request));
    f->stage = &pipeline->stages[0];
    f->planned_bytes = pipeline->bytes;
    /* The thread of a device apart that runs kernels. */
    TRY(meter_build(&f->meter, f->settings->device == DEVICE_CPU ? 0 : 1,
                    traced ? (int64_t)SPANS_OF_A_STEP * f->steps : 0));
    TRY(memory_take((size_t)f->stage->frame.event_count, sizeof(double),
                    &spent));
    f->spent = spent;
    TRY(pipeline_open(pipeline));
    return stage_init_weights(f->stage, request->stage.model, 1);
}

status bench_step(const struct bench_step_settings *settings, FILE *out,
                  struct json_writer *json)
{
    const struct preset *preset;
    struct pipeline pipeline = {0};
    static struct step_figures f; /* too large for a stack */
    status result;

    f = (struct step_figures){.settings = settings};
    TRY(preset_find(settings->model, &preset));
    const int64_t batch = settings->batch ? settings->batch : preset->batch;
    const int64_t length = settings->length ? settings->length
                                            : preset->length;
    const struct model model = preset_model(preset, length);
    const struct grid_facts facts = {
        .batch = batch, .length = length, .heads = model.heads,
        .kv_heads = model.kv_heads, .head_width = model.head_width,
        .feed_forward = model.feed_forward};
    static const char *const none[] = {"none"};
    struct pipeline_request request = {.stage = {
        .model = &model, .mode = PROGRAM_TRAIN, .dtype = settings->dtype,
        .machine.product = settings->product,
        .machine.isa = settings->isa, .machine.device = settings->device,
        .machine.fast = settings->fast, .machine.graphs = settings->graphs,
        .machine.attention = settings->attention,
        .size.batch = batch,
        .size.length = length,
        .backward = BACKWARD_FUSED, .training.optimizer = true,
        .machine.threads =
            settings->threads ? settings->threads : threads_cores(),
        .recomputation.policy = none, .recomputation.count = 1}};

    f.name = preset->name;
    f.steps = settings->steps ? settings->steps : 3;
    CHECK(f.steps > 0 && f.steps <= BENCH_STEPS_MOST);
    TRY_GOTO(done, result,
             grid_resolve(&request.stage.layout.grid, &(struct grid){0},
                                        &facts));
    request.stage.size.micro_batch =
        settings->micro_batch
            ? settings->micro_batch
            : micro_batch_choose(&request.stage, batch,
                                 request.stage.layout.grid.data);
    TRY_GOTO(done, result, open_all(&f, &pipeline, &request));
    TRY_GOTO(done, result, measure(&f, &pipeline));
    TRY_GOTO(done, result, deliver(&f, out, json));
done:
    meter_free(&f.meter);
    memory_free(f.spent);
    pipeline_free(&pipeline);
    return result;
}
