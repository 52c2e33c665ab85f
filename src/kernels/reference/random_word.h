/* SPDX-License-Identifier: Apache-2.0 */
/* random_word.h - the random word of an element of a row (struct dropout). */
#ifndef LOCKSTEP_KERNELS_REFERENCE_RANDOM_WORD_H
#define LOCKSTEP_KERNELS_REFERENCE_RANDOM_WORD_H

#include "kernels/kernels.h"

static inline uint32_t dropout_word(struct random_key key,
                                    struct dropout_row at, int64_t element)
{
    const uint64_t block = (uint64_t)(element / (4 * DROPOUT_BLOCKS) *
                                          DROPOUT_BLOCKS +
                                      element % DROPOUT_BLOCKS);
    uint32_t words[4];

    random_block(key, at.low, at.high + block, words);
    return words[element / DROPOUT_BLOCKS % 4];
}

#endif
