/* SPDX-License-Identifier: Apache-2.0 */
/* test_build.c - mirrors src/schedule/build.c and the generators behind it. */
#include "schedule/build.h"

#include "schedule/lower.h"
#include "schedule/read.h"
#include "tests/test.h"

static void same(const struct schedule *a, const struct schedule *b)
{
    EQUAL_INT(a->ranks, b->ranks);
    EQUAL_INT(a->stages, b->stages);
    EQUAL_INT(a->microbatches, b->microbatches);
    EQUAL_INT(a->turned, b->turned);
    for (int rank = 0; rank < a->ranks; rank++) {
        EQUAL_INT(a->lists[rank].count, b->lists[rank].count);
        EQUAL_BYTES(a->lists[rank].items, b->lists[rank].items,
                    (size_t)a->lists[rank].count * sizeof(struct action));
    }
}

/* The rules of any legal schedule: its text reads back to the same lists and
 * bytes, it verifies with its transfers, and so does that text. */
static void keeps(struct schedule *schedule)
{
    for (int lowered = 0; lowered < 2; lowered++) {
        struct schedule again = {0};
        struct text text = {0}, copy = {0};

        if (lowered) IS_OK(schedule_lower(schedule));
        IS_OK(schedule_write(schedule, &text));
        IS_OK(schedule_read(&again, text.bytes, text.length, "again"));
        same(schedule, &again);
        IS_OK(schedule_write(&again, &copy));
        EQUAL_TEXT(copy.bytes, text.bytes);
        text_free(&text);
        text_free(&copy);
        schedule_free(&again);
    }
}

/* Rows that serve any number of ranks and micro-batches. */
TEST(small_schedules_verify_and_read_back)
{
    int built = 0;

    for (int i = 0; i < schedule_row_count; i++)
        for (int ranks = 1; ranks <= 6; ranks++)
            for (int m = 1; m <= 3 * ranks + 1; m++) {
                struct schedule schedule = {0};

                if (schedule_build(&schedule, schedule_rows[i].name, ranks,
                                   m) == OK) {
                    keeps(&schedule);
                    built++;
                } else {
                    CHECK(strncmp(schedule_rows[i].name, "dualpipe", 8) == 0);
                    CHECK(ranks % 2 != 0 || m % 2 != 0 || m < 2 * ranks);
                    status_clear();
                }
                schedule_free(&schedule);
            }
    EQUAL_INT(built, 939); /* 13 rows always, dualpipe 12, dualpipev 18 */
}

/* Llama 3's flexible grouping: any group from ranks on, any number of
 * micro-batches, also fewer than ranks. */
TEST(interleaved_takes_any_chunks_group_and_count)
{
    for (int ranks = 1; ranks <= 5; ranks++)
        for (int chunks = 1; chunks <= 4; chunks++)
            for (int group = ranks; group <= 2 * ranks + 1; group++)
                for (int m = 1; m <= 3 * ranks; m++) {
                    struct schedule_request r = schedule_request_default(
                        "interleaved", ranks, m);
                    struct schedule schedule = {0};

                    r.chunks = chunks;
                    r.group = group;
                    IS_OK(schedule_make(&schedule, &r));
                    EQUAL_INT(schedule.stages, ranks * chunks);
                    /* Where no smaller group is left over. */
                    CHECK(schedule_held(&schedule) <=
                          (chunks - 1) * (m % group ? 2 * group : group) +
                              2 * ranks - 1);
                    schedule_free(&schedule);
                }
}

TEST(list_schedulers_keep_to_uneven_times_and_limits)
{
    static const char *const names[] = {"zb-1p", "zb-2p", "zb-v", "v-half",
                                        "v-min"};
    static const int64_t times[][4] = {{1000, 1000, 1000, 0},
                                       {1000, 1300, 600, 50},
                                       {700, 2100, 900, 400},
                                       {1, 0, 0, 9}, {0, 0, 0, 0}};

    for (int i = 0; i < ROWS(names); i++)
        for (int t = 0; t < ROWS(times); t++)
            for (int ranks = 1; ranks <= 9; ranks += 2)
                for (int limit = 1; limit <= ranks + 1; limit += ranks) {
                    struct schedule_request r = schedule_request_default(
                        names[i], ranks, 3 * ranks);
                    struct schedule schedule = {0};

                    r.forward_ns = times[t][0];
                    r.backward_input_ns = times[t][1];
                    r.backward_weight_ns = times[t][2];
                    r.transfer_ns = times[t][3];
                    r.memory_limit = limit;
                    r.weight_memory = 1;
                    IS_OK(schedule_make(&schedule, &r));
                    CHECK(schedule_held(&schedule) <=
                          limit * schedule.stages / ranks);
                    schedule_free(&schedule);
                }
}

TEST(the_same_request_gives_the_same_lists)
{
    for (int i = 0; i < schedule_row_count; i++) {
        struct schedule a = {0}, b = {0};

        IS_OK(schedule_build(&a, schedule_rows[i].name, 4, 12));
        IS_OK(schedule_build(&b, schedule_rows[i].name, 4, 12));
        same(&a, &b);
        schedule_free(&a);
        schedule_free(&b);
    }
}

TEST(a_thousand_ranks_verify)
{
    static const char *const names[] = {"1f1b", "interleaved", "zb-h2",
                                        "zb-1p", "v-half"};

    for (int i = 0; i < ROWS(names); i++) {
        struct schedule schedule = {0};

        IS_OK(schedule_build(&schedule, names[i], 1000, 60));
        EQUAL_INT(schedule.ranks, 1000);
        schedule_free(&schedule);
    }
}

TEST(impossible_requests_are_config_errors)
{
    static const struct {
        struct schedule_request request;
        const char *words;
    } rows[] = {
        {{.name = "zb-h3", .ranks = 2, .microbatches = 2}, "nearest: zb-h"},
        {{.name = "none-of-these", .ranks = 2, .microbatches = 2},
         "none-of-these is not known; there are gpipe, "},
        {{.name = "1f1b", .microbatches = 2}, "0 ranks"},
        {{.name = "1f1b", .ranks = 2}, "0 micro-batches"},
        {{.name = "1f1b", .ranks = 40000, .microbatches = 2}, "40000 ranks"},
        {{.name = "zb-1p", .ranks = 2, .microbatches = -1}, "-1 micro"},
        {{.name = "1f1b", .ranks = 2, .microbatches = 2, .chunks = 3},
         "1f1b has 1 chunk a rank, not 3"},
        {{.name = "zb-v", .ranks = 2, .microbatches = 2, .chunks = 1},
         "zb-v has 2 chunks a rank"},
        {{.name = "1f1b", .ranks = 2, .microbatches = 2, .group = 2},
         "takes no group"},
        {{.name = "interleaved", .ranks = 4, .microbatches = 8, .group = 3},
         "at least 4"},
        {{.name = "dualpipe", .ranks = 3, .microbatches = 8},
         "nearest 4 and 8"},
        {{.name = "dualpipe", .ranks = 4, .microbatches = 7},
         "nearest 4 and 8"},
        {{.name = "dualpipev", .ranks = 4, .microbatches = 7}, "at least 8"},
        {{.name = "zb-v", .ranks = 4, .microbatches = 8,
          .memory_limit = 0.5}, "holds no micro-batch"},
        {{.name = "zb-2p", .ranks = 4, .microbatches = 8,
          .memory_limit = 0.5}, "holds no micro-batch"},
        {{.name = "zb-2p", .ranks = 4, .microbatches = 8,
          .weight_memory = 1.5}, "weight memory 1.5 is outside 0 to 1"},
        {{.name = "zb-2p", .ranks = 4, .microbatches = 8,
          .forward_ns = -1}, "forward time -1 is outside"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct schedule schedule;

        FAILS(schedule_make(&schedule, &rows[i].request), ERR_CONFIG,
              rows[i].words);
        schedule_free(&schedule);
    }
}

/* The most F of a rank whose B is still to come. */
static int most_held(const struct schedule *s, int rank)
{
    int held = 0, most = 0;

    for (int i = 0; i < s->lists[rank].count; i++) {
        held += s->lists[rank].items[i].kind == ACTION_FORWARD;
        held -= s->lists[rank].items[i].kind == ACTION_BACKWARD_INPUT;
        if (held > most) most = held;
    }
    return most;
}

/* The table says how many micro-batches a schedule holds, in stages of a rank:
 * its lists hold no more, and on rank 0 those of one chunk as many. */
TEST(rows_say_what_they_hold)
{
    enum { P = 6, M = 24 };

    for (int i = 0; i < schedule_row_count; i++) {
        const struct schedule_row *row = &schedule_rows[i];
        const int chunks = row->chunks > 0 ? row->chunks : 2;
        const int most[] = {
            [HOLDS_RANKS] = P * chunks, [HOLDS_LEFT] = P,
            [HOLDS_ALL] = M * chunks, [HOLDS_CHUNKS] = P * chunks + P - 1,
            [HOLDS_TWICE] = 2 * P - 1, [HOLDS_MORE] = (P + 1) * chunks,
            [HOLDS_HALF] = (P / 2 + 1) * chunks,
            [HOLDS_THIRD] = (P / 3 + 2) * chunks, [HOLDS_V] = P * chunks};
        struct schedule_request request =
            schedule_request_default(row->name, P, M);
        struct schedule s;

        request.chunks = chunks;
        IS_OK(schedule_make(&s, &request));
        EQUAL_INT(schedule_holds(row->name), row->holds);
        CHECK(most_held(&s, 0) <= most[row->holds]);
        if (row->holds == HOLDS_ALL || row->holds == HOLDS_LEFT)
            EQUAL_INT(most_held(&s, 0), most[row->holds]);
        if (row->holds == HOLDS_LEFT) EQUAL_INT(most_held(&s, P - 1), 1);
        schedule_free(&s);
    }
    EQUAL_INT(schedule_holds("another program's"), HOLDS_RANKS);
}

/* Whether a rank has done F of all micro-batches of a chunk before the next. */
static bool is_whole(const struct schedule *s, int rank)
{
    int stage = -1, done = 0;

    for (int i = 0; i < s->lists[rank].count; i++) {
        const struct action *a = &s->lists[rank].items[i];

        if (a->kind != ACTION_FORWARD) continue;
        if (stage >= 0 && a->stage != stage && done % s->microbatches != 0)
            return false;
        stage = a->stage;
        done++;
    }
    return true;
}

static bool is_in_order(const struct schedule *s, int rank)
{
    int last[64];

    for (int i = 0; i < 64; i++) last[i] = -1;
    for (int i = 0; i < s->lists[rank].count; i++) {
        const struct action *a = &s->lists[rank].items[i];

        if (a->kind != ACTION_BACKWARD_INPUT) continue;
        if (a->microbatch < last[a->stage]) return false;
        last[a->stage] = a->microbatch;
    }
    return schedule_fused(s, rank);
}

/* Planner and setup read flags, never names; the lists are what flags say. */
TEST(rows_say_how_their_lists_are)
{
    enum { P = 4, M = 12 };

    for (int i = 0; i < schedule_row_count; i++) {
        const struct schedule_row *row = &schedule_rows[i];
        struct schedule_request request =
            schedule_request_default(row->name, P, M);
        bool fused = true, whole = true, in_order = true;
        struct schedule s;

        request.chunks = row->chunks > 0 ? row->chunks : 2;
        IS_OK(schedule_make(&s, &request));
        for (int rank = 0; rank < P; rank++)
            in_order = in_order && is_in_order(&s, rank);
        IS_OK(schedule_lower(&s)); /* messages may stand between B and W */
        for (int rank = 0; rank < P; rank++) {
            fused = fused && schedule_fused(&s, rank);
            whole = whole && is_whole(&s, rank);
        }
        if (fused != schedule_is(row->name, SCHEDULE_AT_ONCE))
            print_error("%s\n", row->name);
        EQUAL_INT(fused, schedule_is(row->name, SCHEDULE_AT_ONCE));
        EQUAL_INT(in_order, schedule_is(row->name, SCHEDULE_IN_ORDER));
        EQUAL_INT(s.stages == 2 * P && schedule_rank(&s, 2 * P - 1, 0) == 0,
                  schedule_is(row->name, SCHEDULE_V));
        if (request.chunks > 1)
            EQUAL_INT(whole, schedule_is(row->name, SCHEDULE_WHOLE));
        schedule_free(&s);
    }
    CHECK(!schedule_is("v-foreign.txt", SCHEDULE_V));
}

TEST_MAIN(rows_say_how_their_lists_are, rows_say_what_they_hold,
          small_schedules_verify_and_read_back,
          interleaved_takes_any_chunks_group_and_count,
          list_schedulers_keep_to_uneven_times_and_limits,
          the_same_request_gives_the_same_lists,
          a_thousand_ranks_verify,
          impossible_requests_are_config_errors)
