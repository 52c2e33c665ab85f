/* SPDX-License-Identifier: Apache-2.0 */
/* test_task.c - mirrors src/corpus/task.c: records as items, and what is said
 * of those that are none. */
#include "corpus/task.h"

#include <stdlib.h>
#include <sys/resource.h>
#include "base/file.h"
#include "tests/sanitized.h"
#include "tests/test.h"

static status read_line(struct task *task, enum task_kind kind,
                        const char *line)
{
    char directory[PATH_BYTES], path[PATH_BYTES];

    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "task.jsonl"));
    IS_OK(file_write_atomic(path, line, strlen(line)));
    return task_read(task, &(struct task_source){.path = path, .kind = kind});
}

TEST(records_become_items)
{
    static const struct {
        enum task_kind kind;
        const char *line, *context, *first;
        int choices, answer;
    } rows[] = {
        {TASK_HELLASWAG, "{\"activity_label\": \"Sport\", \"ctx_a\": \"A man "
         "[x] runs.\", \"ctx_b\": \"THE dog\", \"endings\": [\" [step] sits."
         "\", \"b\"], \"label\": \"1\"}", "Sport: A man runs. The dog",
         " sits.", 2, 1},
        {TASK_HELLASWAG, "{\"ctx\": \"A\", \"endings\": [\"a\"], \"label\": "
         "0}", "A", "a", 1, 0},
        {TASK_ARC, "{\"question\": \"Why?\", \"choices\": {\"text\": [\"a\", "
         "\"b\"], \"label\": [\"A\", \"B\"]}, \"answerKey\": \"B\"}",
         "Question: Why?\nAnswer:", "a", 2, 1},
        {TASK_ARC, "{\"question\": {\"stem\": \"Why?\", \"choices\": "
         "[{\"text\": \"a\", \"label\": \"1\"}]}, \"answerKey\": \"1\"}",
         "Question: Why?\nAnswer:", "a", 1, 0},
        {TASK_LAMBADA, "{\"text\": \"one two three\"}", "one two", "three", 1,
         0},
        {TASK_LAMBADA, "{\"text\": \"one two \"}", "one two", "", 1, 0},
        {TASK_CHOICE, "{\"context\": \"c\", \"choices\": [\"a\", \"b\"], "
         "\"answer\": 1}", "c", "a", 2, 1},
        {TASK_CHOICE, "{\"context\": \"c\", \"choices\": [\"B\", \"b\"], "
         "\"answer\": \"b\"}", "c", "B", 2, 1},
        {TASK_CHOICE, "\n{\"context\": \"\", \"choices\": [\"x\", \"y\"], "
         "\"answer\": \"A\"}\n\n", "", "x", 2, 0},
        {TASK_TEXT, "{\"text\": \"a b\"}", "", "a b", 1, 0},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct task task;

        IS_OK(read_line(&task, rows[i].kind, rows[i].line));
        EQUAL_INT(task.count, 1);
        EQUAL_TEXT(task.items[0].context.bytes, rows[i].context);
        EQUAL_TEXT(task.items[0].choices[0].bytes, rows[i].first);
        EQUAL_INT(task.items[0].choice_count, rows[i].choices);
        EQUAL_INT(task.items[0].answer, rows[i].answer);
        task_free(&task);
    }
}

TEST(records_that_are_none_are_named)
{
    static const struct {
        enum task_kind kind;
        const char *line, *words;
    } rows[] = {
        {TASK_HELLASWAG, "{\"ctx\": \"A\", \"endings\": [], \"label\": 0}",
         "line 1: \"endings\" has 0 items"},
        {TASK_HELLASWAG, "{\"ctx\": \"A\", \"endings\": [\"a\"], \"label\": "
         "\"\"}", "\"label\" is not a number"},
        {TASK_HELLASWAG, "{\"ctx\": \"A\", \"endings\": [\"a\"], \"label\": "
         "1}", "\"label\" is 1, but there are 1 choices"},
        {TASK_HELLASWAG, "{\"ctx\": \"A\", \"endings\": [3], \"label\": 0}",
         "item 0 of \"endings\" is not a text"},
        {TASK_ARC, "{\"question\": \"Why?\", \"choices\": {\"text\": [\"a\"], "
         "\"label\": [\"A\", \"B\"]}, \"answerKey\": \"B\"}",
         "1 choices have 2 labels"},
        {TASK_ARC, "{\"question\": \"Why?\", \"choices\": {\"text\": [\"a\"], "
         "\"label\": [\"A\"]}, \"answerKey\": \"B\"}", "no choice has"},
        {TASK_LAMBADA, "{\"text\": \"one\"}", "no last word"},
        {TASK_LAMBADA, "[1]", "expected an object"},
        {TASK_CHOICE, "{\"context\": \"c\", \"choices\": [\"a\"]}",
         "\"answer\" is missing"},
        {TASK_CHOICE, "{\"context\": \"c\", \"choices\": [\"a\"], \"answer\": "
         "\"b\"}", "\"answer\" is not a number"},
        {TASK_CHOICE, "\n\n", "has no record"},
        {TASK_CHOICE, "{\"context\": ", "line 1"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct task task;

        FAILS(read_line(&task, rows[i].kind, rows[i].line), ERR_FORMAT,
              rows[i].words);
        task_free(&task);
        status_clear();
    }
}

TEST(words_characters_and_spaces_are_python_s)
{
    static const struct {
        const char *text;
        int64_t words, characters;
        size_t space;
    } rows[] = {{"", 1, 0, 0}, {"a b", 2, 3, 0}, {" a\t\nb ", 4, 6, 1},
                {"n\xC3\xA4h\xE3\x80\x80x", 2, 5, 0},
                {"a\xC2\xA0\x1C", 2, 3, 3}, {" \n ", 2, 3, 3}};

    for (int i = 0; i < ROWS(rows); i++) {
        const struct task_text text = {rows[i].text, strlen(rows[i].text)};

        EQUAL_INT(task_words(text), rows[i].words);
        EQUAL_INT(task_characters(text), rows[i].characters);
        EQUAL_INT(task_trailing_space(text), rows[i].space);
    }
}

TEST(a_kind_is_found_by_name_and_by_keys)
{
    enum task_kind kind;

    FAILS(task_kind_find("--kind", "helaswag", &kind), ERR_CONFIG,
          "nearest: hellaswag");
    status_clear();
    IS_OK(task_guess_file("tests/golden/evaluation/arc.jsonl", &kind));
    EQUAL_INT(kind, TASK_ARC);
    IS_OK(task_guess_file("tests/golden/evaluation/multiple_choice.jsonl",
                          &kind));
    EQUAL_INT(kind, TASK_CHOICE);
    FAILS(task_guess_file("tests/golden/evaluation/lambada.jsonl", &kind),
          ERR_CONFIG, "do not show the kind");
    status_clear();
}

/* Guards against lines that are small on the disk and large as a tree: every
 * value took 40 bytes, also of fields that no task has. */
TEST(other_fields_cost_no_memory)
{
    enum { VALUES = 2 << 20, PEAK_KB = 80 << 10 };
    static const char head[] = "{\"text\": \"one two\", \"x\": [[]";
    char *line = malloc(sizeof head + 3 * VALUES + 8);
    char *at = line;
    struct rusage usage;
    struct task task;

    CHECK(line != NULL);
    at += sprintf(at, "%s", head);
    for (int i = 0; i < VALUES; i++) {
        memcpy(at, ",[]", 3);
        at += 3;
    }
    memcpy(at, "]}\n", 4);
    IS_OK(read_line(&task, TASK_LAMBADA, line));
    EQUAL_INT(task.count, 1);
    EQUAL_TEXT(task.items[0].choices[0].bytes, "two");
    task_free(&task);
    free(line);
    EQUAL_INT(getrusage(RUSAGE_SELF, &usage), 0);
    CHECK(SANITIZED || usage.ru_maxrss < PEAK_KB);
}

TEST_MAIN(records_become_items, other_fields_cost_no_memory,
          records_that_are_none_are_named,
          words_characters_and_spaces_are_python_s,
          a_kind_is_found_by_name_and_by_keys)
