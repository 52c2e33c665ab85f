/* SPDX-License-Identifier: Apache-2.0 */
/* log.c - one line per event. A line is made aside and written by one call, so
 * that lines of threads do not mix. */
#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/terminal.h"

enum { LINE_BYTES = 2048 };

static const struct {
    const char *name;
    const char *color; /* ANSI, on terminals */
} levels[] = {
    [LEVEL_DEBUG] = {"debug", "\033[2m"},
    [LEVEL_INFO] = {"info", ""},
    [LEVEL_WARNING] = {"warning", "\033[33m"},
};

struct rank_log {
    int rank;
    int descriptor; /* of the file; 0: none */
    enum log_level shown;
};

/* A rank may be a thread: each has its own. Threads that never started one,
 * such as helpers, write where the first that did writes. */
static _Thread_local struct rank_log own = {.shown = LEVEL_INFO};
static _Thread_local bool started;
static struct rank_log common = {.shown = LEVEL_INFO};
static bool common_taken;
static pthread_mutex_t common_lock = PTHREAD_MUTEX_INITIALIZER;

static struct rank_log current(void)
{
    struct rank_log log = own;

    if (started) return log;
    pthread_mutex_lock(&common_lock);
    log = common;
    pthread_mutex_unlock(&common_lock);
    return log;
}

static status level_from_environment(enum log_level *shown)
{
    const char *wanted = getenv("LOCKSTEP_LOG");

    *shown = LEVEL_INFO;
    if (wanted == NULL || wanted[0] == '\0') return OK;
    for (int i = 0; i <= LEVEL_WARNING; i++) {
        if (strcmp(wanted, levels[i].name) == 0) {
            *shown = (enum log_level)i;
            return OK;
        }
    }
    FAIL(ERR_CONFIG, "LOCKSTEP_LOG is \"%.20s\"; expected debug, info or "
         "warning", wanted);
}

status log_start(int rank, const char *path)
{
    log_stop();
    own.rank = rank;
    started = true;
    TRY(level_from_environment(&own.shown));
    if (path != NULL) {
        int descriptor;

        TRY(file_open_own(path, O_WRONLY | O_CREAT | O_APPEND, &descriptor));
        own.descriptor = descriptor;
    }
    pthread_mutex_lock(&common_lock);
    if (!common_taken) common = own;
    common_taken = true;
    pthread_mutex_unlock(&common_lock);
    return OK;
}

void log_stop(void)
{
    pthread_mutex_lock(&common_lock);
    if (started && common_taken && common.descriptor == own.descriptor &&
        common.rank == own.rank) {
        common = (struct rank_log){.shown = LEVEL_INFO};
        common_taken = false;
    }
    pthread_mutex_unlock(&common_lock);
    if (own.descriptor > 0) close(own.descriptor);
    own = (struct rank_log){.shown = LEVEL_INFO};
    started = false;
}

/* https://no-color.org: any value but the empty one. */
static bool wants_color(void)
{
    const char *no = getenv("NO_COLOR");

    return (no == NULL || no[0] == '\0') && isatty(STDERR_FILENO) == 1;
}

static void write_line(int descriptor, const char *before,
                       const char *line, const char *after)
{
    char whole[LINE_BYTES + 128];
    const int length =
        snprintf(whole, sizeof whole, "%s%s%s\n", before, line, after);

    if (length < 0) return;
    /* A log that cannot be written must not stop the training. */
    (void)!write(descriptor, whole,
                 (size_t)length < sizeof whole ? (size_t)length
                                               : sizeof whole - 1);
}

void log_write(enum log_level level, const char *subsystem,
               const char *format, ...)
{
    const struct rank_log log = current();
    char line[LINE_BYTES], stamp[64];
    const time_t now = time(NULL);
    struct tm parts;
    va_list arguments;
    int used;
    size_t length;

    used = snprintf(line, sizeof line, "%s %s: ", levels[level].name,
                    subsystem);
    va_start(arguments, format);
    vsnprintf(line + used, sizeof line - (size_t)used, format, arguments);
    va_end(arguments);
    terminal_escape_line(line, sizeof line); /* names may be of files */
    if (log.rank == 0 && level >= log.shown) {
        const bool color = wants_color() && levels[level].color[0] != '\0';

        write_line(STDERR_FILENO, color ? levels[level].color : "", line,
                   color ? "\033[0m" : "");
    }
    if (log.descriptor <= 0 || gmtime_r(&now, &parts) == NULL) return;
    length = strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ ", &parts);
    snprintf(stamp + length, sizeof stamp - length, "rank %d ", log.rank);
    write_line(log.descriptor, stamp, line, "");
}
