/* SPDX-License-Identifier: Apache-2.0 */
/* call_sums.c - checksums of what a rank sends and receives in a step, call by
 * call. */
#include "comm/call_sums.h"

#include <string.h>
#include "base/arena.h"
#include "base/file.h"
#include "comm/call_memory.h"
#include "comm/rank.h"
#include "device/device.h"

status call_sums_build(struct call_sums *sums)
{
    void *memory = NULL;

    *sums = (struct call_sums){.pass = 0};
    for (int i = 0; i < CALL_SUMS_PASSES; i++) {
        TRY(memory_take(CALL_SUMS_MOST, sizeof(struct call_sum), &memory));
        sums->calls[i] = memory;
    }
    return OK;
}

void call_sums_free(struct call_sums *sums)
{
    for (int i = 0; i < CALL_SUMS_PASSES; i++) memory_free(sums->calls[i]);
    *sums = (struct call_sums){.pass = 0};
}

void call_sums_begin(struct call_sums *sums, struct group *group, int pass)
{
    memset(sums->calls[pass], 0,
           (size_t)sums->count[pass] * sizeof(struct call_sum));
    sums->count[pass] = 0;
    if (pass == 0) sums->blind = false;
    atomic_store(&sums->sums, 0);
    sums->pass = pass;
    group->self->sums = sums;
}

void call_sums_end(struct group *group)
{
    group->self->sums = NULL;
}

int call_sums_next(const struct group *group)
{
    struct call_sums *sums = group->self->sums;

    if (sums == NULL || sums->count[sums->pass] == CALL_SUMS_MOST) return 0;
    return ++sums->count[sums->pass];
}

bool call_sums_whole(const struct call_sums *sums)
{
    for (int i = 0; i < CALL_SUMS_PASSES; i++)
        if (sums->count[i] == CALL_SUMS_MOST) return false;
    return !sums->blind;
}

static void sum_span(void *argument, char *data, int64_t bytes)
{
    uint32_t *crc = argument;

    if (data != NULL && bytes > 0)
        *crc = crc32c(*crc, device_seen(data), (size_t)bytes);
}

static int64_t counted(const int64_t *counts, int size, int64_t all)
{
    int64_t sum = 0;

    for (int i = 0; counts != NULL && i < size; i++) sum += counts[i];
    return counts != NULL ? sum : all;
}

/* Blocks of an all-to-all may fill less than its tensors. */
static struct comm_call trimmed(const struct group *group,
                                const struct comm_call *call)
{
    struct comm_call out = *call;

    if (call->kind != COMM_ALL_TO_ALL || call->relay != NULL) return out;
    out.in = tensor_1d(call->in.data, call->in.dtype,
                       counted(call->in_counts, group->size,
                               tensor_count(&call->in)));
    out.out = tensor_1d(call->out.data, call->out.dtype,
                        counted(call->out_counts, group->size,
                                tensor_count(&call->out)));
    return out;
}

static uint32_t sum_sent(const struct group *group,
                         const struct comm_call *call)
{
    struct comm_call one = trimmed(group, call);
    uint32_t crc = 0;
    const int count =
        call->root_stride > 0 ? comm_own_roots(group, call->leaves) : 1;

    if (call->kind == COMM_BROADCAST && call->peer == group->rank)
        call_visit(group, call, CALL_WRITES, sum_span, &crc);
    for (int i = 0; i < count; i++) {
        if (i > 0) one.in.data = (char *)one.in.data + call->root_stride;
        call_visit(group, &one, CALL_READS, sum_span, &crc);
    }
    return crc;
}

/* A bit of the mantissa, of a number that is not about 0. */
static void flip(const struct comm_call *call, int bit)
{
    const int64_t each = dtype_bytes(call->in.dtype);
    unsigned char *at = call->in.data;

    for (int64_t i = 0; i < tensor_count(&call->in); i++, at += each) {
        if ((at[each - 1] & 0x7F) < 0x20) continue;
        at[each - 2] ^= (unsigned char)(1 << bit);
        return;
    }
}

static bool adds_numbers(const struct comm_call *call)
{
    return comm_reduces(call) && call->reduction == REDUCE_SUM &&
           call->in.dtype == DTYPE_F32;
}

static void note(struct call_sums *sums, int number, bool sent, uint32_t crc)
{
    struct call_sum *c = &sums->calls[sums->pass][number - 1];
    const uint32_t at = atomic_fetch_add(&sums->sums, 1) + 1;

    if (sent) c->sent = crc;
    if (sent) c->sent_at = at;
    if (sent) return;
    c->received = crc;
    c->received_at = at;
}

static struct call_sums *sums_of(const struct group *group,
                                 const struct comm_call *call, int number)
{
    struct call_sums *sums = group->self->sums;

    if (number == 0 || sums == NULL) return NULL;
    if (!call_is_taken(group, call)) return sums;
    sums->blind = true;
    return NULL;
}

bool call_sums_sent(const struct group *group, const struct comm_call *call,
                    int number)
{
    struct call_sums *sums = sums_of(group, call, number);
    const bool flips = sums != NULL && sums->flips && adds_numbers(call);

    if (sums == NULL) return false;
    if (flips) {
        flip(call, sums->pass);
        sums->flips = false;
    }
    note(sums, number, true, sum_sent(group, call));
    return flips;
}

void call_sums_received(const struct group *group,
                        const struct comm_call *call, int number)
{
    struct call_sums *sums = sums_of(group, call, number);
    const struct comm_call one = trimmed(group, call);
    uint32_t crc = 0;

    if (sums == NULL || call->kind == COMM_SEND) return;
    call_visit(group, &one, CALL_WRITES, sum_span, &crc);
    note(sums, number, false, crc);
}

enum call_sums_first call_sums_compare(const struct call_sums *sums, int right,
                                       int wrong)
{
    const int count = sums->count[right] < sums->count[wrong]
                          ? sums->count[right] : sums->count[wrong];
    enum call_sums_first first = CALL_SUMS_SAME;
    uint32_t at = UINT32_MAX;

    for (int i = 0; i < count && !sums->blind; i++) {
        const struct call_sum *a = &sums->calls[right][i];
        const struct call_sum *b = &sums->calls[wrong][i];

        if (a->sent != b->sent && b->sent_at < at) {
            at = b->sent_at;
            first = CALL_SUMS_SENT;
        }
        if (a->received != b->received && b->received_at < at) {
            at = b->received_at;
            first = CALL_SUMS_RECEIVED;
        }
    }
    return first;
}
