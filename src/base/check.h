/* SPDX-License-Identifier: Apache-2.0 */
/* check.h - LOCKSTEP_CHECK: a run that watches the lives of its memory.
 *
 *   lives:late, lives  messages in the background move at the last moment that
 *                      their caller allows: when they are waited for
 *   lives:early        they are over before the call that starts them returns
 *
 * Both fill memory whose life is over, and memory into which a message is on
 * its way, with numbers that are NaN in every floating type. They fail where
 * memory is used outside its life (docs/faults.md). A run that passes has the
 * bits of a run without them. */
#ifndef LOCKSTEP_BASE_CHECK_H
#define LOCKSTEP_BASE_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

enum check_lives { CHECK_OFF, CHECK_LATE, CHECK_EARLY };

/* Two bytes of each fill: NaN in 16, 32 and 64 bits, and told apart. */
enum check_fill { FILL_DEAD = 0x7ffd, FILL_UNDER_WAY = 0x7ffb };

/* As the environment says, which is read once. */
enum check_lives check_lives(void);
/* ERR_CONFIG: it cannot be understood. */
status check_environment(void);
/* For tests, while no other thread asks. */
void check_choose(enum check_lives lives);

void check_fill(void *data, int64_t bytes, enum check_fill fill);
bool check_filled(const void *data, int64_t bytes, enum check_fill fill);
/* FNV-1a of the bytes, going on from `hash`. */
uint64_t check_hash(uint64_t hash, const void *data, int64_t bytes);
#define CHECK_HASH_BEGIN 14695981039346656037u

#endif
