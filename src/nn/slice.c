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
    int *params, *uses;
    struct readers *readers; /* owned, [slots]: steps of the whole that use
                              * it */
    struct owner *owners; /* owned, [params] */
    bool *use_kept;      /* owned, [uses]: a kept step has it */
};

struct readers { int first, last; }; /* -1: none */
/* Uses of a parameter. */
struct owner { int kept, all; bool copy; };

/* Steps of a stage lie together: before, in and after the blocks. Blocks of
 * modules for later tokens stand after the head. */
static void find_steps(struct cutter *c, const struct slice *slice)
{
    const struct program *p = c->program;
    int body = 0, tail;

    while (body < p->step_count && p->steps[body].block < 0) body++;
    tail = body;
    while (tail < p->step_count && p->steps[tail].block >= 0) tail++;
    c->first = slice->begins ? 0 : body;
    c->last = slice->ends ? p->step_count : tail;
    while (!slice->begins && c->first < tail &&
           p->steps[c->first].block < slice->first)
        c->first++;
    while (!slice->ends && c->last > body &&
           p->steps[c->last - 1].block >= slice->last)
        c->last--;
}

static void find_readers(struct cutter *c)
{
    const struct program *p = c->program;

    for (slot which = 0; which < p->slot_count; which++)
        c->readers[which] = (struct readers){-1, -1};
    for (int i = 0; i < p->step_count; i++) {
        const struct step *step = &p->steps[i];
        const slot used[] = {step->input, step->second, step->left,
                             step->output, step->aux, step->source,
                             step->result};

        for (int j = 0; j < 7; j++) {
            if (used[j] < 0) continue;
            if (c->readers[used[j]].first < 0) c->readers[used[j]].first = i;
            c->readers[used[j]].last = i;
        }
    }
}

/* The one slot that steps before `at` and steps from `at` on both use. */
static status find_crossing(const struct cutter *c, int at, slot *out)
{
    *out = -1;
    for (slot which = 0; which < c->program->slot_count; which++) {
        const struct readers *readers = &c->readers[which];

        if (readers->first < 0 || readers->first >= at || readers->last < at)
            continue;
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

static void mark_used(struct cutter *c, slot which)
{
    if (which >= 0) c->slots[which] = 0;
}

static void keep_slots(struct cutter *c)
{
    struct program *p = c->program;
    int count = 0;

    for (slot which = 0; which < p->slot_count; which++) c->slots[which] = -1;
    for (int i = c->first; i < c->last; i++) {
        mark_used(c, p->steps[i].input);
        mark_used(c, p->steps[i].second);
        mark_used(c, p->steps[i].left);
        mark_used(c, p->steps[i].output);
        mark_used(c, p->steps[i].aux);
    }
    for (slot which = 0; which < p->slot_count; which++) {
        if (c->slots[which] < 0) continue;
        c->slots[which] = count;
        p->slots[count++] = p->slots[which];
    }
    p->slot_count = count;
    renumber(&p->slice.entry, c->slots);
    renumber(&p->slice.exit, c->slots);
}

static void count_uses(struct cutter *c)
{
    const struct program *p = c->program;

    for (int i = c->first; i < c->last; i++)
        for (int j = 0; j < step_uses(&p->steps[i]); j++)
            if (step_use(&p->steps[i], j).use >= 0)
                c->use_kept[step_use(&p->steps[i], j).use] = true;
    for (int s = 0; s < p->use_count; s++) {
        struct owner *owner = &c->owners[p->uses[s].param];

        owner->all++;
        if (c->use_kept[s]) owner->kept++;
        else if (p->uses[s].number == 0) owner->copy = true;
    }
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
        const struct owner owner = c->owners[i];

        c->params[i] = owner.kept > 0 ? kept.count : -1;
        if (owner.kept == 0) continue;
        param.copy = owner.copy;
        param.shared = owner.kept < owner.all;
        param.uses = 0; /* counted again by keep_uses */
        param.offset = kept.elements;
        kept.elements += param_room(param.elements);
        kept.parameters += param.elements;
        p->params.items[kept.count++] = param;
    }
    p->params = kept;
    param_place_gradients(&p->params);
}

static void keep_uses(struct cutter *c)
{
    struct program *p = c->program;
    int count = 0;

    for (int s = 0; s < p->use_count; s++) {
        struct use_info info = p->uses[s];

        c->uses[s] = -1;
        if (!c->use_kept[s]) continue;
        info.param = c->params[info.param];
        info.number = p->params.items[info.param].uses++;
        c->uses[s] = count;
        p->uses[count++] = info;
    }
    p->use_count = count;
}

static void keep_steps(struct cutter *c)
{
    struct program *p = c->program;
    const int count = c->last - c->first;

    for (int i = 0; i < count; i++) {
        struct step step = p->steps[c->first + i];

        step.index = i;
        renumber(&step.input, c->slots);
        renumber(&step.second, c->slots);
        renumber(&step.left, c->slots);
        renumber(&step.output, c->slots);
        renumber(&step.aux, c->slots);
        renumber(&step.source, c->slots);
        renumber(&step.result, c->slots);
        renumber(&step.named, c->params);
        for (int j = 0; j < STEP_PARAMS_MAX; j++) {
            renumber(&step.param[j], c->params);
            renumber(&step.use[j], c->uses);
        }
        p->steps[i] = step;
    }
    p->step_count = count;
    p->slice.first_step = c->first;
}

static status cut(struct cutter *c)
{
    struct program *program = c->program;

    find_readers(c);
    if (c->first > 0)
        TRY(find_crossing(c, c->first, &program->slice.entry));
    if (c->last < program->step_count)
        TRY(find_crossing(c, c->last, &program->slice.exit));
    keep_slots(c);
    count_uses(c);
    keep_params(c); /* reads the old uses of the old steps */
    keep_uses(c);
    keep_steps(c);
    return OK;
}

/* Gives back what the rest of the model took. */
static status shrink(void **items, int count, int *capacity, size_t bytes)
{
    if (count == 0 || count == *capacity) return OK;
    TRY(memory_grow(items, (size_t)count, bytes));
    *capacity = count;
    return OK;
}

static status shrink_all(struct program *p)
{
    void *steps = p->steps, *slots = p->slots, *uses = p->uses;
    void *params = p->params.items;

    TRY(shrink(&steps, p->step_count, &p->step_capacity, sizeof *p->steps));
    p->steps = steps;
    TRY(shrink(&slots, p->slot_count, &p->slot_capacity, sizeof *p->slots));
    p->slots = slots;
    TRY(shrink(&uses, p->use_count, &p->use_capacity, sizeof *p->uses));
    p->uses = uses;
    TRY(shrink(&params, p->params.count, &p->params.capacity,
               sizeof *p->params.items));
    p->params.items = params;
    return OK;
}

status program_slice(struct program *program, const struct slice *slice)
{
    const int slots = program->slot_count, params = program->params.count;
    const int uses = program->use_count;
    const struct { int count; size_t bytes; } sizes[] = {
        {slots, sizeof(int)}, {params, sizeof(int)}, {uses, sizeof(int)},
        {slots, sizeof(struct readers)}, {params, sizeof(struct owner)},
        {uses, sizeof(bool)}};
    enum { TABLES = (int)(sizeof sizes / sizeof *sizes) };
    void *tables[TABLES] = {0};
    struct cutter c = {.program = program};
    status result = OK;

    find_steps(&c, slice);
    if (c.first >= c.last)
        FAIL(ERR_CONFIG, "a stage of blocks %d to %d has nothing to compute",
             slice->first, slice->last);
    for (int i = 0; i < TABLES; i++)
        TRY_GOTO(done, result, memory_take((size_t)sizes[i].count + 1,
                                           sizes[i].bytes, &tables[i]));
    c.slots = tables[0];
    c.params = tables[1];
    c.uses = tables[2];
    c.readers = tables[3];
    c.owners = tables[4];
    c.use_kept = tables[5];
    TRY_GOTO(done, result, cut(&c));
    result = shrink_all(program);
done:
    for (int i = 0; i < TABLES; i++) memory_free(tables[i]);
    return result;
}
