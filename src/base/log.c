/* SPDX-License-Identifier: Apache-2.0 */
/* log.c - one line per event. A line is made aside and written by one call, so
 * that lines of threads do not mix. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 2048 };

static const struct {
    const char *name;
    const char *color; /* ANSI, on terminals */
} levels[] = {
    [LEVEL_DEBUG] = {"debug", "\033[2m"},
    [LEVEL_INFO] = {"info", ""},
    [LEVEL_WARNING] = {"warning", "\033[33m"},
};

static struct {
    int rank;
    int descriptor; /* of the file; 0: none */
    enum log_level shown;
} state = {.shown = LEVEL_INFO};

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
    FAIL(ERR_CONFIG, "LOCKSTEP_LOG is \"%.20s\"; debug, info or warning are "
         "known", wanted);
}

status log_start(int rank, const char *path)
{
    log_stop();
    state.rank = rank;
    TRY(level_from_environment(&state.shown));
    if (path == NULL) return OK;
    state.descriptor =
        open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (state.descriptor < 0) {
        state.descriptor = 0;
        FAIL(ERR_IO, "%s: opening the log: %s", path, strerror(errno));
    }
    return OK;
}

void log_stop(void)
{
    if (state.descriptor > 0) close(state.descriptor);
    state.descriptor = 0;
    state.rank = 0;
    state.shown = LEVEL_INFO;
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
    char line[LINE_BYTES], stamp[64];
    const time_t now = time(NULL);
    struct tm parts;
    va_list arguments;
    int used;

    used = snprintf(line, sizeof line, "%s %s: ", levels[level].name,
                    subsystem);
    va_start(arguments, format);
    vsnprintf(line + used, sizeof line - (size_t)used, format, arguments);
    va_end(arguments);
    if (state.rank == 0 && level >= state.shown) {
        const bool color = wants_color() && levels[level].color[0] != '\0';

        write_line(STDERR_FILENO, color ? levels[level].color : "", line,
                   color ? "\033[0m" : "");
    }
    if (state.descriptor > 0 && gmtime_r(&now, &parts) != NULL &&
        strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ ", &parts) > 0)
        write_line(state.descriptor, stamp, line, "");
}
