/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - LOCKSTEP_CHECK: a run that watches the lives of its memory. */
#include "base/check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t environment_read = PTHREAD_ONCE_INIT;
static enum check_lives chosen;
static bool unknown;

static void read_environment(void)
{
    const char *text = getenv("LOCKSTEP_CHECK");

    if (text == NULL || *text == '\0') return;
    if (strcmp(text, "lives") == 0 || strcmp(text, "lives:late") == 0)
        chosen = CHECK_LATE;
    else if (strcmp(text, "lives:early") == 0)
        chosen = CHECK_EARLY;
    else
        unknown = true;
}

enum check_lives check_lives(void)
{
    pthread_once(&environment_read, read_environment);
    return chosen;
}

status check_environment(void)
{
    check_lives();
    if (unknown)
        FAIL(ERR_CONFIG, "LOCKSTEP_CHECK=%s: expected lives, lives:late or "
                         "lives:early", getenv("LOCKSTEP_CHECK"));
    return OK;
}

void check_choose(enum check_lives lives)
{
    check_lives();
    chosen = lives;
}

void check_fill(void *data, int64_t bytes, enum check_fill fill)
{
    const uint16_t two = (uint16_t)fill;
    char *at = data;

    for (int64_t i = 0; i + 2 <= bytes; i += 2)
        memcpy(at + i, &two, sizeof two);
}

bool check_filled(const void *data, int64_t bytes, enum check_fill fill)
{
    const uint16_t two = (uint16_t)fill;
    const char *at = data;

    for (int64_t i = 0; i + 2 <= bytes; i += 2)
        if (memcmp(at + i, &two, sizeof two) != 0) return false;
    return true;
}

uint64_t check_hash(uint64_t hash, const void *data, int64_t bytes)
{
    const unsigned char *byte = data;

    for (int64_t i = 0; i < bytes; i++)
        hash = (hash ^ byte[i]) * 1099511628211u;
    return hash;
}
