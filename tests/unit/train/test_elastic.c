/* SPDX-License-Identifier: Apache-2.0 */
/* test_elastic.c - layouts of runs that lose ranks and get them back. */
#include "train/elastic.h"

#include <stdlib.h>
#include <string.h>
#include "tests/test.h"

enum { WORDS = 512 };

/* Layouts of ever fewer ranks, then of all again, as their settings. */
static void gives(const char *setting, int ranks, const char *const *layouts)
{
    static const char text[] =
        "model: {vocab: 64, layers: 8, width: 16, heads: 2}\n"
        "data: {sequence: 8}\n"
        "train: {batch: 4, micro_batch: 1, steps: 2}\n"
        "mesh: {pipe: 4}\n";
    struct options_set set = {0};
    struct elastic elastic;
    char words[WORDS];
    int found;

    IS_OK(options_init(&set));
    IS_OK(options_read_text(&set, text, strlen(text), "test", ORIGIN_FILE));
    IS_OK(options_assign(&set, setting, ORIGIN_COMMAND_LINE));
    IS_OK(elastic_open(&elastic, &set, ranks));
    for (; *layouts != NULL; layouts++) {
        const int most = atoi(*layouts);

        IS_OK(elastic_layout(&elastic, most, words, sizeof words, &found));
        EQUAL_INT(found, most);
        EQUAL_TEXT(words, strchr(*layouts, ' ') + 1);
    }
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

TEST_MAIN(a_pipe_loses_ranks, uneven_blocks_are_for_the_whole_pipe)
