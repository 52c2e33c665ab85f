/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - the plan of a configuration: everything that is decided before the
 * first step, printed from the objects that the trainer runs. */
#include <string.h>
#include "cli/config.h"
#include "cli/plan_mesh.h"
#include "cli/plan_experts.h"
#include "cli/plan_precision.h"
#include "cli/plan_ramp.h"
#include "cli/plan_step.h"
#include "cli/plan_time.h"
#include "cli/plan_zero.h"
#include "cli/run.h"
#include "cli/table.h"
#include "kernels/cuda_about.h"
#include "plan/explain.h"
#include "schedule/schedule.h"
#include "train/auto_mesh.h"
#include "train/checks.h"
#include "train/largest_rank.h"
#include "report/memory_draw.h"
#include "setup/setup.h"
#include "setup/suggest.h"
#include "tokenizer/run_tokenizer.h"

enum { PLANNED_MOST = 1 << 16 /* ranks */ };

struct planned {
    struct options_set set;
    struct run_tokenizer tokenizer;
    struct setup setup;
    struct draft draft;    /* of the rank that was asked for */
    int rank;
    const char *after;     /* --explain step: the last pass */
    const char *picture;
};

static void planned_free(struct planned *planned)
{
    draft_free(&planned->draft);
    setup_free(&planned->setup);
    run_tokenizer_free(&planned->tokenizer);
    options_free(&planned->set);
}

static status planned_build(struct planned *planned,
                            struct arguments *arguments)
{
    const struct options *o = &planned->set.values;
    int64_t ranks = 1, rank = 0, step = 0;

    TRY(arguments_integer(arguments, "ranks", 1, PLANNED_MOST, &ranks));
    TRY(arguments_integer(arguments, "rank", 0, ranks - 1, &rank));
    TRY(arguments_integer(arguments, "step", 1, INT64_MAX, &step));
    planned->rank = (int)rank;
    planned->after = arguments_text(arguments, "after", NULL);
    planned->picture = arguments_text(arguments, "draw", NULL);
    TRY(config_read(&planned->set, arguments->operands[0], arguments));
    TRY(auto_mesh_choose(&(struct auto_mesh){
        .set = &planned->set, .ranks = (int)ranks, .nodes = 1}));
    TRY(run_tokenizer_read(&planned->tokenizer, o));
    TRY(setup_resolve_or_suggest(&planned->setup, &planned->set,
                                 &planned->tokenizer.vocabulary, (int)ranks,
                                 (int)rank));
    /* Epochs need the data, which a plan does not read. */
    TRY(setup_check_length(o));
    if (o->train.epochs <= 0) TRY(setup_length(&planned->setup, 0));
    TRY(checks_run(&planned->setup,
                   run_tokenizer_of(&planned->tokenizer)));
    checks_note_schedule(&planned->setup);
    checks_note_warmup(o->optimizer.warmup, planned->setup.rate.steps);
    checks_note_decay(&planned->setup);
    checks_note_missing(o);
    TRY(plan_ramp_choose(&planned->setup, step));
    return draft_build(&planned->draft, &planned->setup, (int)rank);
}

/* Ranks differ: first and last stages have tables, shards are not equal. */
static status largest_row(struct planned *planned, struct table *table)
{
    struct largest largest;
    char unit[96], bytes[32];

    if (mesh_ranks(&planned->setup.mesh) == 1) return OK;
    TRY(largest_rank(&planned->setup, planned->rank,
                     planned->draft.pipeline.bytes, &largest));
    table_text(table, "memory of the largest rank");
    table_bytes(table, (int64_t)largest.bytes);
    snprintf(unit, sizeof unit, "rank %d: %s bytes", largest.rank,
             text_count(bytes, (int64_t)largest.bytes));
    table_text(table, unit);
    return OK;
}

static void costs(struct table *table, size_t memory, bool ramped,
                  double flops)
{
    char unit[96], bytes[32];

    table_text(table, "memory");
    table_bytes(table, (int64_t)memory);
    snprintf(unit, sizeof unit, "the rank: %s bytes%s",
             text_count(bytes, (int64_t)memory),
             ramped ? ", room for every batch" : "");
    table_text(table, unit);
    table_text(table, "work of a step");
    table_amount(table, flops);
    table_text(table, "FLOP, the rank");
}

/* Memory of the GPU that is not the run's. */
static void foreign(struct table *table)
{
    const size_t bytes = cuda_foreign();

    table_text(table, "foreign memory");
    if (bytes > 0) table_bytes(table, (int64_t)bytes);
    else table_text(table, "unknown");
    table_text(table, bytes > 0
                          ? "not planned: the GPU's context and the kernels"
                          : "not planned: the GPU's context and the kernels; "
                            "NVML on a GPU knows");
}

/* The driver tells the memory of a graph only after it is made. */
static void foreign_graphs(struct table *table)
{
    table_text(table, "foreign memory of graphs");
    table_text(table, "unknown");
    table_text(table, "not planned: the driver's, for device_graphs; the log "
                      "of a run says it");
}

/* Rows of the summary, for people and for programs. */
static status summary(struct planned *planned, struct table *table)
{
    static const struct table_column columns[] = {
        {"what", "what", false}, {"value", "value", true},
        {"unit", "unit", false}};
    const struct stage *stage = &planned->draft.pipeline.stages[0];
    const struct setup *setup = &planned->setup;
    const struct stage_request *r = &stage->request;
    const int64_t micro_batches =
        (int64_t)setup->schedule.microbatches * stage_repeats(stage);
    const bool ramped = ramp_changes(&setup->ramp);
    const struct pipeline *pipeline = &planned->draft.pipeline;
    int64_t parameters = 0;
    double flops = 0;
    char mesh[MESH_TEXT_BYTES];

    for (int i = 0; i < pipeline->count; i++) {
        const struct program *p = &pipeline->stages[i].program;

        parameters += p->params.parameters;
        flops += program_training_flops(p);
    }
    const struct {
        const char *what;
        int64_t value;
        const char *unit;
    } rows[] = {
        {"parameters", setup->parameters, ""},
        {"parameters that a token uses", setup_active(setup), ""},
        {"parameters that learn", setup->trained, ""},
        {"parameters of the rank", parameters, ""},
        {"steps", setup->rate.steps,
         setup->rate.steps > 0 ? "" : "decided by the data"},
        {"batches of the ramp", ramped ? setup->ramp.count : 0,
         "in turn: --explain ramp"},
        {"tokens of a step", setup->batch * r->size.length, "tokens"},
        {"micro-batches of a step", micro_batches, "each rank"},
        {"tokens of a micro-batch", r->size.micro_batch * r->size.length,
         "tokens"},
        {"leaves: data", setup->grid.data, ""},
        {"leaves: tensor", setup->grid.tensor, ""},
        {"leaves: context", setup->grid.context, ""},
        {"logits at once", stage->program.size.logits_chunk, "tokens"},
        {"threads", r->machine.threads, "each rank"},
    };

    table_begin(table, columns, 3);
    table_text(table, "model");
    table_text(table, planned->setup.model.kind->name);
    table_text(table, "");
    mesh_text(&setup->mesh, mesh, sizeof mesh);
    table_text(table, "ranks");
    table_text(table, mesh);
    table_text(table, setup->exact ? "exact" : "fast: bits show the layout");
    table_text(table, "recomputed");
    table_text(table, stage->recompute);
    table_text(table, "");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!ramped && strncmp(rows[i].what, "batches", 7) == 0) continue;
        table_text(table, rows[i].what);
        table_integer(table, rows[i].value);
        table_text(table, rows[i].unit);
    }
    costs(table, pipeline->bytes, ramped, flops * (double)micro_batches);
    if (r->machine.device == DEVICE_CUDA) foreign(table);
    if (r->machine.device == DEVICE_CUDA && r->machine.graphs)
        foreign_graphs(table);
    return largest_row(planned, table);
}

static status parameters(struct planned *planned, struct table *table)
{
    static const struct table_column columns[] = {
        {"parameter", "name", false},  {"rows", "rows", true},
        {"cols", "cols", true},        {"elements", "elements", true},
        {"offset", "offset", true},    {"uses", "uses", true},
        {"optimizer", "optimizer", false}, {"rate x", "rate_factor", true},
        {"frozen", "frozen", false}};
    const struct pipeline *pipeline = &planned->draft.pipeline;

    table_begin(table, columns, 9);
    for (int s = 0; s < pipeline->count; s++) {
        const struct param_table *params =
            &pipeline->stages[s].program.params;
        const struct optimizer_rule *rules = pipeline->stages[s].states.rules;

        for (int i = 0; i < params->count; i++) {
            table_text(table, params->items[i].name);
            table_integer(table, params->items[i].spec.rows);
            table_integer(table, params->items[i].spec.cols);
            table_integer(table, params->items[i].elements);
            table_integer(table, params->items[i].offset);
            table_integer(table, params->items[i].uses);
            table_text(table, rules[i].kind->name);
            table_real(table, rules[i].lr, 4);
            table_bool(table, rules[i].frozen);
        }
    }
    return OK;
}

static void slot_cell(struct table *table, slot which)
{
    char name[16];

    snprintf(name, sizeof name, "s%d", which);
    table_text(table, which >= 0 ? name : NULL);
}

static void program_row(const struct program *p, int index,
                        struct table *table)
{
    const struct step *step = &p->steps[index];
    const struct step_cost cost = step->layer->cost(step, p);
    const bool writes = step->output >= 0;

    table_integer(table, p->slice.first_step + index);
    table_text(table, step->layer->name);
    slot_cell(table, step->output);
    table_integer(table, writes ? p->slots[step->output].width : 0);
    slot_cell(table, step->input);
    slot_cell(table, step->left);
    table_text(table, step->param[0] >= 0
                          ? p->params.items[step->param[0]].name : NULL);
    table_bool(table, writes && !p->slots[step->output].dropped);
    table_amount(table, cost.flops);
    table_bytes(table, (int64_t)cost.bytes_moved);
}

/* Slots are numbered in each stage of the rank. */
static status program(struct planned *planned, struct table *table)
{
    static const struct table_column columns[] = {
        {"step", "step", true},        {"layer", "layer", false},
        {"output", "output", false},   {"width", "width", true},
        {"input", "input", false},     {"left", "left", false},
        {"parameter", "parameter", false}, {"kept", "kept", false},
        {"FLOP", "flops", true},       {"moved", "bytes_moved", true}};
    const struct pipeline *pipeline = &planned->draft.pipeline;

    table_begin(table, columns, 10);
    for (int s = 0; s < pipeline->count; s++)
        for (int i = 0; i < pipeline->stages[s].program.step_count; i++)
            program_row(&pipeline->stages[s].program, i, table);
    return OK;
}

static status memory(struct planned *planned, struct table *table)
{
    static const struct table_column columns[] = {
        {"buffer", "name", false}, {"life", "life", false},
        {"bytes", "bytes", true},  {"", "share", true}};
    const struct pipeline *pipeline = &planned->draft.pipeline;

    table_begin(table, columns, 4);
    for (int i = 0; i < MEMORY_OWNERS; i++) {
        const struct memory_row *row = &pipeline->memory[i];

        if (row->bytes == 0) continue;
        table_text(table, row->name);
        table_text(table, row->life);
        table_integer(table, (int64_t)row->bytes);
        table_bytes(table, (int64_t)row->bytes);
    }
    table_text(table, "total");
    table_text(table, "");
    table_integer(table, (int64_t)pipeline->bytes);
    table_bytes(table, (int64_t)pipeline->bytes);
    return OK;
}

static status schedule(struct planned *planned, struct table *table)
{
    static const struct table_column columns[] = {
        {"rank", "rank", true}, {"order", "order", true},
        {"action", "action", false}, {"stage", "stage", true},
        {"micro-batch", "micro_batch", true}};
    static const char *const kinds[ACTION_KIND_COUNT] = {
        "forward", "backward input", "backward weight", "send forward",
        "receive forward", "send backward", "receive backward"};
    const struct schedule *s = &planned->setup.schedule;

    TRY(schedule_verify(s));
    table_begin(table, columns, 5);
    for (int rank = 0; rank < s->ranks; rank++) {
        for (int i = 0; i < s->lists[rank].count; i++) {
            const struct action action = s->lists[rank].items[i];

            table_integer(table, rank);
            table_integer(table, i);
            table_text(table, kinds[action.kind]);
            table_integer(table, action.stage);
            table_integer(table, action.microbatch);
        }
    }
    return OK;
}

static status numerics(struct planned *planned, struct table *table)
{
    static const struct table_column columns[] = {
        {"sum", "sum", false}, {"leaves", "leaves", true},
        {"one leaf", "leaf", false}};
    const struct stage_request *r = &planned->draft.pipeline.stages[0].request;
    const struct model *m = &planned->setup.model;
    char leaf[96];

    table_begin(table, columns, 3);
    table_text(table, "over the global batch");
    table_integer(table, r->layout.grid.data);
    snprintf(leaf, sizeof leaf, "%lld sequences of %lld tokens",
             (long long)(r->size.batch / r->layout.grid.data),
             (long long)r->size.length);
    table_text(table, leaf);
    table_text(table, "over heads");
    table_integer(table, r->layout.grid.tensor);
    snprintf(leaf, sizeof leaf, "%d heads of %d",
             m->heads / r->layout.grid.tensor,
             m->head_width);
    table_text(table, leaf);
    table_text(table, "over the feed-forward width");
    table_integer(table, r->layout.grid.tensor);
    snprintf(leaf, sizeof leaf, "%lld columns",
             (long long)(m->feed_forward / r->layout.grid.tensor));
    table_text(table, leaf);
    table_text(table, "over the vocabulary");
    table_integer(table, r->layout.grid.tensor);
    snprintf(leaf, sizeof leaf, "%lld tokens",
             (long long)((m->vocab + r->layout.grid.tensor - 1) /
                         r->layout.grid.tensor));
    table_text(table, leaf);
    return OK;
}

static status ramp(struct planned *planned, struct table *table)
{
    return plan_ramp(&planned->setup, planned->rank, table);
}

static status step(struct planned *planned, struct table *table)
{
    const struct plan_step_request request = {
        &planned->draft, &planned->setup, planned->rank, planned->after,
        planned->picture};

    return plan_step(&request, table);
}

static status precision(struct planned *planned, struct table *table)
{
    return plan_precision(&planned->draft.pipeline, table);
}

static status experts(struct planned *planned, struct table *table)
{
    return plan_experts(&planned->setup, &planned->draft.pipeline.stages[0],
                        table);
}

static status zero(struct planned *planned, struct table *table)
{
    return plan_zero(&planned->setup, planned->rank, table);
}

static const struct {
    const char *name;
    status (*fill)(struct planned *planned, struct table *table);
    bool rows; /* people read the rows too */
} views[] = {{"summary", summary, true},    {"parameters", parameters, false},
             {"program", program, false},   {"memory", memory, false},
             {"schedule", schedule, false}, {"numerics", numerics, false},
             {"precision", precision, true}, {"ramp", ramp, true},
             {"experts", experts, true},    {"zero", zero, true},
             {"mesh", NULL, false},         {"step", step, true}};
enum { VIEWS = (int)(sizeof views / sizeof *views) };

/* The text for people says more than rows can: plan/explain.h. */
static status print_text(const struct pipeline *pipeline, const char *name)
{
    struct text text = {0};
    status result;

    TRY_GOTO(done, result, plan_explain(pipeline, name, &text));
    fwrite(text.bytes, 1, text.length, stdout);
done:
    text_free(&text);
    return result;
}

/* {"view": "memory", "batch": 32, "rows": [...]} */
static status print_json(const char *name, int64_t batch,
                         const struct table *table)
{
    struct json_writer writer = {0};
    status result;

    json_write_begin(&writer, 2);
    json_write_object(&writer);
    json_write_key(&writer, "view");
    json_write_string(&writer, name);
    json_write_key_integer(&writer, "batch", batch);
    json_write_key(&writer, "rows");
    TRY_GOTO(done, result, table_json(table, &writer));
    json_write_object_end(&writer);
    TRY_GOTO(done, result, json_print(&writer, stdout));
done:
    json_writer_free(&writer);
    return result;
}

static status show(struct planned *planned, int view,
                   struct arguments *arguments)
{
    const bool json = arguments_has(arguments, "json");
    const char *name = views[view].name;
    const char *picture = planned->picture;
    struct table table = {0};
    status result;

    if (!json && strcmp(name, "ramp") != 0) plan_ramp_note(&planned->setup);
    if (!json) TRY(plan_zero_warn(&planned->setup, planned->rank));
    if (!json && strcmp(name, "precision") == 0)
        plan_precision_note(&planned->draft.pipeline);
    if (views[view].fill == NULL)
        return plan_mesh(&planned->setup, json, picture);
    if (strcmp(name, "memory") == 0 && picture != NULL)
        TRY(memory_draw(&planned->draft.pipeline, picture));
    if (!json && !views[view].rows)
        return print_text(&planned->draft.pipeline, name);
    TRY_GOTO(done, result, views[view].fill(planned, &table));
    if (json)
        TRY_GOTO(done, result,
                 print_json(name, planned->setup.batch, &table));
    else
        TRY_GOTO(done, result, table_print(&table, stdout));
done:
    table_free(&table);
    return result;
}

/* Flags of a prediction say nothing about any other view. */
static status refuse_time_flags(const struct arguments *arguments)
{
    static const char *const flags[] = {"machine", "nodes", "as", "tokens",
                                        "watts", "price", "max-memory",
                                        "foreign", "offload", "copies",
                                        "replicas"};

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (arguments_has(arguments, flags[i]))
            FAIL(ERR_USAGE, "--%s goes with --time", flags[i]);
    return OK;
}

/* Nor do flags of a view about a prediction, which is of all ranks. */
static status refuse_view_flags(const struct arguments *arguments)
{
    static const char *const flags[] = {"rank", "step", "after"};

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (arguments_has(arguments, flags[i]))
            FAIL(ERR_USAGE, "--%s does not go with --time", flags[i]);
    return OK;
}

/* A picture that nobody draws would be missed late. */
static status check_picture(const struct arguments *arguments,
                            const char *view)
{
    if (!arguments_has(arguments, "draw")) return OK;
    if (strcmp(view, "mesh") != 0 && strcmp(view, "memory") != 0 &&
        strcmp(view, "step") != 0)
        FAIL(ERR_USAGE, "--draw: there is no picture of %s; give --explain "
                        "mesh, memory, step or time", view);
    return OK;
}

status command_plan(struct arguments *arguments)
{
    const char *names[VIEWS];
    struct planned planned = {0};
    int view = 0;
    status result;

    if (arguments_has(arguments, "time") ||
        strcmp(arguments_text(arguments, "explain", ""), "time") == 0) {
        TRY(refuse_view_flags(arguments));
        return plan_time(arguments);
    }
    TRY(refuse_time_flags(arguments));
    for (int i = 0; i < VIEWS; i++) names[i] = views[i].name;
    TRY(arguments_choice(arguments, "explain", names, VIEWS, &view));
    if (arguments_has(arguments, "after") && views[view].fill != step)
        FAIL(ERR_USAGE, "--after is for plan --explain step");
    TRY(check_picture(arguments, names[view]));
    result = planned_build(&planned, arguments);
    if (result == OK) result = show(&planned, view, arguments);
    planned_free(&planned);
    return result;
}
