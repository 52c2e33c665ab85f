/* SPDX-License-Identifier: Apache-2.0 */
/* oom_kills.c - processes that the system killed for want of memory. */
#include "base/oom_kills.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP_BYTES = 1024, LINE_BYTES = 256 };

/* Where the two versions of control groups tell. */
static const struct version {
    const char *controller, *folder, *kills, *limit;
} versions[] = {
    {"memory:", "/memory", "memory.oom_control", "memory.limit_in_bytes"},
    {"0::", "", "memory.events", "memory.max"},
};

static _Atomic int64_t taken = -1; /* kills; -1: nobody watches */

/* The group of that version, as "/a/b"; of the root "". */
static bool find_group(const struct version *version, const char *list,
                       char group[GROUP_BYTES])
{
    char line[GROUP_BYTES];
    const char *at = NULL;
    FILE *file = fopen(list, "r");

    if (file == NULL) return false;
    while (at == NULL && fgets(line, sizeof line, file) != NULL)
        at = strstr(line, version->controller);
    fclose(file);
    if (at == NULL) return false;
    snprintf(group, GROUP_BYTES, "%s", at + strlen(version->controller));
    group[strcspn(group, "\n")] = '\0';
    if (strcmp(group, "/") == 0) group[0] = '\0';
    return true;
}

/* The number behind `word` in a file; word "": the first. -1: there is none. */
static int64_t number_in(const char *path, const char *word)
{
    const size_t length = strlen(word);
    char line[LINE_BYTES];
    int64_t found = -1;
    FILE *file = fopen(path, "r");

    if (file == NULL) return -1;
    while (found < 0 && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, word, length) == 0 && line[length] >= '0' &&
            line[length] <= '9')
            found = strtoll(line + length, NULL, 10);
    fclose(file);
    return found;
}

int64_t oom_kills_number(const char *list, const char *root, bool limit)
{
    char group[GROUP_BYTES], path[3 * GROUP_BYTES];

    for (int i = 0; i < 2; i++) {
        const struct version *v = &versions[i];
        const char *name = limit ? v->limit : v->kills;
        const char *word = limit ? "" : "oom_kill ";
        int64_t found;

        if (!find_group(v, list, group)) continue;
        snprintf(path, sizeof path, "%.1000s%s%s/%s", root, v->folder, group,
                 name);
        found = number_in(path, word);
        if (found >= 0) return found;
        /* In a container the group may be the root of what can be seen. */
        snprintf(path, sizeof path, "%.1000s%s/%s", root, v->folder, name);
        found = number_in(path, word);
        if (found >= 0) return found;
    }
    return -1;
}

static int64_t own_number(bool limit)
{
    return oom_kills_number("/proc/self/cgroup", "/sys/fs/cgroup", limit);
}

void oom_kills_watch(void)
{
    int64_t nobody = -1;

    atomic_compare_exchange_strong(&taken, &nobody, own_number(false));
}

bool oom_kills_take(void)
{
    int64_t before = atomic_load(&taken);

    return before >= 0 && own_number(false) > before &&
           atomic_compare_exchange_strong(&taken, &before, before + 1);
}

int64_t oom_kills_limit(void)
{
    const int64_t limit = own_number(true);

    return limit > 0 && limit < INT64_MAX / 2 ? limit : 0;
}
