/* SPDX-License-Identifier: Apache-2.0 */
/* frame.c - lives of slots and gradients, and from them one frame.
 *
 * First the events are listed and each buffer's first and last event found,
 * then the buffers get offsets (frame_place.c). */
#include "nn/frame.h"

#include <string.h>

#include "base/sizes.h"
#include "nn/glu_codes.h"
#include "nn/gradient.h"
#include "nn/layer.h"
#include "nn/saved_codes.h"

struct planner {
    struct frame_plan *plan;
    const struct program *program;
    enum backward_mode mode;
    int ahead; /* relayout step whose sums a product starts; 0: none */
    /* Steps by slot, -1: none. A chain goes from a step to the next one of the
     * same kind and slot. */
    int *writer;        /* owned, [slots]: the first that writes it */
    int *scatter;       /* owned, [slots]: the first scatter that reads it */
    int *next_in_place; /* owned, [steps]: of those that write over a slot */
    int *next_scatter;  /* owned, [steps] */
    bool *whole;        /* owned, [steps]: the input stays as it is */
};

/* An array of -1. */
static status take_map(int **map, int count)
{
    void *memory = NULL;

    TRY(memory_take((size_t)count + 1, sizeof(int), &memory));
    *map = memory;
    for (int i = 0; i < count; i++) (*map)[i] = -1;
    return OK;
}

static void planner_free(struct planner *planner)
{
    memory_free(planner->writer);
    memory_free(planner->scatter);
    memory_free(planner->next_in_place);
    memory_free(planner->next_scatter);
    memory_free(planner->whole);
}

static bool is_scatter(const struct step *step)
{
    return step->input >= 0 && step->layer->relayout == RELAYOUT_SCATTER;
}

/* `later`: room for one number for each slot. */
static void chain_steps(struct planner *planner, int *later)
{
    const struct program *p = planner->program;

    for (int i = p->step_count - 1; i >= 0; i--) {
        const struct step *step = &p->steps[i];

        if (step->output >= 0) {
            planner->next_in_place[i] = later[step->output];
            if (step->layer->in_place) later[step->output] = i;
            planner->writer[step->output] = i;
        }
        if (step->aux >= 0) planner->writer[step->aux] = i;
        if (!is_scatter(step)) continue;
        planner->next_scatter[i] = planner->scatter[step->input];
        planner->scatter[step->input] = i;
    }
}

static status index_steps(struct planner *planner)
{
    const struct program *p = planner->program;
    void *memory = NULL;
    int *later = NULL;

    TRY(take_map(&planner->writer, p->slot_count));
    TRY(take_map(&planner->scatter, p->slot_count));
    TRY(take_map(&planner->next_in_place, p->step_count));
    TRY(take_map(&planner->next_scatter, p->step_count));
    TRY(memory_take((size_t)p->step_count + 1, sizeof(bool), &memory));
    planner->whole = memory;
    memset(memory, 0, (size_t)p->step_count * sizeof(bool));
    TRY(take_map(&later, p->slot_count));
    chain_steps(planner, later);
    memory_free(later);
    return OK;
}

static status add_event(struct planner *planner, struct event event)
{
    struct frame_plan *plan = planner->plan;

    if (plan->event_count == plan->event_capacity) {
        const int capacity = plan->event_capacity ? 2 * plan->event_capacity
                                                  : 256;
        void *items = plan->events;

        TRY(memory_grow(&items, (size_t)capacity, sizeof *plan->events));
        plan->events = items;
        plan->event_capacity = capacity;
    }
    plan->events[plan->event_count++] = event;
    return OK;
}

/* A buffer of so many bytes, from the event on that is about to be added. */
static status add_bytes(struct planner *planner, int64_t bytes,
                        struct frame_buffer buffer, int *index)
{
    struct frame_plan *plan = planner->plan;

    if (plan->buffer_count == plan->buffer_capacity) {
        const int capacity = plan->buffer_capacity ? 2 * plan->buffer_capacity
                                                   : 256;
        void *items = plan->buffers;

        TRY(memory_grow(&items, (size_t)capacity, sizeof *plan->buffers));
        plan->buffers = items;
        plan->buffer_capacity = capacity;
    }
    buffer.bytes = (int64_t)arena_aligned((size_t)bytes);
    buffer.first = buffer.last = plan->event_count;
    plan->buffers[plan->buffer_count] = buffer;
    *index = plan->buffer_count++;
    return OK;
}

static status add_typed(struct planner *planner, slot which, bool gradient,
                        enum dtype dtype, int *index)
{
    const struct program *program = planner->program;
    const int64_t width = program_slot_width(program, which, gradient);
    const int64_t rows = program_slot_rows(program, which);

    if (width > ACTIVATION_BYTES_MOST / 8 /
                    (rows > program->size.tokens ? rows : program->size.tokens))
        FAIL(ERR_CONFIG, "a micro-batch of %lld tokens x %lld elements is an "
                         "activation of more than 2^50 bytes; set "
                         "train.micro_batch or data.sequence lower",
             (long long)program->size.tokens, (long long)width);
    return add_bytes(planner, rows * width * dtype_bytes(dtype),
                     (struct frame_buffer){.slot = which, .gradient = gradient,
                                           .dtype = dtype},
                     index);
}

static status add_buffer(struct planner *planner, slot which, bool gradient,
                         int *index)
{
    const struct slot_info *info = &planner->program->slots[which];

    return add_typed(planner, which, gradient,
                     gradient ? info->gradient_dtype : info->dtype, index);
}

/* The buffer is used by the event that is about to be added. */
static void touch(struct planner *planner, int buffer)
{
    CHECK(buffer >= 0);
    planner->plan->buffers[buffer].last = planner->plan->event_count;
}

static bool trains(const struct planner *planner)
{
    return planner->mode != BACKWARD_NONE;
}

static const struct step *first_writer(const struct planner *planner,
                                       slot which)
{
    const int writer = planner->writer[which];

    return writer >= 0 ? &planner->program->steps[writer] : NULL;
}

/* ---- messages beside products (overlap.h) ---- */

/* The gather that wrote the slot, if messages run beside products. */
static const struct step *gather_of(const struct planner *planner, slot which)
{
    const struct step *writer = NULL;

    if (planner->program->layout.overlap.count > 1 && which >= 0)
        writer = first_writer(planner, which);
    return writer != NULL && writer->layer->relayout == RELAYOUT_GATHER
               ? writer : NULL;
}

/* The scatter that reads what the step writes, likewise. */
static const struct step *scatter_of(const struct planner *planner,
                                     const struct step *step)
{
    const struct program *p = planner->program;

    if (p->layout.overlap.count <= 1 || step->output < 0) return NULL;
    int i = planner->scatter[step->output];

    while (i >= 0 && i <= step->index) i = planner->next_scatter[i];
    return i >= 0 ? &p->steps[i] : NULL;
}

/* A gather's messages end when its slot is read: until then what they take is
 * needed too. */
static void touch_source(struct planner *planner, slot which, const int *map)
{
    const struct step *gather = gather_of(planner, which);

    if (gather != NULL && map[gather->input] >= 0)
        touch(planner, map[gather->input]);
}

/* Like touch_source, of a gather of gradients, a scatter's backward pass. */
static void touch_scattered(struct planner *planner, const struct step *step)
{
    const struct step *scatter = scatter_of(planner, step);

    if (scatter != NULL && planner->plan->gradient[scatter->output] >= 0)
        touch(planner, planner->plan->gradient[scatter->output]);
}

/* Room for the sums that the product starts. */
static status plan_ahead(struct planner *planner, const struct step *relayout,
                         slot which, int *map, struct event *event)
{
    const bool gradient = map == planner->plan->gradient;
    int *sums = gradient ? &planner->plan->gradient_sums[which]
                         : &planner->plan->sums[which];

    if (relayout == NULL || map[which] >= 0) return OK;
    TRY(add_buffer(planner, which, gradient, &map[which]));
    planner->ahead = event->ahead = relayout->index;
    if (!dtype_is_narrow(planner->program->dtype)) return OK;
    TRY(add_typed(planner, which, gradient, program_real(planner->program),
                  sums));
    planner->plan->buffers[*sums].sums = true;
    return OK;
}

/* The relayout that is about to be added takes them. */
static void touch_sums(struct planner *planner, const int *sums, slot which)
{
    if (which >= 0 && sums[which] >= 0) touch(planner, sums[which]);
}

static bool multiplies(const struct step *step)
{
    return step->layer->kind == LAYER_LINEAR;
}

/* Do the gathers of a relayout's pass run beside the product that reads them?
 * Backwards that is the one before a scatter. */
static bool goes_beside(const struct planner *planner,
                        const struct step *step, bool forward)
{
    const struct step *writer;

    if (planner->program->layout.overlap.count <= 1) return false;
    if (forward) return step->layer->relayout == RELAYOUT_GATHER;
    if (step->layer->relayout != RELAYOUT_SCATTER) return false;
    writer = first_writer(planner, step->input);
    return writer != NULL && multiplies(writer);
}

/* ---- the events ---- */

static bool in_sub_batches(const struct program *p,
                           const struct frame_plan *plan, int event)
{
    return p->layout.overlap.domino && event < plan->forward_end &&
           p->steps[plan->events[event].step].block >= 0;
}

int frame_segment(const struct program *program,
                  const struct frame_plan *plan, int event)
{
    int at = event;

    while (in_sub_batches(program, plan, at)) {
        const struct event *e = &plan->events[at++];

        if (e->ahead > 0 || program->steps[e->step].layer->relayout ==
                                RELAYOUT_GATHER)
            break; /* messages go; meanwhile the next sub-batch comes */
    }
    return at;
}

status frame_segments(const struct program *program,
                      const struct frame_plan *plan, struct segment **out)
{
    void *memory = NULL;

    TRY(memory_take((size_t)plan->forward_end + 1, sizeof **out, &memory));
    *out = memory;
    for (int i = 0; i < plan->forward_end;) {
        const int end = frame_segment(program, plan, i);
        const struct segment segment = {i, end > i ? end : i + 1};

        while (i < segment.end) (*out)[i++] = segment;
    }
    return OK;
}

/* While sub-batches go through a segment one behind the other, all that any of
 * its events uses is in use. */
static status widen_lives(struct planner *planner)
{
    struct frame_plan *plan = planner->plan;
    struct segment *segments = NULL;

    if (!planner->program->layout.overlap.domino) return OK;
    TRY(frame_segments(planner->program, plan, &segments));
    for (int b = 0; b < plan->buffer_count; b++) {
        struct frame_buffer *buffer = &plan->buffers[b];

        if (buffer->first < plan->forward_end)
            buffer->first = segments[buffer->first].first;
        if (buffer->last < plan->forward_end)
            buffer->last = segments[buffer->last].end - 1;
    }
    memory_free(segments);
    return OK;
}

/* Whether W has work: none where the matrix is frozen. A bias is the work of
 * B, but for the head's. Ranks that divide experts send rows in W, also one
 * whose own experts are all frozen. */
static bool has_weight_pass(const struct program *p, const struct step *step)
{
    if (step->layer->backward_weight == NULL) return false;
    if (step->param[0] >= 0 &&
        p->params.items[step->param[0]].spec.spread > 0)
        return true;
    for (int j = 0; j < step_uses(step); j++) {
        const int use = step_use(step, j).use;

        if (j % STEP_PARAMS_MAX > 0 && step->output >= 0 &&
            !step->layer->two_matrices)
            continue;
        if (use >= 0 && gradient_made(p, use)) return true;
    }
    return false;
}

/* The input's codes, from F to W, or to B. */
static status plan_codes(struct planner *planner, const struct step *step)
{
    const struct program *p = planner->program;
    const bool glu = step->layer->keeps_codes;
    const struct precision *recipe = &p->precision.recipe;

    if (!trains(planner)) return OK;
    if (!glu && (planner->whole[step->index] || !saved_possible(p, step) ||
                 !has_weight_pass(p, step)))
        return OK;
    return add_bytes(
        planner, glu ? glu_codes_bytes(p, step) : saved_bytes(p, step),
        (struct frame_buffer){
            .slot = step->input, .codes = true, .dtype = DTYPE_U8,
            .format = glu ? recipe->glu.format : recipe->activations.format},
        &planner->plan->codes[step->index]);
}

/* The buffers of the norm are there one event before its own. */
static status plan_norm(struct planner *planner, const struct step *norm,
                        struct event *event)
{
    int *const at = planner->plan->activation;

    TRY(add_buffer(planner, norm->output, false, &at[norm->output]));
    TRY(add_buffer(planner, norm->aux, false, &at[norm->aux]));
    event->norm = norm->index;
    return OK;
}

static status plan_forward(struct planner *planner)
{
    struct frame_plan *plan = planner->plan;
    const slot entry = planner->program->slice.entry;

    if (entry >= 0) /* filled before the first event */
        TRY(add_buffer(planner, entry, false, &plan->activation[entry]));
    for (int i = 0; i < planner->program->step_count; i++) {
        const struct step *step = &planner->program->steps[i];

        const struct step *scatter = scatter_of(planner, step);
        struct event event = {.pass = PASS_FORWARD, .step = i,
                              .is_made = i > 0 && plan->events[i - 1].norm == i,
                              .beside = goes_beside(planner, step, true) ||
                                        (i > 0 && planner->ahead == i)};

        if (step->input >= 0) touch(planner, plan->activation[step->input]);
        if (step->second >= 0) touch(planner, plan->activation[step->second]);
        if (step->left >= 0) touch(planner, plan->activation[step->left]);
        if (step->source >= 0) touch(planner, plan->activation[step->source]);
        touch_source(planner, step->input, plan->activation);
        touch_source(planner, step->second, plan->activation);
        if (step->output >= 0 && plan->activation[step->output] < 0)
            TRY(add_buffer(planner, step->output, false,
                           &plan->activation[step->output]));
        if (step->output >= 0) touch(planner, plan->activation[step->output]);
        if (i > 0 && planner->ahead == i)
            touch_sums(planner, plan->sums, step->output);
        if (scatter != NULL && multiplies(step))
            TRY(plan_ahead(planner, scatter, scatter->output,
                           plan->activation, &event));
        if (step->aux >= 0 && !event.is_made)
            TRY(add_buffer(planner, step->aux, false,
                           &plan->activation[step->aux]));
        else if (step->aux >= 0)
            touch(planner, plan->activation[step->aux]);
        if (norm_is_joined(planner->program, step))
            TRY(plan_norm(planner, step + 1, &event));
        TRY(plan_codes(planner, step));
        TRY(add_event(planner, event));
    }
    plan->forward_end = plan->event_count;
    TRY(widen_lives(planner));
    if (entry >= 0) /* F can be run again */
        touch(planner, plan->activation[entry]);
    if (planner->program->slice.exit >= 0) /* sent after F, beside B's */
        touch(planner, plan->activation[planner->program->slice.exit]);
    return OK;
}

/* Runs the writers of a dropped slot again, and before them those of their
 * inputs. The depth is bounded by the steps of one block. */
static status ensure(struct planner *planner, slot which)
{
    struct frame_plan *plan = planner->plan;
    const struct program *p = planner->program;

    if (which < 0) return OK;
    if (plan->again[which] >= 0) {
        touch(planner, plan->again[which]);
        return OK;
    }
    if (!p->slots[which].dropped) { /* kept since F */
        plan->again[which] = plan->activation[which];
        touch(planner, plan->again[which]);
        return OK;
    }
    const struct step *step = first_writer(planner, which);
    /* It reads the codes of its input, which are there. */
    const bool coded = step->layer->keeps_codes;

    if (!coded) TRY(ensure(planner, step->input));
    TRY(ensure(planner, step->second));
    TRY(ensure(planner, step->left));
    TRY(add_buffer(planner, step->output, false, &plan->again[step->output]));
    if (step->aux >= 0)
        TRY(add_buffer(planner, step->aux, false, &plan->again[step->aux]));
    if (coded) touch(planner, plan->codes[step->index]);
    else if (step->input >= 0) touch(planner, plan->again[step->input]);
    if (step->second >= 0) touch(planner, plan->again[step->second]);
    if (step->left >= 0) touch(planner, plan->again[step->left]);
    if (!coded) touch_source(planner, step->input, plan->again);
    touch_source(planner, step->second, plan->again);
    TRY(add_event(planner, (struct event){
        .pass = PASS_RECOMPUTE, .step = step->index,
        .beside = goes_beside(planner, step, true)}));
    for (int i = planner->next_in_place[step->index]; i >= 0;
         i = planner->next_in_place[i]) {
        const struct step *over = &p->steps[i];

        TRY(ensure(planner, over->second));
        TRY(ensure(planner, over->source));
        if (over->aux >= 0 && p->slots[over->aux].dropped)
            TRY(add_buffer(planner, over->aux, false,
                           &plan->again[over->aux]));
        else
            TRY(ensure(planner, over->aux));
        touch(planner, plan->again[step->output]);
        TRY(add_event(planner, (struct event){.pass = PASS_RECOMPUTE,
                                              .step = i}));
    }
    return OK;
}

/* Nothing comes again for a W without work: nobody would wait for the messages
 * before their memory is given on. */
static status plan_weight(struct planner *planner, const struct step *step)
{
    const struct layer *layer = step->layer;
    const int codes = planner->plan->codes[step->index];
    const bool reads = layer->keeps_input_for_w && codes < 0;

    if (!has_weight_pass(planner->program, step)) return OK;
    if (codes >= 0) touch(planner, codes);
    if (reads) TRY(ensure(planner, step->input));
    TRY(ensure(planner, step->second));
    TRY(ensure(planner, step->source));
    if (layer->aux_gradient) {
        TRY(ensure(planner, step->aux));
        touch(planner, planner->plan->gradient[step->aux]);
    }
    if (reads && step->input >= 0)
        touch(planner, planner->plan->again[step->input]);
    if (step->second >= 0) touch(planner, planner->plan->again[step->second]);
    if (reads)
        touch_source(planner, step->input, planner->plan->again);
    if (layer->keeps_output_gradient_for_w && step->output >= 0)
        touch(planner, planner->plan->gradient[step->output]);
    if (step->result >= 0)
        touch(planner, planner->plan->gradient[step->result]);
    if (planner->mode == BACKWARD_FUSED) touch_scattered(planner, step);
    return add_event(planner, (struct event){.pass = PASS_BACKWARD_WEIGHT,
                                             .step = step->index});
}

/* The gradient of `which` exists from here on; *adds when it did before. */
static status need_gradient(struct planner *planner, slot which, bool *adds)
{
    int *buffer = &planner->plan->gradient[which];

    *adds = *buffer >= 0;
    if (!*adds) TRY(add_buffer(planner, which, true, buffer));
    touch(planner, *buffer);
    return OK;
}

static status plan_input(struct planner *planner, const struct step *step)
{
    struct frame_plan *plan = planner->plan;
    const struct layer *layer = step->layer;
    struct event event = {.pass = PASS_BACKWARD_INPUT, .step = step->index,
                          .beside = goes_beside(planner, step, false)};
    const slot kept[] = {layer->keeps_input_for_b ? step->input : -1,
                         layer->keeps_output_for_b ? step->output : -1,
                         layer->keeps_aux_for_b || layer->aux_gradient
                             ? step->aux : -1,
                         layer->forgets_second ? -1 : step->second,
                         step->source};
    bool again;

    /* The input of W is gathered again beside the product of B. */
    if (multiplies(step) && planner->mode == BACKWARD_FUSED &&
        has_weight_pass(planner->program, step) &&
        gather_of(planner, step->input) != NULL)
        TRY(ensure(planner, step->input));
    for (int i = 0; i < 5; i++) TRY(ensure(planner, kept[i]));
    for (int i = 0; i < 5; i++) {
        if (kept[i] >= 0) touch(planner, plan->again[kept[i]]);
        touch_source(planner, kept[i], plan->again);
    }
    if (layer->keeps_codes) touch(planner, plan->codes[step->index]);
    if (step->output >= 0) touch(planner, plan->gradient[step->output]);
    if (step->result >= 0) touch(planner, plan->gradient[step->result]);
    /* The residual's gradient is made before the layer's (run.c), so that a
     * layer whose input is its own residual adds to it. */
    if (step->left >= 0) {
        const bool later = planner->mode == BACKWARD_SPLIT &&
                           layer->keeps_output_gradient_for_w;

        if (plan->gradient[step->left] < 0 && !later &&
            step->left != step->input) {
            plan->gradient[step->left] = plan->gradient[step->output];
            event.alias_left = true;
        } else {
            TRY(need_gradient(planner, step->left, &event.adds_left));
        }
    }
    touch_scattered(planner, step);
    if (layer->aux_gradient) TRY(need_gradient(planner, step->aux, &again));
    if (layer->second_gradient)
        TRY(need_gradient(planner, step->second, &event.adds_second));
    if (step->input >= 0 && !layer->in_place)
        TRY(need_gradient(planner, step->input, &event.adds));
    if (event.adds && planner->ahead == step->index && step->index > 0) {
        event.adds = false; /* the product has begun it */
        event.beside = true;
        touch_sums(planner, plan->gradient_sums, step->input);
    }
    if (multiplies(step) && gather_of(planner, step->input) != NULL)
        TRY(plan_ahead(planner, gather_of(planner, step->input),
                       gather_of(planner, step->input)->input,
                       plan->gradient, &event));
    return add_event(planner, event);
}

static status plan_backward(struct planner *planner)
{
    const struct program *p = planner->program;
    bool adds;

    planner->ahead = 0;
    if (p->slice.exit >= 0) /* filled between F and B */
        TRY(need_gradient(planner, p->slice.exit, &adds));
    for (int i = p->step_count - 1; i >= 0; i--) {
        TRY(plan_input(planner, &p->steps[i]));
        if (planner->mode == BACKWARD_FUSED)
            TRY(plan_weight(planner, &p->steps[i]));
    }
    planner->plan->backward_end = planner->plan->event_count;
    if (p->slice.entry >= 0) /* read after B */
        touch(planner, planner->plan->gradient[p->slice.entry]);
    if (planner->mode == BACKWARD_SPLIT)
        for (int i = p->step_count - 1; i >= 0; i--)
            TRY(plan_weight(planner, &p->steps[i]));
    return OK;
}

/* ---- together ---- */

/* An empty plan. */
static status plan_begin(struct planner *planner)
{
    struct frame_plan *plan = planner->plan;
    int **maps[] = {&plan->activation, &plan->again, &plan->gradient,
                    &plan->sums, &plan->gradient_sums};

    *plan = (struct frame_plan){.mode = planner->mode};
    planner->ahead = 0;
    for (int i = 0; i < 5; i++)
        TRY(take_map(maps[i], planner->program->slot_count));
    return take_map(&plan->codes, planner->program->step_count);
}

/* Bytes of all codes of a slot. */
static int64_t all_codes(const struct frame_plan *plan, slot which)
{
    int64_t bytes = 0;

    for (int i = 0; i < plan->buffer_count; i++)
        if (plan->buffers[i].codes && plan->buffers[i].slot == which)
            bytes += plan->buffers[i].bytes;
    return bytes;
}

/* Drops codes of slots that stay in memory after F anyway, because another step
 * reads them: there codes would cost memory. True: there were such codes. */
static bool drop_codes(struct planner *planner)
{
    const struct frame_plan *plan = planner->plan;
    bool found = false;

    for (int i = 0; i < planner->program->step_count; i++) {
        const slot input = planner->program->steps[i].input;
        const struct frame_buffer *x;

        if (plan->codes[i] < 0 ||
            planner->program->steps[i].layer->keeps_codes)
            continue;
        x = &plan->buffers[plan->activation[input]];
        if (x->last < plan->forward_end && all_codes(plan, input) < x->bytes)
            continue;
        planner->whole[i] = found = true;
    }
    return found;
}

static status plan_passes(struct planner *planner)
{
    TRY(plan_forward(planner));
    planner->plan->backward_end = planner->plan->forward_end;
    return trains(planner) ? plan_backward(planner) : OK;
}

status frame_plan_build(struct frame_plan *plan, const struct program *program,
                        enum backward_mode mode, struct frame_count count)
{
    struct planner planner = {.plan = plan, .program = program, .mode = mode};
    status result;
    bool again;

    TRY(plan_begin(&planner));
    result = index_steps(&planner);
    if (result == OK) result = plan_passes(&planner);
    again = result == OK && drop_codes(&planner);
    if (again) {
        frame_plan_free(plan);
        result = plan_begin(&planner);
        if (result == OK) result = plan_passes(&planner);
    }
    planner_free(&planner);
    TRY(result);
    return frame_plan_place(plan, program, count);
}
