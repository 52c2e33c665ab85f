/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - running a program: one micro-batch, its frame, its gradients. */
#include "nn/run.h"

#include <math.h>

#include "base/meter.h"
#include "comm/lifetime_check.h"
#include "kernels/math.h"
#include "nn/choice.h"

static char *frame_at(const struct run *run, int buffer)
{
    CHECK(buffer >= 0);
    const struct frame_buffer *b = &run->plan->buffers[buffer];

    return (char *)(b->shared ? run->pass_room : run->frame) + b->offset;
}

int64_t run_tokens(const struct run *run)
{
    return run->batch.tokens;
}

void *run_list(const struct run *run, const void *scratch)
{
    return (char *)run->lists + ((const char *)scratch -
                                 (const char *)run->scratch);
}

status run_told(const struct run *run, void *scratch, size_t bytes)
{
    return device_write(run->stream, scratch, run_list(run, scratch), bytes);
}

static struct tensor shaped(const struct run *run, int buffer, slot which)
{
    const enum dtype dtype = run->plan->buffers[buffer].dtype;
    const struct program *p = run->program;
    const int64_t rows = p->mode == PROGRAM_GENERATE
                             ? run_tokens(run)
                             : program_slot_rows(p, which);

    return tensor_2d(frame_at(run, buffer), dtype, rows,
                     program_slot_width(p, which,
                                        run->plan->buffers[buffer].gradient));
}

static void check_alive(const struct run *run, int buffer)
{
    const int event = (int)(run->event - run->plan->events);

    CHECK(buffer >= 0);
    CHECK(!run->poison || (run->plan->buffers[buffer].first <= event &&
                           event <= run->plan->buffers[buffer].last));
}

/* A layer uses what is alive at its event, and nothing else. */
static struct tensor alive(const struct run *run, int buffer, slot which)
{
    check_alive(run, buffer);
    return shaped(run, buffer, which);
}

struct tensor run_slot(const struct run *run, slot which)
{
    const struct frame_plan *plan = run->plan;
    const bool forward = run->event->pass == PASS_FORWARD;

    const struct tensor all = alive(
        run, forward ? plan->activation[which] : plan->again[which], which);

    return run->window > 0
               ? overlap_rows(run->program, all, run->window - 1) : all;
}

struct tensor run_gradient(const struct run *run, slot which)
{
    return alive(run, run->plan->gradient[which], which);
}

void *run_codes(const struct run *run, const struct step *step)
{
    const int buffer = run->plan->codes[step->index];

    check_alive(run, buffer);
    return frame_at(run, buffer);
}

struct tensor run_sums(const struct run *run, slot which, bool gradient)
{
    const int buffer = gradient ? run->plan->gradient_sums[which]
                                : run->plan->sums[which];

    if (buffer < 0)
        return gradient ? run_gradient(run, which) : run_slot(run, which);
    const struct tensor all = alive(run, buffer, which);

    return run->window > 0
               ? overlap_rows(run->program, all, run->window - 1) : all;
}

struct tensor run_entry(const struct run *run)
{
    const slot entry = run->program->slice.entry;

    return shaped(run, run->plan->activation[entry], entry);
}

struct tensor run_exit(const struct run *run)
{
    const slot exit = run->program->slice.exit;

    return shaped(run, run->plan->activation[exit], exit);
}

struct tensor run_exit_gradient(const struct run *run)
{
    const slot exit = run->program->slice.exit;

    return shaped(run, run->plan->gradient[exit], exit);
}

struct tensor run_entry_gradient(const struct run *run)
{
    const slot entry = run->program->slice.entry;

    return shaped(run, run->plan->gradient[entry], entry);
}

struct tensor run_weight(const struct run *run, const struct step *step,
                         int which)
{
    const struct program *p = run->program;
    struct tensor view = param_weight(&p->params.items[step->param[which]],
                                      run->params.weights);

    if (run->params.placed != NULL) {
        view.data = run->params.placed[step->param[which]];
        CHECK(view.data != NULL);
    }
    return view;
}

bool run_in_strips(const struct run *run, const struct step *step, int which)
{
    return run->params.strips != NULL && run->params.strips[step->param[which]];
}

void run_keys(struct run *run, uint64_t seed)
{
    run->keys.dropout = random_key_make(seed, "dropout");
    run->keys.jitter = random_key_make(seed, "jitter");
    run->keys.attention = random_key_make(seed, "attention dropout");
    run->keys.recipe = random_key_make(seed, "recipe");
    run->keys.signs = random_key_make(seed, "recipe signs");
}

int64_t run_segments(const struct program *program)
{
    const int64_t leaves = (int64_t)LEAVES_MAX * PARAM_PIECES_MAX;

    const int64_t count =
        program->size.sequences * program->size.context_chunks;

    return count > leaves ? count : leaves;
}

/* Ranks of the larger of both axes. */
static int64_t most_peers(const struct program *program)
{
    const int tensor = program->layout.mesh.size[AXIS_TENSOR];
    const int context = program->layout.mesh.size[AXIS_CONTEXT];

    return tensor > context ? tensor : context;
}

enum { PEERS_COUNTS = 1 + OVERLAP_KINDS };

size_t run_peers_bytes(const struct program *program)
{
    const size_t each = PEERS_COUNTS * sizeof(int64_t) +
                        2 * sizeof(struct comm_block);

    return most_peers(program) > 1 ? (size_t)most_peers(program) * each : 0;
}

void run_peers_place(struct run *run, void *memory)
{
    const int64_t peers = most_peers(run->program);
    int64_t *counts = memory;

    if (peers <= 1) return;
    run->peers.counts = counts;
    for (int i = 0; i < OVERLAP_KINDS; i++)
        run->overlaps[i].counts = counts + (1 + i) * peers;
    run->peers.send = (struct comm_block *)(void *)(counts +
                                                    PEERS_COUNTS * peers);
    run->peers.receive = run->peers.send + peers;
}

struct comm_call run_exchange(const struct run *run,
                              const struct group *group)
{
    const size_t bytes = (size_t)group->size * sizeof *run->peers.send;

    CHECK(group->size <= most_peers(run->program) && run->peers.send != NULL);
    memset(run->peers.send, 0, bytes);
    memset(run->peers.receive, 0, bytes);
    return (struct comm_call){.kind = COMM_EXCHANGE, .send = run->peers.send,
                              .receive = run->peers.receive};
}

struct sum_order run_order_whole(struct run *run, int64_t width)
{
    run->segments[0] = (struct sum_segment){.length = width};
    return (struct sum_order){run->segments, 1, 1};
}

struct sum_order run_order_cut(struct run *run, const struct param *param)
{
    const struct program *p = run->program;
    const struct param_spec *spec = &param->spec;
    const int pieces = spec->piece_count > 0 ? spec->piece_count : 1;
    const int ranks = layout_ranks_of(spec, &p->layout.mesh, AXIS_TENSOR);
    const int rank =
        layout_rank_of(spec, &p->layout.mesh, &p->layout.place, AXIS_TENSOR);
    const int before = p->layout.grid.tensor * rank / ranks;
    const struct layout_span own = {
        before, p->layout.grid.tensor * (rank + 1) / ranks - before};
    int64_t count = 0;

    for (int leaf = 0; leaf < own.count; leaf++) {
        int64_t base = 0;

        for (int i = 0; i < pieces; i++) {
            const struct layout_span held =
                layout_held(spec, &p->layout.mesh, &p->layout.place, i);
            const struct layout_span block = layout_leaf(
                spec, p->layout.grid.tensor, (int)own.first + leaf, i);

            run->segments[count++] = (struct sum_segment){
                base + block.first - held.first, block.count, leaf};
            base += held.count;
        }
    }
    return (struct sum_order){run->segments, count, (int)own.count};
}

int64_t addend_first_token(const struct program *p, const struct addend *addend)
{
    return addend->first_sequence * p->size.length + addend->first_token;
}

int64_t addend_tokens(const struct addend *addend)
{
    return addend->sequences * addend->tokens;
}

/* One context leaf of one sequence after the other: its first context chunk,
 * then the second. */
static struct sum_order order_contexts(struct run *run,
                                       const struct addend *addend, int only)
{
    const int parts = run->program->size.context_chunks;
    const int contexts = parts / 2;
    const int first = only ? only - 1 : 0, last = only ? only : contexts;
    const int64_t per_leaf = addend->sequences / addend->leaves;
    const int64_t length = addend->tokens / parts;
    int64_t count = 0;
    int leaf = 0;

    for (int i = 0; i < addend->leaves; i++)
        for (int pair = first; pair < last; pair++, leaf++)
            for (int64_t s = i * per_leaf; s < (i + 1) * per_leaf; s++)
                for (int second = 0; second < 2; second++) {
                    const int number = second ? parts - 1 - pair : pair;

                    run->segments[count++] = (struct sum_segment){
                        s * addend->tokens + number * length, length, leaf};
                }
    return (struct sum_order){run->segments, count, leaf};
}

struct sum_order run_order_tokens(struct run *run, const struct addend *addend,
                                  int only)
{
    const int64_t per_leaf = addend->sequences / addend->leaves;

    if (run->program->size.context_chunks > 1 && !addend->cut)
        return order_contexts(run, addend, only);
    for (int64_t i = 0; i < addend->sequences; i++)
        run->segments[i] = (struct sum_segment){
            i * addend->tokens, addend->tokens, (int)(i / per_leaf)};
    return (struct sum_order){run->segments, addend->sequences, addend->leaves};
}

struct token_order run_token_order(const struct run *run,
                                   const struct addend *addend, bool continues)
{
    return (struct token_order){
        .length = addend->tokens,
        .sequences_per_leaf = addend->sequences / addend->leaves,
        .leaves = addend->leaves,
        .parts = run->program->layout.grid.tensor,
        .continues = continues,
        .context_chunks = run->program->size.context_chunks};
}

struct token_order run_part_order(const struct run *run,
                                  const struct addend *addend, bool continues)
{
    const struct program *p = run->program;
    const struct layout_span own = program_leaves(p);
    struct token_order order = run_token_order(run, addend, continues);

    CHECK(addend->tokens == p->size.length);
    order.length = p->size.context_chunks *
                   program_part(p, p->layout.place.at[AXIS_TENSOR]).count;
    order.parts = (int)own.count;
    order.first_part = (int)own.first;
    order.all_parts = p->layout.grid.tensor;
    order.whole_length = p->size.length;
    return order;
}

/* NaN into the scratch of an event, and into every buffer whose life ended with
 * it. Logits that a generator has made stay in the scratch. */
static status poison(const struct run *run, int event)
{
    const struct program *p = run->program;
    const struct step *step = &p->steps[run->plan->events[event].step];

    if (step->layer->scratch != NULL && run->scratch != NULL &&
        (step->output >= 0 || p->mode == PROGRAM_TRAIN))
        TRY(lives_dead(run->scratch, (int64_t)step->layer->scratch(step, p)));
    for (int i = 0; i < run->plan->buffer_count; i++) {
        const struct frame_buffer *buffer = &run->plan->buffers[i];

        if (buffer->last != event) continue;
        TRY(lives_end(frame_at(run, i), buffer->bytes,
                      p->slots[buffer->slot].name));
        TRY(lives_dead(frame_at(run, i), buffer->bytes));
    }
    return OK;
}

/* The residual's gradient is the output's own, or takes its sum. */
static status backward_left(struct run *run, const struct step *step)
{
    const struct event *event = run->event;

    if (step->left < 0 || event->alias_left) return OK;
    struct tensor from = run_gradient(run, step->output);
    struct tensor to = run_gradient(run, step->left);

    from = tensor_1d(from.data, from.dtype, tensor_count(&from));
    to = tensor_1d(to.data, to.dtype, tensor_count(&to));
    if (event->adds_left)
        return run->kernels->add(run->stream, to, to, from);
    return run->kernels->scale(run->stream, to, from, 1.0);
}

static status run_event(struct run *run, const struct event *event)
{
    const struct step *step = &run->program->steps[event->step];
    status result = OK;

    run->event = event;
    run->failed_step = event->step;
    choice_forget(run, step);
    switch (event->pass) {
    case PASS_FORWARD:
    case PASS_RECOMPUTE:
        if (!event->is_made) result = step->layer->forward(step, run);
        break;
    case PASS_BACKWARD_INPUT:
        TRY(backward_left(run, step));
        if (step->layer->backward_input != NULL)
            result = step->layer->backward_input(step, run);
        break;
    case PASS_BACKWARD_WEIGHT:
        result = step->layer->backward_weight(step, run);
        break;
    }
    if (result == OK) run->failed_step = -1;
    return result;
}

/* An event as a span of a trace; its kernels lie inside. */
static void outline_end(struct meter_track *track, const struct run *run,
                        const struct event *event)
{
    static const char *const passes[] = {"F", "F again", "B", "W"};
    const struct step *step = &run->program->steps[event->step];

    meter_end(track, &(struct meter_what){
        .kind = METER_OTHER, .name = step->layer->name,
        .label = passes[event->pass], .number = step->block});
}

static status run_timed(struct run *run, int event)
{
    const double began = run->timing.clock != NULL ? run->timing.clock() : 0;
    struct meter_track *track = meter_outline();

    TRY(run_event(run, &run->plan->events[event]));
    outline_end(track, run, &run->plan->events[event]);
    if (run->probe != NULL)
        TRY(run->probe->look(run->probe->argument, run,
                             &run->plan->events[event]));
    if (run->timing.clock != NULL)
        run->timing.spent[event] += run->timing.clock() - began;
    return OK;
}

/* Lets F see one sub-batch of the micro-batch only. */
static void enter_window(struct run *run, const struct batch *all, int number)
{
    const struct program *p = run->program;
    const int64_t count = overlap_batches(p);
    const int64_t first = p->size.sequences * number / count;
    const int64_t at = first * p->size.length;
    struct batch *b = &run->batch;

    run->window = number + 1;
    *b = *all;
    b->tokens =
        (p->size.sequences * (number + 1) / count - first) * p->size.length;
    b->sequence += first;
    b->inputs += at;
    if (b->targets != NULL) b->targets += at;
    if (b->positions != NULL) b->positions += at;
    if (b->documents != NULL) b->documents += at;
}

/* Events [first, last) of F, for one sub-batch after the other. */
static status run_segment(struct run *run, int first, int last)
{
    const struct batch all = run->batch;
    const int count = overlap_batches(run->program);
    status result = OK;

    for (int batch = 0; batch < count && result == OK; batch++) {
        enter_window(run, &all, batch);
        for (int i = first; i < last && result == OK; i++)
            result = run_timed(run, i);
    }
    run->window = 0;
    run->batch = all;
    return result;
}

static status run_each(struct run *run, int first, int last)
{
    for (int i = first, end; i < last; i = end) {
        const int segment = frame_segment(run->program, run->plan, i);

        end = segment > i ? segment : i + 1;
        if (segment > i) TRY(run_segment(run, i, end));
        else TRY(run_timed(run, i));
        for (int j = i; j < end && run->poison; j++) TRY(poison(run, j));
    }
    return OK;
}

static bool ends_pass(const struct frame_plan *plan, int last)
{
    return last == plan->forward_end || last == plan->backward_end ||
           last == plan->event_count;
}

static status run_events(struct run *run, int first, int last)
{
    const status result = run_each(run, first, last);

    if (result != OK) return overlap_fail(run, result);
    return ends_pass(run->plan, last) ? overlap_finish(run) : OK;
}

static void fill_positions(struct run *run)
{
    const int64_t length = run->program->mode == PROGRAM_GENERATE
                               ? run->batch.tokens
                               : run->program->size.length;

    if (run->batch.positions != NULL) return;
    for (int64_t t = 0; t < run->batch.tokens; t++)
        run->positions[t] = (int32_t)(run->batch.first_position + t % length);
    run->batch.positions = run->positions;
}

status run_forward(struct run *run)
{
    CHECK(run->batch.tokens <= run->program->size.tokens);
    fill_positions(run);
    TRY(run_events(run, 0, run->plan->forward_end));
    return device_finish(run->stream);
}

status run_part(struct run *run, int first, int last)
{
    if (first == 0) fill_positions(run);
    return run_events(run, first, last);
}

status run_backward_input(struct run *run)
{
    return run_events(run, run->plan->forward_end, run->plan->backward_end);
}

status run_backward_weight(struct run *run)
{
    return run_events(run, run->plan->backward_end, run->plan->event_count);
}

size_t run_rope_bytes(const struct program *program)
{
    size_t bytes = 0;

    for (int i = 0; i < program->rope_count; i++)
        bytes += arena_aligned(
            (size_t)(program->size.context * program->rope[i].rotary) *
            (size_t)dtype_bytes(program_real(program)));
    return bytes;
}

/* Column `pair` of the table of a factor that grows with the position. */
static void temper_fill(const struct rope_table *of,
                        const struct tensor *table, int64_t pair)
{
    const int64_t floor = (int64_t)of->temper_floor;

    for (int64_t t = 0; t < table->shape[0]; t++) {
        const double passed = (double)((t + 1) / floor);
        const int64_t at = (t * table->shape[1] + pair) * 2;

        tensor_set(table, at, 1 + of->temper * math_log(1 + passed));
        tensor_set(table, at + 1, 0);
    }
}

/* cos and sin of position * frequency, computed in float64 and rounded once.
 * Source: Su et al. 2021, arXiv:2104.09864, section 3.2.2. */
void run_rope_fill(struct run *run, void *memory, void *room)
{
    const struct program *p = run->program;
    char *at = room;

    for (int i = 0; i < p->rope_count; i++) {
        const int half = p->rope[i].rotary / 2;
        const struct tensor table =
            tensor_3d(at, program_real(p), p->size.context, half, 2);

        const double scale = rope_attention_factor(&p->rope[i].scaling,
                                                   p->size.context);

        run->rope[i] = (char *)memory + (at - (char *)room);
        for (int j = 0; j < half; j++) {
            if (p->rope[i].temper > 0) {
                temper_fill(&p->rope[i], &table, j);
                continue;
            }
            const double frequency =
                rope_frequency(&p->rope[i].scaling, p->rope[i].base,
                               p->rope[i].rotary, j, p->size.context);

            for (int64_t t = 0; t < p->size.context; t++) {
                const double angle = (double)t * frequency;

                tensor_set(&table, (t * half + j) * 2,
                           scale * math_cos(angle));
                tensor_set(&table, (t * half + j) * 2 + 1,
                           scale * math_sin(angle));
            }
        }
        at += arena_aligned((size_t)(p->size.context * p->rope[i].rotary) *
                            (size_t)dtype_bytes(program_real(p)));
    }
}

/* Where the device is apart it reads a copy. That is slow, but only a run that
 * fails gets here. */
status run_has_nan(const struct run *run, struct tensor view, bool *found)
{
    const int64_t count = tensor_count(&view);
    const size_t bytes = (size_t)(count * dtype_bytes(view.dtype));
    void *copy = NULL;
    status result = OK;

    *found = false;
    if (run->stream->device != NULL) {
        TRY(memory_take(bytes + 1, 1, &copy));
        result = device_read(run->stream, copy, view.data, bytes);
        view.data = copy;
    }
    for (int64_t i = 0; i < count && result == OK && !*found; i++)
        *found = !isfinite(tensor_get(&view, i));
    memory_free(copy);
    return result;
}

/* Ranks that run the same steps stop at the same one: the next may wait for
 * all of them. */
static status share_flag(struct run *run, bool *flag)
{
    double value = *flag;

    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        const struct tensor one = tensor_1d(&value, DTYPE_F64, 1);

        if (run->groups[axis] == NULL) continue;
        TRY(comm_all_reduce(run->groups[axis], one, one, REDUCE_MAX));
    }
    *flag = value > 0;
    return OK;
}

status run_find_nan(struct run *run, int *step)
{
    *step = -1;
    fill_positions(run);
    for (int i = 0; i < run->plan->forward_end; i++) {
        const struct event *event = &run->plan->events[i];
        const struct step *at = &run->program->steps[event->step];

        TRY(run_event(run, event));
        if (event->ahead == 0) TRY(overlap_finish(run));
        if (at->output < 0) continue;
        bool found;

        TRY(run_has_nan(run, run_slot(run, at->output), &found));
        TRY(share_flag(run, &found));
        if (!found) continue;
        *step = event->step;
        return overlap_finish(run);
    }
    return OK;
}

status run_copy_rows(const struct run *run, struct tensor to,
                     struct tensor from)
{
    const int64_t bytes = dtype_bytes(to.dtype);

    return device_copy_rows(
        run->stream, (struct device_rows){to.data, to.stride[0] * bytes},
        (struct device_rows){from.data, from.stride[0] * bytes}, to.shape[0],
        (size_t)(to.shape[1] * bytes));
}
