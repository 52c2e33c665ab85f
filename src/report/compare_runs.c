/* SPDX-License-Identifier: Apache-2.0 */
/* compare_runs.c - whether two runs did the same: their lines of metrics and
 * their configurations. */
#include "report/compare_runs.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/options.h"

/* ---- metrics ---- */

static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* The first metric of two lines that differs, into `out`. */
static bool find_metric(struct runs_compared *out,
                        const struct metrics_row *a,
                        const struct metrics_row *b)
{
    for (int i = 0; i < metrics_count(); i++) {
        const struct metric_about metric = metrics_about(i);
        double left = (double)NAN, right = (double)NAN;
        const bool in_a = metrics_value(a, i, &left);
        const bool in_b = metrics_value(b, i, &right);

        if (metric.clock || (in_a == in_b && same_bits(left, right)))
            continue;
        snprintf(out->metric, sizeof out->metric, "%s", metric.name);
        out->value_a = left;
        out->value_b = right;
        return true;
    }
    return false;
}

static const struct metrics_extra *extra_at(const struct metrics_row *row,
                                            int i)
{
    return i < row->extra_count ? &row->extras[i] : NULL;
}

/* Like extra_at, among those that a configuration named. */
static bool find_extra(struct runs_compared *out, const struct metrics_row *a,
                       const struct metrics_row *b)
{
    const int count =
        a->extra_count > b->extra_count ? a->extra_count : b->extra_count;

    for (int i = 0; i < count; i++) {
        const struct metrics_extra *left = extra_at(a, i);
        const struct metrics_extra *right = extra_at(b, i);
        const bool same_name = left != NULL && right != NULL &&
                               strcmp(left->name, right->name) == 0;

        if (same_name && same_bits(left->value, right->value)) continue;
        snprintf(out->metric, sizeof out->metric, "%s",
                 left != NULL ? left->name : right->name);
        out->value_a = left != NULL ? left->value : (double)NAN;
        out->value_b = right != NULL && (same_name || left == NULL)
                           ? right->value : (double)NAN;
        return true;
    }
    return false;
}

static bool rows_differ(struct runs_compared *out,
                        const struct metrics_row *a,
                        const struct metrics_row *b)
{
    if (a->kind != b->kind) {
        snprintf(out->metric, sizeof out->metric, "kind");
        out->value_a = out->value_b = (double)NAN;
        return true;
    }
    return find_metric(out, a, b) || find_extra(out, a, b);
}

static void compare_rows(struct runs_compared *out)
{
    const int64_t lines = out->a.count < out->b.count ? out->a.count
                                                      : out->b.count;
    struct runs_compared found = *out;

    for (int64_t i = 0; i < lines; i++) {
        const struct metrics_row *a = &out->a.rows[i], *b = &out->b.rows[i];
        const double apart = fabs(a->loss - b->loss);

        if (a->kind == METRICS_STEP && b->kind == METRICS_STEP &&
            a->step == b->step && apart > found.loss_difference)
            found.loss_difference = apart;
        if (!rows_differ(found.first == 0 ? &found : out, a, b)) continue;
        found.differing++;
        if (found.first != 0) continue;
        found.first = i + 1;
        found.step = a->step;
    }
    *out = found;
    if (out->first != 0 || out->a.count == out->b.count) return;
    const struct metrics_table *longer =
        out->a.count > lines ? &out->a : &out->b;

    out->metric[0] = '\0';
    out->first = lines + 1;
    out->step = longer->rows[lines].step;
}

static status compare_metrics(struct runs_compared *out, struct arena *arena,
                              const char *const runs[2])
{
    struct metrics_table *const tables[2] = {&out->a, &out->b};

    out->has_metrics = true;
    for (int i = 0; i < 2; i++) {
        char path[PATH_BYTES];

        TRY(path_join(path, sizeof path, runs[i], "metrics.jsonl"));
        out->has_metrics = out->has_metrics && file_exists(path);
        TRY(metrics_read(tables[i], arena, path));
    }
    if (out->has_metrics) compare_rows(out);
    return OK;
}

/* ---- options ---- */

static status read_options(struct options_set *set, const char *run)
{
    struct text yaml = {0};
    char path[PATH_BYTES];
    status result;

    TRY(options_init(set));
    TRY(path_join(path, sizeof path, run, "config.yaml"));
    TRY_GOTO(done, result, file_read_regular(path, (size_t)1 << 20, &yaml));
    TRY_GOTO(done, result, options_read_text(set, yaml.bytes, yaml.length,
                                             path, ORIGIN_RUN));
done:
    text_free(&yaml);
    return result;
}

static status copy_option(const struct options_set *set, const char *name,
                          struct arena *arena, const char **out)
{
    struct text value = {0};
    char *copy;
    status result;

    TRY_GOTO(done, result, options_get_text(set, name, &value));
    TRY_GOTO(done, result,
             arena_copy_text(arena, value.bytes != NULL ? value.bytes : "",
                             &copy));
    *out = copy;
done:
    text_free(&value);
    return result;
}

/* All that differ but the place of the run. */
static status compare_sets(struct runs_compared *out, struct arena *arena,
                           const struct options_set *a,
                           const struct options_set *b)
{
    const int count = options_count();
    void *memory;

    TRY(arena_take_array(arena, (size_t)count, sizeof *out->options,
                         &memory));
    out->options = memory;
    for (int i = 0; i < count; i++) {
        struct option_difference one = {.name = option_name(i)};

        if (strcmp(one.name, "run.dir") == 0) continue;
        TRY(copy_option(a, one.name, arena, &one.a));
        TRY(copy_option(b, one.name, arena, &one.b));
        if (strcmp(one.a, one.b) != 0)
            out->options[out->option_count++] = one;
    }
    return OK;
}

/* A configuration of another version of the program may not be readable; the
 * rest can be compared all the same. */
static status compare_options(struct runs_compared *out, struct arena *arena,
                              const char *const runs[2])
{
    struct options_set a = {0}, b = {0};
    status result = OK;

    if (read_options(&a, runs[0]) == OK && read_options(&b, runs[1]) == OK) {
        out->has_options = true;
        result = compare_sets(out, arena, &a, &b);
    } else {
        status_clear();
    }
    options_free(&a);
    options_free(&b);
    return result;
}

status runs_compare(struct runs_compared *out, struct arena *arena,
                    const char *run_a, const char *run_b)
{
    const char *const runs[2] = {run_a, run_b};

    *out = (struct runs_compared){.value_a = (double)NAN,
                                  .value_b = (double)NAN};
    TRY(compare_metrics(out, arena, runs));
    return compare_options(out, arena, runs);
}

/* ---- telling ---- */

static status describe_metrics(const struct runs_compared *runs,
                               struct text *out)
{
    if (!runs->has_metrics)
        return text_append_string(out, "metrics: not in both\n");
    if (runs->first == 0)
        return text_printf(out, "metrics: equal: %lld lines, every number\n",
                           (long long)runs->a.count);
    if (runs->metric[0] == '\0')
        return text_printf(out, "metrics: line %lld, of step %lld, is only in "
                                "the %s (%lld and %lld lines, equal so "
                                "far)\n",
                           (long long)runs->first, (long long)runs->step,
                           runs->a.count > runs->b.count ? "first" : "second",
                           (long long)runs->a.count,
                           (long long)runs->b.count);
    return text_printf(out, "metrics: line %lld, of step %lld, is the first "
                            "that differs: %s %.17g and %.17g; %lld lines "
                            "differ (%lld and %lld there), losses by at most "
                            "%.3g\n",
                       (long long)runs->first, (long long)runs->step,
                       runs->metric, runs->value_a, runs->value_b,
                       (long long)runs->differing, (long long)runs->a.count,
                       (long long)runs->b.count, runs->loss_difference);
}

enum { OPTIONS_TOLD = 8 };

static status describe_options(const struct runs_compared *runs,
                               struct text *out)
{
    if (!runs->has_options)
        return text_append_string(out, "options: cannot be read in both\n");
    if (runs->option_count == 0)
        return text_append_string(out, "options: equal\n");
    TRY(text_printf(out, "options: %d differ: ", runs->option_count));
    for (int i = 0; i < runs->option_count && i < OPTIONS_TOLD; i++)
        TRY(text_printf(out, "%s%s %s and %s", i > 0 ? "; " : "",
                        runs->options[i].name,
                        runs->options[i].a[0] ? runs->options[i].a : "\"\"",
                        runs->options[i].b[0] ? runs->options[i].b : "\"\""));
    if (runs->option_count > OPTIONS_TOLD)
        TRY(text_append_string(out, "; and others (--json has all)"));
    return text_append_string(out, "\n");
}

status runs_describe(const struct runs_compared *runs, struct text *out)
{
    TRY(describe_options(runs, out));
    return describe_metrics(runs, out);
}

static void write_metrics(const struct runs_compared *runs,
                          struct json_writer *w)
{
    json_write_key(w, "metrics");
    json_write_object(w);
    json_write_key(w, "compared");
    json_write_bool(w, runs->has_metrics);
    json_write_key_integer(w, "lines_a", runs->a.count);
    json_write_key_integer(w, "lines_b", runs->b.count);
    json_write_key_integer(w, "differing", runs->differing);
    if (runs->first != 0) {
        json_write_key_integer(w, "first_line", runs->first);
        json_write_key_integer(w, "step", runs->step);
        json_write_key(w, "metric");
        if (runs->metric[0] != '\0') json_write_string(w, runs->metric);
        else json_write_null(w);
        json_write_key_real(w, "value_a", runs->value_a);
        json_write_key_real(w, "value_b", runs->value_b);
        json_write_key_real(w, "max_loss_difference", runs->loss_difference);
    }
    json_write_object_end(w);
}

void runs_json(const struct runs_compared *runs, struct json_writer *w)
{
    write_metrics(runs, w);
    json_write_key(w, "options");
    if (!runs->has_options) {
        json_write_null(w);
        return;
    }
    json_write_array(w);
    for (int i = 0; i < runs->option_count; i++) {
        json_write_object(w);
        json_write_key(w, "name");
        json_write_string(w, runs->options[i].name);
        json_write_key(w, "a");
        json_write_string(w, runs->options[i].a);
        json_write_key(w, "b");
        json_write_string(w, runs->options[i].b);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}
