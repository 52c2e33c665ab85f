/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_journal.c - can a journal of a supervisor hurt who reads it: the next
 * supervisor, status, incidents? */
#include <string.h>
#include "control/report.h"
#include "tests/fuzz/grammar.h"
#include "tests/fuzz/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct run_report report = {0};
    size_t held;

    if (scratch_make()) {
        char path[PATH_BYTES];

        CHECK(path_join(path, sizeof path, scratch, "control") == OK);
        CHECK(directory_make(path) == OK);
    }
    scratch_put("control/journal.jsonl", data, size);
    held = arena_bytes_out();
    if (run_report_read(&report, scratch) == OK) {
        CHECK(report.ranks >= 0 && report.incidents >= 0);
        CHECK(report.recovered >= 0 && report.lines.count >= 0);
        CHECK(strlen(run_state_name(report.state)) > 0);
    }
    run_report_free(&report);
    status_clear();
    CHECK(arena_bytes_out() == held);
    return 0;
}

/* ---- the mutator ---- */

static const char *const marks[] = {
    "\"event\": \"start\"", "\"event\": \"incident\"",
    "\"event\": \"recovered\"", "\"event\": \"end\"", "\"ranks\": [",
    "\"generation\": ", "\"supervisor\": ", "\"process\": ", "\"began\": ",
    "\"board\": ", "\"step\": ", "\"node\": \"", "}\n{", "]", NULL};
static const struct grammar lines = {words_grammar_read, words_grammar_write,
                                     marks};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    return mutate_from(&lines, data, size, room, 0);
}
