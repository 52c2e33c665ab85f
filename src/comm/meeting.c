/* SPDX-License-Identifier: Apache-2.0 */
/* meeting.c - where the ranks of a generation find each other. */
#include "comm/meeting.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/clock.h"

status meeting_open(struct meeting *meeting, const char *address,
                    const struct token *token, uint64_t job)
{
    *meeting = (struct meeting){.size = 0};
    TRY(door_open(&meeting->door, address, token, job));
    return OK;
}

static void seats_free(struct meeting *meeting)
{
    for (int i = 0; i < meeting->size; i++)
        if (meeting->seats[i].descriptor >= 0)
            close(meeting->seats[i].descriptor);
    memory_free(meeting->seats);
    meeting->seats = NULL;
    meeting->size = meeting->present = 0;
}

status meeting_begin(struct meeting *meeting, int size, uint64_t generation)
{
    seats_free(meeting);
    TRY(memory_take((size_t)size, sizeof *meeting->seats,
                    (void **)&meeting->seats));
    meeting->size = size;
    meeting->generation = generation;
    for (int i = 0; i < size; i++) meeting->seats[i].descriptor = -1;
    return OK;
}

int meeting_polls(const struct meeting *meeting, struct pollfd *polls)
{
    return door_polls(&meeting->door, polls);
}

static bool is_gone(int descriptor)
{
    char byte;

    return recv(descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Why the visitor cannot sit down; "" if it can. */
static void objection(struct meeting *m, const struct visitor *v,
                      char why[DOOR_SENTENCE_BYTES])
{
    struct meeting_seat *seat;

    why[0] = '\0';
    if (v->purpose != DOOR_MEET)
        snprintf(why, DOOR_SENTENCE_BYTES, "this is the meeting of the ranks");
    else if (v->generation != m->generation)
        snprintf(why, DOOR_SENTENCE_BYTES,
                 v->generation < m->generation
                     ? "generation %llu is over, this is generation %llu"
                     : "generation %llu has not begun, this is generation %llu",
                 (unsigned long long)v->generation,
                 (unsigned long long)m->generation);
    else if (v->size != m->size || v->rank < 0 || v->rank >= m->size)
        snprintf(why, DOOR_SENTENCE_BYTES,
                 "rank %d of %d ranks, but here are %d ranks", v->rank,
                 v->size, m->size);
    if (why[0] != '\0') return;
    seat = &m->seats[v->rank];
    if (seat->descriptor < 0) return;
    if (!is_gone(seat->descriptor)) {
        snprintf(why, DOOR_SENTENCE_BYTES, "there is a rank %d already",
                 v->rank);
        return;
    }
    close(seat->descriptor);
    seat->descriptor = -1;
    m->present--;
}

static status tell_all(struct meeting *m)
{
    const int64_t end = clock_ns() + (int64_t)DOOR_MS * 1000000;

    for (int i = 0; i < m->size; i++) {
        struct meeting_seat *seat = &m->seats[i];

        if (door_answer(&seat->descriptor, NULL) != OK) status_clear();
        for (int j = 0; j < m->size && seat->descriptor >= 0; j++)
            if (door_write(seat->descriptor, m->seats[j].address,
                           DOOR_ADDRESS_BYTES, end) != OK) {
                status_clear(); /* it is gone; its death is noticed */
                close(seat->descriptor);
                seat->descriptor = -1;
            }
    }
    seats_free(m);
    return OK;
}

status meeting_step(struct meeting *m, bool *complete)
{
    char why[DOOR_SENTENCE_BYTES];
    struct visitor visitor;
    int descriptor;

    *complete = false;
    while (door_step(&m->door, &visitor, &descriptor)) {
        objection(m, &visitor, why);
        if (why[0] != '\0') {
            if (door_answer(&descriptor, why) != OK) status_clear();
            continue;
        }
        visitor.address[DOOR_ADDRESS_BYTES - 1] = '\0';
        m->seats[visitor.rank].descriptor = descriptor;
        memcpy(m->seats[visitor.rank].address, visitor.address,
               DOOR_ADDRESS_BYTES);
        m->present++;
    }
    if (m->size == 0 || m->present < m->size) return OK;
    *complete = true;
    return tell_all(m);
}

void meeting_close(struct meeting *meeting)
{
    seats_free(meeting);
    door_close(&meeting->door);
}
