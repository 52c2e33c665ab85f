/* SPDX-License-Identifier: Apache-2.0 */
/* local_save.c - a checkpoint of which each machine writes its own shards. */
#include "train/local_save.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "base/json.h"
#include "checkpoint/history.h"
#include "control/lease.h"

enum { BESIDE_MOST = 24, HEAD_BYTES = LOCAL_RECORD_NAME };

struct saving {
    const struct local_run *local;
    struct group *group;         /* NULL: alone */
    struct checkpoint_save save;
    struct text records;         /* of rank 0 */
    struct json_writer nodes;
    struct checkpoint_file beside[BESIDE_MOST];
    char names[BESIDE_MOST][HEAD_BYTES];
    int count;
};

static status agree(const struct saving *s, status mine)
{
    return s->group == NULL ? mine : comm_agree(s->group, mine);
}

static int rank_of(const struct saving *s)
{
    return s->group == NULL ? 0 : s->group->rank;
}

static bool leads(const struct saving *s)
{
    return rank_of(s) == s->local->lead;
}

/* ---- what lies beside the shards ---- */

static void add_beside(struct saving *s, const char *name, const char *bytes,
                       size_t length)
{
    struct checkpoint_file *file = &s->beside[s->count];

    if (s->count == BESIDE_MOST) return;
    snprintf(s->names[s->count], HEAD_BYTES, "%s", name);
    *file = (struct checkpoint_file){s->names[s->count], bytes, length};
    s->count++;
}

static void split_records(struct saving *s)
{
    const char *at = s->records.bytes, *end = at + s->records.length;
    struct local_record record;

    while (local_next_record(&at, end, &record))
        add_beside(s, record.name, record.bytes, record.length);
}

/* Which machine has the shards of which ranks. */
static status write_nodes(struct saving *s)
{
    const struct local_run *local = s->local;
    struct json_writer *w = &s->nodes;

    json_write_begin(w, 1);
    json_write_object(w);
    json_write_key(w, "nodes");
    json_write_array(w);
    for (int i = 0; i < local->ranks; i++) {
        if (!local_is_lead(local, i)) continue;
        json_write_object(w);
        json_write_key_text(w, "name", local->nodes[i]);
        json_write_key(w, "ranks");
        json_write_array(w);
        for (int j = i; j < local->ranks; j++)
            if (strcmp(local->nodes[j], local->nodes[i]) == 0)
                json_write_integer(w, j);
        json_write_array_end(w);
        json_write_object_end(w);
    }
    json_write_array_end(w);
    json_write_object_end(w);
    TRY(json_write_end(w));
    add_beside(s, "nodes.json", w->out.bytes, w->out.length);
    return OK;
}

static status lay_beside(struct saving *s, struct checkpoint_plan *plan)
{
    TRY(agree(s, rank_of(s) == 0 ? local_collect_records(s->local, &s->records)
                                 : OK));
    if (s->group != NULL) TRY(local_spread(s->local, s->group, &s->records));
    if (!leads(s)) return OK;
    if (s->records.length > 0) split_records(s);
    TRY(write_nodes(s));
    plan->beside = s->beside;
    plan->beside_count = s->count;
    return OK;
}

/* ---- checksums ---- */

/* The first rank of each machine adds those of the machine's others. */
static status join_machine(struct saving *s, void *share)
{
    const int64_t bytes = (int64_t)checkpoint_share_bytes(&s->save);
    const struct tensor t = tensor_1d(share, DTYPE_U8, bytes);

    if (!leads(s)) {
        checkpoint_save_share(&s->save, share);
        return comm_send(s->group, t, s->local->lead, 0);
    }
    for (int i = 0; i < s->local->ranks; i++) {
        if (i == rank_of(s) ||
            strcmp(s->local->nodes[i], s->local->node) != 0)
            continue;
        TRY(comm_recv(s->group, t, i, 0));
        checkpoint_save_add(&s->save, share);
    }
    return OK;
}

/* Rank 0 adds those of the machines, and the machines take the sum. */
static status join_machines(struct saving *s, void *share)
{
    const int64_t bytes = (int64_t)checkpoint_share_bytes(&s->save);
    const struct tensor t = tensor_1d(share, DTYPE_U8, bytes);

    if (!leads(s)) return OK;
    if (rank_of(s) > 0) {
        checkpoint_save_share(&s->save, share);
        TRY(comm_send(s->group, t, 0, 0));
        TRY(comm_recv(s->group, t, 0, 0));
        checkpoint_save_set(&s->save, share);
        return OK;
    }
    for (int i = 1; i < s->local->ranks; i++) {
        if (!local_is_lead(s->local, i)) continue;
        TRY(comm_recv(s->group, t, i, 0));
        checkpoint_save_add(&s->save, share);
    }
    checkpoint_save_share(&s->save, share);
    for (int i = 1; i < s->local->ranks; i++)
        if (local_is_lead(s->local, i)) TRY(comm_send(s->group, t, i, 0));
    return OK;
}

static status join_shares(struct saving *s)
{
    void *share = NULL;
    status result = OK;

    TRY(memory_take(checkpoint_share_bytes(&s->save) + 1, 1, &share));
    if (s->group != NULL) result = join_machine(s, share);
    if (result == OK && leads(s)) result = checkpoint_save_keep_own(&s->save);
    if (result == OK && s->group != NULL) result = join_machines(s, share);
    memory_free(share);
    return result;
}

/* ---- the whole ---- */

static status write_all(struct saving *s, const struct checkpoint_plan *plan)
{
    status result = leads(s) ? checkpoint_save_begin(&s->save, plan) : OK;

    TRY(agree(s, result));
    if (!leads(s)) result = checkpoint_save_join(&s->save, plan);
    TRY(agree(s, result));
    result = checkpoint_save_write(&s->save, plan->parts);
    if (result == OK && !leads(s)) result = checkpoint_save_sync(&s->save);
    TRY(agree(s, result));
    TRY(join_shares(s));
    TRY(agree(s, leads(s) ? checkpoint_save_finish(&s->save) : OK));
    return agree(s, checkpoint_save_check(&s->save, s->local->index,
                                          s->local->count));
}

status local_save(const struct local_run *local, struct group *group,
                  struct checkpoint_plan *plan)
{
    struct saving *s;
    status result;

    TRY(memory_take(1, sizeof *s, (void **)&s));
    s->local = local;
    s->group = group;
    plan->run = local->store;
    plan->part = true;
    result = leads(s) ? directory_make_private(local->store) : OK;
    TRY_GOTO(done, result, agree(s, result));
    TRY_GOTO(done, result, agree(s, lay_beside(s, plan)));
    TRY_GOTO(done, result, write_all(s, plan));
    result = leads(s) ? lease_holds(local->stores.run, true) : OK;
    TRY_GOTO(done, result, agree(s, result));
    result = leads(s) ? checkpoint_save_commit(&s->save) : OK;
    result = agree(s, result);
done:
    checkpoint_save_free(&s->save);
    json_writer_free(&s->nodes);
    text_free(&s->records);
    memory_free(s);
    return result;
}
