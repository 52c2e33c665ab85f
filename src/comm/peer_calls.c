/* SPDX-License-Identifier: Apache-2.0 */
/* peer_calls.c - calls whose ranks read each other's memory of GPUs. */
#include "comm/peer_link.h"

#include "comm/algorithms.h"
#include "comm/rank.h"
#include "device/library.h"

/* ---- which calls ---- */

static bool is_there(const struct group *group, const void *seen)
{
    struct peer_place place;

    return device_place(group->peers->peers->device, seen, &place);
}

static bool sums(const struct group *group, const struct comm_call *call)
{
    int64_t merges[ROOTS_MOST];

    return group->peers->all && call->reduction == REDUCE_SUM &&
           call->narrow.bits == 0 &&
           (call->algorithm == ALGORITHM_AUTO ||
            call->algorithm == ALGORITHM_ORDERED) &&
           (call->out.dtype == DTYPE_F32 || call->out.dtype == DTYPE_I64) &&
           tree_merges(comm_leaves(group, call->leaves), group->size, merges,
                       ROOTS_MOST) > 0;
}

/* Ranks that have nothing to send and to receive do nothing either way. */
static bool exchanges(const struct group *group, const struct comm_call *call)
{
    for (int i = 0; i < group->size; i++) {
        if (block_bytes(&call->send[i]) > 0)
            return is_there(group, device_seen(call->send[i].data));
        if (block_bytes(&call->receive[i]) > 0)
            return is_there(group, device_seen(call->receive[i].data));
    }
    return true;
}

bool peers_take(const struct group *group, const struct comm_call *call)
{
    if (group->peers == NULL || group->size == 1) return false;
    switch (call->kind) {
    case COMM_ALL_GATHER: /* a rank that reads nobody goes by the algorithm */
        return (group->peers->all || call->algorithm == ALGORITHM_AUTO ||
                call->algorithm == ALGORITHM_ORDERED) &&
               is_there(group, call->out.data);
    case COMM_ALL_REDUCE:
        return sums(group, call) && is_there(group, call->out.data);
    case COMM_REDUCE_SCATTER:
        return sums(group, call) && is_there(group, call->in.data);
    case COMM_ALL_TO_ALL:
        return call->relay == NULL && (is_there(group, call->in.data) ||
                                       is_there(group, call->out.data));
    case COMM_EXCHANGE: return exchanges(group, call);
    case COMM_SEND:
        return group->peers->near[call->peer] &&
               tensor_bytes(&call->in) > 0 && is_there(group, call->in.data);
    case COMM_RECV:
        return group->peers->near[call->peer] &&
               tensor_bytes(&call->out) > 0 &&
               is_there(group, call->out.data);
    default: return false;
    }
}

/* A receiver's memory may still be in use; what goes through host memory is
 * read by the host. */
bool peers_follow(const struct group *group, const struct comm_call *call)
{
    if (call->kind == COMM_RECV || !peers_take(group, call)) return false;
    return call->kind == COMM_SEND || group->peers->all;
}

/* ---- blocks ---- */

/* One call of this rank. */
struct reading {
    struct operation *op;
    struct peers *peers;
    struct talk *mine, *theirs; /* [size] */
    int64_t event;              /* number of this rank's */
    int far;                    /* messages to others that are posted */
};

static struct cut cut_of(const struct comm_call *call, void *data,
                         const struct tensor *block, const int64_t *counts,
                         int64_t blocks)
{
    return (struct cut){.data = data, .counts = counts, .step = 1,
                        .length = tensor_count(block) / blocks,
                        .element_bytes = dtype_bytes(call->out.dtype)};
}

/* As equal as can be, the longer ones first. */
static struct cut cut_equal(const struct comm_call *call, void *data)
{
    return (struct cut){.data = data, .elements = tensor_count(&call->out),
                        .element_bytes = dtype_bytes(call->out.dtype)};
}

/* A part of this rank's roots, which rank `to` adds up. */
static struct comm_block roots_for(const struct operation *op, int to)
{
    const struct comm_call *call = op->call;
    const struct group *group = op->group;
    const int64_t rows = comm_rows(call);
    const int roots = comm_own_roots(group, call->leaves);
    const bool whole = call->kind == COMM_ALL_REDUCE;
    const struct cut cut =
        whole ? cut_equal(call, call->in.data)
              : cut_of(call, call->in.data, &call->out, call->in_counts, rows);
    struct comm_block block = cut_rows(&cut, group->size, to, rows);

    block.planes = roots;
    block.plane_stride =
        call->root_stride > 0 ? call->root_stride
        : whole               ? tensor_bytes(&call->out)
                              : tensor_bytes(&call->in) / roots;
    return block;
}

static struct comm_block seen(struct comm_block block)
{
    block.data = device_seen(block.data);
    return block;
}

/* Rank `to` reads it here. */
static struct comm_block block_for(const struct operation *op, int to)
{
    const struct comm_call *call = op->call;
    const int size = op->group->size;
    struct cut cut;

    if (comm_reduces(call)) return roots_for(op, to);
    if (call->kind == COMM_EXCHANGE) return seen(call->send[to]);
    if (call->kind == COMM_ALL_GATHER)
        return block_plain(call->in.data, tensor_bytes(&call->in));
    cut = cut_of(call, call->in.data, &call->in, call->in_counts, size);
    return cut_rows(&cut, size, to, 1);
}

/* Where this rank puts what it reads of rank `from`. */
static struct comm_block block_of(const struct operation *op, int from)
{
    const struct comm_call *call = op->call;
    const int size = op->group->size;
    struct cut cut;

    if (call->kind == COMM_EXCHANGE) return seen(call->receive[from]);
    if (call->kind == COMM_ALL_GATHER) {
        cut = cut_of(call, call->out.data, &call->in, call->out_counts,
                     comm_rows(call));
        return cut_rows(&cut, size, from, comm_rows(call));
    }
    if (call->kind == COMM_ALL_REDUCE) cut = cut_equal(call, call->out.data);
    else cut = cut_of(call, call->out.data, &call->out, call->out_counts, size);
    return cut_rows(&cut, size, from, 1);
}

/* Only these may have nothing for each other, which both know. */
static bool is_pairwise(const struct comm_call *call)
{
    return call->kind == COMM_EXCHANGE || call->kind == COMM_ALL_TO_ALL;
}

static bool tells(const struct operation *op, int to)
{
    const struct comm_block block = block_for(op, to);

    return op->group->peers->near[to] &&
           (!is_pairwise(op->call) || block_bytes(&block) > 0);
}

static bool hears(const struct operation *op, int from)
{
    const struct comm_block block = is_pairwise(op->call)
                                        ? block_of(op, from)
                                        : (struct comm_block){0};

    return op->group->peers->near[from] &&
           (!is_pairwise(op->call) || block_bytes(&block) > 0);
}

/* ---- what ranks tell each other ---- */

static void fill_talk(const struct reading *r, int to, struct talk *talk)
{
    const struct operation *op = r->op;
    struct comm_block result;

    *talk = (struct talk){.event = r->event, .block = block_for(op, to)};
    if (block_bytes(&talk->block) > 0)
        CHECK(device_place(r->peers->device, talk->block.data, &talk->from));
    talk->block.data = NULL;
    if (op->call->kind != COMM_ALL_REDUCE) return;
    result = block_of(op, op->group->rank);
    if (block_bytes(&result) > 0)
        CHECK(device_place(r->peers->device, result.data, &talk->result));
}

/* `mine` to those that read here, `theirs` from those that are read here; with
 * back, the other way round. */
static status tell_run(struct reading *r, int64_t bytes, bool back,
                       int *posted)
{
    struct operation *op = r->op;
    const int size = op->group->size, me = op->group->rank;

    for (int i = 1; i < size; i++) {
        const int peer = (me + i) % size;
        const struct comm_block block =
            block_plain(back ? (void *)&r->event : &r->mine[peer], bytes);

        if (back ? hears(op, peer) : tells(op, peer))
            TRY(block_post(op, peer, &block, posted));
    }
    for (int i = 1; i < size; i++) {
        const int peer = (me + size - i) % size;
        const struct comm_block block =
            block_plain(back ? (void *)&r->mine[peer].event
                             : &r->theirs[peer], bytes);

        if (back ? tells(op, peer) : hears(op, peer))
            TRY(block_take(op, peer, &block));
    }
    return OK;
}

static status tell_all(struct reading *r, int64_t bytes, bool back)
{
    int posted = 0;
    const status result = tell_run(r, bytes, back, &posted);
    const status ended = posts_end(r->op, posted, result != OK);

    return result != OK ? result : ended;
}

/* Everybody has read what it needs here. */
static status await_readers(struct reading *r)
{
    return tell_all(r, sizeof r->event, true);
}

/* ---- reading ---- */

/* Bytes from the first to behind the last one of a block. */
static int64_t extent_of(const struct comm_block *b)
{
    const int64_t rows = b->rows > 0 ? b->rows : 1;
    const int64_t planes = b->planes > 0 ? b->planes : 1;

    return (planes - 1) * b->plane_stride + (rows - 1) * b->stride + b->bytes;
}

status peers_place(const struct operation *op, int peer,
                   struct peer_place place, int64_t extent, char **out)
{
    const struct group *group = op->group;
    const struct peer_met *met =
        &group->peers->peers->met[group->members[peer]];
    char name[80];

    if (place.range < 0 || place.range >= met->range_count ||
        place.offset < 0 ||
        extent > met->ranges[place.range].bytes - place.offset)
        FAIL(ERR_PEER, "%s: rank %d points outside of its memory",
             operation_name(op, name), group->members[peer]);
    *out = met->ranges[place.range].first + place.offset;
    return OK;
}

/* Behind the events of all whose memory is read, and of this rank's GPU, which
 * may still use what is written. */
static status follow_all(const struct reading *r)
{
    const struct group *group = r->op->group;

    for (int i = 0; i < group->size; i++) {
        const bool own = i == group->rank;
        const struct peer_met *met = &r->peers->met[group->members[i]];
        const int64_t event = own ? r->event : r->theirs[i].event;

        if (!own && !hears(r->op, i)) continue;
        if (event < 0 || event >= PEER_EVENTS)
            FAIL(ERR_PEER, "rank %d has no event %lld", group->members[i],
                 (long long)event);
        TRY(device_follow(r->peers->device, met->events[event]));
    }
    return OK;
}

static bool is_plain(const struct comm_block *b)
{
    return b->rows == 1 && b->planes == 1;
}

static struct comm_block dense_like(const struct comm_block *from,
                                    const struct comm_block *form)
{
    struct comm_block b = *form;

    b.data = from->data;
    b.stride = b.bytes;
    b.plane_stride = b.rows * b.bytes;
    return b;
}

/* Both have one form; addresses are the GPU's. */
static status move_alike(struct device *device, const struct comm_block *to,
                         const struct comm_block *from)
{
    return device_move(device, &(struct device_parts){
        .to = {to->data, to->plane_stride},
        .from = {from->data, from->plane_stride}, .rows = to->planes,
        .parts = to->rows, .to_part = to->stride, .from_part = from->stride,
        .bytes = (size_t)to->bytes});
}

/* In any arrangement: run by run. */
static status move_runs(struct device *device, const struct comm_block *to,
                        const struct comm_block *from)
{
    const int64_t all = block_bytes(from);

    for (int64_t at = 0; at < all;) {
        const int64_t a = to->bytes - at % to->bytes;
        const int64_t b = from->bytes - at % from->bytes;
        const int64_t row_to = at / to->bytes, row_from = at / from->bytes;
        const struct device_parts run = {
            .to = {(char *)to->data +
                       row_to / to->rows * to->plane_stride +
                       row_to % to->rows * to->stride + at % to->bytes, 0},
            .from = {(char *)from->data +
                         row_from / from->rows * from->plane_stride +
                         row_from % from->rows * from->stride +
                         at % from->bytes, 0},
            .rows = 1, .parts = 1, .bytes = (size_t)(a < b ? a : b)};

        TRY(device_move(device, &run));
        at += a < b ? a : b;
    }
    return OK;
}

static status move(struct device *device, const struct comm_block *to,
                   const struct comm_block *from)
{
    struct comm_block a = block_simplify(to), b = block_simplify(from);

    if (block_bytes(&b) == 0) return OK;
    if (is_plain(&b)) b = dense_like(&b, &a);
    else if (is_plain(&a)) a = dense_like(&a, &b);
    if (a.bytes == b.bytes && a.rows == b.rows && a.planes == b.planes)
        return move_alike(device, &a, &b);
    return move_runs(device, &a, &b);
}

/* Reads a block of a rank. */
static status read_block(const struct reading *r, int peer)
{
    const struct group *group = r->op->group;
    struct comm_block to = block_of(r->op, peer), from;
    char *at, name[80];

    if (peer == group->rank) {
        from = block_for(r->op, peer);
        at = device_there(r->peers->device, from.data);
    } else {
        from = r->theirs[peer].block;
        if (block_bytes(&from) != block_bytes(&to))
            FAIL(ERR_PEER, "%s: expected %lld bytes from rank %d, found %lld",
                 operation_name(r->op, name), (long long)block_bytes(&to),
                 group->members[peer], (long long)block_bytes(&from));
        TRY(peers_place(r->op, peer, r->theirs[peer].from, extent_of(&from),
                        &at));
    }
    from.data = at;
    to.data = device_there(r->peers->device, to.data);
    if (from.data == to.data) return OK; /* the own block lies in its place */
    return move(r->peers->device, &to, &from);
}

static status read_blocks(const struct reading *r)
{
    for (int i = 0; i < r->op->group->size; i++) {
        const struct comm_block to = block_of(r->op, i);

        if (block_bytes(&to) > 0 && r->op->group->peers->near[i])
            TRY(read_block(r, i));
    }
    return OK;
}

/* ---- sums ---- */

/* This rank's block of all roots. */
static status sum_block(const struct reading *r)
{
    const struct group *group = r->op->group;
    const struct comm_call *call = r->op->call;
    const struct comm_block own = block_for(r->op, group->rank);
    const int64_t element = dtype_bytes(call->out.dtype);
    const bool whole = call->kind == COMM_ALL_REDUCE;
    struct comm_block out = block_of(r->op, group->rank);
    struct device_roots roots = {
        .elements = own.bytes / element, .rows = own.rows,
        .out_stride = own.bytes / element, .stride = own.stride / element,
        .integers = call->out.dtype == DTYPE_I64};
    int64_t merges[ROOTS_MOST];

    if (own.bytes == 0) return OK;
    if (!whole) out.data = call->out.data;
    roots.out = device_there(r->peers->device, out.data);
    (void)tree_merges(comm_leaves(group, call->leaves), group->size, merges,
                      ROOTS_MOST);
    for (int i = 0; i < group->size; i++) {
        const struct comm_block from = i == group->rank
                                           ? own : r->theirs[i].block;
        char *at = device_there(r->peers->device, own.data);

        if (i != group->rank)
            TRY(peers_place(r->op, i, r->theirs[i].from, extent_of(&from),
                            &at));
        for (int64_t p = 0; p < from.planes && roots.count < ROOTS_MOST; p++) {
            roots.at[roots.count].data = at + p * from.plane_stride;
            roots.at[roots.count].merges = merges[roots.count];
            roots.count++;
        }
    }
    return device_sum_roots(r->peers->device, &roots);
}

/* The other ranks' blocks of the sum, when all have them. */
static status read_sums(const struct reading *r)
{
    const struct group *group = r->op->group;

    for (int i = 0; i < group->size; i++) {
        struct comm_block to = block_of(r->op, i), from;
        char *at;

        if (i == group->rank || block_bytes(&to) == 0) continue;
        TRY(peers_place(r->op, i, r->theirs[i].result, block_bytes(&to),
                        &at));
        from = block_plain(at, block_bytes(&to));
        to.data = device_there(r->peers->device, to.data);
        TRY(move(r->peers->device, &to, &from));
    }
    return OK;
}

/* ---- ranks that this one cannot read ---- */

/* Through host memory, as all messages are by comm.library=own: a rank there
 * may read nobody. Places of messages behind those of tell_all. */
static status far_post(struct reading *r)
{
    struct operation *op = r->op;
    const int size = op->group->size, me = op->group->rank;

    for (int i = 1; i < size; i++) {
        const int peer = (me + i) % size;
        const struct comm_block block = block_for(op, peer);
        struct message *m = &op->group->messages[op->channel][size + r->far];

        if (op->group->peers->near[peer] || block_bytes(&block) == 0) continue;
        if (r->far == 0 || is_pairwise(op->call))
            TRY(block_bring(&block, true));
        *m = (struct message){.block = block};
        TRY(op->group->ops->post(op, peer, m));
        r->far++;
    }
    return OK;
}

static status far_take(const struct reading *r)
{
    struct operation *op = r->op;
    const int size = op->group->size, me = op->group->rank;

    for (int i = 1; i < size; i++) {
        const int peer = (me + size - i) % size;
        const struct comm_block block = block_of(op, peer);

        if (op->group->peers->near[peer]) continue;
        TRY(block_take(op, peer, &block));
        TRY(block_bring(&block, false));
    }
    return OK;
}

static status far_end(const struct reading *r, status result)
{
    const struct group *group = r->op->group;

    for (int i = 0; i < r->far; i++) {
        const status sent = group->ops->finish(
            r->op, &group->messages[r->op->channel][group->size + i],
            result != OK);

        if (result == OK) result = sent;
    }
    return result;
}

/* ---- a call ---- */

/* As many as messages would carry, as plans state. */
static void count_sent(const struct reading *r)
{
    const struct operation *op = r->op;
    const struct group *group = op->group;

    r->op->messages = r->op->bytes = r->op->between = 0;
    for (int i = 0; i < group->size; i++) {
        struct comm_block block = block_for(op, i);
        int64_t bytes = block_bytes(&block);

        if (i == group->rank) continue;
        block = op->call->kind == COMM_ALL_REDUCE ? block_of(op, group->rank)
                                                  : (struct comm_block){0};
        bytes += block_bytes(&block);
        if (bytes > 0) operation_sent(r->op, i, bytes);
    }
}

static status run_near(struct reading *r)
{
    const struct group *group = r->op->group;
    const bool gathers = r->op->call->kind == COMM_ALL_REDUCE;
    struct device *device = r->peers->device;

    TRY(device_mark(device, r->peers->met[group->members[group->rank]]
                                .events[r->event],
                    r->op->channel != CHANNEL_NOW));
    for (int i = 0; i < group->size; i++)
        if (i != group->rank && group->peers->near[i])
            fill_talk(r, i, &r->mine[i]);
    TRY(tell_all(r, sizeof *r->mine, false));
    TRY(follow_all(r));
    TRY(comm_reduces(r->op->call) ? sum_block(r) : read_blocks(r));
    TRY(device_moved(device));
    TRY(await_readers(r));
    if (!gathers) return OK;
    TRY(read_sums(r));
    TRY(device_moved(device));
    return await_readers(r);
}

static status run(struct reading *r)
{
    status result;

    if (r->op->group->peers->all) return run_near(r);
    result = far_post(r);
    if (result == OK) result = run_near(r);
    if (result == OK) result = far_take(r);
    return far_end(r, result);
}

/* A collective of the group. */
static status run_all(struct operation *op)
{
    struct peer_link *link = op->group->peers;
    struct reading r = {
        .op = op, .peers = link->peers, .mine = link->mine[op->channel],
        .theirs = link->theirs[op->channel],
        .event = link->number * CHANNEL_COUNT + (int64_t)op->channel};
    const status result = run(&r);

    count_sent(&r);
    return result;
}

status peers_run(struct operation *op)
{
    const enum comm_kind kind = op->call->kind;
    const status result = kind == COMM_SEND   ? peers_send(op)
                          : kind == COMM_RECV ? peers_receive(op)
                                              : run_all(op);

    if (result != OK) op->group->peers->peers->failed = true;
    return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
}
