/* SPDX-License-Identifier: Apache-2.0 */
/* threads_exchange.h - how far from each other the cores of a pool are. */
#ifndef LOCKSTEP_BASE_THREADS_EXCHANGE_H
#define LOCKSTEP_BASE_THREADS_EXCHANGE_H

#include "base/threads.h"

enum { EXCHANGE_BURSTS = 64 };

/* Seconds in which a core gets a cache line that another one has just written:
 * the median of `bursts` (at most EXCHANGE_BURSTS), in each of which the line
 * goes round all threads several times. 0 with one thread, and where they have
 * so little of their cores that it took several times as long as between cores
 * that are far from each other. */
double threads_exchange(struct threads *threads, int bursts);

#endif
