/* SPDX-License-Identifier: Apache-2.0 */
/* prompts.h - the prompts of a command line and of a file. */
#ifndef LOCKSTEP_CLI_PROMPTS_H
#define LOCKSTEP_CLI_PROMPTS_H

#include "cli/command.h"

/* Every value of a flag that repeats. *values are the arguments'. */
status prompts_given(struct arguments *arguments, const char *flag,
                     const char *const **values, int64_t *count);
/* One prompt for each line of a file: of .jsonl the text of "prompt", else the
 * line as it is, without its end; empty lines and a byte order mark count for
 * nothing. lines: of each prompt. They are the arena's. ERR_FORMAT names the
 * line. */
status prompts_read(struct arena *arena, const char *path,
                    const char *const **prompts, const int64_t **lines,
                    int64_t *count);

#endif
