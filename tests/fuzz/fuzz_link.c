/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_link.c - whatever a peer sends on its connection: src/comm/link.c and
 * frame.c. The input is a list of records; each becomes a frame, sound or with
 * a bit changed, of any kind and size, with bytes that may be too few. Sound
 * small messages must arrive as they were sent, and nothing may be kept beyond
 * what frame.h allows. */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "comm/link.h"
#include "tests/fuzz/mutate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RECORD = 8, RECORDS = 64, GENERATION = 3, ROOM = 70000, TAKEN = 40000 };

struct check {
    struct link_stock stock;
    int64_t came;
};

static void came(void *world, struct link *link)
{
    struct check *check = world;
    const struct frame *f = &link->frame;

    check->came++;
    CHECK(frame_fault(f, GENERATION) == NULL);
    if (f->kind == FRAME_SMALL) {
        CHECK(link->into != NULL && f->bytes <= SMALL_BYTES);
        for (int64_t i = 0; i < f->bytes; i++)
            CHECK(link->into->own[i] == (char)(f->id + (uint64_t)i));
        link->into->frame = *f;
        link_keep(link, link->into);
        link->into = NULL;
    } else if (f->kind == FRAME_BYTES) {
        CHECK(link->taking != NULL);
        link->taking->done = true;
    }
}

/* A frame of 8 bytes of the input, and its bytes, into out; returns how
 * many. */
static size_t make_frame(const uint8_t *r, char *out)
{
    struct frame f = {.kind = (uint16_t)(r[0] % 12), .generation = GENERATION,
                      .id = r[1], .tag = r[2], .context = r[2],
                      .bytes = (int64_t)r[3] << (r[4] % 20),
                      .place = (uint64_t)r[5] << 40};
    const bool spoilt = r[6] >= 200;
    size_t follow;

    if (r[6] == 199) f.generation = GENERATION - 1;
    if (r[6] == 198) f.bytes = -f.bytes;
    if (f.kind == FRAME_FAREWELL && r[6] < 128) f.bytes = COMM_REASON_BYTES;
    follow = (size_t)(frame_follow(&f) > 0 ? frame_follow(&f) : 0);
    if (follow > ROOM - sizeof f) follow = ROOM - sizeof f;
    for (size_t i = 0; i < follow; i++)
        out[sizeof f + i] = (char)(f.id + i);
    f.bytes_crc = crc32c(0, out + sizeof f, follow);
    frame_seal(&f);
    if (spoilt) ((char *)&f)[r[7] % sizeof f] ^= (char)(1 << r[6] % 8);
    memcpy(out, &f, sizeof f);
    if (r[6] >= 100 && r[6] < 110 && follow > 0) out[sizeof f + r[7] % follow]
        ^= 1;
    if (r[6] >= 110 && r[6] < 115) return sizeof f + follow / 2;
    return sizeof f + follow;
}

/* All of it, while the other end reads: false when the link is done. */
static bool deliver(int out, const char *bytes, size_t length,
                    struct link *link, const struct link_events *events)
{
    while (length > 0) {
        const ssize_t put = send(out, bytes, length,
                                 MSG_DONTWAIT | MSG_NOSIGNAL);

        if (put > 0) {
            bytes += put;
            length -= (size_t)put;
        }
        if (!link_receive(link, events)) return false;
    }
    return true;
}

static void check_kept(const struct link *link)
{
    int count = 0;

    for (const struct arrival *a = link->first; a != NULL; a = a->next)
        count++;
    CHECK(count == link->arrivals);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char frame[ROOM], taken[TAKEN];
    struct check check = {.came = 0};
    const struct link_events events = {&check, GENERATION, &check.stock, came};
    struct taking taking = {.id = 7, .block = {
        .data = taken, .bytes = 100, .rows = 20, .stride = 1000,
        .planes = 2, .plane_stride = 20000}};
    struct link link = {.peer = 1, .takings = &taking};
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return 0;
    link.descriptor = pair[0];
    for (size_t at = 0; at + RECORD <= size && at < RECORDS * RECORD;
         at += RECORD) {
        const size_t length = make_frame(data + at, frame);

        if (!deliver(pair[1], frame, length, &link, &events)) break;
    }
    check_kept(&link);
    link_forget(&link, &check.stock);
    CHECK(link.arrivals == 0 && link.first == NULL);
    stock_free(&check.stock);
    close(pair[1]);
    return 0;
}

/* ---- the mutator ---- */

/* Sound frames that follow each other are rare among random ones. */
static void draw_record(uint8_t *out)
{
    static const uint8_t kinds[] = {FRAME_SMALL, FRAME_SMALL, FRAME_PLACED,
                                    FRAME_OFFER, FRAME_WANT, FRAME_BYTES,
                                    FRAME_READ, FRAME_FAREWELL,
                                    FRAME_QUESTION, FRAME_ANSWER,
                                    FRAME_LEAVING, 0, 11};

    for (int i = 0; i < RECORD; i++) out[i] = (uint8_t)draw(256);
    if (draw(8) != 0) out[6] = (uint8_t)draw(98); /* sound */
    out[0] = kinds[draw(sizeof kinds)];
    if (draw(2) == 0) out[1] = 7; /* who is waited for */
    if (out[0] == FRAME_BYTES && draw(4) != 0) {
        out[1] = 7;    /* 4,000 bytes are: 125 x 2^5 */
        out[3] = 125;
        out[4] = 5;
    } else if (out[0] == FRAME_SMALL && draw(4) != 0) {
        out[4] = (uint8_t)draw(7); /* as small as they may be */
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    static const struct record_form form = {0, RECORD, RECORDS, draw_record};

    mutate_seed(seed);
    return mutate_record_list(&form, data, size, room);
}
