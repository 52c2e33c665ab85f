/* SPDX-License-Identifier: Apache-2.0 */
/* test_list.c - the lists of many layouts are complete and can be trusted, and
 * their messages are those that the plan adds up by itself. */
#include "list/instruction_facts.h"
#include "plan/exchange_model.h"
#include "tests/unit/list/cases.h"

static struct step_list made(const struct pipeline *p, int turns,
                             const char *after)
{
    const struct list_request request = {p, turns, after, NULL};
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
        if (is_message(&all->items[i]) &&
            exchange_is_like(&all->items[i], row))
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
                        "%lld of %lld\n", which, sent_name(row->what),
                        row->label, (long long)row->calls,
                        (long long)row->bytes,
                        same ? (long long)same->calls : -1,
                        same ? (long long)same->bytes : -1);
        CHECK(same != NULL);
        EQUAL_INT(same->calls, row->calls);
        EQUAL_INT(same->bytes, row->bytes);
        EQUAL_INT(same->updates, row->updates);
    }
}

static status add(void *argument, const struct exchange *row)
{
    exchanges_add(argument, *row);
    return OK;
}

TEST(the_plans_traffic_is_the_sum_of_the_list)
{
    for (int i = 0; i < ROWS(layout_cases); i++)
        for (int rank = 0; rank < at_least_one(layout_cases[i].pipe); rank++) {
            struct exchanges planned, summed = {.count = 0};
            struct pipeline pipeline;
            struct step_list list;

            IS_OK(case_plan(&pipeline, &layout_cases[i], rank));
            list = made(&pipeline, 0, NULL);
            exchanges_of(&planned, &pipeline);
            for (int n = 0; n < list.count; n++)
                IS_OK(list_traffic(&pipeline, &list.items[n], add, &summed));
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

/* A list of fsdp over four ranks: how many messages, how many bytes of this
 * rank, and how many elements are being gathered at once. */
struct counted { int gathers, reductions, units; int64_t bytes, most; };

static struct counted count_messages(int prefetch, int bucket, int in_flight)
{
    const struct layout_case c = {
        .schedule = "1f1b", .zero = "fsdp", .data = 4, .prefetch = prefetch,
        .bucket = bucket, .in_flight = in_flight};
    struct counted out = {0};
    struct pipeline p;
    struct step_list list;
    int64_t now = 0;

    IS_OK(case_plan(&p, &c, 0));
    list = made(&p, 0, NULL);
    IS_OK(list_verify(&list, &p));
    out.units = p.stages[0].shards.count;
    for (int i = 0; i < list.count; i++) {
        const struct instruction *at = &list.items[i];
        const int64_t size =
            at->unit >= 0 ? p.stages[0].shards.units[at->unit].elements : 0;

        out.gathers += at->kind == DO_GATHER;
        out.reductions += at->kind == DO_REDUCE;
        if (at->kind == DO_GATHER || at->kind == DO_REDUCE)
            out.bytes += at->bytes;
        if (at->kind == DO_GATHER) now += size;
        if (at->kind == DO_PLACE) now -= size;
        if (now > out.most) out.most = now;
    }
    list_free(&list);
    pipeline_free(&p);
    return out;
}

/* Eight blocks of 8,960 elements, the last norm, and two tables. The four
 * micro-batches gather each unit for F and for B, but the table of the head
 * only for B and that of the embedding only for F. */
TEST(buckets_merge_messages)
{
    const struct counted each = count_messages(1, 0, 0);
    const struct counted pairs = count_messages(1, 20000, 0);
    const struct counted all = count_messages(1, 1 << 20, 0);

    EQUAL_INT(each.units, 11);
    EQUAL_INT(each.gathers, 4 * (2 * 11 - 2));
    EQUAL_INT(each.reductions, 11);
    EQUAL_INT(pairs.units, 2 + 4);
    EQUAL_INT(pairs.gathers, 4 * (2 * 6 - 2));
    EQUAL_INT(pairs.reductions, 6);
    EQUAL_INT(all.units, 2 + 1);
    EQUAL_INT(all.gathers, 4 * (2 * 3 - 2));
    EQUAL_INT(all.reductions, 3);
}

TEST(gathers_stay_below_their_limit)
{
    const struct counted free = count_messages(4, 0, 0);
    const struct counted limited = count_messages(4, 0, 20000);
    const struct counted single = count_messages(4, 0, 1);

    CHECK(free.most > 4 * 8000);
    CHECK(limited.most <= 20000 && limited.most > 9000);
    CHECK(single.most < 10000);
    EQUAL_INT(limited.gathers, free.gathers);
    EQUAL_INT(limited.bytes, free.bytes);
}

/* Each unit is updated alone, and its new weights are under way until the end
 * of the step, so beside the updates that follow. Parts of shards come first,
 * and whole shards one unit later, which need them. */
TEST(units_are_updated_one_by_one)
{
    static const struct { const char *zero; int gathers; } rows[] = {
        {"zero1", 1}, {"zero2", 1}, {"fsdp", 0},
        {"{gradients:[shard],states:[data,shard]}", 2},
        {"{weights:[shard],gradients:[data,shard],states:[data,shard]}", 1}};

    for (int row = 0; row < ROWS(rows); row++) {
        const struct layout_case c = {.schedule = "1f1b", .shard = 2,
                                      .zero = rows[row].zero, .data = 2};
        int updates = 0, gathers = 0, last = -1;
        struct pipeline p;
        struct step_list list;

        IS_OK(case_plan(&p, &c, 0));
        list = made(&p, 0, NULL);
        IS_OK(list_verify(&list, &p));
        for (int i = 0; i < list.count; i++) {
            const struct instruction *at = &list.items[i];

            if (at->kind == DO_REGATHER) {
                EQUAL_INT(at->unit >= updates - 2, 1);
                EQUAL_INT(at->unit < updates, 1);
                gathers++;
            }
            if (at->kind != DO_UPDATE) continue;
            EQUAL_INT(at->unit, updates++);
            EQUAL_INT(at->needs, 0);
            last = i;
        }
        EQUAL_INT(updates, p.stages[0].shards.count);
        EQUAL_INT(gathers, rows[row].gathers * updates);
        if (gathers > 0) EQUAL_INT(list.items[last - 1].kind, DO_REGATHER);
        list_free(&list);
        pipeline_free(&p);
    }
}

/* A list that another limit would refuse. */
TEST(the_verifier_counts_what_is_under_way)
{
    const struct layout_case c = {.schedule = "1f1b", .zero = "fsdp",
                                  .data = 4, .prefetch = 4};
    struct pipeline p;
    struct step_list list;

    IS_OK(case_plan(&p, &c, 0));
    list = made(&p, 0, NULL);
    IS_OK(list_verify(&list, &p));
    p.stages[0].request.divided.gather.in_flight = 20000;
    FAILS(list_verify(&list, &p), ERR_VERIFY, "more weights are under way");
    list_free(&list);
    pipeline_free(&p);
}

/* In every list, frames and rooms are freed as often as they are taken, and
 * instructions with one key of cost are alike. */
TEST(instructions_say_what_they_cost_and_free)
{
    const struct layout_case c = {.schedule = "1f1b", .zero = "fsdp",
                                  .pipe = 2, .data = 2, .prefetch = 1};
    int forward = 0, freed = 0, gathered = 0, released = 0, keys = 0;
    struct pipeline p;
    struct step_list list;

    IS_OK(case_plan(&p, &c, 0));
    list = made(&p, 0, NULL);
    for (int i = 0; i < list.count; i++) {
        const struct instruction *at = &list.items[i];
        char key[COST_KEY_BYTES], other[COST_KEY_BYTES];
        struct text text = {0};

        IS_OK(list_frees(&p, false, at, &text));
        forward += at->kind == DO_FORWARD && at->first_event == 0;
        gathered += at->kind == DO_GATHER;
        freed += text.length > 0 && strstr(text.bytes, "frame ") != NULL;
        released += text.length > 0 && at->kind == DO_RELEASE &&
                    strstr(text.bytes, "room") != NULL;
        text_free(&text);
        list_cost_key(key, &p, at);
        for (int j = 0; j < i; j++) {
            const struct instruction *before = &list.items[j];

            if (strcmp(list_cost_key(other, &p, before), key) != 0) continue;
            keys++;
            EQUAL_INT(before->kind == at->kind ||
                          instruction_rows[at->kind].call ==
                              instruction_rows[before->kind].call, 1);
            EQUAL_INT(before->bytes, at->bytes);
            EQUAL_INT(before->last_event, at->last_event);
        }
    }
    CHECK(forward > 0 && gathered > 0 && keys > 0);
    EQUAL_INT(freed, forward);
    EQUAL_INT(released, gathered);
    list_free(&list);
    pipeline_free(&p);
}

TEST_MAIN(units_are_updated_one_by_one,
          every_layout_has_a_list_that_can_be_trusted,
          the_plans_traffic_is_the_sum_of_the_list,
          breadth_first_gathers_once_a_phase_into_the_room_of_a_stage,
          instructions_say_what_they_cost_and_free,
          buckets_merge_messages, gathers_stay_below_their_limit,
          the_verifier_counts_what_is_under_way)
