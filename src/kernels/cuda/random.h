/* SPDX-License-Identifier: Apache-2.0 */
/* random.h - the random word of an element of a row, for kernels of CUDA. */
#ifndef LOCKSTEP_KERNELS_CUDA_RANDOM_H
#define LOCKSTEP_KERNELS_CUDA_RANDOM_H

#include "kernels/cuda/words.h"
#include "base/philox.h"

/* Which word: struct dropout. */
DEVICE uint32_t element_word(struct random_key key, struct dropout_row at,
                             int64_t element)
{
    const int64_t block =
        element / (4 * DROPOUT_BLOCKS) * DROPOUT_BLOCKS +
        element % DROPOUT_BLOCKS;
    uint32_t words[4];

    philox_block(key, at.low, at.high + (uint64_t)block, words);
    return words[element / DROPOUT_BLOCKS % 4];
}

#endif
