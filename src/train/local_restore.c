/* SPDX-License-Identifier: Apache-2.0 */
/* local_restore.c - the newest step of which all shards are there. */
#include <stdio.h>
#include <string.h>
#include "train/local_save.h"

struct opening {
    const struct local_run *local;
    struct group *group;         /* NULL: alone */
    struct threads *threads;
    struct local_source *source;
    struct checkpoint *checkpoint;
    struct text *notice;         /* on rank 0 */
};

static bool is_first(const struct opening *o)
{
    return o->group == NULL || o->group->rank == 0;
}

/* Rank 0 chose the step; the others read the same stores of the same
 * machines. */
static status follow(struct opening *o, int64_t step)
{
    struct text nowhere = {0};

    if (is_first(o)) return OK;
    if (o->source->places.count == 0)
        TRY(local_source_list(o->source, o->local, NULL, &nowhere));
    text_free(&nowhere);
    TRY(shards_open(&o->source->shards, o->source->places.places,
                    &o->source->list, step));
    return shards_check_whole(&o->source->shards);
}

static status read_all(struct opening *o, int64_t step)
{
    const int share = o->group == NULL ? 0 : o->group->rank;
    const int shares = o->group == NULL ? 1 : o->group->size;

    TRY(follow(o, step));
    TRY(checkpoint_open_shards(o->checkpoint, &o->source->shards, o->threads));
    return checkpoint_verify_share(o->checkpoint, share, shares);
}

static status none_whole(const struct opening *o)
{
    if (o->notice->length == 0)
        FAIL(ERR_MISSING, "%s: no step is there, on this machine or another",
             o->local->stores.directory);
    FAIL(ERR_MISSING, "%s: no step is whole: %s; start the agents of the "
         "machines that are missing, or bring their disks back",
         o->local->stores.directory, o->notice->bytes);
}

/* The next older step, on all ranks; -1: there is none. */
static status choose(struct opening *o, int64_t *step)
{
    status result = OK;

    if (is_first(o)) {
        result = local_source_newest(o->source, *step, step, o->notice);
        if (result == OK && *step < 0) result = none_whole(o);
    }
    if (o->group == NULL) return result;
    TRY(comm_agree(o->group, result));
    return comm_broadcast(o->group, tensor_1d(step, DTYPE_I64, 1), 0);
}

static bool may_pass(status result)
{
    return result == ERR_FORMAT || result == ERR_MISSING || result == ERR_PEER;
}

/* A step that cannot be read whole is passed over. */
static status pass_over(struct opening *o, int64_t step)
{
    status result = OK;

    if (is_first(o))
        result = text_printf(o->notice, "%sthe checkpoint of step %lld is "
                             "damaged and was passed over (%s)",
                             o->notice->length > 0 ? "; " : "",
                             (long long)step, status_message());
    status_clear();
    checkpoint_close(o->checkpoint);
    shards_close(&o->source->shards);
    return result;
}

status local_open_newest(const struct local_run *local, struct group *group,
                         struct threads *threads, struct local_source *source,
                         struct checkpoint *checkpoint, struct text *notice)
{
    struct opening o = {local, group, threads, source, checkpoint, notice};
    int64_t step = INT64_MAX;
    status result = OK;

    *source = (struct local_source){.list.count = 0};
    if (is_first(&o)) result = local_source_list(source, local, NULL, notice);
    if (group != NULL) TRY(comm_agree(group, result));
    TRY(result);
    for (;;) {
        TRY(choose(&o, &step));
        result = read_all(&o, step);
        if (group != NULL) result = comm_agree(group, result);
        if (result == OK) return OK;
        if (!may_pass(result)) return status_pass(result, __FILE__, __LINE__);
        TRY(pass_over(&o, step));
    }
}
