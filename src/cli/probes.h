/* SPDX-License-Identifier: Apache-2.0 */
/* probes.h - the rows of `lockstep doctor`: each really tries something. */
#ifndef LOCKSTEP_CLI_PROBES_H
#define LOCKSTEP_CLI_PROBES_H

#include <stdbool.h>

enum { FINDING_BYTES = 320 };

struct finding {
    bool works;
    char why[FINDING_BYTES];    /* what was found */
    char advice[FINDING_BYTES]; /* what to do; "": nothing */
};

struct probe {
    const char *name;
    bool required; /* training cannot do without it */
    void (*run)(struct finding *finding);
};

extern const struct probe probes[];
extern const int probe_count;

#endif
