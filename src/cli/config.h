/* SPDX-License-Identifier: Apache-2.0 */
/* config.h - the configuration that a command line asks for. */
#ifndef LOCKSTEP_CLI_CONFIG_H
#define LOCKSTEP_CLI_CONFIG_H

#include "base/options.h"
#include "cli/command.h"

enum { ASSIGNMENTS_MAX = 256, ASSIGNMENT_BYTES = 4200 };

/* The settings of --set, --run and --threads, as a.b=c in the order given. */
struct assignments {
    const char *items[ASSIGNMENTS_MAX]; /* in the arguments' arena or argv */
    int count;
};
status assignments_read(struct assignments *out, struct arguments *arguments);

/* Defaults, then the file, then the environment (LOCKSTEP_...), then the
 * command line. `set` is zeroed; free it in every case. `path` may be the
 * directory of a run: its config.yaml. */
status config_read(struct options_set *set, const char *path,
                   struct arguments *arguments);

#endif
