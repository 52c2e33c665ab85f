/* SPDX-License-Identifier: Apache-2.0 */
/* test_coded_weights.c - mirrors src/plan/coded_weights.c: which weights are
 * gathered as codes, and where they lie; shards follow each other in rooms, and
 * bytes are those of the format. */
#include "plan/stage.h"
#include "tests/test.h"

static const char *const none[] = {"none"};

static const struct model model = {
    .kind = &model_llama, .vocab = 96, .layers = 3, .heads = 4, .kv_heads = 2,
    .head_width = 8, .width = 32, .feed_forward = 48, .context = 16,
    .rope.base = 10000, .norm_epsilon = 1e-5, .activation = ACTIVATION_SILU,
    .init_std = 0.02};

/* The last of three blocks has no recipe. */
static void plan(struct stage *stage, const char *recipe, int ranks, int rank,
                 bool codes)
{
    const struct precision *found = NULL;
    struct stage_request request = {
        .model = &model, .mode = PROGRAM_TRAIN, .dtype = DTYPE_BF16,
        .layout.grid = {8 / ranks, 2, 1, 0}, .layout.mesh = mesh_alone(),
        .size.batch = 8 / ranks, .size.micro_batch = 8 / ranks,
        .size.length = 16,
        .backward = BACKWARD_FUSED, .training.optimizer = true,
        .machine.threads = 1, .recomputation.policy = none,
        .recomputation.count = 1,
        .divided.gather = {.prefetch = 1, .reshard = true, .codes = codes}};

    IS_OK(precision_parse(&found, recipe));
    request.precision =
        (struct precision_use){.on = true, .recipe = *found, .end = 2};
    request.layout.mesh.size[AXIS_DATA] = ranks;
    request.layout.place.at[AXIS_DATA] = rank;
    IS_OK(division_parse(&request.divided.division, "fsdp"));
    IS_OK(stage_plan(stage, &request));
}

/* Bytes of a room by counting parameters. */
static int64_t counted(const struct stage *s, int unit, int bits)
{
    const struct shard_unit *u = &s->shards.units[unit];
    int64_t bytes = 0;

    for (int i = u->first_param; i < u->first_param + u->params; i++) {
        const struct param *p = &s->program.params.items[i];
        const bool coded = p->layer >= 0 && p->layer < 2 && !p->spec.vector;

        CHECK(s->coded.params[i].is == coded);
        bytes += coded ? (p->elements * bits / 8 + 31) / 32 * 32
                       : 2 * param_room(p->elements);
    }
    return bytes;
}

/* Own shards follow each other, once or once for each product. */
static void check_shards(const struct stage *s)
{
    int64_t at = 0, most = 0;

    for (int i = 0; i < s->shards.count; i++) {
        if (coded_peaks(&s->coded, i) > most)
            most = coded_peaks(&s->coded, i);
        CHECK((s->coded.own[i] >= 0) == (coded_peaks(&s->coded, i) > 0));
        for (int set = 0; set < s->coded.sets && s->coded.own[i] >= 0; set++) {
            EQUAL_INT(coded_own(&s->coded, &s->shards, i, set), at);
            at += (int64_t)arena_aligned(
                (size_t)coded_own_bytes(&s->coded, &s->shards, i));
        }
    }
    EQUAL_INT(at, s->coded.bytes);
    EQUAL_INT(most, s->coded.most_peaks);
}

static void check_rooms(const char *recipe, int bits, int ranks, int rank)
{
    struct stage s, plain;
    int64_t before = 0;

    plan(&s, recipe, ranks, rank, true);
    plan(&plain, recipe, ranks, rank, false);
    CHECK(plain.coded.params == NULL);
    for (int i = 0; i < s.shards.count; i++) {
        const struct shard_unit *u = &s.shards.units[i];
        const int64_t *sizes = s.coded.sizes + (int64_t)i * s.shards.most;
        int64_t sum = 0;

        for (int r = 0; r < ranks; r++) sum += sizes[r];
        EQUAL_INT(sum, counted(&s, i, bits));
        EQUAL_INT(2 * u->room, sum);
        EQUAL_INT(u->room_at, before);
        EQUAL_INT(stage_gather_bytes(&s, i), sizes[rank]);
        before += u->room;
    }
    CHECK(s.memory[MEMORY_GATHERED].bytes <
          plain.memory[MEMORY_GATHERED].bytes);
    EQUAL_INT(s.memory[MEMORY_CODES].bytes,
              arena_aligned(coded_parts(&s.coded).bytes));
    EQUAL_INT(plain.memory[MEMORY_CODES].bytes, 0);
    check_shards(&s);
    stage_free(&s);
    stage_free(&plain);
}

TEST(rooms_of_codes)
{
    for (int rank = 0; rank < 4; rank++) {
        check_rooms("fp8-tiles", 8, 4, rank);
        check_rooms("nvfp4", 4, 4, rank);
        check_rooms("fp8-tensor", 8, 4, rank);
        check_rooms("mxfp8", 8, 4, rank);
        check_rooms("mxfp4", 4, 4, rank);
        check_rooms("bitnet", 2, 4, rank);
    }
    check_rooms("hfp8", 8, 2, 1);
}

/* One rank divides nothing. */
TEST(nothing_alone)
{
    struct stage s;

    plan(&s, "fp8-tiles", 1, 0, true);
    CHECK(s.coded.params == NULL);
    EQUAL_INT(s.memory[MEMORY_CODES].bytes, 0);
    stage_free(&s);
}

TEST(refusals)
{
    static const char *const can[] = {"hfp8", "fp8-tensor", "fp8-tiles",
                                      "nvfp4", "mxfp8", "mxfp4", "fp8-delayed",
                                      "nvfp4-delayed", "bitnet"};
    static const struct { const char *recipe, *why; } cannot[] = {
        {"mxfp4-quartet", "the recipe rounds them anew in each use"}};
    struct precision_use use = {.on = true};
    const struct precision *found = NULL;

    for (size_t i = 0; i < sizeof can / sizeof *can; i++) {
        IS_OK(precision_parse(&found, can[i]));
        use.recipe = *found;
        CHECK(coded_refusal(&use) == NULL);
        EQUAL_INT(coded_sets(&use), can[i][0] == 'm' ? 2 : 1);
    }
    use.steps = 3;
    CHECK(coded_refusal(&use) != NULL);
    use.steps = 0;
    for (size_t i = 0; i < sizeof cannot / sizeof *cannot; i++) {
        IS_OK(precision_parse(&found, cannot[i].recipe));
        use.recipe = *found;
        EQUAL_TEXT(coded_refusal(&use), cannot[i].why);
    }
}

TEST_MAIN(rooms_of_codes, nothing_alone, refusals)
