/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_run.c - can the files of a run that a stranger sends hurt us, or rows
 * of a list? The first byte of the input says which:
 *
 *    l   ledger.jsonl        s   samples.jsonl
 *    m   metrics.jsonl       c   config.yaml, beside another run
 *    b   rows of train.batch_ramp
 *    k   rows of data.skip
 *    g   a glob of optimizer.groups, a line; then what it shall match */
#include <string.h>
#include <unistd.h>
#include "base/lines.h"
#include "optimizer/ramp.h"
#include "data/ranges.h"
#include "optimizer/groups.h"
#include "tests/fuzz/scratch.h"
#include "report/compare_runs.h"
#include "observe/ledger.h"
#include "report/report_validation.h"
#include "tests/fuzz/grammar.h"

enum { ROWS_MAX = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A ledger that was read can be read again, and says nothing impossible. */
static void ledger(void)
{
    for (int again = 0; again < 2; again++) {
        struct ledger ledger = {0};
        struct ranges ranges = {0};

        if (ledger_open(&ledger, scratch, true) == OK) {
            for (int64_t i = 0; i < ledger.count; i++)
                CHECK(ledger.events[i].samples > 0);
            (void)ledger_ranges(&ledger, &ranges);
        }
        ranges_free(&ranges);
        ledger_close(&ledger);
    }
}

static void samples(const char *path)
{
    struct text page = {0};

    (void)report_samples(&page, path);
    text_free(&page);
    status_clear();
    CHECK(lines_cut(path, 10, NULL) == OK);
}

static void compare(void)
{
    struct runs_compared runs = {0};
    struct text page = {0};
    struct json_writer json = {0};
    struct arena arena = {0};

    arena_init(&arena, "fuzz", 0);
    if (runs_compare(&runs, &arena, scratch, scratch) == OK) {
        CHECK(!runs_differ(&runs));
        CHECK(runs_describe(&runs, &page) == OK);
        json_write_begin(&json, 0);
        json_write_object(&json);
        runs_json(&runs, &json);
        json_write_object_end(&json);
        CHECK(json_write_end(&json) == OK);
    }
    json_writer_free(&json);
    text_free(&page);
    arena_free(&arena);
}

static void rows(char kind, char *text)
{
    const char *list[ROWS_MAX];
    struct ramp ramp = {0};
    struct ranges ranges = {0};
    int count = 0;

    for (char *row = strtok(text, "\n"); row != NULL && count < ROWS_MAX;
         row = strtok(NULL, "\n"))
        list[count++] = row;
    if (kind == 'k') {
        (void)ranges_read(&ranges, list, count);
    } else if (kind == 'g') {
        for (int i = 1; i < count; i++) groups_match(list[0], list[i]);
    } else if (ramp_read(&ramp, list, count, 64) == OK) {
        const int64_t divisor = ramp_divisor(&ramp);

        for (int i = 0; i < ramp.count; i++) {
            CHECK(divisor > 0 && ramp.rows[i].batch % divisor == 0);
            CHECK(ramp_samples(&ramp, ramp.rows[i].step) ==
                  ramp.rows[i].samples);
        }
    }
    ranges_free(&ranges);
    ramp_free(&ramp);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"ledger.jsonl", "samples.jsonl",
                                        "metrics.jsonl", "config.yaml"};
    struct text copy = {0};
    char path[PATH_BYTES];

    if (size == 0) return 0;
    (void)scratch_make();
    for (int i = 0; i < 4; i++) {
        if (data[0] != names[i][0]) continue;
        scratch_put(names[i], data + 1, size - 1);
        CHECK(path_join(path, PATH_BYTES, scratch, names[i]) == OK);
        if (i == 0) ledger();
        if (i == 1) samples(path);
        if (i >= 2) compare();
        unlink(path);
    }
    if (data[0] == 'b' || data[0] == 'k' || data[0] == 'g') {
        CHECK(text_append(&copy, data + 1, size - 1) == OK);
        if (copy.bytes != NULL) rows((char)data[0], copy.bytes);
    }
    text_free(&copy);
    status_clear();
    CHECK(arena_bytes_out() == 0);
    return 0;
}

/* ---- the mutator ---- */

static const char *const keys[] = {
    "step", "loss", "grad_norm", "lr", "tokens", "val_loss", "val_loss.x",
    "event", "cause", "what", "value", "threshold", "action", "back_to",
    "first", "samples", "prompt", "text", "nan", "spike", "skip", "warn", NULL};
static const struct grammar records = {jsonl_grammar_read, jsonl_grammar_write,
                                       keys};
static const char *const marks[] = {"=", ",", "*", "?", "[", "]", "-", ":",
                                    "\n", "**", "frozen", NULL};
static const struct grammar rows_of_words = {words_grammar_read,
                                             words_grammar_write, marks};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    return mutate_from(size > 0 && memchr("lsm", data[0], 3) != NULL
                           ? &records : &rows_of_words,
                       data, size, room, 1);
}
