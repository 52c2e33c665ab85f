/* SPDX-License-Identifier: Apache-2.0 */
/* plan_largest.c - the rank of a plan that needs the most memory. */
#include "cli/plan_largest.h"

#include <string.h>

#include "train/draft.h"

/* Trials of every rank: one takes milliseconds, 0.2 s of the largest models. */
enum { RANKS_TRIED = 64 };

typedef const int64_t *shard_numbers(const struct shards *shards, int unit);

/* The number of elements in the shards of one of the ranks that share the
 * batch. place: of that rank. */
static int64_t shard_elements(const struct pipeline *pipeline,
                              const struct mesh *mesh,
                              const struct place *place, shard_numbers *sizes)
{
    int64_t elements = 0;

    for (int i = 0; i < pipeline->count; i++) {
        const struct shards *s = &pipeline->stages[i].shards;

        for (int u = 0; u < s->count; u++)
            elements += param_room(sizes(s, u)[shard_rank_at(
                shard_class(s, u), mesh, place)]);
    }
    return elements;
}

static void place_batch(const struct mesh *mesh, int index,
                        struct place *place)
{
    for (int i = BATCH_AXES - 1; i >= 0; i--) {
        place->at[batch_axes[i]] = index % mesh->size[batch_axes[i]];
        index /= mesh->size[batch_axes[i]];
    }
}

/* Moves the place to the rank with the largest shards. */
static void find_shards(const struct pipeline *pipeline,
                        const struct mesh *mesh, shard_numbers *sizes,
                        struct place *place)
{
    int64_t most = -1;
    int best = 0;

    for (int i = 0; i < mesh_batch_ranks(mesh); i++) {
        place_batch(mesh, i, place);
        const int64_t elements = shard_elements(pipeline, mesh, place, sizes);

        if (elements > most) best = i;
        if (elements > most) most = elements;
    }
    place_batch(mesh, best, place);
}

/* Compares one rank; next, if not NULL, becomes the places with the largest
 * shards, of weights and of gradients, among those that differ in the axes of
 * the batch. */
static status try_rank(struct setup *setup, int rank, struct largest *out,
                       struct place next[2])
{
    struct draft draft;

    TRY(draft_build(&draft, setup, rank));
    if (draft.pipeline.bytes > out->bytes)
        *out = (struct largest){rank, draft.pipeline.bytes};
    for (int i = 0; i < 2 && next != NULL; i++)
        find_shards(&draft.pipeline, &setup->mesh,
                    i == 0 ? shard_sizes : shard_gradient_sizes, &next[i]);
    draft_free(&draft);
    return OK;
}

/* Whether gradients and states of a rank grow with its weights: nothing is
 * frozen, states are not of whole tensors or in blocks, no weight is a code. */
static bool weights_tell(const struct setup *setup)
{
    const struct options *o = &setup->set->values;
    const struct optimizer_choice *choice = &setup->request.training.choice;

    return setup->trained == setup->parameters && choice->kind->whole == NULL &&
           choice->states != STATE_INT8 && choice->groups.count == 0 &&
           strcmp(o->numerics.recipe, "none") == 0;
}

static status try_places(struct setup *setup, struct largest *out)
{
    const int tensor = setup->mesh.size[AXIS_TENSOR];

    for (int pipe = 0; pipe < setup->mesh.size[AXIS_PIPE]; pipe++)
        for (int i = 0; i < 2 && i < tensor; i++) {
            struct place place = {{0}}, next[2];

            place.at[AXIS_PIPE] = pipe;
            place.at[AXIS_TENSOR] = i * (tensor - 1);
            next[0] = next[1] = place;
            TRY(try_rank(setup, mesh_rank(&setup->mesh, &setup->order, &place),
                         out, next));
            for (int n = 0; n < 2; n++) {
                if (mesh_batch_rank(&setup->mesh, &next[n]) == 0) continue;
                if (n > 0 && mesh_batch_rank(&setup->mesh, &next[0]) ==
                                 mesh_batch_rank(&setup->mesh, &next[1]))
                    continue;
                TRY(try_rank(setup, mesh_rank(&setup->mesh, &setup->order,
                                              &next[n]), out, NULL));
            }
        }
    return OK;
}

status plan_largest(struct setup *setup, int rank, size_t bytes,
                    struct largest *out)
{
    const int ranks = mesh_ranks(&setup->mesh);

    *out = (struct largest){rank, bytes};
    if (weights_tell(setup) || ranks > RANKS_TRIED) {
        TRY(try_places(setup, out));
    } else {
        for (int i = 0; i < ranks; i++)
            if (i != rank) TRY(try_rank(setup, i, out, NULL));
    }
    setup_place(setup, rank);
    return OK;
}
