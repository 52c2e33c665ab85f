/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_task.c - can a record of a task hurt us? The first byte of the input
 * chooses the kind, the rest is the file. */
#include <sys/mman.h>
#include <unistd.h>

#include "base/arena.h"
#include "corpus/task.h"
#include "tests/fuzz/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_item(const struct task_item *item)
{
    CHECK(item->choice_count >= 1 && item->answer >= 0);
    CHECK(item->answer < item->choice_count);
    CHECK(task_trailing_space(item->context) <= item->context.length);
    for (int i = 0; i < item->choice_count; i++) {
        const struct task_text choice = item->choices[i];

        CHECK(task_words(choice) >= 1);
        CHECK(task_characters(choice) <= (int64_t)choice.length);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int file = memfd_create("task", MFD_CLOEXEC);
    struct task task = {0};
    char path[64];
    const struct task_source source = {
        .path = path, .kind = size > 0 ? (enum task_kind)(data[0] % TASK_KINDS)
                                       : TASK_CHOICE};

    /* A packed file may be a bomb: fuzz_corpus looks at that. */
    if (size > 1 && (data[1] == 0x1F || data[1] == 0x28)) size = 0;
    CHECK(file >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (size >= 2 && write(file, data + 1, size - 1) == (ssize_t)size - 1 &&
        task_read(&task, &source) == OK)
        for (int64_t i = 0; i < task.count; i++) check_item(&task.items[i]);
    status_clear();
    task_free(&task);
    close(file);
    CHECK(arena_bytes_out() == 0);
    return 0;
}

/* ---- the mutator ---- */

static const char *const words[] = {
    "question", "stem", "choices", "text", "label", "answerKey", "ctx", "ctx_a",
    "ctx_b", "endings", "context", "answer", "A", "B", "Z", "1", "goal", "sol1",
    "sol2", "sentence", "option1", "option2", NULL};
static const struct grammar grammar = {jsonl_grammar_read, jsonl_grammar_write,
                                       words};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    if (size > 0 && draw(8) == 0) data[0] = (uint8_t)draw(TASK_KINDS);
    return mutate_from(&grammar, data, size, room, 1);
}
