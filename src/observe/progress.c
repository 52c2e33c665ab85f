/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c - one live line about long work: how far, how fast, how long. */
#include "observe/progress.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/terminal.h"

enum { LINE_BYTES = 256, WIDTH_DEFAULT = 80 };

static const double redraw_s = 0.1; /* faster than the eye is only noise */
static const double plain_s = 5.0;  /* a log file wants few lines */
static const double quiet_s = 0.5; /* on a terminal, before a count is shown */
/* The rate forgets with this time constant, so that the time left follows a
 * change of speed but does not jump with every step. */
static const double smooth_s = 10.0;

static int terminal_width(FILE *out)
{
    struct winsize size;

    if (ioctl(fileno(terminal_raw(out)), TIOCGWINSZ, &size) == 0 &&
        size.ws_col > 0)
        return size.ws_col;
    return WIDTH_DEFAULT;
}

void progress_begin(struct progress *progress, FILE *out, const char *what,
                    const char *unit, double unit_scale)
{
    const char *term = getenv("TERM");
    const char *no_color = getenv("NO_COLOR");

    *progress = (struct progress){.out = out, .what = what, .unit = unit,
                                  .unit_scale = unit_scale};
    progress->began_s = progress->last_s = clock_s();
    progress->drawn_s = -1;
    if (out == NULL) return;
    progress->terminal = isatty(fileno(terminal_raw(out))) && term != NULL &&
                         strcmp(term, "dumb") != 0;
    progress->colour =
        progress->terminal && (no_color == NULL || no_color[0] == '\0');
}

void progress_begin_bytes(struct progress *progress, const char *what)
{
    progress_begin(progress, stderr, what, "MB", 1e6);
}

const char *progress_clock(char out[32], double seconds)
{
    long long whole;

    whole = seconds >= 0 && seconds < 3.6e8 ? (long long)(seconds + 0.5) : -1;
    if (whole < 0)
        snprintf(out, 32, "?");
    else if (whole >= 3600)
        snprintf(out, 32, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60,
                 whole % 60);
    else
        snprintf(out, 32, "%lld:%02lld", whole / 60, whole % 60);
    return out;
}

static bool is_due(const struct progress *progress, double now, bool last)
{
    if (progress->out == NULL) return false;
    if (progress->drawn_s < 0 || last) return true;
    return now - progress->drawn_s >=
           (progress->terminal ? redraw_s : plain_s);
}

/* Things per second over about the last smooth_s seconds; 0 at first. */
static double smooth_rate(struct progress *progress, double done, double now)
{
    const double elapsed = now - progress->last_s;
    const double keep = smooth_s / (smooth_s + elapsed);

    progress->rate_done =
        progress->rate_done * keep + (done - progress->last_done);
    progress->rate_s = progress->rate_s * keep + elapsed;
    progress->last_done = done;
    progress->last_s = now;
    return progress->rate_s > 0 ? progress->rate_done / progress->rate_s : 0;
}

static void draw(struct progress *progress, const char *line, double now)
{
    int columns = (int)strlen(line); /* the line is ASCII */

    progress->drawn_s = now;
    if (!progress->terminal) {
        fprintf(progress->out, "%s\n", line);
        fflush(progress->out);
        return;
    }
    progress->width = terminal_width(progress->out);
    if (columns > progress->width - 1) columns = progress->width - 1;
    if (columns < 0) columns = 0;
    fprintf(terminal_raw(progress->out), "\r%s%.*s%s%s",
            progress->colour ? "\033[36m" : "",
            columns, line, progress->colour ? "\033[0m" : "",
            columns < progress->shown ? "\033[K" : "");
    fflush(terminal_raw(progress->out));
    progress->shown = columns;
}

static void append(char line[LINE_BYTES], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void append(char line[LINE_BYTES], const char *format, ...)
{
    const size_t at = strlen(line);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line + at, LINE_BYTES - at, format, arguments);
    va_end(arguments);
}

static void append_left(char line[LINE_BYTES], double left, double rate)
{
    char clock[32];

    if (left > 0 && rate > 0)
        append(line, "  %s left", progress_clock(clock, left / rate));
}

/* 1.23e5, as people write it: printf would say 1.23e+05. */
static void append_rate(char line[LINE_BYTES], double rate)
{
    int exponent = 0;

    if (rate < 9999.5) {
        append(line, "  %.0f tok/s", rate);
        return;
    }
    while (rate >= 9.995) {
        rate /= 10;
        exponent++;
    }
    append(line, "  %.2fe%d tok/s", rate, exponent);
}

void progress_step(struct progress *progress, const struct progress_step *step)
{
    const double now = clock_s();
    char line[LINE_BYTES] = "";
    double rate;

    if (progress->last_done == 0 && step->step > 1) /* resumed */
        progress->last_done = (double)(step->step - 1);
    rate = smooth_rate(progress, (double)step->step, now);
    if (!is_due(progress, now, step->step == step->steps)) return;
    append(line, "%s %lld/%lld", progress->what, (long long)step->step,
           (long long)step->steps);
    if (isfinite(step->loss)) append(line, "  loss %.3f", step->loss);
    if (isfinite(step->tokens_per_s) && step->tokens_per_s > 0)
        append_rate(line, step->tokens_per_s);
    if (step->busiest > 0)
        append(line, "  busiest expert %.2f x mean", step->busiest);
    append_left(line, (double)(step->steps - step->step), rate);
    draw(progress, line, now);
}

void progress_count(struct progress *progress, double done, double total)
{
    const double now = clock_s();
    const double scale = progress->unit_scale > 0 ? progress->unit_scale : 1;
    const int digits = scale > 1 ? 1 : 0;
    char line[LINE_BYTES] = "";
    const double rate = smooth_rate(progress, done, now);

    /* Short work is not worth a line. */
    if (progress->drawn_s < 0 &&
        now - progress->began_s < (progress->terminal ? quiet_s : plain_s))
        return;
    if (!is_due(progress, now, total > 0 && done >= total)) return;
    append(line, "%s %.*f", progress->what, digits, done / scale);
    if (total > 0) append(line, "/%.*f", digits, total / scale);
    append(line, " %s", progress->unit);
    if (rate > 0) append(line, "  %.3g %s/s", rate / scale, progress->unit);
    append_left(line, total - done, rate);
    draw(progress, line, now);
}

void progress_show(void *argument, double done, double total)
{
    progress_count(argument, done, total);
}

void progress_note(struct progress *progress, const char *format, ...)
{
    va_list arguments;

    if (progress->out == NULL) return;
    if (progress->shown > 0) {
        fputs("\r\033[K", terminal_raw(progress->out));
        fflush(terminal_raw(progress->out));
    }
    progress->shown = 0;
    va_start(arguments, format);
    vfprintf(progress->out, format, arguments);
    va_end(arguments);
    fputc('\n', progress->out);
    fflush(progress->out);
}

void progress_end(struct progress *progress)
{
    if (progress->out != NULL && progress->shown > 0) {
        fputc('\n', progress->out);
        fflush(progress->out);
    }
    progress->shown = 0;
    progress->out = NULL;
}
