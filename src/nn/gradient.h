/* SPDX-License-Identifier: Apache-2.0 */
/* gradient.h - gradients as trees over the leaves of the grid.
 *
 * A layer asks where the sum of an addend goes (gradient_begin), lets a kernel
 * write it there, and says so (gradient_end); finished siblings are added as
 * the tree says. Buffer 0 of every use holds the root at the end; buffers
 * beyond exist only where leaves of different micro-batches (or logits chunks)
 * must wait for each other: mesh/grid.h, node_limit.
 *
 *   buffer 0, first use    flat arena, as the weights
 *   everything else        partials, laid out by gradients_plan
 *
 * Where an expert's rank sums tokens of several ranks (use_info.sources),
 * the leaves of each source have a tree of their own, with buffers of its own;
 * once all are complete, their roots are added by the tree, into that of source
 * 0. Where context ranks divide the experts, too (use_info.contexts), it sums
 * the context leaves of each of them apart, a data leaf at a time, and adds
 * those of a data leaf by the tree, into that of context rank 0.
 *
 * Where leaves are added as integers (program.sums), a use has one buffer of
 * numbers, for the leaf of now, and one sum of int64, in the place of its root:
 * of all sources. Uses of several steps share the buffer where no leaf waits
 * for an addend. gradients_read makes numbers of the sums once they are
 * complete on all ranks, in place.
 *
 * A rank whose leaves are several subtrees (3 of 12) has as many roots: those
 * of first uses lie in as many flat arenas, one behind the other, those of
 * other uses behind each other in the partials. */
#ifndef LOCKSTEP_NN_GRADIENT_H
#define LOCKSTEP_NN_GRADIENT_H

#include "comm/comm.h"
#include "nn/tied_rows.h"

struct use_state {
    struct node_stack stack;
    struct addend addend;      /* between begin and end */
    int buffer;
    bool left;
    int64_t offset[NODES_MAX]; /* elements, in partials; -1 in buffer 0 of use
                                * 0 (root arena) */
    void *placed;            /* where buffer 0 lies if in neither */
    int64_t unfinished;      /* accumulators of an unfinished leaf, elements in
                              * partials; -1: none. A vector's [contexts, parts,
                              * width]; a matrix's context leaves but the first,
                              * which lies in its node's buffer */
    int64_t sum;             /* of integers: elements in partials of the sum of
                              * source 0; -1: in the root arena, or placed */
    bool begun;              /* ... which holds a leaf */
    int64_t joined;          /* vector of this rank's tokens: [data leaves,
                              * contexts, width], elements in partials; -1 */
};

struct gradients {
    const struct program *program;
    const struct kernels *kernels;
    struct stream *stream;
    struct group *context;   /* of ranks that have the other context leaves of
                              * each data leaf; NULL: none */
    void *root;              /* [roots.count][params.gradients] real */
    void *partials;          /* [partial_elements] real */
    int64_t partial_elements;
    struct node_stack roots; /* the subtrees that this rank has; one, unless
                              * cut[].all_leaves says otherwise */
    int64_t joined_first, joined_elements; /* of all uses, in partials */
    struct cut cut[2];       /* [head] */
    struct use_state *states; /* owned, [sources][contexts][uses] */
    int sources, contexts;   /* the most of a use */
    int source, of;          /* the source, and which of its context ranks,
                              * whose tokens the next addend has */
    double factor;           /* of the loss, which gradients have */
    bool read;               /* sums of integers are numbers by now */
    bool halved;             /* another rank has the other half of the leaves of
                              * each source: sources are added up once it is
                              * there, too (gradient_fold_sources) */
    struct tied_rows named; /* of the program's tied table */
    int64_t named_block;     /* room for TIED_BLOCK rows, in partials */
    /* Called with the whole sum of each data leaf of a matrix, which it may
     * change (program_cut: addends are then of one leaf); NULL: nobody does. */
    status (*finish)(void *argument, int use, struct tensor leaf);
    void *finish_argument;
};

static inline status gradient_leaf(const struct gradients *g, int use,
                                   struct tensor leaf)
{
    return g->finish == NULL ? OK : g->finish(g->finish_argument, use, leaf);
}

/* Lays out the partials; root and partials are set by the caller afterwards.
 * placed: buffers 0 are in neither; the caller sets state->placed before a
 * use begins. */
status gradients_plan(struct gradients *g, const struct program *program,
                      bool placed);
void gradients_free(struct gradients *g);
/* Before the first micro-batch of a step. */
void gradients_reset(struct gradients *g);
/* Uses that are joined in one call: [first, end). */
struct use_range { int first, end; };
struct use_range gradients_all(const struct gradients *g);
/* Elements that a call for the range sums; 0: no call. */
int64_t gradients_joined(const struct gradients *g, struct use_range range);
/* After the last micro-batch has filled the range, once for each use: sums
 * of its vectors over ranks that hold parts of the same sequences, NULL: none;
 * then each leaf is whole, and the leaves are folded. */
status gradients_join(struct gradients *g, struct use_range range,
                      struct group *tensor);
size_t gradients_message_bytes(const struct gradients *g,
                               struct use_range range,
                               const struct group *tensor);
/* left += right, both sums of rounds. */
status gradients_merge(const struct gradients *g, struct tensor left,
                       struct tensor right);
/* The type of the sums by now. */
static inline enum dtype gradients_dtype(const struct gradients *g)
{
    return g->read ? program_real(g->program) : program_sum(g->program);
}
/* Integer sums are complete: numbers take their places, in the first `elements`
 * of the root arena and in the partials. Nothing where sums are numbers. */
status gradients_read(struct gradients *g, int64_t elements);
/* After gradients_join: every root is complete. */
void gradients_close(const struct gradients *g);
/* Like gradients_close, where no other rank has a part: adds second uses into
 * the root arena. */
status gradients_finish(struct gradients *g);

/* The use whose root takes that of a further one, the last one first; -1: it
 * is the first use. Uses behind the blocks are joined before the lookup takes
 * them: a pipeline has them in another stage. */
int gradient_taker(const struct program *program, int use);
/* False: of a frozen matrix, which has no root. */
bool gradient_made(const struct program *program, int use);
/* Roots of a use beside that in the root arena. */
static inline int gradient_more_roots(const struct program *program, int use)
{
    const struct use_info *info = &program->uses[use];

    return (program->sums.integer ? 0 : info->sources - 1) +
           (info->number > 0);
}
/* Adds the lookups of a tied table, where only named rows are kept; once all
 * roots are complete. */
status gradients_add_named(struct gradients *g);

/* The root of the first use of the parameter of a use, in its shape. */
struct tensor gradient_first_root(const struct gradients *g, int use);
/* Root of a use once its step is done, flat; the first of several. */
struct tensor gradient_root(const struct gradients *g, int use);
/* Bytes from one root to the next, and the leaves of all ranks; 0: there is one
 * root (struct comm_call). use: -1: of the flat arenas. */
int64_t gradient_root_stride(const struct gradients *g, int use);
int gradient_leaves(const struct gradients *g);

/* Where the sum of an addend goes. */
struct gradient_target {
    struct tensor c;
    bool left;      /* c holds the sibling and takes "left + result" */
    bool continues; /* c is an unfinished leaf */
    int only;       /* the sum takes context leaf only - 1 of the addend; 0: all
                     * that the addend has, by the tree */
};
/* How many sums an addend has: one, or one for each context leaf where it is a
 * part of its data leaf only. They are made in order, each between begin and
 * end. */
int gradient_sums(const struct gradients *g, int use,
                  const struct addend *addend);
void gradient_begin(struct gradients *g, int use, const struct addend *addend,
                    int sum, struct gradient_target *out);
status gradient_end(struct gradients *g, int use, int sum);

/* This rank's part of the root of a source, flat; and the tree over sources,
 * which are equal subtrees that follow each other. */
struct tensor gradient_source_root(struct gradients *g, int use,
                                   int source);
status gradient_fold_sources(struct gradients *g, int use);
/* The addends that follow are of tokens of one context rank of this source. */
void gradients_from(struct gradients *g, int source, int context);

/* For vectors: sums [leaves * contexts * parts, width] for this addend, in
 * `scratch` or,
 * when the leaf is cut, in the use's own accumulators. */
void gradient_vector_begin(struct gradients *g, int use,
                           const struct addend *addend, void *scratch,
                           struct tensor *sums, bool *continues);
/* Scratch of the sums over the context group, bytes. */
size_t gradient_join_bytes(const struct gradients *g,
                           const struct group *context);

/* Folds parts, contexts and leaves and adds to the tree. */
status gradient_vector_end(struct gradients *g, int use,
                           struct tensor sums);

#endif
