/* SPDX-License-Identifier: Apache-2.0 */
/* test_memory_draw.c - mirrors src/report/memory_draw.c. */
#include "tests/test.h"
#include "train/draft.h"
#include "report/memory_draw.h"

struct fixture {
    struct options_set set;
    struct setup setup;
    struct draft draft;
    struct text picture;
};

static void begin(struct fixture *f, int ranks, const char *const *more,
                  int count)
{
    static const char *const usual[] = {
        "model.vocab=64", "model.layers=4", "model.width=32", "model.heads=4",
        "model.feed_forward=48", "data.sequence=40", "train.batch=8",
        "train.micro_batch=2", "train.steps=3", "train.recompute=none"};

    *f = (struct fixture){.setup = {.set = NULL}};
    IS_OK(options_init(&f->set));
    for (int i = 0; i < ROWS(usual); i++)
        IS_OK(options_assign(&f->set, usual[i], ORIGIN_FILE));
    for (int i = 0; i < count; i++)
        IS_OK(options_assign(&f->set, more[i], ORIGIN_FILE));
    IS_OK(setup_resolve(&f->setup, &f->set, &(struct vocabulary){0, -1}, ranks,
                        0));
    IS_OK(setup_length(&f->setup, 0));
    IS_OK(draft_build(&f->draft, &f->setup, 0));
    IS_OK(memory_svg(&f->draft.pipeline, &f->picture));
}

static void end(struct fixture *f)
{
    text_free(&f->picture);
    draft_free(&f->draft);
    setup_free(&f->setup);
    options_free(&f->set);
}

static int occurrences(const struct fixture *f, const char *words)
{
    int count = 0;

    for (const char *at = f->picture.bytes;
         (at = strstr(at, words)) != NULL; at++)
        count++;
    return count;
}

TEST(every_buffer_has_its_box)
{
    struct fixture f;
    int boxes = 0;

    begin(&f, 1, NULL, 0);
    const struct frame_plan *plan = &f.draft.pipeline.stages[0].frame;

    for (int i = 0; i < plan->buffer_count; i++)
        boxes += plan->buffers[i].first <= plan->buffers[i].last &&
                 plan->buffers[i].bytes > 0;
    CHECK(boxes > 20);
    EQUAL_INT(occurrences(&f, " bytes at "), boxes);
    EQUAL_INT(occurrences(&f, "<svg "), 1);
    end(&f);
}

TEST(every_owner_has_its_band)
{
    struct fixture f;

    begin(&f, 1, NULL, 0);
    for (int i = 0; i < MEMORY_OWNERS; i++) {
        const struct memory_row *row = &f.draft.pipeline.stages[0].memory[i];
        char words[128];

        if (i == MEMORY_FRAME || i == MEMORY_PASS) continue;
        snprintf(words, sizeof words, "<title>%s: %zu bytes</title>",
                 row->name, row->bytes);
        EQUAL_INT(occurrences(&f, words), row->bytes > 0);
    }
    end(&f);
}

/* The curve of what is alive reaches the planned frame somewhere, where no gaps
 * are left, and never goes beyond it: both are drawn from the plan. */
TEST(what_is_alive_fits_the_frame)
{
    struct fixture f;
    long long most = 0;

    begin(&f, 1, NULL, 0);
    const struct frame_plan *plan = &f.draft.pipeline.stages[0].frame;

    for (int event = 0; event < plan->event_count; event++) {
        long long alive = 0;

        for (int i = 0; i < plan->buffer_count; i++)
            if (plan->buffers[i].first <= event &&
                event <= plan->buffers[i].last)
                alive += plan->buffers[i].bytes;
        if (alive > most) most = alive;
    }
    CHECK(most > 0 && most <= plan->bytes);
    CHECK(occurrences(&f, "gradients of activations: at most ") == 1);
    end(&f);
}

TEST(each_stage_of_a_rank_is_drawn)
{
    static const char *const more[] = {
        "mesh.pipe=2", "schedule.name=interleaved", "train.micro_batch=1"};
    struct fixture f;

    begin(&f, 2, more, ROWS(more));
    EQUAL_INT(f.draft.pipeline.count, 2);
    EQUAL_INT(occurrences(&f, "<svg "), 2);
    CHECK(occurrences(&f, "other micro-batches in flight") > 0);
    end(&f);
}

TEST(a_file_needs_nothing_else)
{
    struct fixture f;
    char directory[PATH_BYTES], path[PATH_BYTES];
    struct text bytes = {0};

    begin(&f, 1, NULL, 0);
    test_directory(directory);
    IS_OK(path_join(path, PATH_BYTES, directory, "memory.svg"));
    IS_OK(memory_draw(&f.draft.pipeline, path));
    IS_OK(file_read(path, 1 << 22, &bytes));
    CHECK(strstr(bytes.bytes, "<svg xmlns=") == bytes.bytes);
    CHECK(strstr(bytes.bytes, "<style>") != NULL);
    CHECK(strcmp(bytes.bytes + bytes.length - 7, "</svg>\n") == 0);
    text_free(&bytes);
    IS_OK(directory_remove(directory));
    end(&f);
}

TEST_MAIN(every_buffer_has_its_box, every_owner_has_its_band,
          what_is_alive_fits_the_frame, each_stage_of_a_rank_is_drawn,
          a_file_needs_nothing_else)
