/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.c - `lockstep fetch`: a run comes back from object storage. */
#include <stdio.h>
#include "checkpoint/mirror.h"
#include "cli/run.h"

status command_fetch(struct arguments *arguments)
{
    const char *run = arguments->operands[1];
    const bool wants = arguments_has(arguments, "best");
    int64_t step, best = 0;

    TRY(mirror_fetch(arguments->operands[0], run, &step, wants ? &best : NULL));
    printf("%s has the checkpoint of step %lld; go on with: lockstep resume "
           "%s\n", run, (long long)step, run);
    if (best > 0)
        printf("%s/best is the checkpoint of step %lld\n", run,
               (long long)best);
    else if (wants)
        printf("no step has a validation loss (checkpoint.keep_best)\n");
    return OK;
}
