/* SPDX-License-Identifier: Apache-2.0 */
/* plan_largest.c - the rank of a plan that needs the most memory. */
#include "cli/plan_largest.h"

#include "train/draft.h"

/* The number of weights in the shards of one of the ranks that share the batch.
 * place: of that rank. */
static int64_t shard_elements(const struct pipeline *pipeline,
                              const struct mesh *mesh,
                              const struct place *place)
{
    int64_t elements = 0;

    for (int i = 0; i < pipeline->count; i++) {
        const struct shards *s = &pipeline->stages[i].shards;

        for (int u = 0; u < s->count; u++)
            elements += param_room(shard_sizes(s, u)[shard_rank_at(
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
                        const struct mesh *mesh, struct place *place)
{
    int64_t most = -1;
    int best = 0;

    for (int i = 0; i < mesh_batch_ranks(mesh); i++) {
        place_batch(mesh, i, place);
        const int64_t elements = shard_elements(pipeline, mesh, place);

        if (elements > most) best = i;
        if (elements > most) most = elements;
    }
    place_batch(mesh, best, place);
}

/* Compares one rank; next, if not NULL, becomes the place with the largest
 * shards among those that differ in the axes of the batch. */
static status try_rank(struct setup *setup, const struct place *place,
                       struct largest *out, struct place *next)
{
    const int rank = mesh_rank(&setup->mesh, &setup->order, place);
    struct draft draft;

    TRY(draft_build(&draft, setup, rank));
    if (draft.pipeline.bytes > out->bytes)
        *out = (struct largest){rank, draft.pipeline.bytes};
    if (next != NULL) find_shards(&draft.pipeline, &setup->mesh, next);
    draft_free(&draft);
    return OK;
}

status plan_largest(struct setup *setup, int rank, size_t bytes,
                    struct largest *out)
{
    const int tensor = setup->mesh.size[AXIS_TENSOR];

    *out = (struct largest){rank, bytes};
    for (int pipe = 0; pipe < setup->mesh.size[AXIS_PIPE]; pipe++)
        for (int i = 0; i < 2 && i < tensor; i++) {
            struct place place = {{0}}, next;

            place.at[AXIS_PIPE] = pipe;
            place.at[AXIS_TENSOR] = i * (tensor - 1);
            next = place;
            TRY(try_rank(setup, &place, out, &next));
            if (mesh_batch_rank(&setup->mesh, &next) > 0)
                TRY(try_rank(setup, &next, out, NULL));
        }
    setup_place(setup, rank);
    return OK;
}
