/* SPDX-License-Identifier: Apache-2.0 */
/* verify_pipe.c - whether the lists of all ranks of a pipe can be trusted
 * together: a walk in which all of them go on as far as they can. */
#include "list/verify.h"

#include "base/arena.h"
#include "list/partners.h"

struct walk {
    const struct step_list *lists;
    int count;
    int *at;        /* owned, [count]: instruction that comes next */
    bool *has;      /* owned, [count][stages]: which compute a stage */
    int stages;
    struct partners partners;
    int **waiter;   /* owned, [count][instructions]: who needs it; -1 */
};

/* A send is over when the other side waits for it, a receive when the other
 * side has begun to send. */
static bool is_over(const struct walk *w, int rank, int number)
{
    const struct instruction *i = &w->lists[rank].items[number];
    const int partner = w->partners.of[rank][number];

    /* Ranks of other groups have the same list. */
    if (!instruction_is_message(i)) return true;
    if (i->kind == DO_RECEIVE || i->kind == DO_RECEIVE_BACK)
        return w->at[i->peer] > partner;
    return w->at[i->peer] > partner &&
           w->at[i->peer] >= w->waiter[i->peer][partner];
}

static bool needs_are_over(const struct walk *w, int rank)
{
    const struct step_list *list = &w->lists[rank];
    const int32_t *needs = list_needs(list, w->at[rank]);

    for (int n = 0; n < list->items[w->at[rank]].needs; n++)
        if (!is_over(w, rank, needs[n])) return false;
    return true;
}

/* ---- calls over ranks of the pipe ---- */

static bool is_together(const struct instruction *i)
{
    return i->calls > 0 && (i->resource == RESOURCE_WORLD ||
                            i->resource == RESOURCE_PEER || i->kind == DO_TIE);
}

static bool takes_part(const struct walk *w, const struct instruction *i,
                       int rank)
{
    if (i->kind == DO_TIE) return i->peer == rank;
    if (i->resource == RESOURCE_WORLD) return true;
    return i->stage >= 0 && w->has[rank * w->stages + i->stage];
}

/* Whether the rank stands at the other side of this call. */
static bool stands_at(const struct walk *w, int rank,
                      const struct instruction *i, int from)
{
    const struct instruction *other =
        &w->lists[rank].items[w->at[rank]];

    if (w->at[rank] >= w->lists[rank].count) return false;
    if (other->kind != i->kind || !needs_are_over(w, rank)) return false;
    return i->kind != DO_TIE ? other->stage == i->stage
                             : other->peer == from;
}

/* All ranks of the call go on together. */
static bool go_together(struct walk *w, int rank)
{
    const struct instruction *i = &w->lists[rank].items[w->at[rank]];

    for (int r = 0; r < w->count; r++)
        if (r != rank && takes_part(w, i, r) && !stands_at(w, r, i, rank))
            return false;
    for (int r = 0; r < w->count; r++)
        if (r != rank && takes_part(w, i, r)) w->at[r]++;
    w->at[rank]++;
    return true;
}

/* ---- the walk ---- */

/* As far as the list goes; whether it moved. */
static bool advance(struct walk *w, int rank)
{
    const struct step_list *list = &w->lists[rank];
    bool moved = false;

    while (w->at[rank] < list->count) {
        const struct instruction *i = &list->items[w->at[rank]];

        if (!needs_are_over(w, rank)) break;
        if (is_together(i)) {
            if (!go_together(w, rank)) break;
        } else {
            w->at[rank]++;
        }
        moved = true;
    }
    return moved;
}

static status explain(const struct walk *w, int rank)
{
    const struct step_list *list = &w->lists[rank];
    const int number = w->at[rank];
    const struct instruction *i = &list->items[number];
    const int32_t *needs = list_needs(list, number);
    char text[INSTRUCTION_BYTES], other[INSTRUCTION_BYTES];

    for (int n = 0; n < i->needs; n++)
        if (!is_over(w, rank, needs[n]))
            FAIL(ERR_VERIFY, "rank %d of the pipe waits forever: instruction "
                             "%d, %s, needs %d, %s", rank, number,
                 instruction_text(text, i), needs[n],
                 instruction_text(other, &list->items[needs[n]]));
    FAIL(ERR_VERIFY, "rank %d of the pipe waits forever: instruction %d, %s, "
                     "which other ranks do not make next", rank, number,
         instruction_text(text, i));
}

static status run(struct walk *w)
{
    bool moved = true;

    while (moved) {
        moved = false;
        for (int rank = 0; rank < w->count; rank++)
            if (advance(w, rank)) moved = true;
    }
    for (int rank = 0; rank < w->count; rank++)
        if (w->at[rank] < w->lists[rank].count) return explain(w, rank);
    return OK;
}

/* ---- all ---- */

static status take(size_t count, int **out)
{
    void *memory = NULL;

    TRY(memory_take(count + 1, sizeof **out, &memory));
    *out = memory;
    for (size_t i = 0; i <= count; i++) (*out)[i] = -1;
    return OK;
}

static status find_stages(struct walk *w)
{
    void *memory = NULL;

    for (int rank = 0; rank < w->count; rank++)
        for (int n = 0; n < w->lists[rank].count; n++)
            if (w->lists[rank].items[n].stage >= w->stages)
                w->stages = w->lists[rank].items[n].stage + 1;
    TRY(memory_take((size_t)w->count * (size_t)w->stages + 1, sizeof *w->has,
                    &memory));
    w->has = memory;
    for (int rank = 0; rank < w->count; rank++)
        for (int n = 0; n < w->lists[rank].count; n++) {
            const struct instruction *i = &w->lists[rank].items[n];

            if (instruction_computes(i))
                w->has[rank * w->stages + i->stage] = true;
        }
    return OK;
}

static status build(struct walk *w)
{
    const size_t count = (size_t)w->count;
    void *memory = NULL;

    TRY(memory_take(count, sizeof *w->at, &memory));
    w->at = memory;
    TRY(memory_take(count, sizeof *w->waiter, &memory));
    w->waiter = memory;
    for (int rank = 0; rank < w->count; rank++) {
        const struct step_list *list = &w->lists[rank];

        TRY(take((size_t)list->count, &w->waiter[rank]));
        for (int n = 0; n < list->count; n++)
            for (int j = 0; j < list->items[n].needs; j++)
                w->waiter[rank][list_needs(list, n)[j]] = n;
    }
    TRY(find_stages(w));
    return partners_build(&w->partners, w->lists, w->count);
}

static void free_all(struct walk *w)
{
    for (int i = 0; w->waiter != NULL && i < w->count; i++)
        memory_free(w->waiter[i]);
    memory_free(w->waiter);
    memory_free(w->has);
    partners_free(&w->partners);
    memory_free(w->at);
}

status lists_verify_pipe(const struct step_list *lists, int count)
{
    struct walk w = {.lists = lists, .count = count};
    status result;

    TRY_GOTO(done, result, build(&w));
    result = run(&w);
done:
    free_all(&w);
    return result;
}

status lists_verify(const struct step_list *lists,
                    const struct pipeline *pipelines, int count)
{
    for (int i = 0; i < count; i++)
        TRY(list_verify(&lists[i], &pipelines[i]));
    return lists_verify_pipe(lists, count);
}

/* The axes along which the ranks of an instruction's resource differ. */
static axis_set axes_of(const struct pipeline *p, const struct instruction *i)
{
    const struct shards *shards = &p->stages[i->chunk].shards;
    const struct shard_class *c;

    if (i->unit < 0) return 0;
    c = shard_class(shards, i->unit);
    return i->resource == RESOURCE_SHARD ? c->divided : c->copied & ~c->divided;
}

/* Shares of whole matrices differ, so some ranks send nothing in them. */
static bool is_of_channel(const struct instruction *i,
                          const struct list_channel *c)
{
    if (i->resource != (uint8_t)c->resource) return false;
    if (c->stage >= 0 && i->stage != c->stage) return false;
    if (i->calls == 0 && i->resource != RESOURCE_MATRICES &&
        !instruction_computes(i))
        return false;
    return c->axes == 0 || axes_of(c->pipeline, i) == c->axes;
}

/* Does `i` go on where `before` ends? Ranks may cut a pass at other places:
 * where all experts of one of them are frozen it has no sum to send. */
static bool goes_on(const struct instruction *before,
                    const struct instruction *i)
{
    return before != NULL && before->kind == i->kind &&
           before->stage == i->stage && before->microbatch == i->microbatch &&
           before->round == i->round && before->unit == i->unit &&
           before->item == i->item && before->peer == i->peer &&
           before->first_event < before->last_event &&
           before->last_event == i->first_event;
}

static uint64_t mixed(uint64_t hash, int64_t fact)
{
    return (hash ^ (uint64_t)fact) * 1099511628211ULL;
}

/* Places in tables of this rank's own do not count: a unit says the same, and
 * frozen experts have no place. */
uint64_t list_channel_hash(const struct step_list *list,
                           const struct list_channel *channel)
{
    const struct instruction *before = NULL;
    uint64_t hash = 14695981039346656037ULL;

    for (int n = 0; n < list->count; n++) {
        const struct instruction *i = &list->items[n];
        const int64_t facts[] = {i->kind, i->stage, i->microbatch, i->round,
                                 i->unit, i->unit < 0 ? i->item : 0, i->peer,
                                 i->first_event};

        if (!is_of_channel(i, channel)) continue;
        if (!goes_on(before, i)) {
            if (before != NULL) hash = mixed(hash, before->last_event);
            for (size_t f = 0; f < sizeof facts / sizeof *facts; f++)
                hash = mixed(hash, facts[f]);
        }
        before = i;
    }
    return before == NULL ? hash : mixed(hash, before->last_event);
}
