/* SPDX-License-Identifier: Apache-2.0 */
/* test_frame_place.c - drawn frames: no two buffers that are alive at once
 * share a byte, whatever order the passes of several micro-batches have. */
#include "base/random.h"
#include "nn/frame.h"
#include "tests/test.h"

enum { MOST = 120, SLOTS = 2 * MOST, FRAMES = 5, DRAWS = 400 };

struct drawn {
    struct frame_plan plan;
    struct program program;
    struct frame_buffer buffers[MOST];
    int activation[SLOTS], gradient[SLOTS];
    struct frame_count count;
};

static int64_t draw(uint64_t *at, int64_t below)
{
    return (int64_t)random_below(random_key_make(40, "frames"), (*at)++,
                                 (uint64_t)below);
}

/* Half of the frames have borders: slots 0 and 1, with gradients. */
static void draw_frame(struct drawn *d, uint64_t *at)
{
    const int f = 1 + (int)draw(at, 30), b = f + (int)draw(at, 30);
    const int events = b + (int)draw(at, 2) * (int)draw(at, 30);
    const bool cut = draw(at, 2) == 1;

    *d = (struct drawn){.count = {1 + (int)draw(at, FRAMES),
                                   draw(at, 3) == 0}};
    d->program.slice.entry = cut ? 0 : -1;
    d->program.slice.exit = cut ? 1 : -1;
    d->plan = (struct frame_plan){
        .forward_end = f, .backward_end = b, .event_count = events,
        .buffers = d->buffers, .activation = d->activation,
        .gradient = d->gradient, .buffer_count = 4 + (int)draw(at, MOST - 4)};
    for (int i = 0; i < SLOTS; i++) d->activation[i] = d->gradient[i] = -1;
    for (int i = 0; i < 2; i++) {
        d->activation[i] = i;
        d->gradient[i] = 2 + i;
    }
    for (int i = 0; i < d->plan.buffer_count; i++) {
        const int first = (int)draw(at, events);
        const int span = draw(at, 2) ? events + 1 - first : 4;
        const int last = first + (int)draw(at, span);

        d->buffers[i] = (struct frame_buffer){
            .bytes = 64 * draw(at, 50), .first = first,
            .last = last < events ? last : events};
    }
}

static int pass_of(const struct frame_plan *plan, int event)
{
    return event >= plan->event_count     ? 3
           : event >= plan->backward_end  ? 2
           : event >= plan->forward_end   ? 1 : 0;
}

/* In the frame a buffer has its place from its first event to its last; a span
 * of the room is a buffer's only within one pass, in which nobody else is. */
static bool may_meet(const struct frame_buffer *a,
                     const struct frame_buffer *b)
{
    return a->shared == b->shared && a->first <= b->last &&
           b->first <= a->last && a->bytes > 0 && b->bytes > 0;
}

static void check_frame(const struct drawn *d)
{
    const struct frame_plan *plan = &d->plan;

    for (int i = 0; i < plan->buffer_count; i++) {
        const struct frame_buffer *a = &d->buffers[i];

        CHECK(a->offset >= 0 && a->offset + a->bytes <=
                                    (a->shared ? plan->pass_bytes
                                               : plan->bytes));
        if (a->shared) {
            EQUAL_INT(pass_of(plan, a->first), pass_of(plan, a->last));
            CHECK(d->count.frames > 1 || d->count.shares);
            CHECK(d->program.slice.entry < 0 || i >= 4);
        }
        for (int j = 0; j < i; j++) {
            const struct frame_buffer *b = &d->buffers[j];

            CHECK(!may_meet(a, b) ||
                  a->offset + a->bytes <= b->offset ||
                  b->offset + b->bytes <= a->offset);
        }
    }
}

TEST(what_is_alive_at_once_lies_apart)
{
    static struct drawn d;
    uint64_t at = 0;
    int split = 0;

    for (int n = 0; n < DRAWS; n++) {
        draw_frame(&d, &at);
        IS_OK(frame_plan_place(&d.plan, &d.program, d.count));
        check_frame(&d);
        CHECK(d.count.shares ||
              d.count.frames * d.plan.bytes + d.plan.pass_bytes <=
                  d.count.frames * d.plan.sizes.joint);
        split += d.plan.pass_bytes > 0;
    }
    CHECK(split > DRAWS / 3);
}

/* The bytes of each are the least where nothing can share: 16 micro-batches
 * keep one slot each, and one has what B alone needs. */
TEST(a_room_is_there_once)
{
    static struct drawn d;
    uint64_t at = 0;

    draw_frame(&d, &at);
    d.plan.forward_end = 2;
    d.plan.backward_end = d.plan.event_count = 4;
    d.plan.buffer_count = 2;
    d.program.slice.entry = d.program.slice.exit = -1;
    d.buffers[0] = (struct frame_buffer){.bytes = 128, .first = 0, .last = 3};
    d.buffers[1] = (struct frame_buffer){.bytes = 640, .first = 2, .last = 3};
    IS_OK(frame_plan_place(&d.plan, &d.program,
                           (struct frame_count){16, false}));
    EQUAL_INT(d.plan.bytes, 128);
    EQUAL_INT(d.plan.pass_bytes, 640);
    IS_OK(frame_plan_place(&d.plan, &d.program,
                           (struct frame_count){1, true}));
    EQUAL_INT(d.plan.pass_bytes, 640);
    d.plan.pass_bytes = 0;
    IS_OK(frame_plan_place(&d.plan, &d.program,
                           (struct frame_count){1, false}));
    EQUAL_INT(d.plan.bytes, 768);
    EQUAL_INT(d.plan.pass_bytes, 0);
}

TEST_MAIN(what_is_alive_at_once_lies_apart, a_room_is_there_once)
