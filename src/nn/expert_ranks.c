/* SPDX-License-Identifier: Apache-2.0 */
/* expert_ranks.c - rows that go to the ranks that have the experts, and when.
 * Source: Lepikhin et al. 2020 (GShard), arXiv:2006.16668, section 3.2 (experts
 * on ranks that share the batch, all-to-all there and back). */
#include "nn/expert_ranks.h"

#include <string.h>

#include "mesh/group.h"

bool experts_are_spread(const struct program *p)
{
    return p->mesh.size[AXIS_EXPERT] > 1;
}

struct expert_span experts_held(const struct program *p, int experts)
{
    const int count = experts / p->mesh.size[AXIS_EXPERT];

    return (struct expert_span){p->place.at[AXIS_EXPERT] * count, count};
}

int64_t experts_rows_most(const struct program *p,
                          const struct router_form *form)
{
    const int held = experts_held(p, form->experts).count;
    const int each = form->choices < held ? form->choices : held;

    if (!experts_are_spread(p)) return form->choices;
    return (int64_t)p->mesh.size[AXIS_EXPERT] * each;
}

/* Context ranks add up leaves of gradients in one order, but choose turns by
 * tokens of their own: they have room for all. */
int64_t experts_rows_bound(const struct program *p,
                           const struct router_form *form)
{
    const int64_t most = experts_rows_most(p, form);
    const double bound = p->regular.rows_bound * form->choices;
    int64_t rows = 1;

    if (bound == 0 || bound >= (double)most ||
        p->mesh.size[AXIS_CONTEXT] > 1)
        return most;
    while ((double)rows < bound) rows++;
    return rows;
}

status experts_check_ranks(const struct program *p,
                           const struct router_form *form)
{
    const int ranks = p->mesh.size[AXIS_EXPERT];
    const int batch = mesh_batch_ranks(&p->mesh);
    int near = ranks;

    if (ranks == 1) return OK;
    while (form->experts % near != 0) near--;
    if (near != ranks)
        FAIL(ERR_CONFIG, "mesh.expert: %d ranks do not divide the %d experts "
                         "of a block evenly; %d do", ranks, form->experts,
             near);
    if (batch > ranks && !grid_is_power(ranks))
        FAIL(ERR_CONFIG, "mesh.expert: %d ranks beside %d of mesh.data and "
                         "mesh.shard; their sums are subtrees of the batch's "
                         "only for a power of two, such as %d", ranks,
             batch / ranks, ranks > 4 ? 4 : 2);
    if (!grid_is_cut((int64_t)batch * p->grid.data, batch))
        FAIL(ERR_CONFIG, "mesh.expert: each of %d ranks that share the batch "
                         "has %d of its leaves, which are several subtrees; "
                         "set numerics.grid_data to a power of two times the "
                         "ranks, such as %d", batch, p->grid.data, batch);
    return OK;
}

/* ---- who sends what ---- */

static int ranks_of(const struct program *p)
{
    return p->mesh.size[AXIS_EXPERT];
}

static int64_t entries_of(const struct program *p,
                          const struct router_form *form)
{
    return p->tokens * form->choices;
}

static void *take(char **at, size_t bytes)
{
    void *memory = *at;

    *at += arena_aligned(bytes);
    return memory;
}

enum { SENDING_ARRAYS = 6 }; /* of [sources] */

size_t sending_bytes(const struct program *p, const struct router_form *form)
{
    const size_t ranks = (size_t)ranks_of(p), number = sizeof(int32_t);
    const size_t rows = (size_t)(p->tokens * experts_rows_bound(p, form));
    const size_t entries = (size_t)entries_of(p, form);
    const size_t experts = (size_t)form->experts;

    return choice_lists_bytes((int64_t)(ranks * entries), form->experts) +
           choice_lists_bytes((int64_t)entries, form->experts) +
           arena_aligned(experts * ranks * number) +
           arena_aligned((experts + 1) * number) +
           2 * arena_aligned(rows * number) +
           2 * arena_aligned(entries * number) +
           SENDING_ARRAYS * arena_aligned(ranks * sizeof(int64_t));
}

static void count_pairs(struct sending *s)
{
    const struct program *p = s->run->program;
    const int64_t entries = entries_of(p, &s->form);
    const int ranks = ranks_of(p);

    memset(s->counts, 0, (size_t)(s->form.experts * ranks) *
                             sizeof *s->counts);
    for (int64_t i = 0; i < entries * ranks; i++)
        if (s->joined.chosen[i] >= 0)
            s->counts[s->joined.chosen[i] * ranks + i / entries]++;
}

/* Before the first turn. */
static void begin_turns(struct sending *s)
{
    const struct program *p = s->run->program;
    const int held = experts_held(p, s->form.experts).count;

    s->before = 0;
    for (int i = 0; i < ranks_of(p); i++) {
        s->ends[i] = s->to[i] = 0;
        s->at[i] = s->own.groups.offsets[i * held];
    }
}

void sending_begin(struct sending *s, struct run *run,
                   const struct router_form *form, int32_t *joined)
{
    const struct program *p = run->program;
    const int64_t entries = entries_of(p, form);
    const size_t ranks = (size_t)ranks_of(p), number = sizeof(int32_t);
    const size_t rows = (size_t)(p->tokens * experts_rows_bound(p, form));
    const struct expert_span held = experts_held(p, form->experts);
    const struct choice own = {
        .chosen = joined + p->place.at[AXIS_EXPERT] * entries,
        .tokens = p->tokens, .choices = form->choices};
    int64_t **const arrays[SENDING_ARRAYS] = {&s->to, &s->from, &s->at,
                                              &s->pairs, &s->ends, &s->next};
    char *at = run->scratch;

    *s = (struct sending){.run = run, .form = *form};
    s->joined = (struct choice){.chosen = joined,
                                .tokens = p->tokens * ranks_of(p),
                                .choices = form->choices};
    choice_lists_make(&s->joined, held.first, held.count, at, &s->held);
    at += choice_lists_bytes((int64_t)ranks * entries, form->experts);
    choice_lists_make(&own, 0, form->experts, at, &s->own);
    at += choice_lists_bytes(entries, form->experts);
    s->counts = take(&at, (size_t)form->experts * ranks * number);
    s->offsets = take(&at, ((size_t)form->experts + 1) * number);
    s->arrival = take(&at, rows * number);
    s->order = take(&at, rows * number);
    s->tokens = take(&at, (size_t)entries * number);
    s->entries = take(&at, (size_t)entries * number);
    for (int i = 0; i < SENDING_ARRAYS; i++)
        *arrays[i] = take(&at, ranks * sizeof(int64_t));
    CHECK(at == (char *)run->scratch + sending_bytes(p, form));
    count_pairs(s);
    begin_turns(s);
}

/* Where the turn of a holder ends that begins with a pair. */
static int64_t turn_end(const struct sending *s, int holder, int64_t pair)
{
    const struct program *p = s->run->program;
    const int64_t all = (int64_t)experts_held(p, s->form.experts).count *
                        ranks_of(p);
    const int64_t bound = p->tokens * experts_rows_bound(p, &s->form);
    const int32_t *counts = s->counts + holder * all;
    int64_t rows = 0;

    while (pair < all && rows + counts[pair] <= bound) rows += counts[pair++];
    return pair;
}

/* Rows of the turn that this rank sends to each holder. */
static int64_t count_sent(struct sending *s)
{
    const struct program *p = s->run->program;
    const int ranks = ranks_of(p), own = p->place.at[AXIS_EXPERT];
    const int64_t all =
        (int64_t)experts_held(p, s->form.experts).count * ranks;
    int64_t sent = 0;

    for (int h = 0; h < ranks; h++) {
        s->at[h] += s->to[h];
        s->to[h] = 0;
        for (int64_t i = s->pairs[h]; i < s->ends[h]; i++)
            if (i % ranks == own) s->to[h] += s->counts[h * all + i];
        for (int64_t i = 0; i < s->to[h]; i++, sent++) {
            s->entries[sent] = s->own.groups.entries[s->at[h] + i];
            s->tokens[sent] = s->entries[sent] / s->form.choices;
        }
    }
    return sent;
}

/* The lists of this rank's experts that have the turn's rows alone. */
static void restrict_lists(const struct sending *s, struct turn *turn)
{
    const int held = s->held.groups.experts;
    const int32_t *all = s->held.groups.offsets;
    const int32_t first = (int32_t)s->before;
    const int32_t last = (int32_t)(s->before + turn->rows);

    turn->lists = s->held;
    for (int e = 0; e <= held; e++) {
        const int32_t at = all[e] < first ? first : all[e];

        s->offsets[e] = (at > last ? last : at) - first;
    }
    turn->lists.groups.offsets = s->offsets;
    turn->lists.groups.entries += first;
}

/* Each source sends the rows of an expert by position, one expert after the
 * other, so the n-th row of a source among those of a turn is the n-th that
 * comes of it. */
static void find_arrivals(struct sending *s, const struct turn *turn)
{
    const struct program *p = s->run->program;
    const int64_t entries = entries_of(p, &s->form);
    const int32_t *rows = turn->lists.groups.entries;
    int64_t before = 0;

    for (int i = 0; i < ranks_of(p); i++) s->from[i] = 0;
    for (int64_t i = 0; i < turn->rows; i++) s->from[rows[i] / entries]++;
    for (int i = 0; i < ranks_of(p); i++) {
        s->next[i] = before;
        before += s->from[i];
    }
    for (int64_t i = 0; i < turn->rows; i++) {
        const int64_t at = s->next[rows[i] / entries]++;

        s->arrival[i] = (int32_t)at;
        s->order[at] = (int32_t)i;
    }
}

bool sending_next(struct sending *s, struct turn *turn)
{
    const struct program *p = s->run->program;
    const int ranks = ranks_of(p), own = p->place.at[AXIS_EXPERT];
    const int64_t all =
        (int64_t)experts_held(p, s->form.experts).count * ranks;
    bool more = false;

    for (int h = 0; h < ranks; h++) {
        s->pairs[h] = s->ends[h];
        s->ends[h] = turn_end(s, h, s->pairs[h]);
        more |= s->pairs[h] < all;
    }
    if (!more) return false;
    if (s->pairs[own] > 0) s->before += turn->rows;
    *turn = (struct turn){.first = (int)s->pairs[own],
                          .last = (int)s->ends[own]};
    for (int64_t i = turn->first; i < turn->last; i++)
        turn->rows += s->counts[own * all + i];
    turn->sent = count_sent(s);
    restrict_lists(s, turn);
    find_arrivals(s, turn);
    return true;
}

/* ---- messages ---- */

static struct tensor flat(struct tensor view)
{
    return tensor_1d(view.data, view.dtype, tensor_count(&view));
}

static void scale_counts(struct sending *s, int64_t width, bool up)
{
    for (int i = 0; i < ranks_of(s->run->program); i++) {
        s->to[i] = up ? s->to[i] * width : s->to[i] / width;
        s->from[i] = up ? s->from[i] * width : s->from[i] / width;
    }
}

/* The calls and bytes that the choices say are counted beside those of the
 * group (proof/audit.h). */
status sending_swap(struct sending *s, struct tensor mine,
                    struct tensor theirs, bool goes)
{
    struct run *run = s->run;
    const int rank = run->program->place.at[AXIS_EXPERT];
    const struct comm_call call = {
        .kind = COMM_ALL_TO_ALL, .algorithm = ALGORITHM_ORDERED,
        .in = flat(goes ? mine : theirs), .out = flat(goes ? theirs : mine),
        .in_counts = goes ? s->to : s->from,
        .out_counts = goes ? s->from : s->to};
    status result;

    CHECK(run->groups[AXIS_EXPERT] != NULL);
    scale_counts(s, mine.shape[1], true);
    run->routed.calls++;
    for (int i = 0; i < ranks_of(run->program); i++)
        if (i != rank)
            run->routed.bytes += call.in_counts[i] * dtype_bytes(mine.dtype);
    result = comm_run(run->groups[AXIS_EXPERT], &call);
    scale_counts(s, mine.shape[1], false);
    return result;
}

void sending_place(const struct sending *s, struct tensor all,
                   struct tensor mine)
{
    const size_t row =
        (size_t)mine.shape[1] * (size_t)dtype_bytes(mine.dtype);
    const char *from = mine.data;

    for (int i = 0; i < ranks_of(s->run->program); i++) {
        const size_t bytes = (size_t)s->to[i] * row;

        memcpy((char *)all.data + (size_t)s->at[i] * row, from, bytes);
        from += bytes;
    }
}

status sending_pick(struct run *run, struct tensor out, struct tensor rows,
                    const int32_t *index)
{
    const struct kernels *kernels =
        out.dtype == program_real(run->program) ? run->real : run->kernels;

    if (out.shape[0] == 0) return OK;
    if (rows.shape[0] > 0)
        return kernels->gather_rows(run->stream, out, false, rows, index);
    memset(out.data, 0, (size_t)tensor_count(&out) *
                            (size_t)dtype_bytes(out.dtype));
    return OK; /* no token of this rank has an expert */
}
