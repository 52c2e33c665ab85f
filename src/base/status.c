/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - how a function that can fail reports it.
 *
 * Each thread owns one trace of fixed size, so that reporting a lack of memory
 * needs none. */
#include "base/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/status_kept.h"
#include "base/terminal.h"

static _Thread_local struct status_trace trace;

static const struct {
    const char *name;
    int exit_code;
} rows[STATUS_COUNT] = {
    [OK] = {"ok", 0},
    [ERR_DIFFERS] = {"differs", 1},
    [ERR_USAGE] = {"usage", 2},
    [ERR_CONFIG] = {"config", 78},
    [ERR_MISSING] = {"missing", 66},
    [ERR_FORMAT] = {"format", 65},
    [ERR_MEMORY] = {"memory", 71},
    [ERR_IO] = {"io", 74},
    [ERR_DEVICE] = {"device", 69},
    [ERR_PEER] = {"peer", 68},
    [ERR_STOPPED] = {"stopped", 75},
    [ERR_NUMERIC] = {"numeric", 76},
    [ERR_VERIFY] = {"verify", 77},
    [ERR_FIT] = {"fit", 79},
};

/* Ends a text that did not fit with dots instead of cutting it silently. */
static void mark_cut(char *buffer, size_t size, int needed)
{
    if (needed >= (int)size) memcpy(buffer + size - 4, "...", 4);
}

status status_fail(status code, const char *file, int line, const char *format,
                   ...)
{
    /* Formatted aside: an argument may be status_message() itself. */
    char message[STATUS_BYTES];
    va_list arguments;

    va_start(arguments, format);
    mark_cut(message, sizeof message,
             vsnprintf(message, sizeof message, format, arguments));
    va_end(arguments);
    terminal_escape_line(message, sizeof message);
    memcpy(trace.message, message, sizeof message);
    trace.hint[0] = '\0';
    trace.origin = (struct status_place){file, line};
    trace.pass_count = 0;
    return code;
}

status status_pass(status code, const char *file, int line)
{
    if (trace.pass_count < STATUS_PASSES_MOST)
        trace.passes[trace.pass_count] = (struct status_place){file, line};
    trace.pass_count++;
    return code;
}

status status_hint(status code, const char *format, ...)
{
    char hint[STATUS_BYTES];
    va_list arguments;

    va_start(arguments, format);
    mark_cut(hint, sizeof hint,
             vsnprintf(hint, sizeof hint, format, arguments));
    va_end(arguments);
    terminal_escape_line(hint, sizeof hint);
    memcpy(trace.hint, hint, sizeof hint);
    return code;
}

void status_keep(struct status_trace *kept)
{
    *kept = trace;
    status_clear();
}

status status_again(status code, const struct status_trace *kept)
{
    trace = *kept;
    return code;
}

/* Paths are told from the source folder on: "base/status.c". */
static const char *short_path(const char *file)
{
    const char *source = strstr(file, "src/");

    return source != NULL ? source + strlen("src/") : file;
}

void status_bug(const char *file, int line, const char *claim)
{
    fprintf(stderr, "bug: %s:%d: this should hold: %s\n", short_path(file),
            line, claim);
    fflush(stderr);
    abort();
}

static bool code_is_known(status code)
{
    return (int)code >= 0 && code < STATUS_COUNT;
}

const char *status_name(status code)
{
    return code_is_known(code) ? rows[code].name : "unknown";
}

int status_exit_code(status code)
{
    return code_is_known(code) ? rows[code].exit_code : 70;
}

const char *status_message(void)
{
    return trace.message;
}

const char *status_hint_text(void)
{
    return trace.hint;
}

static void print_trace(FILE *out)
{
    if (trace.origin.file == NULL) return;
    fprintf(out, "  at %s:%d\n", short_path(trace.origin.file),
            trace.origin.line);
    for (int i = 0; i < trace.pass_count && i < STATUS_PASSES_MOST; i++)
        fprintf(out, "  in %s:%d\n", short_path(trace.passes[i].file),
                trace.passes[i].line);
    if (trace.pass_count > STATUS_PASSES_MOST)
        fprintf(out, "  and %d more\n", trace.pass_count - STATUS_PASSES_MOST);
}

void status_print(status code, FILE *out)
{
    const char *wanted = getenv("LOCKSTEP_TRACE");

    if (code != OK) {
        fprintf(out, "error (%s): %s\n", status_name(code),
                trace.message[0] != '\0' ? trace.message : "no message");
        if (wanted != NULL && strcmp(wanted, "1") == 0) print_trace(out);
        if (trace.hint[0] != '\0') fprintf(out, "hint: %s\n", trace.hint);
    }
    status_clear();
}

void status_clear(void)
{
    memset(&trace, 0, sizeof trace);
}
