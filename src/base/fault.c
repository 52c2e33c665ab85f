/* SPDX-License-Identifier: Apache-2.0 */
/* fault.c - named places where a drill can make things go wrong. */
#include "base/fault.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FAULTS_MAX = 8, NAME_BYTES = 64, SLOW_S = 2, LATE_S = 5 };

enum action { ACTION_FAIL, ACTION_FULL, ACTION_KILL, ACTION_SLOW,
              ACTION_EXIT, ACTION_ABORT, ACTION_SPIN, ACTION_LATE,
              ACTION_STOP, ACTION_COUNT };
static const char *const action_names[ACTION_COUNT] = {
    "fail", "full", "kill", "slow", "exit", "abort", "spin",
    "late", "stop"};

struct fault {
    char name[NAME_BYTES];
    long rank;           /* of a first generation; -1: any process */
    long due;            /* which passing, from 1 */
    _Atomic long passed; /* times */
    enum action action;
};

static struct fault faults[FAULTS_MAX];
static int fault_count;
static pthread_once_t environment_read = PTHREAD_ONCE_INIT;
static status environment_result;
static char environment_message[256]; /* of whatever thread read it */

/* The rank behind the name; false: it is none. */
static bool read_rank(struct fault *fault)
{
    char *at = strchr(fault->name, '@'), *after;

    fault->rank = -1;
    if (at == NULL) return true;
    *at = '\0';
    fault->rank = strtol(at + 1, &after, 10);
    return after != at + 1 && *after == '\0' && fault->rank >= 0 &&
           at != fault->name;
}

/* One "name[@rank]:count[:action]" of the given length. */
static status arm_one(const char *text, size_t length)
{
    const char *colon = memchr(text, ':', length);
    const char *const end = text + length;
    struct fault *fault = &faults[fault_count];
    const char *action = "fail";
    size_t action_length = 4;
    char *after;

    if (fault_count == FAULTS_MAX)
        FAIL(ERR_CONFIG, "more than %d faults are armed", FAULTS_MAX);
    if (colon == NULL || colon == text || colon - text >= NAME_BYTES)
        FAIL(ERR_CONFIG, "fault \"%.*s\" is not of the form "
             "name[@rank]:count[:action]",
             (int)length, text);
    memset(fault, 0, sizeof *fault);
    memcpy(fault->name, text, (size_t)(colon - text));
    if (!read_rank(fault))
        FAIL(ERR_CONFIG, "fault \"%.*s\": expected the number of a rank behind "
             "@", (int)length, text);
    fault->due = strtol(colon + 1, &after, 10);
    if (after == colon + 1 || fault->due < 1 ||
        (after != end && *after != ':'))
        FAIL(ERR_CONFIG, "fault \"%.*s\": expected a count of 1 or more",
             (int)length, text);
    if (after != end) {
        action = after + 1;
        action_length = (size_t)(end - action);
    }
    for (int i = 0; i < ACTION_COUNT; i++) {
        if (strlen(action_names[i]) == action_length &&
            memcmp(action_names[i], action, action_length) == 0) {
            fault->action = (enum action)i;
            fault_count++;
            return OK;
        }
    }
    FAIL(ERR_CONFIG, "fault \"%.*s\": expected the action fail, full, kill, "
         "slow, exit, abort, spin, late or stop", (int)length, text);
}

static status arm_all(const char *text)
{
    fault_count = 0;
    while (text != NULL && *text != '\0') {
        const size_t length = strcspn(text, ",");

        TRY(arm_one(text, length));
        text += length;
        text += *text == ',';
    }
    return OK;
}

static void arm_from_environment(void)
{
    environment_result = arm_all(getenv("LOCKSTEP_FAULT"));
    snprintf(environment_message, sizeof environment_message, "%s",
             status_message());
}

static void arm_nothing(void)
{
    environment_result = OK;
}

status fault_arm(const char *text)
{
    pthread_once(&environment_read, arm_nothing);
    environment_result = OK;
    TRY(arm_all(text));
    return OK;
}

static bool is_number(const char *name, long number)
{
    const char *text = getenv(name);

    return text != NULL && strtol(text, NULL, 10) == number;
}

/* Whether it is for this process (comm/process.h). */
static bool is_here(const struct fault *fault)
{
    return fault->rank < 0 || (is_number("LOCKSTEP_RANK", fault->rank) &&
                               is_number("LOCKSTEP_GENERATION", 1));
}

/* The fault that is due now at this point, or that was before, if it lasts;
 * NULL: none. */
static const struct fault *pass(const char *name, bool lasts)
{
    const struct fault *due = NULL;

    for (int i = 0; i < fault_count; i++) {
        if (strcmp(faults[i].name, name) != 0 || !is_here(&faults[i]))
            continue;
        const long passed = atomic_fetch_add(&faults[i].passed, 1) + 1;

        if (passed == faults[i].due || (lasts && passed > faults[i].due))
            due = &faults[i];
    }
    return due;
}

/* As a disk that hangs for a while. */
static status wait_for(time_t seconds)
{
    struct timespec left = {.tv_sec = seconds};

    while (nanosleep(&left, &left) != 0) continue;
    return OK;
}

status fault_point(const char *name)
{
    const struct fault *fault;

    pthread_once(&environment_read, arm_from_environment);
    if (environment_result != OK)
        FAIL(environment_result, "%s", environment_message);
    fault = pass(name, false);
    if (fault == NULL) return OK;
    if (fault->action == ACTION_KILL) raise(SIGKILL);
    if (fault->action == ACTION_STOP) {
        raise(SIGSTOP);
        return OK;
    }
    if (fault->action == ACTION_EXIT) _exit(0);
    if (fault->action == ACTION_ABORT) abort();
    while (fault->action == ACTION_SPIN) atomic_thread_fence(
        memory_order_seq_cst);
    if (fault->action == ACTION_SLOW) return wait_for(SLOW_S);
    if (fault->action == ACTION_LATE) return wait_for(LATE_S);
    if (fault->action == ACTION_FULL)
        FAIL(ERR_IO, "fault %s, passing %ld: disk full", name, fault->due);
    FAIL(ERR_IO, "fault %s, passing %ld: failed as armed", name, fault->due);
}

bool fault_due(const char *name)
{
    pthread_once(&environment_read, arm_from_environment);
    return environment_result == OK && pass(name, false) != NULL;
}

bool fault_lasts(const char *name)
{
    pthread_once(&environment_read, arm_from_environment);
    return environment_result == OK && pass(name, true) != NULL;
}
