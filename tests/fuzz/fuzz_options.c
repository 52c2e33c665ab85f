/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_options.c - can a configuration from a stranger hurt us? What is read
 * is also written and read again, with the same values; the same bytes are
 * then tried as an assignment. */
#include <string.h>
#include "base/options.h"
#include "tests/fuzz/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_same(const struct options_set *a,
                       const struct options_set *b)
{
    struct text x = {0}, y = {0};

    for (int i = 0; i < options_count(); i++)
        CHECK(options_get_text(a, option_name(i), &x) == OK &&
              options_get_text(b, option_name(i), &y) == OK);
    CHECK(x.length == y.length && memcmp(x.bytes, y.bytes, x.length) == 0);
    text_free(&x);
    text_free(&y);
}

static void check_round_trip(const struct options_set *set)
{
    struct options_set again;
    struct text yaml = {0};

    CHECK(options_init(&again) == OK);
    CHECK(options_write_yaml(set, &yaml) == OK);
    /* The written text is longer than the text that was read. */
    if (yaml.length < 1 << 20) {
        CHECK(options_read_text(&again, yaml.bytes, yaml.length, "again",
                                ORIGIN_RUN) == OK);
        check_same(set, &again);
    }
    text_free(&yaml);
    options_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct options_set set;
    struct text copy = {0};

    CHECK(options_init(&set) == OK);
    if (options_read_text(&set, (const char *)data, size, "fuzz",
                          ORIGIN_FILE) == OK)
        check_round_trip(&set);
    CHECK(text_append(&copy, data, size) == OK);
    if (options_assign(&set, copy.bytes, ORIGIN_COMMAND_LINE) == OK)
        check_round_trip(&set);
    text_free(&copy);
    options_free(&set);
    CHECK(arena_bytes_out() == 0);
    return 0;
}

/* ---- the mutator ---- */

static const char *const words[] = {
    "model", "optimizer", "data", "train", "mesh", "run", "version", "[", "]",
    "{", "}", "- ", ": ", "#", "&a ", "*a", "<<", "!!int ", "|", ">", "'",
    "\"", "---", "...", "? ", "yes", "~", ".inf", ".nan", "1e3", "0o17",
    "1_000", "<=", "%YAML 1.2", "\t", NULL};
static const struct grammar grammar = {words_grammar_read, words_grammar_write,
                                       words};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    return mutate_from(&grammar, data, size, room, 0);
}
