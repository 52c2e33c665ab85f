/* SPDX-License-Identifier: Apache-2.0 */
/* test_copy_every.c - mirrors src/train/copy_every.c: copies of a run whose
 * partners come and go. */
#include "train/copy_every.h"

#include <unistd.h>

#include "control/board.h"
#include "step/team.h"
#include "tests/test.h"

/* A rank's board, and what it did. */
struct room {
    struct board *board;
    int file;
    struct team team; /* alone */
    struct copy_every every;
    int64_t step, copied; /* done; the newest copy */
};

static void begin(struct room *r)
{
    *r = (struct room){.file = -1};
    IS_OK(board_make(&r->board, 1, &r->file));
    board_sit(r->board, 0);
    r->every = (struct copy_every){.team = &r->team, .threads = 1,
                                   .in_update = true, .measures = true,
                                   .steps = 1};
}

static void end(struct room *r)
{
    board_end(OK, "");
    board_close(r->board);
    close(r->file);
}

static void partners(struct room *r, int count)
{
    atomic_store(&r->board->partners, count);
}

/* Steps of a second; while a copy travels, of so much more; each `other`th one
 * does more work, as does the one behind it. */
static void make(struct room *r, int64_t steps, double more, int64_t other)
{
    const bool travel = atomic_load(&r->board->partners) > 0;

    for (const int64_t last = r->step + steps; r->step < last;) {
        const bool travels = travel && r->copied == r->step && r->step > 0;

        r->step++;
        copy_every_step(&r->every, travels ? 1 + more : 1,
                        other > 0 && r->step % other <= 1 ? COPY_WAY_OTHER
                        : travels ? COPY_WAY_TRAVELS : COPY_WAY_NONE);
        IS_OK(copy_every_look(&r->every, r->step));
        if (r->step % r->every.steps != 0) continue;
        copy_every_made(&r->every, 1e-4);
        r->copied = r->step;
    }
}

TEST(a_copy_that_delays_steps_is_rarer)
{
    struct room r;

    begin(&r);
    partners(&r, 1);
    make(&r, 8, 0.2, 0);
    EQUAL_INT(r.every.steps, 1);
    make(&r, 2, 0.2, 0);
    EQUAL_INT(r.every.steps, 2);
    make(&r, 64, 0.2, 0);
    CHECK(r.every.steps >= 18 && r.every.steps <= 22); /* 1% of a second */
    end(&r);
}

TEST(a_copy_that_delays_none_comes_back_after_each_step)
{
    struct room r;

    begin(&r);
    partners(&r, 1);
    make(&r, 30, 0, 0);
    EQUAL_INT(r.every.steps, 1);
    CHECK(r.every.delay.pairs >= DELAY_KNOWN);
    end(&r);
}

/* Guards against what it cost before: a node that joined after sixteen copies
 * was never compared, so that each step lost a fifth. */
TEST(a_partner_that_joins_late_is_compared)
{
    struct room r;

    begin(&r);
    make(&r, 100, 0.2, 0);
    EQUAL_INT(r.every.steps, 1);
    partners(&r, 1);
    make(&r, 28, 0.2, 0); /* up to the next look */
    EQUAL_INT(r.every.steps, 2);
    make(&r, 64, 0.2, 0);
    CHECK(r.every.steps >= 18 && r.every.steps <= 22);
    end(&r);
}

/* Guards against a run without partners that still made rare copies. */
TEST(no_delay_outlives_its_partner)
{
    struct room r;

    begin(&r);
    partners(&r, 1);
    make(&r, 200, 0.2, 0);
    CHECK(r.every.steps > 10);
    copy_every_waited(&r.every, 0.5);
    partners(&r, 0);
    make(&r, 100, 0.2, 0);
    EQUAL_INT(r.every.steps, 1);
    CHECK(r.every.delay_s == 0 && r.every.fence_s == 0);
    /* The next one is of another network. */
    partners(&r, 1);
    make(&r, 128, 0.05, 0);
    CHECK(r.every.steps >= 4 && r.every.steps <= 7);
    end(&r);
}

/* Where each pair has a step that does more, nothing can be said: copies are
 * not rarer than they must be because of that for ever. */
TEST(what_cannot_be_compared_is_given_up)
{
    struct room r;

    begin(&r);
    partners(&r, 1);
    make(&r, 100, 0.2, 2);
    EQUAL_INT(r.every.steps, 2);
    EQUAL_INT(r.every.delay.pairs, 0);
    make(&r, 600, 0.2, 2);
    EQUAL_INT(r.every.steps, 1);
    end(&r);
}

TEST(a_number_that_is_given_stays)
{
    struct room r;

    begin(&r);
    r.every.measures = false;
    r.every.steps = 3;
    partners(&r, 1);
    make(&r, 200, 0.2, 0);
    EQUAL_INT(r.every.steps, 3);
    end(&r);
}

TEST_MAIN(a_copy_that_delays_steps_is_rarer,
          a_copy_that_delays_none_comes_back_after_each_step,
          a_partner_that_joins_late_is_compared, no_delay_outlives_its_partner,
          what_cannot_be_compared_is_given_up, a_number_that_is_given_stays)
