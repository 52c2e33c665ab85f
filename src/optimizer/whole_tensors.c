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

size_t whole_room_bytes(const struct states *states)
{
    const struct matrices *matrices = &states->matrices;
    int64_t most = 0;

    for (int i = 0; i < matrices->count; i++) {
        const struct matrix *m = &matrices->items[i];

        if (m->owner != matrices->rank) continue;
        const int64_t elements =
            m->gathers * tensor_room(m) +
            states->rules[m->param].kind->whole->scratch(m->rows, m->cols);

        if (elements > most) most = elements;
    }
    return (size_t)(most * dtype_bytes(states->real));
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
    return OK;
}

void whole_work_free(struct whole_work *work)
{
    memory_free(work->send);
    memory_free(work->receive);
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
    char *base = p->gather == 0 ? item.gradient.data : item.weight.data;

    return (struct comm_block){
        .data = base + (run.local_first - item.range.first) * size,
        .bytes = run.length * run.repeats * size, .pieces = 1, .planes = 1};
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
        .bytes = run.length * size, .pieces = run.repeats,
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
                            p->back ? pieces : own, whole->pieces,
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

static status compute(const struct update *u, const struct update_call *call,
                      const struct matrix *matrix)
{
    const struct whole_work *work = u->whole;
    const enum dtype real = dtype_real(u->kernels->dtype);
    const struct update_item item = update_item(u, matrix->param, call);
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
    return kind->whole->compute(u, &t);
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

static struct tensor stretch(struct tensor all, int64_t first, int64_t count)
{
    if (all.data == NULL) return all;
    return tensor_1d((char *)all.data + first * dtype_bytes(all.dtype),
                     all.dtype, count);
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
        const int64_t first = run.local_first - item.range.first;
        const int64_t count = run.length * run.repeats;

        descent.weight = stretch(item.weight, first, count);
        descent.step = stretch(item.gradient, first, count);
        descent.copy = stretch(item.copy, first, count);
        TRY(u->kernels->descend(u->stream, &descent));
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
