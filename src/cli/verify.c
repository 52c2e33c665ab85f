/* SPDX-License-Identifier: Apache-2.0 */
/* verify.c - the promise, proved on the user's own machine: the same few steps
 * under several layouts against one rank. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/config.h"
#include "cli/run.h"
#include "cli/table.h"
#include "train/overlay.h"
#include "train/trial.h"

enum { LAYOUTS_MAX = 64, LAYOUT_BYTES = 256, WORDS_MAX = 16 };

struct layout {
    char text[LAYOUT_BYTES];  /* "ranks=2 train.micro_batch=1" */
    struct trial trial;
    struct trial_difference difference;
};

struct verification {
    struct arguments *arguments;
    int64_t ranks, steps;
    struct layout layouts[LAYOUTS_MAX]; /* the first is one rank */
    int count;
    char cache[PATH_BYTES];
};

static status add_layout(struct verification *v, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static status add_layout(struct verification *v, const char *format, ...)
{
    va_list arguments;
    int length;

    if (v->count == LAYOUTS_MAX)
        FAIL(ERR_CONFIG, "more than %d layouts", (int)LAYOUTS_MAX);
    va_start(arguments, format);
    length = vsnprintf(v->layouts[v->count].text, LAYOUT_BYTES, format,
                       arguments);
    va_end(arguments);
    if (length >= LAYOUT_BYTES)
        FAIL(ERR_CONFIG, "a layout of %d characters, at most %d", length,
             LAYOUT_BYTES - 1);
    v->count++;
    return OK;
}

/* Every number of ranks up to --ranks that halves, and what must not show. */
static status usual_layouts(struct verification *v)
{
    TRY(add_layout(v, "ranks=1 train.micro_batch=1"));
    TRY(add_layout(v, "ranks=1 train.recompute=block"));
    TRY(add_layout(v, "ranks=1 train.threads=1"));
    for (int64_t ranks = 2; ranks <= v->ranks; ranks *= 2) {
        TRY(add_layout(v, "ranks=%lld", (long long)ranks));
        TRY(add_layout(v, "ranks=%lld train.micro_batch=1",
                       (long long)ranks));
        TRY(add_layout(v, "ranks=%lld train.recompute=block",
                       (long long)ranks));
    }
    return OK;
}

/* One layout a line; # begins a comment. */
static status read_layouts(struct verification *v, const char *path)
{
    struct text text = {0};
    char *rest, *line;
    status result;

    TRY_GOTO(done, result, file_read(path, (size_t)1 << 16, &text));
    rest = text.bytes;
    while ((line = strsep(&rest, "\n")) != NULL) {
        line[strcspn(line, "#")] = '\0';
        line += strspn(line, " \t");
        if (line[0] != '\0') TRY_GOTO(done, result, add_layout(v, "%s", line));
    }
done:
    text_free(&text);
    return result;
}

/* The configuration with the words of one layout. */
static status layout_options(struct verification *v, const char *layout,
                             struct options_set *set, int *ranks)
{
    char copy[LAYOUT_BYTES + PATH_BYTES], *rest = copy, *word, *end;

    TRY(config_read(set, v->arguments->operands[0], v->arguments));
    snprintf(copy, sizeof copy, "data.cache=%s", v->cache);
    if (set->values.data.cache[0] == 0)
        TRY(options_assign(set, copy, ORIGIN_DEFAULT));
    if (arguments_has(v->arguments, "dtype")) {
        snprintf(copy, sizeof copy, "train.dtype=%s",
                 arguments_text(v->arguments, "dtype", ""));
        TRY(options_assign(set, copy, ORIGIN_COMMAND_LINE));
    }
    *ranks = 1;
    snprintf(copy, sizeof copy, "%s", layout);
    while ((word = strsep(&rest, " \t")) != NULL) {
        if (word[0] == '\0') continue;
        if (strncmp(word, "ranks=", 6) == 0) {
            *ranks = (int)strtol(word + 6, &end, 10);
            if (*end != '\0' || *ranks < 1 || *ranks > RANKS_MOST)
                FAIL(ERR_CONFIG, "%s: 1 to %d ranks", word, (int)RANKS_MOST);
            continue;
        }
        TRY(options_assign(set, word, ORIGIN_COMMAND_LINE));
    }
    return OK;
}

static status run_layout(struct verification *v, struct layout *layout)
{
    struct options_set set = {0};
    int ranks;
    status result;

    TRY_GOTO(done, result, layout_options(v, layout->text, &set, &ranks));
    fprintf(stderr, "%s ...\n", layout->text);
    TRY_GOTO(done, result, trial_run(&layout->trial, &set, ranks, v->steps));
    if (layout->trial.whole.elements != v->layouts[0].trial.whole.elements ||
        layout->trial.whole.dtype != v->layouts[0].trial.whole.dtype)
        FAIL_GOTO(done, result, ERR_CONFIG,
                  "%s: another model than that of one rank", layout->text);
    trial_compare(&v->layouts[0].trial, &layout->trial, &layout->difference);
done:
    options_free(&set);
    return result;
}

static status print_rows(const struct verification *v, bool json)
{
    static const struct table_column columns[] = {
        {"layout", "layout", false}, {"claims", "claims", false},
        {"loss", "loss_difference", true},
        {"gradients", "gradient_difference", true},
        {"weights", "weight_difference", true},
        {"memory of a rank", "memory_bytes", true},
        {"found", "exact", false}};
    struct json_writer writer = {0};
    struct table table;
    status result;

    table_begin(&table, columns, 7);
    for (int i = 0; i < v->count; i++) {
        const struct layout *layout = &v->layouts[i];

        table_text(&table, layout->text);
        table_text(&table, "EXACT");
        table_real(&table, layout->difference.loss, 3);
        table_real(&table, layout->difference.gradients, 3);
        table_real(&table, layout->difference.weights, 3);
        table_bytes(&table, (int64_t)layout->trial.memory_bytes);
        if (json) table_bool(&table, layout->difference.exact);
        else table_text(&table,
                        layout->difference.exact ? "EXACT" : "differs");
    }
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

static status draw(const struct verification *v, const char *path)
{
    struct overlay_curve curves[LAYOUTS_MAX];

    for (int i = 0; i < v->count; i++)
        curves[i] = (struct overlay_curve){v->layouts[i].text,
                                           v->layouts[i].trial.losses};
    return overlay_write(curves, v->count, v->steps, path);
}

static status verify(struct verification *v)
{
    const char *layouts = arguments_text(v->arguments, "layouts", NULL);
    const char *picture = arguments_text(v->arguments, "draw", NULL);
    int wrong = 0;

    TRY(add_layout(v, "ranks=1"));
    if (layouts != NULL) TRY(read_layouts(v, layouts));
    else TRY(usual_layouts(v));
    for (int i = 0; i < v->count; i++) {
        TRY(run_layout(v, &v->layouts[i]));
        wrong += !v->layouts[i].difference.exact;
    }
    TRY(print_rows(v, arguments_has(v->arguments, "json")));
    if (picture != NULL) TRY(draw(v, picture));
    if (wrong > 0)
        FAIL(ERR_VERIFY, "%d of %d layouts do not train the same bits as one "
                         "rank", wrong, v->count);
    return OK;
}

status command_verify(struct arguments *arguments)
{
    struct verification *v;
    void *memory = NULL;
    status result;

    TRY(memory_take(1, sizeof *v, &memory));
    v = memory;
    v->arguments = arguments;
    v->ranks = 2;
    v->steps = 5;
    snprintf(v->cache, sizeof v->cache, "%s/lockstep-verify-XXXXXX",
             getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
    TRY_GOTO(done, result, arguments_integer(arguments, "ranks", 1, RANKS_MOST,
                                             &v->ranks));
    TRY_GOTO(done, result, arguments_integer(arguments, "steps", 1, 1000,
                                             &v->steps));
    if (mkdtemp(v->cache) == NULL)
        FAIL_GOTO(done, result, ERR_IO, "%s: no directory can be made there",
                  v->cache);
    result = verify(v);
    if (result == OK) result = directory_remove(v->cache);
    else directory_remove(v->cache);
done:
    for (int i = 0; i < v->count; i++) trial_free(&v->layouts[i].trial);
    memory_free(v);
    return result;
}
