/* SPDX-License-Identifier: Apache-2.0 */
/* fit.c - whether a layout fits the model, the batch and the numerics grid. */
#include "plan/fit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 160, DATA_AIM = 8 /* leaves */ };

typedef bool possible(const struct fit *fit, const struct grid *grid,
                      int ranks);

static const char *leaves_word(int count)
{
    return count == 1 ? "leaf" : "leaves";
}

/* "2 can", "2 or 4 can": the possible sizes next to `ranks`. */
static const char *nearest(char words[WORDS], const struct fit *fit,
                           const struct grid *grid, int ranks, possible *can)
{
    int below = ranks - 1, above = ranks + 1;

    while (below > 1 && !can(fit, grid, below)) below--;
    if (below < 1) return "no number of ranks can";
    while (above <= 2 * ranks && !can(fit, grid, above)) above++;
    if (above <= 2 * ranks && above - ranks <= ranks - below)
        snprintf(words, WORDS, "%d or %d can", below, above);
    else
        snprintf(words, WORDS, "%d can", below);
    return words;
}

/* ---- data, shard ---- */

static int sharing(const struct fit *fit)
{
    return mesh_batch_ranks(&fit->mesh);
}

/* "mesh.data x mesh.shard: 3 x 2 = 6 ranks": axes with more than one rank. */
static const char *sharing_text(const struct fit *fit, char words[WORDS])
{
    char names[WORDS] = "", sizes[WORDS] = "";
    int axes = 0;

    for (int i = 0; i < BATCH_AXES; i++) {
        const enum axis axis = batch_axes[i];
        const int size = fit->mesh.size[axis];
        const size_t name_at = strlen(names), size_at = strlen(sizes);

        if (size == 1) continue;
        snprintf(names + name_at, WORDS - name_at, "%smesh.%s",
                 axes > 0 ? " x " : "", axis_name(axis));
        snprintf(sizes + size_at, WORDS - size_at, "%s%d",
                 axes > 0 ? " x " : "", size);
        axes++;
    }
    if (axes == 0) snprintf(words, WORDS, "mesh.data: 1 rank");
    else if (axes == 1) snprintf(words, WORDS, "%s: %s ranks", names, sizes);
    else snprintf(words, WORDS, "%s: %s = %d ranks", names, sizes,
                  sharing(fit));
    return words;
}

static bool divides_batch(const struct fit *fit, const struct grid *grid,
                          int ranks)
{
    (void)grid;
    return (fit->fast || ranks * fit->copies <= GRID_DATA_LEAVES_MAX) &&
           fit->facts.batch % (ranks * fit->copies) == 0;
}

/* Whether a rank may have several subtrees of leaves: where its sum meets those
 * of all ranks that share the batch at once, or has no order. */
static bool several_fit(const struct fit *fit)
{
    return fit->integer || (fit->copies == 1 && !fit->shards_first &&
                            fit->mesh.size[AXIS_EXPERT] == 1);
}

static bool divides_data(const struct fit *fit, const struct grid *grid,
                         int ranks)
{
    const int all = ranks * fit->copies;

    return (several_fit(fit) ? grid->data % all == 0
                             : grid_is_cut(grid->data, all)) &&
           divides_batch(fit, grid, ranks);
}

/* Leaves in the order of the ranks, as many a rank as reach DATA_AIM. */
static int data_leaves(const struct fit *fit)
{
    int leaves = sharing(fit) * fit->copies;

    while (2 * leaves <= DATA_AIM && fit->facts.batch % (2 * leaves) == 0)
        leaves *= 2;
    return leaves;
}

/* Sums over mesh.shard first and mesh.data then are the tree's only where the
 * shards of one data rank are a whole subtree. */
static bool shards_are_subtrees(const struct fit *fit)
{
    return fit->integer || !fit->shards_first ||
           fit->mesh.size[AXIS_DATA] == 1 ||
           grid_is_power(fit->mesh.size[AXIS_SHARD]);
}

static status fit_shards(const struct fit *fit)
{
    const int shard = fit->mesh.size[AXIS_SHARD];
    int near = 1;

    if (fit->fast || shards_are_subtrees(fit)) return OK;
    while (2 * near <= shard) near *= 2;
    FAIL(ERR_CONFIG, "zero: hsdp, mics, and axes of which some divide over "
                     "mesh.shard alone add over mesh.shard before mesh.data, "
                     "which needs a power of two of shards, not %d; "
                     "mesh.shard=%d or zero=fsdp works", shard, near);
}

static status fit_data(const struct fit *fit, struct grid *grid)
{
    const int ranks = sharing(fit);
    const char *twice =
        fit->copies > 1 ? ", twice for the two ranks that hold a stage," : "";
    char who[WORDS], near[WORDS];
    status code;

    if (!divides_batch(fit, grid, ranks))
        FAIL(ERR_CONFIG, "%s%s cannot share a batch of %lld sequences%s; %s",
             sharing_text(fit, who), twice, (long long)fit->facts.batch,
             !fit->fast && ranks * fit->copies > GRID_DATA_LEAVES_MAX
                 ? " (at most 4,096 can)" : " equally",
             nearest(near, fit, grid, ranks,
                     fit->fast ? divides_batch : divides_data));
    /* More leaves of a rank than a tree is tested with give way, too. */
    if (divides_data(fit, grid, ranks) &&
        grid->data / (ranks * fit->copies) <= GRID_DATA_LEAVES_MAX)
        return fit_shards(fit);
    if (fit->fast) {
        grid->data = data_leaves(fit);
        return OK;
    }
    code = status_fail(ERR_CONFIG, __FILE__, __LINE__,
                       "%s%s do not divide the grid's %d data %s%s; %s",
                       sharing_text(fit, who), twice, grid->data,
                       leaves_word(grid->data),
                       several_fit(fit) ? "" : " into subtrees",
                       nearest(near, fit, grid, ranks, divides_data));
    return status_hint(code, "a new run can have numerics.grid_data=%d; "
                             "numerics.mode=fast goes without the grid",
                       ranks * fit->copies);
}

/* ---- tensor ---- */

/* In exact mode one sum has a part for each rank; in fast mode a rank has one
 * leaf, whatever their number. */
static bool is_capped(const struct fit *fit, int ranks)
{
    return !fit->fast && ranks > GRID_LEAVES_MAX;
}

static const char *cap_text(const struct fit *fit, int ranks)
{
    _Static_assert(GRID_LEAVES_MAX == 64, "cap_text says so");
    return is_capped(fit, ranks) ? " (at most 64 ranks can; "
                                   "numerics.mode=fast has no such limit)" : "";
}

static bool cuts_model(const struct fit *fit, const struct grid *grid,
                       int ranks)
{
    (void)grid;
    return !is_capped(fit, ranks) && grid_tensor_fits(ranks, &fit->facts);
}

static bool divides_tensor(const struct fit *fit, const struct grid *grid,
                           int ranks)
{
    (void)fit;
    return grid_is_cut(grid->tensor, ranks);
}

static status fit_tensor(const struct fit *fit, struct grid *grid)
{
    const int ranks = fit->mesh.size[AXIS_TENSOR];
    char near[WORDS], words[GRID_WORDS];
    status code;

    if (divides_tensor(fit, grid, ranks)) return OK;
    if (!cuts_model(fit, grid, ranks))
        FAIL(ERR_CONFIG, "mesh.tensor: %d ranks do not divide %s%s; %s", ranks,
             grid_tensor_words(ranks, &fit->facts, words),
             cap_text(fit, ranks),
             nearest(near, fit, grid, ranks,
                     fit->fast ? cuts_model : divides_tensor));
    if (fit->fast) {
        grid->tensor = ranks;
        return OK;
    }
    code = status_fail(ERR_CONFIG, __FILE__, __LINE__,
                       "mesh.tensor: %d ranks do not divide the grid's %d "
                       "tensor %s into subtrees; %s", ranks, grid->tensor,
                       leaves_word(grid->tensor),
                       nearest(near, fit, grid, ranks, divides_tensor));
    return status_hint(code, "a new run can have numerics.grid_tensor=%d; "
                             "numerics.mode=fast goes without the grid",
                       ranks);
}

/* ---- context ---- */

/* A rank takes two chunks, one from each end. */
static bool cuts_sequence(const struct fit *fit, const struct grid *grid,
                          int ranks)
{
    (void)grid;
    return !is_capped(fit, ranks) && fit->length / 2 >= ranks;
}

static bool divides_context(const struct fit *fit, const struct grid *grid,
                            int ranks)
{
    (void)fit;
    return grid_is_cut(grid->context, ranks);
}

static status fit_context(const struct fit *fit, struct grid *grid)
{
    const int ranks = fit->mesh.size[AXIS_CONTEXT];
    char near[WORDS];
    status code;

    if (divides_context(fit, grid, ranks)) return OK;
    if (!fit->fast) TRY(grid_check_length(grid, fit->length));
    if (!cuts_sequence(fit, grid, ranks))
        FAIL(ERR_CONFIG, "mesh.context: %d ranks do not cut a sequence of %lld "
                         "tokens into two chunks a rank%s; %s", ranks,
             (long long)fit->length, cap_text(fit, ranks),
             nearest(near, fit, grid, ranks,
                     fit->fast ? cuts_sequence : divides_context));
    if (fit->fast) {
        grid->context = ranks;
        return OK;
    }
    code = status_fail(ERR_CONFIG, __FILE__, __LINE__,
                       "mesh.context: %d ranks do not divide the grid's %d "
                       "context %s into subtrees; %s", ranks,
                       grid->context, leaves_word(grid->context),
                       nearest(near, fit, grid, ranks, divides_context));
    return status_hint(code, "a new run can have numerics.grid_context=%d; "
                             "numerics.mode=fast goes without the grid",
                       ranks);
}

status context_kind_parse(enum context_kind *kind, const char *name)
{
    static const char *const names[] = {"allgather", "ring", "ulysses",
                                        "hybrid", "striped"};

    for (int i = 0; i < 5; i++) {
        *kind = (enum context_kind)i;
        if (strcmp(name, names[i]) == 0) return OK;
    }
    FAIL(ERR_CONFIG, "context.kind: %s is not allgather, ring, ulysses, hybrid "
                     "or striped; nearest: %s", name,
         text_nearest(name, names, 5) ? text_nearest(name, names, 5)
                                      : "allgather");
}

/* Key-value heads that one rank has. */
static int64_t own_heads(const struct fit *fit)
{
    const int64_t ranks = fit->mesh.size[AXIS_TENSOR];

    return fit->facts.kv_heads > ranks ? fit->facts.kv_heads / ranks : 1;
}

static bool exchanges(const struct fit *fit, int64_t ranks)
{
    return fit->mesh.size[AXIS_CONTEXT] % ranks == 0 &&
           own_heads(fit) % ranks == 0;
}

status fit_exchange(const struct fit *fit, enum context_kind kind,
                    int64_t asked, int *exchange)
{
    const int ranks = fit->mesh.size[AXIS_CONTEXT];
    int64_t wanted = ranks;
    int near = ranks;

    while (!exchanges(fit, near)) near--;
    *exchange = 1;
    if (kind == CONTEXT_STRIPED && ranks > 1 && !fit->fast)
        FAIL(ERR_CONFIG, "context.kind: striped tokens are outside the grid; "
                         "ring is inside, numerics.mode=fast goes without it");
    if ((kind != CONTEXT_ULYSSES && kind != CONTEXT_HYBRID) || ranks == 1)
        return OK;
    if (kind == CONTEXT_HYBRID) wanted = asked > 0 ? asked : near;
    if (exchanges(fit, wanted)) {
        *exchange = (int)wanted;
        return OK;
    }
    while (near > 1 && (near > wanted || !exchanges(fit, near))) near--;
    FAIL(ERR_CONFIG, "%s: %lld of %d context ranks cannot exchange the %lld "
                     "key-value head%s of a rank; %d can (context.kind=hybrid, "
                     "context.ulysses=%d)",
         kind == CONTEXT_ULYSSES ? "context.kind: ulysses" : "context.ulysses",
         (long long)wanted, ranks, (long long)own_heads(fit),
         own_heads(fit) == 1 ? "" : "s", near, near);
}

/* One sum has a part for each pair of a context and a tensor leaf: of all that
 * there are, so that one rank can add the same; in fast mode, of those of a
 * rank. Tensor leaves give way down to one a rank: by halves, which still
 * divide the heads; an odd number above the ranks' has one rank
 * (grid_is_cut). */
static status fit_parts(const struct fit *fit, struct grid *grid)
{
    const int ranks = fit->mesh.size[AXIS_TENSOR];
    const int shared = fit->fast ? ranks : 1;
    const int contexts = fit->fast
                             ? grid->context / fit->mesh.size[AXIS_CONTEXT]
                             : grid->context;

    while (fit->fast && grid->tensor > ranks &&
           (contexts * (grid->tensor / ranks) > GRID_LEAVES_MAX ||
            (grid->context > 1 && /* a token of each in every chunk */
             fit->length / (2 * grid->context) < grid->tensor)))
        grid->tensor = grid->tensor % 2 == 0 ? grid->tensor / 2 : ranks;
    if (contexts * (grid->tensor / shared) <= GRID_LEAVES_MAX) return OK;
    FAIL(ERR_CONFIG, "mesh.context x mesh.tensor: %d context leaves of the "
                     "grid times %d tensor leaves are %d; one sum has at most "
                     "%d, so %d context ranks can be here",
         grid->context, grid->tensor, grid->context * grid->tensor,
         GRID_LEAVES_MAX, GRID_LEAVES_MAX / grid->tensor);
}

status fit_grid(const struct fit *fit, struct grid *grid, bool *changed)
{
    const struct grid asked = *grid;

    TRY(fit_tensor(fit, grid));
    TRY(fit_context(fit, grid));
    TRY(fit_parts(fit, grid));
    TRY(fit_data(fit, grid));
    *changed = grid->data != asked.data || grid->tensor != asked.tensor ||
               grid->context != asked.context || !shards_are_subtrees(fit);
    return OK;
}

/* ---- pipe ---- */

static status read_blocks(const struct option_list *asked, int layers,
                          int *blocks)
{
    int64_t sum = 0;
    char *end;

    for (int i = 0; i < asked->count; i++) {
        const long count = strtol(asked->items[i], &end, 10);
        /* The first has the embedding, the last the head. */
        const bool outer = asked->count > 1 &&
                           (i == 0 || i == asked->count - 1);
        const int least = outer ? 0 : 1;

        if (end == asked->items[i] || *end != '\0' || count < least ||
            count > layers)
            FAIL(ERR_CONFIG, "mesh.layers: stage %d has \"%s\" blocks; %d to "
                             "%d can be", i, asked->items[i], least, layers);
        blocks[i] = (int)count;
        sum += count;
    }
    if (sum != layers)
        FAIL(ERR_CONFIG, "mesh.layers: %lld blocks in all, but the model has "
                         "%d; the last stage would need %lld",
             (long long)sum, layers,
             (long long)(blocks[asked->count - 1] + layers - sum));
    return OK;
}

int fit_first(int layers, int later, int stages, int stage)
{
    const int64_t all = layers + later;
    const int64_t before_last = all * (stages - 1) / stages;

    if (stage == stages) return layers;
    if (before_last < layers) return (int)(all * stage / stages);
    return (int)((int64_t)(layers - 1) * stage / (stages - 1));
}

status fit_stages(const struct option_list *asked, int layers, int ranks,
                  int64_t stages)
{
    const int64_t chunks = ranks > 0 && stages > ranks ? stages / ranks : 1;

    if (stages <= layers + (asked->count > 0 ? 2 : 0)) return OK;
    FAIL(ERR_CONFIG, "mesh.pipe: %d ranks of %lld stage%s are more stages than "
                     "the model's %d blocks; %lld can be", ranks,
         (long long)chunks, chunks > 1 ? "s" : "", layers,
         (long long)(layers / chunks > 0 ? layers / chunks : 1));
}

status fit_blocks(const struct option_list *asked, int layers, int later,
                  int ranks, int stages, int *blocks)
{
    const int chunks = ranks > 0 && stages > ranks ? stages / ranks : 1;

    TRY(fit_stages(asked, layers, ranks, stages));
    if (asked->count == 0) {
        for (int i = 0; i < stages; i++)
            blocks[i] = fit_first(layers, later, stages, i + 1) -
                        fit_first(layers, later, stages, i);
        return OK;
    }
    if (asked->count == stages) return read_blocks(asked, layers, blocks);
    return status_hint(
        status_fail(ERR_CONFIG, __FILE__, __LINE__,
                    "mesh.layers: %d number%s for a pipeline of %d stage%s (%d "
                    "rank%s of %d); one for each stage, first to last",
                    asked->count, asked->count == 1 ? "" : "s", stages,
                    stages == 1 ? "" : "s", ranks, ranks == 1 ? "" : "s",
                    chunks),
        "--set mesh.layers=[] divides the blocks evenly");
}
