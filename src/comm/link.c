/* SPDX-License-Identifier: Apache-2.0 */
/* link.c - one connection to another rank. */
#include "comm/link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include "base/file.h"

enum {
    BUFFERS_MOST = 32,        /* runs of a block in one call */
    CALL_BYTES = 1 << 18,    /* so that others get the lock in between */
    HEAD_BYTES = (int)sizeof(struct frame)
};

/* ---- blocks ---- */

char *block_at(const struct comm_block *block, int64_t offset, int64_t *bytes)
{
    const int64_t run = offset / block->bytes, within = offset % block->bytes;

    *bytes = block->bytes - within;
    return (char *)block->data + run / block->rows * block->plane_stride +
           run % block->rows * block->stride + within;
}

static uint32_t block_crc(const struct comm_block *block)
{
    const int64_t total = block_bytes(block);
    uint32_t crc = 0;
    int64_t run;

    for (int64_t at = 0; at < total; at += run) {
        const char *data = block_at(block, at, &run);

        crc = crc32c(crc, data, (size_t)run);
    }
    return crc;
}

/* Runs of a block from `offset` on; returns their bytes. */
static int64_t block_buffers(const struct comm_block *block, int64_t offset,
                             struct iovec *buffers, int *count)
{
    const int64_t total = block_bytes(block);
    int64_t sum = 0, run;

    *count = 0;
    while (offset < total && *count < BUFFERS_MOST && sum < CALL_BYTES) {
        buffers[*count].iov_base = block_at(block, offset, &run);
        if (run > CALL_BYTES) run = CALL_BYTES;
        buffers[(*count)++].iov_len = (size_t)run;
        offset += run;
        sum += run;
    }
    return sum;
}

/* ---- out ---- */

void link_enqueue(struct link *link, struct outgoing *o)
{
    if (frame_follow(&o->frame) > 0)
        o->frame.bytes_crc = block_crc(&o->block);
    frame_seal(&o->frame);
    if (link->out_last != NULL) link->out_last->next = o;
    else link->out_first = o;
    link->out_last = o;
}

/* One call. 1: all of it is sent; 0: later; -1: the connection broke. */
static int outgoing_push(const struct link *link, struct outgoing *o)
{
    const int64_t total = HEAD_BYTES + frame_follow(&o->frame);
    struct iovec buffers[BUFFERS_MOST + 1];
    struct msghdr message = {.msg_iov = buffers};
    int count = 0, more = 0;
    ssize_t sent;

    if (o->sent < HEAD_BYTES)
        buffers[count++] = (struct iovec){
            (char *)&o->frame + o->sent, (size_t)(HEAD_BYTES - o->sent)};
    if (total > HEAD_BYTES)
        block_buffers(&o->block,
                      o->sent > HEAD_BYTES ? o->sent - HEAD_BYTES : 0,
                      buffers + count, &more);
    message.msg_iovlen = (size_t)(count + more);
    sent = sendmsg(link->descriptor, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
    o->sent += sent;
    return o->sent == total;
}

static void outgoing_end(struct outgoing *o, struct link_stock *stock)
{
    if (o->sending != NULL) o->sending->writes = false;
    o->next = stock->outgoings;
    stock->outgoings = o;
}

bool link_flush(struct link *link, struct link_stock *stock)
{
    while (link->out_first != NULL && link->descriptor >= 0) {
        struct outgoing *o = link->out_first;
        const int64_t before = o->sent;
        const int pushed = outgoing_push(link, o);

        if (pushed < 0) return false;
        if (pushed == 0 && o->sent == before) return true;
        if (pushed == 0) continue;
        link->out_first = o->next;
        if (link->out_first == NULL) link->out_last = NULL;
        outgoing_end(o, stock);
    }
    return true;
}

/* ---- in ---- */

static bool link_fault(struct link *link, const char *what)
{
    snprintf(link->fault, sizeof link->fault, "%s", what);
    return false;
}

/* Finds where the bytes behind a frame go. */
static bool find_place(struct link *link, const struct link_events *events,
                       struct comm_block *block)
{
    const struct frame *f = &link->frame;

    switch (f->kind) {
    case FRAME_SMALL:
        if (link->arrivals >= OFFERS_MOST)
            return link_fault(link, "too many messages");
        if (link->into == NULL &&
            stock_arrival(events->stock, &link->into) != OK)
            return link_fault(link, "no memory for a message");
        *block = block_plain(link->into->own, f->bytes);
        return true;
    case FRAME_FAREWELL:
        *block = block_plain(link->reason, f->bytes);
        return true;
    default:
        for (struct taking *t = link->takings; t != NULL; t = t->next)
            if (t->id == f->id) link->taking = t;
        if (link->taking == NULL || block_bytes(&link->taking->block) !=
                                        f->bytes)
            return link_fault(link, "bytes that nobody wants");
        *block = link->taking->block;
        return true;
    }
}

/* recvmsg: 1: something came; 0: nothing now; -1: the end. */
static int pull(struct link *link, struct iovec *buffers, int count,
                ssize_t *got)
{
    struct msghdr message = {.msg_iov = buffers, .msg_iovlen = (size_t)count};

    *got = recvmsg(link->descriptor, &message, MSG_DONTWAIT);
    if (*got > 0) return 1;
    if (*got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    return -1;
}

/* The checksum of bytes that came, which lie in buffers. */
static void sum_buffers(struct link *link, const struct iovec *buffers,
                        ssize_t got)
{
    for (int i = 0; got > 0; i++) {
        const size_t n = (size_t)got < buffers[i].iov_len ? (size_t)got
                                                         : buffers[i].iov_len;

        link->crc = crc32c(link->crc, buffers[i].iov_base, n);
        got -= (ssize_t)n;
    }
}

static int receive_bytes(struct link *link, const struct link_events *events)
{
    struct comm_block block = {0};
    struct iovec buffers[BUFFERS_MOST];
    ssize_t got;
    int count, news;

    if (!find_place(link, events, &block)) return -1;
    block_buffers(&block, link->got - HEAD_BYTES, buffers, &count);
    news = pull(link, buffers, count, &got);
    if (news <= 0) return news;
    sum_buffers(link, buffers, got);
    link->got += got;
    return 1;
}

static int receive_frame(struct link *link, const struct link_events *events)
{
    struct iovec buffer = {(char *)&link->frame + link->got,
                           (size_t)(HEAD_BYTES - link->got)};
    const char *fault;
    ssize_t got;
    const int news = pull(link, &buffer, 1, &got);

    if (news <= 0) return news;
    link->got += got;
    if (link->got < HEAD_BYTES) return 1;
    fault = frame_fault(&link->frame, events->generation);
    if (fault == NULL) return 1;
    link_fault(link, fault);
    return -1;
}

/* The frame and its bytes are there. */
static bool frame_end(struct link *link, const struct link_events *events)
{
    if (frame_follow(&link->frame) > 0 && link->crc != link->frame.bytes_crc)
        return link_fault(link, "damaged bytes");
    events->came(events->world, link);
    link->got = 0;
    link->crc = 0;
    link->taking = NULL;
    return link->fault[0] == '\0';
}

bool link_receive(struct link *link, const struct link_events *events)
{
    while (link->descriptor >= 0) {
        int news;

        if (link->got < HEAD_BYTES)
            news = receive_frame(link, events);
        else
            news = receive_bytes(link, events);
        if (news < 0) return false;
        if (news == 0) return true;
        if (link->got >= HEAD_BYTES &&
            link->got == HEAD_BYTES + frame_follow(&link->frame) &&
            !frame_end(link, events))
            return false;
    }
    return true;
}

void link_keep(struct link *link, struct arrival *arrival)
{
    arrival->next = NULL;
    if (link->last != NULL) link->last->next = arrival;
    else link->first = arrival;
    link->last = arrival;
    link->arrivals++;
}

void link_close(struct link *link, struct link_stock *stock)
{
    if (link->descriptor >= 0) close(link->descriptor);
    link->descriptor = -1;
    while (link->out_first != NULL) {
        struct outgoing *o = link->out_first;

        link->out_first = o->next;
        outgoing_end(o, stock);
    }
    link->out_last = NULL;
    if (link->into == NULL) return;
    link->into->next = stock->arrivals;
    stock->arrivals = link->into;
    link->into = NULL;
}

void link_forget(struct link *link, struct link_stock *stock)
{
    link_close(link, stock);
    while (link->first != NULL) {
        struct arrival *a = link->first;

        link->first = a->next;
        a->next = stock->arrivals;
        stock->arrivals = a;
    }
    link->last = NULL;
    link->arrivals = 0;
}
