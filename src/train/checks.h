/* SPDX-License-Identifier: Apache-2.0 */
/* checks.h - checks of a configuration beside those of setup_resolve. */
#ifndef LOCKSTEP_TRAIN_CHECKS_H
#define LOCKSTEP_TRAIN_CHECKS_H

#include "setup/setup.h"
#include "tokenizer/tokenizer.h"

/* `plan`, `train` and `verify` call it alike, so that none of them accepts what
 * training refuses. Reads no data. ERR_CONFIG names the option. */
status checks_run(const struct setup *setup,
                  const struct tokenizer *tokenizer);
/* Says on stderr what `train` needs and does not find yet: data, and weights to
 * begin with. They may still be made after the plan. */
void checks_note_missing(const struct options *options);
/* Says on stderr that schedule.name is a file that one stage does not need. */
void checks_note_schedule(const struct setup *setup);
/* Says on stderr that a rank has many more threads than it has cores. */
void checks_note_threads(int threads);
/* Says on stderr that a run of `steps` is shorter than its warm-up. */
void checks_note_warmup(int64_t warmup, int64_t steps);
/* Where the decay of wsd has no effect, or begins before the warm-up ends;
 * after setup_length. */
void checks_note_decay(const struct setup *setup);

#endif
