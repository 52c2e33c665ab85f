/* SPDX-License-Identifier: Apache-2.0 */
/* exchange_model.c - what the steps of the program send along the tensor and
 * context axes. The events of the frame are what runs, recomputation included,
 * so they are what is counted. */
#include "plan/exchange_model.h"

#include <string.h>

#include "nn/context.h"
#include "nn/qk_norm.h"

struct scene {
    struct exchanges *out;
    const struct stage *stage;
    const struct program *program;
    int size, rank;      /* of the tensor group */
    int64_t bytes, real; /* of an element: of a slot, of a sum */
    int64_t passes;      /* micro-batches of a round */
    int64_t times;       /* of a step */
};

static void add(const struct scene *s, const char *what, enum comm_kind kind,
                int64_t calls, int64_t bytes)
{
    exchanges_add(s->out, (struct exchange){
        .group = "tensor", .what = what, .kind = kind, .size = s->size,
        .calls = calls * s->times, .bytes = bytes * s->times});
}

/* Elements of this rank's tokens of a slot. */
static int64_t part_elements(const struct scene *s, int64_t width)
{
    return program_part(s->program, s->rank).count *
           program_rows(s->program) * width;
}

/* Beside products, a call for each piece of the micro-batch. */
static int calls_of(const struct scene *s, const struct event *event)
{
    return event->beside ? overlap_pieces(s->program) : 1;
}

static void add_gather(const struct scene *s, const struct event *event,
                       int64_t width)
{
    add(s, "activations", COMM_ALL_GATHER, calls_of(s, event),
        part_elements(s, width) * (s->size - 1) * s->bytes);
}

static void add_scatter(const struct scene *s, const struct event *event,
                        int64_t width)
{
    add(s, "activations", COMM_REDUCE_SCATTER, calls_of(s, event),
        (s->program->tokens * width - part_elements(s, width)) * s->real);
}

/* Keys' and values' gradients of heads that several ranks hold. */
static void add_replicas(const struct scene *s, const struct step *step)
{
    const int replicas = step->set.attention.replicas;
    const int64_t width = 2 * (int64_t)step->set.attention.kv_heads *
                          step->set.attention.head_width;

    if (replicas <= 1) return;
    add(s, "key-value gradients", COMM_EXCHANGE, 1,
        (replicas - 1) * s->program->tokens * width * s->real);
}

/* Queries and keys whose norm is over all heads; backward: their gradients
 * too. */
static void add_rows(const struct scene *s, const struct step *step,
                     bool backward)
{
    const int calls = backward ? 2 : 1;

    for (int which = 0; which < 2 && s->size > 1; which++) {
        if (step->set.qk_norm.width[which] == step->set.qk_norm.head_width)
            continue;
        const struct qk_share share = qk_norm_share(step, s->program, which);

        add(s, "rows of queries and keys", COMM_ALL_GATHER, calls,
            calls * share.counts[s->rank] * s->program->tokens *
                (s->size - 1) * s->bytes);
    }
}

/* Two numbers a token, then one: pieces depend on the micro-batch. */
static void add_losses(const struct scene *s)
{
    const struct cut *cut = &s->stage->gradients.cut[1];
    struct scene once = *s;

    once.times = stage_rounds(s->stage);
    for (int64_t i = 0; i < s->passes; i++) {
        struct piece_cursor cursor = {0};
        struct piece piece;

        while (piece_next(cut, i, &cursor, &piece)) {
            const int64_t n = piece.sequences * piece.tokens;

            for (int each = 1; each <= 2; each++)
                add(&once, "token losses", COMM_ALL_REDUCE, 1,
                    s->real * exchange_all_reduce(each * n, s->size,
                                                  s->rank));
        }
    }
}

/* Queries, keys and values for heads, and back; and what is gathered by those
 * that do not exchange. */
static void add_sequence(const struct scene *s, const struct step *step,
                         bool backward)
{
    const struct program *p = s->program;
    const int ranks = p->mesh.size[AXIS_CONTEXT];
    const struct attention heads = {
        .heads = step->set.attention.heads,
        .kv_heads = step->set.attention.kv_heads,
        .head_width = step->set.attention.head_width,
        .dk.dtype = attention_key_gradients(step, p)};

    if (ranks == 1) return;
    exchanges_add(s->out, (struct exchange){
        .group = "context", .what = backward ? "attention, backward"
                                             : "attention, forward",
        .kind = COMM_EXCHANGE, .size = ranks,
        .calls = s->times * context_calls(p, backward),
        .bytes = s->times * context_bytes(p, &heads, backward)});
}

/* Leaves of gradients, as soon as they are whole but for the other ranks'
 * tokens. */
static void add_leaves(const struct scene *s)
{
    const struct gradients *g = &s->stage->gradients;
    const struct program *p = s->program;
    const int ranks = p->mesh.size[AXIS_CONTEXT];
    int64_t leaves[2] = {0};

    for (int64_t i = 0; i < 2 * s->times && ranks > 1; i++) {
        struct piece_cursor cursor = {0};
        struct piece piece;

        while (piece_next(&g->cut[i % 2], i / 2, &cursor, &piece))
            leaves[i % 2] += piece.completes;
    }
    for (int i = 0; i < p->stream_count && ranks > 1; i++) {
        const struct stream_info *stream = &p->streams[i];
        const int64_t elements = p->params.items[stream->param].elements;
        const int64_t calls = stream->local ? 1 : leaves[stream->head];
        const int64_t each = stream->local ? elements * p->grid.data
                                           : elements;

        if (!gradient_made(p, i)) continue;
        exchanges_add(s->out, (struct exchange){
            .group = "context", .what = "gradients", .kind = COMM_ALL_REDUCE,
            .size = ranks, .calls = calls,
            .bytes = calls * s->real *
                     exchange_all_reduce(each, ranks,
                                         p->place.at[AXIS_CONTEXT])});
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
        const struct stream_range range =
            whole ? gradients_all(g)
                  : stage->reduced.items[i].joined;
        const int64_t elements = gradients_joined(g, range);

        if (elements > 0)
            add(&rounds, "vector gradients", COMM_ALL_REDUCE, 1,
                s->real * exchange_all_reduce(elements, s->size, s->rank));
    }
}

static void add_event(const struct scene *s, const struct event *event)
{
    const struct step *step = &s->program->steps[event->step];
    const char *name = step->layer->name;
    const bool forward = event->pass == PASS_FORWARD ||
                         event->pass == PASS_RECOMPUTE;
    const bool backward = event->pass == PASS_BACKWARD_INPUT;
    const int64_t width =
        step->output >= 0 ? s->program->slots[step->output].width : 0;

    if (strcmp(name, "gather") == 0) {
        if (forward) add_gather(s, event, width);
        if (backward) add_scatter(s, event, width);
    } else if (strcmp(name, "scatter") == 0) {
        if (forward) add_scatter(s, event, width);
        if (backward) add_gather(s, event, width);
    } else if (strcmp(name, "attention") == 0) {
        if (backward) add_replicas(s, step);
        if (forward || backward) add_sequence(s, step, backward);
    } else if (strcmp(name, "qk_norm") == 0) {
        if (forward || backward) add_rows(s, step, backward);
    } else if (strcmp(name, "head") == 0) {
        const bool split = s->stage->frame.mode == BACKWARD_SPLIT;

        if (backward || (split && event->pass == PASS_BACKWARD_WEIGHT))
            add_losses(s);
    }
}

void exchanges_of_program(struct exchanges *exchanges,
                          const struct stage *stage)
{
    const struct program *p = &stage->program;
    struct scene s = {
        .out = exchanges, .stage = stage, .program = p,
        .size = p->mesh.size[AXIS_TENSOR], .rank = p->place.at[AXIS_TENSOR],
        .bytes = dtype_bytes(p->dtype),
        .real = dtype_bytes(program_real(p)),
        .passes = p->batch / p->sequences};

    s.times = s.passes * stage_rounds(stage);
    add_leaves(&s);
    for (int i = 0; i < stage->frame.event_count; i++)
        add_event(&s, &stage->frame.events[i]);
    add_vectors(&s);
}
