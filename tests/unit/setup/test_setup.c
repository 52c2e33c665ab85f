/* SPDX-License-Identifier: Apache-2.0 */
/* test_setup.c - the resolution of layouts, and every way to refuse one. */
#include "tests/test.h"
#include "setup/setup.h"

/* 8 heads, 4 key-value heads, batch 24 (grid: 8 data x 4 tensor leaves). */
static const char usual[] =
    "model.vocab=64 model.layers=6 model.width=32 model.heads=8 "
    "model.kv_heads=4 model.feed_forward=48 data.sequence=40 train.batch=24 "
    "train.steps=3";

static status assign_all(struct options_set *set, const char *assignments)
{
    char copy[1024], *rest = copy, *word;

    CHECK(strlen(assignments) < sizeof copy);
    snprintf(copy, sizeof copy, "%s", assignments);
    while ((word = strsep(&rest, " ")) != NULL)
        if (word[0] != '\0')
            TRY(options_assign(set, word, ORIGIN_COMMAND_LINE));
    return OK;
}

static status resolve(struct setup *setup, struct options_set *set, int ranks,
                      const char *assignments)
{
    TRY(options_init(set));
    TRY(assign_all(set, usual));
    TRY(assign_all(set, assignments));
    return setup_resolve(setup, set, &(struct vocabulary){0, -1}, ranks, 0);
}

static void release(struct setup *setup, struct options_set *set)
{
    setup_free(setup);
    options_free(set);
    status_clear();
}

/* ---- refusals: axis, found, expected, nearest ---- */

struct refusal {
    int ranks;
    const char *assignments, *words;
};

static const struct refusal refusals[] = {
    /* the product */
    {4, "mesh.data=3", "mesh: data 3 is 3 ranks, but there are 4"},
    {8, "mesh.data=2 mesh.shard=3",
     "mesh: data 2 x shard 3 is 6 ranks, but there are 8"},
    {8, "mesh.data=8 mesh.node=3",
     "nodes of 3 ranks do not divide the 8 ranks; 2 does"},
    {4, "mesh.data=-1 mesh.tensor=-1", "both data and tensor are auto"},
    {4, "mesh.data=-1 mesh.tensor=3", "tensor 3 is 3 ranks, but there are 4"},
    {2, "mesh.order=data,tensr", "tensr is not an axis of the mesh; the "
                                 "nearest is tensor"},
    {2, "mesh.order=data,data", "the order of axes names data twice"},
    /* what a family cannot have */
    {1, "model.family=qwen3 optimizer.qk_clip=100",
     "optimizer.qk_clip: qwen3 norms queries and keys"},
    {1, "model.family=gemma2 optimizer.qk_clip=100",
     "optimizer.qk_clip: gemma2 caps its scores at 50 already"},
    {1, "lora.rank=2 optimizer.qk_clip=100",
     "optimizer.qk_clip: would change layers.0.attention.wqkv"},
    {1, "model.dropout=1", "model.dropout"},
    /* the batch */
    {5, "", "mesh.data: 5 ranks cannot share a batch of 24 sequences equally; "
            "4 can"},
    {5, "numerics.mode=fast", "mesh.data: 5 ranks cannot share a batch"},
    {10, "mesh.data=5 mesh.shard=2",
     "mesh.data x mesh.shard: 5 x 2 = 10 ranks cannot share a batch of 24"},
    {7, "mesh.data=1 mesh.shard=7", "mesh.shard: 7 ranks cannot share"},
    {2, "train.micro_batch=5",
     "train.micro_batch: 5 does not divide the 12 sequences of a rank (a batch "
     "of 24 over 2); 4 does"},
    /* the grid */
    {3, "", "mesh.data: 3 ranks do not divide the grid's 8 data leaves; 2 or 4 "
            "can"},
    {6, "mesh.data=2 mesh.shard=3",
     "mesh.data x mesh.shard: 2 x 3 = 6 ranks do not divide the grid's 8 data "
     "leaves; 4 or 8 can"},
    {2, "train.batch=3", "mesh.data: 2 ranks cannot share a batch of 3"},
    {4, "train.batch=12 numerics.grid_data=2",
     "mesh.data: 4 ranks do not divide the grid's 2 data leaves; 2 can"},
    {3, "mesh.tensor=3", "mesh.tensor: 3 ranks do not divide 8 heads, 4 "
                         "key-value heads; 2 "
                         "or 4 can"},
    {3, "mesh.tensor=3 numerics.mode=fast", "mesh.tensor: 3 ranks"},
    {8, "mesh.tensor=8", "mesh.tensor: 8 ranks do not divide the grid's 4 "
                         "tensor leaves into subtrees; 4 can"},
    {16, "mesh.tensor=16 numerics.mode=fast",
     "mesh.tensor: 16 ranks do not divide 8 heads"},
    {2, "mesh.context=2", "mesh.context: 2 ranks do not divide the grid's 1 "
                          "context leaf into subtrees; 1 can"},
    {32, "mesh.context=32 numerics.mode=fast",
     "mesh.context: 32 ranks do not cut a sequence of 40 tokens into two "
     "chunks a rank; 20 can"},
    /* the pipeline */
    {8, "mesh.pipe=8", "mesh.pipe: 8 ranks of 1 stage are more stages than the "
                       "model's 6 blocks; 6 can be"},
    {8192, "mesh.pipe=8192 train.batch=8192", /* no schedule of so many */
     "mesh.pipe: 8192 ranks of 1 stage are more stages than the model's 6 "
     "blocks; 6 can be"},
    {8192, "mesh.pipe=8192 schedule.name=interleaved train.batch=8192",
     "mesh.pipe: 8192 ranks of 2 stages are more stages than the model's 6 "
     "blocks; 3 can be"},
    {4, "mesh.pipe=4 schedule.name=zb-v",
     "mesh.pipe: 4 ranks of 2 stages are more stages than the model's 6 "
     "blocks; 3 can be"},
    {2, "mesh.pipe=2 mesh.layers=[3,2]",
     "mesh.layers: 5 blocks in all, but the model has 6; the last stage would "
     "need 3"},
    {2, "mesh.pipe=2 mesh.layers=[2,2,2]",
     "mesh.layers: 3 numbers for a pipeline of 2 stages (2 ranks of 1)"},
    {1, "mesh.layers=[2,2]", /* as of a run that has one stage now */
     "mesh.layers: 2 numbers for a pipeline of 1 stage (1 rank of 1)"},
    {2, "mesh.pipe=2 mesh.layers=[3,three]",
     "mesh.layers: stage 1 has \"three\" blocks; 0 to 6 can be"},
    {2, "mesh.pipe=2 schedule.name=1f1c", "schedule 1f1c is not known; "
                                          "nearest: 1f1b"},
    {2, "mesh.pipe=2 schedule.name=gpipe schedule.memory_limit=1 "
        "train.micro_batch=1",
     "micro-batches on rank 0; the memory limit is 1"},
    {2, "schedule.name=1f1c", "schedule 1f1c is not known"},
    {2, "mesh.pipe=2 schedule.name=gpipe schedule.chunks=2",
     "schedule gpipe has 1 chunk a rank, not 2"},
    {16, "mesh.data=8 mesh.pipe=2 schedule.name=dualpipe train.batch=64 "
         "train.micro_batch=1",
     "mesh.data: 8 ranks, twice for the two ranks that hold a stage, do not "
     "divide the grid's 8 data leaves into subtrees; 4 can"},
    /* words */
    {1, "numerics.mode=quick", "numerics.mode: quick is not exact or fast"},
    {1, "zero=zero9", "zero: zero9"},
    {1, "train.dtype=bfloat15", "train.dtype: bfloat15 is not float32, "
                                "float64, bfloat16 or float16; nearest: "
                                "bfloat16"},
    {1, "train.dtype=int32", "train.dtype: int32 is not float32"},
    {1, "train.dtype=bfloat16 numerics.bfloat16=tile",
     "numerics.bfloat16: tile is not pairs or tiles"},
    {1, "numerics.bfloat16=tiles", "train.dtype is float32; set "
                                   "train.dtype=bfloat16"},
    {1, "train.dtype=float16 numerics.bfloat16=tiles",
     "train.dtype is float16; set train.dtype=bfloat16"},
    {1, "train.dtype=bfloat16 train.loss_scale=1024",
     "train.loss_scale: 1024 is of use to float16 alone"},
    {1, "train.dtype=float16 train.loss_scale=1000",
     "train.loss_scale: 1000 is not a power of two up to 2^40; 512 is"},
};

TEST(what_does_not_fit_is_refused)
{
    for (int i = 0; i < ROWS(refusals); i++) {
        const struct refusal *row = &refusals[i];
        struct options_set set;
        struct setup setup;

        FAILS(resolve(&setup, &set, row->ranks, row->assignments), ERR_CONFIG,
              row->words);
        release(&setup, &set);
    }
}

/* ---- what fits ---- */

static const struct {
    int ranks;
    const char *assignments;
    int data, shard;          /* sizes */
    int leaves, all;          /* data leaves of the rank, of the run */
    int64_t batch, micro_batch;
    bool exact;
} fits[] = {
    {1, "", 1, 1, 8, 8, 24, 24, true},
    {2, "", 2, 1, 4, 8, 12, 12, true},
    {8, "train.micro_batch=1", 8, 1, 1, 8, 3, 1, true},
    {4, "mesh.shard=2", 2, 2, 2, 8, 6, 6, true},
    {4, "mesh.data=1 mesh.shard=-1", 1, 4, 2, 8, 6, 6, true},
    {4, "numerics.mode=fast", 4, 1, 2, 8, 6, 6, true},
    {3, "numerics.mode=fast", 3, 1, 2, 6, 8, 8, false},
    {6, "numerics.mode=fast", 6, 1, 1, 6, 4, 4, false},
    {12, "numerics.mode=fast", 12, 1, 1, 12, 2, 2, false},
    {66, "numerics.mode=fast mesh.context=66 data.sequence=528", 1, 1, 8, 8,
     24, 24, false},
    /* Each stage on two ranks, for which the grid is fitted again. */
    {6, "numerics.mode=fast mesh.data=1 mesh.tensor=3 mesh.pipe=2 "
        "model.heads=6 model.kv_heads=6 model.width=96 "
        "schedule.name=dualpipe "
        "train.micro_batch=1", 1, 1, 8, 8, 24, 1, false},
    {2, "numerics.mode=fast mesh.data=1 mesh.pipe=2 schedule.name=dualpipe "
        "train.micro_batch=1", 1, 1, 8, 8, 24, 1, true},
    {3, "numerics.mode=fast train.batch_ramp=[0=12,2=24]", 3, 1, 2, 6, 8, 4,
     false},
};

TEST(what_fits_is_shared)
{
    for (int i = 0; i < ROWS(fits); i++) {
        struct options_set set;
        struct setup setup;

        IS_OK(resolve(&setup, &set, fits[i].ranks, fits[i].assignments));
        EQUAL_INT(setup.mesh.size[AXIS_DATA], fits[i].data);
        EQUAL_INT(setup.mesh.size[AXIS_SHARD], fits[i].shard);
        EQUAL_INT(setup.request.layout.grid.data, fits[i].leaves);
        EQUAL_INT(setup.grid.data, fits[i].all);
        EQUAL_INT(setup.request.size.batch, fits[i].batch);
        EQUAL_INT(setup.request.size.micro_batch, fits[i].micro_batch);
        EQUAL_INT(setup.exact, fits[i].exact);
        release(&setup, &set);
    }
}

/* ---- sequences at once, where nobody says ---- */

/* Cuts of 24 sequences and 8 leaves; nothing is cut below 1,024 tokens, below
 * 256 MB of activations, or for less than a tenth of what it takes. */
static const struct {
    int ranks;
    const char *assignments;
    int64_t micro_batch;
} at_once[] = {
    {1, "data.sequence=2048 model.layers=3", 24},          /* 198 MB */
    {1, "data.sequence=2048", 3},                         /* 396 MB */
    {1, "data.sequence=512 model.layers=256", 3},
    {1, "data.sequence=256 model.layers=512", 6},         /* 3 are 768 */
    {1, "data.sequence=2048 model.layers=64 train.batch=21", 21}, /* odd */
    {1, "data.sequence=2048 model.layers=64 train.batch=20", 5},
    {1, "data.sequence=2048 model.layers=64 numerics.grid_data=2", 12},
    {1, "data.sequence=2048 model.layers=64 train.micro_batch=24", 24},
    {1, "data.sequence=2048 model.vocab=1000000", 12}, /* 256 MB a sum */
    {2, "data.sequence=2048 model.layers=64", 3},
    {2, "data.sequence=2048 model.layers=64 zero=fsdp", 12}, /* messages */
    {2, "data.sequence=2048 model.layers=64 mesh.tensor=2", 24}};

TEST(large_batches_are_worked_on_in_parts)
{
    for (int i = 0; i < ROWS(at_once); i++) {
        struct options_set set;
        struct setup setup;

        IS_OK(resolve(&setup, &set, at_once[i].ranks,
                      at_once[i].assignments));
        if (setup.request.size.micro_batch != at_once[i].micro_batch)
            print_error("%s\n", at_once[i].assignments);
        EQUAL_INT(setup.request.size.micro_batch, at_once[i].micro_batch);
        release(&setup, &set);
    }
}

/* Ranks say on which machines they are, unless mesh.node says so. */
TEST(nodes_that_are_found_belong_to_the_layout)
{
    struct options_set set;
    struct setup setup;

    IS_OK(resolve(&setup, &set, 8, "mesh.data=8"));
    EQUAL_INT(setup.mesh.node, 0);
    IS_OK(setup_use_node(&setup, 2));
    EQUAL_INT(setup.mesh.node, 2);
    EQUAL_INT(setup.request.layout.mesh.node, 2);
    release(&setup, &set);
    IS_OK(resolve(&setup, &set, 8, "mesh.data=8 mesh.node=4"));
    IS_OK(setup_use_node(&setup, 2));
    EQUAL_INT(setup.mesh.node, 4);
    release(&setup, &set);
}

TEST(a_run_that_goes_on_keeps_its_grid)
{
    const struct grid two = {.data = 2, .tensor = 4, .context = 1};
    const struct grid one = {.data = 1, .tensor = 4, .context = 1};
    struct options_set set;
    struct setup setup;

    IS_OK(resolve(&setup, &set, 2, ""));
    IS_OK(setup_use_grid(&setup, &two));
    EQUAL_INT(setup.request.layout.grid.data, 1);
    EQUAL_INT(setup.request.size.batch, 12);
    FAILS(setup_use_grid(&setup, &one), ERR_CONFIG,
          "mesh.data: 2 ranks do not divide the grid's 1 data leaf");
    release(&setup, &set);
}

/* A checkpoint of another run has it, and nothing else of it is wrong. */
TEST(a_grid_that_cannot_cut_the_run_is_refused)
{
    static const struct { struct grid grid; const char *said; } cases[] = {
        {{5, 4, 1, 1}, "is not one of this run: numerics.grid_data: 5 leaves"},
        {{48, 4, 1, 1}, "numerics.grid_data: 48 leaves do not divide"},
        {{2, 5, 1, 1}, "numerics.grid_tensor: 5 leaves do not divide"},
        {{2, 4, 17, 1}, "numerics.grid_context: 17 leaves"},
        {{2, 4, 1, 2}, "numerics.grid_expert: 2 leaves, but the model has no"}};
    const struct grid two = {.data = 2, .tensor = 4, .context = 1};
    struct options_set set;
    struct setup setup;

    IS_OK(resolve(&setup, &set, 2, ""));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        FAILS(setup_take_grid(&setup, &cases[i].grid), ERR_CONFIG,
              cases[i].said);
    IS_OK(setup_take_grid(&setup, &two));
    EQUAL_INT(setup.grid.data, 2);
    release(&setup, &set);
}

TEST_MAIN(what_does_not_fit_is_refused, what_fits_is_shared,
          large_batches_are_worked_on_in_parts,
          a_run_that_goes_on_keeps_its_grid,
          a_grid_that_cannot_cut_the_run_is_refused,
          nodes_that_are_found_belong_to_the_layout)
