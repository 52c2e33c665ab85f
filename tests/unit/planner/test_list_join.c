/* SPDX-License-Identifier: Apache-2.0 */
/* test_list_join.c - mirrors src/planner/list_join.c: ranks of a pipe wait for
 * each other where all of them meet. */
#include "planner/list_clock.h"

#include <string.h>

#include "planner/search_time.h"
#include "tests/test.h"
#include "train/forecast.h"

/* The end of the last item before `at` that computes; 0: there is none. */
static double came(const struct timed_list *list, int32_t at)
{
    while (--at >= 0)
        if (list->items[at].resource == CLOCK_COMPUTE)
            return list->items[at].end;
    return 0;
}

/* Returns how many ranks had to wait at one of the meetings. */
static int check_meetings(const struct timed_lists *all)
{
    int waited = 0;

    for (int32_t m = 1; timed_meeting(&all->lists[0], m) >= 0; m++) {
        double last = 0;

        for (int32_t r = 0; r < all->ranks; r++) {
            const struct timed_list *list = &all->lists[r];
            const double there = came(list, timed_meeting(list, m));

            if (there > last) last = there;
        }
        for (int32_t r = 0; r < all->ranks; r++) {
            const struct timed_list *list = &all->lists[r];
            const int32_t at = timed_meeting(list, m);

            CHECK(at >= 0 && list->items[at].begin >= last);
            waited += came(list, at) < last;
        }
    }
    return waited;
}

TEST(nobody_is_through_a_meeting_before_the_last_rank_came)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved",
                                            "zb-h1", "zb-v", "dualpipe"};

    for (int i = 0; i < ROWS(schedules); i++) {
        struct forecast f = {.ranks = 8, .as = AS_LOCKSTEP, .unfolded = true};
        struct steps steps;
        char text[512];

        snprintf(text, sizeof text,
                 "model: {family: llama, vocab: 32768, layers: 8, width: 512, "
                 "heads: 8}\ndata: {sequence: 512}\nzero: zero1\n"
                 "mesh: {pipe: 4, data: 2}\nschedule: {name: %s}\n"
                 "train: {batch: 32, micro_batch: 1, dtype: bfloat16}\n",
                 schedules[i]);
        IS_OK(options_init(&f.set));
        IS_OK(options_read_text(&f.set, text, strlen(text), "test",
                                ORIGIN_FILE));
        IS_OK(machine_open(&f.machine, &(struct machine_choice){
            .what = "h100"}));
        IS_OK(forecast_model(&f));
        IS_OK(forecast_layout(&f));
        IS_OK(forecast_exactly_timed(&f, 1e15, &steps));
        const struct cost cost = forecast_cost(&f);
        const struct weather weather = {.slow = NULL};
        struct prediction p;

        IS_OK(predict_steps(&p, &steps, &cost, &weather));
        CHECK(check_meetings(&steps.lists) > 0);
        steps_free(&steps);
        forecast_free(&f);
    }
}

TEST_MAIN(nobody_is_through_a_meeting_before_the_last_rank_came)
