/* SPDX-License-Identifier: Apache-2.0 */
/* verify.c - the promise, proved on the user's own machine: the same few steps
 * under several layouts against one rank. */
#include <string.h>

#include "base/file.h"
#include "cli/layouts.h"
#include "cli/run.h"
#include "cli/table.h"
#include "comm/launch.h"
#include "report/overlay.h"
#include "setup/setup.h"
#include "train/checks.h"
#include "tokenizer/run_tokenizer.h"

/* The claim for a layout outside the grid, which adds in another order, or for
 * a GPU that makes products by a library, where the first row does not. Where
 * rows are rounded to 4 bits twice, numbers move by half of themselves. */
static const double CLAIM_FLOAT64 = 1e-12, CLAIM_FLOAT32 = 1e-4,
                    CLAIM_NARROW = 1e-3, CLAIM_COARSE = 5e-2;

struct verification {
    struct arguments *arguments;
    int64_t ranks, steps;
    struct layouts layouts;  /* the first is one rank */
    struct group *world;     /* of a launcher; NULL: ranks are threads */
    char cache[PATH_BYTES];
};

static bool leads(const struct verification *v)
{
    return v->world == NULL || v->world->rank == 0;
}

/* ---- one row ---- */

/* Is the layout legal? The sentence of the refusal goes to layout->reason. */
static bool possible(struct layout *layout, const struct options_set *set)
{
    struct vocabulary vocabulary;
    struct setup setup = {0};
    struct pipeline pipeline = {0};
    status result = run_vocabulary(&vocabulary, &set->values);

    if (result == OK)
        result = setup_resolve(&setup, set, &vocabulary, layout->ranks, 0);

    if (result == OK) {
        const struct pipeline_request request = setup_pipeline(&setup);

        result = pipeline_plan(&pipeline, &request);
    }
    pipeline_free(&pipeline);
    setup_free(&setup);
    if (result == OK) return true;
    snprintf(layout->reason, sizeof layout->reason, "%s", status_message());
    status_clear();
    return result != ERR_CONFIG; /* the row itself says what is wrong */
}

/* Trains. In a world the reference is trained by rank 0 alone. */
static status run_trial(struct verification *v, struct layout *layout,
                        const struct options_set *set)
{
    if (v->world == NULL)
        return trial_run(&layout->trial, set, layout->ranks, v->steps);
    if (layout == v->layouts.items)
        return comm_agree(v->world, leads(v) ? trial_run(&layout->trial, set,
                                                         1, v->steps) : OK);
    return trial_run_world(&layout->trial, set, v->world, v->steps);
}

static enum verdict judge(struct verification *v, struct layout *layout)
{
    struct layout *one = v->layouts.items;
    struct trial_difference *d = &layout->difference;

    if (layout->trial.whole.elements != one->trial.whole.elements ||
        layout->trial.whole.dtype != one->trial.whole.dtype) {
        snprintf(layout->reason, sizeof layout->reason,
                 "another model than that of one rank");
        return VERDICT_FAILED;
    }
    trial_compare(&one->trial, &layout->trial, d);
    if (layout != one) gathered_numbers_free(&layout->trial.whole);
    const bool exact =
        layout->trial.exact && layout->trial.fast == one->trial.fast;

    if (!exact)
        layout->claims = layout->trial.coarse ? CLAIM_COARSE
                         : layout->trial.narrow ||
                         layout->trial.fast != one->trial.fast ? CLAIM_NARROW
                         : one->trial.whole.dtype == DTYPE_F64
                             ? CLAIM_FLOAT64 : CLAIM_FLOAT32;
    if (d->exact) return VERDICT_EXACT;
    if (exact || !(d->loss <= layout->claims))
        return VERDICT_DIFFERS;
    if (layout->claims == CLAIM_FLOAT64 && !(d->gradients <= layout->claims &&
                                             d->weights <= layout->claims))
        return VERDICT_DIFFERS;
    return VERDICT_WITHIN;
}

/* A row that fails leaves the others their turn; in a world of processes one
 * that broke off ends them. */
static status run_layout(struct verification *v, struct layout *layout)
{
    struct options_set set = {0};
    status result;

    layout->verdict = VERDICT_REFUSED;
    TRY_GOTO(done, result,
             layout_options(layout, v->arguments, v->cache, &set));
    if (layout->reason[0] != '\0' || !possible(layout, &set)) {
        layout->illegal = true;
        if (!layout->optional) layout->verdict = VERDICT_FAILED;
        if (layout == v->layouts.items) /* the configuration itself */
            FAIL_GOTO(done, result, ERR_CONFIG, "%s", layout->reason);
        goto done;
    }
    if (leads(v)) fprintf(stderr, "%s ...\n", layout->text);
    result = run_trial(v, layout, &set);
    if (result != OK) {
        snprintf(layout->reason, sizeof layout->reason, "%s",
                 status_message());
        layout->verdict = VERDICT_FAILED;
        /* every rank says so: the world still stands */
        const bool agreed = v->world == NULL || result == ERR_VERIFY;

        if (agreed && layout != v->layouts.items) {
            status_clear();
            result = OK;
        }
    } else if (leads(v)) {
        layout->verdict = judge(v, layout);
    }
done:
    options_free(&set);
    return result;
}

/* ---- the table ---- */

static void verdict_text(const struct layout *layout, char *out, size_t size)
{
    static const char *const words[] = {
        [VERDICT_EXACT] = "EXACT", [VERDICT_WITHIN] = "holds",
        [VERDICT_DIFFERS] = "differs", [VERDICT_FAILED] = "failed"};

    snprintf(out, size, "%s", words[layout->verdict]);
}

static void add_real(struct table *table, bool ran, double value)
{
    if (ran) table_real(table, value, 3);
    else table_text(table, NULL);
}

static void add_row(struct table *table, const struct layout *layout,
                    bool json)
{
    const bool ran = layout->verdict != VERDICT_FAILED;
    char text[64];

    snprintf(text, sizeof text, "%.40s%s", layout->text,
             layout->own ? " as configured" : "");
    table_text(table, layout->own ? text : layout->text);
    table_text(table, layout->schedule[0] ? layout->schedule : NULL);
    table_text(table, layout->zero);
    snprintf(text, sizeof text, "EXACT");
    if (layout->claims > 0)
        snprintf(text, sizeof text, "%g", layout->claims);
    table_text(table, ran ? text : NULL);
    add_real(table, ran, layout->difference.loss);
    add_real(table, ran, layout->difference.gradients);
    add_real(table, ran, layout->difference.weights);
    if (ran) table_bytes(table, (int64_t)layout->trial.memory_bytes);
    else table_text(table, NULL);
    verdict_text(layout, text, sizeof text);
    if (json) table_bool(table, layout->verdict == VERDICT_EXACT);
    else table_text(table, text);
    if (!json) return;
    table_text(table, text);
    table_text(table, ran ? NULL : layout->reason);
}

static status print_rows(const struct verification *v, bool json)
{
    static const struct table_column columns[] = {
        {"layout", "layout", false}, {"schedule", "schedule", false},
        {"ZeRO", "zero", false}, {"claims", "claims", false},
        {"loss", "loss_difference", true},
        {"gradients", "gradient_difference", true},
        {"weights", "weight_difference", true},
        {"memory of a rank", "memory_bytes", true},
        {"found", "exact", false}, {"", "verdict", false},
        {"", "reason", false}};
    struct json_writer writer = {0};
    struct table table;
    status result;

    table_begin(&table, columns, json ? 11 : 9);
    for (int i = 0; i < v->layouts.count; i++)
        if (v->layouts.items[i].verdict != VERDICT_REFUSED)
            add_row(&table, &v->layouts.items[i], json);
    if (json) {
        json_write_begin(&writer, 2);
        result = table_json(&table, &writer);
        if (result == OK) result = json_print(&writer, stdout);
        else json_writer_free(&writer);
    } else {
        result = table_print(&table, stdout);
    }
    table_free(&table);
    return result;
}

/* Why rows failed, how many could not be here, and what a ramp added. */
static void print_notes(const struct verification *v)
{
    const struct trial *one = &v->layouts.items[0].trial;
    int refused = 0;

    if (one->batches > 1)
        fprintf(stderr, "train.batch_ramp: %lld steps with %d batches, each "
                        "held against its own plan of messages\n",
                (long long)one->steps, one->batches);

    checks_note_warmup(one->warmup, one->length);
    if (one->skipped > 0)
        fprintf(stderr, "%lld of %lld steps changed no weights: their "
                        "gradients overflowed float16\n",
                (long long)one->skipped, (long long)one->steps);
    for (int i = 0; i < v->layouts.count; i++) {
        const struct layout *layout = &v->layouts.items[i];

        refused += layout->verdict == VERDICT_REFUSED;
        if (layout->verdict == VERDICT_FAILED)
            fprintf(stderr, "%s: %s\n", layout->text, layout->reason);
    }
    if (refused == 0) return;
    fprintf(stderr, "%d layouts of the list do not fit this configuration and "
                    "were skipped:\n", refused);
    for (int i = 0; i < v->layouts.count; i++)
        if (v->layouts.items[i].verdict == VERDICT_REFUSED)
            fprintf(stderr, "  %s: %s\n", v->layouts.items[i].text,
                    v->layouts.items[i].reason);
}

static status draw(const struct verification *v, const char *path)
{
    const size_t rows = (size_t)v->layouts.count;
    struct overlay_curve *curves;
    char (*labels)[LAYOUT_BYTES];
    void *memory = NULL, *texts = NULL;
    int count = 0;
    status result;

    TRY(memory_take(rows, sizeof *curves, &memory));
    TRY_GOTO(done, result, memory_take(rows, sizeof *labels, &texts));
    curves = memory;
    labels = texts;
    for (int i = 0; i < v->layouts.count; i++) {
        const struct layout *layout = &v->layouts.items[i];

        if (layout->verdict > VERDICT_DIFFERS) continue;
        layout_label(layout, labels[i]);
        curves[count++] = (struct overlay_curve){labels[i],
                                                 layout->trial.losses};
    }
    result = overlay_write(curves, count, v->steps, path);
done:
    memory_free(memory);
    memory_free(texts);
    return result;
}

/* ---- the command ---- */

static status list_layouts(struct verification *v)
{
    const char *path = arguments_text(v->arguments, "layouts", NULL);
    const int ranks = v->world == NULL ? (int)v->ranks : v->world->size;

    TRY(layouts_add(&v->layouts, false, "ranks=1"));
    if (v->world == NULL && path == NULL)
        TRY(layouts_own(&v->layouts, v->arguments));
    if (path != NULL) TRY(layouts_read(&v->layouts, path));
    else TRY(layouts_usual(&v->layouts, ranks, v->world != NULL));
    for (int i = 1; v->world != NULL && i < v->layouts.count; i++)
        if (v->layouts.items[i].ranks != ranks)
            FAIL(ERR_CONFIG, "%s: the launcher started %d ranks, and a layout "
                             "must use all of them", v->layouts.items[i].text,
                 ranks);
    return OK;
}

static status verify(struct verification *v)
{
    const char *picture = arguments_text(v->arguments, "draw", NULL);
    int wrong = 0, rows = 0, illegal = 0;

    TRY(file_may_write(picture));
    TRY(list_layouts(v));
    for (int i = 0; i < v->layouts.count; i++) {
        struct layout *layout = &v->layouts.items[i];

        TRY(run_layout(v, layout));
        rows += layout->verdict != VERDICT_REFUSED;
        if (layout->verdict == VERDICT_FAILED && layout->illegal) illegal++;
        else wrong += layout->verdict == VERDICT_DIFFERS ||
                      layout->verdict == VERDICT_FAILED;
    }
    if (!leads(v)) return OK;
    TRY(print_rows(v, arguments_has(v->arguments, "json")));
    print_notes(v);
    if (rows < 2)
        FAIL(ERR_CONFIG, "no layout of the list fits this configuration: "
                         "nothing was compared");
    if (picture != NULL) TRY(draw(v, picture));
    if (wrong > 0)
        FAIL(ERR_VERIFY, "%d of %d layouts do not train what one rank trains",
             wrong, rows);
    if (illegal > 0)
        FAIL(ERR_CONFIG, "%d of %d layouts do not fit this configuration; "
                         "their rows say why. The others train what one rank "
                         "trains", illegal, rows);
    return OK;
}

/* The body of a rank: without a launcher the only one, which starts threads
 * for each layout. */
static status verify_rank(void *argument, struct group *world)
{
    struct verification v = *(struct verification *)argument;
    status result;

    v.world = world;
    result = leads(&v) ? directory_make_temporary(v.cache, "verify") : OK;
    if (world != NULL) {
        TRY(comm_agree(world, result));
        result = comm_broadcast(world, tensor_1d(v.cache, DTYPE_U8,
                                                 sizeof v.cache), 0);
    }
    TRY(result);
    result = verify(&v);
    if (world != NULL) result = comm_agree(world, result);
    if (leads(&v) && directory_remove(v.cache) != OK && result == OK)
        result = ERR_IO;
    layouts_free(&v.layouts);
    return result;
}

status command_verify(struct arguments *arguments)
{
    struct verification v = {.arguments = arguments, .ranks = 2, .steps = 5};

    TRY(run_ranks(arguments, "compare layouts with fewer ranks, whose bits "
                  "must be the same", &v.ranks));
    TRY(arguments_integer(arguments, "steps", 1, 1000, &v.steps));
    if (launch_rank() < 0) return verify_rank(&v, NULL);
    return launch_run(&(struct launch){0}, verify_rank, &v);
}
