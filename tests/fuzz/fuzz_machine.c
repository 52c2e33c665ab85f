/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_machine.c - can a machine profile from a stranger hurt a planner? One
 * that is accepted has constants that a clock can go by. */
#include <math.h>
#include <string.h>
#include "planner/machine.h"
#include "tests/fuzz/grammar.h"
#include "tests/fuzz/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[PATH_BYTES];
    struct machine machine = {0};
    struct text text = {0};

    (void)scratch_make();
    CHECK(path_join(path, sizeof path, scratch, "machine.json") == OK);
    scratch_put("machine.json", data, size);
    if (machine_open(&machine, &(struct machine_choice){
                                   .what = path, .key = ""}) == OK) {
        for (int i = 0; i < M_CONSTANTS; i++)
            CHECK(isfinite(machine.value[i]));
        CHECK(machine_write(&machine, &text) == OK);
    }
    machine_free(&machine);
    text_free(&text);
    status_clear();
    return 0;
}

/* ---- the mutator ---- */

static const char *const words[] = {
    "value", "unit", "mark", "measured", "constants", "products", "float32",
    "works", "roundings", "collectives", "left_out", "sentinel", "work",
    "attention", "attention_back", "norm", "gate_back", "update", "how", "m",
    "n", "k", "kind", "nt", "tn", "bits", "threads", "seconds", "sigma",
    "accumulator", "amount", "rows", "width", "op", "all-reduce", "send",
    "path", "node", "network", "ranks", "bytes", "product_s", "before_s",
    "memory_after_s", "products_follow", "works_follow", "rest", "large",
    "1e308", "1e-308", "-1", "0", NULL};
static const struct grammar grammar = {json_grammar_read, json_grammar_write,
                                       words};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    return mutate_from(&grammar, data, size, room, 0);
}
