/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_perturb.c - a perturb file from a stranger, through what `simulate`
 * does.
 *
 * The input is a head of 8 bytes (a layout) and a file. It is refused with a
 * sentence, or a step has a time that is no less than without it, the same for
 * all copies unfolded, and failures leave a share of time that a run played
 * with random failures finds, too. */
#include <math.h>
#include <string.h>
#include "planner/perturb.h"
#include "tests/fuzz/grammar.h"
#include "tests/fuzz/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct head {
    uint8_t pipe, data, shard, tensor; /* powers of 2 */
    uint8_t zero, expert, as, schedule;
};
enum { HEAD = sizeof(struct head) };

static const struct shape shape = {
    .layers = 8, .heads = 16, .kv_heads = 16, .head_width = 64, .width = 1024,
    .feed_forward = 4096, .vocab = 512, .sequence = 512,
    .products = {{.outputs = 4096, .inputs = 1024, .split_outputs = true,
                  .each_block = 2, .tokens = 1}},
    .product_count = 1, .joins = 2, .keys = 256, .moved.whole = 8192,
    .block.instructions = 8, .block.parameters = 8e6};

static struct layout layout_of(const struct head *h)
{
    struct layout l = {
        .as = AS_MEGATRON + h->as % (AS_COUNT - AS_MEGATRON),
        .pipe = 1 << h->pipe % 3, .data = 1 << h->data % 3,
        .shard = 1 << h->shard % 3, .context = 1, .tensor = 1 << h->tensor % 2,
        .expert = 1 << h->expert % 2, .per_node = 8, .micro_batch = 1,
        .microbatches = 4, .chunks = 1, .bits = 16, .zero = h->zero % 4};

    l.whole_shards = h->zero % 8 > 3 && l.shard > 1;
    l.batch = (int64_t)l.microbatches * l.data * l.shard * l.expert;
    snprintf(l.schedule, sizeof l.schedule, "%s",
             h->schedule % 2 == 0 ? "1f1b" : "gpipe");
    return l;
}

static void check_failures(const struct failures *failures)
{
    struct reliability r;

    reliability_of(&r, failures, 4);
    CHECK(isfinite(r.mtbf_s) && r.mtbf_s > 0);
    CHECK(isfinite(r.best_interval_s) && r.best_interval_s > 0);
    CHECK(r.exact_ettr >= 0 && r.exact_ettr <= 1 + 1e-9);
    CHECK(r.best_ettr <= 1 + 1e-9);
    /* Without a stall it is the best of a stall of 1 ms. */
    CHECK(failures->stall_s <= 0 || r.best_ettr >= r.exact_ettr - 1e-3);
    CHECK(r.simulated_ettr >= 0 && r.simulated_ettr <= 1);
    /* 25,600 failures; of shares of lost time 1% is five deviations. */
    CHECK(fabs(r.simulated_ettr - r.exact_ettr) <= 0.02);
}

static void check_step(const struct perturb *perturb,
                       const struct layout *layout)
{
    static struct machine machine;
    const struct cost cost = {&machine, &shape, layout};
    struct perturbed folded, unfolded;
    struct steps steps;

    if (machine.name[0] == 0)
        machine_from_preset(&machine, &machine_presets[1]);
    CHECK(steps_build(&steps, &cost) == OK);
    CHECK(perturb_step(&folded, perturb, &steps, &cost, false) == OK);
    CHECK(perturb_step(&unfolded, perturb, &steps, &cost, true) == OK);
    CHECK(isfinite(folded.slow.step_s));
    CHECK(folded.slow.step_s >= folded.healthy.step_s);
    CHECK(folded.slow.step_s == unfolded.slow.step_s);
    CHECK(folded.slow.idle_share == unfolded.slow.idle_share);
    CHECK(folded.classes == unfolded.classes && folded.classes > 0);
    CHECK(folded.simulated <= unfolded.simulated);
    CHECK(folded.simulated <= folded.classes + 1);
    steps_free(&steps);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct perturb perturb;
    struct layout layout;
    struct head head;
    char path[PATH_BYTES];

    if (size < HEAD) return 0;
    memcpy(&head, data, HEAD);
    layout = layout_of(&head);
    (void)scratch_make();
    CHECK(path_join(path, sizeof path, scratch, "perturb.json") == OK);
    scratch_put("perturb.json", data + HEAD, size - HEAD);
    if (perturb_read(&perturb, path, layout_ranks(&layout)) == OK) {
        check_step(&perturb, &layout);
        if (perturb.failures.per_node_day > 0)
            check_failures(&perturb.failures);
    } else CHECK(status_message()[0] != 0);
    perturb_free(&perturb);
    status_clear();
    CHECK(arena_bytes_out() == 0);
    return 0;
}

/* ---- the mutator ---- */

static const char *const words[] = {
    "version", "slow", "links", "failures", "rank", "factor", "per_node_day",
    "restart_s", "interval_s", "stall_s", NULL};
static const struct grammar grammar = {json_grammar_read, json_grammar_write,
                                       words};

/* A number, or a rank that exists. */
static void renumber(struct item *object, const char *key)
{
    static char texts[64][24];
    static unsigned next;
    struct item *value = json_value(object, key);
    char *text = texts[next++ % 64];

    if (value == NULL || value->kind != ITEM_ATOM) return;
    if (strcmp(key, "rank") == 0)
        snprintf(text, sizeof texts[0], "%d", (int)draw(64));
    else
        snprintf(text, sizeof texts[0], "%.6g",
                 ldexp(1 + (double)draw(1000) / 1000, (int)draw(40) - 10));
    value->bytes = (const uint8_t *)text;
    value->length = strlen(text);
}

/* Half of the changes of a file that is sound keep it sound. */
static size_t change_numbers(uint8_t *data, size_t size, size_t room)
{
    static uint8_t copy[MUTATE_MOST];
    struct out out = {copy, 0, sizeof copy, false};
    struct item *top, *root, *rows, *failures;

    mutate_used = 0;
    top = json_grammar_read(data, size);
    if (top == NULL) return 0;
    root = top->first;
    rows = json_value(root, draw(2) == 0 ? "slow" : "links");
    failures = json_value(root, "failures");
    if (rows != NULL && rows->kind == ITEM_LIST)
        for (struct item *row = rows->first; row != NULL; row = row->next)
            if (draw(2) == 0) renumber(row, draw(2) == 0 ? "rank" : "factor");
    for (int i = 6; i < 10; i++)
        if (draw(4) == 0) renumber(failures, words[i]);
    json_grammar_write(&out, top);
    if (out.full || out.at > room) return 0;
    memcpy(data, copy, out.at);
    return out.at;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    size_t made = 0;

    mutate_seed(seed);
    if (size < HEAD || room < HEAD) return LLVMFuzzerMutate(data, size, room);
    if (draw(4) == 0) {
        data[draw(HEAD)] = (uint8_t)draw(256);
        return size;
    }
    if (draw(2) == 0 && size - HEAD <= MUTATE_MOST)
        made = change_numbers(data + HEAD, size - HEAD, room - HEAD);
    if (made > 0) return HEAD + made;
    return mutate_from(&grammar, data, size, room, HEAD);
}
