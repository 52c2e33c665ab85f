/* SPDX-License-Identifier: Apache-2.0 */
/* numa_nodes.c - how many memories this machine has, each near some of its
 * cores. */
#include "base/numa_nodes.h"

#include <stdio.h>

enum { NODES_MAX = 4096, PATH_BYTES = 512 };

/* A list of numbers and ranges, such as 0-1,4; 0: it is none. */
static int list_count(FILE *file)
{
    int first, last, count = 0;

    for (;;) {
        int after;

        if (fscanf(file, "%d", &first) != 1) return 0;
        last = first;
        after = fgetc(file);
        if (after == '-') {
            if (fscanf(file, "%d", &last) != 1) return 0;
            after = fgetc(file);
        }
        if (first < 0 || last < first || last >= NODES_MAX) return 0;
        count += last - first + 1;
        if (after != ',') return after == '\n' || after == EOF ? count : 0;
    }
}

int nodes_online(const char *root)
{
    char path[PATH_BYTES];
    FILE *file;
    int count;

    snprintf(path, sizeof path, "%s/devices/system/node/online", root);
    file = fopen(path, "r");
    if (file == NULL) return 1;
    count = list_count(file);
    fclose(file);
    return count > 0 ? count : 1;
}
