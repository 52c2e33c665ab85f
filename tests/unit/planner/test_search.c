/* SPDX-License-Identifier: Apache-2.0 */
/* test_search.c - mirrors src/planner/search.c. */
#include "planner/search.h"

#include <math.h>
#include <string.h>

#include "planner/search_families.h"
#include "planner/search_untried.h"
#include "planner/search_time.h"
#include "tests/test.h"
#include "tests/unit/planner/shape_text.h"

/* One of a block, dense. */
#define PRODUCT(o, i, split)                                     \
    {.outputs = o, .inputs = i, .split_outputs = split,          \
     .each_block = 1, .tokens = 1}

static void describe(struct shape *shape)
{
    const double h = 4096, f = 11008;

    *shape = (struct shape){
        .layers = 32, .heads = 32, .kv_heads = 32, .head_width = 128,
        .width = 4096, .feed_forward = 11008, .vocab = 32000,
        .sequence = 4096, .gated = true,
        .products = {PRODUCT(12288, 4096, true),
                     PRODUCT(4096, 4096, false),
                     PRODUCT(22016, 4096, true),
                     PRODUCT(4096, 11008, false)},
        .product_count = 4, .joins = 2, .keys = 2048, .moved.whole = 4 * h,
        .moved.split = 3 * f, .block.instructions = 10,
        .block.parameters = 4 * h * h + 3 * h * f,
        .outside.embedding = 32000 * h, .outside.head = 32000 * h};
}

/* The best of the search is as fast as the best of timing every candidate that
 * fits. */
TEST(nothing_faster_is_left_out)
{
    struct machine machine;
    struct shape shape;
    struct search search;
    double best = 1e300;

    describe(&shape);
    machine_from_preset(&machine, &machine_presets[1]);
    const struct search_request request = {
        .machine = &machine, .shape = &shape, .as = AS_MEGATRON, .ranks = 16,
        .per_node = 8, .batch = 64, .bits = 16, .max_memory = 80e9, .top = 5};

    IS_OK(search_run(&search, &request));
    CHECK(search.feasible > 50 && search.candidates > search.feasible);
    for (int i = 0; i < search.count; i++) {
        const struct candidate *c = &search.found[i];
        const struct cost cost = {&machine, &shape, &c->layout};
        const struct weather weather = {.max_memory = 80e9};
        struct prediction p;

        if (predict(&p, &cost, &weather) != OK) {
            status_clear();
            continue;
        }
        if (p.step_s < best) best = p.step_s;
        EQUAL_INT(layout_ranks(&c->layout), 16);
        CHECK(c->memory_bytes <= 80e9);
    }
    CHECK(search.found[0].prediction.step_s <= 1.005 * best);
    search_free(&search);
    machine_free(&machine);
}

/* A few short steps tell the time of a long one, also where nothing hides the
 * messages of their ends: gathers of divided weights, over a slow network. */
TEST(short_steps_tell_the_time_of_long_ones)
{
    static const int pipes[] = {8, 16, 32}, zeros[] = {0, 2, 3};
    static const struct { const char *name; int chunks; } kinds[] = {
        {"1f1b", 1}, {"zb-v", 2}};
    struct machine machine;
    struct shape shape;

    describe(&shape);
    shape.layers = 128;
    machine_from_preset(&machine, &machine_presets[1]);
    const struct search_request request = {
        .machine = &machine, .shape = &shape, .as = AS_LOCKSTEP,
        .per_node = 8, .max_memory = 80e9};

    for (int i = 0; i < ROWS(kinds) * ROWS(pipes) * ROWS(zeros); i++) {
        const int kind = i / (ROWS(pipes) * ROWS(zeros));
        struct candidate c = {.layout = {
            .as = AS_LOCKSTEP, .tensor = 2, .context = 1, .expert = 1,
            .shard = 1, .data = 16, .pipe = pipes[i % ROWS(pipes)],
            .zero = zeros[i / ROWS(pipes) % ROWS(zeros)], .per_node = 8,
            .bits = 16, .chunks = kinds[kind].chunks,
            .micro_batch = 1, .sequence_parallel = true,
            .microbatches = 384, .batch = 384 * 16}};

        snprintf(c.layout.schedule, sizeof c.layout.schedule, "%s",
                 kinds[kind].name);
        struct layout fine = c.layout;
        const struct cost cost = {&machine, &shape, &fine};
        const struct weather weather = {.max_memory = 80e9};
        struct prediction whole;

        fine.fine = true;
        IS_OK(search_time(&request, &c));
        IS_OK(predict(&whole, &cost, &weather));
        print_message("%s, pipe %d, zero %d: %.4f and %.4f s, bubble %.3f and "
                      "%.3f\n", kinds[kind].name, c.layout.pipe, c.layout.zero,
                      c.prediction.step_s, whole.step_s,
                      c.prediction.bubble_rate, whole.bubble_rate);
        const double far = c.prediction.step_s / whole.step_s - 1;

        /* Time of a V does not grow by a line: never too slow, which would
         * lose the best layout. */
        if (c.layout.chunks > 1) CHECK(far < 0.01 && far > -0.07);
        else CHECK(fabs(far) < 0.05);
        CHECK(fabs(c.prediction.mfu / whole.mfu - 1) < 0.07);
        CHECK(fabs(c.prediction.bubble_rate - whole.bubble_rate) < 0.07);
    }
    machine_free(&machine);
}

static void open_mixture(struct shape *shape)
{
    static const char yaml[] =
        "model: {family: deepseek, vocab: 32000, layers: 8, width: 1024, "
        "heads: 16, kv_heads: 16, feed_forward: 4096, tied: false}\n"
        "moe: {experts: 16, top_k: 2, intermediate_size: 512, "
        "first_dense: 1, shared_intermediate_size: 512}\n";

    shape_of_text(shape, yaml, 2048);
}

static const struct family *same_family(const struct search *s,
                                        const struct family *f)
{
    for (int i = 0; i < s->family_count; i++)
        if (s->families[i].choice == f->choice &&
            s->families[i].value == f->value)
            return &s->families[i];
    return NULL;
}

/* The least memory of a family does not depend on the limit, whatever is
 * skipped because it is too far from it. */
TEST(the_nearest_of_a_family_is_found_with_any_limit)
{
    static const double limits[] = {0.25e9, 0.4e9, 0.7e9, 1.5e9};
    struct machine machine;
    struct shape shape;
    struct search none, some;
    int compared = 0, open = 0;

    open_mixture(&shape);
    machine_from_preset(&machine, &machine_presets[1]);
    struct search_request request = {
        .machine = &machine, .shape = &shape, .as = AS_LOCKSTEP, .ranks = 16,
        .per_node = 8, .batch = 256, .bits = 16, .max_memory = 1, .top = 5};

    IS_OK(search_run(&none, &request));
    EQUAL_INT(none.feasible, 0);
    for (int k = 0; k < ROWS(limits); k++) {
        request.max_memory = limits[k];
        IS_OK(search_run(&some, &request));
        for (int i = 0; i < none.family_count; i++) {
            const double least = none.families[i].least_over + 1;
            const struct family *f = same_family(&some, &none.families[i]);

            CHECK(none.families[i].least_over > 0);
            /* Sets of shards after one that fits are passed over. */
            if (none.families[i].choice == CHOICE_ZERO &&
                none.families[i].value > PRESETS_LAST)
                continue;
            CHECK(f != NULL);
            EQUAL_INT(f->feasible > 0, least <= limits[k]);
            open += f->feasible > 0;
            if (f->feasible > 0) continue;
            CHECK(fabs(f->least_over + limits[k] - least) < 1);
            compared++;
        }
        search_free(&some);
    }
    print_message("%d families compared, %d fit\n", compared, open);
    CHECK(compared > 10 && open > 10);
    search_free(&none);
    machine_free(&machine);
}

/* Times begin with the least bound: one that is far above the time of its
 * layout hides it. Context ranks add leaves of their micro-batches alone. */
TEST(bounds_are_not_above_times)
{
    static const char yaml[] =
        "model: {family: llama, vocab: 32000, layers: 16, width: 2048, "
        "heads: 16, feed_forward: 8192, tied: false}\n";
    struct machine machine;
    struct shape shape;
    struct search found;
    double most = 0;
    int contexts = 0;

    shape_of_text(&shape, yaml, 8192);
    machine_from_preset(&machine, &machine_presets[1]);
    IS_OK(search_run(&found, &(struct search_request){
        .machine = &machine, .shape = &shape, .as = AS_LOCKSTEP, .ranks = 32,
        .per_node = 8, .batch = 1024, .bits = 16, .max_memory = 80e9,
        .top = 32}));
    for (int i = 0; i < found.count; i++) {
        const struct candidate *c = &found.found[i];

        if (!c->timed) continue;
        contexts += c->layout.context > 1;
        if (c->bound_s / c->prediction.step_s > most)
            most = c->bound_s / c->prediction.step_s;
    }
    print_message("%d of %d have context ranks; bounds at most %.2f of times\n",
                  contexts, (int)found.timed, most);
    CHECK(contexts > 4 && most < 1.1);
    search_free(&found);
    machine_free(&machine);
}

/* With many pipe ranks and few micro-batches, more chunks leave less of the
 * pipeline idle: the best has as many as there are. */
TEST(eight_chunks_are_tried)
{
    static const char yaml[] =
        "model: {family: llama, vocab: 32000, layers: 64, width: 8192, "
        "heads: 64, kv_heads: 8, feed_forward: 28672, tied: false}\n";
    const struct search_fixed fixed = {
        .tensor = 8, .context = 1, .pipe = 8, .data = 1, .expert = 1,
        .zero = -1, .recompute = -1, .expert_tensor = -1, .expert_context = -1,
        .micro_batch = 1, .schedule = "interleaved"};
    struct options_set set;
    struct machine machine;
    struct search found;
    struct shape shape;
    struct model model;

    IS_OK(options_init(&set));
    IS_OK(options_read_text(&set, yaml, strlen(yaml), "test", ORIGIN_FILE));
    IS_OK(model_from_options(&model, &set.values, 0));
    IS_OK(shape_of(&shape, &model, 4096));
    options_free(&set);
    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "h100"}));
    IS_OK(search_run(&found, &(struct search_request){
        .machine = &machine, .shape = &shape, .as = AS_MEGATRON_CORE,
        .ranks = 64, .per_node = 8, .batch = 8, .bits = 16, .max_memory = 80e9,
        .top = 5, .fixed = &fixed}));
    CHECK(found.count > 0);
    EQUAL_INT(found.found[0].layout.chunks, 8);
    for (int i = 0; i < found.count; i++) /* each is in its own family */
        CHECK(search_schedules[search_schedule_of(&found.found[i].layout)]
                  .chunks == found.found[i].layout.chunks);
    search_free(&found);
    machine_free(&machine);
}

/* A layout that nobody tried is named; one that a search tries is not. */
TEST(untried_layouts_are_named)
{
    static const struct {
        int ranks, layers, heads;
        int64_t batch, sequence;
        const char *says[3];
    } rows[] = {
        {8, 8, 8, 24, 256, {"context 2: 128 tokens", "micro-batch 3: ",
                            "schedules gpipe, "}},
        {1, 8, 8, 16, 4096, {NULL}},
        {2, 8, 8, 16, 4096, {"schedules gpipe, ", NULL}},
        {1024, 256, 64, 256, 65536, {"tensor 32: at most 16",
                                     "context 32: 2048", "pipe 128: at"}},
    };
    char out[UNTRIED_MOST][UNTRIED_BYTES];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct shape shape = {
            .layers = rows[i].layers, .heads = rows[i].heads, .width = 1024,
            .feed_forward = 4096, .sequence = rows[i].sequence};
        const int count = search_untried(&(struct search_request){
            .shape = &shape, .as = AS_LOCKSTEP, .ranks = rows[i].ranks,
            .batch = rows[i].batch}, out);

        CHECK(count <= UNTRIED_MOST);
        CHECK((count == 0) == (rows[i].says[0] == NULL));
        for (int k = 0; k < 3 && rows[i].says[k] != NULL; k++)
            CHECK(k < count && strncmp(out[k], rows[i].says[k],
                                       strlen(rows[i].says[k])) == 0);
    }
}

/* Schedules that a search does not try by itself. */
TEST(a_named_schedule_is_tried)
{
    static const struct shape shape = {
        .layers = 16, .heads = 16, .kv_heads = 16, .head_width = 64,
        .width = 1024, .feed_forward = 4096, .vocab = 512, .sequence = 512,
        .products = {{.outputs = 4096, .inputs = 1024, .split_outputs = true,
                      .each_block = 2, .tokens = 1}},
        .product_count = 1, .joins = 2, .keys = 256, .moved.whole = 8192,
        .block.instructions = 8, .block.parameters = 8e6};
    struct machine machine;

    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "h100"}));
    for (int i = 0; i < SEARCH_SCHEDULES; i++) {
        struct search_fixed fixed = {
            .tensor = 1, .context = 1, .pipe = 2, .data = -1, .expert = 1,
            .zero = -1, .recompute = -1, .expert_tensor = -1,
            .expert_context = -1, .micro_batch = 1};
        struct search found;

        snprintf(fixed.schedule, sizeof fixed.schedule, "%s",
                 search_schedules[i].name);
        IS_OK(search_run(&found, &(struct search_request){
            .machine = &machine, .shape = &shape, .as = AS_MEGATRON_CORE,
            .ranks = 8, .per_node = 8, .batch = 32, .bits = 16,
            .max_memory = 80e9, .top = 1, .fixed = &fixed}));
        CHECK(found.feasible > 0);
        CHECK(found.feasible > 0 &&
              strcmp(found.found[0].layout.schedule, fixed.schedule) == 0);
        search_free(&found);
    }
    machine_free(&machine);
}

/* A search takes what options say of kernels as a plan does. */
TEST(options_of_kernels_hold_for_all_axes)
{
    struct layout l = {.as = AS_MEGATRON};
    struct options_set set;

    IS_OK(options_init(&set));
    layout_take(&l, &set.values);
    CHECK(!l.rows_straight && !l.tensor_scales && !l.four_bits);
    CHECK(!l.overlap_tensor && l.sums == SUMS_AS_USUAL);
    IS_OK(options_assign(&set, "moe.exchange=flat", ORIGIN_COMMAND_LINE));
    IS_OK(options_assign(&set, "train.dtype=bfloat16", ORIGIN_COMMAND_LINE));
    IS_OK(options_assign(&set, "numerics.recipe=fp8-tensor",
                         ORIGIN_COMMAND_LINE));
    IS_OK(options_assign(&set, "tensor.overlap=2", ORIGIN_COMMAND_LINE));
    IS_OK(options_assign(&set, "zero_reduce=each", ORIGIN_COMMAND_LINE));
    layout_take(&l, &set.values);
    CHECK(l.rows_straight && l.tensor_scales && !l.four_bits);
    CHECK(l.overlap_tensor && l.sums == SUMS_EACH);
    options_free(&set);
}

TEST_MAIN(options_of_kernels_hold_for_all_axes,
          eight_chunks_are_tried, untried_layouts_are_named,
          a_named_schedule_is_tried, bounds_are_not_above_times,
          nothing_faster_is_left_out,
          short_steps_tell_the_time_of_long_ones,
          the_nearest_of_a_family_is_found_with_any_limit)
