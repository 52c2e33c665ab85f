/* SPDX-License-Identifier: Apache-2.0 */
/* known_schedules.c - a table that fills: the first thread that asks for an
 * entry makes it, others that ask for it wait, and nobody changes it again. */
#include "schedule/known_schedules.h"

#include <pthread.h>
#include <string.h>

#include "base/arena.h"
#include "schedule/lower.h"
#include "schedule/room.h"

enum { ACTIONS_MOST = 1 << 24 }; /* that are kept: with transfers 0.3 GB */

enum made { NOT_MADE, IS_MADE_NOW, MADE };
struct known_schedule {
    struct schedule_request request;
    struct schedule plain, lowered; /* owned */
    enum made has_plain, has_lowered;
};

struct known_schedules {
    pthread_mutex_t lock;           /* of all below, but what is MADE */
    pthread_cond_t change;
    struct known_schedule **items;  /* owned */
    int count, capacity;
    int64_t actions;                /* of plain ones */
};

status known_schedules_open(struct known_schedules **out)
{
    void *memory = NULL;

    TRY(memory_take(1, sizeof **out, &memory));
    *out = memory;
    pthread_mutex_init(&(*out)->lock, NULL);
    pthread_cond_init(&(*out)->change, NULL);
    return OK;
}

void known_schedules_free(struct known_schedules *known)
{
    if (known == NULL) return;
    for (int i = 0; i < known->count; i++) {
        schedule_free(&known->items[i]->plain);
        schedule_free(&known->items[i]->lowered);
        memory_free(known->items[i]);
    }
    memory_free(known->items);
    pthread_mutex_destroy(&known->lock);
    pthread_cond_destroy(&known->change);
    memory_free(known);
}

static bool same_request(const struct schedule_request *a,
                         const struct schedule_request *b)
{
    return strcmp(a->name, b->name) == 0 && a->ranks == b->ranks &&
           a->microbatches == b->microbatches && a->chunks == b->chunks &&
           a->group == b->group && a->forward_ns == b->forward_ns &&
           a->backward_input_ns == b->backward_input_ns &&
           a->backward_weight_ns == b->backward_weight_ns &&
           a->transfer_ns == b->transfer_ns &&
           a->memory_limit == b->memory_limit &&
           a->weight_memory == b->weight_memory;
}

/* The entry of a request, which is new if nobody asked before; *out is NULL
 * where the table is full. */
static status find_or_add(struct known_schedules *known,
                          const struct schedule_request *request,
                          struct known_schedule **out)
{
    void *items = known->items, *memory = NULL;

    for (int i = 0; i < known->count; i++) {
        *out = known->items[i];
        if (same_request(&(*out)->request, request)) return OK;
    }
    *out = NULL;
    if (known->actions >= ACTIONS_MOST) return OK;
    TRY(memory_next(&items, &known->capacity, known->count, 16,
                    sizeof *known->items));
    known->items = items;
    TRY(memory_take(1, sizeof **out, &memory));
    *out = known->items[known->count++] = memory;
    (*out)->request = *request;
    return OK;
}

/* Whether the caller is to make it: not, if it is there. */
static bool begin_making(struct known_schedules *known, enum made *made)
{
    while (*made == IS_MADE_NOW)
        pthread_cond_wait(&known->change, &known->lock);
    if (*made == MADE) return false;
    *made = IS_MADE_NOW;
    return true;
}

static void end_making(struct known_schedules *known, enum made *made,
                       status result)
{
    *made = result == OK ? MADE : NOT_MADE;
    pthread_cond_broadcast(&known->change);
}

static struct schedule lend(const struct schedule *schedule)
{
    struct schedule lent = *schedule;

    lent.borrowed = true;
    return lent;
}

static int64_t actions_of(const struct schedule *s)
{
    int64_t sum = 0;

    for (int rank = 0; rank < s->ranks; rank++) sum += s->lists[rank].count;
    return sum;
}

/* With the lock. */
static status make_locked(struct known_schedules *known,
                          struct known_schedule *k)
{
    status result;

    if (!begin_making(known, &k->has_plain)) return OK;
    pthread_mutex_unlock(&known->lock);
    result = schedule_make(&k->plain, &k->request);
    pthread_mutex_lock(&known->lock);
    end_making(known, &k->has_plain, result);
    if (result == OK) known->actions += actions_of(&k->plain);
    return result;
}

status known_schedules_make(struct known_schedules *known,
                            struct schedule *out,
                            const struct schedule_request *request)
{
    struct schedule_request named = *request;
    const struct schedule_row *row;
    struct known_schedule *k;
    status result;

    if (known == NULL) return schedule_make(out, request);
    TRY(schedule_row_find(request->name, &row));
    named.name = row->name; /* the caller's may not stay */
    pthread_mutex_lock(&known->lock);
    result = find_or_add(known, &named, &k);
    if (result == OK && k != NULL) result = make_locked(known, k);
    pthread_mutex_unlock(&known->lock);
    TRY(result);
    if (k == NULL) return schedule_make(out, request);
    *out = lend(&k->plain);
    return OK;
}

static status lower(struct schedule *schedule)
{
    TRY(schedule_lower(schedule));
    return schedule_returns(schedule, &schedule->returns);
}

static status copy_and_lower(struct schedule *out,
                             const struct schedule *plain)
{
    status result;

    TRY_GOTO(failed, result, schedule_copy(out, plain));
    TRY_GOTO(failed, result, lower(out));
    return OK;
failed:
    schedule_free(out);
    return result;
}

/* With the lock. */
static status lower_locked(struct known_schedules *known,
                           struct known_schedule *k)
{
    status result;

    if (!begin_making(known, &k->has_lowered)) return OK;
    pthread_mutex_unlock(&known->lock);
    result = copy_and_lower(&k->lowered, &k->plain);
    pthread_mutex_lock(&known->lock);
    end_making(known, &k->has_lowered, result);
    return result;
}

/* The entry that lent the schedule. */
static struct known_schedule *lender_of(const struct known_schedules *known,
                                        const struct schedule *schedule)
{
    for (int i = 0; i < known->count; i++)
        if (known->items[i]->has_plain == MADE &&
            known->items[i]->plain.lists == schedule->lists)
            return known->items[i];
    return NULL;
}

status known_schedules_lower(struct known_schedules *known,
                             struct schedule *schedule)
{
    struct known_schedule *k;
    status result = OK;

    if (!schedule->borrowed) return lower(schedule);
    pthread_mutex_lock(&known->lock);
    k = lender_of(known, schedule);
    CHECK(k != NULL);
    result = lower_locked(known, k);
    pthread_mutex_unlock(&known->lock);
    if (result == OK) *schedule = lend(&k->lowered);
    return result;
}
