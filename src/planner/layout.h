/* SPDX-License-Identifier: Apache-2.0 */
/* layout.h - how ranks divide a step, as the planner compares it: small enough
 * to be copied a hundred thousand times. */
#ifndef LOCKSTEP_PLANNER_LAYOUT_H
#define LOCKSTEP_PLANNER_LAYOUT_H

#include "base/options.h"
#include "mesh/grid.h"
#include "mesh/group.h"
#include "planner/frame_bytes.h"
#include "planner/machine.h"
#include "planner/program_habits.h"
#include "planner/shape.h"
#include "schedule/schedule.h"

enum recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_BLOCK,
                 RECOMPUTES };
extern const char *const recompute_names[RECOMPUTES];

/* When divided gradients are summed over ranks (zero_reduce). */
enum sums_when { SUMS_AS_USUAL, /* as the program does */
                 SUMS_EACH, SUMS_ONCE };

/* Weights, gradients and states that are not in device memory. */
enum offload { OFFLOAD_NONE, OFFLOAD_STATES = 1, OFFLOAD_WEIGHTS = 2,
               OFFLOAD_ACTIVATIONS = 4, OFFLOAD_DISK = 8 };

enum { LAYOUT_STAGES = 256, LAYOUT_NAME = 24 };

struct layout;
/* Whether FSDP of another program sums gradients of all micro-batches at
 * once. */
bool layout_sums_once(const struct layout *l);

/* How Lockstep keeps masters and optimizer states; zeroed: as AdamW in
 * float32. */
struct stored {
    bool split_masters;      /* optimizer.masters=split */
    bool one_state;          /* Lion, SGD */
    int state_bits;          /* of optimizer.state_dtype; 0: 32 */
};

struct layout {
    enum program_as as;
    int pipe, data, shard, context, tensor, expert;
    int expert_tensor;       /* as the options mesh.expert_tensor and */
    bool expert_context;     /* mesh.expert_context */
    int per_node;            /* ranks of a node */
    bool rows_straight;      /* moe.exchange=flat */
    bool tensor_scales;      /* numerics.recipe=fp8-tensor */
    bool four_bits;          /* products of another program have 4 bits */
    int64_t batch, micro_batch; /* sequences of a step; of a rank at once */
    int microbatches;        /* of a pipeline in a step */
    bool fine;               /* lists of whole stages have messages of as many
                              * parts as those of few micro-batches */
    char schedule[LAYOUT_NAME];
    int chunks;              /* stages of a pipe rank */
    int zero;                /* 0 to 3 */
    bool whole_shards;       /* hsdp: weights are divided by shard alone */
    bool parts[3];           /* ... but states, gradients over data too: 1, 2,
                              * as `zero` counts */
    enum sums_when sums;
    bool whole_gradients;    /* whatever `zero` says */
    enum recompute recompute;
    bool again_moved;        /* selective: norms and products of gates, not
                              * attention */
    bool again_latent;       /* what is made of latents, too, or alone */
    bool sequence_parallel;  /* tensor ranks divide tokens between products */
    int bits;                /* of weights in products: 8, 16 or 32 */
    struct stored stored;
    bool overlap_tensor;     /* messages beside products */
    unsigned offload;        /* enum offload */
    int threads;             /* of a rank; 0: 1 */
    const int *blocks;       /* borrowed: how many each stage has
                              * (mesh.layers); NULL: as even as can be */
    int head_blocks;         /* blocks that the head counts as: the last stage
                              * has fewer others */
    struct frames frames;    /* of Lockstep; zeroed: not asked for */
    struct {                 /* blocks of the first and the last pipe rank, */
        bool known;          /* once memory_count_ends has counted them */
        double all[2], mixed[2];
    } ends;
    int grid_data, grid_tensor; /* leaves of the whole batch, where the
                              * configuration names them or a search knows
                              * those of layout_grid; 0: not */
};

/* The layout that options ask for on `ranks`. ERR_CONFIG: it divides nothing;
 * names the nearest that does. */
struct layout_request {
    const struct options *options;
    const struct shape *shape;
    const struct machine *machine;
    enum program_as as;
    int ranks, nodes;        /* nodes 0: as many as the machine needs */
    int *blocks;             /* room for [LAYOUT_STAGES]; NULL: even */
};
status layout_from_options(struct layout *layout,
                           const struct layout_request *request);
/* Whether ranks lie as in the default order: groups inside a node, and numbers
 * of ranks, are known in that order alone. */
bool layout_is_in_order(const struct layout *layout,
                        const struct mesh_order *order);
/* ERR_CONFIG: mesh.order puts its ranks elsewhere. */
status layout_check_order(const struct layout *layout,
                          const struct options *options);
int layout_ranks(const struct layout *layout);
/* Bits of block products: of the recipe, where `as` has products of 8 bits;
 * Lockstep makes them from numbers of 16 and 32. */
int layout_bits(const struct options *options, enum program_as as);
/* Whether operands of all three have 4 bits there; their `bits` are 8. */
bool layout_has_4_bits(const struct options *options, enum program_as as);
/* Fields that options of kernels, messages and sums of gradients set, whatever
 * the axes are. */
void layout_take(struct layout *layout, const struct options *options);
/* Masters and states of Lockstep; zeroed for other programs. */
struct stored layout_stored(const struct options *options, enum program_as as);
/* Bytes of one state of a parameter. */
double layout_state_bytes(const struct layout *layout);
/* Bytes of a parameter that lasts from one step to the next: of its weight, of
 * a master beside it, and of its states. */
struct held_bytes { double weight, master, states; };
struct held_bytes layout_held_bytes(const struct layout *layout);
/* Whether tensor ranks divide the tokens of what they all compute. */
bool layout_divides_tokens(const struct layout *layout);
/* Bytes that the update of the optimizer moves for a parameter. */
double layout_update_bytes(const struct layout *layout);
/* The program that `as` means: Megatron-LM has other habits on devices that
 * are younger than those on which arXiv:2104.04473 ran it. */
enum program_as layout_program(enum program_as as,
                               const struct machine *machine);
/* Ranks that share the batch. */
static inline int layout_sharing(const struct layout *layout)
{
    return layout->data * layout->shard * layout->expert;
}
/* Ranks of a shard group: programs other than Lockstep take context ranks, too,
 * which hold the same weights (Megatron-Core, torchtitan). */
static inline int layout_shards(const struct layout *layout)
{
    return layout->shard * (layout->as == AS_LOCKSTEP ? 1 : layout->context);
}
/* Ranks that ZeRO divides over. */
static inline int layout_sharers(const struct layout *layout)
{
    return layout->data * layout_shards(layout) * layout->expert;
}
/* Nodes that the ranks fill one after the other: the last may have fewer. */
static inline int layout_nodes(const struct layout *layout)
{
    return (layout_ranks(layout) + layout->per_node - 1) / layout->per_node;
}
/* The rank behind the last one of a node. */
static inline int layout_node_end(const struct layout *layout, int node)
{
    const int ranks = layout_ranks(layout), end = (node + 1) * layout->per_node;

    return end < ranks ? end : ranks;
}
/* Its axes, and which of them divide the experts. ERR_CONFIG: mesh_fold. */
status layout_mesh(const struct layout *layout, struct mesh *mesh);
/* The numerics grid that Lockstep takes for it and a batch: its own, or one
 * with a leaf for each tensor rank. ERR_CONFIG: grid_resolve. */
status layout_grid(const struct layout *layout, const struct shape *shape,
                   int64_t batch, struct grid *grid);
/* Sets its grid_data and grid_tensor for its batch, as layout_grid, with the
 * leaves that are named; 0 of an axis, or of both where there is no such grid:
 * not named. */
void layout_know_grid(struct layout *layout, const struct shape *shape,
                      struct grid named);
/* Reads the leaves that options name; false: none. */
bool layout_named_grid(const struct options *options, struct grid *named);
/* Leaves of the batch that a rank of Lockstep has in a step, and those of the
 * tensor axis of its grid. */
struct layout_leaves { int data, tensor; };
struct layout_leaves layout_leaves(const struct layout *layout,
                                   const struct shape *shape);
/* Leaves that a micro-batch of it has, in the mean. */
double layout_leaves_each(const struct layout *layout,
                          const struct shape *shape);
/* Ranks that divide the experts of a block. Neighbours in the group cut each
 * expert, where `cut` is not 1; `folded`: those of the tensor axis are some of
 * them, and do not cut it. */
struct expert_ranks {
    int ranks, stride;       /* rank numbers from one to the next */
    int places;              /* that hold different experts */
    int cut;                 /* ranks that cut each of them, tensor's too */
    int sources;             /* ranks whose tokens differ, but for the parts
                              * that tensor ranks have */
    bool folded;
};
struct expert_ranks layout_experts(const struct layout *layout);
/* Whether its schedule makes gradients of weights after those of inputs. */
bool layout_defers(const struct layout *layout);
/* Whether its schedule runs F of one stage beside B of another of the rank:
 * DualPipe's. */
bool layout_joins_passes(const struct layout *layout);
/* Parameters of a mean block on a rank: of its experts, and of the rest. */
double layout_block_experts(const struct layout *layout,
                            const struct shape *shape);
double layout_block_dense(const struct layout *layout,
                          const struct shape *shape);
/* Parameters of a mean block on a rank that learn: all, or adapters alone. */
struct block_learns { double dense, experts; };
struct block_learns layout_block_learns(const struct layout *layout,
                                        const struct shape *shape);
/* Ranks over which what `zero` names is divided: weights, gradients, states. */
int layout_division(const struct layout *layout, int zero);
/* The stage that a rank of the pipe has as its chunk: in a V, the last rank's
 * two follow each other. */
int layout_stage(const struct layout *layout, int chunk, int position);
/* Blocks of stage `stage` of pipe x chunks. */
int layout_blocks(const struct layout *layout, const struct shape *shape,
                  int stage);
/* Like layout_blocks, and those of them that have experts. */
struct stage_blocks { int all, mixed, first; };
/* `count` blocks from `first` on. */
struct stage_blocks layout_blocks_between(const struct shape *shape, int first,
                                          int count);
struct stage_blocks layout_stage_blocks(const struct layout *layout,
                                        const struct shape *shape, int stage);
/* Blocks of a pipe rank: of all its stages; those with experts. */
struct rank_blocks { double all, mixed; };
struct rank_blocks layout_rank_blocks(const struct layout *layout,
                                      const struct shape *shape, int position);
/* Whether here are more blocks, or more with experts, than at all ranks that
 * were asked for before (seen, zeroed at first). */
bool rank_blocks_grow(struct rank_blocks *seen, struct rank_blocks here);
/* "tensor 8, pipe 16, data 8, micro-batch 1, zero1". */
const char *layout_text(const struct layout *layout, char *out, size_t size);

#endif
