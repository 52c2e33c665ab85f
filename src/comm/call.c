/* SPDX-License-Identifier: Apache-2.0 */
/* call.c - checks a call, chooses how to do it, does it and counts it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/arena.h"
#include "base/meter.h"
#include "comm/algorithms.h"
#include "comm/call_sums.h"
#include "comm/flight.h"
#include "comm/library.h"
#include "comm/lifetime_check.h"
#include "comm/peers.h"
#include "comm/rank.h"

const char *comm_kind_name(enum comm_kind kind)
{
    static const char *const names[COMM_KIND_COUNT] = {
        "send", "receive", "all-reduce", "reduce-scatter", "all-gather",
        "all-to-all", "exchange", "broadcast", "agree"};

    return names[kind];
}

const char *algorithm_name(enum algorithm algorithm)
{
    static const char *const names[ALGORITHM_COUNT] = {
        "auto", "ring", "halving", "tree", "hierarchy", "ordered"};

    return names[algorithm];
}

/* One buffer of all ranks' elements. */
static int64_t whole_bytes(const struct comm_call *call)
{
    if (call->kind == COMM_REDUCE_SCATTER) return tensor_bytes(&call->in);
    return tensor_bytes(&call->out);
}

static bool is_dense(const struct tensor *tensor)
{
    int64_t stride = 1;

    for (int i = tensor->dimensions - 1; i >= 0; i--) {
        if (tensor->shape[i] > 1 && tensor->stride[i] != stride) return false;
        stride *= tensor->shape[i];
    }
    return true;
}

/* Every back end gets the same one, so that the bits are the same. */
static enum algorithm choose(const struct group *group,
                             const struct comm_call *call)
{
    if (group->size == 1) return ALGORITHM_ORDERED; /* nothing is sent */
    if (call->algorithm != ALGORITHM_AUTO) return call->algorithm;
    return call->kind == COMM_BROADCAST ? ALGORITHM_TREE : ALGORITHM_ORDERED;
}

/* How many elements `in` must have for each n of the call. */
static int own_roots(const struct group *group, const struct comm_call *call)
{
    return comm_reduces(call) && call->root_stride == 0
               ? comm_own_roots(group, call->leaves) : 1;
}

static status check_leaves(const struct group *group,
                           const struct comm_call *call)
{
    if (!comm_reduces(call) || call->leaves == 0) return OK;
    if (call->leaves < group->size || call->leaves > 1 << 14)
        FAIL(ERR_CONFIG, "%s on group %s: %d leaves over %d ranks; every rank "
             "needs one", comm_kind_name(call->kind), group->label,
             call->leaves, group->size);
    if (choose(group, call) != ALGORITHM_ORDERED)
        FAIL(ERR_CONFIG, "%s on group %s: roots of leaves are added in order, "
             "not by %s", comm_kind_name(call->kind), group->label,
             algorithm_name(call->algorithm));
    return OK;
}

/* -1: one of them is negative. */
static int64_t sum_counts(const int64_t *counts, int size)
{
    int64_t sum = 0;

    for (int i = 0; i < size; i++) {
        if (counts[i] < 0) return -1;
        sum += counts[i];
    }
    return sum;
}

static bool counts_fit(const struct tensor *tensor, const int64_t *counts,
                       int size)
{
    const int64_t elements = tensor_count(tensor);
    const int64_t sum = counts != NULL ? sum_counts(counts, size) : 0;

    return counts != NULL ? sum >= 0 && sum <= elements
                          : elements % size == 0;
}

/* One block of each rank in each row of `whole`, this rank's in `own`. */
static bool blocks_fit(const struct group *group, const struct comm_call *call,
                       int64_t whole, int64_t own)
{
    const int64_t *counts = call->kind == COMM_ALL_GATHER ? call->out_counts
                                                          : call->in_counts;
    const int64_t rows = comm_rows(call);

    if (counts == NULL) return own % rows == 0 && whole == group->size * own;
    return whole == rows * sum_counts(counts, group->size) &&
           own == rows * counts[group->rank];
}

static bool exchange_fits(const struct group *group,
                          const struct comm_call *call)
{
    int64_t kept, left;

    if (call->send == NULL || call->receive == NULL) return false;
    kept = block_bytes(&call->send[group->rank]);
    left = block_bytes(&call->receive[group->rank]);
    return kept == left;
}

static bool relay_fits(const struct comm_call *call)
{
    const struct comm_relay *r = call->relay;
    const int64_t in = sum_counts(r->out, r->nodes) * r->row_bytes;
    const int64_t out = sum_counts(r->from, r->each) * r->row_bytes;

    return in >= 0 && in == tensor_bytes(&call->in) && out >= 0 &&
           out == tensor_bytes(&call->out) && r->out[r->node] == r->in[r->node];
}

static bool sizes_fit(const struct group *group, const struct comm_call *call)
{
    const int64_t out = tensor_count(&call->out), in = tensor_count(&call->in);
    const int roots = own_roots(group, call);

    switch (call->kind) {
    case COMM_ALL_REDUCE: return in == roots * out;
    case COMM_REDUCE_SCATTER:
        return in % (roots * comm_rows(call)) == 0 &&
               blocks_fit(group, call, in / roots, out);
    case COMM_ALL_GATHER: return blocks_fit(group, call, out, in);
    case COMM_ALL_TO_ALL:
        if (call->relay != NULL) return relay_fits(call);
        return counts_fit(&call->out, call->out_counts, group->size) &&
               counts_fit(&call->in, call->in_counts, group->size) &&
               (call->in_counts == NULL || call->out_counts == NULL ||
                call->in_counts[group->rank] ==
                call->out_counts[group->rank]);
    case COMM_EXCHANGE: return exchange_fits(group, call);
    default: return true;
    }
}

static bool reduces_type(const struct comm_call *call)
{
    const enum dtype dtype = call->out.dtype;

    return dtype == DTYPE_F32 || dtype == DTYPE_F64 ||
           (dtype == DTYPE_I64 && call->reduction == REDUCE_SUM);
}

static bool types_fit(const struct comm_call *call)
{
    const bool sends = call->kind == COMM_SEND;
    const bool receives = call->kind == COMM_RECV ||
                          call->kind == COMM_BROADCAST;

    if (call->kind == COMM_EXCHANGE) return true;
    if (!sends && !is_dense(&call->out)) return false;
    if (!receives && !is_dense(&call->in)) return false;
    if (comm_reduces(call) && !reduces_type(call)) return false;
    return sends || receives || call->out.dtype == call->in.dtype;
}

static status fail_sizes(const struct group *group,
                         const struct comm_call *call)
{
    if (call->kind == COMM_EXCHANGE)
        FAIL(ERR_CONFIG, "exchange on group %s: rank %d does not receive from "
             "itself what it sends to itself", group->label, group->rank);
    FAIL(ERR_CONFIG, "%s on group %s: out has %" PRId64 " and in %" PRId64
         " elements, which do not fit %d ranks%s (roots of this one: %d)",
         comm_kind_name(call->kind), group->label, tensor_count(&call->out),
         tensor_count(&call->in), group->size,
         call->in_counts != NULL || call->out_counts != NULL
             ? " and the counts of their blocks" : "",
         own_roots(group, call));
}

static status check_rows(const struct group *group,
                         const struct comm_call *call)
{
    const bool takes = call->kind == COMM_REDUCE_SCATTER ||
                       call->kind == COMM_ALL_GATHER;

    if (comm_rows(call) == 1 && call->rows >= 0) return OK;
    if (!takes || call->rows < 0 || choose(group, call) != ALGORITHM_ORDERED)
        FAIL(ERR_CONFIG, "%s by %s on group %s: %" PRId64 " rows; only ordered "
             "reduce-scatters and all-gathers take rows",
             comm_kind_name(call->kind), algorithm_name(choose(group, call)),
             group->label, call->rows);
    return OK;
}

static status check_narrow(const struct group *group,
                           const struct comm_call *call)
{
    const int bits = call->narrow.bits;

    if (bits == 0) return OK;
    if ((bits != 4 && bits != 8) || call->kind != COMM_REDUCE_SCATTER ||
        call->out.dtype != DTYPE_F32 || call->in_counts == NULL ||
        comm_rows(call) != 1 || choose(group, call) != ALGORITHM_ORDERED)
        FAIL(ERR_CONFIG, "%s by %s of %s in %d bits on group %s: ordered "
                         "reduce-scatters of one row of float32 with counts "
                         "can be in 4 or 8 bits", comm_kind_name(call->kind),
             algorithm_name(choose(group, call)), dtype_name(call->out.dtype),
             bits, group->label);
    return OK;
}

static status call_check(const struct group *group,
                         const struct comm_call *call)
{
    const char *name = comm_kind_name(call->kind);

    if (!types_fit(call))
        FAIL(ERR_CONFIG, "%s on group %s: out (%s) and in (%s) are not dense "
             "and of one type%s", name, group->label,
             dtype_name(call->out.dtype), dtype_name(call->in.dtype),
             comm_reduces(call) ? ", float32, float64 or sums of int64" : "");
    TRY(check_leaves(group, call));
    TRY(check_rows(group, call));
    TRY(check_narrow(group, call));
    if (!sizes_fit(group, call)) return fail_sizes(group, call);
    if (call->peer < 0 || call->peer >= group->size || call->tag < 0)
        FAIL(ERR_CONFIG, "%s on group %s: rank %d, tag %d: ranks are 0 to %d, "
             "tags from 0", name, group->label, call->peer, call->tag,
             group->size - 1);
    return OK;
}

status call_begin(const struct group *group, const struct comm_call *call)
{
    struct comm_rank *self = group->self;

    self->agreed = false;
    TRY(call_check(group, call));
    if (self->watcher != NULL) self->watcher(self->watches, group, call);
    return OK;
}

static int64_t most_count(const int64_t *counts, int size)
{
    int64_t most = 0;

    for (int i = 0; i < size; i++)
        if (counts[i] > most) most = counts[i];
    return most;
}

size_t comm_scratch_bytes(const struct group *group,
                          const struct comm_call *call)
{
    const enum algorithm algorithm = choose(group, call);
    const size_t whole = (size_t)whole_bytes(call) + ARENA_ALIGN;
    const int64_t element = dtype_bytes(call->out.dtype);
    size_t bytes = 0;

    if (call->relay != NULL) return relay_scratch(call->relay);
    if (!comm_reduces(call)) return 0;
    if (call->narrow.bits > 0) return narrow_scratch(group, call);
    if (algorithm == ALGORITHM_ORDERED) {
        int64_t n = tensor_count(&call->out) / comm_rows(call);

        if (call->kind == COMM_ALL_REDUCE)
            n = n / group->size + (n % group->size != 0);
        else if (call->in_counts != NULL)
            n = most_count(call->in_counts, group->size);
        return ordered_scratch(group, call, comm_rows(call), n * element);
    }
    if (call->kind == COMM_REDUCE_SCATTER) bytes += whole;
    if (!group->ops->borrows) bytes += whole;
    return bytes;
}

static void copy(void *to, const void *from, int64_t bytes)
{
    if (to != from && bytes > 0) memcpy(to, from, (size_t)bytes);
}

static struct circle everybody(const struct group *group)
{
    return (struct circle){0, 1, group->size, group->rank};
}

static status all_reduce(struct operation *op)
{
    const struct comm_call *call = op->call;
    const struct circle all = everybody(op->group);
    const struct cut cut = {.data = call->out.data,
                            .elements = tensor_count(&call->out),
                            .element_bytes = dtype_bytes(call->out.dtype)};
    const struct block whole = {call->out.data, tensor_bytes(&call->out)};
    struct ordered ordered = {
        .cut = cut, .leaves = call->leaves, .rows = 1,
        .root_bytes = call->root_stride > 0 ? call->root_stride : whole.bytes,
        .out = cut_blocks(&cut, all.count, all.me, all.me + 1).data};

    if (op->algorithm == ALGORITHM_ORDERED) {
        ordered.cut.data = call->in.data;
        return ordered_reduce(op, &ordered, &cut);
    }
    copy(call->out.data, call->in.data, whole.bytes);
    switch (op->algorithm) {
    case ALGORITHM_HALVING:
        TRY(halving_reduce(op, &all, &cut));
        return halving_gather(op, &all, &cut);
    case ALGORITHM_TREE:
        TRY(tree_reduce(op, &all, whole));
        return tree_broadcast(op, &all, 0, whole);
    case ALGORITHM_HIERARCHY:
        return hierarchy_all_reduce(op, &cut);
    default:
        TRY(ring_reduce(op, &all, &cut));
        return ring_gather(op, &all, &cut);
    }
}

/* A row in blocks: of `counts` elements, or all like this rank's `block`. */
static struct cut cut_blockwise(const struct comm_call *call, void *data,
                                const struct tensor *block,
                                const int64_t *counts)
{
    return (struct cut){.data = data, .counts = counts,
                        .length = tensor_count(block) / comm_rows(call),
                        .step = 1,
                        .element_bytes = dtype_bytes(block->dtype)};
}

/* Not ordered: the sum grows in a copy of `in`. */
static status reduce_scatter_copy(struct operation *op)
{
    const struct comm_call *call = op->call;
    const struct circle all = everybody(op->group);
    const struct block whole = {operation_scratch(op, tensor_bytes(&call->in)),
                                tensor_bytes(&call->in)};
    const struct cut cut = cut_blockwise(call, whole.data, &call->out,
                                         call->in_counts);
    struct block own;

    copy(whole.data, call->in.data, whole.bytes);
    switch (op->algorithm) {
    case ALGORITHM_HALVING:
        TRY(halving_reduce(op, &all, &cut));
        break;
    case ALGORITHM_TREE:
        TRY(tree_reduce(op, &all, whole));
        TRY(tree_scatter(op, &all, 0, &cut));
        break;
    case ALGORITHM_HIERARCHY:
        TRY(hierarchy_reduce(op, &cut));
        break;
    default:
        TRY(ring_reduce(op, &all, &cut));
        break;
    }
    own = cut_blocks(&cut, all.count, all.me, all.me + 1);
    copy(call->out.data, own.data, own.bytes);
    return OK;
}

static status reduce_scatter(struct operation *op)
{
    const struct comm_call *call = op->call;
    const struct ordered ordered = {
        .cut = cut_blockwise(call, call->in.data, &call->out,
                             call->in_counts),
        .rows = comm_rows(call),
        .root_bytes = call->root_stride > 0
                          ? call->root_stride
                          : tensor_bytes(&call->in) /
                                own_roots(op->group, call),
        .out = call->out.data, .leaves = call->leaves};

    if (call->narrow.bits > 0) return narrow_reduce(op);
    if (op->algorithm != ALGORITHM_ORDERED) return reduce_scatter_copy(op);
    return ordered_reduce(op, &ordered, NULL);
}

static status all_gather(struct operation *op)
{
    const struct comm_call *call = op->call;
    const struct circle all = everybody(op->group);
    const struct cut cut = cut_blockwise(call, call->out.data, &call->in,
                                         call->out_counts);
    const struct comm_block own = cut_rows(&cut, all.count, all.me,
                                           comm_rows(call));
    const struct comm_block in = block_plain(call->in.data,
                                             tensor_bytes(&call->in));
    const struct block whole = {call->out.data, tensor_bytes(&call->out)};

    block_copy(&own, &in);
    switch (op->algorithm) {
    case ALGORITHM_HALVING:
        return halving_gather(op, &all, &cut);
    case ALGORITHM_TREE:
        TRY(tree_collect(op, &all, &cut));
        return tree_broadcast(op, &all, 0, whole);
    case ALGORITHM_HIERARCHY:
        return hierarchy_gather(op, &cut);
    case ALGORITHM_RING:
        return ring_gather(op, &all, &cut);
    default:
        return direct_gather(op, &in, &cut, comm_rows(call));
    }
}

static status broadcast(struct operation *op)
{
    const struct circle all = everybody(op->group);
    const struct block whole = {op->call->out.data,
                                tensor_bytes(&op->call->out)};
    const struct cut cut = {.data = whole.data,
                            .elements = tensor_count(&op->call->out),
                            .element_bytes =
                                dtype_bytes(op->call->out.dtype)};
    const int root = op->call->peer;

    switch (op->algorithm) {
    case ALGORITHM_RING:
        return ring_broadcast(op, &all, root, whole);
    case ALGORITHM_HALVING: /* the blocks first, then a gather */
        TRY(tree_scatter(op, &all, root, &cut));
        return halving_gather(op, &all, &cut);
    case ALGORITHM_HIERARCHY:
        return hierarchy_broadcast(op, root, whole);
    case ALGORITHM_ORDERED:
        return direct_broadcast(op, root, whole);
    default:
        return tree_broadcast(op, &all, root, whole);
    }
}

static status point_to_point(struct operation *op)
{
    const struct comm_call *call = op->call;
    const bool sends = call->kind == COMM_SEND;
    const struct transfer t = {
        .to = sends ? call->peer : -1, .out = call->in.data,
        .out_bytes = sends ? tensor_bytes(&call->in) : 0,
        .from = sends ? -1 : call->peer, .in = call->out.data,
        .in_bytes = sends ? 0 : tensor_bytes(&call->out)};

    return transfer_run(op, &t);
}

static status operation_run(struct operation *op)
{
    switch (op->call->kind) {
    case COMM_ALL_REDUCE: return all_reduce(op);
    case COMM_REDUCE_SCATTER: return reduce_scatter(op);
    case COMM_ALL_GATHER: return all_gather(op);
    case COMM_ALL_TO_ALL:
        if (op->call->relay != NULL) return relay_rows(op);
        return exchange(op);
    case COMM_EXCHANGE: return exchange(op);
    case COMM_BROADCAST: return broadcast(op);
    default: return point_to_point(op);
    }
}

void operation_sent(struct operation *operation, int peer, int64_t bytes)
{
    const struct group *group = operation->group;
    const int node = group->self->node;

    operation->messages++;
    operation->bytes += bytes;
    if (node > 0 && group->members[peer] / node !=
                        group->members[group->rank] / node)
        operation->between += bytes;
}

void operation_count(const struct operation *operation)
{
    struct traffic_row row = {.id = operation->group->id,
                              .kind = operation->call->kind,
                              .calls = 1,
                              .messages = operation->messages,
                              .bytes = operation->bytes,
                              .between = operation->between};

    memcpy(row.group, operation->group->label, sizeof row.group);
    traffic_count(&operation->group->self->traffic, &row);
}

status call_run(struct group *group, const struct comm_call *call,
                enum channel channel, uint64_t tag)
{
    struct operation operation = {
        .group = group, .call = call, .channel = channel,
        .algorithm = choose(group, call),
        .tag = tag | (uint64_t)channel << 61, .scratch = call->scratch,
        .scratch_left = call->scratch_bytes};
    const size_t needed = comm_scratch_bytes(group, call);
    status result;

    if (call->scratch == NULL && channel == CHANNEL_NOW) {
        operation.scratch = group->scratch;
        operation.scratch_left = group->scratch_bytes;
    }
    if (operation.scratch_left < needed)
        FAIL(ERR_MEMORY, "%s on group %s: %zu bytes of scratch, %s needs %zu",
             comm_kind_name(call->kind), group->label, operation.scratch_left,
             algorithm_name(operation.algorithm), needed);
    struct meter_track *track = meter_begin();
    const uint64_t entry = flight_enter(&operation);

    result = peers_take(group, call)      ? peers_run(&operation)
             : library_takes(group, call) ? library_run(&operation)
                                          : operation_run(&operation);
    flight_leave(entry, &operation, result);
    meter_end(track, &(struct meter_what){
        .kind = METER_MESSAGES, .name = comm_kind_name(call->kind),
        .label = group->label, .bytes = (double)operation.bytes});
    operation_count(&operation);
    return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
}

status comm_run(struct group *group, const struct comm_call *given)
{
    const bool straight = given->kind == COMM_SEND ||
                          given->kind == COMM_RECV;
    struct comm_call seen;
    const struct comm_call *call = &seen;
    status result;

    TRY(call_begin(group, given));
    call_see(given, &seen);
    /* Ranks that are read await their device by events. */
    if (!peers_follow(group, &seen))
        TRY(call_settle(group, given));
    TRY(lives_call(group, call));
    TRY(call_fetch(group, call));
    const int number = call_sums_next(group);

    call_sums_sent(group, call, number);
    lives_wait_begin(group->self);
    result = call_run(group, call, CHANNEL_NOW,
                      straight ? (uint64_t)1 << 62 | (uint64_t)call->tag
                               : group->calls[CHANNEL_NOW]++);
    if (result == OK) call_sums_received(group, call, number);
    if (result == OK) result = call_store(group, call);
    lives_wait_end(group->self);
    return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
}

status comm_run_alone(struct group *group, struct comm_call call)
{
    status result;

    call.scratch_bytes = comm_scratch_bytes(group, &call);
    TRY(memory_take(call.scratch_bytes + 1, 1, &call.scratch));
    result = comm_run(group, &call);
    memory_free(call.scratch);
    return result;
}

status comm_all_reduce(struct group *group, struct tensor out,
                       struct tensor in, enum reduction reduction)
{
    const struct comm_call call = {.kind = COMM_ALL_REDUCE, .out = out,
                                   .in = in, .reduction = reduction};

    return comm_run(group, &call);
}

status comm_all_gather(struct group *group, struct tensor out,
                       struct tensor in)
{
    const struct comm_call call = {.kind = COMM_ALL_GATHER, .out = out,
                                   .in = in};

    return comm_run(group, &call);
}

status comm_broadcast(struct group *group, struct tensor out, int root)
{
    const struct comm_call call = {.kind = COMM_BROADCAST, .out = out,
                                   .peer = root};

    return comm_run(group, &call);
}

status comm_send(struct group *group, struct tensor in, int peer, int tag)
{
    const struct comm_call call = {.kind = COMM_SEND, .in = in, .peer = peer,
                                   .tag = tag};

    return comm_run(group, &call);
}

status comm_recv(struct group *group, struct tensor out, int peer, int tag)
{
    const struct comm_call call = {.kind = COMM_RECV, .out = out,
                                   .peer = peer, .tag = tag};

    return comm_run(group, &call);
}
