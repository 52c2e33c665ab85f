/* SPDX-License-Identifier: Apache-2.0 */
/* copy_delay.c - how much longer a step takes while a copy travels. */
#include "train/copy_delay.h"

#include <string.h>
#include "base/median.h"

void copy_delay_add(struct copy_delay *delay, double took_s, bool travelled)
{
    if (!travelled) {
        delay->before_s = took_s;
        return;
    }
    if (delay->before_s <= 0) return;
    delay->more_s[delay->pairs++ % DELAY_PAIRS] = took_s - delay->before_s;
    delay->before_s = 0;
    if (delay->pairs == 2 * DELAY_PAIRS)
        delay->pairs = DELAY_PAIRS; /* the same place, no overflow */
}

double copy_delay_s(const struct copy_delay *delay)
{
    const int count = delay->pairs < DELAY_PAIRS ? delay->pairs : DELAY_PAIRS;
    double more[DELAY_PAIRS];

    if (count < DELAY_KNOWN) return 0;
    memcpy(more, delay->more_s, (size_t)count * sizeof *more);
    median_sort(more, count);
    return more[count / 4] > 0 ? median_of(more, count) : 0;
}
