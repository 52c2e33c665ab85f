/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_schedule.c - can a schedule from a stranger hurt us? What is accepted
 * is written, read again with the same bytes, lowered and played. */
#include <string.h>
#include "base/arena.h"
#include "plan/simulate.h"
#include "schedule/lower.h"
#include "schedule/read.h"
#include "tests/fuzz/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_round_trip(const struct schedule *schedule)
{
    struct schedule again;
    struct text text = {0}, copy = {0};

    CHECK(schedule_write(schedule, &text) == OK);
    CHECK(schedule_read(&again, text.bytes, text.length, "again") == OK);
    CHECK(schedule_write(&again, &copy) == OK);
    CHECK(copy.length == text.length &&
          memcmp(copy.bytes, text.bytes, text.length) == 0);
    text_free(&text);
    text_free(&copy);
    schedule_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct simulate_costs costs = {{5, 7, 3}, 11, 1, 0.5};
    struct schedule schedule;
    struct simulation found;

    if (schedule_read(&schedule, (const char *)data, size, "fuzz") == OK) {
        check_round_trip(&schedule);
        if (!schedule.lowered) CHECK(schedule_lower(&schedule) == OK);
        check_round_trip(&schedule);
        CHECK(simulate(&found, &schedule, &costs) == OK);
        simulation_free(&found);
    }
    schedule_free(&schedule);
    status_clear();
    CHECK(arena_bytes_out() == 0);
    return 0;
}

/* ---- the mutator ---- */

static const char *const words[] = {
    "F0", "B0", "W0", "SF0", "SB0", "RF0", "RB0", "F1", "B1", "W1", "<", "+",
    "#", ".", " ", "F", "B", "W", "S", "R", "\n", NULL};
static const struct grammar grammar = {words_grammar_read, words_grammar_write,
                                       words};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    return mutate_from(&grammar, data, size, room, 0);
}
