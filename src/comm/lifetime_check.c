/* SPDX-License-Identifier: Apache-2.0 */
/* lifetime_check.c - the checks of LOCKSTEP_CHECK=lives for messages in the
 * background. */
#include "comm/lifetime_check.h"

#include "base/clock.h"
#include "comm/call_memory.h"
#include "comm/rank.h"

enum { STUCK_NS = 100000000 };

/* The calls under way on this rank. This thread starts them and waits for
 * them. */
static _Thread_local struct comm_handle *under_way;

/* ---- the memory of a call ---- */

struct seek {
    const char *data;
    int64_t bytes;
    bool found;
};

static void seek_span(void *argument, char *data, int64_t bytes)
{
    struct seek *seek = argument;

    if (data < seek->data + seek->bytes && seek->data < data + bytes)
        seek->found = true;
}

static bool touches(const struct group *group, const struct comm_call *call,
                    enum call_side side, const void *data, int64_t bytes)
{
    struct seek seek = {.data = data, .bytes = bytes};

    call_visit(group, call, side, seek_span, &seek);
    return seek.found;
}

/* Whether spans of one call lie on spans of another. */
struct meeting {
    const struct group *group;
    const struct comm_call *call;
    enum call_side side;
    bool found;
};

static void meet_span(void *argument, char *data, int64_t bytes)
{
    struct meeting *m = argument;

    m->found = m->found || touches(m->group, m->call, m->side, data, bytes);
}

static bool meets(const struct group *group, const struct comm_call *call,
                  enum call_side side, struct meeting other)
{
    call_visit(group, call, side, meet_span, &other);
    return other.found;
}

static bool is_in_place(const struct comm_handle *h)
{
    return meets(h->group, &h->call, CALL_WRITES,
                 (struct meeting){h->group, &h->call, CALL_READS, false});
}

/* ---- fills and hashes ---- */

static void fill_span(void *argument, char *data, int64_t bytes)
{
    (void)argument;
    check_fill(data, bytes, FILL_UNDER_WAY);
}

static void look_span(void *argument, char *data, int64_t bytes)
{
    bool *filled = argument;

    *filled = *filled && check_filled(data, bytes, FILL_UNDER_WAY);
}

static void hash_span(void *argument, char *data, int64_t bytes)
{
    uint64_t *hash = argument;

    *hash = check_hash(*hash, data, bytes);
}

static uint64_t hash_of(const struct comm_handle *h, enum call_side side)
{
    uint64_t hash = CHECK_HASH_BEGIN;

    call_visit(h->group, &h->call, side, hash_span, &hash);
    return hash;
}

/* ---- memory of a device ---- */

static bool is_apart(const struct comm_handle *h)
{
    return h->ready.kernels.queue != NULL;
}

static void spoil_span(void *argument, char *data, int64_t bytes)
{
    status *result = argument;
    bool is_there;

    if (*result == OK) *result = device_spoil(data, (size_t)bytes, &is_there);
}

status lives_spoil(const struct group *group, const struct comm_call *call)
{
    const struct meeting reads = {group, call, CALL_READS, false};
    status result = OK;

    if (check_lives() == CHECK_OFF || meets(group, call, CALL_WRITES, reads))
        return OK;
    call_visit(group, call, CALL_WRITES, spoil_span, &result);
    return result;
}

status lives_dead(void *data, int64_t bytes)
{
    bool is_there;

    if (bytes == 0) return OK;
    TRY(device_spoil(data, (size_t)bytes, &is_there));
    if (!is_there) check_fill(data, bytes, FILL_DEAD);
    return OK;
}

/* ---- calls ---- */

/* One call's memory is another's: two may read the same, no more. */
static status conflict(const struct group *group, const struct comm_call *call)
{
    for (const struct comm_handle *h = under_way; h != NULL;
         h = h->under_way) {
        const struct meeting reads = {h->group, &h->call, CALL_READS, false};
        const struct meeting writes = {h->group, &h->call, CALL_WRITES, false};

        if (meets(group, call, CALL_READS, writes) ||
            meets(group, call, CALL_WRITES, writes) ||
            meets(group, call, CALL_WRITES, reads))
            FAIL(ERR_VERIFY, "LOCKSTEP_CHECK: %s on group %s uses memory of "
                 "%s on group %s, which is under way",
                 comm_kind_name(call->kind), group->label,
                 comm_kind_name(h->call.kind), h->group->label);
    }
    return OK;
}

status lives_call(const struct group *group, const struct comm_call *call)
{
    return check_lives() == CHECK_OFF ? OK : conflict(group, call);
}

status lives_start(struct comm_handle *h)
{
    if (check_lives() == CHECK_OFF) return OK;
    TRY(conflict(h->group, &h->call));
    h->in_place = is_apart(h) || is_in_place(h);
    if (!h->in_place) {
        call_visit(h->group, &h->call, CALL_WRITES, fill_span, NULL);
        h->read = hash_of(h, CALL_READS);
    }
    h->under_way = under_way;
    under_way = h;
    return OK;
}

void lives_wait_begin(struct comm_rank *self)
{
    if (check_lives() == CHECK_LATE)
        atomic_store(&self->waits_ns, clock_ns());
}

void lives_wait_end(struct comm_rank *self)
{
    if (check_lives() == CHECK_LATE) atomic_store(&self->waits_ns, 0);
}

void lives_hold_begin(struct comm_rank *self)
{
    if (check_lives() == CHECK_LATE)
        atomic_store(&self->holds_ns, clock_ns());
}

void lives_hold_end(struct comm_rank *self)
{
    if (check_lives() == CHECK_LATE) atomic_store(&self->holds_ns, 0);
}

static bool is_long(int64_t since)
{
    return since != 0 && clock_ns() - since >= STUCK_NS;
}

bool lives_stuck(const struct comm_rank *self)
{
    return is_long(atomic_load(&self->waits_ns)) ||
           is_long(atomic_load(&self->holds_ns));
}

static bool is_filled(const struct comm_handle *h)
{
    bool filled = true;

    if (!h->in_place)
        call_visit(h->group, &h->call, CALL_WRITES, look_span, &filled);
    return filled;
}

void lives_release(struct comm_handle *h)
{
    if (check_lives() != CHECK_OFF) h->spoilt = !is_filled(h);
}

void lives_done(struct comm_handle *h)
{
    if (check_lives() != CHECK_OFF && !is_apart(h))
        h->written = hash_of(h, CALL_WRITES);
}

void lives_changed(struct comm_handle *h)
{
    if (check_lives() != CHECK_OFF && !h->in_place)
        h->read = hash_of(h, CALL_READS);
}

static void forget(const struct comm_handle *handle)
{
    struct comm_handle **at = &under_way;

    while (*at != NULL && *at != handle) at = &(*at)->under_way;
    if (*at != NULL) *at = handle->under_way;
}

/* The outputs are unchanged: received data is still there, and nothing was
 * written where data will arrive. */
static bool outputs_kept(const struct comm_handle *h)
{
    if (h->done) return !h->spoilt && h->written == hash_of(h, CALL_WRITES);
    return is_filled(h);
}

status lives_wait(struct comm_handle *h)
{
    const char *which = NULL;

    if (check_lives() == CHECK_OFF) return OK;
    forget(h);
    if (is_apart(h)) return OK;
    if (!outputs_kept(h))
        which = "where it goes";
    else if (!h->in_place && h->read != hash_of(h, CALL_READS))
        which = "what it sends";
    if (which != NULL)
        FAIL(ERR_VERIFY, "LOCKSTEP_CHECK: %s on group %s: %s was written while "
             "it was under way", comm_kind_name(h->call.kind), h->group->label,
             which);
    return OK;
}

status lives_end(void *data, int64_t bytes, const char *what)
{
    const void *seen;

    if (check_lives() == CHECK_OFF || bytes == 0) return OK;
    seen = device_seen(data);
    for (const struct comm_handle *h = under_way; h != NULL; h = h->under_way)
        if (touches(h->group, &h->call, CALL_READS, seen, bytes) ||
            touches(h->group, &h->call, CALL_WRITES, seen, bytes))
            FAIL(ERR_VERIFY, "LOCKSTEP_CHECK: %s is given back while %s on "
                 "group %s, which uses it, is under way", what,
                 comm_kind_name(h->call.kind), h->group->label);
    return lives_dead(data, bytes);
}
