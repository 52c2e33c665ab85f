/* SPDX-License-Identifier: Apache-2.0 */
/* summary.c - messages of a run for its user. */
#include "train/summary.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "kernels/features.h"
#include "inference/generate.h"
#include "report/memory_draw.h"
#include "report/report.h"

int64_t closing_resident_bytes(void)
{
    long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    if (file == NULL) return 0;
    if (fscanf(file, "%*s %lld", &pages) != 1) pages = 0;
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

/* Where the layout shows: what the ranks are, and what it costs the promise. */
static void print_ranks(const struct setup *setup, FILE *out)
{
    const struct options *o = &setup->set->values;
    char mesh[MESH_TEXT_BYTES];

    if (mesh_ranks(&setup->mesh) > 1) {
        mesh_text(&setup->mesh, mesh, sizeof mesh);
        fprintf(out, "ranks     %d: %s; %s", mesh_ranks(&setup->mesh), mesh,
                o->zero);
        if (setup->mesh.size[AXIS_PIPE] > 1)
            fprintf(out, "; %s, %d stages, %d micro-batches",
                    o->schedule.name, setup->schedule.stages,
                    setup->schedule.microbatches);
        fprintf(out, "\n");
    }
    if (!setup->exact)
        fprintf(out, "notice    numerics.mode=fast: the grid gave way to the "
                     "layout; another layout trains other bits\n");
    if (setup->request.regular.scope == BALANCE_MICRO_BATCH)
        fprintf(out, "notice    moe.balance_scope=micro_batch: train."
                     "micro_batch=%lld is a part of the result; another one "
                     "trains other bits\n",
                (long long)setup->request.size.micro_batch);
}

/* Prints the effect of the other product of bfloat16 on this machine. */
static void print_product(const struct stage_request *r, FILE *out)
{
    const bool tiles = r->machine.product == PRODUCT_TILES;

    if (r->dtype != DTYPE_BF16 ||
        (r->machine.isa != ISA_AUTO && r->machine.isa != ISA_AVX512) ||
        tiles == features_tiles())
        return;
    if (!tiles)
        fprintf(out, "notice    this processor has AMX: a new run with "
                     "numerics.bfloat16=tiles makes its products there, some "
                     "three times the tokens a second, with other bits\n");
    else if (features_pairs())
        fprintf(out, "notice    this processor has no AMX: tiles are emulated; "
                     "a new run with numerics.bfloat16=pairs is faster, with "
                     "other bits\n");
}

static void print_model(const struct setup *setup,
                        const struct pipeline *pipeline, FILE *out)
{
    const struct stage *stage = &pipeline->stages[0];
    const struct model *m = &setup->model;
    const struct grid *g = &setup->grid;
    const char *recipe = setup->set->values.numerics.recipe;
    const bool high = strcmp(recipe, "none") == 0;
    char parameters[32], bytes[32];

    fprintf(out, "model     %s, %d layers, width %lld, %d heads (%d "
                 "key-value), vocabulary %lld: %s parameters\n",
            m->kind->name, m->layers, (long long)m->width, m->heads,
            m->kv_heads, (long long)m->vocab,
            text_count(parameters, setup->parameters));
    if (m->moe.experts > 0)
        fprintf(out, "experts   %d in a block, %d of a token, which uses %s "
                     "parameters\n", m->moe.experts, m->moe.top_k,
                text_count(parameters, setup_active(setup)));
    if (m->moe.bias && !m->kind->moe.bias)
        fprintf(out, "notice    files of %s have no place for selection biases "
                     "(moe.bias_rate): export will refuse this run; "
                     "deepseek_v3 has them, and moe.balance_loss balances "
                     "without\n", m->kind->name);
    if (setup->trained < setup->parameters)
        fprintf(out, "learning  %s of them; the others are frozen\n",
                text_count(parameters, setup->trained));
    if (ramp_changes(&setup->ramp))
        fprintf(out, "ramp      a batch of %d sizes in turn, from %lld "
                     "sequences on\n", setup->ramp.count,
                (long long)setup->ramp.rows[0].batch);
    fprintf(out, "step      %lld sequences of %lld tokens, %lld at once, "
                 "%s%s%s\n",
            (long long)setup->set->values.train.batch,
            (long long)setup->request.size.length,
            (long long)setup->request.size.micro_batch,
            dtype_name(stage->program.dtype), high ? "" : ", products in ",
            high ? "" : recipe);
    print_ranks(setup, out);
    fprintf(out, "numerics  grid of %d data x %d tensor x %d context leaves; "
                 "kernels: %s, %d threads%s\n", g->data, g->tensor,
            g->context, stage->kernels.backend, stage->request.machine.threads,
            mesh_ranks(&setup->mesh) > 1 ? " a rank" : "");
    if (stage->chosen[0] != '\0')
        fprintf(out, "device    %s (auto: %s)\n",
                device_about(stage->request.machine.device)->name,
                stage->chosen);
    print_product(&setup->request, out);
    fprintf(out, "memory    %s planned%s, recompute %s\n",
            text_bytes(bytes, pipeline->bytes),
            mesh_ranks(&setup->mesh) > 1 ? " for rank 0" : "",
            stage->recompute);
}

/* Prints when the run saves. A machine that stops loses the work since then. */
static void print_saving(const struct setup *setup, FILE *out)
{
    const struct options *o = &setup->set->values;
    const double minutes = setup_save_minutes(setup);
    const bool steps = o->checkpoint.every > 0;
    const bool any = steps || minutes > 0;

    fprintf(out, "saving    checkpoint");
    if (steps)
        fprintf(out, " every %lld steps", (long long)o->checkpoint.every);
    if (minutes > 0)
        fprintf(out, "%s every %g minutes", steps ? "," : "", minutes);
    if (o->checkpoint.at_end) fprintf(out, "%s at the end", any ? " and" : "");
    else if (!any) fprintf(out, " on a signal only");
    if (minutes == 0 && o->checkpoint.minutes > 0)
        fprintf(out, "; not by time, since the run may rewind to its newest "
                     "checkpoint");
    fprintf(out, "\n");
}

void closing_print_start(const struct setup *setup,
                         const struct pipeline *pipeline,
                         const struct feed *feed, int64_t step)
{
    char samples[32], dropped[32];

    print_model(setup, pipeline, stderr);
    fprintf(stderr, "data      %s samples an epoch (%s dropped), %lld held "
                    "out; %lld steps\n",
            text_count(samples, feed->samples),
            text_count(dropped, feed->dropped),
            (long long)feed->valid_samples, (long long)setup->rate.steps);
    if (feed->valid_samples == 0 &&
        setup->set->values.validate.sets.count == 0)
        fprintf(stderr, "notice    no validation: too few whole documents to "
                        "hold any out; name files in data.valid\n");
    print_saving(setup, stderr);
    if (step > 0)
        fprintf(stderr, "resumed   after step %lld\n", (long long)step);
}

static status plan_json(const struct setup *setup,
                        const struct pipeline *pipeline)
{
    const struct stage *stage = &pipeline->stages[0];
    struct json_writer w;
    double flops = 0;
    status result;

    json_write_begin(&w, 2);
    json_write_object(&w);
    json_write_key(&w, "parameters");
    json_write_integer(&w, setup->parameters);
    json_write_key(&w, "grid");
    json_write_object(&w);
    json_write_key(&w, "data");
    json_write_integer(&w, setup->grid.data);
    json_write_key(&w, "tensor");
    json_write_integer(&w, setup->grid.tensor);
    json_write_key(&w, "context");
    json_write_integer(&w, setup->grid.context);
    json_write_object_end(&w);
    json_write_key(&w, "exact");
    json_write_bool(&w, setup->exact);
    json_write_key(&w, "ranks");
    json_write_integer(&w, mesh_ranks(&setup->mesh));
    json_write_key(&w, "micro_batches");
    json_write_integer(&w, pipeline->schedule.microbatches);
    json_write_key(&w, "recompute");
    json_write_string(&w, stage->recompute);
    json_write_key(&w, "forward_flops");
    for (int i = 0; i < pipeline->count; i++)
        flops += program_cost(&pipeline->stages[i].program).flops;
    if (flops < 0x1p63) json_write_integer(&w, (int64_t)flops);
    else json_write_real(&w, flops);
    json_write_key(&w, "memory");
    memory_write(pipeline->memory, &w);
    json_write_key(&w, "memory_bytes");
    json_write_integer(&w, (int64_t)pipeline->bytes);
    json_write_object_end(&w);
    result = json_write_end(&w);
    if (result == OK) printf("%s\n", w.out.bytes);
    json_writer_free(&w);
    return result;
}

status closing_print_plan(const struct setup *setup,
                          const struct pipeline *pipeline, bool json)
{
    struct text text = {0};
    status result;

    if (json) return plan_json(setup, pipeline);
    print_model(setup, pipeline, stdout);
    printf("\n");
    TRY_GOTO(done, result, memory_print(pipeline->memory, &text));
    fputs(text.bytes, stdout);
done:
    text_free(&text);
    return result;
}

/* ---- the end ---- */

enum { FACTS_MAX = 13, FACT_BYTES = 96 };

struct facts {
    struct report_fact items[FACTS_MAX];
    char text[FACTS_MAX][FACT_BYTES];
    int count;
};

static void add_fact(struct facts *facts, const char *name, const char *format,
                     ...) __attribute__((format(printf, 3, 4)));

static void add_fact(struct facts *facts, const char *name, const char *format,
                     ...)
{
    va_list arguments;

    CHECK(facts->count < FACTS_MAX);
    va_start(arguments, format);
    vsnprintf(facts->text[facts->count], FACT_BYTES, format, arguments);
    va_end(arguments);
    facts->items[facts->count] =
        (struct report_fact){name, facts->text[facts->count]};
    facts->count++;
}

static void model_facts(const struct closing *c, struct facts *facts)
{
    const struct model *m = &c->setup->model;
    char number[32];

    add_fact(facts, "family", "%s", m->kind->name);
    add_fact(facts, "parameters", "%s",
             text_count(number, c->setup->parameters));
    if (m->moe.experts > 0)
        add_fact(facts, "of those that a token uses", "%s: %d of %d experts",
                 text_count(number, setup_active(c->setup)), m->moe.top_k,
                 m->moe.experts);
    if (c->setup->trained < c->setup->parameters)
        add_fact(facts, "of those that learn", "%s",
                 text_count(number, c->setup->trained));
    add_fact(facts, "layers", "%d", m->layers);
    add_fact(facts, "width", "%lld", (long long)m->width);
    add_fact(facts, "heads", "%d, %d key-value, of %d", m->heads, m->kv_heads,
             m->head_width);
    add_fact(facts, "feed-forward", "%lld", (long long)m->feed_forward);
    add_fact(facts, "vocabulary", "%lld", (long long)m->vocab);
    add_fact(facts, "head", "%s", m->tied ? "tied" : "its own");
    add_fact(facts, "grid", "%d data x %d tensor x %d context leaves%s",
             c->setup->grid.data, c->setup->grid.tensor,
             c->setup->grid.context,
             c->setup->exact ? "" : " (fast: made for this layout)");
}

static void machine_facts(const struct closing *c, struct facts *facts)
{
    char number[32], mesh[MESH_TEXT_BYTES];

    mesh_text(&c->setup->mesh, mesh, sizeof mesh);
    add_fact(facts, "ranks", "%d: %s", mesh_ranks(&c->setup->mesh), mesh);
    add_fact(facts, "kernels", "%s", c->pipeline->stages[0].kernels.backend);
    add_fact(facts, "threads", "%d",
             c->pipeline->stages[0].request.machine.threads);
    add_fact(facts, "recompute", "%s", c->pipeline->stages[0].recompute);
    add_fact(facts, "resident memory", "%s",
             text_bytes(number, (uint64_t)closing_resident_bytes()));
}

static void outcome(const struct closing *c, char *out, size_t size)
{
    if (c->result == OK)
        snprintf(out, size, "finished after %lld steps", (long long)c->step);
    else
        snprintf(out, size, "%s", status_message());
}

/* The report shows a text that the model writes without a prompt, but only if a
 * second copy of the weights is small: the plan does not know it. */
static const size_t sample_weights_max = (size_t)32 << 20;
enum { SAMPLE_TOKENS = 120 };

static status keep_sample(void *argument, const char *bytes, size_t length)
{
    return text_append(argument, bytes, length);
}

static void write_sample(const struct closing *c, struct text *out)
{
    struct generate_result made;
    const struct generate_request request = {
        .model = c->run->path, .prompt = "", .tokens = SAMPLE_TOKENS,
        .sampling = {.temperature = 0.7, .top_p = 1, .seed = 1},
        .dtype = DTYPE_F32,
        .threads = c->pipeline->stages[0].request.machine.threads,
        .write = keep_sample, .argument = out};

    if (c->result != OK || !c->text ||
        c->pipeline->memory[MEMORY_WEIGHTS].bytes > sample_weights_max)
        return;
    /* A report without a sample is better than none. */
    if (generate(&request, &made) != OK) status_clear();
}

/* RUN/profile.json. */
static status write_profile(const struct closing *c)
{
    struct json_writer writer;
    char path[PATH_BYTES];
    status result;

    if (c->profiler->profile == NULL) return OK;
    TRY(path_join(path, sizeof path, c->run->path, "profile.json"));
    json_write_begin(&writer, 1);
    profile_write(c->profiler->profile, &writer);
    TRY_GOTO(done, result, json_write_end(&writer));
    TRY_GOTO(done, result, file_write_atomic(path, writer.out.bytes,
                                             writer.out.length));
done:
    json_writer_free(&writer);
    return result;
}

static status write_report(const struct closing *c)
{
    struct report_memory memory[MEMORY_OWNERS];
    struct text sample = {0}, picture = {0};
    status result;
    struct facts model = {.count = 0}, machine = {.count = 0};
    char text[512], layers[PATH_BYTES];
    int rows = 0;

    TRY(path_join(layers, sizeof layers, c->run->path, "layers.jsonl"));

    model_facts(c, &model);
    machine_facts(c, &machine);
    outcome(c, text, sizeof text);
    write_sample(c, &sample);
    const status drawn = memory_svg(c->pipeline, &picture);

    for (int i = 0; i < MEMORY_OWNERS; i++)
        if (c->pipeline->memory[i].bytes > 0)
            memory[rows++] = (struct report_memory){
                c->pipeline->memory[i].name,
                (int64_t)c->pipeline->memory[i].bytes};
    const struct report_input input = {
        .title = c->run->path, .metrics_path = c->run->metrics,
        .samples_path = c->run->samples,
        .run = c->run->path,
        .layers_path = layers,
        .outcome = text, .exit_code = status_exit_code(c->result),
        .steps_planned = c->setup->rate.steps, .vocab = c->setup->model.vocab,
        .model = model.items, .model_count = model.count,
        .machine = machine.items, .machine_count = machine.count,
        .memory = memory, .memory_count = rows,
        .memory_picture = picture.bytes, .options = c->setup->set,
        .profile = c->profiler->profile, .rank_kinds = c->profiler->kinds,
        .prediction = c->prediction, .ranks = c->profiler->ranks,
        .prompt = "", .sample = sample.bytes};

    result = drawn == OK ? report_write(&input, c->run->report) : drawn;
    if (result == OK)
        result = observe_sample(c->observer, c->step, "samples",
                                sample.bytes);
    if (result == OK) result = write_profile(c);
    text_free(&sample);
    text_free(&picture);
    return result;
}

static status print_json(const struct closing *c)
{
    struct json_writer writer;
    status result;

    json_write_begin(&writer, 0);
    json_write_object(&writer);
    json_write_key(&writer, "run");
    json_write_string(&writer, c->run->path);
    json_write_key(&writer, "step");
    json_write_integer(&writer, c->step);
    json_write_key(&writer, "report");
    json_write_string(&writer, c->run->report);
    json_write_object_end(&writer);
    result = json_write_end(&writer);
    if (result == OK) printf("%s\n", writer.out.bytes);
    json_writer_free(&writer);
    return result;
}

static void print_prediction(const struct report_prediction *p)
{
    if (p->steps == 0) return;
    fprintf(stderr, "predicted %.4g ms a step by %s; measured %.4g ms, the "
                    "mean of %lld: %+.1f%%\n", p->predicted_ms, p->machine,
            p->measured_ms, (long long)p->steps,
            100 * (p->predicted_ms / p->measured_ms - 1));
    if (p->noise[0] != 0) fprintf(stderr, "noisy     %s\n", p->noise);
    for (int i = 0; i < p->count; i++)
        fprintf(stderr, "%s instruction %d, %s: %.4g ms measured, %.4g "
                        "predicted\n", i == 0 ? "differs  " : "         ",
                p->items[i].instruction, p->items[i].what,
                p->items[i].measured_ms, p->items[i].predicted_ms);
    for (int i = 0; i < p->cause_count; i++)
        fprintf(stderr, "%s %s: %.4g ms measured, %.4g predicted\n",
                i == 0 ? "by cause " : "         ", p->causes[i].name,
                p->causes[i].measured_ms, p->causes[i].predicted_ms);
}

status closing_report(const struct closing *closing)
{
    const char *local = closing->setup->set->values.checkpoint.local;
    const status result = write_report(closing);

    if (closing->prediction != NULL) print_prediction(closing->prediction);
    if (closing->result != OK) return OK; /* its own trace stands */
    TRY(result);
    if (closing->json) return print_json(closing);
    printf("finished %lld steps; checkpoints in %s, report in %s\n",
           (long long)closing->step,
           local[0] != '\0' ? local : closing->run->checkpoints,
           closing->run->report);
    return OK;
}
