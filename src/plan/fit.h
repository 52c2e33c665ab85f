/* SPDX-License-Identifier: Apache-2.0 */
/* fit.h - whether a layout fits the model, the batch and the numerics grid.
 *
 * The grid is the finest cut of every sum (docs/numerics.md, section 1). An
 * axis fits when each of its ranks gets a subtree of the grid's leaves: then
 * the bits do not depend on the layout. Every refusal names the axis, what was
 * found, what was expected and the nearest that fits. */
#ifndef LOCKSTEP_PLAN_FIT_H
#define LOCKSTEP_PLAN_FIT_H

#include "base/options.h"
#include "mesh/grid.h"
#include "mesh/group.h"

struct fit {
    struct mesh mesh;
    struct grid_facts facts; /* of the model and the batch */
    int64_t length;          /* tokens of a sequence */
    int copies;              /* ranks of a pipeline that hold each stage and
                              * share its batch: 2 for DualPipe, else 1 */
    bool shards_first;       /* sums over mesh.shard come before those over
                              * mesh.data (hsdp, mics) */
    bool integer;            /* numerics.sums: leaves of a rank need not be
                              * subtrees */
    bool fast;               /* numerics.mode: where only the grid says no, it
                              * gives way */
};

/* ERR_CONFIG: an axis does not fit. fast: *grid becomes one that fits; *changed
 * says so, and where ranks add in another order than the grid's. */
status fit_grid(const struct fit *fit, struct grid *grid, bool *changed);

enum context_kind { CONTEXT_GATHER, CONTEXT_RING, CONTEXT_ULYSSES,
                    CONTEXT_HYBRID, CONTEXT_STRIPED };
/* Parses a value of context.kind. ERR_CONFIG: unknown (names the nearest). */
status context_kind_parse(enum context_kind *kind, const char *name);
/* How many neighbours along the context axis exchange heads for tokens:
 * 1, all, or for hybrid `asked` (0: as many as the key-value heads of a rank
 * allow). ERR_CONFIG: heads do not divide. */
status fit_exchange(const struct fit *fit, enum context_kind kind,
                    int64_t asked, int *exchange);

/* Blocks before stage `stage` of `stages`, which are as even as can be where
 * the last one does `later` blocks of work more: modules for later tokens. It
 * has one at least. stage [0, stages]. */
int fit_first(int layers, int later, int stages, int stage);
/* ERR_CONFIG: more stages than blocks; asked: mesh.layers, whose first and last
 * may have none. `ranks`: of the pipeline. */
status fit_stages(const struct option_list *asked, int layers, int ranks,
                  int64_t stages);
/* Blocks of each of `stages` stages, blocks [stages]: as asked (mesh.layers),
 * or as even as can be (fit_first). ERR_CONFIG: as fit_stages, another number
 * of stages or blocks than there are. */
status fit_blocks(const struct option_list *asked, int layers, int later,
                  int ranks, int stages, int *blocks);

#endif
