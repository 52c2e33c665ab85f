/* SPDX-License-Identifier: Apache-2.0 */
/* search_untried.c - which values of each choice a search leaves out, where the
 * model and the ranks allow them. */
#include "planner/search_untried.h"

#include <string.h>

#include "planner/search_families.h"
#include "planner/search_sets.h"

struct untried {
    const struct search_request *request;
    char (*out)[UNTRIED_BYTES];
    int count;
};

static bool tensor_divides(const struct search_request *r, int n)
{
    const struct shape *s = r->shape;

    return s->heads % n == 0 && s->width % n == 0 && s->feed_forward % n == 0;
}

static bool pipe_divides(const struct search_request *r, int n)
{
    return n <= r->shape->layers;
}

static bool expert_divides(const struct search_request *r, int n)
{
    return r->shape->experts > 0 && r->shape->experts % n == 0;
}

/* An axis that may have more ranks than are tried. */
static void tell_more(struct untried *u, const char *axis, int most,
                      bool (*divides)(const struct search_request *, int))
{
    const int ranks = u->request->ranks;

    for (int n = most + 1; n <= ranks && n <= 1 << 12; n++)
        if (ranks % n == 0 && divides(u->request, n)) {
            snprintf(u->out[u->count++], UNTRIED_BYTES,
                     "%s %d: at most %d are tried", axis, n, most);
            return;
        }
}

static void tell_context(struct untried *u)
{
    const struct search_request *r = u->request;

    for (int c = 2; c <= r->ranks && c <= r->shape->sequence; c++) {
        const int64_t tokens = r->shape->sequence / c;

        if (r->ranks % c != 0 || r->shape->sequence % (2 * c) != 0 ||
            (c <= CONTEXT_MOST && tokens >= CONTEXT_TOKENS))
            continue;
        snprintf(u->out[u->count++], UNTRIED_BYTES,
                 "context %d: %lld tokens of a rank; at least %d, and at most "
                 "%d ranks, are tried", c, (long long)tokens, CONTEXT_TOKENS,
                 CONTEXT_MOST);
        return;
    }
}

static void tell_micro_batches(struct untried *u)
{
    const struct search_fixed *f = u->request->fixed;

    for (int64_t b = 3; b <= u->request->batch && b <= MICRO_MOST; b += 2)
        if (u->request->batch % b == 0 && (f == NULL || f->micro_batch < 0)) {
            snprintf(u->out[u->count++], UNTRIED_BYTES,
                     "micro-batch %lld: powers of two up to %d are tried",
                     (long long)b, MICRO_MOST);
            return;
        }
}

static void tell_schedules(struct untried *u)
{
    char *text = u->out[u->count];
    const char *last = "";
    size_t used;

    if (u->request->ranks < 2 || u->request->shape->layers < 2) return;
    snprintf(text, UNTRIED_BYTES, "schedules");
    for (int i = 0; i < SEARCH_SCHEDULES; i++) {
        const struct search_schedule *s = &search_schedules[i];

        if (!s->named || strcmp(s->name, last) == 0) continue;
        used = strlen(text);
        snprintf(text + used, UNTRIED_BYTES - used, "%s %s",
                 last[0] == 0 ? "" : ",", s->name);
        last = s->name;
    }
    used = strlen(text);
    snprintf(text + used, UNTRIED_BYTES - used, "%s",
             u->request->as != AS_LOCKSTEP
                 ? "" : ": `mesh: auto` tries one that schedule.name names");
    u->count++;
}

static void tell_shards(struct untried *u)
{
    const struct search_request *r = u->request;

    if (r->ranks < 4 || r->batch < 2) return;
    snprintf(u->out[u->count++], UNTRIED_BYTES,
             "mesh.shard over other ranks than the data ranks of a node%s",
             r->as != AS_LOCKSTEP     ? ", or as another program"
             : r->shape->experts > 0 ? ", or beside expert ranks" : "");
}

static void tell_order(struct untried *u)
{
    if (u->request->order == NULL) return;
    snprintf(u->out[u->count++], UNTRIED_BYTES,
             "layouts whose ranks mesh.order moves on several nodes: no time "
             "of theirs is known");
}

int search_untried(const struct search_request *request,
                   char out[UNTRIED_MOST][UNTRIED_BYTES])
{
    struct untried u = {request, out, 0};

    tell_more(&u, "tensor", TENSOR_MOST, tensor_divides);
    tell_context(&u);
    tell_more(&u, "pipe", PIPE_MOST, pipe_divides);
    tell_more(&u, "expert", EXPERT_MOST, expert_divides);
    tell_micro_batches(&u);
    tell_schedules(&u);
    tell_shards(&u);
    tell_order(&u);
    return u.count;
}
