/* SPDX-License-Identifier: Apache-2.0 */
/* search_families.c - the values of each choice of a search. */
#include "planner/search_families.h"

#include <string.h>

#include "planner/search_sets.h"

const struct search_schedule search_schedules[SEARCH_SCHEDULES] = {
    {"1f1b", 1, false, IDLE_CHUNKS, false},
    {"interleaved", 2, true, IDLE_CHUNKS, false},
    {"interleaved", 4, true, IDLE_CHUNKS, false},
    {"interleaved", 8, true, IDLE_CHUNKS, false},
    {"zb-h1", 1, false, IDLE_LATE, false}, {"zb-v", 2, false, IDLE_V, false},
    {"gpipe", 1, false, IDLE_CHUNKS, true},
    {"gpipe-early-send", 1, false, IDLE_LATE, true},
    {"1f1b-early-send", 1, false, IDLE_LATE, true},
    {"breadth-first", 2, true, IDLE_CHUNKS, true},
    {"breadth-first", 4, true, IDLE_CHUNKS, true},
    {"breadth-first", 8, true, IDLE_CHUNKS, true},
    {"zb-h2", 1, false, IDLE_NOT, true}, {"zb-1p", 1, false, IDLE_NOT, true},
    {"zb-2p", 1, false, IDLE_NOT, true}, {"v-half", 2, false, IDLE_NOT, true},
    {"v-min", 2, false, IDLE_NOT, true}, {"dualpipe", 1, false, IDLE_NOT, true},
    {"dualpipev", 2, false, IDLE_NOT, true}};

static const char *const folds[FOLDS] = {
    "no fold", "fold of tensor", "fold of context", "fold of both"};

static void family_name(int choice, int value, char *out)
{
    static const char *const names[CHOICES] = {
        "tensor", "context", "pipe", "expert", "fold", "micro-batch", "zero",
        "recompute", "schedule"};

    if (choice == CHOICE_ZERO && value > PRESETS_LAST)
        snprintf(out, FAMILY_BYTES, "%s",
                 search_sets[value - PRESETS_LAST - 1].name);
    else if (choice == CHOICE_FOLD)
        snprintf(out, FAMILY_BYTES, "%s", folds[value]);
    else if (choice == CHOICE_RECOMPUTE)
        snprintf(out, FAMILY_BYTES, "recompute %s", recompute_names[value]);
    else if (choice == CHOICE_SCHEDULE)
        snprintf(out, FAMILY_BYTES, "%s, %d chunk%s",
                 search_schedules[value].name, search_schedules[value].chunks,
                 search_schedules[value].chunks > 1 ? "s" : "");
    else
        snprintf(out, FAMILY_BYTES, "%s %d", names[choice], value);
}

struct family *families_find(struct search *s, int choice, int value)
{
    for (int i = 0; i < s->family_count; i++)
        if (s->families[i].choice == choice && s->families[i].value == value)
            return &s->families[i];
    return NULL;
}

static struct family *make(struct search *s, int choice, int value)
{
    struct family *found = families_find(s, choice, value);

    if (found != NULL) return found;
    if (s->family_count == FAMILIES_MOST) return &s->families[0];
    struct family *f = &s->families[s->family_count++];

    *f = (struct family){.choice = choice, .value = value, .best = -1};
    family_name(choice, value, f->name);
    return f;
}

void families_values(const struct layout *l, int schedule,
                     int out[CHOICES])
{
    const int zero = l->whole_shards ? PRESETS_LAST + 1 + search_set_of(l)
                                     : l->zero;
    const int fold = (l->expert_tensor > 0 ? FOLD_TENSOR : 0) |
                     (l->expert_context ? FOLD_CONTEXT : 0);
    const int values[CHOICES] = {l->tensor, l->context, l->pipe, l->expert,
                                 fold, (int)l->micro_batch, zero,
                                 (int)l->recompute, schedule};

    memcpy(out, values, sizeof values);
}

void families_of(struct search *s, const struct layout *l, int schedule,
                 bool experts, struct family *out[CHOICES])
{
    int values[CHOICES];

    families_values(l, schedule, values);
    for (int i = 0; i < CHOICES; i++)
        if (experts || (i != CHOICE_EXPERT && i != CHOICE_FOLD))
            if (out[i] == NULL || out[i]->value != values[i])
                out[i] = make(s, i, values[i]);
}

struct family *families_join(struct search *s, const struct family *from)
{
    struct family *f = make(s, from->choice, from->value);

    f->candidates += from->candidates;
    f->feasible += from->feasible;
    if (from->least_over > 0 &&
        (f->least_over == 0 || from->least_over < f->least_over)) {
        f->least_over = from->least_over;
        f->position = from->position;
    }
    return f;
}

void families_close(struct search *s)
{
    int kept = 0;

    for (int i = 0; i < s->family_count; i++)
        if (s->families[i].candidates > 0)
            s->families[kept++] = s->families[i];
    s->family_count = kept;
}

/* ---- what won ---- */

int search_schedule_of(const struct layout *l)
{
    int row = 0;

    while (row < SEARCH_SCHEDULES - 1 &&
           (strcmp(search_schedules[row].name, l->schedule) != 0 ||
            search_schedules[row].chunks != l->chunks))
        row++;
    return row;
}

bool search_is_axis(const struct family *family)
{
    return family->choice <= CHOICE_EXPERT;
}

bool search_beside(const struct search *s, const struct family *f)
{
    int values[CHOICES];

    if (s->count == 0) return false;
    families_values(&s->found[s->first].layout, -1, values);
    if (f->choice == CHOICE_FOLD || f->choice >= CHOICE_ZERO)
        return f->value != values[f->choice];
    return f->value == 2 * values[f->choice] ||
           2 * f->value == values[f->choice];
}

void search_settle(struct search *s, int first)
{
    s->first = first;
    for (int f = 0; f < s->family_count; f++) s->families[f].best = -1;
    for (int i = 0; i < s->count; i++) {
        const struct candidate *c = &s->found[i];
        int values[CHOICES];

        if (!c->timed || c->refused) continue;
        families_values(&c->layout, search_schedule_of(&c->layout), values);
        for (int choice = 0; choice < CHOICES; choice++) {
            struct family *f = families_find(s, choice, values[choice]);

            if (f == NULL) continue;
            if (f->best < 0 || i == first ||
                (f->best != first && c->score < s->found[f->best].score))
                f->best = i;
        }
    }
}
