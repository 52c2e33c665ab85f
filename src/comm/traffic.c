/* SPDX-License-Identifier: Apache-2.0 */
/* traffic.c - counters of sent messages: one row for each group and kind. */
#include "comm/traffic.h"

#include <string.h>
#include "comm/rank.h"

void traffic_init(struct traffic *traffic)
{
    pthread_mutex_init(&traffic->lock, NULL);
}

void traffic_free(struct traffic *traffic)
{
    pthread_mutex_destroy(&traffic->lock);
}

void traffic_count(struct traffic *traffic, const struct traffic_row *add)
{
    struct traffic_row *row = traffic->rows;

    pthread_mutex_lock(&traffic->lock);
    for (int i = 0; i < traffic->count; i++, row++)
        if (row->kind == add->kind && group_id_equal(row->id, add->id)) break;
    if (row == traffic->rows + traffic->count) {
        if (traffic->count < TRAFFIC_ROWS_MAX) {
            traffic->count++;
            *row = *add;
            row->calls = row->messages = row->bytes = row->between = 0;
        } else {
            row--;
        }
    }
    row->calls += add->calls;
    row->messages += add->messages;
    row->bytes += add->bytes;
    row->between += add->between;
    pthread_mutex_unlock(&traffic->lock);
}

void comm_watch(struct group *group, comm_watcher *watcher, void *argument)
{
    group->self->watcher = watcher;
    group->self->watches = argument;
}

int comm_traffic(const struct group *group, struct traffic_row *rows, int most)
{
    struct traffic *traffic = &group->self->traffic;
    int count;

    pthread_mutex_lock(&traffic->lock);
    count = traffic->count < most ? traffic->count : most;
    memcpy(rows, traffic->rows, (size_t)count * sizeof *rows);
    pthread_mutex_unlock(&traffic->lock);
    return count;
}

void comm_traffic_reset(struct group *group)
{
    struct traffic *traffic = &group->self->traffic;

    pthread_mutex_lock(&traffic->lock);
    traffic->count = 0;
    pthread_mutex_unlock(&traffic->lock);
}

int64_t comm_traffic_bytes(const struct group *group, enum comm_kind kind)
{
    struct traffic *traffic = &group->self->traffic;
    int64_t bytes = 0;

    pthread_mutex_lock(&traffic->lock);
    for (int i = 0; i < traffic->count; i++)
        if (traffic->rows[i].kind == kind &&
            group_id_equal(traffic->rows[i].id, group->id))
            bytes += traffic->rows[i].bytes;
    pthread_mutex_unlock(&traffic->lock);
    return bytes;
}
