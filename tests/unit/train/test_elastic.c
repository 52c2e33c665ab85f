/* SPDX-License-Identifier: Apache-2.0 */
/* test_elastic.c - layouts of runs that lose ranks and get them back. */
#include "train/elastic.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/test.h"

/* Options of a pipe of four, then these: "a.b=c|d.e=f". */
static void set_options(struct options_set *set, const char *settings)
{
    static const char text[] =
        "model: {vocab: 64, layers: 8, width: 16, heads: 2}\n"
        "data: {sequence: 8}\n"
        "train: {batch: 4, micro_batch: 1, steps: 2}\n"
        "mesh: {pipe: 4}\n";
    static char words[LAYOUT_WORDS_BYTES + 1024];
    char *rest, *word;

    IS_OK(options_init(set));
    IS_OK(options_read_text(set, text, strlen(text), "test", ORIGIN_FILE));
    snprintf(words, sizeof words, "%s", settings);
    for (word = strtok_r(words, "|", &rest); word != NULL;
         word = strtok_r(NULL, "|", &rest))
        IS_OK(options_assign(set, word, ORIGIN_COMMAND_LINE));
}

/* Layouts of ever fewer ranks, then of all again, as their settings. */
static void gives(const char *settings, int ranks, const char *const *layouts)
{
    struct options_set set = {0};
    struct elastic elastic;
    char words[LAYOUT_WORDS_BYTES];
    int found;

    set_options(&set, settings);
    IS_OK(elastic_open(&elastic, &set, ranks));
    for (; *layouts != NULL; layouts++) {
        const int most = atoi(*layouts);

        IS_OK(elastic_layout(&elastic, most, words, &found));
        EQUAL_INT(found, most);
        EQUAL_TEXT(words, strchr(*layouts, ' ') + 1);
    }
    options_free(&set);
}

/* Machines come and go for weeks: each change made the arena of the options
 * larger. */
TEST(changes_of_the_layout_need_no_more_memory)
{
    struct options_set set = {0};
    struct elastic elastic;
    char words[LAYOUT_WORDS_BYTES], first[LAYOUT_WORDS_BYTES];
    int found;

    set_options(&set, "mesh.layers=[1, 3, 4, 0]");
    IS_OK(elastic_open(&elastic, &set, 4));
    IS_OK(elastic_layout(&elastic, 2, first, &found));
    for (int most = 0; most <= 5; most++) {
        IS_OK(elastic_layout(&elastic, most, words, &found));
        /* A layout that was tried and is none is no error of the run. */
        EQUAL_TEXT(status_message(), "");
    }
    const size_t used = arena_bytes_out();

    for (int i = 0; i < 3000; i++) {
        IS_OK(elastic_layout(&elastic, i % 6, words, &found));
        EQUAL_INT(found, i % 6 < 3 ? i % 6 : i % 6 == 3 ? 2 : 4);
        if (i % 6 == 2) EQUAL_TEXT(words, first);
    }
    EQUAL_INT(arena_bytes_out(), used);
    options_free(&set);
}

TEST(a_pipe_loses_ranks)
{
    gives("mesh.layers=[]", 4, (const char *const[]){
        "2 mesh.data=1 mesh.shard=1 mesh.pipe=2 mesh.context=1 mesh.tensor=1",
        "4 mesh.data=1 mesh.shard=1 mesh.pipe=4 mesh.context=1 mesh.tensor=1",
        NULL});
}

TEST(uneven_blocks_are_for_the_whole_pipe)
{
    gives("mesh.layers=[1, 3, 4, 0]", 4, (const char *const[]){
        "4 mesh.data=1 mesh.shard=1 mesh.pipe=4 mesh.context=1 mesh.tensor=1 "
        "mesh.layers=[1,3,4,0]",
        "2 mesh.data=1 mesh.shard=1 mesh.pipe=2 mesh.context=1 mesh.tensor=1 "
        "mesh.layers=[]",
        "1 mesh.data=1 mesh.shard=1 mesh.pipe=1 mesh.context=1 mesh.tensor=1 "
        "mesh.layers=[]",
        "4 mesh.data=1 mesh.shard=1 mesh.pipe=4 mesh.context=1 mesh.tensor=1 "
        "mesh.layers=[1,3,4,0]",
        NULL});
}

/* "[2,1,1,...,1]", one for each stage. */
static void write_list(char *out, size_t size, int stages)
{
    size_t used = (size_t)snprintf(out, size, "[2");

    for (int i = 1; i < stages; i++)
        used += (size_t)snprintf(out + used, size - used, ",1");
    snprintf(out + used, size - used, "]");
}

TEST(a_long_list_comes_back)
{
    char list[600], settings[800], whole[800];

    write_list(list, sizeof list, 256);
    snprintf(settings, sizeof settings, "model.layers=257|schedule.chunks=64|"
             "schedule.name=interleaved|mesh.layers=%s", list);
    snprintf(whole, sizeof whole, "4 mesh.data=1 mesh.shard=1 mesh.pipe=4 "
             "mesh.context=1 mesh.tensor=1 mesh.layers=%s", list);
    gives(settings, 4, (const char *const[]){
        "2 mesh.data=1 mesh.shard=1 mesh.pipe=2 mesh.context=1 mesh.tensor=1 "
        "mesh.layers=[]", whole, NULL});
}

#define FILE_SETTING "schedule.name=examples/04_schedules/late_weights.txt"

TEST(a_schedule_from_a_file_comes_back)
{
    gives("train.batch=6|mesh.pipe=2|mesh.data=2|" FILE_SETTING, 4,
          (const char *const[]){
        "4 mesh.data=2 mesh.shard=1 mesh.pipe=2 mesh.context=1 mesh.tensor=1 "
        FILE_SETTING " schedule.chunks=0",
        "2 mesh.data=1 mesh.shard=1 mesh.pipe=2 mesh.context=1 mesh.tensor=1 "
        "schedule.name=1f1b schedule.chunks=0",
        "1 mesh.data=1 mesh.shard=1 mesh.pipe=1 mesh.context=1 mesh.tensor=1 "
        "schedule.name=1f1b schedule.chunks=0",
        "4 mesh.data=2 mesh.shard=1 mesh.pipe=2 mesh.context=1 mesh.tensor=1 "
        FILE_SETTING " schedule.chunks=0",
        NULL});
    gives("train.batch=3|mesh.pipe=2|mesh.tensor=2|mesh.layers=[3,5]|"
          FILE_SETTING, 4, (const char *const[]){
        "2 mesh.data=1 mesh.shard=1 mesh.pipe=1 mesh.context=1 mesh.tensor=2 "
        "mesh.layers=[] schedule.name=1f1b schedule.chunks=0",
        NULL});
}

/* That of examples/04_schedules/late_weights.txt. */
static void write_schedule(const char *path)
{
    FILE *out = fopen(path, "w");

    CHECK(out != NULL);
    fputs("F0.0 F0.1 B0.0 F0.2 B0.1 W0.0 B0.2 W0.1 W0.2\n"
          "F1.0 B1.0 F1.1 B1.1 W1.0 F1.2 B1.2 W1.1 W1.2\n", out);
    CHECK(fclose(out) == 0);
}

/* An answer without it was remembered. */
TEST(a_schedule_whose_file_is_back_is_taken)
{
    struct options_set set = {0};
    struct elastic elastic;
    char path[] = "/tmp/lockstep-elastic-XXXXXX", setting[128];
    char words[LAYOUT_WORDS_BYTES];
    const int file = mkstemp(path);
    int found;

    CHECK(file >= 0 && close(file) == 0);
    write_schedule(path);
    snprintf(setting, sizeof setting, "train.batch=6|mesh.pipe=2|mesh.data=2|"
             "schedule.name=%s", path);
    set_options(&set, setting);
    IS_OK(elastic_open(&elastic, &set, 4));
    CHECK(unlink(path) == 0);
    for (int i = 0; i < 2; i++) {
        IS_OK(elastic_layout(&elastic, 4, words, &found));
        EQUAL_INT(found, 2);
        CHECK(strstr(words, path) == NULL);
    }
    write_schedule(path);
    IS_OK(elastic_layout(&elastic, 4, words, &found));
    EQUAL_INT(found, 4);
    CHECK(strstr(words, path) != NULL);
    CHECK(unlink(path) == 0); /* what is known needs it no more */
    IS_OK(elastic_layout(&elastic, 4, words, &found));
    EQUAL_INT(found, 4);
    options_free(&set);
}

/* The options are refused, before a run begins. */
static void refuses(const char *settings, const char *words)
{
    struct options_set set = {0};
    struct elastic elastic;

    set_options(&set, settings);
    FAILS(elastic_open(&elastic, &set, 4), ERR_CONFIG, words);
    options_free(&set);
}

TEST(what_cannot_be_carried_is_refused)
{
    static char list[9000], settings[9100];

    write_list(list, sizeof list, 4096);
    snprintf(settings, sizeof settings, "mesh.layers=%s", list);
    refuses(settings, "mesh.layers and schedule.name: 8196 bytes, of which a "
                      "run that may lose ranks takes at most 7935");
    refuses("schedule.name=my plans/late.txt", "has a space");
}

TEST_MAIN(changes_of_the_layout_need_no_more_memory,
          a_pipe_loses_ranks, uneven_blocks_are_for_the_whole_pipe,
          a_long_list_comes_back, a_schedule_from_a_file_comes_back,
          a_schedule_whose_file_is_back_is_taken,
          what_cannot_be_carried_is_refused)
