/* SPDX-License-Identifier: Apache-2.0 */
/* random.h - counter-based random numbers: a pure function of a key and a
 * counter, never of rank, thread or order of calls.
 * Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3",
 * Philox4x32-10. */
#ifndef LOCKSTEP_BASE_RANDOM_H
#define LOCKSTEP_BASE_RANDOM_H

#include <stdint.h>

struct random_key { uint32_t word[2]; };

/* Key of a named sequence of numbers: (seed, name) hashed with FNV-1a and
 * mixed. */
struct random_key random_key_make(uint64_t seed, const char *name);
/* out [4] = Philox4x32-10 of counter (low, high) under the key. */
void random_block(struct random_key key, uint64_t low, uint64_t high,
                  uint32_t out[4]);
/* Uniform in [0, 1) with 53 bits, from counter `index`. */
double random_uniform(struct random_key key, uint64_t index);
/* out[i] = floor(2^32 random_uniform(key, first + i)), several times as fast:
 * most coins are decided by their first bits. */
enum { RANDOM_MANY = 60 };
void random_uniform_tops(struct random_key key, uint64_t first,
                         uint32_t out[RANDOM_MANY]);
/* Uniform integer in [0, bound), bound > 0, exact (no modulo bias beyond
 * 2^-64). */
uint64_t random_below(struct random_key key, uint64_t index, uint64_t bound);
/* A bijection of [0, count): the image of `index`. O(1) memory, by a Feistel
 * network with cycle walking. For sample orders. */
uint64_t random_permute(struct random_key key, uint64_t count, uint64_t index);

#endif
