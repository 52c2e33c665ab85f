/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_plan.c - how many buffers gradients need, and where they lie. */
#include "mesh/addends.h"
#include "nn/gradient_parts.h"

/* Room for the leaves of vectors that ranks sum together, in one run. */
static void plan_joined(struct gradients *g)
{
    g->joined_first = g->partial_elements;
    for (int i = 0; i < g->program->use_count; i++) {
        if (!is_joined(g, i)) continue;
        g->states[i].joined = g->joined_first + g->joined_elements;
        g->joined_elements +=
            g->program->layout.grid.data * cut_contexts(&g->cut[0]) *
            use_param(g, i)->elements;
    }
    g->partial_elements += padded(g->joined_elements);
}

/* At most one table is tied. */
static status plan_named(struct gradients *g)
{
    const struct program *p = g->program;

    for (int i = 0; i < p->use_count; i++) {
        if (p->uses[i].rows == 0) continue;
        const struct param *param = use_param(g, i);

        CHECK(g->named.table == 0);
        TRY(tied_rows_build(&g->named, param->rows, p->uses[i].rows));
        g->named_block = g->partial_elements;
        g->partial_elements += padded(TIED_BLOCK * param->cols);
    }
    return OK;
}

/* How the leaves of a cut lie, for all uses that have it: walking over the
 * addends of a step takes time. */
struct leaves {
    bool cut;              /* cut_leaves_lie_apart */
    int limit[2];          /* node_limit: without and with takes_left */
};

/* Accumulators of a use for the source of now, where leaves are cut. */
static void plan_unfinished(struct gradients *g, int use, bool is_cut)
{
    const struct use_info *info = &g->program->uses[use];
    const int contexts = cut_contexts(&g->cut[info->head]);

    if (!is_cut || (!info->vector && contexts == 1)) return;
    state_of(g, use)->unfinished = g->partial_elements;
    g->partial_elements += buffer_room(g, use) *
                           (info->vector
                                ? contexts * g->program->layout.grid.tensor
                                : contexts - 1);
}

/* Whether the buffer of a use's leaf holds nothing between two steps of the
 * program. */
static bool shares_leaf(const struct gradients *g, int use, bool is_cut)
{
    const struct use_info *info = &g->program->uses[use];

    return !is_cut && info->sources == 1 && info->contexts == 1;
}

/* The sum of a use and, unless it is shared, the buffer of its leaf. */
static void plan_integers(struct gradients *g, int use, bool placed,
                          bool is_cut)
{
    const struct use_info *info = &g->program->uses[use];
    const int64_t elements = buffer_room(g, use);
    struct use_state *state = state_of(g, use);
    const bool first = g->source == 0 && g->of == 0;

    if (first && info->number > 0 && !placed) {
        state->sum = g->partial_elements;
        g->partial_elements += elements * dtype_bytes(DTYPE_I64) /
                               dtype_bytes(program_real(g->program));
    }
    state->offset[0] = g->partial_elements;
    if (!info->local && !shares_leaf(g, use, is_cut))
        g->partial_elements += elements;
}

static bool begins_step(const struct program *program, int use)
{
    for (int i = 0; i < program->step_count; i++)
        if (program->steps[i].use[0] == use) return true;
    return false;
}

/* One room for the leaves of all steps; uses of a step lie behind each
 * other. */
static void plan_shared(struct gradients *g, const struct leaves leaves[2])
{
    const struct program *program = g->program;
    int64_t at = 0, most = 0;

    for (int i = 0; i < program->use_count; i++) {
        const struct use_info *info = &program->uses[i];

        if (begins_step(program, i)) at = 0;
        if (!gradient_made(program, i) || info->local ||
            !shares_leaf(g, i, leaves[info->head].cut))
            continue;
        g->states[i].offset[0] = g->partial_elements + at;
        at += buffer_room(g, i);
        if (at > most) most = at;
    }
    g->partial_elements += most;
}

/* Buffers of a use for the source of now. */
static void plan_use(struct gradients *g, int use, bool placed,
                     const struct leaves *leaves)
{
    const struct program *program = g->program;
    const struct use_info *info = &program->uses[use];
    const int64_t elements = buffer_room(g, use);
    const int needed = info->local ? 1 : leaves->limit[takes_left(g, use)];
    const int least = needed > g->roots.count ? needed : g->roots.count;
    const int limit = g->of > 0 ? 1 : least; /* beside rank 0: one leaf */
    struct use_state *state = state_of(g, use);

    state->unfinished = state->joined = state->sum = -1;
    if (!gradient_made(program, use) || g->source >= info->sources ||
        g->of >= info->contexts)
        return;
    if (program->sums.integer) {
        plan_integers(g, use, placed, leaves->cut);
        plan_unfinished(g, use, leaves->cut);
        return;
    }
    for (int b = 0; b < limit; b++) {
        const bool root = b < g->roots.count && g->source == 0 &&
                          g->of == 0 && (info->number == 0 || placed);

        state->offset[b] = root ? -1 : g->partial_elements;
        if (!root) g->partial_elements += elements;
    }
    plan_unfinished(g, use, leaves->cut);
}

static void count_sources(struct gradients *g)
{
    for (int i = 0; i < g->program->use_count; i++) {
        const struct use_info *use = &g->program->uses[i];

        if (use->sources > g->sources) g->sources = use->sources;
        if (use->contexts > g->contexts) g->contexts = use->contexts;
    }
}

status gradients_plan(struct gradients *g, const struct program *program,
                      bool placed)
{
    void *memory = NULL;
    struct leaves leaves[2];

    *g = (struct gradients){.program = program, .sources = 1, .contexts = 1,
                            .factor = 1};
    for (int head = 0; head < 2; head++) {
        g->cut[head] = program_cut(program, head);
        leaves[head].cut = cut_leaves_lie_apart(&g->cut[head]);
        for (int takes = 0; takes < 2; takes++)
            leaves[head].limit[takes] = node_limit(&g->cut[head], takes);
    }
    cut_roots(&g->cut[0], &g->roots);
    if (program->sums.integer) /* of all its leaves, however they lie */
        g->roots = (struct node_stack){
            .count = 1, .node[0].leaves = g->cut[0].data_leaves};
    CHECK(g->roots.count == 1 || !placed);
    count_sources(g);
    CHECK(g->roots.count == 1 || g->sources == 1);
    TRY(memory_take((size_t)states_of(g), sizeof *g->states, &memory));
    g->states = memory;
    for (g->source = 0; g->source < g->sources; g->source++)
        for (g->of = 0; g->of < g->contexts; g->of++)
            for (int i = 0; i < program->use_count; i++)
                plan_use(g, i, placed, &leaves[program->uses[i].head]);
    g->source = g->of = 0;
    if (program->sums.integer) plan_shared(g, leaves);
    plan_joined(g);
    return plan_named(g);
}
