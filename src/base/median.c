/* SPDX-License-Identifier: Apache-2.0 */
/* median.c - doubles in ascending order, and their median. */
#include "base/median.h"

/* Shell's sort. */
void median_sort(double *values, int64_t count)
{
    for (int64_t gap = count / 2; gap > 0; gap /= 2)
        for (int64_t i = gap; i < count; i++) {
            const double value = values[i];
            int64_t at = i;

            for (; at >= gap && values[at - gap] > value; at -= gap)
                values[at] = values[at - gap];
            values[at] = value;
        }
}

double median_of(const double *sorted, int64_t count)
{
    return count == 0 ? 0 : (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

double median_take(double *values, int64_t count)
{
    median_sort(values, count);
    return median_of(values, count);
}
