/* SPDX-License-Identifier: Apache-2.0 */
/* best.c - the checkpoint of a run with the lowest validation loss. */
#include "checkpoint/best.h"

#include <math.h>

#include "base/arena.h"
#include "base/json.h"
#include "checkpoint/history.h"

static const size_t state_bytes_max = (size_t)64 << 20;

struct known {
    double loss;       /* of this step; NaN: it was not validated */
    int64_t best_step; /* so far; 0: none */
};

static status read_known(const char *directory, struct known *out)
{
    char path[PATH_BYTES];
    const struct json *state;
    struct text text = {0};
    struct arena arena;
    status result;

    *out = (struct known){.loss = (double)NAN};
    arena_init(&arena, "state.json", 0);
    TRY_GOTO(done, result, path_join(path, sizeof path, directory,
                                     "state.json"));
    TRY_GOTO(done, result, file_read_regular(path, state_bytes_max, &text));
    TRY_GOTO(done, result, json_read(&state, &arena, text.bytes, text.length,
                                     path));
    if (state->kind != JSON_OBJECT)
        FAIL_GOTO(done, result, ERR_FORMAT, "%s: is not an object", path);
    TRY_GOTO(done, result, json_get_real_or(state, path, "valid_loss",
                                            (double)NAN, &out->loss));
    result = json_get_integer_or(state, path, "best_step", 0, &out->best_step);
done:
    arena_free(&arena);
    text_free(&text);
    return result;
}

static status step_directory(const char *run, int64_t step,
                             char out[PATH_BYTES])
{
    char all[PATH_BYTES], name[32];

    TRY(path_join(all, sizeof all, run, "ckpt"));
    step_name(name, step);
    return path_join(out, PATH_BYTES, all, name);
}

/* A damaged state.json is that of a checkpoint which nobody can use. */
static double loss_of(const char *run, int64_t step)
{
    char directory[PATH_BYTES];
    struct known known;

    if (step_directory(run, step, directory) == OK &&
        read_known(directory, &known) == OK)
        return known.loss;
    status_clear();
    return (double)NAN;
}

status checkpoint_best_step(const char *run, int64_t known, int64_t *best)
{
    char newest[PATH_BYTES];
    int64_t *steps = NULL, last = -1;
    double least = (double)INFINITY;
    bool found = false;
    int count = 0;
    status result;

    *best = -1;
    TRY_GOTO(done, result, checkpoint_steps(run, &steps, &count));
    if (count == 0) goto done;
    TRY_GOTO(done, result, checkpoint_find_newest(run, newest, &last));
    for (int i = 0; i < count && steps[i] <= last; i++)
        found |= steps[i] == known;
    if (found) *best = known;
    for (int i = 0; i < count && steps[i] <= last && !found; i++) {
        const double loss = loss_of(run, steps[i]);

        if (!(loss < least)) continue;
        least = loss;
        *best = steps[i];
    }
done:
    memory_free(steps);
    return result;
}

status checkpoint_best_known(const char *directory, int64_t *step)
{
    struct known known;
    const status result = read_known(directory, &known);

    *step = known.best_step;
    return result;
}

status checkpoint_find_best(const char *run, char out[PATH_BYTES],
                            int64_t *step)
{
    char newest[PATH_BYTES];
    int64_t last, known;

    TRY(checkpoint_find_newest(run, newest, &last));
    TRY(checkpoint_best_known(newest, &known));
    TRY(checkpoint_best_step(run, known > 0 ? known : -1, step));
    if (*step < 0 && known <= 0)
        FAIL(ERR_MISSING, "%s: no checkpoint has a validation loss; a run with "
                          "checkpoint.keep_best=true and validate.every "
                          "records it", run);
    if (known > 0 && *step != known) {
        TRY(step_directory(run, *step < 0 ? last : *step, out));
        FAIL(ERR_MISSING, "%s: the validation loss was lowest at step %lld, "
                          "whose checkpoint is not here; %s %s", run,
             (long long)known, *step < 0 ? "the newest is"
                                         : "the best that is here:", out);
    }
    return step_directory(run, *step, out);
}
