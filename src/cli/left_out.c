/* SPDX-License-Identifier: Apache-2.0 */
/* left_out.c - ranges of its data that a run left out, as its files say. */
#include "cli/left_out.h"

#include "checkpoint/history.h"
#include "observe/ledger.h"

status left_out_join(const char *run, struct ranges *ranges,
                     struct checkpoint *newest, bool *whole)
{
    struct ledger ledger = {0};
    char directory[PATH_BYTES];
    int64_t step;
    status result;

    *whole = false;
    result = ledger_open(&ledger, run, false);
    if (result == OK) result = ledger_ranges(&ledger, ranges);
    ledger_close(&ledger);
    TRY(result);
    if (checkpoint_find_newest(run, directory, &step) != OK) {
        status_clear();
        return OK;
    }
    if (checkpoint_open(newest, directory, NULL) != OK) {
        checkpoint_close(newest);
        status_clear(); /* resume passes it over, too */
        return OK;
    }
    *whole = true;
    return ranges_join(ranges, newest->state, "state.json", "left_out");
}
