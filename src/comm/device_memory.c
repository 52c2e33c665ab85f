/* SPDX-License-Identifier: Apache-2.0 */
/* device_memory.c - memory of a device that a call moves: when the device has
 * finished with it, where messages find it, and copies of it in host memory for
 * devices whose memory messages cannot read. */
#include "comm/rank.h"

#include "comm/library.h"
#include "comm/peers.h"
#include "device/device.h"

void call_see(const struct comm_call *call, struct comm_call *out)
{
    *out = *call;
    out->in.data = device_seen(call->in.data);
    out->out.data = device_seen(call->out.data);
    out->scratch = device_seen(call->scratch);
}

status call_settle(const struct group *group, const struct comm_call *call)
{
    TRY(device_settle(call->in.data));
    TRY(device_settle(call->out.data));
    for (int i = 0; i < group->size && call->kind == COMM_EXCHANGE; i++) {
        TRY(device_settle(call->send[i].data));
        TRY(device_settle(call->receive[i].data));
    }
    return OK;
}

status block_bring(const struct comm_block *block, bool fetches)
{
    const int64_t planes = block->planes > 0 ? block->planes : 1;
    struct device_seen_rows rows = {
        .apart = block->stride, .row = (size_t)block->bytes,
        .rows = block->rows > 0 ? block->rows : 1};

    if (block->bytes == 0) return OK;
    for (int64_t i = 0; i < planes; i++) {
        rows.seen = (char *)device_seen(block->data) +
                    i * block->plane_stride;
        TRY(fetches ? device_fetch(&rows) : device_store(&rows));
    }
    return OK;
}

static status bring_bytes(void *seen, int64_t bytes, bool fetches)
{
    const struct device_seen_rows rows = {.seen = seen, .rows = 1,
                                          .row = (size_t)bytes};

    return fetches ? device_fetch(&rows) : device_store(&rows);
}

/* All roots of `in`. */
static status fetch_in(const struct group *group, const struct comm_call *call)
{
    char *at = call->in.data;
    const int count =
        call->root_stride > 0 ? comm_own_roots(group, call->leaves) : 1;

    if (at == NULL || call->kind == COMM_RECV || call->kind == COMM_BROADCAST)
        return OK;
    for (int i = 0; i < count; i++)
        TRY(bring_bytes(at + i * call->root_stride, tensor_bytes(&call->in),
                        true));
    return OK;
}

/* Parts of `out` may not be written. */
static bool reads_out(const struct group *group, const struct comm_call *call)
{
    return call->kind == COMM_ALL_TO_ALL ||
           (call->kind == COMM_BROADCAST && call->peer == group->rank);
}

bool call_is_taken(const struct group *group, const struct comm_call *call)
{
    return peers_take(group, call) || library_takes(group, call);
}

status call_fetch(const struct group *group, const struct comm_call *call)
{
    if (call_is_taken(group, call)) return OK;
    if (call->kind == COMM_EXCHANGE) {
        for (int i = 0; i < group->size; i++)
            TRY(block_bring(&call->send[i], true));
        return OK;
    }
    TRY(fetch_in(group, call));
    if (!reads_out(group, call) || call->out.data == NULL) return OK;
    return bring_bytes(call->out.data, tensor_bytes(&call->out), true);
}

status call_store(const struct group *group, const struct comm_call *call)
{
    if (call_is_taken(group, call)) return OK;
    if (call->kind == COMM_EXCHANGE) {
        for (int i = 0; i < group->size; i++)
            TRY(block_bring(&call->receive[i], false));
        return OK;
    }
    if (call->kind == COMM_SEND || call->out.data == NULL) return OK;
    return bring_bytes(call->out.data, tensor_bytes(&call->out), false);
}

/* A rank has one device. */
static void point_at(struct device_point *point, const void *at)
{
    if (point->kernels.queue == NULL) *point = device_point(at);
}

struct device_point call_point(const struct group *group,
                               const struct comm_call *call)
{
    struct device_point point = {0};

    point_at(&point, call->in.data);
    point_at(&point, call->out.data);
    for (int i = 0; i < group->size && call->kind == COMM_EXCHANGE; i++) {
        point_at(&point, call->send[i].data);
        point_at(&point, call->receive[i].data);
    }
    return point;
}
