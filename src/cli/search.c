/* SPDX-License-Identifier: Apache-2.0 */
/* search.c - `search`: the best layouts of a model on a machine, with the
 * lines that make them, and why the others lose. */
#include <string.h>
#include "base/file.h"
#include "base/meter.h"
#include "cli/config.h"
#include "cli/forecast.h"
#include "cli/pareto.h"
#include "cli/run.h"
#include "cli/table.h"
#include "planner/search.h"

enum { LINES_BYTES = 512, CHECKED_MOST = 40 };
static const int64_t check_ns = 1200000000; /* for plans to the byte */

struct hunted {
    struct forecast forecast;
    struct search search;
    struct search_request request;
    double seconds;
    int kept[TOP_MOST];     /* of search.found: those that are shown */
    int kept_count;
    bool exact[TOP_MOST];   /* their memory was planned to the byte */
    bool grid[TOP_MOST];    /* they need another numerics grid */
    char refused[256];      /* why setup refused the best one that it did */
};

/* ---- configuration lines ---- */

static const char *zero_name(int zero)
{
    static const char *const names[] = {"ddp", "zero1", "zero2", "fsdp"};

    return names[zero];
}

/* "mesh.tensor=8", ...: as --set takes them; returns how many. */
enum { SETTINGS = 16, SETTING_BYTES = 64,
       GRID_AUTO = 64 /* data leaves, when options do not say */ };
static int settings_of(const struct layout *l, bool grid,
                       char out[][SETTING_BYTES])
{
    int n = 0;

    snprintf(out[n++], SETTING_BYTES, "mesh.tensor=%d", l->tensor);
    snprintf(out[n++], SETTING_BYTES, "mesh.context=%d", l->context);
    snprintf(out[n++], SETTING_BYTES, "mesh.pipe=%d", l->pipe);
    snprintf(out[n++], SETTING_BYTES, "mesh.data=%d", l->data);
    snprintf(out[n++], SETTING_BYTES, "zero=%s", zero_name(l->zero));
    snprintf(out[n++], SETTING_BYTES, "train.micro_batch=%lld",
             (long long)l->micro_batch);
    snprintf(out[n++], SETTING_BYTES, "train.recompute=[%s]",
             recompute_names[l->recompute]);
    if (grid) {
        snprintf(out[n++], SETTING_BYTES, "numerics.grid_tensor=%d",
                 l->tensor);
        snprintf(out[n++], SETTING_BYTES, "numerics.grid_context=%d",
                 l->context);
        if (layout_sharing(l) > GRID_AUTO)
            snprintf(out[n++], SETTING_BYTES, "numerics.grid_data=%d",
                     layout_sharing(l));
    }
    if (l->pipe > 1) {
        snprintf(out[n++], SETTING_BYTES, "schedule.name=%s", l->schedule);
        if (strcmp(l->schedule, "interleaved") == 0)
            snprintf(out[n++], SETTING_BYTES, "schedule.chunks=%d", l->chunks);
    }
    return n;
}

static void yaml_of(const struct layout *l, bool grid, char *out)
{
    size_t used = (size_t)snprintf(
        out, LINES_BYTES, "zero: %s\nmesh: {tensor: %d, context: %d, pipe: "
        "%d, data: %d}\ntrain: {micro_batch: %lld, recompute: [%s]}\n",
        zero_name(l->zero), l->tensor, l->context, l->pipe, l->data,
        (long long)l->micro_batch, recompute_names[l->recompute]);

    if (grid && layout_sharing(l) > GRID_AUTO)
        used += (size_t)snprintf(out + used, LINES_BYTES - used,
                                 "numerics: {grid_tensor: %d, grid_context: "
                                 "%d, grid_data: %d}\n", l->tensor,
                                 l->context, layout_sharing(l));
    else if (grid)
        used += (size_t)snprintf(out + used, LINES_BYTES - used,
                                 "numerics: {grid_tensor: %d, grid_context: "
                                 "%d}\n", l->tensor, l->context);
    if (l->pipe == 1) return;
    used += (size_t)snprintf(out + used, LINES_BYTES - used,
                             "schedule: {name: %s", l->schedule);
    if (strcmp(l->schedule, "interleaved") == 0)
        used += (size_t)snprintf(out + used, LINES_BYTES - used,
                                 ", chunks: %d", l->chunks);
    snprintf(out + used, LINES_BYTES - used, "}\n");
}

/* ---- what Lockstep itself would take ---- */

/* Plans the candidate as the trainer would, with the numerics grid that the
 * options have or one that the layout needs. */
static status plan_with(struct hunted *h, struct forecast *f,
                        const struct layout *l, bool grid)
{
    const struct options kept = h->forecast.set.values;
    char settings[SETTINGS][SETTING_BYTES];
    const int count = settings_of(l, grid, settings);
    status result = OK;

    *f = h->forecast;
    f->exact_bytes = 0;
    f->quick = l->pipe > 4;
    f->ranks = layout_ranks(l);
    for (int i = 0; i < count && result == OK; i++)
        result = options_assign(&f->set, settings[i], ORIGIN_COMMAND_LINE);
    if (result == OK) result = forecast_exactly(f);
    h->forecast.set = f->set; /* its arena may have grown */
    h->forecast.set.values = kept;
    return result;
}

/* False: setup refuses it, or it does not fit after all. */
static bool check_exactly(struct hunted *h, struct candidate *c, bool *grid)
{
    struct forecast f;
    status result = plan_with(h, &f, &c->layout, *grid = false);

    if (result != OK && layout_ranks(&c->layout) > c->layout.pipe) {
        status_clear();
        result = plan_with(h, &f, &c->layout, *grid = true);
    }
    if (result != OK) {
        if (h->refused[0] == 0)
            snprintf(h->refused, sizeof h->refused, "%.250s",
                     status_message());
        status_clear();
        return false;
    }
    c->memory_bytes = f.exact_bytes;
    c->position = f.exact_position;
    c->prediction.memory_bytes = f.exact_bytes;
    return f.exact_bytes <= h->request.max_memory;
}

/* The best that fit, planned to the byte as far as the time allows. */
static void keep_best(struct hunted *h)
{
    const int64_t until = meter_now_ns() + check_ns;
    int checked = 0;

    for (int i = 0; i < h->search.count && h->kept_count < h->request.top;
         i++) {
        struct candidate *c = &h->search.found[i];
        const bool exactly = h->request.as == AS_LOCKSTEP &&
                             checked < CHECKED_MOST &&
                             (h->kept_count == 0 || meter_now_ns() < until);

        bool grid = false;

        if (!c->timed || c->prediction.step_s > 1e299) continue;
        if (exactly) {
            checked++;
            if (!check_exactly(h, c, &grid)) continue;
        }
        h->exact[h->kept_count] = exactly;
        h->grid[h->kept_count] = grid;
        h->kept[h->kept_count++] = i;
    }
}

/* ---- output ---- */

static void write_best(const struct hunted *h, int i, struct json_writer *w)
{
    const struct candidate *c = &h->search.found[h->kept[i]];
    char settings[SETTINGS][SETTING_BYTES], yaml[LINES_BYTES];
    const int count = settings_of(&c->layout, h->grid[i], settings);

    json_write_object(w);
    json_write_key_integer(w, "ranks", layout_ranks(&c->layout));
    json_write_key_real(w, "step_s", c->prediction.step_s);
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
    json_write_array_end(w);
    yaml_of(&c->layout, h->grid[i], yaml);
    json_write_key_text(w, "config", yaml);
    json_write_object_end(w);
}

static void write_rejected(const struct hunted *h, struct json_writer *w)
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
static int tell_neighbours(const struct hunted *h, bool axes, int told,
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
static void why(const struct hunted *h, char *out, size_t size)
{
    int told;

    out[0] = 0;
    told = tell_neighbours(h, true, 0, out, size);
    tell_neighbours(h, false, told, out, size);
}

static status print_json(const struct hunted *h)
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
    json_write_object_end(&w);
    return json_print(&w, stdout);
}

static status print_table(const struct hunted *h)
{
    static const struct table_column columns[] = {
        {"", "place", true}, {"step, s", "step_s", true},
        {"MFU %", "mfu", true}, {"bubble %", "bubble", true},
        {"memory", "memory_bytes", true}, {"layout", "layout", false},
        {"schedule", "schedule", false}};
    struct table t = {0};
    status result;

    table_begin(&t, columns, 7);
    for (int i = 0; i < h->kept_count; i++) {
        const struct candidate *c = &h->search.found[h->kept[i]];
        char text[160], schedule[48];

        table_integer(&t, i + 1);
        table_real(&t, c->prediction.step_s, 4);
        table_real(&t, 100 * c->prediction.mfu, 3);
        table_real(&t, 100 * c->prediction.bubble_rate, 3);
        table_bytes(&t, (int64_t)c->memory_bytes);
        table_text(&t, layout_text(&c->layout, text, sizeof text));
        snprintf(schedule, sizeof schedule, "%s%s", c->layout.schedule,
                 c->layout.chunks > 2 ? ", 4 chunks" : "");
        table_text(&t, c->layout.pipe > 1 ? schedule : "");
    }
    result = table_print(&t, stdout);
    table_free(&t);
    return result;
}

static status print_text(const struct hunted *h)
{
    char lines[LINES_BYTES], sentence[900];

    printf("%lld candidates, %lld fit, %lld timed, %.3f s: %.0f candidates "
           "a second\n\n", (long long)h->search.candidates,
           (long long)h->search.feasible, (long long)h->search.timed,
           h->seconds, (double)h->search.candidates / h->seconds);
    if (h->kept_count > 0) {
        TRY(print_table(h));
        yaml_of(&h->search.found[h->kept[0]].layout, h->grid[0], lines);
        why(h, sentence, sizeof sentence);
        printf("\nThe first one, as lines of a configuration:\n\n%s", lines);
        if (sentence[0] != 0) printf("\nWhy: %s.\n", sentence);
    }
    if (h->refused[0] != 0) printf("\nnote: a layout was refused: %s\n",
                                   h->refused);
    printf("\nAll values of each choice:\n");
    for (int i = 0; i < h->search.family_count; i++) {
        const struct family *f = &h->search.families[i];
        char reason[200];

        search_reason(&h->search, f, &h->request, reason, sizeof reason);
        printf("  %-18s %6lld of %6lld fit: %s\n", f->name,
               (long long)f->feasible, (long long)f->candidates, reason);
    }
    return OK;
}

static status nothing_fits(const struct hunted *h)
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
    if (h->search.feasible > 0)
        FAIL(ERR_FIT, "no layout of %lld that fit was accepted: %s",
             (long long)h->search.feasible, h->refused);
    if (nearest == NULL)
        FAIL(ERR_FIT, "no layout divides this model and batch among %d ranks",
             h->request.ranks);
    code = status_fail(ERR_FIT, __FILE__, __LINE__,
                       "none of %lld layouts fits: the nearest is %s over",
                       (long long)h->search.candidates,
                       text_bytes(bytes, (uint64_t)nearest->least_over));
    return status_hint(code, "more ranks, a smaller train.batch, or "
                             "--max-memory");
}

static status hunt(struct hunted *h, struct arguments *arguments)
{
    const char *picture = arguments_text(arguments, "draw", NULL);
    struct forecast *f = &h->forecast;
    int objective = OBJECTIVE_TIME;
    int64_t top = 10, began;

    TRY(arguments_choice(arguments, "objective", objective_names, OBJECTIVES,
                         &objective));
    TRY(arguments_integer(arguments, "top", 1, TOP_MOST, &top));
    TRY(forecast_open(f, arguments));
    h->request = (struct search_request){
        .machine = &f->machine, .shape = &f->shape, .as = f->as,
        .ranks = f->ranks, .batch = f->set.values.train.batch,
        .bits = strncmp(f->set.values.train.dtype, "float32", 7) == 0 ||
                strncmp(f->set.values.train.dtype, "float64", 7) == 0
                    ? 32 : 16,
        .max_memory = f->max_memory > 0 ? f->max_memory
                                        : f->machine.value[M_MEMORY_BYTES],
        .objective = (enum objective)objective, .top = (int)top};
    h->request.per_node = f->nodes > 0 ? f->ranks / f->nodes
                                       : (int)f->machine.value[M_DEVICES];
    if (h->request.per_node > f->ranks) h->request.per_node = f->ranks;
    began = meter_now_ns();
    TRY(search_run(&h->search, &h->request));
    keep_best(h);
    h->seconds = 1e-9 * (double)(meter_now_ns() - began + 1);
    if (picture != NULL) TRY(pareto_draw(&h->search, &h->request, picture));
    if (arguments_has(arguments, "json")) TRY(print_json(h));
    else TRY(print_text(h));
    return h->kept_count > 0 ? OK : nothing_fits(h);
}

status command_search(struct arguments *arguments)
{
    struct hunted h = {.kept_count = 0};
    const status result = hunt(&h, arguments);

    search_free(&h.search);
    forecast_free(&h.forecast);
    return result;
}
