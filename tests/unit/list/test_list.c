/* SPDX-License-Identifier: Apache-2.0 */
/* test_list.c - the lists of many layouts are complete and can be trusted, and
 * their messages are those that the plan adds up by itself. */
#include "tests/unit/list/cases.h"

static struct step_list made(const struct pipeline *p, int turns,
                             const char *after)
{
    const struct list_request request = {p, turns, after};
    struct step_list list;

    IS_OK(list_make(&list, &request));
    return list;
}

TEST(every_layout_has_a_list_that_can_be_trusted)
{
    for (int i = 0; i < ROWS(layout_cases); i++) {
        const int count = at_least_one(layout_cases[i].pipe);
        struct pipeline pipelines[CASE_RANKS];

        for (int turns = 0; turns < 6; turns += 5) {
            struct step_list lists[CASE_RANKS];
            status result;

            for (int rank = 0; rank < count; rank++) {
                IS_OK(case_plan(&pipelines[rank], &layout_cases[i], rank));
                lists[rank] = made(&pipelines[rank], turns, NULL);
            }
            result = lists_verify(lists, pipelines, count);
            if (result != OK) print_error("case %d, %d turns\n", i, turns);
            IS_OK(result);
            for (int rank = 0; rank < count; rank++) {
                list_free(&lists[rank]);
                pipeline_free(&pipelines[rank]);
            }
        }
    }
}

/* Rows that send nothing and call nobody are no messages. */
static bool is_message(const struct exchange *row)
{
    return row->calls > 0 && row->size > 1;
}

static const struct exchange *find(const struct exchanges *all,
                                   const struct exchange *row)
{
    for (int i = 0; i < all->count; i++)
        if (all->items[i].kind == row->kind && is_message(&all->items[i]) &&
            strcmp(all->items[i].what, row->what) == 0 &&
            strcmp(exchange_group(&all->items[i]), exchange_group(row)) == 0)
            return &all->items[i];
    return NULL;
}

static void compare(const struct exchanges *one, const struct exchanges *other,
                    int which)
{
    for (int i = 0; i < one->count; i++) {
        const struct exchange *row = &one->items[i];
        const struct exchange *same = find(other, row);

        if (!is_message(row)) continue;
        if (same == NULL || same->calls != row->calls ||
            same->bytes != row->bytes)
            print_error("case %d: %s over %s: %lld calls of %lld bytes, "
                        "%lld of %lld\n", which, row->what,
                        exchange_group(row), (long long)row->calls,
                        (long long)row->bytes,
                        same ? (long long)same->calls : -1,
                        same ? (long long)same->bytes : -1);
        CHECK(same != NULL);
        EQUAL_INT(same->calls, row->calls);
        EQUAL_INT(same->bytes, row->bytes);
        EQUAL_INT(same->updates, row->updates);
    }
}

TEST(the_plans_traffic_is_the_sum_of_the_list)
{
    for (int i = 0; i < ROWS(layout_cases); i++)
        for (int rank = 0; rank < at_least_one(layout_cases[i].pipe); rank++) {
            struct exchanges planned, summed;
            struct pipeline pipeline;
            struct step_list list;

            IS_OK(case_plan(&pipeline, &layout_cases[i], rank));
            list = made(&pipeline, 0, NULL);
            exchanges_of(&planned, &pipeline);
            IS_OK(list_exchanges(&summed, &list, &pipeline));
            compare(&planned, &summed, i);
            compare(&summed, &planned, i);
            list_free(&list);
            pipeline_free(&pipeline);
        }
}

/* Gathers of a rank's list, and the room that they need. */
static int count_gathers(bool once, bool keep, size_t *bytes, int *units)
{
    const struct layout_case c = {
        .schedule = "breadth-first", .zero = "fsdp", .pipe = 2, .data = 2,
        .prefetch = 1, .once = once, .keep = keep};
    struct pipeline pipeline;
    struct step_list list;
    int count = 0;

    IS_OK(case_plan(&pipeline, &c, 0));
    list = made(&pipeline, 0, NULL);
    for (int i = 0; i < list.count; i++)
        count += list.items[i].kind == DO_GATHER;
    *bytes = pipeline.memory[MEMORY_GATHERED].bytes;
    *units = 0;
    for (int i = 0; i < pipeline.count; i++)
        *units += pipeline.stages[i].shards.count;
    list_free(&list);
    pipeline_free(&pipeline);
    return count;
}

/* Two stages of two blocks on the rank, eight micro-batches. B does not read
 * the embedding. F and B of the second stage follow each other: one phase. */
TEST(breadth_first_gathers_once_a_phase_into_the_room_of_a_stage)
{
    size_t each, once, keep;
    int units;
    const int gathers = count_gathers(false, false, &each, &units);

    EQUAL_INT(gathers, 8 * (2 * units - 1));
    EQUAL_INT(count_gathers(true, false, &once, &units), units + 2);
    CHECK(each > 0 && once > 0);
    EQUAL_INT(count_gathers(false, true, &keep, &units), units);
    CHECK(once < keep);
}

TEST_MAIN(every_layout_has_a_list_that_can_be_trusted,
          the_plans_traffic_is_the_sum_of_the_list,
          breadth_first_gathers_once_a_phase_into_the_room_of_a_stage)
