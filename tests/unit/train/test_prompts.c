/* SPDX-License-Identifier: Apache-2.0 */
/* test_prompts.c - mirrors src/train/prompts.c: what a resumed run keeps of its
 * samples. What they are is compared by tests/equivalence/evaluate_ranks.sh. */
#include "train/prompts.h"

#include "tests/test.h"

TEST(samples_beyond_a_step_are_dropped)
{
    static const char one[] = "{\"step\": 2, \"prompt\": \"a\"}\n";
    static const char two[] = "{\"step\": 4, \"prompt\": \"a\"}\n";
    static const struct {
        const char *third;
        int64_t step;
        size_t lines;
    } rows[] = {{"", 0, 0}, {"", 2, 1}, {"", 3, 1}, {"", 4, 2}, {"", 9, 2},
                {"{\"step\": 6", 9, 2}, {"{\"step\": 6}\n", 4, 2},
                {"no json\n{\"step\": 6}\n", 9, 2},
                {"{\"step\": 6}\n", 6, 3}};
    char directory[PATH_BYTES], path[PATH_BYTES];

    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "samples.jsonl"));
    IS_OK(prompts_cut(path, 3)); /* none yet */
    for (int i = 0; i < ROWS(rows); i++) {
        struct text all = {0}, kept = {0};
        const size_t lengths[] = {0, sizeof one - 1,
                                  sizeof one + sizeof two - 2,
                                  sizeof one + sizeof two - 2 +
                                      strlen(rows[i].third)};

        IS_OK(text_printf(&all, "%s%s%s", one, two, rows[i].third));
        IS_OK(file_write_atomic(path, all.bytes, all.length));
        IS_OK(prompts_cut(path, rows[i].step));
        IS_OK(file_read(path, 1 << 20, &kept));
        EQUAL_INT(kept.length, lengths[rows[i].lines]);
        EQUAL_BYTES(kept.bytes, all.bytes, kept.length);
        text_free(&all);
        text_free(&kept);
    }
    IS_OK(directory_remove(directory));
}

TEST_MAIN(samples_beyond_a_step_are_dropped)
