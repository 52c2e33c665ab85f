/* SPDX-License-Identifier: Apache-2.0 */
/* prometheus.h - the newest metrics of a run over HTTP, in Prometheus' text
 * format 0.0.4: GET http://HOST:PORT/metrics.
 *
 * One thread serves all clients; the run only copies a row into it. A client
 * has two seconds and 4 KiB for its request, at most eight are served at once,
 * and the oldest gives way to a ninth. Nothing that a client sends is kept,
 * and nothing that it does reaches a step.
 * Source: prometheus.io/docs/instrumenting/exposition_formats. */
#ifndef LOCKSTEP_OBSERVE_PROMETHEUS_H
#define LOCKSTEP_OBSERVE_PROMETHEUS_H

#include "base/text.h"
#include "observe/metrics.h"

struct prometheus;

/* address: HOST:PORT with a numeric host, [::1]:PORT, localhost:PORT, or PORT
 * alone, of the loopback; port 0: any that is free. run: the name in
 * lockstep_info, copied. ERR_CONFIG: no address, or it is taken. */
status prometheus_open(struct prometheus **out, const char *address,
                       const char *run);
/* ERR_CONFIG: no address. */
status prometheus_check(const char *address);
/* Can it be listened on now? As above, but nothing is kept. */
status prometheus_try(const char *address);
/* Is an address as prometheus_address tells it one that other machines reach,
 * not only this one? */
bool prometheus_is_open(const char *address);
/* From now on this is the newest row of its kind. */
void prometheus_update(struct prometheus *prometheus,
                       const struct metrics_row *row);
/* "127.0.0.1:9400", where it listens. */
const char *prometheus_address(const struct prometheus *prometheus);
/* Ends the thread; NULL allowed. */
void prometheus_close(struct prometheus *prometheus);

/* The data of the page; a row of NULL: no such row was written yet. */
struct prometheus_page {
    const char *run;
    const struct metrics_row *step, *validation;
};
/* The text of the page into out [size], with a NUL; 0: does not fit. */
size_t prometheus_render(char *out, size_t size,
                         const struct prometheus_page *page);

/* The kinds of a request. */
enum prometheus_ask {
    PROMETHEUS_MORE,   /* it is not complete yet */
    PROMETHEUS_PAGE, PROMETHEUS_PAGE_HEAD, PROMETHEUS_ROOT,
    PROMETHEUS_UNKNOWN, /* another path */
    PROMETHEUS_METHOD, PROMETHEUS_BAD
};
enum prometheus_ask prometheus_parse(const char *request, size_t length);

#endif
