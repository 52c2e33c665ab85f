/* SPDX-License-Identifier: Apache-2.0 */
/* local_run.c - which ranks share a machine, and where shards are. */
#include "train/local_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "checkpoint/history.h"

/* ---- who is where ---- */

static status gather_names(struct local_run *local, struct group *world)
{
    void *memory;

    TRY(memory_take((size_t)local->ranks, sizeof *local->nodes, &memory));
    local->nodes = memory;
    if (world == NULL) {
        memcpy(local->nodes[0], local->node, sizeof local->nodes[0]);
        return OK;
    }
    return comm_all_gather(
        world, tensor_1d(local->nodes, DTYPE_U8,
                         (int64_t)local->ranks * STORE_NAME_BYTES),
        tensor_1d(local->node, DTYPE_U8, STORE_NAME_BYTES));
}

static void find_lead(struct local_run *local, int rank)
{
    local->lead = -1;
    for (int i = 0; i < local->ranks; i++) {
        if (strcmp(local->nodes[i], local->node) != 0) continue;
        if (local->lead < 0) local->lead = i;
        if (i < rank) local->index++;
        local->count++;
    }
}

status local_open(struct local_run *local, const struct options *o,
                  struct group *world)
{
    struct far_nodes far;

    *local = (struct local_run){.ranks = world == NULL ? 1 : world->size};
    if (o->checkpoint.local[0] == '\0') return OK;
    snprintf(local->node, sizeof local->node, "%s",
             far_nodes_find(&far) ? far.own : "here");
    if (!store_name_is_plain(local->node))
        FAIL(ERR_CONFIG, "checkpoint.local: a machine called \"%s\" can have "
             "no folder of that name; give its agent another --name of "
             "letters, digits, '.', '_' and '-'", local->node);
    snprintf(local->stores.directory, PATH_BYTES, "%s", o->checkpoint.local);
    snprintf(local->stores.run, PATH_BYTES, "%s", o->run.dir);
    TRY(path_join(local->store, sizeof local->store, o->checkpoint.local,
                  local->node));
    local->used = true;
    TRY(gather_names(local, world));
    find_lead(local, world == NULL ? 0 : world->rank);
    return OK;
}

void local_close(struct local_run *local)
{
    memory_free(local->nodes);
    *local = (struct local_run){.used = false};
}

bool local_leads(const struct local_run *local, int rank)
{
    return rank == (local->used ? local->lead : 0);
}

bool local_is_lead(const struct local_run *local, int rank)
{
    for (int i = 0; i < rank; i++)
        if (strcmp(local->nodes[i], local->nodes[rank]) == 0) return false;
    return true;
}

status local_give(struct group *world, const struct text *text, int rank)
{
    int64_t length = (int64_t)text->length;

    TRY(comm_send(world, tensor_1d(&length, DTYPE_I64, 1), rank, 0));
    if (length == 0) return OK;
    return comm_send(world, tensor_1d(text->bytes, DTYPE_U8, length), rank, 0);
}

status local_take(struct group *world, struct text *text)
{
    int64_t length = 0;
    void *memory;
    status result;

    text->length = 0;
    TRY(comm_recv(world, tensor_1d(&length, DTYPE_I64, 1), 0, 0));
    if (length == 0) return OK;
    TRY(memory_take((size_t)length, 1, &memory));
    result = comm_recv(world, tensor_1d(memory, DTYPE_U8, length), 0, 0);
    if (result == OK) result = text_append(text, memory, (size_t)length);
    memory_free(memory);
    return result;
}

status local_spread(const struct local_run *local, struct group *world,
                    struct text *text)
{
    if (world->rank > 0)
        return local->lead == world->rank ? local_take(world, text) : OK;
    for (int i = 1; i < world->size; i++)
        if (local_is_lead(local, i)) TRY(local_give(world, text, i));
    return OK;
}

/* ---- places ---- */

static int count_lines(const char *lines)
{
    char name[STORE_NAME_BYTES], address[DOOR_ADDRESS_BYTES];
    int count = 0;

    while (far_nodes_next(&lines, name, address)) count++;
    return count;
}

static void add_far(struct local_places *p, const char *name,
                    const char *address, const struct token *token)
{
    struct shard_place *place = &p->places[p->count];

    far_files_init(&p->far[p->count], name, address, token);
    *place = (struct shard_place){.argument = &p->far[p->count],
                                  .list = far_files_list,
                                  .read = far_files_read};
    snprintf(place->name, sizeof place->name, "%s", name);
    p->count++;
}

status local_places_open(struct local_places *p, const struct local_run *local,
                         const struct far_nodes *far)
{
    char name[STORE_NAME_BYTES], address[DOOR_ADDRESS_BYTES];
    struct far_nodes known = {.lines = ""};
    const char *lines;
    size_t room;

    *p = (struct local_places){.count = 0};
    if (far == NULL && !far_nodes_find(&known)) known.lines = "";
    if (far == NULL) far = &known;
    lines = far->lines;
    room = (size_t)count_lines(lines) + 1;
    TRY(memory_take(room, sizeof *p->places, (void **)&p->places));
    TRY(memory_take(room, sizeof *p->far, (void **)&p->far));
    far_files_init(&p->far[0], local->node, "", &far->token);
    p->places[p->count++] = shard_place_here(local->node, &local->stores);
    while (far_nodes_next(&lines, name, address))
        if (strcmp(name, local->node) != 0)
            add_far(p, name, address, &far->token);
    return OK;
}

void local_places_close(struct local_places *p)
{
    for (int i = 0; p->far != NULL && i < p->count; i++)
        far_files_close(&p->far[i]);
    memory_free(p->places);
    memory_free(p->far);
    *p = (struct local_places){.count = 0};
}

/* ---- steps ---- */

static status add_notice(struct text *notice)
{
    const status result = text_printf(notice, "%s%s",
                                      notice->length > 0 ? "; " : "",
                                      status_message());

    status_clear();
    return result;
}

status local_source_list(struct local_source *source,
                         const struct local_run *local,
                         const struct far_nodes *far, struct text *notice)
{
    *source = (struct local_source){.list.count = 0};
    TRY(local_places_open(&source->places, local, far));
    for (int i = 0; i < source->places.count; i++)
        if (shard_list_add(&source->list, source->places.places, i) != OK)
            TRY(add_notice(notice));
    return OK;
}

void local_source_close(struct local_source *source)
{
    shards_close(&source->shards);
    shard_list_free(&source->list);
    local_places_close(&source->places);
}

status local_source_newest(struct local_source *source, int64_t below,
                           int64_t *step, struct text *notice)
{
    status result;

    while ((*step = shard_list_newest(&source->list, below)) >= 0) {
        result = shards_open(&source->shards, source->places.places,
                             &source->list, *step);
        if (result == OK) result = shards_check_whole(&source->shards);
        if (result != ERR_MISSING && result != ERR_FORMAT &&
            result != ERR_PEER)
            return result;
        shards_close(&source->shards);
        TRY(add_notice(notice));
        below = *step;
    }
    return OK;
}

status local_source_any(struct local_source *source, int64_t *step)
{
    int64_t below = INT64_MAX;

    while ((*step = shard_list_newest(&source->list, below)) >= 0) {
        const status result = shards_open(&source->shards,
                                          source->places.places,
                                          &source->list, *step);

        if (result != ERR_MISSING) return result;
        status_clear();
        shards_close(&source->shards);
        below = *step;
    }
    return OK;
}

status local_newest_grid(const struct local_run *local, struct group *world,
                         struct grid *grid, bool *found)
{
    struct { struct grid grid; int64_t found; } said = {.found = 0};
    struct local_source source = {.list.count = 0};
    struct text notice = {0};
    int64_t step = -1;
    status result = OK;

    if (world == NULL || world->rank == 0) {
        result = local_source_list(&source, local, NULL, &notice);
        if (result == OK)
            result = local_source_newest(&source, INT64_MAX, &step, &notice);
        said.found = result == OK && step >= 0;
        if (said.found) said.grid = source.shards.whole.grid;
        local_source_close(&source);
        text_free(&notice);
    }
    if (world != NULL) TRY(comm_agree(world, result));
    TRY(result);
    if (world != NULL)
        TRY(comm_broadcast(world, tensor_1d(&said, DTYPE_U8, sizeof said), 0));
    *found = said.found != 0;
    if (*found) *grid = said.grid;
    return OK;
}

status local_count(const struct local_run *local, int *count, bool *none)
{
    struct local_source source = {.list.count = 0};
    struct text notice = {0};
    status result = local_source_list(&source, local, NULL, &notice);

    *count = 0;
    *none = false;
    for (int i = 0; i < source.list.count; i++) {
        const struct shard_found *found = &source.list.items[i];

        if (found->step >= 0) ++*count;
        else *none = true;
    }
    *none = *none && *count == 0;
    local_source_close(&source);
    text_free(&notice);
    return result;
}
