/* SPDX-License-Identifier: Apache-2.0 */
/* division.c - the axes over which weights, gradients and states are divided:
 * the name of a preset, or each given by itself (AMSP). */
#include "mesh/shard.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

enum { WORD = 24, THINGS = 3 };

static const char *const things[THINGS] = {"weights", "gradients", "states"};

/* A text, and how far it is read. */
struct reader {
    const char *text, *at;
    char word[WORD];
};

static void skip(struct reader *r)
{
    while (*r->at == ' ') r->at++;
}

static bool take(struct reader *r, char c)
{
    skip(r);
    if (*r->at != c) return false;
    r->at++;
    return true;
}

static status expect(struct reader *r, char c)
{
    if (take(r, c)) return OK;
    FAIL(ERR_CONFIG, "zero: %.80s: expected %c, found %.10s; the form is "
                     "{weights: [], gradients: [shard], states: [shard]}",
         r->text, c, *r->at != 0 ? r->at : "the end");
}

static status read_word(struct reader *r, const char *const *known, int count,
                        int *out)
{
    size_t length = 0;
    const char *near;

    skip(r);
    while (strchr(" ,:[]{}", r->at[length]) == NULL && length + 1 < WORD)
        length++;
    memcpy(r->word, r->at, length);
    r->word[length] = 0;
    r->at += length;
    for (*out = 0; *out < count; ++*out)
        if (strcmp(r->word, known[*out]) == 0) return OK;
    near = text_nearest(r->word, known, count);
    FAIL(ERR_CONFIG, "zero: \"%s\" is not %s, %s or %s%s%s", r->word, known[0],
         known[1], known[2], near != NULL ? "; nearest: " : "",
         near != NULL ? near : "");
}

static status read_axes(struct reader *r, axis_set *out)
{
    const char *names[BATCH_AXES];
    int which;

    for (int i = 0; i < BATCH_AXES; i++) names[i] = axis_name(batch_axes[i]);
    TRY(expect(r, '['));
    if (take(r, ']')) return OK;
    do {
        TRY(read_word(r, names, BATCH_AXES, &which));
        if (*out >> batch_axes[which] & 1)
            FAIL(ERR_CONFIG, "zero: %s stands twice in one list of axes",
                 names[which]);
        *out |= 1u << batch_axes[which];
    } while (take(r, ','));
    return expect(r, ']');
}

static status read_sets(struct reader *r, axis_set sets[THINGS])
{
    bool seen[THINGS] = {false};
    int which;

    TRY(expect(r, '{'));
    if (!take(r, '}')) {
        do {
            TRY(read_word(r, things, THINGS, &which));
            if (seen[which])
                FAIL(ERR_CONFIG, "zero: %s stands twice", things[which]);
            seen[which] = true;
            TRY(expect(r, ':'));
            TRY(read_axes(r, &sets[which]));
        } while (take(r, ','));
        TRY(expect(r, '}'));
    }
    skip(r);
    if (*r->at == 0) return OK;
    FAIL(ERR_CONFIG, "zero: %.80s: nothing stands behind the }", r->text);
}

/* The rank that updates a part needs its states, its gradient and its weights,
 * and keeps what it made of them. So nothing is divided over axes that do not
 * divide the states. Whole gradients are right beside any weights: they are
 * reduced once. */
static status check_sets(const axis_set sets[THINGS])
{
    const axis_set weights = sets[0], gradients = sets[1], states = sets[2];

    for (int i = 0; i < THINGS; i++)
        if (sets[i] != 0 && !(sets[i] >> AXIS_SHARD & 1))
            FAIL(ERR_CONFIG, "zero: axes without shard: the sums over "
                             "mesh.shard come first in the order of the "
                             "leaves; [shard] or [data, shard] divides");
    if ((gradients & ~states) != 0)
        FAIL(ERR_CONFIG, "zero: gradients are divided over axes that do not "
                         "divide states: a rank would update elements of "
                         "which another has the gradient; give states the "
                         "same axes or more");
    if ((weights & ~states) != 0)
        FAIL(ERR_CONFIG, "zero: weights are divided over axes that do not "
                         "divide states: a rank would update weights that it "
                         "does not keep; give states the same axes or more");
    if (gradients != 0 && (weights & ~gradients) != 0)
        FAIL(ERR_CONFIG, "zero: weights are divided over axes that do not "
                         "divide gradients: a rank that keeps one part of the "
                         "weights would keep gradients of others that it "
                         "never reads; give gradients the same axes or more, "
                         "or [], which reduces them once");
    return OK;
}

static status parse_sets(struct division *division, const char *text)
{
    struct reader r = {.text = text, .at = text};
    axis_set sets[THINGS] = {0};

    TRY(read_sets(&r, sets));
    /* Experts divide with shards, as under every preset. */
    for (int i = 0; i < THINGS; i++)
        if (sets[i] >> AXIS_SHARD & 1) sets[i] |= 1u << AXIS_EXPERT;
    TRY(check_sets(sets));
    *division = (struct division){.weights = sets[0], .gradients = sets[1],
                                  .states = sets[2]};
    return OK;
}

/* ---- who divides what ---- */

status division_parse(struct division *division, const char *name)
{
    static const char *const names[] = {"ddp", "zero1", "zero2", "zero3",
                                        "fsdp", "hsdp", "mics"};
    static const int levels[] = {0, 1, 2, 3, 3, 3, 3};
    const axis_set shard = 1u << AXIS_SHARD | 1u << AXIS_EXPERT;
    const axis_set all = AXES_BATCH;
    const int count = (int)(sizeof names / sizeof *names);
    int i = 0;

    if (name[0] == '{') return parse_sets(division, name);
    while (i < count && strcmp(names[i], name) != 0) i++;
    if (i == count) {
        const char *near = text_nearest(name, names, count);

        FAIL(ERR_CONFIG, "zero: %s is not ddp, zero1, zero2, zero3, fsdp, "
                         "hsdp, mics or {states: [...], ...}%s%s", name,
             near ? "; nearest: " : "", near ? near : "");
    }
    const axis_set axes = i < 5 ? all : shard;

    *division = (struct division){.states = levels[i] >= 1 ? axes : 0,
                                  .gradients = levels[i] >= 2 ? axes : 0,
                                  .weights = levels[i] >= 3 ? axes : 0};
    return OK;
}

axis_set division_axes(const struct division *division)
{
    return division->weights | division->gradients | division->states;
}

axis_set division_first(const struct division *division)
{
    const axis_set sets[] = {division->weights, division->gradients};
    axis_set first = division_axes(division);

    for (int i = 0; i < 2; i++)
        if (sets[i] != 0) first &= sets[i];
    return first;
}

bool division_parts(const struct division *division)
{
    return division_first(division) != division_axes(division);
}

enum shard_level division_level(const struct division *division,
                                axis_set axes)
{
    if (axes == 0) return SHARD_WHOLE;
    return axes == division_axes(division) ? SHARD_PART : SHARD_SHARD;
}

bool division_copies(const struct division *division)
{
    const axis_set axes = division_axes(division);

    return axes != 0 && !(axes >> AXIS_DATA & 1);
}

int division_ranks(const struct division *division, const struct mesh *mesh)
{
    return mesh_group_size(mesh, division_axes(division));
}
