/* SPDX-License-Identifier: Apache-2.0 */
/* division.c - the axes over which weights, gradients and states are divided,
 * each given by itself (AMSP). */
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
    static const char *const names[] = {"data", "shard", "expert"};
    int which;

    TRY(expect(r, '['));
    if (take(r, ']')) return OK;
    do {
        TRY(read_word(r, names, BATCH_AXES, &which));
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

/* The rank that updates a part needs its gradient and its states. All divided
 * things are cut at the same places, so that no part is sent once more between
 * them. */
static status check_sets(axis_set sets[THINGS])
{
    for (int i = 0; i + 1 < THINGS; i++)
        if ((sets[i] & ~sets[i + 1]) != 0 && sets[i + 1] == 0)
            FAIL(ERR_CONFIG, "zero: %s are divided, but not %s: the rank that "
                             "updates a part needs both; give %s the same "
                             "axes", things[i], things[i + 1], things[i + 1]);
    for (int i = 0; i + 1 < THINGS; i++)
        if (sets[i] != 0 && sets[i] != sets[i + 1])
            FAIL(ERR_CONFIG, "zero: %s and %s are divided over different axes, "
                             "but a unit is cut once, into parts that serve "
                             "both; give both the same axes, or leave %s "
                             "whole with []", things[i], things[i + 1],
                 things[i]);
    if (sets[THINGS - 1] != 0 && !(sets[THINGS - 1] >> AXIS_SHARD & 1))
        FAIL(ERR_CONFIG, "zero: axes without shard: the sums over mesh.shard "
                         "come first in the order of the leaves; [shard] or "
                         "[data, shard] divides");
    return OK;
}

status division_parse_sets(struct division *division, const char *text)
{
    struct reader r = {.text = text, .at = text};
    axis_set sets[THINGS] = {0};

    TRY(read_sets(&r, sets));
    TRY(check_sets(sets));
    /* Experts divide with shards, as under every preset. */
    for (int i = 0; i < THINGS; i++)
        if (sets[i] != 0) sets[i] |= 1u << AXIS_EXPERT;
    *division = (struct division){.weights = sets[0], .gradients = sets[1],
                                  .states = sets[2]};
    return OK;
}
