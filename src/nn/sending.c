/* SPDX-License-Identifier: Apache-2.0 */
/* sending.c - when rows are sent to the ranks that have their experts. */
#include "nn/sending.h"

#include <string.h>

#include "mesh/group.h"

/* ---- whose tokens are whose ---- */

/* Members that have parts of the tokens of one source. */
static int parts_of(const struct program *p)
{
    return experts_are_folded(p) ? program_tensor_ranks(p) : 1;
}

/* The part of each context chunk that a member of a source has. */
struct token_parts { int64_t first, count; };

static struct token_parts part_of(const struct program *p, int part)
{
    const int64_t context_chunk = p->size.length / p->size.context_chunks;

    if (parts_of(p) == 1) return (struct token_parts){0, context_chunk};
    const struct layout_span span = program_part(p, part);

    return (struct token_parts){span.first, span.count};
}

int64_t sending_entries_at(const struct program *p,
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

    return (token / part.count * (p->size.length / p->size.context_chunks) +
            part.first + token % part.count) *
               form->choices +
           n % form->choices;
}

/* Choices of the tokens of a source. */
static int64_t entries_of(const struct program *p,
                          const struct router_form *form)
{
    return p->size.tokens * form->choices;
}

int64_t sending_entry(const struct sending *s, int member, int64_t n)
{
    const struct program *p = s->run->program;
    const int parts = parts_of(p);

    return member / parts * entries_of(p, &s->form) +
           entry_in_source(p, &s->form, s->parts[member % parts], n);
}

/* ---- who sends what ---- */

static int members_of(const struct program *p)
{
    return mesh_expert_ranks(&p->layout.mesh);
}

static int own_member(const struct program *p)
{
    return mesh_expert_rank(&p->layout.mesh, &p->layout.place);
}

static void *take(char **at, size_t bytes)
{
    void *memory = *at;

    *at += arena_aligned(bytes);
    return memory;
}

/* Nodes of members, and places of tokens. */
static size_t relay_arrays_bytes(const struct program *p)
{
    if (!sending_relays(p)) return 0;
    return arena_aligned((size_t)members_of(p) * sizeof(int)) +
           arena_aligned((size_t)(experts_sources(p) * p->size.tokens) *
                         sizeof(int32_t));
}

static void take_relay(struct sending *s, char **at)
{
    const struct program *p = s->run->program;

    if (!sending_relays(p)) return;
    s->relay.node = take(at, (size_t)members_of(p) * sizeof(int));
    s->relay.where = take(at, (size_t)(experts_sources(p) * p->size.tokens) *
                                  sizeof(int32_t));
    for (int m = 0; m < members_of(p); m++)
        s->relay.node[m] = mesh_expert_seat(&p->layout.mesh, m).node;
}

enum { SENDING_ARRAYS = 6, /* of [members] */
       HALF_ARRAYS = 5 };

size_t sending_bytes(const struct program *p, const struct router_form *form)
{
    const size_t members = (size_t)members_of(p), number = sizeof(int32_t);
    const size_t sources = (size_t)experts_sources(p);
    const size_t rows = (size_t)(p->size.tokens * experts_rows_bound(p, form));
    const size_t entries = (size_t)entries_of(p, form);
    const size_t own = (size_t)sending_entries_at(p, form, own_member(p));
    const size_t experts = (size_t)form->experts;

    return choice_lists_bytes((int64_t)(sources * entries), form->experts) +
           choice_lists_bytes((int64_t)own, form->experts) +
           arena_aligned(experts * sources * number) +
           arena_aligned((experts + 1) * number) +
           2 * arena_aligned(rows * number) + arena_aligned(own * number) +
           2 * arena_aligned(own * (size_t)experts_cut(p) * number) +
           arena_aligned((size_t)parts_of(p) * sizeof(struct token_parts)) +
           EXPERT_HALVES * arena_aligned((experts + 1) * number) +
           relay_arrays_bytes(p) +
           arena_aligned(EXPERT_HALVES * sizeof(struct sent_half)) +
           (SENDING_ARRAYS + EXPERT_HALVES * HALF_ARRAYS) *
               arena_aligned(members * sizeof(int64_t));
}

/* Values of members' choices, one behind the other, as those of sources. */
static status place_choices(struct run *run, const struct router_form *form,
                            struct tensor from, char *joined)
{
    const struct program *p = run->program;
    const int parts = parts_of(p);
    const int64_t token = form->choices * dtype_bytes(from.dtype);
    const int64_t context_chunk =
        p->size.length / p->size.context_chunks * token;
    char *at = from.data;

    for (int m = 0; m < members_of(p); m++) {
        const struct token_parts part = part_of(p, m % parts);
        char *to = joined + m / parts * p->size.tokens * token +
                   part.first * token;

        TRY(device_copy_rows(
            run->stream, (struct device_rows){to, context_chunk},
            (struct device_rows){at, part.count * token}, program_rows(p),
            (size_t)(part.count * token)));
        at += program_rows(p) * part.count * token;
    }
    return OK;
}

status sending_join(struct run *run, const struct router_form *form,
                    struct tensor own, void *joined)
{
    const struct program *p = run->program;
    const int64_t all = entries_of(p, form) * experts_sources(p);
    const bool parts = parts_of(p) > 1;
    int64_t *counts = run->lists;
    const struct tensor out = tensor_1d(
        parts ? (char *)run->scratch +
                    arena_aligned((size_t)members_of(p) * sizeof *counts)
              : joined,
        own.dtype, all);
    const struct comm_call call = {
        .kind = COMM_ALL_GATHER,
        .algorithm = mesh_expert_run(&p->layout.mesh) > 0 ? ALGORITHM_HIERARCHY
                                                   : ALGORITHM_ORDERED,
        .in = tensor_1d(own.data, own.dtype, tensor_count(&own)),
        .out = out, .out_counts = parts ? counts : NULL};

    for (int m = 0; m < members_of(p); m++)
        counts[m] = sending_entries_at(p, form, m);
    TRY(comm_run(run->groups[AXIS_EXPERT], &call));
    return parts ? place_choices(run, form, out, joined) : OK;
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
        s->at[i] = s->own.groups.offsets[i / experts_cut(p) * held];
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
    const int64_t count = sending_entries_at(p, form, member);

    joined += member / parts * entries_of(p, form);
    for (int64_t i = 0; i < count; i++)
        chosen[i] = joined[entry_in_source(p, form, part, i)];
    return (struct choice){.chosen = chosen, .choices = form->choices,
                           .tokens = count / form->choices};
}

static void take_halves(struct sending *s, char **at)
{
    const size_t members =
        (size_t)members_of(s->run->program) * sizeof(int64_t);

    s->halves = take(at, EXPERT_HALVES * sizeof *s->halves);
    memset(s->halves, 0, EXPERT_HALVES * sizeof *s->halves);
    for (int k = 0; k < EXPERT_HALVES; k++) {
        struct sent_half *half = &s->halves[k];
        int64_t **const arrays[HALF_ARRAYS] = {
            &half->first, &half->last, &half->to, &half->from, &half->at};

        half->offsets =
            take(at, ((size_t)s->form.experts + 1) * sizeof *half->offsets);
        for (int i = 0; i < HALF_ARRAYS; i++) *arrays[i] = take(at, members);
    }
}

size_t sending_counts_bytes(const struct program *p,
                            const struct router_form *form)
{
    return EXPERT_HALVES *
           (2 * arena_aligned((size_t)members_of(p) * sizeof(int64_t)) +
            sending_relay_bytes(p, form));
}

void sending_counts_lie(struct sending *s, void *memory)
{
    const size_t bytes =
        (size_t)members_of(s->run->program) * sizeof(int64_t);
    char *at = memory;

    for (int k = 0; k < EXPERT_HALVES; k++) {
        s->halves[k].in = take(&at, bytes);
        s->halves[k].out = take(&at, bytes);
        s->halves[k].handle = &s->run->rows_of_experts[k];
        s->halves[k].relay = sending_relay_lie(
            s, take(&at, sending_relay_bytes(s->run->program, &s->form)));
    }
}

int64_t sending_entries(const struct program *p,
                        const struct router_form *form)
{
    return sending_entries_at(p, form, own_member(p));
}

void sending_begin(struct sending *s, struct run *run,
                   const struct router_form *form, int32_t *joined)
{
    const struct program *p = run->program;
    const int64_t entries = entries_of(p, form) * experts_sources(p);
    const size_t own = (size_t)sending_entries_at(p, form, own_member(p));
    const size_t members = (size_t)members_of(p), number = sizeof(int32_t);
    const size_t rows = (size_t)(p->size.tokens * experts_rows_bound(p, form));
    const struct expert_span held = experts_held(p, form->experts);
    int64_t **const arrays[SENDING_ARRAYS] = {&s->to, &s->from, &s->at,
                                              &s->pairs, &s->ends, &s->next};
    char *at = run->lists;

    *s = (struct sending){.run = run, .form = *form};
    s->joined = (struct choice){.chosen = joined, .choices = form->choices,
                                .tokens = p->size.tokens * experts_sources(p)};
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
    s->tokens = take(&at, own * (size_t)experts_cut(p) * number);
    s->entries = take(&at, own * (size_t)experts_cut(p) * number);
    s->parts = take(&at, (size_t)parts_of(p) * sizeof *s->parts);
    for (int i = 0; i < SENDING_ARRAYS; i++)
        *arrays[i] = take(&at, members * sizeof(int64_t));
    take_halves(s, &at);
    take_relay(s, &at);
    CHECK(at == (char *)run->lists + sending_bytes(p, form));
    count_pairs(s);
    begin_turns(s);
}

/* The member that sends an entry of the joined choices. */
static int sender_of(const struct sending *s, int64_t entry)
{
    const struct program *p = s->run->program;
    const int64_t entries = entries_of(p, &s->form);
    const int64_t at = entry % entries / s->form.choices %
                       (p->size.length / p->size.context_chunks);
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
    const int64_t bound = p->size.tokens * experts_rows_bound(p, &s->form);
    const int32_t *counts = s->counts + holder / experts_cut(p) * all;
    int64_t rows = 0;

    while (pair < all && rows + counts[pair] <= bound) rows += counts[pair++];
    return pair;
}

/* Rows that travel together: of pairs [first, last) of each holder. */
struct rows_list {
    const int64_t *first, *last;
    int64_t *to, *from;
    const int64_t *at;  /* of those for each holder in `own` */
    int64_t before;     /* rows of this rank's experts before them */
    int32_t *offsets, *arrival, *order, *tokens, *entries;
};

/* Rows of this rank for a holder. */
static int64_t count_for(const struct sending *s, int holder, int64_t first,
                         int64_t last)
{
    const struct program *p = s->run->program;
    const int sources = experts_sources(p);
    const int source = own_member(p) / parts_of(p);
    const int held = experts_held(p, s->form.experts).count;
    const int32_t *offsets = s->own.groups.offsets;
    int64_t rows = 0;

    for (int64_t i = first; i < last; i++) {
        const int64_t expert =
            (int64_t)holder / experts_cut(p) * held + i / sources;

        if (i % sources == source)
            rows += offsets[expert + 1] - offsets[expert];
    }
    return rows;
}

/* Rows that this rank sends to each holder. */
static int64_t list_sent(const struct sending *s, const struct rows_list *l)
{
    int64_t sent = 0;

    for (int h = 0; h < members_of(s->run->program); h++) {
        l->to[h] = count_for(s, h, l->first[h], l->last[h]);
        for (int64_t i = 0; i < l->to[h]; i++, sent++) {
            l->entries[sent] = s->own.groups.entries[l->at[h] + i];
            l->tokens[sent] = l->entries[sent] / s->form.choices;
        }
    }
    return sent;
}

/* The lists of this rank's experts that have these rows alone. */
static void restrict_lists(const struct sending *s, const struct rows_list *l,
                           struct turn *turn)
{
    const int held = s->held.groups.experts;
    const int32_t *all = s->held.groups.offsets;
    const int32_t first = (int32_t)l->before;
    const int32_t last = (int32_t)(l->before + turn->rows);

    turn->lists = s->held;
    for (int e = 0; e <= held; e++) {
        const int32_t at = all[e] < first ? first : all[e];

        l->offsets[e] = (at > last ? last : at) - first;
    }
    turn->lists.groups.offsets = l->offsets;
    turn->lists.groups.entries += first;
}

/* Each member sends the rows of an expert by position, one expert after the
 * other, so the n-th row of a member among those of a turn is the n-th that
 * comes of it. */
static void find_arrivals(struct sending *s, const struct rows_list *l,
                          const struct turn *turn)
{
    const struct program *p = s->run->program;
    const int32_t *rows = turn->lists.groups.entries;
    int64_t before = 0;

    for (int i = 0; i < members_of(p); i++) l->from[i] = 0;
    for (int64_t i = 0; i < turn->rows; i++) l->from[sender_of(s, rows[i])]++;
    for (int i = 0; i < members_of(p); i++) {
        s->next[i] = before;
        before += l->from[i];
    }
    for (int64_t i = 0; i < turn->rows; i++) {
        const int64_t at = s->next[sender_of(s, rows[i])]++;

        l->arrival[i] = (int32_t)at;
        l->order[at] = (int32_t)i;
    }
}

static int64_t pairs_of(const struct sending *s)
{
    const struct program *p = s->run->program;

    return (int64_t)experts_held(p, s->form.experts).count *
           experts_sources(p);
}

static void list_rows(struct sending *s, const struct rows_list *l,
                      struct turn *turn)
{
    const int own = own_member(s->run->program);
    const int place = own / experts_cut(s->run->program);
    const int64_t all = pairs_of(s);

    *turn = (struct turn){.first = (int)l->first[own],
                          .last = (int)l->last[own]};
    for (int64_t i = turn->first; i < turn->last; i++)
        turn->rows += s->counts[place * all + i];
    turn->sent = list_sent(s, l);
    restrict_lists(s, l, turn);
    find_arrivals(s, l, turn);
}

bool sending_next(struct sending *s, struct turn *turn)
{
    const struct program *p = s->run->program;
    const int64_t all = pairs_of(s);
    bool more = false;

    for (int h = 0; h < members_of(p); h++) {
        s->pairs[h] = s->ends[h];
        s->ends[h] = turn_end(s, h, s->pairs[h]);
        s->at[h] += s->to[h];
        more |= s->pairs[h] < all;
    }
    if (!more) return false;
    if (s->pairs[own_member(p)] > 0) s->before += turn->rows;
    list_rows(s, &(struct rows_list){
        s->pairs, s->ends, s->to, s->from, s->at, s->before, s->offsets,
        s->arrival, s->order, s->tokens, s->entries}, turn);
    return true;
}

/* The pair before which about half of a holder's rows are. */
static int64_t half_of(const struct sending *s, int holder)
{
    const int place = holder / experts_cut(s->run->program);
    const int32_t *counts = s->counts + place * pairs_of(s);
    int64_t rows = 0, before = 0, pair = s->pairs[holder];

    for (int64_t i = pair; i < s->ends[holder]; i++) rows += counts[i];
    while (pair < s->ends[holder] && 2 * before < rows)
        before += counts[pair++];
    return pair;
}

void sending_cut(struct sending *s, const struct turn *turn)
{
    struct sent_half *left = &s->halves[0], *right = &s->halves[1];

    for (int h = 0; h < members_of(s->run->program); h++) {
        left->first[h] = s->pairs[h];
        left->last[h] = right->first[h] = half_of(s, h);
        right->last[h] = s->ends[h];
        left->at[h] = s->at[h];
        right->at[h] =
            s->at[h] + count_for(s, h, left->first[h], left->last[h]);
    }
    for (int k = 0; k < EXPERT_HALVES; k++) {
        struct sent_half *half = &s->halves[k];

        half->row = k == 0 ? 0 : left->turn.rows;
        half->own = k == 0 ? 0 : left->turn.sent;
        list_rows(s, &(struct rows_list){
            half->first, half->last, half->to, half->from, half->at,
            s->before + half->row, half->offsets, s->arrival + half->row,
            s->order + half->row, s->tokens + half->own,
            s->entries + half->own}, &half->turn);
    }
    CHECK(right->row + right->turn.rows == turn->rows &&
          right->own + right->turn.sent == turn->sent);
}
