/* SPDX-License-Identifier: Apache-2.0 */
/* execute.c - performs a step: a loop over the list of this rank. */
#include "step/execute.h"

#include <string.h>

#include "base/fault.h"
#include "base/meter.h"
#include "base/status_kept.h"
#include "comm/flight.h"
#include "list/verify.h"
#include "step/lists_agree.h"
#include "step/micro_batches.h"

enum { TURNS_MOST = 4 }; /* of F alone under way at once */

/* ---- building ---- */

/* As many turns as the stage with most frames can use. */
static int count_turns(const struct pipeline *p)
{
    int most = 1;

    for (int i = 0; i < p->count; i++)
        if (p->stages[i].request.size.frames > most)
            most = p->stages[i].request.size.frames;
    return most < TURNS_MOST ? most : TURNS_MOST;
}

static status make_lists(struct executor *e)
{
    const struct list_request step = {.pipeline = e->pipeline};
    const struct list_request forward = {.pipeline = e->pipeline,
                                         .turns = e->turns};

    TRY(list_make(&e->step, &step));
    TRY(list_make(&e->forward, &forward));
    TRY(list_verify(&e->step, e->pipeline));
    return list_verify(&e->forward, e->pipeline);
}

/* Ranks of a pipe may have different numbers of turns: one is compared. */
static status agree_forward(struct executor *e)
{
    const struct list_request request = {.pipeline = e->pipeline, .turns = 1};
    struct step_list list = {0};
    status result = team_agree(e->team, list_make(&list, &request));

    if (result == OK) result = lists_agree(&list, e->pipeline, e->team);
    list_free(&list);
    return result;
}

status executor_build(struct executor *executor, struct pipeline *pipeline,
                      struct team *team, struct zero *zero,
                      struct executor_tail tail)
{
    const struct grid *grid = &pipeline->stages[0].program.layout.grid;
    const int leaves = pipeline_data_leaves(pipeline);
    void *memory = NULL;

    *executor = (struct executor){.pipeline = pipeline, .team = team,
                                  .zero = zero, .tail = tail, .follows = -1,
                                  .turns = count_turns(pipeline)};
    TRY(team_agree(team, make_lists(executor)));
    TRY(lists_agree(&executor->step, pipeline, team));
    TRY(agree_forward(executor));
    executor->handle_count =
        executor->step.handles > executor->forward.handles
            ? executor->step.handles : executor->forward.handles;
    TRY(memory_take((size_t)executor->handle_count + 1,
                    sizeof *executor->handles, &memory));
    executor->handles = memory;
    TRY(memory_take((size_t)pipeline->count, sizeof *executor->began,
                    &memory));
    executor->began = memory;
    TRY(memory_take((size_t)executor->step.count + 1,
                    sizeof *executor->taken, &memory));
    executor->taken = memory;
    TRY(read_ahead_build(&executor->ahead, pipeline));
    TRY(message_check_build(&executor->stated, pipeline, team));
    TRY(loss_build(&executor->loss, leaves, grid));
    TRY(loss_build(&executor->z_loss, leaves, grid));
    return later_build(&executor->later,
                       pipeline->stages[0].program.later.depth, leaves, grid);
}

void executor_free(struct executor *executor)
{
    read_ahead_free(executor->ahead);
    message_check_free(&executor->stated);
    list_free(&executor->step);
    list_free(&executor->forward);
    memory_free(executor->handles);
    memory_free(executor->began);
    memory_free(executor->taken);
    loss_free(&executor->loss);
    loss_free(&executor->z_loss);
    later_free(&executor->later);
    *executor = (struct executor){0};
}

int executor_last(const struct executor *executor)
{
    return pipeline_chunk(executor->pipeline,
                          executor->pipeline->schedule.stages - 1, 0);
}

/* ---- the loop ---- */

/* Messages that the device alone waited for count in the step that made
 * them. */
static status wait_left(struct executor *e)
{
    for (int i = 0; i < e->handle_count; i++)
        if (e->handles[i].left) TRY(comm_wait(&e->handles[i]));
    return OK;
}

static status act(struct executor *e, const struct instruction *i)
{
    struct comm_handle *handle =
        i->handle >= 0 ? &e->handles[i->handle] : NULL;

    switch ((enum instruction_kind)i->kind) {
    case DO_TARGETS: return micro_batch_count_targets(e);
    case DO_BATCH: return micro_batch_read_ahead(e, i);
    case DO_SAMPLE: case DO_COPY: case DO_FORWARD: case DO_BACKWARD:
    case DO_KEEP: case DO_COPY_BACK: case DO_WEIGHT: case DO_SEND:
    case DO_RECEIVE: case DO_SEND_BACK: case DO_RECEIVE_BACK:
        return micro_batch_act(e, i, handle);
    case DO_ROUND: case DO_GATHER: case DO_PLACE: case DO_RELEASE:
    case DO_TAKE: case DO_JOIN: case DO_REDUCE: case DO_GIVE: case DO_SUM:
    case DO_CLOSE: case DO_MERGE: case DO_SECOND: case DO_REGATHER:
    case DO_ENCODE:
        return zero_act(&e->zero[i->chunk], i, handle);
    case DO_END:
        TRY(wait_left(e));
        for (int c = 0; c < e->pipeline->count && e->step_runs; c++)
            zero_forget(&e->zero[c]);
        return OK;
    case DO_COUNT: return OK;
    default: return e->tail.act(e->tail.argument, i);
    }
}

/* Batches that are still being read make the next step late. */
static void wait_batches(struct executor *e)
{
    const int64_t began = meter_now_ns();

    flight_take_time();
    read_ahead_wait(e->ahead);
    if (e->step_runs) e->waited_s += 1e-9 * (double)(meter_now_ns() - began);
}

static status wait_for(struct executor *e, const struct instruction *i)
{
    if (i->kind != DO_BATCH) return comm_leave(&e->handles[i->handle]);
    wait_batches(e);
    return OK;
}

/* Whether it takes about as long in every step: not what reads data, waits for
 * copies of the state, or does more in some steps than in others. */
static bool is_regular(const struct instruction *i)
{
    switch ((enum instruction_kind)i->kind) {
    case DO_TARGETS: case DO_SAMPLE: case DO_BATCH: case DO_DECIDE:
    case DO_UPDATE: case DO_MATRICES: case DO_ASK: case DO_END:
        return false;
    default: return true;
    }
}

/* The deadline of a hang is made of it (control/watch.c): the planned time, but
 * never less than the instruction took when it was fastest, as the plan may be
 * of a faster machine; without a plan the longest that it took. 0: any time, as
 * in the first step, where files, pages and caches are new. */
static int64_t usual_ns(const struct executor *e, int number)
{
    const struct taken *taken = &e->taken[number];

    if (!is_regular(&e->step.items[number])) return 0;
    if (e->planned_ns == NULL || e->planned_ns[number] == 0 ||
        taken->longest_ns == 0)
        return taken->longest_ns;
    return e->planned_ns[number] > taken->shortest_ns ? e->planned_ns[number]
                                                      : taken->shortest_ns;
}

/* After the instructions that it needs. */
static status perform(struct executor *e, const struct step_list *list,
                      int number)
{
    const struct instruction *i = &list->items[number];
    const int32_t *needs = list_needs(list, number);

    meter_instruction(number);
    flight_do(number, i->kind < DO_COUNT ? instruction_rows[i->kind].name : "",
              e->step_runs ? usual_ns(e, number) : 0);
    for (int n = 0; n < i->needs; n++)
        TRY(wait_for(e, &list->items[needs[n]]));
    if (i->handle >= 0 && i->kind != DO_BATCH)
        TRY(comm_wait(&e->handles[i->handle])); /* of its last use */
    TRY(fault_point("step.instruction"));
    TRY(message_check_begin(&e->stated, e->team, i, !e->step_runs));
    const status result = act(e, i);

    if (result == OK) message_check_end(&e->stated, e->team);
    else message_check_drop(&e->stated, e->team);
    return result;
}

/* Waits for everything under way, whatever comes of it. */
static status settle(struct executor *e)
{
    status first = OK;

    read_ahead_wait(e->ahead);
    for (int i = 0; i < e->handle_count; i++) {
        const status result = comm_wait(&e->handles[i]);

        if (first == OK) first = result;
    }
    return first;
}

/* The sentence of what failed outlives the end of what was under way. From the
 * loss on ranks fail together, and nobody has to be told. */
static status give_up(struct executor *e, status result, bool together)
{
    struct status_trace kept;

    meter_instruction(-1);
    flight_take_time();
    status_keep(&kept);
    if (e->team->world != NULL && !together)
        group_abort(e->team->world, kept.message);
    settle(e);
    return status_again(result, &kept);
}

/* Returns when it ended. A wait that is no part of the instruction, as for
 * partners before the norm, says nothing of how long it takes. */
static int64_t note_time(struct executor *e, int number, int64_t began_ns)
{
    const int64_t now = meter_now_ns();
    struct taken *taken = &e->taken[number];

    if (flight_has_taken_time()) return now;
    if (now - began_ns > taken->longest_ns) taken->longest_ns = now - began_ns;
    if (taken->shortest_ns == 0 || now - began_ns < taken->shortest_ns)
        taken->shortest_ns = now - began_ns;
    return now;
}

/* The rank is within no instruction any more. */
static void end_instructions(void)
{
    meter_instruction(-1);
    flight_do(-1, "", 0);
}

status executor_run(struct executor *executor,
                    const struct sample_source *source)
{
    const struct step_list *list = &executor->step;
    int64_t began;

    executor->source = source;
    executor->data_s = executor->waited_s;
    executor->waited_s = 0;
    executor->step_runs = true;
    loss_begin(&executor->loss);
    loss_begin(&executor->z_loss);
    later_begin(&executor->later);
    began = meter_now_ns();
    for (int i = 0; i < list->count; i++) {
        if (executor->marks != NULL) executor->marks[i] = began;
        const status result = perform(executor, list, i);

        if (result != OK)
            return give_up(executor, result, list->items[i].kind >= DO_LOSS);
        began = note_time(executor, i, began);
    }
    if (executor->marks != NULL) executor->marks[list->count] = began;
    end_instructions();
    return OK;
}

/* ---- F alone ---- */

/* F makes the losses itself where no backward pass follows. */
static void set_gradients(struct executor *e, bool there)
{
    for (int i = 0; i < e->pipeline->count; i++) {
        struct stage *stage = &e->pipeline->stages[i];

        stage->run.gradients =
            there && stage->request.backward != BACKWARD_NONE
                ? &stage->gradients : NULL;
    }
}

/* The instructions of a turn, and the end after the last. */
static status run_turn(struct executor *e, int turn)
{
    const struct step_list *list = &e->forward;
    status result = OK;

    e->step_runs = false;
    for (int i = 0; i < list->count && result == OK; i++) {
        const struct instruction *at = &list->items[i];

        if (at->microbatch == turn ||
            (at->kind == DO_END && turn == e->turns - 1))
            result = perform(e, list, i);
    }
    end_instructions();
    return result;
}

status executor_forward(struct executor *executor,
                        const struct sample_source *source, int64_t first,
                        int64_t number)
{
    status result;

    executor->source = source;
    executor->first = first;
    set_gradients(executor, false);
    result = run_turn(executor, (int)(number % executor->turns));
    if (result == OK) /* what kernels wrote for the host is there */
        result = pipeline_finish(executor->pipeline);
    set_gradients(executor, true);
    return result == OK ? OK : give_up(executor, result, false);
}

status executor_settle(struct executor *executor)
{
    const status result = settle(executor);

    return result == OK ? OK : give_up(executor, result, false);
}

/* ---- what is not finite ---- */

static status fail_layer(const struct program *p, int which, int index)
{
    if (which < 0)
        FAIL(ERR_NUMERIC, "the loss of micro-batch %d is not finite", index);
    if (p->steps[which].block < 0)
        FAIL(ERR_NUMERIC, "the output of layer %s (step %d of the program) is "
                          "not finite", p->steps[which].layer->name,
             p->slice.first_step + which);
    FAIL(ERR_NUMERIC, "the output of layer %s of block %d (step %d of the "
                      "program) is not finite",
         p->steps[which].layer->name, p->steps[which].block,
         p->slice.first_step + which);
}

/* Finds a stage whose input is finite and whose output is not. */
static status find_in_stage(struct executor *e, int chunk, int index)
{
    const struct pipeline *p = e->pipeline;
    struct run *run = &p->stages[chunk].run;
    const bool ends = p->chunks[chunk].number == p->schedule.stages - 1;
    int which;

    stage_use_frame(&p->stages[chunk], 0);
    if (p->chunks[chunk].number > 0) {
        bool found;

        TRY(run_has_nan(run, run_entry(run), &found));
        if (found) return OK;
    }
    TRY(run_find_nan(run, &which));
    if (which < 0 && !ends) return OK;
    return fail_layer(&p->stages[chunk].program, which, index);
}

/* F once more, through all stages, then each looks at its own. */
status executor_find_bad(struct executor *executor,
                         const struct sample_source *source, int index)
{
    const struct pipeline *p = executor->pipeline;

    TRY(executor_forward(
        executor, source,
        pipeline_first_sequence(p, team_batch_rank(executor->team), index),
        0));
    TRY(executor_settle(executor));
    for (int stage = 0; stage < p->schedule.stages; stage++) {
        const int chunk = pipeline_chunk(p, stage, 0);

        if (chunk >= 0)
            TRY(find_in_stage(executor, chunk,
                              index % p->schedule.microbatches));
    }
    return OK;
}
