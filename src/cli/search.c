/* SPDX-License-Identifier: Apache-2.0 */
/* search.c - `search`: the best layouts of a model on a machine, with the
 * lines that make them, and why the others lose. */
#include <string.h>
#include "base/threads.h"
#include "base/file.h"
#include "base/freed_memory.h"
#include "base/meter.h"
#include "cli/config.h"
#include "cli/forecast.h"
#include "cli/pareto.h"
#include "cli/run.h"
#include "cli/table.h"
#include "planner/search_untried.h"
#include "train/found_layouts.h"

/* ---- output ---- */

/* How its time is known. */
static const char *step_by(const struct found_layouts *h,
                           const struct candidate *c)
{
    if (h->request.as != AS_LOCKSTEP) return "stages";
    return c->walked ? "lists" : c->shorter_s > 0 ? "shorter lists" : "stages";
}

static void write_best(const struct found_layouts *h, int i,
                       struct json_writer *w)
{
    const struct candidate *c = &h->search.found[h->kept[i]];
    char settings[HUNTED_SETTINGS][HUNTED_SETTING], yaml[HUNTED_LINES];
    const int count = found_settings(&c->layout, &h->forecast.shape,
                                     h->grid[i], settings);

    json_write_object(w);
    json_write_key_integer(w, "ranks", layout_ranks(&c->layout));
    json_write_key_real(w, "step_s", c->prediction.step_s);
    json_write_key(w, "step_exact");
    json_write_bool(w, c->walked);
    json_write_key_text(w, "step_by", step_by(h, c));
    json_write_key_real(w, "tokens_per_s", c->prediction.tokens_per_s);
    json_write_key_real(w, "mfu", c->prediction.mfu);
    json_write_key_real(w, "mfu_noncausal", c->prediction.mfu_noncausal);
    json_write_key_real(w, "bubble_rate", c->prediction.bubble_rate);
    json_write_key_integer(w, "memory_bytes", (int64_t)c->memory_bytes);
    json_write_key(w, "memory_exact");
    json_write_bool(w, h->exact[i]);
    json_write_key_real(w, "network_bytes", c->prediction.sent_network);
    json_write_key(w, "set");
    json_write_array(w);
    for (int k = 0; k < count; k++) json_write_string(w, settings[k]);
    if (h->forecast.uneven && c->layout.head_blocks == 0)
        json_write_string(w, "mesh.layers=");
    json_write_array_end(w);
    found_yaml(&c->layout, &h->forecast.shape, h->grid[i], yaml);
    json_write_key_text(w, "config", yaml);
    json_write_object_end(w);
}

static void write_rejected(const struct found_layouts *h, struct json_writer *w)
{
    json_write_key(w, "rejected");
    json_write_array(w);
    for (int i = 0; i < h->search.family_count; i++) {
        const struct family *f = &h->search.families[i];
        char reason[200];

        search_reason(&h->search, f, &h->request, reason, sizeof reason);
        json_write_object(w);
        json_write_key_text(w, "family", f->name);
        json_write_key_integer(w, "candidates", f->candidates);
        json_write_key_integer(w, "feasible", f->feasible);
        json_write_key_text(w, "reason", reason);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

/* Appends how the neighbours of the best one lose: of axes, or of the rest. */
static int tell_neighbours(const struct found_layouts *h, bool axes, int told,
                           char *out, size_t size)
{
    for (int i = 0; i < h->search.family_count && told < 4; i++) {
        const struct family *f = &h->search.families[i];
        const size_t used = strlen(out);
        char reason[200];

        if (f->best < 0 || search_is_axis(f) != axes ||
            !search_beside(&h->search, f))
            continue;
        search_reason(&h->search, f, &h->request, reason, sizeof reason);
        if (strncmp(reason, "the best", 8) == 0 ||
            strncmp(reason, "its bound", 9) == 0)
            continue;
        snprintf(out + used, size - used, "%s%s is %s", told > 0 ? "; " : "",
                 f->name, reason);
        told++;
    }
    return told;
}

/* The sentence why the best one wins. */
static void why(const struct found_layouts *h, char *out, size_t size)
{
    int told;

    out[0] = 0;
    told = tell_neighbours(h, true, 0, out, size);
    tell_neighbours(h, false, told, out, size);
}

static void write_untried(const struct found_layouts *h, struct json_writer *w)
{
    char untried[UNTRIED_MOST][UNTRIED_BYTES];
    const int count = search_untried(&h->request, untried);

    json_write_key(w, "not_tried");
    json_write_array(w);
    for (int i = 0; i < count; i++) json_write_string(w, untried[i]);
    json_write_array_end(w);
}

static status print_json(const struct found_layouts *h)
{
    struct json_writer w = {0};
    char sentence[900];

    json_write_begin(&w, 2);
    json_write_object(&w);
    json_write_key_integer(&w, "version", 1);
    json_write_key_integer(&w, "candidates", h->search.candidates);
    json_write_key_integer(&w, "feasible", h->search.feasible);
    json_write_key_integer(&w, "timed", h->search.timed);
    json_write_key_real(&w, "seconds", h->seconds);
    json_write_key_real(&w, "candidates_per_s",
                        (double)h->search.candidates / h->seconds);
    json_write_key_text(&w, "objective",
                        objective_names[h->request.objective]);
    json_write_key_integer(&w, "memory_limit_bytes",
                           (int64_t)h->request.max_memory);
    json_write_key(&w, "best");
    json_write_array(&w);
    for (int i = 0; i < h->kept_count; i++) write_best(h, i, &w);
    json_write_array_end(&w);
    why(h, sentence, sizeof sentence);
    json_write_key_text(&w, "why", sentence);
    write_rejected(h, &w);
    write_untried(h, &w);
    json_write_object_end(&w);
    return json_print(&w, stdout);
}

/* The marks of the table are explained. */
static void print_ways(const struct found_layouts *h)
{
    int lists = 0, shorter = 0;

    for (int i = 0; i < h->kept_count; i++) {
        const struct candidate *c = &h->search.found[h->kept[i]];

        lists += c->walked;
        shorter += !c->walked && c->shorter_s > 0;
    }
    if (shorter > 0)
        printf("- by the executor's lists of two shorter steps: %d of %d\n",
               shorter, h->kept_count);
    if (lists + shorter < h->kept_count)
        printf("~ by whole stages, and as much longer as lists of those "
               "above took: %d of %d\n", h->kept_count - lists - shorter,
               h->kept_count);
}

static status print_table(const struct found_layouts *h)
{
    static const struct table_column columns[] = {
        {"", "place", true}, {"step, s", "step_s", true},
        {"", "about", false}, {"MFU %", "mfu", true},
        {"bubble %", "bubble", true},
        {"memory", "memory_bytes", true}, {"layout", "layout", false},
        {"schedule", "schedule", false}, {"ranks", "ranks", true}};
    const bool fewer = h->request.objective == OBJECTIVE_COST;
    struct table t = {0};
    status result;

    table_begin(&t, columns, fewer ? 9 : 8);
    for (int i = 0; i < h->kept_count; i++) {
        const struct candidate *c = &h->search.found[h->kept[i]];
        char text[160], schedule[48];

        table_integer(&t, i + 1);
        table_real(&t, c->prediction.step_s, 4);
        table_text(&t, c->walked || h->request.as != AS_LOCKSTEP ? ""
                       : c->shorter_s > 0                        ? "-"
                                                                 : "~");
        table_real(&t, 100 * c->prediction.mfu, 3);
        table_real(&t, 100 * c->prediction.bubble_rate, 3);
        table_bytes(&t, (int64_t)c->memory_bytes);
        table_text(&t, layout_text(&c->layout, text, sizeof text));
        snprintf(schedule, sizeof schedule,
                 c->layout.chunks > 2 ? "%s, %d chunks" : "%s",
                 c->layout.schedule, c->layout.chunks);
        table_text(&t, c->layout.pipe > 1 ? schedule : "");
        if (fewer) table_integer(&t, layout_ranks(&c->layout));
    }
    result = table_print(&t, stdout);
    table_free(&t);
    if (result == OK && h->request.as == AS_LOCKSTEP) print_ways(h);
    return result;
}

static status print_text(const struct found_layouts *h)
{
    char lines[HUNTED_LINES], sentence[900];
    char untried[UNTRIED_MOST][UNTRIED_BYTES];
    int count;

    printf("%lld candidates, %lld fit, %lld timed, %.3f s: %.0f candidates "
           "a second\n\n", (long long)h->search.candidates,
           (long long)h->search.feasible, (long long)h->search.timed,
           h->seconds, (double)h->search.candidates / h->seconds);
    if (h->kept_count > 0) {
        TRY(print_table(h));
        found_yaml(&h->search.found[h->kept[0]].layout, &h->forecast.shape,
                   h->grid[0], lines);
        why(h, sentence, sizeof sentence);
        printf("\nThe first one, as lines of a configuration:\n\n%s", lines);
        if (sentence[0] != 0) printf("\nWhy: %s.\n", sentence);
    }
    if (h->refused[0] != 0) printf("\nnote: a layout was refused: %s\n",
                                   h->refused);
    if (h->search.family_count > 0) printf("\nAll values of each choice:\n");
    for (int i = 0; i < h->search.family_count; i++) {
        const struct family *f = &h->search.families[i];
        char reason[200];

        search_reason(&h->search, f, &h->request, reason, sizeof reason);
        printf("  %-18s %6lld of %6lld fit: %s\n", f->name,
               (long long)f->feasible, (long long)f->candidates, reason);
    }
    count = search_untried(&h->request, untried);
    if (count > 0)
        printf("\nNot tried (ask plan --time):\n");
    for (int i = 0; i < count; i++) printf("  %s\n", untried[i]);
    return OK;
}

/* Layouts that fit by their estimate: setup refuses them, or their exact plans
 * are too large. */
static status none_accepted(const struct found_layouts *h)
{
    double least = 0;
    char bytes[32];

    for (int i = 0; i < h->search.count; i++) {
        const struct candidate *c = &h->search.found[i];
        const double over = c->memory_bytes - h->request.max_memory;

        if (c->refused && over > 0 && (least == 0 || over < least))
            least = over;
    }
    if (least > 0)
        FAIL(ERR_FIT, "%lld layouts fit by their estimate, but none of the "
                      "best when it is planned to the byte: the nearest is "
                      "%s over", (long long)h->search.feasible,
             text_bytes(bytes, (uint64_t)least));
    FAIL(ERR_FIT, "no layout of %lld that fit was accepted: %s",
         (long long)h->search.feasible, h->refused);
}

static status nothing_fits(const struct found_layouts *h)
{
    const struct family *nearest = NULL;
    char bytes[32];
    status code;

    for (int i = 0; i < h->search.family_count; i++) {
        const struct family *f = &h->search.families[i];

        if (f->least_over > 0 &&
            (nearest == NULL || f->least_over < nearest->least_over))
            nearest = f;
    }
    if (h->search.feasible > 0) return none_accepted(h);
    if (nearest == NULL)
        FAIL(ERR_FIT, "no layout divides this model and a batch of %lld "
                      "sequences among %d ranks; the nearest is --ranks %d",
             (long long)h->request.batch, h->request.ranks,
             search_nearest(&h->request));
    code = status_fail(ERR_FIT, __FILE__, __LINE__,
                       "none of %lld layouts fits: the nearest is %s over",
                       (long long)h->search.candidates,
                       text_bytes(bytes, (uint64_t)nearest->least_over));
    return status_hint(code, "more ranks, a smaller train.batch, or "
                             "--max-memory");
}

static status hunt(struct found_layouts *h, struct arguments *arguments)
{
    const char *picture = arguments_text(arguments, "draw", NULL);
    int objective = OBJECTIVE_TIME;
    int64_t top = 10;

    TRY(arguments_choice(arguments, "objective", objective_names, OBJECTIVES,
                         &objective));
    TRY(arguments_integer(arguments, "top", 1, TOP_MOST, &top));
    TRY(file_may_write(picture));
    TRY(forecast_open(&h->forecast, arguments));
    h->objective = (enum objective)objective;
    h->top = (int)top;
    freed_memory_keep();
    TRY(found_run(h));
    if (picture != NULL) TRY(pareto_draw(&h->search, &h->request, picture));
    if (arguments_has(arguments, "json")) TRY(print_json(h));
    else TRY(print_text(h));
    return h->kept_count > 0 ? OK : nothing_fits(h);
}

status command_search(struct arguments *arguments)
{
    enum { THREADS_ENOUGH = 8 };
    struct found_layouts h = {.kept_count = 0};
    const int cores = threads_cores();
    status result = threads_build(&h.pool, cores < THREADS_ENOUGH
                                               ? cores : THREADS_ENOUGH);

    if (result == OK) result = hunt(&h, arguments);
    found_free(&h);
    forecast_free(&h.forecast);
    threads_free(h.pool);
    return result;
}
