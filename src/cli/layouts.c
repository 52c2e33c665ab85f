/* SPDX-License-Identifier: Apache-2.0 */
/* layouts.c - the rows of `verify`. */
#include "cli/layouts.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/config.h"
#include "cli/run.h"
#include "schedule/build.h"
#include "setup/balance.h"

static status add_text(struct layouts *layouts, bool optional,
                       const char *text)
{
    struct layout *layout;
    char *end;

    void *items = layouts->items;

    TRY(memory_next(&items, &layouts->capacity, layouts->count, 64,
                    sizeof *layouts->items));
    layouts->items = items;
    if (strlen(text) >= LAYOUT_BYTES)
        FAIL(ERR_CONFIG, "a layout of %zu characters, at most %d",
             strlen(text), LAYOUT_BYTES - 1);
    layout = &layouts->items[layouts->count++];
    *layout = (struct layout){.optional = optional, .ranks = 1};
    snprintf(layout->text, sizeof layout->text, "%s", text);
    layout->text[strcspn(layout->text, "\r")] = '\0';
    const char *ranks = strstr(layout->text, "ranks=");

    if (ranks == NULL) return OK;
    const long count = strtol(ranks + 6, &end, 10);

    if ((*end != '\0' && *end != ' ' && *end != '\t') || count < 1 ||
        count > RANKS_MOST)
        FAIL(ERR_CONFIG, "%s: a layout of verify has 1 to %d ranks; layouts "
             "with fewer ranks must give the same bits", ranks,
             (int)RANKS_MOST);
    layout->ranks = (int)count;
    return OK;
}

status layouts_add(struct layouts *layouts, bool optional, const char *format,
                   ...)
{
    char text[2 * LAYOUT_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return add_text(layouts, optional, text);
}

status layouts_read(struct layouts *layouts, const char *path)
{
    struct text text = {0};
    char *rest, *line;
    status result;

    TRY_GOTO(done, result, file_read(path, (size_t)1 << 20, &text));
    rest = text.bytes;
    while ((line = strsep(&rest, "\n")) != NULL) {
        line[strcspn(line, "#")] = '\0';
        line += strspn(line, " \t");
        const bool optional = line[0] == '?';

        line += optional;
        for (size_t n = strlen(line); n > 0 && line[n - 1] == ' '; n--)
            line[n - 1] = '\0';
        if (line[0] != '\0')
            TRY_GOTO(done, result, add_text(layouts, optional, line));
    }
done:
    text_free(&text);
    return result;
}

void layouts_free(struct layouts *layouts)
{
    for (int i = 0; i < layouts->count; i++)
        trial_free(&layouts->items[i].trial);
    memory_free(layouts->items);
    *layouts = (struct layouts){0};
}

void layout_label(const struct layout *layout, char out[LAYOUT_BYTES])
{
    static const char *const known[] = {"mesh.", "schedule.name=", "train.",
                                        "context.kind=", "zero="};
    const char *at = layout->text;
    size_t length = 0;

    while (*at != '\0') {
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (strncmp(at, known[i], strlen(known[i])) == 0)
                at += strlen(known[i]);
        while (*at != '\0' && *at != ' ') out[length++] = *at++;
        while (*at == ' ') out[length++] = *at++;
    }
    out[length] = '\0';
}

/* ---- the covering set ---- */

/* @ stands for the ranks, & for what is left of them. */

/* Each axis alone. */
static const char *const axes[] = {
    "ranks=@ mesh.data=@",
    "ranks=@ mesh.data=@ zero=zero1",
    "ranks=@ mesh.shard=@ zero=fsdp",
    "ranks=@ mesh.tensor=@",
    "ranks=@ mesh.context=@",
};

/* Like layout_label, in every way. */
static const char *const ways[] = {
    "ranks=@ mesh.data=@ train.micro_batch=1",
    "ranks=@ mesh.data=@ train.recompute=block",
    "ranks=@ mesh.data=@ zero=zero2",
    "ranks=@ mesh.data=@ zero=zero3 train.micro_batch=1",
    "ranks=@ mesh.shard=@ zero=fsdp fsdp.reshard=false",
    "ranks=@ mesh.tensor=@ train.recompute=block",
    "ranks=@ mesh.context=@ context.kind=ring",
    "ranks=@ mesh.context=@ context.kind=ulysses",
    "ranks=@ mesh.context=@ context.kind=hybrid",
};

/* Mixtures with two ranks of the second axis. */
static const char *const halves[] = {
    "ranks=@ mesh.data=& mesh.shard=2 zero=hsdp",
    "ranks=@ mesh.data=& mesh.shard=2 zero=zero3 train.micro_batch=1",
    "ranks=@ mesh.data=& mesh.tensor=2",
    "ranks=@ mesh.data=& mesh.tensor=2 zero=zero1 train.recompute=block",
    "ranks=@ mesh.data=& mesh.pipe=2 train.micro_batch=1",
    ("ranks=@ mesh.data=& mesh.pipe=2 zero=zero1 schedule.name=zb-h1 "
     "train.micro_batch=1"),
    "ranks=@ mesh.data=& mesh.context=2",
    "ranks=@ mesh.tensor=2 mesh.pipe=& train.micro_batch=1",
};

/* Mixtures of three. */
static const char *const quarters[] = {
    "ranks=@ mesh.data=& mesh.tensor=2 mesh.pipe=2 train.micro_batch=1",
    ("ranks=@ mesh.shard=& mesh.tensor=2 mesh.pipe=2 zero=zero1 "
     "schedule.name=interleaved schedule.chunks=2 train.micro_batch=1"),
    "ranks=@ mesh.data=& mesh.context=2 mesh.tensor=2 zero=fsdp",
};

static status add_formats(struct layouts *layouts, const char *const *formats,
                          size_t count, int ranks, int left)
{
    for (size_t i = 0; i < count; i++) {
        struct text text = {0};
        status result = OK;

        for (const char *c = formats[i]; *c != '\0' && result == OK; c++) {
            if (*c != '@' && *c != '&') result = text_append(&text, c, 1);
            else result = text_printf(&text, "%d", *c == '@' ? ranks : left);
        }
        if (result == OK) result = add_text(layouts, true, text.bytes);
        text_free(&text);
        TRY(result);
    }
    return OK;
}

#define ADD_FORMATS(layouts, formats, ranks, left)                        \
    add_formats(layouts, formats, sizeof(formats) / sizeof *(formats),    \
                ranks, left)

static status add_everything(struct layouts *layouts, int ranks)
{
    TRY(ADD_FORMATS(layouts, axes, ranks, 1));
    TRY(ADD_FORMATS(layouts, ways, ranks, 1));
    for (int i = 0; i < schedule_row_count; i++)
        TRY(layouts_add(layouts, true, "ranks=%d mesh.pipe=%d "
                                       "schedule.name=%s train.micro_batch=1",
                        ranks, ranks, schedule_rows[i].name));
    if (ranks % 2 == 0 && ranks >= 4)
        TRY(ADD_FORMATS(layouts, halves, ranks, ranks / 2));
    if (ranks % 4 == 0 && ranks >= 8)
        TRY(ADD_FORMATS(layouts, quarters, ranks, ranks / 4));
    return OK;
}

status layouts_usual(struct layouts *layouts, int ranks, bool only)
{
    if (!only) {
        TRY(layouts_add(layouts, true, "ranks=1 train.micro_batch=1"));
        TRY(layouts_add(layouts, true, "ranks=1 train.recompute=block"));
        TRY(layouts_add(layouts, true, "ranks=1 train.threads=1"));
    }
    for (int n = 2; !only && n < ranks; n *= 2) {
        TRY(ADD_FORMATS(layouts, axes, n, 1));
        TRY(layouts_add(layouts, true, "ranks=%d mesh.pipe=%d "
                                       "train.micro_batch=1", n, n));
    }
    return ranks > 1 ? add_everything(layouts, ranks) : OK;
}

/* ---- options ---- */

static status assign_words(struct layout *layout, struct options_set *set)
{
    char copy[LAYOUT_BYTES], *rest = copy, *word;

    snprintf(copy, sizeof copy, "%s", layout->text);
    while ((word = strsep(&rest, " \t")) != NULL)
        if (word[0] != '\0' && strncmp(word, "ranks=", 6) != 0)
            TRY(options_assign(set, word, ORIGIN_COMMAND_LINE));
    return OK;
}

/* The mesh of a row that names no axis: all ranks are data ranks. */
static status leave_mesh(struct options_set *set)
{
    static const char *const words[] = {
        "mesh.data=0", "mesh.shard=1", "mesh.context=1", "mesh.tensor=1",
        "mesh.expert=1", "mesh.expert_tensor=0", "mesh.expert_context=false",
        "mesh.pipe=1", "mesh.layers=[]"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        TRY(options_assign(set, words[i], ORIGIN_COMMAND_LINE));
    return OK;
}

/* An axis that takes the ranks that are left has one here. */
static int64_t ranks_of(const struct options *o)
{
    const int64_t sizes[] = {o->mesh.data, o->mesh.shard, o->mesh.context,
                             o->mesh.tensor, o->mesh.expert, o->mesh.pipe};
    int64_t ranks = 1;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] > 1 && ranks <= RANKS_MOST) ranks *= sizes[i];
    return ranks;
}

status layouts_own(struct layouts *layouts, struct arguments *arguments)
{
    struct options_set set = {0};
    int64_t ranks;
    status result;

    TRY_GOTO(done, result, config_read(&set, arguments->operands[0],
                                       arguments));
    ranks = ranks_of(&set.values);
    if (ranks < 2 || ranks > RANKS_MOST ||
        strcmp(set.values.mesh.layout, "auto") == 0)
        goto done;
    TRY_GOTO(done, result, layouts_add(layouts, false, "ranks=%d",
                                       (int)ranks));
    layouts->items[layouts->count - 1].own = true;
done:
    options_free(&set);
    return result;
}

status layout_options(struct layout *layout, struct arguments *arguments,
                      const char *cache, struct options_set *set)
{
    char assignment[PATH_BYTES + 32];

    TRY(config_read(set, arguments->operands[0], arguments));
    snprintf(assignment, sizeof assignment, "data.cache=%s", cache);
    if (set->values.data.cache[0] == 0)
        TRY(options_assign(set, assignment, ORIGIN_DEFAULT));
    if (arguments_has(arguments, "dtype")) {
        snprintf(assignment, sizeof assignment, "train.dtype=%s",
                 arguments_text(arguments, "dtype", ""));
        TRY(options_assign(set, assignment, ORIGIN_COMMAND_LINE));
    }
    if (strcmp(set->values.mesh.layout, "auto") == 0)
        TRY(options_assign(set, "mesh.layout=given", ORIGIN_COMMAND_LINE));
    const int64_t micro_batch = set->values.train.micro_batch;

    if (!layout->own) TRY(leave_mesh(set));
    if (assign_words(layout, set) != OK) {
        snprintf(layout->reason, sizeof layout->reason, "%s",
                 status_message());
        status_clear();
        layout->optional = false; /* wrong in any configuration */
        return OK; /* the other rows have their turn */
    }
    if (set->values.train.micro_batch != micro_batch &&
        balance_needs_micro_batch(&set->values))
        snprintf(layout->reason, sizeof layout->reason,
                 "moe.balance_scope=micro_batch makes train.micro_batch=%lld a "
                 "part of the result", (long long)micro_batch);
    snprintf(layout->zero, sizeof layout->zero, "%.95s", set->values.zero);
    layout->schedule[0] = '\0';
    if (set->values.mesh.pipe > 1)
        snprintf(layout->schedule, sizeof layout->schedule, "%.31s",
                 set->values.schedule.name);
    return OK;
}
