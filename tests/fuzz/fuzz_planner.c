/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_planner.c - a model and a cluster from a stranger, together through the
 * planner: what `plan --time` and `search` do.
 *
 * The input is a head of 8 bytes (ranks, nodes, what is asked for), a
 * configuration in YAML, a zero byte and a machine. It is refused with a
 * sentence, or the step has a time, its parts are the whole, and no layout
 * takes less memory than the bound that a search goes by. No input takes long:
 * models are small in number of blocks, clusters are not. */
#include <math.h>
#include <string.h>
#include "planner/memory.h"
#include "planner/search.h"
#include "tests/fuzz/grammar.h"
#include "tests/fuzz/scratch.h"
#include "train/forecast.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 8, LAYERS = 48, MICRO_BATCHES = 256, SEARCHED = 64,
       CANDIDATES = 8 };

struct head {
    uint8_t power, more;     /* ranks: 2^(power % 11) + more % 4 */
    uint8_t nodes, as;
    uint8_t search, objective, offload, memory;
};
_Static_assert(sizeof(struct head) == HEAD, "a head is 8 bytes");

static void refused(void)
{
    CHECK(status_message()[0] != 0);
    status_clear();
}

/* Times and bytes are finite, shares are shares, causes add up. */
static void check_prediction(const struct prediction *p)
{
    double parts = 0;

    CHECK(isfinite(p->step_s) && p->step_s > 0);
    CHECK(isfinite(p->tokens_per_s) && p->tokens_per_s > 0);
    CHECK(isfinite(p->memory_bytes) && p->memory_bytes > 0);
    CHECK(p->fits == (p->memory_bytes <= p->memory_limit));
    CHECK(isfinite(p->mfu) && p->mfu >= 0);
    CHECK(p->bubble_rate >= -1e-6 && p->bubble_rate <= 1);
    CHECK(p->idle_share >= -1e-6 && p->idle_share <= 1);
    for (int i = 0; i < CAUSES; i++) {
        CHECK(p->path_s[i] >= 0);
        parts += p->path_s[i];
    }
    CHECK(fabs(parts - p->step_s) <= 1e-6 * p->step_s);
}

static void check_bound(const struct layout *layout, const struct shape *shape)
{
    int at = 0;
    struct known_sums known[2] = {{.sums = 0}};
    const double least = memory_least(layout, shape, known);
    const double most = memory_largest(layout, shape, &at);

    CHECK(isfinite(least) && least >= 0 && least <= most * (1 + 1e-9));
    CHECK(at >= 0 && at < layout->pipe);
}

/* Names of schedules and recipes may be files. */
static bool is_name(const char *text)
{
    return strpbrk(text, "./") == NULL;
}

/* A model that takes no files, and no minute either. */
static bool is_small(const struct options *o)
{
    return o->model.from[0] == 0 && o->tokenizer.from[0] == 0 &&
           o->model.layers <= LAYERS && o->train.batch <= (1 << 16) &&
           is_name(o->schedule.name) && is_name(o->numerics.recipe);
}

static void try_plan(struct forecast *f)
{
    struct steps steps = {0};
    struct prediction p;
    struct cost cost;

    if (forecast_layout(f) != OK || f->layout.microbatches > MICRO_BATCHES ||
        forecast_steps(f, &steps) != OK) {
        if (status_message()[0] != 0) refused();
        return;
    }
    CHECK(layout_ranks(&f->layout) == f->ranks);
    check_bound(&f->layout, &f->shape);
    cost = forecast_cost(f);
    if (predict_steps(&p, &steps, &cost, &(struct weather){
            .memory_bytes = f->exact_bytes, .max_memory = f->max_memory}) == OK)
        check_prediction(&p);
    else refused();
    steps_free(&steps);
}

static void try_search(struct forecast *f, const struct head *head)
{
    struct search search = {0};
    const struct search_request request = {
        .machine = &f->machine, .shape = &f->shape, .as = f->as,
        .ranks = f->ranks, .batch = f->set.values.train.batch,
        .per_node = f->nodes > 0 ? f->ranks / f->nodes
                                 : (int)f->machine.value[M_DEVICES],
        .bits = layout_bits(&f->set.values, f->as), .top = 3,
        .max_memory = f->max_memory > 0 ? f->max_memory
                                        : f->machine.value[M_MEMORY_BYTES],
        .objective = (enum objective)(head->objective % OBJECTIVES)};

    if (search_run(&search, &request) != OK) {
        refused();
        search_free(&search);
        return;
    }
    CHECK(search.feasible <= search.candidates);
    for (int i = 0; i < search.count && i < CANDIDATES; i++) {
        const struct candidate *c = &search.found[i];

        const int ranks = layout_ranks(&c->layout);

        CHECK(ranks == f->ranks || (request.objective == OBJECTIVE_COST &&
                                    ranks >= 1 && ranks < f->ranks));
        CHECK(c->memory_bytes <= request.max_memory);
        check_bound(&c->layout, &f->shape);
        if (c->timed) check_prediction(&c->prediction);
    }
    search_free(&search);
}

static void try_cluster(struct forecast *f, const struct head *head)
{
    f->ranks = (1 << head->power % 11) + head->more % 4;
    f->nodes = head->nodes % 5;
    if (f->nodes > 0 && f->ranks % f->nodes != 0) f->nodes = 1;
    f->as = layout_program((enum program_as)(head->as % AS_COUNT),
                           &f->machine);
    f->offload = head->offload % 16;
    f->max_memory = head->memory % 4 == 0 ? 0 : ldexp(1, head->memory % 48);
    if (forecast_model(f) != OK) {
        refused();
        return;
    }
    if (head->search % 2 == 0 || f->ranks > SEARCHED) try_plan(f);
    else try_search(f, head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct forecast f = {0};
    const char *text = (const char *)data + HEAD;
    struct head head;
    char path[PATH_BYTES];
    const char *end;

    if (size < HEAD) return 0;
    memcpy(&head, data, HEAD);
    size -= HEAD;
    end = memchr(text, 0, size);
    if (end == NULL) return 0;
    (void)scratch_make();
    CHECK(path_join(path, sizeof path, scratch, "machine") == OK);
    scratch_put("machine", end + 1, size - (size_t)(end + 1 - text));
    CHECK(options_init(&f.set) == OK);
    if (machine_open(&f.machine, &(struct machine_choice){
                                     .what = path, .key = ""}) != OK ||
        options_read_text(&f.set, text, (size_t)(end - text), "fuzz",
                          ORIGIN_FILE) != OK)
        refused();
    else if (is_small(&f.set.values)) try_cluster(&f, &head);
    forecast_free(&f);
    status_clear();
    CHECK(arena_bytes_out() == 0);
    return 0;
}

/* ---- the mutator ---- */

static const char *const model_words[] = {
    "model", "family", "llama", "gpt", "deepseek", "mixtral", "qwen", "layers",
    "width", "heads", "kv_heads", "head_width", "feed_forward", "vocab", "tied",
    "experts", "top_k", "intermediate_size", "first_dense", "moe", "mesh",
    "data", "tensor", "pipe", "context", "shard", "expert", "layers", "zero",
    "zero1", "zero3", "fsdp", "hsdp", "none", "train", "batch", "micro_batch",
    "batch_ramp", "sequence", "schedule", "name", "1f1b", "gpipe",
    "interleaved", "zb_h1", "dualpipe", "chunks", "microbatches", "numerics",
    "recipe", "mxfp8", "nvfp4", "precision", "bfloat16", "memory", "recompute",
    "block", "selective", "lora", "rank", "optimizer", "kind", "muon", "adamw",
    ": ", ", ", "{", "}", "\n", "true", "false", NULL};
static const char *const machine_words[] = {
    "from", "h100", "a100", "b200", "gb200", "devices", "peak_32", "peak_16",
    "peak_8", "peak_4", "gemm", "gemm_half", "attention", "memory_bytes",
    "memory_rate", "memory", "link_rate", "link", "link_latency", "nics",
    "nic_rate", "nic", "nic_latency", "host_rate", "host_bytes", "disk_rate",
    "launch", "gap", "step", "compute_beside", "comm_beside", "noise",
    "watts", ": ", "\n", NULL};
static const struct grammar model_grammar = {
    words_grammar_read, words_grammar_write, model_words};
static const struct grammar machine_grammar = {
    words_grammar_read, words_grammar_write, machine_words};

/* The head, or one of the texts, whose words stay whole. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    if (size < HEAD || room < HEAD) return LLVMFuzzerMutate(data, size, room);
    if (draw(4) == 0) {
        data[draw(HEAD)] = (uint8_t)draw(256);
        return size;
    }
    return HEAD + mutate_two((const struct grammar *const[]){&model_grammar,
                                                             &machine_grammar},
                             data + HEAD, size - HEAD, room - HEAD, false);
}
