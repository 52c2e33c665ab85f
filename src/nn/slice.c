/* SPDX-License-Identifier: Apache-2.0 */
/* slice.c - the part of a model that one pipeline stage computes. */
#include "nn/slice.h"

bool slice_is_whole(const struct slice *slice, int blocks)
{
    return slice->begins && slice->ends && slice->first == 0 &&
           slice->last == blocks;
}

struct cutter {
    struct program *program;
    int first, last;  /* steps [first, last) of the whole are kept */
    int *slots;       /* owned: new number of each slot, -1: gone */
    int *params, *streams;
};

/* Steps of a stage lie together: before, in and after the blocks. */
static void find_steps(struct cutter *c, const struct slice *slice)
{
    const struct program *p = c->program;
    int body = 0, tail = p->step_count;

    while (body < p->step_count && p->steps[body].block < 0) body++;
    while (tail > body && p->steps[tail - 1].block < 0) tail--;
    c->first = slice->begins ? 0 : body;
    c->last = slice->ends ? p->step_count : tail;
    while (!slice->begins && c->first < tail &&
           p->steps[c->first].block < slice->first)
        c->first++;
    while (!slice->ends && c->last > body &&
           p->steps[c->last - 1].block >= slice->last)
        c->last--;
}

static bool uses(const struct step *step, slot which)
{
    return step->input == which || step->left == which ||
           step->output == which || step->aux == which;
}

/* The one slot that steps before `at` and steps from `at` on both use. */
static status find_crossing(const struct program *p, int at, slot *out)
{
    *out = -1;
    for (slot which = 0; which < p->slot_count; which++) {
        bool before = false, after = false;

        for (int i = 0; i < p->step_count; i++) {
            if (!uses(&p->steps[i], which)) continue;
            if (i < at) before = true;
            else after = true;
        }
        if (!before || !after) continue;
        if (*out >= 0)
            FAIL(ERR_CONFIG, "the model cannot be cut before step %d of its "
                             "program: the activations s%d and s%d cross",
                 at, *out, which);
        *out = which;
    }
    if (*out < 0)
        FAIL(ERR_CONFIG, "the model cannot be cut before step %d of its "
                         "program: nothing crosses", at);
    return OK;
}

static void renumber(slot *which, const int *map)
{
    if (*which >= 0) *which = map[*which];
}

static void keep_slots(struct cutter *c)
{
    struct program *p = c->program;
    int count = 0;

    for (slot which = 0; which < p->slot_count; which++) {
        bool used = false;

        for (int i = c->first; i < c->last && !used; i++)
            used = uses(&p->steps[i], which);
        c->slots[which] = used ? count : -1;
        if (used) p->slots[count++] = p->slots[which];
    }
    p->slot_count = count;
    renumber(&p->entry, c->slots);
    renumber(&p->exit, c->slots);
}

/* Whether a kept step has the stream. */
static bool stream_kept(const struct cutter *c, int stream)
{
    for (int i = c->first; i < c->last; i++)
        for (int j = 0; j < STEP_PARAMS_MAX; j++)
            if (c->program->steps[i].stream[j] == stream) return true;
    return false;
}

/* Parameters with a kept use, at offsets of their own. */
static void keep_params(struct cutter *c)
{
    struct program *p = c->program;
    struct param_table kept = p->params;

    kept.count = 0;
    kept.elements = kept.parameters = 0;
    for (int i = 0; i < p->params.count; i++) {
        struct param param = p->params.items[i];
        int uses_kept = 0, uses_all = 0;

        param.copy = false;
        for (int s = 0; s < p->stream_count; s++) {
            if (p->streams[s].param != i) continue;
            uses_all++;
            if (stream_kept(c, s)) uses_kept++;
            else if (p->streams[s].use == 0) param.copy = true;
        }
        c->params[i] = uses_kept > 0 ? kept.count : -1;
        if (uses_kept == 0) continue;
        param.shared = uses_kept < uses_all;
        param.streams = 0; /* counted again by keep_streams */
        param.offset = kept.elements;
        kept.elements += param_room(param.elements);
        kept.parameters += param.elements;
        p->params.items[kept.count++] = param;
    }
    p->params = kept;
    param_place_gradients(&p->params);
}

static void keep_streams(struct cutter *c)
{
    struct program *p = c->program;
    int count = 0;

    for (int s = 0; s < p->stream_count; s++) {
        struct stream_info info = p->streams[s];

        c->streams[s] = -1;
        if (!stream_kept(c, s)) continue;
        info.param = c->params[info.param];
        info.use = p->params.items[info.param].streams++;
        c->streams[s] = count;
        p->streams[count++] = info;
    }
    p->stream_count = count;
}

static void keep_steps(struct cutter *c)
{
    struct program *p = c->program;
    const int count = c->last - c->first;

    for (int i = 0; i < count; i++) {
        struct step step = p->steps[c->first + i];

        step.index = i;
        renumber(&step.input, c->slots);
        renumber(&step.left, c->slots);
        renumber(&step.output, c->slots);
        renumber(&step.aux, c->slots);
        for (int j = 0; j < STEP_PARAMS_MAX; j++) {
            renumber(&step.param[j], c->params);
            renumber(&step.stream[j], c->streams);
        }
        p->steps[i] = step;
    }
    p->step_count = count;
    p->first_step = c->first;
}

status program_slice(struct program *program, const struct slice *slice)
{
    struct cutter c = {.program = program};
    const size_t sizes[] = {(size_t)program->slot_count,
                            (size_t)program->params.count,
                            (size_t)program->stream_count};
    int **maps[] = {&c.slots, &c.params, &c.streams};
    status result = OK;

    find_steps(&c, slice);
    if (c.first >= c.last)
        FAIL(ERR_CONFIG, "a stage of blocks %d to %d has nothing to compute",
             slice->first, slice->last);
    for (int i = 0; i < 3; i++) {
        void *map = NULL;

        TRY_GOTO(done, result, memory_take(sizes[i], sizeof(int), &map));
        *maps[i] = map;
    }
    if (c.first > 0)
        TRY_GOTO(done, result, find_crossing(program, c.first,
                                             &program->entry));
    if (c.last < program->step_count)
        TRY_GOTO(done, result, find_crossing(program, c.last,
                                             &program->exit));
    keep_slots(&c);
    keep_params(&c); /* reads the old streams of the old steps */
    keep_streams(&c);
    keep_steps(&c);
done:
    for (int i = 0; i < 3; i++) memory_free(*maps[i]);
    return result;
}
