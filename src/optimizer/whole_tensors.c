/* SPDX-License-Identifier: Apache-2.0 */
/* whole_tensors.c - optimizers that see a tensor as a whole, on ranks that
 * have parts of it. */
#include "optimizer/whole_tensors.h"

#include "comm/message.h"

/* ---- sizes ---- */

void whole_gathers(const struct optimizer_rule *rules, int count,
                   int *gathers)
{
    for (int i = 0; i < count; i++) {
        const struct whole_kind *whole = rules[i].kind->whole;

        gathers[i] = 0;
        if (whole != NULL && !rules[i].frozen)
            gathers[i] = whole->weights ? 2 : 1;
    }
}

/* Elements of the parts of the room, one behind the other. */
static int64_t tensor_room(const struct matrix *m)
{
    return param_room(m->rows * m->cols);
}

int64_t whole_room(const struct states *states, const struct matrix *m)
{
    return m->gathers * tensor_room(m) +
           states->rules[m->param].kind->whole->scratch(m->rows, m->cols);
}

/* Elements of a whole state of one tensor; 0: it has none. */
static int64_t state_elements(const struct optimizer_rule *rule, int slot,
                              const struct matrix *m)
{
    const struct optimizer_state *state = rule_state(rule, slot);

    return state != NULL && state->shape == STATE_WHOLE
               ? state->elements(m->rows, m->cols) : 0;
}

static int64_t host_room_of(const struct states *states,
                            const struct matrix *m)
{
    const struct optimizer_rule *rule = &states->rules[m->param];
    int64_t elements = param_room(whole_room(states, m));

    if (rule->kind->whole->needs_host == NULL) return 0;
    for (int k = 0; k < OPTIMIZER_STATES; k++)
        elements += param_room(state_elements(rule, k, m));
    return elements;
}

/* Bytes of the tensor of this rank that needs most. */
static size_t most_bytes(const struct states *states,
                         int64_t (*elements)(const struct states *,
                                             const struct matrix *))
{
    const struct matrices *matrices = &states->matrices;
    int64_t most = 0;

    for (int i = 0; i < matrices->count; i++) {
        const struct matrix *m = &matrices->items[i];

        if (m->owner == matrices->rank && elements(states, m) > most)
            most = elements(states, m);
    }
    return (size_t)(most * dtype_bytes(states->real));
}

size_t whole_room_bytes(const struct states *states)
{
    return most_bytes(states, whole_room);
}

size_t whole_host_bytes(const struct states *states)
{
    return most_bytes(states, host_room_of);
}

/* ---- building ---- */

status whole_work_build(struct whole_work *work,
                        const struct matrices *matrices,
                        struct group *group, void *room)
{
    const size_t ranks = (size_t)matrices->ranks;
    void *memory = NULL;

    *work = (struct whole_work){.matrices = matrices, .group = group,
                                .room = room};
    if (matrices->count == 0) return OK;
    CHECK(group == NULL ? ranks == 1
                        : group->size == matrices->ranks &&
                              group->rank == matrices->rank);
    TRY(memory_take(ranks, sizeof *work->send, &memory));
    work->send = memory;
    TRY(memory_take(ranks, sizeof *work->receive, &memory));
    work->receive = memory;
    TRY(memory_take((size_t)matrices->count, sizeof *work->on_host, &memory));
    work->on_host = memory;
    return OK;
}

void whole_work_free(struct whole_work *work)
{
    memory_free(work->send);
    memory_free(work->receive);
    memory_free(work->on_host);
    *work = (struct whole_work){0};
}

/* ---- parts in messages ---- */

/* One exchange: which piece of the tensors of which turn, between which array
 * of the ranks and which of the owners. */
struct passage {
    const struct update *update;
    const struct update_call *call;
    int turn, piece;
    int gather;   /* 0: gradients; 1: weights */
    bool back;
};

static int64_t real_bytes(const struct update *u)
{
    return dtype_bytes(dtype_real(u->kernels->dtype));
}

/* The part in the rank's own arena: one stretch. */
static struct comm_block own_block(const struct passage *p,
                                   const struct matrix *matrix)
{
    const struct matrices *m = p->update->whole->matrices;
    const int64_t size = real_bytes(p->update);
    struct layout_run run;

    if (!matrix_part(m, matrix, m->rank, p->piece, &run))
        return (struct comm_block){0};
    const struct update_item item =
        update_item(p->update, matrix->param, p->call);

    CHECK(p->gather == 0 || item.masters.weights.data == NULL);
    char *base = p->gather == 0 ? item.gradient.data : item.weight.data;

    return (struct comm_block){
        .data = base + (run.local_first - item.range.first) * size,
        .bytes = run.length * run.repeats * size, .rows = 1, .planes = 1};
}

/* The same part of `rank`, in the whole tensor here. */
static struct comm_block whole_block(const struct passage *p,
                                     const struct matrix *matrix, int rank)
{
    const struct whole_work *work = p->update->whole;
    const int64_t size = real_bytes(p->update);
    struct layout_run run;

    if (!matrix_part(work->matrices, matrix, rank, p->piece, &run))
        return (struct comm_block){0};
    return (struct comm_block){
        .data = (char *)work->room +
                (p->gather * tensor_room(matrix) + run.whole_first) * size,
        .bytes = run.length * size, .rows = run.repeats,
        .stride = run.whole_stride * size, .planes = 1};
}

static void fill_blocks(const struct passage *p)
{
    const struct whole_work *work = p->update->whole;
    const struct matrices *m = work->matrices;
    const struct matrix *mine = matrix_of(m, p->turn, m->rank);

    for (int r = 0; r < m->ranks; r++) {
        const struct matrix *theirs = matrix_of(m, p->turn, r);
        struct comm_block own = {0}, whole = {0};

        if (theirs != NULL && p->gather < theirs->gathers &&
            (p->back || matrix_sends(m, theirs, m->rank)))
            own = own_block(p, theirs);
        if (mine != NULL && p->gather < mine->gathers &&
            (p->back || matrix_sends(m, mine, r)))
            whole = whole_block(p, mine, r);
        work->send[r] = p->back ? whole : own;
        work->receive[r] = p->back ? own : whole;
    }
}

/* One rank: the part in its arena is one stretch, that in the whole tensor has
 * pieces. */
static status copy_here(const struct passage *p, const struct comm_block *to,
                        const struct comm_block *from)
{
    const struct comm_block *whole = p->back ? from : to;
    const struct device_rows pieces = {whole->data, whole->stride};
    const struct device_rows own = {(p->back ? to : from)->data,
                                    whole->bytes};

    if (whole->bytes == 0) return OK;
    return device_copy_rows(p->update->stream, p->back ? own : pieces,
                            p->back ? pieces : own, whole->rows,
                            (size_t)whole->bytes);
}

static status pass(const struct passage *p)
{
    const struct whole_work *work = p->update->whole;
    const struct comm_call call = {.kind = COMM_EXCHANGE, .send = work->send,
                                   .receive = work->receive};

    fill_blocks(p);
    if (work->group != NULL) return comm_run(work->group, &call);
    return copy_here(p, &work->receive[0], &work->send[0]);
}

/* ---- a turn ---- */

/* The host computes on copies of these: the tensor, its states. */
enum { HOST_COPIES = 1 + OPTIMIZER_STATES };

static int host_copies(const struct whole_tensor *t,
                       const struct whole_tensor *host,
                       struct device_bytes copies[HOST_COPIES])
{
    const int64_t size = dtype_bytes(t->x.dtype);
    const size_t bytes = (size_t)tensor_bytes(&t->x);
    int count = 0;

    copies[count++] = (struct device_bytes){host->x.data, t->x.data, bytes};
    for (int k = 0; k < OPTIMIZER_STATES; k++) {
        const int64_t elements = state_elements(t->item->rule, k, t->matrix);

        if (t->states[k] != NULL && elements > 0)
            copies[count++] = (struct device_bytes){
                host->states[k], t->states[k], (size_t)(elements * size)};
    }
    return count;
}

static status copy_back(const struct update *u,
                        const struct device_bytes *copies, int count)
{
    for (int i = 0; i < count; i++)
        TRY(device_write(u->stream, (void *)(uintptr_t)copies[i].from,
                         copies[i].to, copies[i].bytes));
    return OK;
}

/* On copies, by the tables that the device runs. */
static status compute_on_host(const struct update *u,
                              const struct whole_tensor *t)
{
    struct whole_work *work = u->whole;
    const int64_t size = dtype_bytes(t->x.dtype);
    struct whole_tensor host = *t;
    struct update here = *u;
    char *at = work->host.room;
    struct device_bytes copies[HOST_COPIES];
    int count;

    here.stream = &work->host.stream;
    here.kernels = &work->host.kernels[0];
    here.real = &work->host.kernels[1];
    host.x.data = at;
    host.apart = false;
    CHECK(t->weights.data == NULL); /* no kind reads them on the host */
    host.scratch = at + t->matrix->gathers * tensor_room(t->matrix) * size;
    at += param_room(whole_room(u->layout, t->matrix)) * size;
    for (int k = 0; k < OPTIMIZER_STATES; k++) {
        if (t->states[k] != NULL) host.states[k] = at;
        at += param_room(state_elements(t->item->rule, k, t->matrix)) * size;
    }
    count = host_copies(t, &host, copies);
    TRY(device_read_all(u->stream, copies, count));
    TRY(t->item->rule->kind->whole->compute(&here, &host));
    return copy_back(u, copies, count);
}

static status compute(const struct update *u, const struct update_call *call,
                      const struct matrix *matrix)
{
    const struct whole_work *work = u->whole;
    const enum dtype real = dtype_real(u->kernels->dtype);
    const struct update_item item = update_item(u, matrix->param, call);
    int64_t *last = &work->on_host[matrix - work->matrices->items];
    const struct optimizer_kind *kind = item.rule->kind;
    const int64_t room = tensor_room(matrix) * dtype_bytes(real);
    struct whole_tensor t = {
        .matrix = matrix, .item = &item,
        .x = tensor_2d(work->room, real, matrix->rows, matrix->cols),
        .scratch = (char *)work->room + matrix->gathers * room};

    if (matrix->gathers > 1)
        t.weights = tensor_2d((char *)work->room + room, real, matrix->rows,
                              matrix->cols);
    for (int k = 0; k < OPTIMIZER_STATES; k++) {
        const struct optimizer_state *state = rule_state(item.rule, k);

        if (state == NULL || state->shape != STATE_WHOLE ||
            item.states[k].data == NULL) /* all of them are empty */
            continue;
        t.states[k] = (char *)item.states[k].data +
                      states_whole_at(u->layout, matrix, k) *
                          dtype_bytes(real);
    }
    t.apart = kind->whole->needs_host != NULL && work->host.room != NULL;
    if (!t.apart || !kind->whole->needs_host(u, &item, *last))
        return kind->whole->compute(u, &t);
    *last = item.t;
    return compute_on_host(u, &t);
}

static status take_turn(const struct update *u,
                        const struct update_call *call, int turn)
{
    const struct matrices *m = u->whole->matrices;
    const struct matrix *mine = matrix_of(m, turn, m->rank);
    const int pieces = matrices_pieces(m, turn);
    struct passage p = {.update = u, .call = call, .turn = turn};

    for (p.gather = 0; p.gather < matrices_gathers(m, turn); p.gather++)
        for (p.piece = 0; p.piece < pieces; p.piece++) TRY(pass(&p));
    if (mine != NULL) TRY(compute(u, call, mine));
    p.gather = 0;
    p.back = true;
    for (p.piece = 0; p.piece < pieces; p.piece++) TRY(pass(&p));
    return OK;
}

/* ---- before and after ---- */

static status prepare(const struct update *u, const struct update_call *call,
                      int index)
{
    const struct update_item item = update_item(u, index, call);
    const struct whole_kind *whole = item.rule->kind->whole;

    if (item.range.first == item.range.last) return OK;
    if (whole->prepare != NULL) return whole->prepare(u, &item);
    return u->kernels->scale(u->stream, item.gradient, item.gradient,
                             item.factor);
}

static status descend(const struct update *u, const struct update_item *item,
                      const void *argument)
{
    struct descent descent = *(const struct descent *)argument;

    descent.weight = item->weight;
    descent.step = item->gradient;
    descent.copy = item->copy;
    return u->kernels->descend(u->stream, &descent);
}

static status finish(const struct update *u, const struct update_call *call,
                     const struct matrix *matrix)
{
    const struct matrices *m = u->whole->matrices;
    const struct update_item item = update_item(u, matrix->param, call);
    struct descent descent = {.keep = 1 - item.lr * item.decay,
                              .rate = item.lr};
    struct layout_run run;

    item.rule->kind->whole->finish(u, &item, matrix, &descent);
    for (int i = 0; i < matrix->pieces; i++) {
        if (!matrix_part(m, matrix, m->rank, i, &run)) continue;
        const struct update_item part =
            update_part(&item, run.local_first - item.range.first,
                        run.length * run.repeats);

        TRY(update_in_parts(u, &part, WEIGHT_CHANGES, descend, &descent));
    }
    return OK;
}

status whole_apply(const struct update *update,
                   const struct update_call *call)
{
    const struct matrices *m = update->whole->matrices;
    int before = -1;

    for (int i = 0; i < m->count; i++) {
        if (m->items[i].param == before || !matrix_is_here(m, &m->items[i]))
            continue;
        before = m->items[i].param;
        TRY(prepare(update, call, before));
    }
    for (int turn = 0; turn < m->turns; turn++)
        TRY(take_turn(update, call, turn));
    for (int i = 0; i < m->count; i++)
        if (matrix_is_here(m, &m->items[i]))
            TRY(finish(update, call, &m->items[i]));
    return OK;
}
