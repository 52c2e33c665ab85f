/* SPDX-License-Identifier: Apache-2.0 */
/* median.h - doubles in ascending order, and their median. */
#ifndef LOCKSTEP_BASE_MEDIAN_H
#define LOCKSTEP_BASE_MEDIAN_H

#include <stdint.h>

/* Sorts values [count] in place, without memory of its own, so that a step may
 * call it. */
void median_sort(double *values, int64_t count);
/* The median of sorted values [count]: of an even number the mean of the two in
 * the middle; 0 of none. */
double median_of(const double *sorted, int64_t count);
/* Sorts them first. */
double median_take(double *values, int64_t count);

#endif
