/* SPDX-License-Identifier: Apache-2.0 */
/* expert_ranks.c - which ranks have which experts, and room for how many rows.
 * Source: Lepikhin et al. 2020 (GShard), arXiv:2006.16668, section 3.2 (experts
 * on ranks that share the batch, all-to-all there and back). */
#include "nn/expert_ranks.h"

#include <stdio.h>

#include "mesh/group.h"

bool experts_are_spread(const struct program *p)
{
    return mesh_expert_ranks(&p->layout.mesh) > 1;
}

bool experts_are_folded(const struct program *p)
{
    return p->layout.mesh.folded >> AXIS_TENSOR & 1;
}

int experts_sources(const struct program *p)
{
    return p->layout.mesh.size[AXIS_EXPERT] * experts_contexts(p);
}

int experts_cut(const struct program *p)
{
    return mesh_expert_cut(&p->layout.mesh);
}

int experts_contexts(const struct program *p)
{
    return p->layout.mesh.folded >> AXIS_CONTEXT & 1
               ? p->layout.mesh.size[AXIS_CONTEXT] : 1;
}

const char *experts_axes(const struct mesh *mesh,
                         char out[EXPERT_AXES_BYTES])
{
    snprintf(out, EXPERT_AXES_BYTES, "mesh.expert%s%s%s",
             mesh->folded >> AXIS_CONTEXT & 1 ? " times mesh.context" : "",
             mesh->folded >> AXIS_TENSOR & 1 ? " times mesh.tensor" : "",
             mesh->expert_cut > 1 ? " over mesh.expert_tensor" : "");
    return out;
}

struct expert_span experts_held(const struct program *p, int experts)
{
    const int count = experts / mesh_expert_places(&p->layout.mesh);

    return (struct expert_span){
        mesh_expert_place(&p->layout.mesh, &p->layout.place) * count, count};
}

int64_t experts_rows_most(const struct program *p,
                          const struct router_form *form)
{
    const int held = experts_held(p, form->experts).count;
    const int each = form->choices < held ? form->choices : held;

    if (!experts_are_spread(p)) return form->choices;
    return (int64_t)experts_sources(p) * each;
}

/* Context ranks add up leaves of gradients in one order, but choose turns by
 * tokens of their own: they have room for all. So have those that take rows in
 * one turn. */
int64_t experts_rows_bound(const struct program *p,
                           const struct router_form *form)
{
    const int64_t most = experts_rows_most(p, form);
    const double bound = p->regular.rows_bound * form->choices *
                         experts_sources(p) /
                         mesh_expert_places(&p->layout.mesh);
    int64_t rows = 1;

    if (bound == 0 || bound >= (double)most ||
        p->layout.mesh.size[AXIS_CONTEXT] > 1 || p->one_turn)
        return most;
    while ((double)rows < bound) rows++;
    return rows;
}

static status check_sources(const struct program *p, int sources)
{
    const int batch = mesh_batch_ranks(&p->layout.mesh);

    if (p->sums.integer) return OK; /* in any order */
    if (batch > sources && !grid_is_power(sources))
        FAIL(ERR_CONFIG, "mesh.expert: %d ranks beside %d of mesh.data and "
                         "mesh.shard; their sums are subtrees of the batch's "
                         "only for a power of two, such as %d", sources,
             batch / sources, sources > 4 ? 4 : 2);
    if (!grid_is_cut((int64_t)batch * p->layout.grid.data, batch))
        FAIL(ERR_CONFIG, "mesh.expert: each of %d ranks that share the batch "
                         "has %d of its leaves, which are several subtrees; "
                         "set numerics.grid_data to a power of two times the "
                         "ranks, such as %d",
             batch, p->layout.grid.data, batch);
    return OK;
}

/* Groups that cut experts have subtrees of the grid, as tensor ranks have. */
static status check_cut(const struct program *p)
{
    const int cut = experts_cut(p), ranks = mesh_expert_ranks(&p->layout.mesh);
    int near = cut;

    if (grid_is_cut(p->layout.grid.tensor, cut)) return OK;
    if (grid_is_cut(cut, p->layout.mesh.size[AXIS_TENSOR]))
        FAIL(ERR_CONFIG, "mesh.expert_tensor: %d ranks do not divide the "
                         "grid's %d tensor leaves into subtrees; a run that "
                         "begins with numerics.grid_tensor=%d can", cut,
             p->layout.grid.tensor, cut);
    while (ranks % near != 0 || !grid_is_cut(p->layout.grid.tensor, near))
        near--;
    FAIL(ERR_CONFIG, "mesh.expert_tensor: %d ranks do not divide the grid's %d "
                     "tensor leaves into subtrees, nor %d of mesh.tensor "
                     "those of a grid of %d; %d can",
         cut, p->layout.grid.tensor, p->layout.mesh.size[AXIS_TENSOR], cut,
         near);
}

status experts_check_ranks(const struct program *p,
                           const struct router_form *form)
{
    const int ranks = mesh_expert_places(&p->layout.mesh);
    char text[EXPERT_AXES_BYTES];
    int near = ranks;

    if (!experts_are_spread(p)) return OK;
    TRY(check_cut(p));
    while (form->experts % near != 0) near--;
    if (near != ranks && p->layout.mesh.folded != 0)
        FAIL(ERR_CONFIG, "%s: %d ranks do not divide the %d experts of a block "
                         "evenly; %d do, or leave out mesh.expert_tensor or "
                         "mesh.expert_context",
             experts_axes(&p->layout.mesh, text), ranks, form->experts, near);
    if (near != ranks)
        FAIL(ERR_CONFIG, "mesh.expert: %d ranks do not divide the %d experts "
                         "of a block evenly; %d do", ranks, form->experts,
             near);
    return check_sources(p, p->layout.mesh.size[AXIS_EXPERT]);
}
