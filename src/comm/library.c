/* SPDX-License-Identifier: Apache-2.0 */
/* library.c - calls that NCCL does. */
#include "comm/library.h"

#include <stdio.h>
#include <time.h>
#include "base/arena.h"
#include "base/clock.h"
#include "base/meter.h"
#include "comm/algorithms.h"
#include "comm/rank.h"
#include "device/library.h"

enum {
    ROWS_MOST = 1024,        /* of one call */
    LOOKS_EAGER = 64,        /* then the core is given to others in between */
    PAUSE_NS = 20000,
    END_NS = 2000000000      /* for a communicator to end */
};

/* One channel has it. */
struct channel_link {
    struct nccl_place at;    /* comm NULL: it has none yet */
    bool dead;
};

struct library {
    const struct nccl_plugin *nccl; /* borrowed */
    struct device *device;          /* borrowed */
    struct channel_link links[CHANNEL_COUNT];
};

status group_use_library(struct group *group, const struct nccl_plugin *nccl,
                         struct device *device)
{
    void *memory;

    TRY(memory_take(1, sizeof *group->library, &memory));
    group->library = memory;
    *group->library = (struct library){.nccl = nccl, .device = device};
    return OK;
}

static void pause_ns(int64_t ns)
{
    nanosleep(&(struct timespec){0, ns}, NULL);
}

/* The others end theirs, too, unless something failed. */
static void link_close(struct library *l, struct channel_link *link)
{
    const int64_t end = clock_ns() + END_NS;
    bool done = false;

    if (link->at.comm == NULL) return;
    if (device_enter(l->device) != OK) status_clear();
    if (link->dead) {
        l->nccl->abort(link->at.comm);
    } else if (l->nccl->finish(link->at.comm) == NULL) {
        while (!done && clock_ns() < end &&
               l->nccl->look(link->at.comm, &done) == NULL)
            if (!done) pause_ns(PAUSE_NS);
        if (done) l->nccl->close(link->at.comm);
        else l->nccl->abort(link->at.comm);
    }
    if (link->at.stream != NULL)
        device_stream_close(l->device, link->at.stream);
    *link = (struct channel_link){.dead = link->dead};
}

void group_leave_library(struct group *group)
{
    if (group->library == NULL) return;
    for (int i = 0; i < CHANNEL_COUNT; i++)
        link_close(group->library, &group->library->links[i]);
    memory_free(group->library);
    group->library = NULL;
}

/* ---- which calls ---- */

static bool sums_integers(const struct comm_call *call)
{
    return call->out.dtype == DTYPE_I64 && call->reduction == REDUCE_SUM &&
           call->leaves == 0 && call->narrow.bits == 0;
}

static void *there(const struct library *l, const struct tensor *tensor)
{
    return tensor->data != NULL ? device_there(l->device, tensor->data) : NULL;
}

bool library_takes(const struct group *group, const struct comm_call *call)
{
    const struct library *l = group->library;

    if (l == NULL || group->size == 1 || comm_rows(call) > ROWS_MOST)
        return false;
    switch (call->kind) {
    case COMM_ALL_GATHER: return there(l, &call->out) != NULL;
    case COMM_REDUCE_SCATTER:
        return sums_integers(call) && there(l, &call->in) != NULL;
    case COMM_ALL_REDUCE:
        return sums_integers(call) && there(l, &call->out) != NULL;
    case COMM_ALL_TO_ALL:
        return call->relay == NULL && (there(l, &call->in) != NULL ||
                                       there(l, &call->out) != NULL);
    default: return false;
    }
}

/* ---- waiting ---- */

static status say(const struct operation *op, const char *sentence)
{
    char name[80];

    if (sentence == NULL) return OK;
    FAIL(ERR_PEER, "%s: %s", operation_name(op, name), sentence);
}

/* A rank that cannot go on tells the others, who may wait for it in NCCL. */
static status give_up(const struct operation *op, struct channel_link *link,
                      status result)
{
    struct group *group = op->group;

    link->dead = true;
    if (link->at.comm != NULL) group->library->nccl->abort(link->at.comm);
    link->at.comm = NULL;
    group_abort(group, status_message());
    return result;
}

static status late(const struct operation *op, const char *what)
{
    char name[80];

    FAIL(ERR_PEER, "%s: NCCL has not %s within %.1f s: of %d ranks, one or "
                   "more have not come", operation_name(op, name), what,
         1e-9 * (double)op->group->limit_ns, op->group->size);
}

/* Until the communicator, and its stream if it has one, are done. */
static status wait_for(const struct operation *op,
                       const struct channel_link *link, const char *what)
{
    const struct library *l = op->group->library;
    const int64_t end = clock_ns() + op->group->limit_ns;
    bool done = false;

    for (int looks = 0;; looks++) {
        TRY(say(op, l->nccl->look(link->at.comm, &done)));
        if (done && link->at.stream != NULL)
            TRY(device_stream_idle(l->device, link->at.stream, &done));
        if (done) return OK;
        if (looks < LOOKS_EAGER) continue;
        if (op->group->ops->look != NULL)
            TRY(op->group->ops->look(op));
        if (clock_ns() > end) return late(op, what);
        pause_ns(PAUSE_NS);
    }
}

static status await(const struct operation *op, const struct channel_link *link,
                    const char *what)
{
    struct meter_track *track = meter_begin();
    const status result = wait_for(op, link, what);

    meter_end(track, &(struct meter_what){
        .kind = METER_IDLE, .name = "wait for NCCL"});
    return result;
}

/* ---- a communicator ---- */

/* All ranks of the group are here. Its first rank makes the address at which
 * NCCL's meet, and tells it the others. */
static status link_meet(struct operation *op, struct channel_link *link)
{
    const struct library *l = op->group->library;
    char id[NCCL_ID_BYTES] = {0};
    status result;

    if (op->group->rank == 0) TRY(say(op, l->nccl->make_id(id)));
    op->tag |= TAG_RESULT; /* it sends no others */
    result = direct_broadcast(op, 0, (struct block){id, sizeof id});
    op->tag &= ~TAG_RESULT;
    op->messages = op->bytes = op->between = 0;
    TRY(result);
    TRY(say(op, l->nccl->begin(id, op->group->rank, op->group->size,
                               &link->at.comm)));
    TRY(await(op, link, "connected its ranks"));
    return device_stream_open(l->device, &link->at.stream);
}

/* ---- calls ---- */

/* A call moves a block of each rank in each row, on the GPU. */
struct blocks {
    char *data;
    const int64_t *counts;   /* borrowed; elements; NULL: all alike */
    int64_t length;          /* of a block, if there are no counts; elements */
    int64_t element;         /* bytes */
    int size;
    int64_t rows;
};

static int64_t block_elements(const struct blocks *b, int rank)
{
    return b->counts != NULL ? b->counts[rank] : b->length;
}

static int64_t row_elements(const struct blocks *b)
{
    int64_t sum = 0;

    for (int i = 0; i < b->size; i++) sum += block_elements(b, i);
    return sum;
}

static char *block_at(const struct blocks *b, int64_t row, int rank)
{
    int64_t elements = row * row_elements(b);

    for (int i = 0; i < rank; i++) elements += block_elements(b, i);
    return b->data + elements * b->element;
}

static bool alike(const struct blocks *b)
{
    for (int i = 1; i < b->size; i++)
        if (block_elements(b, i) != block_elements(b, 0)) return false;
    return true;
}

static struct blocks blocks_of(const struct operation *op,
                               const struct tensor *whole,
                               const int64_t *counts)
{
    const int64_t rows = comm_rows(op->call);

    return (struct blocks){
        .data = there(op->group->library, whole), .counts = counts,
        .length = tensor_count(whole) / rows / op->group->size,
        .element = dtype_bytes(whole->dtype), .size = op->group->size,
        .rows = rows};
}

/* Row `row` of a rank's own blocks, which touch. */
static char *own_at(const struct operation *op, const struct tensor *own,
                    int64_t row)
{
    char *data = there(op->group->library, own);

    return data + row * (tensor_count(own) / comm_rows(op->call)) *
                      dtype_bytes(own->dtype);
}

static const char *gather_row(const struct operation *op,
                              const struct nccl_place *at,
                              const struct blocks *all, int64_t row)
{
    const struct nccl_plugin *nccl = op->group->library->nccl;
    const char *own = own_at(op, &op->call->in, row), *sentence = NULL;

    if (alike(all))
        return nccl->gather(at, block_at(all, row, 0), own,
                            all->element * block_elements(all, 0));
    for (int i = 0; i < all->size && sentence == NULL; i++)
        if (block_elements(all, i) > 0)
            sentence = nccl->broadcast(at, block_at(all, row, i),
                                       i == op->group->rank
                                           ? own : block_at(all, row, i),
                                       all->element * block_elements(all, i),
                                       i);
    return sentence;
}

static const char *scatter_row(const struct operation *op,
                               const struct nccl_place *at,
                               const struct blocks *all, int64_t row)
{
    const struct nccl_plugin *nccl = op->group->library->nccl;
    int64_t *own = (int64_t *)(void *)own_at(op, &op->call->out, row);
    const char *sentence = NULL;

    if (alike(all))
        return nccl->sum_blocks(at, own,
                                (int64_t *)(void *)block_at(all, row, 0),
                                block_elements(all, 0));
    for (int i = 0; i < all->size && sentence == NULL; i++)
        if (block_elements(all, i) > 0)
            sentence = nccl->sum_to(at, i == op->group->rank ? own : NULL,
                                    (int64_t *)(void *)block_at(all, row, i),
                                    block_elements(all, i), i);
    return sentence;
}

/* The own block, too. */
static const char *all_to_all(const struct operation *op,
                              const struct nccl_place *at)
{
    const struct nccl_plugin *nccl = op->group->library->nccl;
    const struct blocks in =
        blocks_of(op, &op->call->in, op->call->in_counts);
    const struct blocks out =
        blocks_of(op, &op->call->out, op->call->out_counts);
    const char *sentence = NULL;

    for (int i = 0; i < in.size && sentence == NULL; i++) {
        const int64_t sent = in.element * block_elements(&in, i);
        const int64_t got = out.element * block_elements(&out, i);

        if (sent > 0) sentence = nccl->send(at, block_at(&in, 0, i), sent, i);
        if (sentence == NULL && got > 0)
            sentence = nccl->receive(at, block_at(&out, 0, i), got, i);
    }
    return sentence;
}

static const char *give(const struct operation *op,
                        const struct nccl_place *at)
{
    const struct comm_call *call = op->call;
    const bool gathers = call->kind == COMM_ALL_GATHER;
    const struct blocks all =
        gathers ? blocks_of(op, &call->out, call->out_counts)
                : blocks_of(op, &call->in, call->in_counts);
    const char *sentence = NULL;

    if (call->kind == COMM_ALL_TO_ALL) return all_to_all(op, at);
    if (call->kind == COMM_ALL_REDUCE)
        return op->group->library->nccl->sum(
            at, there(op->group->library, &call->out),
            there(op->group->library, &call->in), tensor_count(&call->out));
    for (int64_t row = 0; row < all.rows && sentence == NULL; row++)
        sentence = gathers ? gather_row(op, at, &all, row)
                           : scatter_row(op, at, &all, row);
    return sentence;
}

/* The rank sends so many to the peer by ALGORITHM_ORDERED, as plans state. */
static int64_t stated_bytes(const struct operation *op, int peer)
{
    const struct comm_call *call = op->call;
    const int64_t n = tensor_count(&call->out), size = op->group->size;
    const int me = op->group->rank;
    struct blocks all;

    switch (call->kind) {
    case COMM_ALL_GATHER:
        return tensor_bytes(&call->in);
    case COMM_ALL_REDUCE:
        return (n / size + (peer < n % size) + n / size + (me < n % size)) *
               dtype_bytes(call->out.dtype);
    default:
        all = blocks_of(op, &call->in, call->in_counts);
        return all.rows * block_elements(&all, peer) * all.element;
    }
}

static status link_run(struct operation *op, struct channel_link *link)
{
    const struct library *l = op->group->library;

    TRY(device_enter(l->device));
    if (link->at.comm == NULL) TRY(link_meet(op, link));
    TRY(say(op, l->nccl->start()));
    const char *given = give(op, &link->at);
    const status result = say(op, given);
    const char *ended = l->nccl->end();

    TRY(result);
    TRY(say(op, ended));
    TRY(await(op, link, "ended the call"));
    for (int i = 0; i < op->group->size; i++) {
        const int64_t bytes = i == op->group->rank ? 0 : stated_bytes(op, i);

        if (bytes > 0) operation_sent(op, i, bytes);
    }
    return OK;
}

status library_run(struct operation *op)
{
    struct channel_link *link = &op->group->library->links[op->channel];
    char name[80];
    status result;

    if (link->dead)
        FAIL(ERR_PEER, "%s: its communicator has ended after an error",
             operation_name(op, name));
    result = link_run(op, link);
    return result == OK ? OK : give_up(op, link, result);
}
