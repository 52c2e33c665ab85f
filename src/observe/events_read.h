/* SPDX-License-Identifier: Apache-2.0 */
/* events_read.h - an event file, read: for a run that resumes, for tests, and
 * against files that are not what they claim to be. */
#ifndef LOCKSTEP_OBSERVE_EVENTS_READ_H
#define LOCKSTEP_OBSERVE_EVENTS_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

/* One value of one event. Texts are borrowed and end with no NUL. */
struct events_value {
    int64_t step;
    double time_s;
    const char *tag;
    size_t tag_length;
    enum { EVENTS_SCALAR, EVENTS_HISTOGRAM, EVENTS_TEXT, EVENTS_OTHER } kind;
    double scalar;
    /* of a histogram */
    double least, greatest, count, sum, sum_squares;
    int buckets;
    double buckets_sum;     /* of the counts */
    double last_limit;
    /* of a text */
    const char *text;
    size_t text_length;
};

struct events_scan {
    const char *source;     /* borrowed; names the file in errors */
    int64_t step_kept;      /* stops before the first event beyond; negative:
                             * never */
    bool torn_ok;           /* a bad record is the end, not an error */
    status (*value)(void *argument, const struct events_value *value);
    void *argument;         /* value NULL: nobody asks */
    int64_t events;         /* out: seen */
    int64_t starts;         /* out: sessions begun */
    size_t kept;            /* out: bytes of the records seen */
    const char *wrong;      /* out, with torn_ok: what is wrong with the record
                             * there; NULL: nothing, or the file ends in it as
                             * after a kill */
};

/* Every record of the bytes: lengths, checksums, messages. ERR_FORMAT names
 * the byte where a record begins that is none. */
status events_scan(struct events_scan *scan, const void *bytes,
                   size_t length);

#endif
