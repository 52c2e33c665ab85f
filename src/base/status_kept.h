/* SPDX-License-Identifier: Apache-2.0 */
/* status_kept.h - a failure that is kept while something else, which may fail,
 * too, is done because of it. */
#ifndef LOCKSTEP_BASE_STATUS_KEPT_H
#define LOCKSTEP_BASE_STATUS_KEPT_H

#include "base/status.h"

/* All that is known of a failure. */
enum { STATUS_BYTES = 1024, STATUS_PASSES_MOST = 24 };
struct status_place {
    const char *file; /* borrowed: __FILE__ */
    int line;
};
struct status_trace {
    char message[STATUS_BYTES], hint[STATUS_BYTES];
    struct status_place origin;
    struct status_place passes[STATUS_PASSES_MOST];
    int pass_count; /* may exceed STATUS_PASSES_MOST: the rest is not kept */
};
/* Takes the trace away while something else is done that may fail, too; then
 * brings it back, whatever was said meanwhile. Returns `code`. */
void status_keep(struct status_trace *kept);
status status_again(status code, const struct status_trace *kept);

#endif
