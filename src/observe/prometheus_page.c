/* SPDX-License-Identifier: Apache-2.0 */
/* prometheus_page.c - the parser of requests, and the page that answers
 * them. */
#include "observe/prometheus.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lockstep.h"

/* ---- the page ---- */

/* A page under construction in a buffer of fixed size. */
struct page { char *at; size_t left; bool full; };

static void put(struct page *page, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void put(struct page *page, const char *format, ...)
{
    va_list arguments;
    int length;

    if (page->full) return;
    va_start(arguments, format);
    length = vsnprintf(page->at, page->left, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= page->left) {
        page->full = true;
        return;
    }
    page->at += length;
    page->left -= (size_t)length;
}

/* Backslash, newline and, in labels, quotes are escaped; other control
 * characters have no business there. */
static void put_escaped(struct page *page, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\\' || *text == '"') put(page, "\\%c", *text);
        else if (*text == '\n') put(page, "\\n");
        else if ((unsigned char)*text >= ' ') put(page, "%c", *text);
    }
}

/* Only grow while a run goes on. */
static bool is_counter(const char *name)
{
    static const char *const counters[] = {"step", "tokens", "skipped",
                                           "samples_dropped"};

    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        if (strcmp(name, counters[i]) == 0) return true;
    return false;
}

static void put_metric(struct page *page, const struct metric_about *metric,
                       double value)
{
    const bool counter = is_counter(metric->name);
    char name[96];

    snprintf(name, sizeof name, "lockstep_%s%s", metric->name,
             counter ? "_total" : "");
    put(page, "# HELP %s %s%s%s%s\n", name, metric->meaning,
        metric->unit[0] ? " (" : "", metric->unit,
        metric->unit[0] ? ")" : "");
    put(page, "# TYPE %s %s\n", name, counter ? "counter" : "gauge");
    if (isnan(value)) put(page, "%s NaN\n", name);
    else if (isinf(value)) put(page, "%s %cInf\n", name, value < 0 ? '-' : '+');
    else put(page, "%s %.17g\n", name, value);
}

/* Prints the metrics that the configuration named: the name is a label. */
static void put_extras(struct page *page, const struct metrics_row *row)
{
    static const char name[] = "lockstep_validation";

    if (row == NULL || row->extra_count == 0) return;
    put(page, "# HELP %s Metrics of validate.sets and tasks\n"
              "# TYPE %s gauge\n", name, name);
    for (int i = 0; i < row->extra_count; i++) {
        if (isnan(row->extras[i].value)) continue;
        put(page, "%s{metric=\"", name);
        put_escaped(page, row->extras[i].name);
        put(page, "\"} %.17g\n", row->extras[i].value);
    }
}

size_t prometheus_render(char *out, size_t size,
                         const struct prometheus_page *from)
{
    struct page page = {out, size, false};

    put(&page, "# HELP lockstep_info The run and the version of the program\n"
               "# TYPE lockstep_info gauge\nlockstep_info{run=\"");
    put_escaped(&page, from->run);
    put(&page, "\",version=\"%s\"} 1\n", LOCKSTEP_VERSION);
    for (int i = 0; i < metrics_count(); i++) {
        const struct metric_about metric = metrics_about(i);
        double value;

        if (from->step != NULL && metrics_value(from->step, i, &value))
            put_metric(&page, &metric, value);
        else if (from->validation != NULL &&
                 metrics_value(from->validation, i, &value))
            put_metric(&page, &metric, value);
    }
    put_extras(&page, from->validation);
    return page.full ? 0 : (size_t)(page.at - out);
}

/* ---- the request ---- */

/* Where the head ends, 0: not yet. */
static size_t head_end(const char *request, size_t length)
{
    for (size_t i = 0; i + 1 < length; i++) {
        if (request[i] == '\n' && request[i + 1] == '\n') return i + 2;
        if (i + 2 < length && request[i] == '\n' && request[i + 1] == '\r' &&
            request[i + 2] == '\n')
            return i + 3;
    }
    return 0;
}

/* One of the words of the request line: up to a space. */
static bool next_word(const char **at, const char *end, const char **word,
                      size_t *length)
{
    *word = *at;
    while (*at < end && **at > ' ' && **at < 0x7F) (*at)++;
    *length = (size_t)(*at - *word);
    if (*length == 0) return false;
    if (*at < end && **at == ' ') (*at)++;
    return true;
}

static bool is_word(const char *word, size_t length, const char *wanted)
{
    return length == strlen(wanted) && memcmp(word, wanted, length) == 0;
}

enum prometheus_ask prometheus_parse(const char *request, size_t length)
{
    const char *at = request, *end, *method, *path, *version;
    size_t method_length, path_length, version_length;
    const char *question;

    if (head_end(request, length) == 0) return PROMETHEUS_MORE;
    end = memchr(request, '\n', length);
    if (!next_word(&at, end, &method, &method_length) ||
        !next_word(&at, end, &path, &path_length) ||
        !next_word(&at, end, &version, &version_length) ||
        version_length < 6 || memcmp(version, "HTTP/1", 6) != 0)
        return PROMETHEUS_BAD;
    question = memchr(path, '?', path_length);
    if (question != NULL) path_length = (size_t)(question - path);
    const bool head = is_word(method, method_length, "HEAD");

    if (!head && !is_word(method, method_length, "GET"))
        return PROMETHEUS_METHOD;
    if (is_word(path, path_length, "/metrics"))
        return head ? PROMETHEUS_PAGE_HEAD : PROMETHEUS_PAGE;
    return is_word(path, path_length, "/") && !head ? PROMETHEUS_ROOT
                                                    : PROMETHEUS_UNKNOWN;
}
