/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_trace.c - can a trace hurt `plan --time --replay`? Times that are read
 * are finite, and belong to instructions that there are. */
#include <math.h>
#include <string.h>
#include "base/arena.h"
#include "cli/replay_trace.h"
#include "tests/fuzz/grammar.h"
#include "tests/fuzz/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Six instructions, of which the third waits for a message, the fifth for the
 * first one. */
static void make_list(struct timed_list *list)
{
    for (int i = 0; i < 6; i++) {
        const struct timed item = {
            .resource = i == 1 ? CLOCK_PIPE_DOWN : CLOCK_COMPUTE, .number = i};
        int32_t index;

        CHECK(timed_add(list, &item, &index) == OK && index == i);
        if (i == 2) CHECK(timed_need(list, 0, 1) == OK);
        if (i == 4) CHECK(timed_need(list, 0, 0) == OK);
    }
}

static void check_times(const struct replay_trace *trace)
{
    CHECK(trace->steps > 0 && trace->steps <= REPLAY_STEPS_MOST);
    for (int step = 0; step < trace->steps; step++)
        for (int i = 0; i < trace->list->count; i++) {
            CHECK(replay_place(trace, step, i) ==
                  (size_t)(step * trace->list->count + i));
            CHECK(!isnan(*replay_time(trace, step, i)));
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct timed_lists lists;
    struct replay_trace trace = {.ranks = 1};
    size_t held;

    if (scratch_make()) {
        CHECK(timed_lists_begin(&lists, 1) == OK);
        make_list(&lists.lists[0]);
    }
    scratch_put("trace.json", data, size);
    CHECK(path_join(trace.path, sizeof trace.path, scratch, "trace.json") ==
          OK);
    trace.list = &lists.lists[0];
    held = arena_bytes_out();
    if (replay_trace_read(&trace) == OK) check_times(&trace);
    replay_trace_free(&trace);
    status_clear();
    CHECK(arena_bytes_out() == held);
    return 0;
}

/* ---- the mutator ---- */

static const char *const marks[] = {"name", "cat", "tid", "ts", "dur", "args",
                                    "instruction", "step", "outline", "idle",
                                    "traceEvents", NULL};
static const struct grammar json = {json_grammar_read, json_grammar_write,
                                    marks};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    return mutate_from(&json, data, size, room, 0);
}
