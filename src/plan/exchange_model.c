/* SPDX-License-Identifier: Apache-2.0 */
/* exchange_model.c - the messages of the program's steps along the tensor and
 * context axes. It counts the events of the frame, because these are the events
 * that run, recomputation included. */
#include "plan/exchange_model.h"

#include <stdio.h>

#include "base/sizes.h"
#include "nn/exchange.h"

struct scene {
    struct exchanges *out;
    const struct stage *stage;
    const struct program *program;
    int size, rank;      /* of the tensor group */
    int64_t real;        /* bytes of an element of a sum */
    int64_t passes;      /* micro-batches of a round */
    int64_t times;       /* of a step */
};

static void add(const struct scene *s, enum sent what, enum comm_kind kind,
                int64_t calls, int64_t bytes)
{
    exchanges_add(s->out, (struct exchange){
        .group = {GROUP_AXIS, AXIS_TENSOR}, .label = "tensor", .what = what,
        .kind = kind, .size = s->size,
        .calls = size_product(calls, s->times),
        .bytes = size_product(bytes, s->times)});
}

/* Leaves of gradients, as soon as they are whole but for the other ranks'
 * tokens. */
static void add_leaves(const struct scene *s)
{
    const struct gradients *g = &s->stage->gradients;
    const struct program *p = s->program;
    const int ranks = p->layout.mesh.size[AXIS_CONTEXT];
    int64_t leaves[2] = {0};

    for (int64_t i = 0; i < 2 * s->times && ranks > 1; i++) {
        struct addend_cursor cursor = {0};
        struct addend addend;

        while (addend_next(&g->cut[i % 2], i / 2, &cursor, &addend))
            leaves[i % 2] += addend.completes;
    }
    for (int i = 0; i < p->use_count && ranks > 1; i++) {
        const struct use_info *use = &p->uses[i];
        const int64_t elements = p->params.items[use->param].elements;
        const int64_t calls = use->local
                                  ? stage_rounds(s->stage)
                                  : use->sources * leaves[use->head];
        const int64_t each = use->local ? elements * p->layout.grid.data
                                           : elements;

        if (!gradient_made(p, i) || use->contexts > 1) continue;
        exchanges_add(s->out, (struct exchange){
            .group = {GROUP_AXIS, AXIS_CONTEXT}, .label = "context",
            .what = SENT_GRADIENTS, .kind = COMM_ALL_REDUCE,
            .size = ranks, .calls = calls,
            .bytes = size_product(calls * s->real,
                                  exchange_all_reduce(
                                      each, ranks,
                                      p->layout.place.at[AXIS_CONTEXT]))});
    }
}

/* Vectors of which tensor ranks hold parts: once a step, or, where rounds are
 * reduced, each unit's in each round. */
static void add_vectors(const struct scene *s)
{
    const struct stage *stage = s->stage;
    const struct gradients *g = &stage->gradients;
    const bool whole = !stage_divides(stage, MEMORY_GRADIENTS);
    struct scene rounds = *s;

    rounds.times = stage_rounds(stage);
    for (int i = 0; i < (whole ? 1 : stage->reduced.count); i++) {
        const struct use_range range =
            whole ? gradients_all(g)
                  : stage->reduced.items[i].joined;
        const int64_t elements = gradients_joined(g, range);

        if (elements > 0)
            add(&rounds, SENT_VECTOR_GRADIENTS, COMM_ALL_REDUCE, 1,
                s->real * exchange_all_reduce(elements, s->size, s->rank));
    }
}

struct exchange exchange_of_layer(const struct mesh *mesh,
                                  const struct layer_exchange *e)
{
    struct exchange row = {
        .group = mesh_axis_group_id(mesh, e->axis), .what = e->what,
        .kind = e->kind, .size = mesh_axis_group_size(mesh, e->axis),
        .calls = e->calls, .bytes = e->bytes, .between = e->between,
        .routed = e->routed, .further = e->further};

    snprintf(row.label, sizeof row.label, "%s",
             mesh_axis_group_name(mesh, e->axis));
    return row;
}

/* All micro-batches of a step; those of a round one by one where they
 * differ. */
static void add_event(const struct scene *s, const struct event *event)
{
    struct exchange_case at = {event, s->stage->frame.mode, 0, false};
    struct layer_exchanges made;
    int64_t times = s->times;

    do {
        layer_exchanges(s->program, &at, &made);
        if (made.varies) times = stage_rounds(s->stage);
        for (int i = 0; i < made.count; i++) {
            const struct layer_exchange *e = &made.items[i];

            struct exchange row =
                exchange_of_layer(&s->program->layout.mesh, e);

            row.calls = size_product(e->calls, times);
            row.bytes = size_product(e->bytes, times);
            row.between = size_product(e->between, times);
            exchanges_add(s->out, row);
        }
    } while (made.varies && ++at.microbatch < s->passes);
}

void exchanges_of_program(struct exchanges *exchanges,
                          const struct stage *stage)
{
    const struct program *p = &stage->program;
    struct scene s = {
        .out = exchanges, .stage = stage, .program = p,
        .size = p->layout.mesh.size[AXIS_TENSOR],
        .rank = p->layout.place.at[AXIS_TENSOR],
        .real = dtype_bytes(program_real(p)),
        .passes = p->size.batch / p->size.sequences};

    s.times = s.passes * stage_rounds(stage);
    add_leaves(&s);
    for (int i = 0; i < stage->frame.event_count; i++)
        add_event(&s, &stage->frame.events[i]);
    add_vectors(&s);
}
