/* SPDX-License-Identifier: Apache-2.0 */
/* stage.h - everything that is decided before the first step, and the memory
 * that it takes.
 *
 * stage_plan makes the program, its frame and the layout of its gradients and
 * adds up every buffer; nothing is allocated for the run yet. stage_open takes
 * one planned arena of exactly those bytes and hands out the same rows. So
 * what `plan` prints is what the trainer allocates, to the byte. */
#ifndef LOCKSTEP_PLAN_STAGE_H
#define LOCKSTEP_PLAN_STAGE_H

#include "base/range_sum.h"
#include "mesh/shard.h"
#include "mesh/starts.h"
#include "models/model.h"
#include "nn/run.h"
#include "nn/slice.h"
#include "optimizer/whole_tensors.h"
#include "plan/coded_weights.h"
#include "plan/residency.h"

/* When the weights that ranks divide are whole. */
struct gather_policy {
    int prefetch;          /* units gathered ahead */
    int64_t in_flight;     /* ... elements of them at most; 0: any */
    bool reshard;          /* they are given back after each pass */
    bool once;             /* ... of all micro-batches (plan/phases.h) */
    bool codes;            /* as codes of the recipe (plan/coded_weights.h) */
};

/* numerics.attention, with numerics.gpu=fast. */
enum attention_by { ATTENTION_BY_ANY, ATTENTION_BY_OWN, ATTENTION_BY_CUDNN,
                    ATTENTION_BY_FLASH };

struct stage_request {
    const struct model *model;
    enum program_mode mode;
    enum dtype dtype;      /* of activations, and of weights as kernels read
                            * them */
    struct program_layout layout; /* how it is cut; grid.data: this rank's share
                            * of the leaves */
    struct slice slice;    /* zeroed: the whole model */
    struct {
        int64_t batch;     /* sequences of a step */
        int64_t micro_batch; /* sequences at once */
        int64_t length;    /* tokens of a sequence; generate: of one call */
        int64_t context;   /* positions of tables and caches; 0: length */
        int texts;         /* generate: with caches of their own; 0: 1 */
        int64_t logits_chunk; /* tokens; 0: chosen here */
        int frames;        /* micro-batches in flight at once; 0: 1 */
        bool shares_room;  /* of a pass, with other stages of the rank */
    } size;
    int mtp_depth;         /* modules that predict later tokens */
    bool latent_cache;     /* generate: caches of latents, where the model has
                            * latent attention */
    struct regularization regular;
    uint64_t seed;         /* of its masks */
    struct precision_use precision; /* of products; zeroed: none */
    double qk_clip;        /* largest score that is left alone; 0: any */
    enum backward_mode backward;
    struct {
        bool optimizer;    /* masters and states */
        struct optimizer_choice choice; /* zeroed: adamw */
        bool observe;      /* room for the weights before an update */
        bool snapshot;     /* room for a copy of what a checkpoint keeps */
    } training;
    struct {               /* what data ranks share */
        struct division division; /* zeroed: nothing */
        struct gather_policy gather;
    } divided;
    struct {
        int rounds;        /* more than 0: divided gradients are reduced after
                            * every micro-batch, which is then all that `batch`
                            * and `grid` say; a step has so many */
        int bits;          /* of a gradient on its way to its owner (numerics
                            * fast only); 0: as it is */
        struct integer_sums sums;
        bool piped;        /* ... which are the micro-batches of the schedule;
                            * else it runs once for each round */
    } reduction;
    struct {
        const char *const *policy; /* "auto" alone chooses */
        int count;
        double fits;       /* bytes that auto tries to fit; 0: a quarter of the
                            * machine */
        int share;         /* of how many stages it is for; 0: 1 */
    } recomputation;
    struct {               /* where it runs */
        enum device_kind device; /* has its memory and runs kernels; of a
                                  * stage that is planned never auto */
        enum isa isa;
        enum product product; /* of bfloat16 */
        bool fast;         /* numerics.gpu: a library of cuda makes products */
        enum attention_by attention; /* numerics.attention */
        int threads;
        int local_rank;    /* of the ranks of this machine, for its GPUs */
        bool graphs;       /* device/graphs.h */
    } machine;
};

enum memory_owner {
    MEMORY_WEIGHTS, MEMORY_COMPUTE, MEMORY_GRADIENTS, MEMORY_PARTIALS,
    MEMORY_STATE_0, MEMORY_STATE_1, MEMORY_STATE_2, MEMORY_STATE_3,
    MEMORY_STATE_4,
    MEMORY_FRAME, MEMORY_PASS,
    MEMORY_LAYER_SCRATCH, MEMORY_KERNEL_SCRATCH, MEMORY_ROTARY, MEMORY_CACHE,
    MEMORY_BATCH, MEMORY_AHEAD,
    MEMORY_GATHERED, MEMORY_CODES, MEMORY_BUCKETS, MEMORY_NORM, MEMORY_RETURNS,
    MEMORY_MESSAGES, MEMORY_BACKGROUND, MEMORY_OBSERVED, MEMORY_WHOLE,
    MEMORY_MASTERS,
    MEMORY_SNAPSHOT, MEMORY_STAGING, MEMORY_TOLD_HOST, MEMORY_TOLD,
    MEMORY_PRODUCTS, MEMORY_ATTENTION, MEMORY_TIED,
    MEMORY_OWNERS
};

_Static_assert(MEMORY_STATE_4 - MEMORY_STATE_0 + 1 == (int)OPTIMIZER_STATES,
               "a row for each slot of the optimizer's states");

struct memory_row {
    const char *name;    /* "activations and their gradients" */
    const char *life;    /* "run", "micro-batch", "call" */
    size_t bytes;        /* a multiple of ARENA_ALIGN */
    void *data;          /* NULL until stage_open */
};
/* Which side has a row on a device that is apart from the host. A host row may
 * be written by kernels, too: what they add up for the host. */
bool memory_is_host(enum memory_owner owner);

struct stage {
    struct stage_request request; /* with every choice made */
    struct kernels kernels; /* metered once open */
    struct kernels real;    /* of sums, where kernels are narrow; the same */
    struct kernels inner[2]; /* both, unmetered: once open */
    struct kernels host_kernels[2]; /* the host's, unmetered: once open */
    struct program program;
    struct holding holding; /* of the whole parameters */
    struct shards shards;   /* of the arenas that are divided */
    struct shard_starts starts; /* where gradients in few bits begin anew;
                             * empty: tensor ranks have no copies of them */
    struct coded coded;     /* of gathered or kept weights */
    struct states states;   /* of the optimizer; empty without one */
    struct residency gathered, reduced; /* of divided weights, of gradients */
    struct {
        bool merged;        /* F, B and W are one phase */
        int64_t at[2];      /* of F, of B and W: elements of the room */
    } phases;               /* of weights that are gathered once */
    int64_t level_elements; /* of a divided gradient: shards of all units, then
                             * of second uses */
    size_t masters_bytes;   /* room for split masters that are joined to
                             * float32 at one time */
    int levels;             /* sums of rounds that wait for each other */
    struct frame_plan frame;
    struct gradients gradients;
    struct memory_row memory[MEMORY_OWNERS];
    void *host[MEMORY_OWNERS]; /* where the host sees a row: its data; on a
                            * device apart a copy in MEMORY_STAGING, which
                            * stages_fetch and stages_store bring up to date;
                            * NULL: it has none */
    size_t bytes;          /* sum of the rows */
    char recompute[64];    /* the policy that was chosen, for printing */
    char chosen[320];      /* why the device is what it is; "": it was given */
    struct arena arena;    /* owned once open */
    struct threads *threads; /* owned unless opened beside another */
    bool borrowed;         /* its parts are another's: stage_plan_alike, */
    bool own_gradients;    /* ... but for the plan of its gradients */
    bool beside;
    size_t launch_bytes;   /* of the largest launch of a stage that shares its
                            * device */
    struct device *device; /* owned unless opened beside another; NULL: cpu */
    struct kernels behind[2]; /* on a device apart: what it runs */
    struct {
        void *data;        /* owned: memory of a device apart */
        size_t bytes;
    } apart;
    struct {               /* in MEMORY_STAGING: whole_host_bytes, scratch of
                            * kernels; 0: the host computes none there */
        void *data;
        size_t bytes, scratch;
        struct kernels kernels[2]; /* the host's, once open */
    } whole;
    struct {               /* weights and states, where they may outlive the
                            * rank (train/two_slots.h) */
        bool apart;        /* the caller's to set, before it is opened: they
                            * have memory of their own, */
        char *data;        /* owned, at a huge page, */
        size_t bytes;      /* of whole huge pages */
        int64_t other;     /* bytes to the other slot; 0: there is none */
        int64_t from;      /* of the next update: `other`; 0: in place */
        bool counts;       /* the next update adds up what it writes: */
        struct range_sum sum;
    } kept;
    struct stream stream;
    struct run run;        /* ready for a batch once open */
    struct batch *batches; /* owned, [frames]: what lies in each */
};

status stage_plan(struct stage *stage, const struct stage_request *request);
/* The same program of a step, planned with another recomputation and another
 * way to run backward. */
status stage_plan_again(struct stage *stage, const char *const *policy,
                        int count, enum backward_mode backward);
/* A stage that has the plan of `like`, but for micro-batches in flight, its
 * place in the pipe, and which of equal blocks it has. It is never opened, and
 * lives no longer than `like`, which was planned for several frames. */
status stage_plan_alike(struct stage *stage, const struct stage *like,
                        const struct stage_request *request);
/* Whether a stage of this request, which differs from that of `like` in the
 * batch of a step alone, has the same program and frame. */
bool stage_outlives_batch(const struct stage *like,
                          const struct stage_request *request);
/* The stage of such a request: it has a plan of gradients of its own. Lives no
 * longer than `like`. */
status stage_plan_batch(struct stage *stage, const struct stage *like,
                        int64_t batch);
/* Whether an arena holds this rank's shards only (mesh/shard.h). */
bool stage_divides(const struct stage *stage, enum memory_owner arena);
/* How much of an arena this rank has: all, its shard, or a part of it. */
enum shard_level stage_level(const struct stage *stage,
                             enum memory_owner arena);
/* Whether weights are gathered once for all micro-batches (plan/phases.h). */
bool stage_gathers_once(const struct stage *stage);
/* Bytes that this rank sends each of the others in a gather of the unit, which
 * its weights are divided for. */
int64_t stage_gather_bytes(const struct stage *stage, int unit);
/* Bytes of a gather, of the part of a shard that it updates. */
int64_t stage_part_bytes(const struct stage *stage, int unit);
/* The weights that kernels read, of program->dtype: MEMORY_WEIGHTS, or, where
 * that type is narrow, a copy of those: MEMORY_COMPUTE. */
enum memory_owner stage_reads(const struct stage *stage);
/* The memory that is loaded and saved: MEMORY_WEIGHTS, which is real, if there
 * is an optimizer, otherwise the weights that kernels read. */
enum memory_owner stage_keeps(const struct stage *stage);
enum dtype stage_keeps_dtype(const struct stage *stage);
/* Bytes of an arena of weights or gradients. */
size_t stage_arena_bytes(const struct stage *stage, enum memory_owner arena);
/* Whether masters are split: MEMORY_COMPUTE has the bfloat16 weights, and
 * MEMORY_WEIGHTS the other bits of their float32 masters (kernels/masters.h).
 */
bool stage_splits(const struct stage *stage);
/* Bytes of the weights that are loaded and saved, in the type that they are
 * saved in. */
size_t stage_saved_bytes(const struct stage *stage);
/* Bytes for split masters that an update joins to float32 at one time. */
size_t stage_masters_room(const struct stage *stage);
/* Where split masters lie: as the host sees them, or the device. */
struct master_arenas stage_masters(const struct stage *stage, bool host);
/* out = split masters as float32, laid out as MEMORY_WEIGHTS is where masters
 * are not split. The host computes it. */
void stage_join_masters(const struct stage *stage, void *out);
/* Chooses the device where the request does not. ERR_CONFIG: one that is apart
 * from the host does not have something that the program, which is built,
 * needs. */
status stage_check_apart(struct stage *stage);
/* Whether a library of the GPU makes its products (numerics.gpu=fast). */
static inline bool stage_products_fast(const struct stage *stage)
{
    return stage->request.machine.fast &&
           stage->request.machine.device == DEVICE_CUDA;
}
/* Says who computes attention of the stage, whose products a library makes,
 * on tensor cores: of the layers that each has. */
struct stage_attention {
    bool library, flash; /* cuDNN, where it is found; our own kernels */
    const char *why;     /* neither does, in a few words */
};
struct stage_attention stage_attention(const struct stage *stage);
/* Checks the batch, the grid and the vocabulary as stage_plan does. */
status stage_check(const struct stage_request *request);
/* Another size of one row, before stage_open: room for messages. */
void stage_reserve(struct stage *stage, enum memory_owner owner, size_t bytes);
/* Two stages of one rank take turns: scratch and tables are those of `first`
 * for both; and the room of a pass, where whole passes take turns. Before
 * either is opened. */
void stage_share(struct stage *first, struct stage *other, bool passes);
/* Shared rows lie where those of `first` do. */
void stage_use_shared(struct stage *stage, const struct stage *first);
/* Bytes of the batches of all frames, at the front of MEMORY_BATCH. */
size_t stage_batch_bytes(const struct stage *stage);
/* Allocates. Weights are uninitialised. */
status stage_open(struct stage *stage);
/* A stage that shares with `first`, which is open and is freed later. */
status stage_open_beside(struct stage *stage, const struct stage *first);
/* A stage that goes on in the memory of `open`, which is the same but for its
 * batch: rows are as large as those of `open`, which keeps none. Weights,
 * states and tables stay where they are. */
status stage_take_over(struct stage *stage, struct stage *open);
void stage_free(struct stage *stage);

/* The device that the stage wants, whose memory has those rows. */
struct device_choice stage_device(const struct stage *stage,
                                  const struct memory_row *rows);
/* The stage's device also runs what the other one launches. */
void stage_raise_launch(struct stage *stage, const struct stage *other);
/* Bytes of MEMORY_STAGING: 0 where the host sees the device's memory. */
size_t stage_staging_bytes(struct stage *stage,
                           const struct memory_row *rows);
/* Sets `host` of every row, of an open stage. */
void stage_place_staging(struct stage *stage);
/* Where the host computes whole tensors of optimizers. */
struct whole_host stage_whole_host(const struct stage *stage);
/* The host's copies become what the device has, of all rows with one; and the
 * other way. Nothing where the host sees the device's memory. Not in a step. */
status stages_fetch(const struct stage *stages, int count);
status stages_store(const struct stage *stages, int count);
/* Whether a row lies in stage->kept. */
static inline bool stage_is_apart(const struct stage *stage, int owner)
{
    return stage->kept.apart &&
           (owner == MEMORY_WEIGHTS ||
            (owner >= MEMORY_STATE_0 && owner <= MEMORY_STATE_4));
}
status stage_store_row(const struct stage *stage, enum memory_owner owner);

/* Times that a step reduces gradients. */
static inline int stage_rounds(const struct stage *stage)
{
    const int rounds = stage->request.reduction.rounds;

    return rounds > 0 ? rounds : 1;
}
/* Times that it runs the schedule. */
static inline int stage_repeats(const struct stage *stage)
{
    return stage->request.reduction.piped ? 1 : stage_rounds(stage);
}
/* The sums in MEMORY_NORM, after the blocks: [orders][shard_leaves]. */
double *stage_norm_sums(const struct stage *stage);
/* Room for the blocks of one class of parameters; NULL: there is but one. */
double *stage_norm_room(const struct stage *stage);

/* The initial values of a rank's part of a parameter, drawn from counters keyed
 * by (seed, name, index in the whole). */
struct weights_init {
    const struct param *param;
    const struct model *model;
    uint64_t seed;
    enum dtype dtype;
    enum isa isa;
    struct threads *threads;
    void *data;
    struct layout_run runs[LAYOUT_RUNS_MAX]; /* local_first counts from data */
    int run_count;
};
void weights_init(const struct weights_init *init);
/* All weights of a stage whose arena is not divided. */
status stage_init_weights(struct stage *stage, const struct model *model,
                          uint64_t seed);

/* Whether a row is what a checkpoint keeps of this rank. */
bool stage_saves(const struct stage *stage, enum memory_owner owner);
/* Bytes of a copy of the row, in which split masters are joined to float32. */
size_t stage_copied_bytes(const struct stage *stage, enum memory_owner owner,
                          const struct memory_row *rows);
/* Room for a copy of all those rows, in their order; 0 where the stage has no
 * snapshot, or answers for nothing: a replica under ddp. */
size_t stage_snapshot_bytes(const struct stage *stage,
                            const struct memory_row *rows);

/* A memory table [MEMORY_OWNERS], as text and as JSON. */
status memory_print(const struct memory_row *rows, struct text *out);
void memory_write(const struct memory_row *rows, struct json_writer *out);

/* Arrays of MEMORY_BATCH, of one frame. */
struct stage_batch {
    int32_t *inputs, *targets, *positions, *documents; /* [tokens] */
    int32_t *mtp_inputs, *mtp_targets; /* [depth][tokens] (nn/run.h) */
    /* Where ranks cut sequences, else NULL: documents of whole ones, and room
     * for one whole sequence that all frames share. */
    int32_t *whole_documents; /* [sequences, program_sequence] */
    int32_t *whole_inputs, *whole_targets, *whole_positions;
};
struct stage_batch stage_batch(const struct stage *stage, int frame);
/* Lets stage->run work on a frame and on the batch that was last given to it
 * (stage->batches). */
void stage_use_frame(struct stage *stage, int frame);

#endif
