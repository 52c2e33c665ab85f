/* SPDX-License-Identifier: Apache-2.0 */
/* suggest.c - layouts near the one that does not fit, tried one by one. */
#include "setup/suggest.h"

#include <stdio.h>
#include <string.h>

enum { AXES = 6, NEAR = 24, RANKS_TRIED_MOST = 1 << 20 };

static const enum axis axes[AXES] = {AXIS_DATA, AXIS_TENSOR, AXIS_SHARD,
                                     AXIS_PIPE, AXIS_CONTEXT, AXIS_EXPERT};

struct candidate { int ranks; int64_t size[AXES]; };

/* Every candidate has these. */
struct asked {
    const struct options_set *set;
    const struct vocabulary *vocabulary;
};

static struct candidate first_of(const struct options_set *set, int ranks)
{
    const struct options *o = &set->values;

    return (struct candidate){ranks, {o->mesh.data, o->mesh.tensor,
                                      o->mesh.shard, o->mesh.pipe,
                                      o->mesh.context, o->mesh.expert}};
}

/* The product of the given sizes; an axis that takes what is left counts 1. */
static int64_t product(const struct candidate *c)
{
    int64_t result = 1;

    for (int i = 0; i < AXES; i++)
        if (c->size[i] > 1 && c->size[i] <= RANKS_TRIED_MOST &&
            result <= RANKS_TRIED_MOST)
            result *= c->size[i];
    return result;
}

static bool works(const struct asked *of, const struct candidate *c)
{
    struct options_set copy = *of->set; /* borrows everything */
    struct options *o = &copy.values;
    struct pipeline pipeline = {0};
    struct setup setup;
    status result;

    if (c->ranks < 1 || c->ranks > RANKS_TRIED_MOST) return false;
    o->mesh.data = c->size[0];
    o->mesh.tensor = c->size[1];
    o->mesh.shard = c->size[2];
    o->mesh.pipe = c->size[3];
    o->mesh.context = c->size[4];
    o->mesh.expert = c->size[5];
    result = setup_resolve(&setup, &copy, of->vocabulary, c->ranks, 0);
    if (result == OK) {
        const struct pipeline_request request = setup_pipeline(&setup);

        result = pipeline_plan(&pipeline, &request);
    }
    pipeline_free(&pipeline);
    setup_free(&setup);
    status_clear();
    return result == OK;
}

/* The same ranks with one axis changed, or all of them in one axis. */
static bool other_mesh(const struct asked *of, struct candidate *c)
{
    const struct candidate first = *c;

    for (int i = 0; i < AXES; i++) {
        int64_t others;

        *c = first;
        c->size[i] = 1;
        others = product(c);
        if (c->ranks % others != 0) continue;
        c->size[i] = c->ranks / others;
        if (works(of, c)) return true;
    }
    for (int i = 0; i < AXES; i++) {
        *c = first;
        for (int j = 0; j < AXES; j++) c->size[j] = i == j ? c->ranks : 1;
        if (works(of, c)) return true;
    }
    *c = first;
    return false;
}

/* The same mesh with as many ranks as it needs, or near ones where an axis
 * takes what is left; then powers of two. */
static bool other_ranks(const struct asked *of, struct candidate *c)
{
    const int ranks = c->ranks;
    const int64_t unit = product(c);
    int power = 1;

    c->ranks = (int)(unit <= RANKS_TRIED_MOST ? unit : 1);
    if (unit > 1 && works(of, c)) return true;
    for (int d = 1; d <= NEAR; d++) {
        c->ranks = ranks - d;
        if (c->ranks % unit == 0 && works(of, c)) return true;
        c->ranks = ranks + d;
        if (c->ranks % unit == 0 && works(of, c)) return true;
    }
    while (power <= ranks / 2 && power < RANKS_TRIED_MOST) power *= 2;
    for (; power >= 1; power /= 2) {
        c->ranks = power;
        if (works(of, c)) return true;
    }
    return false;
}

/* An axis made smaller until it fits, by one at first, then by halves, and the
 * ranks with it. */
static bool less_of_an_axis(const struct asked *of, struct candidate *c)
{
    const struct candidate first = first_of(of->set, c->ranks);

    for (int i = 0; i < AXES; i++) {
        int64_t n = first.size[i] - 1;

        for (int k = 0; n > 1; n = k < NEAR ? n - 1 : n / 2, k++) {
            if (k == NEAR) n = first.size[i] / 2;
            *c = first;
            c->size[i] = n;
            c->ranks = (int)product(c);
            if (works(of, c)) return true;
        }
    }
    return false;
}

static status suggest(status code, const struct candidate *c,
                      const struct candidate *old_mesh)
{
    const bool same = memcmp(c->size, old_mesh->size, sizeof c->size) == 0;
    char old[512], text[256];
    size_t used;

    snprintf(old, sizeof old, "%s", status_hint_text());
    used = (size_t)snprintf(text, sizeof text, "--ranks %d", c->ranks);
    for (int i = 0; i < AXES; i++) {
        if (same || (c->size[i] <= 1 && old_mesh->size[i] <= 1)) continue;
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 " --set mesh.%s=%lld", axis_name(axes[i]),
                                 (long long)c->size[i]);
    }
    return status_hint(code, "%s%s%s fits", old, old[0] != 0 ? "; " : "",
                       text);
}

/* A layout near the one asked for, *c. False: the layout is not to blame. */
static bool find_near(const struct asked *of, struct candidate *c)
{
    const struct candidate first = *c;
    const struct candidate alone = {1, {1, 1, 1, 1, 1, 1}};

    if (first.ranks == 1) { /* nobody said how many: the mesh does */
        c->ranks = (int)product(&first);
        if (works(of, c)) return true;
        *c = first;
    }
    if (!works(of, &alone)) return false; /* one rank fails too */
    if (first.ranks == 1 ? !other_ranks(of, c) && !less_of_an_axis(of, c)
                         : !other_mesh(of, c) && !other_ranks(of, c) &&
                               !less_of_an_axis(of, c))
        *c = alone;
    return true;
}

status setup_resolve_or_suggest(struct setup *setup,
                                const struct options_set *set,
                                const struct vocabulary *vocabulary, int ranks,
                                int rank)
{
    const struct asked of = {set, vocabulary};
    const struct candidate first = first_of(set, ranks);
    struct candidate c = first;
    status result = setup_resolve(setup, set, vocabulary, ranks, rank);
    bool found;

    if (result != ERR_CONFIG || (ranks == 1 && product(&first) == 1))
        return result;
    setup_free(setup);
    status_clear();
    found = find_near(&of, &c);
    /* The sentence of the layout that was asked for. */
    result = setup_resolve(setup, set, vocabulary, ranks, rank);
    return result == OK || !found ? result : suggest(result, &c, &first);
}
