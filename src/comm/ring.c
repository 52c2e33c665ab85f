/* SPDX-License-Identifier: Apache-2.0 */
/* ring.c - collectives in which each rank talks to its two neighbours.
 *
 * In step s of a reduction over n ranks, rank r sends block r - s - 1 to r + 1
 * and adds block r - s - 2, which comes from r - 1, to its own: after n - 1
 * steps block r is complete at r. A gather then sends them on in the same way.
 * Source: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for
 * clusters of workstations". */
#include "comm/algorithms.h"

enum { SEGMENT_BYTES = 1 << 18 };

int circle_rank(const struct circle *circle, int index)
{
    return circle->first + index * circle->stride;
}

/* Where block `block` of `count` begins, elements. */
static int64_t cut_first(const struct cut *cut, int count, int block)
{
    const int64_t each = cut->elements / count, rest = cut->elements % count;
    const int number = cut->first + block * cut->step;
    int64_t at = 0;

    if (cut->counts == NULL && cut->length == 0)
        return each * block + (block < rest ? block : rest);
    if (cut->counts == NULL) return number * cut->length;
    for (int i = 0; i < number; i++) at += cut->counts[i];
    return at;
}

/* Where it ends. */
static int64_t cut_last(const struct cut *cut, int count, int block)
{
    const int64_t first = cut_first(cut, count, block);

    if (cut->counts != NULL)
        return first + cut->counts[cut->first + block * cut->step];
    return cut->length > 0 ? first + cut->length
                           : cut_first(cut, count, block + 1);
}

struct block cut_blocks(const struct cut *cut, int count, int first, int last)
{
    const int64_t from = cut_first(cut, count, first);
    const int64_t to = last > first ? cut_last(cut, count, last - 1) : from;

    CHECK(last - first <= 1 || cut->step == 1 ||
          (cut->counts == NULL && cut->length == 0));
    return (struct block){
        from > 0 ? cut->data + from * cut->element_bytes : cut->data,
        (to - from) * cut->element_bytes};
}

/* One pass around: in each step block `send` goes right and the one before it
 * comes from the left. */
static status ring_pass(struct operation *op, const struct circle *circle,
                        const struct cut *cut, int send, bool combines)
{
    const int n = circle->count;

    for (int step = 0; step < n - 1; step++) {
        const int take = (send + n - 1) % n;
        const struct block out = cut_blocks(cut, n, send, send + 1);
        const struct block in = cut_blocks(cut, n, take, take + 1);
        const struct transfer t = {
            .to = circle_rank(circle, (circle->me + 1) % n),
            .out = out.data, .out_bytes = out.bytes,
            .from = circle_rank(circle, (circle->me + n - 1) % n),
            .in = in.data, .in_bytes = in.bytes, .combine = combines};

        TRY(transfer_run(op, &t));
        send = take;
    }
    return OK;
}

status ring_reduce(struct operation *op, const struct circle *circle,
                   const struct cut *cut)
{
    const int n = circle->count;

    return ring_pass(op, circle, cut, (circle->me + n - 1) % n, true);
}

status ring_gather(struct operation *op, const struct circle *circle,
                   const struct cut *cut)
{
    return ring_pass(op, circle, cut, circle->me, false);
}

status ring_broadcast(struct operation *op, const struct circle *circle,
                      int root, struct block whole)
{
    const int n = circle->count;
    const int place = (circle->me + n - root) % n;

    for (int64_t at = 0; at < whole.bytes; at += SEGMENT_BYTES) {
        const int64_t left = whole.bytes - at;
        const int64_t bytes = left < SEGMENT_BYTES ? left : SEGMENT_BYTES;
        const struct transfer in = {
            .to = -1, .from = circle_rank(circle, (circle->me + n - 1) % n),
            .in = whole.data + at, .in_bytes = bytes};
        const struct transfer out = {
            .to = circle_rank(circle, (circle->me + 1) % n),
            .out = whole.data + at, .out_bytes = bytes, .from = -1};

        if (place > 0) TRY(transfer_run(op, &in));
        if (place < n - 1) TRY(transfer_run(op, &out));
    }
    return OK;
}
