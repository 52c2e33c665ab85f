/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.c - `lockstep fetch`: a run comes back from object storage. */
#include <stdio.h>
#include "checkpoint/mirror.h"
#include "cli/run.h"

status command_fetch(struct arguments *arguments)
{
    const char *run = arguments->operands[1];
    int64_t step;

    TRY(mirror_fetch(arguments->operands[0], run, &step));
    printf("%s has the checkpoint of step %lld; go on with: lockstep resume "
           "%s\n", run, (long long)step, run);
    return OK;
}
