/* SPDX-License-Identifier: Apache-2.0 */
/* courier_pace.c - when the next piece of a copy may leave. */
#include "control/courier_pace.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>
#include "base/clock.h"

/* Ranks may come to need it sooner than usual, */
static const double need_margin = 0.9;
/* and the network may be slower than it was. */
static const double rest_margin = 1.25;

enum { HELD_MOST_MS = 1000 }; /* of a copy, where nodes have two partners */

void copy_pace_open(struct copy_pace *pace, const struct agent *agent,
                    int descriptor)
{
    const int ahead = PIECE_BYTES;

    pace->agent = agent;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &ahead,
               sizeof ahead);
}

/* Whether a rank of the node talks to other nodes, and whether one waits for
 * its copy. */
struct doing { bool talks, awaits; };

static struct doing look(const struct agent *agent)
{
    struct doing doing = {false, false};

    for (int i = 0; i < agent->count; i++) {
        const struct flight *flight = &agent->board->pages[i].flight;

        if (!place_is_busy(&agent->places[i])) continue;
        doing.talks = doing.talks || flight_talks(flight);
        doing.awaits = doing.awaits || atomic_load(&flight->awaits) != 0;
    }
    return doing;
}

int64_t copy_pace_latest(const struct copy_pace *pace)
{
    const struct board *board = pace->agent->board;
    const struct board_page *page = &board->pages[pace->place];
    const int64_t ended_ns = atomic_load(&page->step_ns);
    const int64_t needs_ns = atomic_load(&page->needs_copy_ns);
    const int partners = atomic_load(&board->partners);
    double until;

    if (needs_ns == 0 || ended_ns == 0 || pace->bytes_per_ns <= 0) return 0;
    /* Its keeper reads no other node's copy meanwhile, whose connection ends
     * after three seconds. */
    if (partners > 1 && pace->yielded_ns > HELD_MOST_MS * INT64_C(1000000))
        return 0;
    /* A node takes one copy at a time. */
    until = need_margin * (double)needs_ns / (partners > 1 ? partners : 1) -
            rest_margin * (double)pace->left / pace->bytes_per_ns;
    return until > 0 ? ended_ns + (int64_t)until : 0;
}

void copy_pace_begin(struct copy_pace *pace, int place, uint64_t bytes,
                     uint64_t behind)
{
    pace->place = place;
    pace->left = bytes + behind;
    pace->sent = 0;
    pace->yielded_ns = 0;
    pace->began_ns = clock_ns();
}

void copy_pace_piece(struct copy_pace *pace, size_t bytes)
{
    const struct timespec pause = {0, 250000};
    struct board *board = pace->agent->board;
    const int64_t began = clock_ns();
    const int64_t most = began + (int64_t)YIELD_MOST_MS * 1000000;
    const int64_t latest = copy_pace_latest(pace);
    struct doing doing = look(pace->agent);

    while (doing.talks && !doing.awaits && clock_ns() < latest &&
           clock_ns() < most) {
        nanosleep(&pause, NULL);
        doing = look(pace->agent);
    }
    pace->yielded_ns += clock_ns() - began;
    pace->left -= bytes < pace->left ? bytes : pace->left;
    pace->sent += bytes;
    atomic_fetch_add(&board->courier_bytes, (int64_t)bytes);
    if (!doing.talks && !doing.awaits)
        atomic_fetch_add(&board->courier_idle_bytes, (int64_t)bytes);
}

void copy_pace_end(struct copy_pace *pace)
{
    const int64_t took = clock_ns() - pace->began_ns - pace->yielded_ns;
    double now;

    if (pace->sent < PIECE_BYTES || took <= 0) return;
    now = (double)pace->sent / (double)took;
    pace->bytes_per_ns = pace->bytes_per_ns <= 0
                             ? now : 0.5 * pace->bytes_per_ns + 0.5 * now;
}
