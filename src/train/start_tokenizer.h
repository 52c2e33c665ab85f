/* SPDX-License-Identifier: Apache-2.0 */
/* start_tokenizer.h - the tokenizer of the model that a run starts from.
 *
 * Row i of an embedding is trained for token i, so weights go with the
 * vocabulary that they were trained with. */
#ifndef LOCKSTEP_TRAIN_START_TOKENIZER_H
#define LOCKSTEP_TRAIN_START_TOKENIZER_H

#include "base/options.h"

/* Without tokenizer.from, that of init.from becomes it, if there is one that
 * can be read; `told` then has a line for the user (else it stays empty).
 * ERR_CONFIG: tokenizer.from is another one than that of the run or checkpoint,
 * and an id of it stands for something else. A vocabulary that only goes on
 * beyond it is fine. */
status start_tokenizer_choose(struct options_set *set, struct text *told);

#endif
