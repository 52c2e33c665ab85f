/* SPDX-License-Identifier: Apache-2.0 */
/* sentinel.h - the same work, timed at several moments, tells whether a machine
 * was equally fast all the time, on all cores at once: a product, whose
 * operands stay in the caches of a core; a pass through what only the last
 * cache holds, which cores share; a pass through more memory than it holds; and
 * a cache line that goes from core to core. Other processes that fill that
 * cache, or stream memory, slow the passes alone. A host that moves the cores
 * of a virtual machine apart slows the exchange alone, and the work of several
 * threads with it. */
#ifndef LOCKSTEP_PLANNER_SENTINEL_H
#define LOCKSTEP_PLANNER_SENTINEL_H

#include <stdbool.h>

/* Seconds; 0: not measured. */
struct sentinel { double product_s, cache_s, memory_s, exchange_s; };

/* The moment is as quiet as the other one if neither differs by more. */
#define SENTINEL_PRODUCT 0.05
#define SENTINEL_CACHE 0.15
#define SENTINEL_MEMORY 0.10
#define SENTINEL_EXCHANGE 1.0

/* Rows of a profile are brought to one pace: that at which the product takes
 * product_s seconds (0: they are not). While the machine's pace wandered,
 * products followed it to the power `products`, other works to `works`, and
 * rounds of a row still differed by `rest` (a deviation). Rounds while cores
 * were near each other count, where a row has one: most rows have rounds in
 * which an exchange took no longer than exchange_s, as far as that could be
 * told (0: not measured). */
struct pace { double product_s, products, works, rest, exchange_s; };

/* The moments in which a profile was measured. */
struct moments {
    struct sentinel before, after;
    struct pace pace;
};
#define PACE_REST 0.10

/* How many times as long as in `usual`; 1 where one of them has none. */
struct slowness { double product, cache, memory, exchange; };
struct slowness sentinel_slowness(struct sentinel now, struct sentinel usual);
bool sentinel_is_quiet(struct slowness slowness);
/* So much longer that threads of one rank slow down. */
bool sentinel_is_far(double times);
/* The machine as rows of the profile hold. */
struct sentinel moments_usual(const struct moments *m);
bool moments_are_quiet(const struct moments *m);
/* "products 3% slower, shared cache 8% faster, memory 31% slower, exchange
 * between cores 2% faster": returns out. */
enum { SENTINEL_TEXT = 160, SENTINEL_NOISE = 240 };
const char *sentinel_text(struct slowness slowness, char out[SENTINEL_TEXT]);
/* Why a profile of such moments predicts no better; "": it is quiet. */
void moments_noise(const struct moments *m, char out[SENTINEL_NOISE]);

#endif
