/* SPDX-License-Identifier: Apache-2.0 */
/* train.c - the commands that train: a new run, and a run that goes on. */
#include "cli/config.h"
#include "cli/run.h"
#include "train/trainer.h"

status command_train(struct arguments *arguments)
{
    struct options_set set = {0};
    struct trainer_request request = {
        .set = &set, .dry_run = arguments_has(arguments, "dry-run"),
        .trace = arguments_text(arguments, "trace", NULL),
        .json = arguments_has(arguments, "json")};
    int64_t ranks = 0; /* as many as were launched */
    status result;

    TRY_GOTO(done, result, arguments_integer(arguments, "ranks", 1,
                                             RANKS_MOST, &ranks));
    request.ranks = (int)ranks;
    TRY_GOTO(done, result, config_read(&set, arguments->operands[0],
                                       arguments));
    TRY_GOTO(done, result, trainer_run(&request));
done:
    options_free(&set);
    return result;
}

status command_resume(struct arguments *arguments)
{
    struct options_set set = {0};
    struct assignments assignments = {0};
    struct trainer_request request = {
        .set = &set, .resume = true,
        .trace = arguments_text(arguments, "trace", NULL),
        .json = arguments_has(arguments, "json")};
    int64_t ranks = 0; /* as many as were launched */
    status result;

    TRY_GOTO(done, result, arguments_integer(arguments, "ranks", 1,
                                             RANKS_MOST, &ranks));
    request.ranks = (int)ranks;
    TRY_GOTO(done, result, assignments_read(&assignments, arguments));
    TRY_GOTO(done, result, options_init(&set));
    TRY_GOTO(done, result, trainer_options(&set, arguments->operands[0],
                                           assignments.items,
                                           assignments.count));
    TRY_GOTO(done, result, trainer_run(&request));
done:
    options_free(&set);
    return result;
}
