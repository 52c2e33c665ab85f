/* SPDX-License-Identifier: Apache-2.0 */
/* this_machine.c - the processor's name from the system. */
#include "planner/this_machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/threads.h"

/* "model name : X" on x86; elsewhere the architecture must do. */
static void processor(char name[96])
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    struct utsname system;
    char line[256];

    snprintf(name, 96, "processor");
    if (uname(&system) == 0) snprintf(name, 96, "%.60s", system.machine);
    if (file == NULL) return;
    while (fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');

        if (strncmp(line, "model name", 10) != 0 || colon == NULL) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(name, 96, "%.90s", colon + 2);
        break;
    }
    fclose(file);
}

void this_machine_key(char key[MACHINE_KEY_BYTES])
{
    char name[96];
    const int cores = threads_cores();

    processor(name);
    snprintf(key, MACHINE_KEY_BYTES, "%s, %d core%s", name, cores,
             cores == 1 ? "" : "s");
}
