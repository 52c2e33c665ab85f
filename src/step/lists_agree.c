/* SPDX-License-Identifier: Apache-2.0 */
/* lists_agree.c - checks before the first step that the lists of all ranks fit
 * each other. */
#include "step/lists_agree.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "list/verify.h"

struct asked {
    const struct step_list *list;
    const struct pipeline *pipeline;
    struct team *team;
};

/* ---- groups ---- */

static status compare_group(const struct asked *e, struct group *group,
                            struct list_channel channel)
{
    channel.pipeline = e->pipeline;
    return group == NULL ? OK
                         : comm_same(group, "list of a step",
                                     list_channel_hash(e->list, &channel));
}

/* Every comparison is made, also after one that found a difference: other ranks
 * of the groups to come wait in them. *first: the first, with its sentence. */
struct comparison {
    status first;
    char sentence[COMM_REASON_BYTES];
};

/* Other failures are this rank's own: it is no longer in step with the others,
 * so it makes no other call. */
static status keep_first(struct comparison *c, status result)
{
    if (result != ERR_CONFIG && result != ERR_VERIFY) return result;
    if (c->first == OK) {
        c->first = result;
        snprintf(c->sentence, sizeof c->sentence, "%s", status_message());
    }
    status_clear();
    return OK;
}

/* Ranks that divide the parameters of a class, and those with copies. */
static status compare_class(const struct asked *e, axis_set axes,
                            enum resource resource)
{
    return axes == 0 ? OK
                     : compare_group(e, team_over(e->team, axes),
                                     (struct list_channel){.resource = resource,
                                                           .axes = axes,
                                                           .stage = -1});
}

/* Each set of axes once, in the same order on all ranks: any one may belong to
 * a class of several stages. */
static status compare_classes(const struct asked *e, struct comparison *c)
{
    bool divided[AXES_BATCH + 1] = {false}, copied[AXES_BATCH + 1] = {false};

    for (int i = 0; i < e->pipeline->count; i++) {
        const struct shards *s = &e->pipeline->stages[i].shards;

        for (int j = 0; j < s->class_count; j++) {
            divided[s->classes[j].divided] = true;
            copied[s->classes[j].copied & ~s->classes[j].divided] = true;
        }
    }
    for (axis_set axes = 1; axes <= AXES_BATCH; axes++) {
        if (divided[axes])
            TRY(keep_first(c, compare_class(e, axes, RESOURCE_SHARD)));
        if (copied[axes])
            TRY(keep_first(c, compare_class(e, axes, RESOURCE_COPIES)));
    }
    return OK;
}

static status compare_copies(const struct asked *e, struct comparison *c)
{
    for (int number = 0; number < e->pipeline->schedule.stages; number++)
        for (int i = 0; i < e->pipeline->count; i++)
            if (e->pipeline->chunks[i].number == number)
                TRY(keep_first(c, compare_group(e, team_copies(e->team, i),
                                                (struct list_channel){
                                                    .resource = RESOURCE_PEER,
                                                    .stage = number})));
    return OK;
}

/* ---- the pipe ---- */

/* The lists of all ranks of the pipe. */
struct gathered {
    struct step_list *lists; /* owned, [count] */
    int count;
};

static status tell_sizes(struct gathered *all, const struct step_list *own,
                         struct group *pipe)
{
    for (int rank = 0; rank < pipe->size; rank++) {
        int32_t sizes[2] = {own->count, own->need_count};

        TRY(comm_broadcast(pipe, tensor_1d(sizes, DTYPE_U8, sizeof sizes),
                           rank));
        all->lists[rank] = (struct step_list){
            .count = sizes[0], .need_count = sizes[1],
            .forward = own->forward, .rank = rank};
    }
    return OK;
}

static status take_rows(struct gathered *all)
{
    void *memory = NULL;

    for (int i = 0; i < all->count; i++) {
        struct step_list *list = &all->lists[i];

        TRY(memory_take((size_t)list->count + 1, sizeof *list->items,
                        &memory));
        list->items = memory;
        TRY(memory_take((size_t)list->need_count + 1, sizeof *list->needs,
                        &memory));
        list->needs = memory;
    }
    return OK;
}

/* A rank without memory does not leave the others in a broadcast. */
static status take_lists(struct gathered *all, const struct step_list *own,
                         struct group *pipe)
{
    void *memory = NULL;

    TRY(comm_agree(pipe, memory_take((size_t)pipe->size, sizeof *all->lists,
                                     &memory)));
    all->count = pipe->size;
    all->lists = memory;
    TRY(tell_sizes(all, own, pipe));
    return comm_agree(pipe, take_rows(all));
}

/* Each rank tells the others its list as it is. */
static status tell_lists(struct gathered *all, const struct step_list *own,
                         struct group *pipe)
{
    for (int rank = 0; rank < pipe->size; rank++) {
        struct step_list *list = &all->lists[rank];
        const size_t items = (size_t)list->count * sizeof *list->items;
        const size_t needs = (size_t)list->need_count * sizeof *list->needs;

        if (rank == pipe->rank && items > 0)
            memcpy(list->items, own->items, items);
        if (rank == pipe->rank && needs > 0)
            memcpy(list->needs, own->needs, needs);
        TRY(comm_broadcast(pipe, tensor_1d(list->items, DTYPE_U8,
                                           (int64_t)items), rank));
        TRY(comm_broadcast(pipe, tensor_1d(list->needs, DTYPE_U8,
                                           (int64_t)needs), rank));
    }
    return OK;
}

/* The lists that the ranks of the pipe will follow, not those that this rank
 * would make for them: sends match receives, and nobody waits forever. */
static status compare_pipe(const struct asked *e)
{
    struct group *pipe = team_group(e->team, AXIS_PIPE);
    struct gathered all = {0};
    status result;

    if (pipe == NULL) return OK;
    TRY_GOTO(done, result, take_lists(&all, e->list, pipe));
    TRY_GOTO(done, result, tell_lists(&all, e->list, pipe));
    result = lists_verify_pipe(all.lists, all.count);
done:
    for (int i = 0; all.lists != NULL && i < all.count; i++)
        list_free(&all.lists[i]);
    memory_free(all.lists);
    return result;
}

static status found(const struct comparison *c)
{
    FAIL(c->first, "%s", c->sentence);
}

status lists_agree(const struct step_list *list,
                   const struct pipeline *pipeline, struct team *team)
{
    const struct asked asked = {list, pipeline, team};
    const struct { struct group *group; enum resource resource; } rows[] = {
        {team_axis_group(team, AXIS_TENSOR), RESOURCE_TENSOR},
        {team_axis_group(team, AXIS_TENSOR), RESOURCE_COMPUTE},
        {team_axis_group(team, AXIS_CONTEXT), RESOURCE_CONTEXT},
        {team_axis_group(team, AXIS_CONTEXT), RESOURCE_COMPUTE},
        {team_axis_group(team, AXIS_EXPERT), RESOURCE_EXPERT},
        {team_axis_group(team, AXIS_EXPERT), RESOURCE_COMPUTE},
        {team_group(team, TEAM_STAGE), RESOURCE_MATRICES}};
    struct comparison c = {.first = OK};

    TRY(compare_classes(&asked, &c));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        TRY(keep_first(&c, compare_group(&asked, rows[i].group,
                                         (struct list_channel){
                                             .resource = rows[i].resource,
                                             .stage = -1})));
    TRY(compare_copies(&asked, &c));
    TRY(keep_first(
        &c, compare_group(&asked, team->world,
                          (struct list_channel){.resource = RESOURCE_WORLD,
                                                .stage = -1})));
    TRY(keep_first(&c, compare_pipe(&asked)));
    return team_agree(team, c.first == OK ? OK : found(&c));
}
