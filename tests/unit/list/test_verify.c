/* SPDX-License-Identifier: Apache-2.0 */
/* test_verify.c - lists that are wrong are refused: an instruction, or a need,
 * that is missing, doubled, moved or of another rank's order. */
#include "base/random.h"
#include "tests/unit/list/cases.h"

struct lists {
    struct pipeline pipelines[CASE_RANKS];
    struct step_list lists[CASE_RANKS];
    int count;
};

static void build(struct lists *out, const struct layout_case *c)
{
    out->count = at_least_one(c->pipe);
    for (int rank = 0; rank < out->count; rank++) {
        struct list_request request = {.pipeline = &out->pipelines[rank]};

        IS_OK(case_plan(&out->pipelines[rank], c, rank));
        IS_OK(list_make(&out->lists[rank], &request));
    }
}

static void drop(struct lists *l)
{
    for (int rank = 0; rank < l->count; rank++) {
        list_free(&l->lists[rank]);
        pipeline_free(&l->pipelines[rank]);
    }
}

static status verify(const struct lists *l)
{
    return lists_verify(l->lists, l->pipelines, l->count);
}

static void is_refused(const struct lists *l, const char *what, int number)
{
    const status result = verify(l);

    if (result != ERR_VERIFY) print_error("%s: %d\n", what, number);
    EQUAL_INT(result, ERR_VERIFY);
    status_clear();
}

/* ---- mutations; the numbers of needs follow ---- */

static void renumber(struct step_list *list, int from, int by)
{
    for (int i = 0; i < list->need_count; i++)
        if (list->needs[i] >= from) list->needs[i] += by;
}

/* Also takes out its place among the needs of others. */
static void take_out(struct step_list *list, int number)
{
    for (int i = 0; i < list->count; i++) {
        struct instruction *at = &list->items[i];

        for (int n = 0; n < at->needs; n++)
            if (list->needs[at->first_need + n] == number) {
                list->needs[at->first_need + n] =
                    list->needs[at->first_need + at->needs - 1];
                at->needs--;
            }
    }
    list->count--;
    memmove(&list->items[number], &list->items[number + 1],
            (size_t)(list->count - number) * sizeof *list->items);
    renumber(list, number + 1, -1);
}

static void copy_list(struct step_list *to, const struct step_list *from)
{
    *to = (struct step_list){.forward = from->forward, .rank = from->rank,
                             .handles = from->handles,
                             .need_count = from->need_count};
    for (int i = 0; i < from->count; i++)
        IS_OK(list_put(to, from->items[i]));
    IS_OK(memory_take((size_t)from->need_count + 1, sizeof *to->needs,
                      (void **)&to->needs));
    if (from->need_count > 0)
        memcpy(to->needs, from->needs,
               (size_t)from->need_count * sizeof *to->needs);
}

static void swap(struct step_list *list, int a, int b)
{
    const struct instruction kept = list->items[a];

    list->items[a] = list->items[b];
    list->items[b] = kept;
    for (int i = 0; i < list->need_count; i++)
        list->needs[i] = list->needs[i] == a ? b
                         : list->needs[i] == b ? a : list->needs[i];
}

static int first_of(const struct step_list *list, enum instruction_kind kind)
{
    int at = 0;

    while (at < list->count && list->items[at].kind != kind) at++;
    CHECK(at < list->count);
    return at;
}

/* One list of a layout, changed, and back. */
static struct step_list kept;

static void begin_change(struct lists *l, int rank)
{
    kept = l->lists[rank];
    copy_list(&l->lists[rank], &kept);
}

static void end_change(struct lists *l, int rank)
{
    list_free(&l->lists[rank]);
    l->lists[rank] = kept;
}

/* ---- tests ---- */

TEST(every_instruction_is_missed)
{
    for (int i = 0; i < ROWS(layout_cases); i++) {
        const int rank = at_least_one(layout_cases[i].pipe) - 1;
        struct lists l;

        build(&l, &layout_cases[i]);
        for (int n = 0; n < l.lists[rank].count; n++) {
            char text[INSTRUCTION_BYTES];

            begin_change(&l, rank);
            instruction_text(text, &kept.items[n]);
            /* W behind a fused B has no events and may end the frame. */
            take_out(&l.lists[rank], n);
            is_refused(&l, text, i);
            end_change(&l, rank);
        }
        IS_OK(verify(&l));
        drop(&l);
    }
}

TEST(every_need_is_missed)
{
    for (int i = 0; i < ROWS(layout_cases); i++) {
        const int rank = at_least_one(layout_cases[i].pipe) - 1;
        struct lists l;

        build(&l, &layout_cases[i]);
        for (int n = 0; n < l.lists[rank].count; n++) {
            struct instruction *at;

            if (l.lists[rank].items[n].needs == 0) continue;
            begin_change(&l, rank);
            at = &l.lists[rank].items[n];
            at->first_need++;
            at->needs--;
            is_refused(&l, "need", n);
            end_change(&l, rank);
        }
        drop(&l);
    }
}

TEST(an_instruction_that_stands_twice_is_refused)
{
    struct lists l;

    build(&l, &layout_cases[11]);
    for (int n = 0; n < l.lists[0].count; n++) {
        begin_change(&l, 0);
        IS_OK(list_put(&l.lists[0], kept.items[n]));
        swap(&l.lists[0], l.lists[0].count - 1, l.lists[0].count - 2);
        is_refused(&l, "twice", n);
        end_change(&l, 0);
    }
    drop(&l);
}

/* Rows that are freed before they are read, or read before they are there. */
TEST(neighbours_that_change_places_are_refused)
{
    static const struct {
        enum instruction_kind one;
        int which, other; /* case; distance to the one it changes with */
    } rows[] = {
        {DO_PLACE, 8, 1},   /* F before its weights are placed */
        {DO_RELEASE, 8, -1},/* released before F */
        {DO_SEND, 16, -1},  /* sent before F */
        {DO_SUM, 1, -1},    /* summed before B has filled it */
        {DO_REDUCE, 8, -1}, /* reduced before B has filled it */
        {DO_TAKE, 11, 1},   /* B before its room is taken */
        {DO_NORM, 8, 1},    /* decided before the norm */
        {DO_SECOND, 8, -1},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct lists l;
        int at;

        build(&l, &layout_cases[rows[i].which]);
        at = first_of(&l.lists[0], rows[i].one);
        swap(&l.lists[0], at, at + rows[i].other);
        is_refused(&l, instruction_rows[rows[i].one].name, i);
        drop(&l);
    }
}

/* A rank that sends only after it has waited for what the other side sends
 * back. */
TEST(ranks_that_wait_for_each_other_are_refused)
{
    struct lists l;
    int send, wait;

    build(&l, &layout_cases[16]);
    send = first_of(&l.lists[0], DO_SEND);
    wait = first_of(&l.lists[0], DO_RECEIVE_BACK);
    CHECK(wait > send);
    l.lists[1].items[first_of(&l.lists[1], DO_RECEIVE)].microbatch = 7;
    is_refused(&l, "another micro-batch", 0);
    drop(&l);

    build(&l, &layout_cases[16]);
    for (int n = 0; n < l.lists[1].count; n++) /* B of the last, then F */
        if (l.lists[1].items[n].kind == DO_SEND_BACK) {
            /* its receive's partner is asked for behind the loss */
            const int loss = first_of(&l.lists[1], DO_LOSS);

            for (int at = n; at + 1 < loss; at++)
                swap(&l.lists[1], at, at + 1);
            break;
        }
    is_refused(&l, "a late send", 0);
    drop(&l);
}

/* Rank 0 of one pipe of two, rank 1 of another: each list alone is right. */
static void build_halves(struct lists *out, const struct layout_case *one,
                         const struct layout_case *other)
{
    struct lists second;

    build(out, one);
    build(&second, other);
    list_free(&out->lists[1]);
    pipeline_free(&out->pipelines[1]);
    out->lists[1] = second.lists[1];
    out->pipelines[1] = second.pipelines[1];
    second.count = 1;
    drop(&second);
}

TEST(messages_without_another_side_are_refused)
{
    const struct layout_case few = {.schedule = "1f1b", .zero = "ddp",
                                    .pipe = 2, .micro_batch = 4};
    const struct layout_case many = {.schedule = "1f1b", .zero = "ddp",
                                     .pipe = 2, .micro_batch = 2};
    struct lists l;

    build_halves(&l, &many, &few);
    FAILS(verify(&l), ERR_VERIFY, "has no other side on rank 1");
    drop(&l);
    build_halves(&l, &few, &many);
    FAILS(verify(&l), ERR_VERIFY, "has no other side on rank 0");
    drop(&l);
}

/* 1f1b waits for the first B before it sends all F; gpipe makes all F before
 * the first B. */
TEST(pipes_of_two_schedules_wait_forever)
{
    const struct layout_case one = {.schedule = "1f1b", .zero = "ddp",
                                    .pipe = 2};
    const struct layout_case all = {.schedule = "gpipe", .zero = "ddp",
                                    .pipe = 2};
    struct lists l;

    build_halves(&l, &one, &all);
    FAILS(verify(&l), ERR_VERIFY, "waits forever");
    drop(&l);
}

TEST(ranks_make_common_calls_in_one_order)
{
    const struct list_channel shard = {.resource = RESOURCE_SHARD,
                                       .stage = -1};
    struct lists l;
    uint64_t before;

    build(&l, &layout_cases[9]);
    before = list_channel_hash(&l.lists[0], &shard);
    CHECK(before == list_channel_hash(&l.lists[0], &shard));
    for (int n = 0; n + 1 < l.lists[0].count; n++)
        if (l.lists[0].items[n].kind == DO_GATHER &&
            l.lists[0].items[n + 1].kind == DO_GATHER) {
            swap(&l.lists[0], n, n + 1);
            break;
        }
    CHECK(before != list_channel_hash(&l.lists[0], &shard));
    drop(&l);
}

/* ---- random lists ---- */

static int drawn(struct random_key key, uint64_t *at, int below)
{
    return (int)random_below(key, (*at)++, (uint64_t)below);
}

static struct layout_case draw_case(struct random_key key, uint64_t *at)
{
    static const char *const zeros[] = {"ddp", "zero1", "zero2", "fsdp"};
    struct layout_case c = {
        .schedule = schedule_rows[drawn(key, at, schedule_row_count)].name,
        .zero = zeros[drawn(key, at, 4)], .pipe = 1 << drawn(key, at, 3),
        .data = 1 << drawn(key, at, 2), .tensor = 1 << drawn(key, at, 2),
        .prefetch = drawn(key, at, 4), .keep = drawn(key, at, 2),
        .tied = drawn(key, at, 2), .z_loss = drawn(key, at, 2)};

    if (c.pipe == 1) c.schedule = "1f1b";
    if (strcmp(c.schedule, "dualpipe") == 0 && c.pipe == 1) c.pipe = 2;
    if (c.pipe == 1 && c.data > 1 && strcmp(c.zero, "ddp") != 0 &&
        strcmp(c.zero, "zero1") != 0 && drawn(key, at, 2))
        c.rounds = 1 << drawn(key, at, 3);
    if (c.pipe > 1 && c.data > 1 && c.zero[0] != 'd' &&
        strcmp(c.zero, "zero1") != 0 && strcmp(c.schedule, "1f1b") == 0)
        c.rounds = 1 << drawn(key, at, 4);
    return c;
}

TEST(random_layouts_can_be_trusted_and_their_mutants_cannot)
{
    const struct random_key key = random_key_make(18, "lists");
    uint64_t at = 0;

    for (int i = 0; i < 60; i++) {
        const struct layout_case c = draw_case(key, &at);
        struct lists l;
        int rank, n;

        build(&l, &c);
        if (verify(&l) != OK)
            print_error("draw %d: %s %s pipe %d data %d tensor %d: %s\n", i,
                        c.schedule, c.zero, c.pipe, c.data, c.tensor,
                        status_message());
        IS_OK(verify(&l));
        for (int j = 0; j < 10; j++) {
            char text[INSTRUCTION_BYTES];

            rank = drawn(key, &at, l.count);
            n = drawn(key, &at, l.lists[rank].count);
            begin_change(&l, rank);
            take_out(&l.lists[rank], n);
            is_refused(&l, instruction_text(text, &kept.items[n]), i);
            end_change(&l, rank);
        }
        drop(&l);
    }
}

/* The next that computes, of the same stage and another micro-batch; -1: none.
 * Nothing between them computes. */
static int follower(const struct step_list *list, int number)
{
    const struct instruction *at = &list->items[number];

    for (int n = number + 1; n < list->count; n++) {
        const struct instruction *next = &list->items[n];

        if (!instruction_computes(next)) continue;
        return next->chunk == at->chunk && next->microbatch != at->microbatch
                   ? n : -1;
    }
    return -1;
}

static bool begins_pass(const struct pipeline *p, const struct instruction *i)
{
    const struct frame_plan *frame = &p->stages[i->chunk].frame;

    return i->first_event == 0 || i->first_event == frame->forward_end ||
           i->first_event == frame->backward_end;
}

/* All micro-batches of a stage share one room for slots inside a pass. */
TEST(passes_of_a_stage_that_interleave_are_refused)
{
    int refused = 0;

    for (int i = 0; i < ROWS(layout_cases); i++) {
        struct lists l;

        build(&l, &layout_cases[i]);
        for (int n = 0; n < l.lists[0].count; n++) {
            const struct instruction *at = &l.lists[0].items[n];
            const int next = instruction_computes(at)
                                 ? follower(&l.lists[0], n) : -1;

            if (next < 0 || begins_pass(&l.pipelines[0], at)) continue;
            begin_change(&l, 0);
            swap(&l.lists[0], n, next);
            EQUAL_INT(verify(&l), ERR_VERIFY);
            refused += strstr(status_message(), "another pass") != NULL;
            status_clear();
            end_change(&l, 0);
        }
        drop(&l);
    }
    CHECK(refused > 20);
}

TEST_MAIN(passes_of_a_stage_that_interleave_are_refused,
          every_instruction_is_missed, every_need_is_missed,
          an_instruction_that_stands_twice_is_refused,
          neighbours_that_change_places_are_refused,
          ranks_that_wait_for_each_other_are_refused,
          messages_without_another_side_are_refused,
          pipes_of_two_schedules_wait_forever,
          ranks_make_common_calls_in_one_order,
          random_layouts_can_be_trusted_and_their_mutants_cannot)
