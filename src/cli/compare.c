/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c - where two models, or two runs, differ first: options, metrics,
 * tensors. */
#include <string.h>
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/compare.h"
#include "checkpoint/history.h"
#include "checkpoint/run_dir.h"
#include "cli/run.h"
#include "cli/table.h"
#include "report/compare_runs.h"

struct comparison {
    const char *names[2];
    struct model_place places[2];
    bool are_runs;
    bool has_tensors;
    struct arena arena;           /* of runs */
    struct runs_compared runs;
    struct compare_report report; /* of the tensors */
    struct table table;           /* of those that differ */
};

/* ---- what is compared ---- */

/* Two runs that are not as far: the newest step that both have saved. */
static status common_step(struct comparison *c)
{
    int64_t *steps[2] = {NULL, NULL}, found = -1;
    int counts[2] = {0, 0};
    char name[32];
    status result = OK;

    for (int i = 0; i < 2 && result == OK; i++)
        result = checkpoint_steps(c->names[i], &steps[i], &counts[i]);
    for (int i = 0; i < counts[0]; i++)
        for (int j = 0; j < counts[1]; j++)
            if (steps[0][i] == steps[1][j]) found = steps[0][i];
    memory_free(steps[0]);
    memory_free(steps[1]);
    TRY(result);
    for (int i = 0; i < 2 && found >= 0; i++) {
        char checkpoints[PATH_BYTES];

        step_name(name, found);
        TRY(path_join(checkpoints, PATH_BYTES, c->names[i], "ckpt"));
        TRY(path_join(c->places[i].directory, PATH_BYTES, checkpoints, name));
        c->places[i].step = found;
    }
    return OK;
}

static bool is_run(const char *path)
{
    struct run_dir run = {0};
    const bool is = run_dir_read(&run, path) == OK;

    if (!is) status_clear();
    run_dir_close(&run);
    return is;
}

/* Runs without a checkpoint have metrics all the same. */
static status find(struct comparison *c)
{
    c->has_tensors = true;
    for (int i = 0; i < 2; i++) {
        const status found = model_place_find(c->names[i], &c->places[i]);

        if (found == ERR_MISSING && c->are_runs) {
            status_clear();
            c->has_tensors = false;
        } else if (found != OK) {
            return status_pass(found, __FILE__, __LINE__);
        }
    }
    if (c->are_runs && c->has_tensors &&
        c->places[0].step != c->places[1].step)
        return common_step(c);
    return OK;
}

/* ---- tensors ---- */

static const struct table_column columns[] = {
    {"tensor", "tensor", false},      {"elements", "elements", true},
    {"differ", "differing", true},    {"first", "first_index", true},
    {"a", "value_a", true},           {"b", "value_b", true},
    {"at most", "max_abs_difference", true},
    {"of its largest", "max_relative_difference", true},
    {"ulp", "max_ulp", true}};

static status add_tensor(void *argument, const struct compare_report *one)
{
    struct table *table = argument;
    const double scale = one->max_scale > 0 ? one->max_scale : 1;

    table_text(table, one->name);
    table_integer(table, one->elements);
    if (one->shapes_differ) {
        for (int i = 2; i < (int)(sizeof columns / sizeof *columns); i++)
            table_text(table, NULL);
        return OK;
    }
    table_integer(table, one->count);
    table_integer(table, one->first);
    table_real(table, one->value_a, 9);
    table_real(table, one->value_b, 9);
    table_real(table, one->max_abs, 3);
    table_real(table, one->max_abs / scale, 3);
    table_integer(table, (int64_t)one->max_ulp);
    return OK;
}

static status compare_tensors(struct comparison *c)
{
    const struct compare_visit visit = {add_tensor, &c->table};

    table_free(&c->table);
    table_begin(&c->table, columns, sizeof columns / sizeof *columns);
    return weights_compare(c->places[0].directory, c->places[1].directory,
                           &c->report, &visit);
}

static status compare(struct comparison *c)
{
    enum { REMOVALS_MOST = 100 };
    status result;

    c->report.equal = true;
    if (c->are_runs)
        TRY(runs_compare(&c->runs, &c->arena, c->names[0], c->names[1]));
    if (!c->has_tensors) return OK;
    result = compare_tensors(c);
    /* A run that goes on has removed a checkpoint that was found. */
    for (int i = 0; i < REMOVALS_MOST && result != OK &&
                    (file_is_gone(c->places[0].directory) ||
                     file_is_gone(c->places[1].directory)); i++) {
        status_clear();
        TRY(find(c));
        if (!c->has_tensors) return OK;
        result = compare_tensors(c);
    }
    return result;
}

static bool is_equal(const struct comparison *c)
{
    return c->report.equal && !(c->are_runs && runs_differ(&c->runs));
}

/* ---- telling ---- */

static void write_first(struct json_writer *w, const struct compare_report *r)
{
    json_write_key_text(w, "first_only", r->first_only);
    json_write_key_text(w, "first_differing", r->name);
    if (r->name[0] == '\0') return;
    json_write_key_text(w, "shape_a", r->shape_a);
    json_write_key_text(w, "shape_b", r->shape_b);
    if (r->shapes_differ) return;
    json_write_key_integer(w, "elements", r->elements);
    json_write_key_integer(w, "elements_differing", r->count);
    json_write_key_integer(w, "first_index", r->first);
    json_write_key_real(w, "value_a", r->value_a);
    json_write_key_real(w, "value_b", r->value_b);
    json_write_key_real(w, "max_abs_difference", r->max_abs);
    json_write_key_real(w, "max_abs_b", r->max_scale);
}

static status tell_json(struct comparison *c)
{
    const struct compare_report *report = &c->report;
    struct json_writer w = {0};
    status result;

    json_write_begin(&w, 2);
    json_write_object(&w);
    json_write_key(&w, "equal");
    json_write_bool(&w, is_equal(c));
    if (c->are_runs) runs_json(&c->runs, &w);
    if (c->are_runs && c->has_tensors) {
        json_write_key_integer(&w, "step_a", c->places[0].step);
        json_write_key_integer(&w, "step_b", c->places[1].step);
    }
    json_write_key_integer(&w, "tensors", report->tensors);
    json_write_key_integer(&w, "differing", report->differing);
    json_write_key_integer(&w, "only_a", report->only_a);
    json_write_key_integer(&w, "only_b", report->only_b);
    write_first(&w, report);
    json_write_key(&w, "per_tensor");
    TRY_GOTO(done, result, table_json(&c->table, &w));
    json_write_object_end(&w);
    return json_print(&w, stdout);
done:
    json_writer_free(&w);
    return result;
}

static status tell_text(struct comparison *c, bool each)
{
    struct text text = {0};
    status result = OK;

    if (c->are_runs) TRY_GOTO(done, result, runs_describe(&c->runs, &text));
    if (c->are_runs && c->has_tensors)
        TRY_GOTO(done, result,
                 text_printf(&text, c->places[0].step == c->places[1].step
                                        ? "tensors of step %lld: "
                                        : "tensors of steps %lld and %lld: ",
                             (long long)c->places[0].step,
                             (long long)c->places[1].step));
    if (text.length > 0) fputs(text.bytes, stdout);
    text_free(&text);
    if (!c->has_tensors) {
        printf("tensors: not compared, because one run has no checkpoint\n");
        return OK;
    }
    TRY_GOTO(done, result, compare_describe(&c->report, &text));
    printf("%s\n", text.bytes);
    if (each && c->report.differing > 0)
        result = table_print(&c->table, stdout);
done:
    text_free(&text);
    return result;
}

static status tell(struct comparison *c, const struct arguments *arguments)
{
    const char *picture = arguments_text(arguments, "draw", NULL);

    if (arguments_has(arguments, "json"))
        TRY(tell_json(c));
    else
        TRY(tell_text(c, arguments_has(arguments, "tensors")));
    if (picture == NULL) return OK;
    return runs_draw(&c->runs, c->names[0], c->names[1], picture);
}

status command_compare(struct arguments *arguments)
{
    struct comparison c = {.are_runs = false};
    status result;

    arena_init(&c.arena, "comparison", 0);
    c.names[0] = arguments->operands[0];
    c.names[1] = arguments->operands[1];
    c.are_runs = is_run(c.names[0]) && is_run(c.names[1]);
    TRY_GOTO(done, result, find(&c));
    if (arguments_has(arguments, "draw") && !c.are_runs)
        FAIL_GOTO(done, result, ERR_USAGE,
                  "--draw: only runs have curves; expected two directories "
                  "of runs");
    TRY_GOTO(done, result, compare(&c));
    TRY_GOTO(done, result, tell(&c, arguments));
    if (!is_equal(&c)) result = ERR_DIFFERS;
done:
    table_free(&c.table);
    arena_free(&c.arena);
    return result;
}
