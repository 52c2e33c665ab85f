/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_latest.c - do RUN/ckpt/latest and RUN/lock do no harm, whatever is in
 * them? The newest checkpoint is the one that `latest` names, else the highest;
 * a lock that nobody holds never keeps a run from going on, and one that is
 * held does.
 *
 *    1 byte   which of the steps are there
 *    1        bytes of the lock; the rest is of `latest` */
#include <string.h>
#include "checkpoint/history.h"
#include "checkpoint/run_dir.h"
#include "tests/fuzz/grammar.h"
#include "tests/fuzz/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEPS = 4 };
static const int64_t steps[STEPS] = {7, 20, 300, 99999999};

static void name_of(int64_t step, char name[32])
{
    snprintf(name, 32, "step-%08lld", (long long)step);
}

static void lay_steps(int there)
{
    char name[32], folder[PATH_BYTES], path[PATH_BYTES];

    CHECK(path_join(folder, sizeof folder, scratch, "ckpt") == OK);
    CHECK(directory_make(folder) == OK);
    for (int i = 0; i < STEPS; i++) {
        name_of(steps[i], name);
        CHECK(path_join(path, sizeof path, folder, name) == OK);
        if (there >> i & 1) CHECK(directory_make(path) == OK);
        else if (directory_remove(path) != OK) status_clear();
    }
}

/* -1: there is none. */
static int64_t expected(int there, const uint8_t *latest, size_t size)
{
    char name[32];
    int64_t highest = -1;

    for (int i = 0; i < STEPS; i++) {
        if ((there >> i & 1) == 0) continue;
        highest = steps[i];
        name_of(steps[i], name);
        if (size == strlen(name) + 1 && latest[size - 1] == '\n' &&
            memcmp(latest, name, size - 1) == 0)
            return steps[i];
    }
    return highest;
}

static void check_newest(int there, const uint8_t *latest, size_t size)
{
    const int64_t want = expected(there, latest, size);
    char path[PATH_BYTES];
    int64_t step = -1;
    const status result = checkpoint_find_newest(scratch, path, &step);

    CHECK(result == (want < 0 ? ERR_MISSING : OK));
    CHECK(step == want);
    status_clear();
}

static void check_lock(void)
{
    struct run_dir run = {.path = ""}, second = {.path = ""};

    CHECK(run_dir_resume(&run, scratch) == OK);
    CHECK(run_dir_resume(&second, scratch) == ERR_CONFIG);
    CHECK(strstr(status_message(), "in use") != NULL);
    status_clear();
    run_dir_close(&second);
    run_dir_close(&run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *latest;
    size_t lock;

    if (size < 2 || memchr(data + 2, '\0', size - 2) != NULL) return 0;
    lock = data[1] < size - 2 ? data[1] : size - 2;
    latest = data + 2 + lock;
    size -= 2 + lock;
    if (scratch_make()) scratch_put("config.yaml", "version: 1\n", 11);
    lay_steps(data[0]);
    scratch_put("lock", data + 2, lock);
    scratch_put("ckpt/latest", latest, size);
    check_newest(data[0], latest, size);
    check_lock();
    return 0;
}

/* ---- the mutator ---- */

static const char *const marks[] = {
    "step-00000007\n", "step-00000020\n", "step-00000300\n",
    "step-99999999\n", "step-99999999", "step-00000008\n", "step-", "\n",
    "../", "ckpt/", "1\n", "4194304\n", "-1", NULL};
static const struct grammar words = {words_grammar_read, words_grammar_write,
                                     marks};

/* Words of `latest`, or of the lock, whose length is then as it has become; an
 * empty one gets a word. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    struct out out = {.bytes = data, .room = room};
    size_t lock, changed;

    mutate_seed(seed);
    if (size < 2 || draw(16) == 0) return LLVMFuzzerMutate(data, size, room);
    if (draw(2) == 0) data[0] = (uint8_t)draw(1 << STEPS);
    lock = data[1] < size - 2 ? data[1] : size - 2;
    if (draw(3) == 0 || size == 2 + lock) { /* one word and no other */
        out.at = 2 + lock;
        put_text(&out, marks[draw(sizeof marks / sizeof *marks - 1)]);
        return out.full ? size : out.at;
    }
    if (draw(3) != 0) {
        changed = mutate_range(&words, data, size, room,
                               (size_t[]){2 + lock, size});
        return changed != 0 ? changed : size;
    }
    changed = mutate_range(&words, data, size, room, (size_t[]){2, 2 + lock});
    if (changed == 0) return size;
    lock += changed - size;
    data[1] = (uint8_t)(lock < 255 ? lock : 255);
    return changed;
}
