/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_recipe.c - can a recipe file from a stranger hurt us? Rows that are
 * accepted say what a kernel can do, and say it again when they are read from
 * the configuration that took them. */
#include <string.h>
#include "nn/precision.h"
#include "setup/recipe_file.h"
#include "tests/fuzz/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_role(const struct precision_role *role)
{
    CHECK(role->format < FORMAT_E8M0 && role->scale < SCALE_COUNT);
    CHECK(role->along >= 0 && role->along <= QUANTIZE_BLOCK_MOST);
    CHECK(role->across >= 0 && role->across <= QUANTIZE_BLOCK_MOST);
}

static void check_taken(const struct options_set *set)
{
    const struct options *o = &set->values;
    const struct precision *base;
    struct precision recipe;

    CHECK(precision_parse(&base, o->numerics.recipe) == OK && base != NULL);
    recipe = *base;
    CHECK(precision_change(&recipe, o->numerics.recipe_rows.items,
                           o->numerics.recipe_rows.count) == OK);
    check_role(&recipe.weights);
    check_role(&recipe.activations);
    check_role(&recipe.gradients);
    CHECK(recipe.weights.rounding == ROUND_NEAREST);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct options_set set, file;

    CHECK(options_init(&set) == OK && options_init(&file) == OK);
    if (options_read_text(&file, (const char *)data, size, "fuzz",
                          ORIGIN_FILE) == OK &&
        recipe_file_apply(&set, &file, "fuzz") == OK)
        check_taken(&set);
    status_clear();
    options_free(&set);
    options_free(&file);
    CHECK(arena_bytes_out() == 0);
    return 0;
}

/* ---- the mutator ---- */

static const char *const words[] = {
    "numerics", "recipe", "recipe_rows", "high_last", "weights", "activations",
    "gradients", "hadamard", "on", "off", "e4m3", "e5m2", "e2m1", "int8",
    "bf16", "1x32", "16x16", "region", "token", "up", "down", "two", "late",
    "mean", "exact", "gauss", "fit", "straight", "rotate", "trust", "none",
    "stochastic", "nearest", "mxfp8", "nvfp4", "[", "]", "- ", ": ", ", ",
    "\"", "\n  ", NULL};
static const struct grammar grammar = {words_grammar_read, words_grammar_write,
                                       words};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    return mutate_from(&grammar, data, size, room, 0);
}
