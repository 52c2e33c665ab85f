/* SPDX-License-Identifier: Apache-2.0 */
/* test_residency.c - mirrors src/plan/residency.c: what an event needs is in
 * memory, nothing lies on anything else, no more is ahead than was allowed; and
 * what a divided stage takes and sends, in closed form. */
#include "plan/exchange.h"
#include "tests/test.h"

static const char *const none[] = {"none"}, *const block[] = {"block"};

static struct model model_of(bool gpt2, bool tied, int layers)
{
    return (struct model){
        .kind = gpt2 ? &model_gpt2 : &model_llama, .vocab = 96,
        .layers = layers, .heads = 4, .kv_heads = gpt2 ? 4 : 2,
        .head_width = 8, .width = 32, .feed_forward = 48, .context = 16,
        .tied = tied, .rope.base = 10000, .norm_epsilon = 1e-5,
        .activation = ACTIVATION_SILU, .init_std = 0.02};
}

struct layout {
    const char *zero;
    int data, shard, rank;
    int rounds, prefetch;
    bool reshard, recompute;
    int tensor; /* ranks of that axis; 0: 1 */
    int overlap;
    bool domino;
    struct optimizer_choice choice;
};

/* 16 sequences; each round one micro-batch, without rounds one micro-batch. */
static struct stage_request request_of(const struct model *model,
                                       const struct layout *l)
{
    const int ranks = l->data * l->shard;
    const int rounds = l->rounds > 0 ? l->rounds : 1;
    struct stage_request request = {
        .model = model, .mode = PROGRAM_TRAIN, .dtype = DTYPE_F32,
        .layout.grid = {16 / ranks / rounds, 2, 1, 0},
        .layout.mesh = mesh_alone(),
        .size.batch = 16 / ranks / rounds,
        .size.micro_batch = 16 / ranks / rounds,
        .size.length = 16, .backward = BACKWARD_FUSED,
        .training.optimizer = true,
        .machine.threads = 1,
        .recomputation.policy = l->recompute ? block : none,
        .recomputation.count = 1,
        .divided.gather = {.prefetch = l->prefetch, .reshard = l->reshard},
        .reduction.rounds = l->rounds,
        .layout.overlap = {l->overlap, l->domino},
        .training.choice = l->choice};

    request.layout.mesh.size[AXIS_DATA] = l->data;
    request.layout.mesh.size[AXIS_SHARD] = l->shard;
    if (l->tensor > 1) request.layout.mesh.size[AXIS_TENSOR] = l->tensor;
    request.layout.place.at[AXIS_DATA] = l->rank / l->shard;
    request.layout.place.at[AXIS_SHARD] = l->rank % l->shard;
    IS_OK(division_parse(&request.divided.division, l->zero));
    return request;
}

static void plan(struct stage *stage, const struct model *model,
                 const struct layout *l)
{
    const struct stage_request request = request_of(model, l);

    IS_OK(stage_plan(stage, &request));
}

/* ---- rooms ---- */

static void check_rooms(const struct stage *stage, const struct residency *r)
{
    const struct shard_unit *units = stage->shards.units;

    CHECK(r->count > 0);
    for (int i = 0; i < r->count; i++) {
        const struct residence *a = &r->items[i];

        CHECK(a->begin <= a->first && a->first <= a->last && a->last < a->end);
        CHECK(a->offset % PARAM_ALIGN == 0);
        CHECK(a->offset + units[a->unit].elements <= r->elements);
        for (int j = 0; j < i; j++) {
            const struct residence *b = &r->items[j];

            CHECK(a->begin >= b->end || b->begin >= a->end ||
                  a->offset >= b->offset + units[b->unit].elements ||
                  b->offset >= a->offset + units[a->unit].elements);
        }
    }
}

static bool covered(const struct residency *r, int unit, int use, int event)
{
    for (int i = 0; i < r->count; i++)
        if (r->items[i].unit == unit && r->items[i].use == use &&
            r->items[i].first <= event && event <= r->items[i].last)
            return true;
    return false;
}

static void check_events(const struct stage *stage)
{
    const struct program *p = &stage->program;

    for (int e = 0; e < stage->frame.event_count; e++) {
        const struct event *event = &stage->frame.events[e];
        const struct step *step = &p->steps[event->step];
        const bool backward = event->pass == PASS_BACKWARD_INPUT ||
                              event->pass == PASS_BACKWARD_WEIGHT;

        for (int j = 0; j < STEP_PARAMS_MAX; j++) {
            if (step->param[j] < 0) continue;
            const int unit = shard_unit_of(&stage->shards, step->param[j]);
            const struct use_info *stream =
                &p->uses[step->use[j]];

            if (event->pass != PASS_BACKWARD_WEIGHT &&
                (!backward || step->layer->backward_input != NULL))
                CHECK(covered(&stage->gathered, unit, -1, e));
            if (backward)
                CHECK(covered(&stage->reduced, unit,
                              stream->number > 0 ? step->use[j] : -1, e));
        }
    }
}

/* Units in memory at an event, the ones ahead included. */
static int alive(const struct residency *r, int event)
{
    int count = 0;

    for (int i = 0; i < r->count; i++)
        count += r->items[i].begin <= event && event < r->items[i].end;
    return count;
}

TEST(what_an_event_needs_is_in_memory)
{
    for (int bits = 0; bits < 8; bits++)
        for (int prefetch = 0; prefetch < 4; prefetch++) {
            const struct model model = model_of(bits & 1, bits & 2, 5);
            const struct layout layout = {
                .zero = "fsdp", .data = 4, .shard = 1, .rank = prefetch,
                .rounds = 2, .prefetch = prefetch, .reshard = true,
                .recompute = bits & 4};
            struct stage stage;

            plan(&stage, &model, &layout);
            check_rooms(&stage, &stage.gathered);
            check_rooms(&stage, &stage.reduced);
            check_events(&stage);
            for (int e = 0; e < stage.frame.event_count; e++) {
                CHECK(alive(&stage.gathered, e) <= prefetch + 1);
                CHECK(alive(&stage.reduced, e) <= 2);
            }
            stage_free(&stage);
        }
}

/* Events of a segment run once for each piece: the second piece still reads
 * what the first has done with (issue 17, D2). */
static void check_segment(const struct stage *stage, int first, int end)
{
    const struct residency *r = &stage->gathered;

    for (int i = 0; i < r->count; i++)
        for (int j = 0; j < i; j++) {
            const struct residence *a = &r->items[i], *b = &r->items[j];

            if (a->begin >= end || a->end <= first || b->begin >= end ||
                b->end <= first)
                continue;
            CHECK(a->offset >=
                      b->offset + stage->shards.units[b->unit].elements ||
                  b->offset >=
                      a->offset + stage->shards.units[a->unit].elements);
        }
}

TEST(pieces_of_a_segment_find_their_weights)
{
    struct model model = model_of(true, false, 5);

    model.biases.mlp = true; /* the last of a block, after its messages */
    for (int prefetch = 0; prefetch < 4; prefetch++) {
        const struct layout layout = {
            .zero = "fsdp", .data = 1, .shard = 2, .tensor = 2, .overlap = 2,
            .domino = true, .prefetch = prefetch, .reshard = true};
        struct stage stage;
        int segments = 0;

        plan(&stage, &model, &layout);
        check_rooms(&stage, &stage.gathered);
        for (int e = 0; e < stage.frame.forward_end;) {
            const int end = frame_segment(&stage.program, &stage.frame, e);

            check_segment(&stage, e, end);
            segments += end > e;
            e = end > e ? end : e + 1;
        }
        CHECK(segments > 5);
        stage_free(&stage);
    }
}

static int gathered_again(const char *const *groups, int count)
{
    const struct model model = model_of(false, false, 3);
    const struct layout layout = {
        .zero = "ddp", .data = 1, .shard = 1, .tensor = 2, .overlap = 2,
        .choice = {.groups = {.rows = groups, .count = count,
                              .prefix = "model.layers.%d."}}};
    struct stage stage;
    int again = 0;

    plan(&stage, &model, &layout);
    for (int e = 0; e < stage.frame.event_count; e++)
        again += stage.frame.events[e].pass == PASS_RECOMPUTE;
    stage_free(&stage);
    return again;
}

/* A frozen matrix has no W: its input does not come again, in messages that
 * nobody waits for (issue 17, D1). */
TEST(nothing_comes_again_for_a_frozen_matrix)
{
    const char *const groups[] = {"*wqkv frozen", "*w13 frozen"};

    EQUAL_INT(gathered_again(NULL, 0), 6);
    EQUAL_INT(gathered_again(groups, 1), 3);
    EQUAL_INT(gathered_again(groups, 2), 0);
}

/* ---- memory: formulas of ZeRO ---- */

/* Bytes of one flat arena. */
static int64_t arena_bytes(const struct model *model)
{
    const struct layout layout = {.zero = "ddp", .data = 1, .shard = 1};
    struct stage stage;
    int64_t bytes;

    plan(&stage, model, &layout);
    bytes = 4 * stage.program.params.elements;
    stage_free(&stage);
    return bytes;
}

static size_t row(const struct stage *stage, enum memory_owner owner)
{
    return stage->memory[owner].bytes;
}

/* Bytes for the model's states, of all ranks together. */
static double states(const struct model *model, const char *zero, int ranks)
{
    double bytes = 0;

    for (int rank = 0; rank < ranks; rank++) {
        const struct layout layout = {
            .zero = zero, .data = ranks, .shard = 1, .rank = rank,
            .rounds = strcmp(zero, "zero1") == 0 ? 0 : 1, .prefetch = 1,
            .reshard = true};
        struct stage stage;

        plan(&stage, model, &layout);
        bytes += (double)(row(&stage, MEMORY_WEIGHTS) +
                          row(&stage, MEMORY_GRADIENTS) +
                          row(&stage, MEMORY_STATE_0) +
                          row(&stage, MEMORY_STATE_1) +
                          row(&stage, MEMORY_GATHERED) +
                          row(&stage, MEMORY_BUCKETS));
        stage_free(&stage);
    }
    return bytes;
}

/* With 4 bytes each for weights, gradients and two moments, d ranks, and two
 * units at once of 62: (4 + 4 + 8/d), (4 + 12/d + 4 u), (16/d + 8 u). */
TEST(each_stage_saves_what_it_divides)
{
    static const struct { const char *zero; int whole, divided, units; }
        rows[] = {{"zero1", 8, 8, 0}, {"zero2", 4, 12, 1},
                  {"zero3", 0, 16, 2}};
    const struct model model = model_of(false, false, 60);
    const double parameters = (double)arena_bytes(&model) / 4;

    for (int i = 0; i < ROWS(rows); i++)
        for (int ranks = 2; ranks <= 16; ranks *= 2) {
            const double found =
                states(&model, rows[i].zero, ranks) / ranks / parameters;
            const double formula =
                rows[i].whole + (double)rows[i].divided / ranks;
            const double rooms = rows[i].units * 4 * 2 / 60.0;

            CHECK(found >= formula);
            CHECK(found < formula + rooms + 0.01);
        }
}

/* Ranks that hold parts of every matrix divide their parts: a gradient is a
 * shard for each round that waits, and vectors of two blocks' norms wait only
 * for leaves of a round. */
TEST(rounds_divide_what_tensor_ranks_hold)
{
    const struct model model = model_of(false, false, 60);
    struct layout layout = {.zero = "zero2", .data = 4, .shard = 1,
                            .prefetch = 1, .tensor = 2};
    struct stage whole, rounds;

    plan(&whole, &model, &layout);
    layout.rounds = 2;
    plan(&rounds, &model, &layout);
    CHECK(whole.gradients.joined_elements > 0);
    EQUAL_INT(whole.gradients.joined_elements,
              2 * rounds.gradients.joined_elements);
    CHECK(100 * row(&rounds, MEMORY_GRADIENTS) <
          55 * row(&whole, MEMORY_GRADIENTS));
    CHECK(row(&rounds, MEMORY_BUCKETS) <=
          4 * (size_t)(2 * rounds.shards.largest_unit));
    CHECK(row(&rounds, MEMORY_PARTIALS) < row(&whole, MEMORY_PARTIALS));
    stage_free(&whole);
    stage_free(&rounds);
}

/* ---- messages ---- */

/* Bytes that all ranks send in a step for `what`. */
static int64_t sent(const struct model *model, struct layout layout,
                    const char *what)
{
    const int ranks = layout.data * layout.shard;
    int64_t bytes = 0;

    for (int rank = 0; rank < ranks; rank++) {
        struct pipeline_request request = {0};
        struct exchanges exchanges;
        struct pipeline pipeline;

        layout.rank = rank;
        request.stage = request_of(model, &layout);
        IS_OK(pipeline_plan(&pipeline, &request));
        exchanges_of(&exchanges, &pipeline);
        for (int i = 0; i < exchanges.count; i++)
            if (strcmp(sent_name(exchanges.items[i].what), what) == 0)
                bytes += exchanges.items[i].bytes;
        pipeline_free(&pipeline);
    }
    return bytes;
}

TEST(a_step_sends_two_or_three_times_the_parameters)
{
    const int64_t table = 4 * 96 * 32;

    for (int ranks = 2; ranks <= 16; ranks *= 2)
        for (int rounds = 1; rounds <= 16 / ranks; rounds *= 2) {
            struct layout l = {.zero = "zero2", .data = ranks, .shard = 1,
                               .rounds = rounds, .prefetch = 1,
                               .reshard = true};
            const struct model model = model_of(false, false, 2);
            const struct model tied = model_of(false, true, 2);
            const int64_t others = ranks - 1;
            const int64_t all = others * arena_bytes(&model);
            const int64_t less = others * arena_bytes(&tied);
            const int64_t tables = others * table;

            EQUAL_INT(sent(&model, l, "gradients"), rounds * all);
            EQUAL_INT(sent(&model, l, "weights"), all);
            /* A tied table has two gradients. */
            EQUAL_INT(sent(&tied, l, "gradients"), rounds * (less + tables));
            l.zero = "zero3";
            EQUAL_INT(sent(&model, l, "gradients"), rounds * all);
            /* F does not read the head, nor B the embedding. */
            EQUAL_INT(sent(&model, l, "weights"),
                      rounds * (2 * all - 2 * tables));
            EQUAL_INT(sent(&tied, l, "weights"), rounds * 2 * less);
            l.reshard = false;
            EQUAL_INT(sent(&model, l, "weights"), all);
            EQUAL_INT(sent(&tied, l, "weights"), less);
        }
}

/* Norms of tensor ranks: two a block, one at the end; each round has its own
 * leaves, each leaf its own rows: so many bytes as at a step's end. */
TEST(vectors_of_tensor_ranks_meet_once_a_round)
{
    const struct model model = model_of(false, false, 5);
    const int64_t rows = (2 * 5 + 1) * 32 * 4;

    for (int rounds = 0; rounds <= 4; rounds = rounds ? 2 * rounds : 1) {
        const struct layout l = {.zero = "zero2", .data = 4, .shard = 1,
                                 .rounds = rounds, .prefetch = 1,
                                 .reshard = true, .tensor = 2};

        /* Four leaves of each of four ranks; one of two ranks counts here. */
        EQUAL_INT(sent(&model, l, "vector gradients"), 4 * 4 * rows);
    }
}

TEST(copies_of_shards_are_summed_over_the_data_axis)
{
    const struct layout l = {.zero = "hsdp", .data = 2, .shard = 4,
                             .rounds = 1, .prefetch = 1, .reshard = true};
    const struct model tied = model_of(false, true, 2);
    const int64_t table = 4 * 96 * 32, all = arena_bytes(&tied) + table;

    /* reduce-scatter: 2 (4 - 1), all-reduce of the shards: 2 (2 - 1) */
    EQUAL_INT(sent(&tied, l, "gradients"), (6 + 2) * all);
    EQUAL_INT(sent(&tied, l, "weights"), 6 * 2 * (all - table));
}

TEST_MAIN(what_an_event_needs_is_in_memory,
          pieces_of_a_segment_find_their_weights,
          nothing_comes_again_for_a_frozen_matrix,
          each_stage_saves_what_it_divides,
          rounds_divide_what_tensor_ranks_hold,
          vectors_of_tensor_ranks_meet_once_a_round,
          a_step_sends_two_or_three_times_the_parameters,
          copies_of_shards_are_summed_over_the_data_axis)
