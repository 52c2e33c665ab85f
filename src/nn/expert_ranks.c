/* SPDX-License-Identifier: Apache-2.0 */
/* expert_ranks.c - rows that go to the ranks that have the experts, and when.
 * Source: Lepikhin et al. 2020 (GShard), arXiv:2006.16668, section 3.2 (experts
 * on ranks that share the batch, all-to-all there and back). */
#include "nn/expert_ranks.h"

#include <string.h>

#include "mesh/group.h"

bool experts_are_spread(const struct program *p)
{
    return mesh_expert_ranks(&p->mesh) > 1;
}

bool experts_are_folded(const struct program *p)
{
    return p->mesh.folded >> AXIS_TENSOR & 1;
}

int experts_sources(const struct program *p)
{
    return p->mesh.size[AXIS_EXPERT];
}

struct expert_span experts_held(const struct program *p, int experts)
{
    const int count = experts / mesh_expert_ranks(&p->mesh);

    return (struct expert_span){
        mesh_expert_rank(&p->mesh, &p->place) * count, count};
}

int64_t experts_rows_most(const struct program *p,
                          const struct router_form *form)
{
    const int held = experts_held(p, form->experts).count;
    const int each = form->choices < held ? form->choices : held;

    if (!experts_are_spread(p)) return form->choices;
    return (int64_t)experts_sources(p) * each;
}

/* Context ranks add up leaves of gradients in one order, but choose turns by
 * tokens of their own: they have room for all. */
int64_t experts_rows_bound(const struct program *p,
                           const struct router_form *form)
{
    const int64_t most = experts_rows_most(p, form);
    const double bound = p->regular.rows_bound * form->choices *
                         experts_sources(p) / mesh_expert_ranks(&p->mesh);
    int64_t rows = 1;

    if (bound == 0 || bound >= (double)most ||
        p->mesh.size[AXIS_CONTEXT] > 1)
        return most;
    while ((double)rows < bound) rows++;
    return rows;
}

static status check_sources(const struct program *p, int sources)
{
    const int batch = mesh_batch_ranks(&p->mesh);

    if (batch > sources && !grid_is_power(sources))
        FAIL(ERR_CONFIG, "mesh.expert: %d ranks beside %d of mesh.data and "
                         "mesh.shard; their sums are subtrees of the batch's "
                         "only for a power of two, such as %d", sources,
             batch / sources, sources > 4 ? 4 : 2);
    if (!grid_is_cut((int64_t)batch * p->grid.data, batch))
        FAIL(ERR_CONFIG, "mesh.expert: each of %d ranks that share the batch "
                         "has %d of its leaves, which are several subtrees; "
                         "set numerics.grid_data to a power of two times the "
                         "ranks, such as %d", batch, p->grid.data, batch);
    return OK;
}

status experts_check_ranks(const struct program *p,
                           const struct router_form *form)
{
    const int ranks = mesh_expert_ranks(&p->mesh);
    const int sources = experts_sources(p);
    int near = ranks;

    if (ranks == 1) return OK;
    while (form->experts % near != 0) near--;
    if (near != ranks && experts_are_folded(p))
        FAIL(ERR_CONFIG, "mesh.expert_tensor: %d ranks (mesh.expert times "
                         "mesh.tensor) do not divide the %d experts of a "
                         "block evenly; %d do, or mesh.expert_tensor=%d cuts "
                         "each expert over the tensor ranks", ranks,
             form->experts, near, program_tensor_ranks(p));
    if (near != ranks)
        FAIL(ERR_CONFIG, "mesh.expert: %d ranks do not divide the %d experts "
                         "of a block evenly; %d do", ranks, form->experts,
             near);
    return check_sources(p, sources);
}

/* ---- whose tokens are whose ---- */

/* Members that have parts of the tokens of one source. */
static int parts_of(const struct program *p)
{
    return experts_are_folded(p) ? program_tensor_ranks(p) : 1;
}

/* The part of each chunk that a member of a source has. */
struct token_parts { int64_t first, count; };

static struct token_parts part_of(const struct program *p, int part)
{
    const int64_t chunk = p->length / p->chunks;

    if (parts_of(p) == 1) return (struct token_parts){0, chunk};
    const struct layout_span span = program_part(p, part);

    return (struct token_parts){span.first, span.count};
}

/* Choices of the tokens that a member has. */
static int64_t entries_at(const struct program *p,
                          const struct router_form *form, int member)
{
    return program_rows(p) * part_of(p, member % parts_of(p)).count *
           form->choices;
}

/* The n-th choice of a member among those of its source. */
static int64_t entry_in_source(const struct program *p,
                               const struct router_form *form,
                               struct token_parts part, int64_t n)
{
    const int64_t token = n / form->choices;

    return (token / part.count * (p->length / p->chunks) + part.first +
            token % part.count) * form->choices + n % form->choices;
}

/* ---- who sends what ---- */

static int members_of(const struct program *p)
{
    return mesh_expert_ranks(&p->mesh);
}

static int own_member(const struct program *p)
{
    return mesh_expert_rank(&p->mesh, &p->place);
}

/* Choices of the tokens of a source. */
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

enum { SENDING_ARRAYS = 6 }; /* of [members] */

size_t sending_bytes(const struct program *p, const struct router_form *form)
{
    const size_t members = (size_t)members_of(p), number = sizeof(int32_t);
    const size_t sources = (size_t)experts_sources(p);
    const size_t rows = (size_t)(p->tokens * experts_rows_bound(p, form));
    const size_t entries = (size_t)entries_of(p, form);
    const size_t own = (size_t)entries_at(p, form, own_member(p));
    const size_t experts = (size_t)form->experts;

    return choice_lists_bytes((int64_t)(sources * entries), form->experts) +
           choice_lists_bytes((int64_t)own, form->experts) +
           arena_aligned(experts * sources * number) +
           arena_aligned((experts + 1) * number) +
           2 * arena_aligned(rows * number) + 3 * arena_aligned(own * number) +
           arena_aligned((size_t)parts_of(p) * sizeof(struct token_parts)) +
           SENDING_ARRAYS * arena_aligned(members * sizeof(int64_t));
}

/* Choices of members, one behind the other, as those of sources. */
static void place_choices(const struct program *p,
                          const struct router_form *form, const int32_t *from,
                          int32_t *joined)
{
    const int parts = parts_of(p);

    for (int m = 0; m < members_of(p); m++) {
        const struct token_parts part = part_of(p, m % parts);
        const int64_t count = entries_at(p, form, m);
        int32_t *to = joined + m / parts * entries_of(p, form);

        for (int64_t i = 0; i < count; i++)
            to[entry_in_source(p, form, part, i)] = from[i];
        from += count;
    }
}

status sending_join(struct run *run, const struct router_form *form,
                    const struct choice *own, int32_t *joined)
{
    const struct program *p = run->program;
    const int64_t all = entries_of(p, form) * experts_sources(p);
    const bool parts = parts_of(p) > 1;
    char *at = run->scratch;
    int64_t *counts =
        take(&at, (size_t)members_of(p) * sizeof *counts);
    const struct tensor out =
        tensor_1d(parts ? (void *)at : joined, DTYPE_I32, all);
    const struct comm_call call = {
        .kind = COMM_ALL_GATHER, .algorithm = ALGORITHM_ORDERED,
        .in = tensor_1d(own->chosen, DTYPE_I32, own->tokens * own->choices),
        .out = out, .out_counts = parts ? counts : NULL};

    for (int m = 0; m < members_of(p); m++)
        counts[m] = entries_at(p, form, m);
    TRY(comm_run(run->groups[AXIS_EXPERT], &call));
    if (parts) place_choices(p, form, out.data, joined);
    return OK;
}

static void count_pairs(struct sending *s)
{
    const struct program *p = s->run->program;
    const int64_t entries = entries_of(p, &s->form);
    const int sources = experts_sources(p);

    memset(s->counts, 0, (size_t)(s->form.experts * sources) *
                             sizeof *s->counts);
    for (int64_t i = 0; i < entries * sources; i++)
        if (s->joined.chosen[i] >= 0)
            s->counts[s->joined.chosen[i] * sources + i / entries]++;
}

/* Before the first turn. */
static void begin_turns(struct sending *s)
{
    const struct program *p = s->run->program;
    const int held = experts_held(p, s->form.experts).count;

    s->before = 0;
    for (int i = 0; i < members_of(p); i++) {
        s->ends[i] = s->to[i] = 0;
        s->at[i] = s->own.groups.offsets[i * held];
    }
    for (int i = 0; i < parts_of(p); i++) s->parts[i] = part_of(p, i);
}

/* This rank's choices, in the order of its tokens. */
static struct choice own_choice(const struct program *p,
                                const struct router_form *form,
                                const int32_t *joined, int32_t *chosen)
{
    const int member = own_member(p), parts = parts_of(p);
    const struct token_parts part = part_of(p, member % parts);
    const int64_t count = entries_at(p, form, member);

    joined += member / parts * entries_of(p, form);
    for (int64_t i = 0; i < count; i++)
        chosen[i] = joined[entry_in_source(p, form, part, i)];
    return (struct choice){.chosen = chosen, .choices = form->choices,
                           .tokens = count / form->choices};
}

void sending_begin(struct sending *s, struct run *run,
                   const struct router_form *form, int32_t *joined)
{
    const struct program *p = run->program;
    const int64_t entries = entries_of(p, form) * experts_sources(p);
    const size_t own = (size_t)entries_at(p, form, own_member(p));
    const size_t members = (size_t)members_of(p), number = sizeof(int32_t);
    const size_t rows = (size_t)(p->tokens * experts_rows_bound(p, form));
    const struct expert_span held = experts_held(p, form->experts);
    int64_t **const arrays[SENDING_ARRAYS] = {&s->to, &s->from, &s->at,
                                              &s->pairs, &s->ends, &s->next};
    char *at = run->scratch;

    *s = (struct sending){.run = run, .form = *form};
    s->joined = (struct choice){.chosen = joined, .choices = form->choices,
                                .tokens = p->tokens * experts_sources(p)};
    choice_lists_make(&s->joined, held.first, held.count, at, &s->held);
    at += choice_lists_bytes(entries, form->experts);
    const struct choice mine =
        own_choice(p, form, joined,
                   (int32_t *)(void *)(at + choice_lists_bytes((int64_t)own,
                                                       form->experts)));

    choice_lists_make(&mine, 0, form->experts, at, &s->own);
    at += choice_lists_bytes((int64_t)own, form->experts);
    take(&at, own * number); /* mine */
    s->counts = take(&at, (size_t)(form->experts * experts_sources(p)) *
                              number);
    s->offsets = take(&at, ((size_t)form->experts + 1) * number);
    s->arrival = take(&at, rows * number);
    s->order = take(&at, rows * number);
    s->tokens = take(&at, own * number);
    s->entries = take(&at, own * number);
    s->parts = take(&at, (size_t)parts_of(p) * sizeof *s->parts);
    for (int i = 0; i < SENDING_ARRAYS; i++)
        *arrays[i] = take(&at, members * sizeof(int64_t));
    CHECK(at == (char *)run->scratch + sending_bytes(p, form));
    count_pairs(s);
    begin_turns(s);
}

/* The member that sends an entry of the joined choices. */
static int sender_of(const struct sending *s, int64_t entry)
{
    const struct program *p = s->run->program;
    const int64_t entries = entries_of(p, &s->form);
    const int64_t at =
        entry % entries / s->form.choices % (p->length / p->chunks);
    const int parts = parts_of(p);
    int part = 0;

    while (part + 1 < parts &&
           at >= s->parts[part].first + s->parts[part].count)
        part++;
    return (int)(entry / entries) * parts + part;
}

/* Where the turn of a holder ends that begins with a pair. */
static int64_t turn_end(const struct sending *s, int holder, int64_t pair)
{
    const struct program *p = s->run->program;
    const int64_t all = (int64_t)experts_held(p, s->form.experts).count *
                        experts_sources(p);
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
    const int sources = experts_sources(p);
    const int source = own_member(p) / parts_of(p);
    const int held = experts_held(p, s->form.experts).count;
    const int32_t *offsets = s->own.groups.offsets;
    int64_t sent = 0;

    for (int h = 0; h < members_of(p); h++) {
        s->at[h] += s->to[h];
        s->to[h] = 0;
        for (int64_t i = s->pairs[h]; i < s->ends[h]; i++) {
            const int64_t expert = (int64_t)h * held + i / sources;

            if (i % sources == source)
                s->to[h] += offsets[expert + 1] - offsets[expert];
        }
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

/* Each member sends the rows of an expert by position, one expert after the
 * other, so the n-th row of a member among those of a turn is the n-th that
 * comes of it. */
static void find_arrivals(struct sending *s, const struct turn *turn)
{
    const struct program *p = s->run->program;
    const int32_t *rows = turn->lists.groups.entries;
    int64_t before = 0;

    for (int i = 0; i < members_of(p); i++) s->from[i] = 0;
    for (int64_t i = 0; i < turn->rows; i++) s->from[sender_of(s, rows[i])]++;
    for (int i = 0; i < members_of(p); i++) {
        s->next[i] = before;
        before += s->from[i];
    }
    for (int64_t i = 0; i < turn->rows; i++) {
        const int64_t at = s->next[sender_of(s, rows[i])]++;

        s->arrival[i] = (int32_t)at;
        s->order[at] = (int32_t)i;
    }
}

bool sending_next(struct sending *s, struct turn *turn)
{
    const struct program *p = s->run->program;
    const int own = own_member(p);
    const int64_t all = (int64_t)experts_held(p, s->form.experts).count *
                        experts_sources(p);
    bool more = false;

    for (int h = 0; h < members_of(p); h++) {
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
    for (int i = 0; i < members_of(s->run->program); i++) {
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
    const int rank = own_member(run->program);
    const struct comm_call call = {
        .kind = COMM_ALL_TO_ALL, .algorithm = ALGORITHM_ORDERED,
        .in = flat(goes ? mine : theirs), .out = flat(goes ? theirs : mine),
        .in_counts = goes ? s->to : s->from,
        .out_counts = goes ? s->from : s->to};
    status result;

    CHECK(run->groups[AXIS_EXPERT] != NULL);
    scale_counts(s, mine.shape[1], true);
    run->routed.calls++;
    for (int i = 0; i < members_of(run->program); i++)
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

    for (int i = 0; i < members_of(s->run->program); i++) {
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
