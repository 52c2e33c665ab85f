/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_consumed.c - can a consumed.jsonl from a stranger hurt the audit? No
 * line makes it count below zero, or loop longer than a batch. */
#include <string.h>
#include "base/arena.h"
#include "observe/consumed.h"
#include "tests/fuzz/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct range ranges[] = {{4, 9}, {20, 21}, {64, 1 << 20}};
    const struct ranges left = {.items = ranges, .count = 3};
    struct consumed_audit audit = {.left_out = &left, .batch_most = 64};

    if (consumed_audit(&audit, (const char *)data, size, "fuzz") == OK) {
        CHECK(audit.samples >= audit.steps && audit.next >= 0);
        CHECK(audit.samples <= 64 * audit.steps);
    }
    CHECK(audit.lost >= 0 && audit.repeated >= 0 && audit.left >= 0 &&
          audit.missing >= 0 && audit.wrong <= audit.steps + 1);
    status_clear();
    CHECK(arena_bytes_out() == 0);
    return 0;
}

/* ---- the mutator ---- */

static const char *const marks[] = {"\"step\": ", "\"from\": ", "\"to\": ",
                                    "\"samples\": ", "\"order\": \"",
                                    "\"tokens\": \"", "}\n{", NULL};
static const struct grammar lines = {words_grammar_read, words_grammar_write,
                                     marks};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    return mutate_from(&lines, data, size, room, 0);
}
