/* SPDX-License-Identifier: Apache-2.0 */
/* mup.c - the coordinate check: what training does to activations at several
 * widths, with and without muP. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/config.h"
#include "cli/run.h"
#include "cli/table.h"
#include "proof/coordinates.h"

enum { WIDTHS_MAX = 8, WIDTH_MOST = 1 << 20, STEPS_MOST = 1000 };

static const char *const titles[2] = {"standard", "muP"};

struct checking {
    struct arguments *arguments;
    int64_t base, steps;
    double widths[WIDTHS_MAX];
    int count;
    struct coordinates items[2][WIDTHS_MAX]; /* standard, muP */
    char cache[PATH_BYTES];
};

static status read_widths(struct checking *c, const char *text)
{
    while (*text != '\0') {
        char *end;
        const long width = strtol(text, &end, 10);

        if (end == text || (*end != ',' && *end != '\0') || width < 1 ||
            width > WIDTH_MOST || c->count == WIDTHS_MAX ||
            (c->count > 0 && (double)width <= c->widths[c->count - 1]))
            FAIL(ERR_USAGE, "--widths: %.60s is not a list of at most %d "
                            "growing widths up to %d, such as 64,128,256", text,
                 WIDTHS_MAX, WIDTH_MOST);
        c->widths[c->count++] = (double)width;
        text = end + (*end == ',');
    }
    if (c->count < 2)
        FAIL(ERR_USAGE, "--widths: expected two widths or more");
    return OK;
}

static status assign(struct options_set *set, const char *name, int64_t value)
{
    char text[96];

    snprintf(text, sizeof text, "%s=%lld", name, (long long)value);
    return options_assign(set, text, ORIGIN_COMMAND_LINE);
}

/* Scales a size that grows with the width; 0 stays, because it follows from the
 * width. */
static status scale(struct options_set *set, const char *name, int64_t now,
                    int64_t from, int64_t to)
{
    if (now <= 0) return OK;
    if (now * to % from != 0)
        FAIL(ERR_CONFIG, "%s: %lld at width %lld would be %.4g at width %lld; "
                         "choose widths that are multiples", name,
             (long long)now, (long long)from,
             (double)now * (double)to / (double)from, (long long)to);
    return assign(set, name, now * to / from);
}

/* The same model at another width: more heads, none wider. */
static status set_width(struct checking *c, struct options_set *set,
                        int64_t width, bool mup)
{
    const struct options model = set->values;
    const int64_t from = model.model.width;

    if (model.model.from[0] != '\0')
        FAIL(ERR_CONFIG, "model.from: the widths of a coordinate check are "
                         "options; describe the model by model.width and the "
                         "like");
    if (model.model.head_width == 0)
        TRY(assign(set, "model.head_width", from / model.model.heads));
    TRY(scale(set, "model.heads", model.model.heads, from, width));
    TRY(scale(set, "model.kv_heads", model.model.kv_heads, from, width));
    TRY(scale(set, "model.feed_forward", model.model.feed_forward, from,
              width));
    TRY(scale(set, "moe.intermediate_size", model.moe.intermediate_size, from,
              width));
    TRY(scale(set, "moe.shared_intermediate_size",
              model.moe.shared_intermediate_size, from, width));
    TRY(scale(set, "mla.rank", model.mla.rank, from, width));
    TRY(scale(set, "mla.query_rank", model.mla.query_rank, from, width));
    TRY(assign(set, "model.width", width));
    TRY(assign(set, "model.mup_base_width", mup ? c->base : 0));
    TRY(assign(set, "train.steps", c->steps));
    TRY(assign(set, "optimizer.warmup", 0));
    TRY(options_assign(set, "train.tokens=0", ORIGIN_COMMAND_LINE));
    TRY(options_assign(set, "train.epochs=0", ORIGIN_COMMAND_LINE));
    return options_assign(set, "optimizer.schedule=constant",
                          ORIGIN_COMMAND_LINE);
}

/* One rank measures, whatever layout the run has: it makes the same numbers. */
static status use_one_rank(struct options_set *set)
{
    static const char *const settings[] = {
        "mesh.data=1", "mesh.shard=1", "mesh.context=1", "mesh.tensor=1",
        "mesh.expert=1", "mesh.expert_tensor=0", "mesh.expert_context=false",
        "mesh.pipe=1", "mesh.node=0", "mesh.layers=[]", "mesh.layout=given",
        "schedule.name=1f1b", "schedule.chunks=0", "zero=ddp"};

    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        TRY(options_assign(set, settings[i], ORIGIN_COMMAND_LINE));
    return OK;
}

static status measure(struct checking *c, int index, bool mup)
{
    struct options_set set = {0};
    char cache[PATH_BYTES + 16];
    status result;

    TRY_GOTO(done, result, config_read(&set, c->arguments->operands[0],
                                       c->arguments));
    TRY_GOTO(done, result, use_one_rank(&set));
    if (c->base == 0)
        c->base = set.values.model.mup_base_width > 0
                      ? set.values.model.mup_base_width
                      : (int64_t)c->widths[0];
    TRY_GOTO(done, result, set_width(c, &set, (int64_t)c->widths[index],
                                     mup));
    if (set.values.data.cache[0] == '\0') {
        snprintf(cache, sizeof cache, "data.cache=%s", c->cache);
        TRY_GOTO(done, result, options_assign(&set, cache,
                                              ORIGIN_COMMAND_LINE));
    }
    fprintf(stderr, "width %g, %s ...\n", c->widths[index], titles[mup]);
    result = coordinates_measure(&c->items[mup][index], &set, c->steps);
done:
    options_free(&set);
    return result;
}

/* ---- what comes out ---- */

static double slope(const struct checking *c, int mup, int index)
{
    double changes[WIDTHS_MAX];

    for (int w = 0; w < c->count; w++)
        changes[w] = c->items[mup][w].changes[index];
    return coordinates_slope(c->widths, changes, c->count);
}

/* The activation that grows fastest. */
static int steepest(const struct checking *c, int mup)
{
    int most = 0;

    for (int i = 1; i < c->items[mup][0].count; i++)
        if (slope(c, mup, i) > slope(c, mup, most)) most = i;
    return most;
}

static void fill(const struct checking *c, struct table *table, bool json)
{
    static const struct table_column columns[] = {
        {"parametrisation", "parametrisation", false},
        {"activation", "activation", false},
        {"smallest width: size", "size_first", true},
        {"change", "change_first", true},
        {"largest: size", "size_last", true}, {"change", "change_last", true},
        {"slope of the change", "slope", true}};
    const int last = c->count - 1, digits = json ? 17 : 3;

    table_begin(table, columns, 7);
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < c->items[p][0].count; i++) {
            table_text(table, titles[p]);
            table_text(table, c->items[p][0].names[i]);
            table_real(table, c->items[p][0].sizes[i], digits);
            table_real(table, c->items[p][0].changes[i], digits);
            table_real(table, c->items[p][last].sizes[i], digits);
            table_real(table, c->items[p][last].changes[i], digits);
            table_real(table, slope(c, p, i), digits);
        }
}

static status print_json(const struct checking *c, const struct table *table)
{
    struct json_writer w = {0};
    status result;

    json_write_begin(&w, 2);
    json_write_object(&w);
    json_write_key_integer(&w, "base_width", c->base);
    json_write_key_integer(&w, "steps", c->steps);
    for (int p = 0; p < 2; p++)
        json_write_key_real(&w, p ? "mup_steepest" : "standard_steepest",
                            slope(c, p, steepest(c, p)));
    json_write_key(&w, "rows");
    TRY_GOTO(done, result, table_json(table, &w));
    json_write_object_end(&w);
    TRY_GOTO(done, result, json_print(&w, stdout));
done:
    json_writer_free(&w);
    return result;
}

static status print(const struct checking *c)
{
    const bool json = arguments_has(c->arguments, "json");
    struct table table = {0};
    status result;

    fill(c, &table, json);
    if (json) TRY_GOTO(done, result, print_json(c, &table));
    else TRY_GOTO(done, result, table_print(&table, stdout));
    for (int p = 0; p < 2 && !json; p++)
        printf("%s: the steepest, %s, grows as the width to the power of "
               "%.2f\n", titles[p],
               c->items[p][0].names[steepest(c, p)],
               slope(c, p, steepest(c, p)));
done:
    table_free(&table);
    return result;
}

static status check(struct checking *c)
{
    const char *path = arguments_text(c->arguments, "draw", NULL);
    const struct coordinates_panel panels[2] = {{titles[0], c->items[0]},
                                                {titles[1], c->items[1]}};

    TRY(file_may_write(path));
    for (int p = 0; p < 2; p++)
        for (int w = 0; w < c->count; w++) TRY(measure(c, w, p == 1));
    if (path != NULL)
        TRY(coordinates_draw(panels, c->widths, c->count, path));
    return print(c);
}

status command_mup(struct arguments *arguments)
{
    struct checking c = {.arguments = arguments, .steps = 5};
    status result;

    TRY(read_widths(&c, arguments_text(arguments, "widths", "64,128,256")));
    TRY(arguments_integer(arguments, "steps", 1, STEPS_MOST, &c.steps));
    TRY(arguments_integer(arguments, "base", 1, WIDTH_MOST, &c.base));
    TRY(directory_make_temporary(c.cache, "mup"));
    result = check(&c);
    for (int p = 0; p < 2; p++)
        for (int w = 0; w < c.count; w++) coordinates_free(&c.items[p][w]);
    if (directory_remove(c.cache) != OK && result == OK) status_clear();
    return result;
}
