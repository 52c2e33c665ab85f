/* SPDX-License-Identifier: Apache-2.0 */
/* grid.h - the numerics grid: the finest cuts of every sum, and the addends in
 * which a rank meets them (docs/numerics.md, section 1).
 *
 *   leaf   a run of sequences of the global batch (data), or an equal block of
 *          a cut dimension of a weight (tensor)
 *   addend  what one call contributes to a gradient: a part of one leaf, or a
 *          whole subtree of leaves
 *   node   a finished subtree of leaves */
#ifndef LOCKSTEP_MESH_GRID_H
#define LOCKSTEP_MESH_GRID_H

#include "mesh/layout.h"

/* The facts that determine the automatic grid. */
struct grid_facts {
    int64_t batch;        /* sequences of the global batch */
    int64_t length;       /* tokens of a sequence; 0: unknown */
    int64_t heads, kv_heads, head_width;
    int64_t feed_forward; /* what divides every inner width */
    int64_t experts;      /* of a block; 0: none */
    int64_t groups;       /* of them, among which the router chooses; 0, 1:
                           * none */
    bool fast;            /* numerics.mode: a leaf is a rank's own business,
                           * so their number has no limit */
};

enum {
    GRID_LEAVES_MAX = 64,        /* tensor leaves times context leaves; in
                                  * fast mode, those of one rank */
    GRID_DATA_LEAVES_MAX = 4096, /* in exact mode */
    GRID_AUTO_EXPERTS = 8,   /* leaves of experts, at most */
    GRID_AUTO_LARGE = 64,        /* sequences from which on auto has more */
    GRID_AUTO_TOKENS = 1024      /* of a data leaf then, at least */
};

static inline bool grid_is_power(int64_t n)
{
    return n >= 1 && (n & (n - 1)) == 0;
}
/* Whether `ranks` equal runs of leaves are one whole subtree each. Where they
 * are not, a rank of the data axis has several (struct cut). */
bool grid_is_cut(int64_t leaves, int64_t ranks);
/* Whether heads, key-value heads and feed-forward width come in that many
 * blocks, and the leaves of query heads that share a key are a subtree. */
bool grid_tensor_fits(int64_t leaves, const struct grid_facts *facts);
/* The sizes that they do not divide: "8 heads, 4 key-value heads"; returns
 * out. */
enum { GRID_WORDS = 192 };
const char *grid_tensor_words(int64_t leaves, const struct grid_facts *facts,
                              char out[GRID_WORDS]);

/* asked.data, .tensor, .context, .expert: 0 for auto. context: 1. expert: the
 * router's groups; without any the largest power of two up to 8 that divides
 * the experts. data: the largest
 * power of two up to 8 that divides the batch; from GRID_AUTO_LARGE sequences
 * on up to 64, as long as a leaf has GRID_AUTO_TOKENS tokens. tensor: the
 * largest power of two up to 4 that divides heads and feed-forward width and
 * divides, or is divided by, the key-value heads; 3 where only 3 does; else 1.
 * ERR_CONFIG: an asked number does not divide, or is above the limit (names
 * the nearest that works). */
status grid_resolve(struct grid *out, const struct grid *asked,
                    const struct grid_facts *facts);
/* ERR_CONFIG: the context leaves do not cut a sequence of so many tokens, or
 * context chunks have fewer tokens than tensor leaves (names a length that
 * works). */
status grid_check_length(const struct grid *grid, int64_t length);

/* The grid's tree over scalars, for any number of leaves: nodes with numbers
 * 2 i and 2 i + 1 of a level are added; a node without a right neighbour moves
 * up as it is. Destroys leaf [leaves]. */
double grid_tree(double *leaf, int leaves);

struct addend {
    int64_t first_sequence; /* within the micro-batch */
    int64_t sequences;
    int64_t first_token;    /* within each sequence; 0 unless cut */
    int64_t tokens;         /* of each sequence */
    int first_leaf;
    int leaves;             /* more than one: a whole subtree */
    bool begins;            /* nothing of the leaf came before */
    bool completes;         /* the last of its leaf */
    bool cut;               /* a part of one context chunk of one sequence */
    int context;            /* cut: its context leaf */
    bool fresh;             /* nothing of the context leaf came before */
};

/* How a step's batch is cut: grid.data leaves, micro-batches in order. */
struct cut {
    int data_leaves;         /* of this rank */
    int first_leaf;          /* number of its first one among all_leaves */
    int all_leaves;          /* of all ranks that share the batch, where a
                              * rank's are not one subtree; 0: they are */
    int64_t sequences_per_leaf;
    int64_t length;          /* tokens of a sequence, on this rank */
    int context_chunks;      /* of them; 0 or 1: not cut. i and context_chunks -
                              * 1 - i form context leaf i */
    bool shared;             /* other ranks have the rest of each leaf, or a
                              * whole one is changed: addends of one leaf at
                              * most */
    int64_t micro_batch;     /* sequences */
    int64_t micro_batches;   /* per step */
    int64_t addend_sequences; /* most sequences in an addend; 0: no limit */
    int64_t addend_tokens;    /* most tokens of one sequence, a multiple of the
                              * granule; 0: no limit. Below length only when
                              * addend_sequences is 1. */
};

/* Context leaves that each data leaf has here. */
static inline int cut_contexts(const struct cut *cut)
{
    return cut->context_chunks > 1 ? cut->context_chunks / 2 : 1;
}

/* The first addend of micro-batch `index` (cursor 0 sequences, 0 tokens done),
 * then the next ones; false when none is left. `cursor` starts zeroed. */
struct addend_cursor { int64_t sequence, token; };
bool addend_next(const struct cut *cut, int64_t micro_batch_index,
                 struct addend_cursor *cursor, struct addend *out);

/* Nodes that wait for their sibling, left to right. Node i lies in buffer
 * i of the owner: merging goes into the left one, so the root ends in buffer
 * 0, several roots in buffers 0, 1, ..., and at most node_limit(cut) buffers
 * are ever alive. */
enum { NODES_MAX = 16 }; /* log2(GRID_DATA_LEAVES_MAX) + 2, rounded up */
struct node_stack {
    int count;
    struct { int first, leaves; } node[NODES_MAX];
    bool open;               /* the top one is an unfinished leaf */
};
/* Where the addend's sum goes: buffer *buffer. *left: the buffer holds the
 * sibling and takes "left + result" at once (only when `takes_left`, the addend
 * is a whole node and its sibling is the top node). */
void node_begin(const struct node_stack *stack, const struct cut *cut,
                const struct addend *addend, bool takes_left, int *buffer,
                bool *left);
/* Records the addend. Then, as long as node_merge says so, the owner adds
 * buffer *right to buffer *left. */
void node_end(struct node_stack *stack, const struct addend *addend, bool left);
bool node_merge(struct node_stack *stack, const struct cut *cut, int *left,
                int *right);
/* The nodes that are left at the end of a step: the rank's subtrees. */
void cut_roots(const struct cut *cut, struct node_stack *roots);
/* Buffers a step needs: the most that are alive at once. */
int node_limit(const struct cut *cut, bool takes_left);
/* How often in a step the owner adds one buffer to another. */
int64_t node_adds(const struct cut *cut, bool takes_left);

#endif
