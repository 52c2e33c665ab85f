/* SPDX-License-Identifier: Apache-2.0 */
/* vocabulary.h - the sizes of a tokenizer that a plan needs. */
#ifndef LOCKSTEP_BASE_VOCABULARY_H
#define LOCKSTEP_BASE_VOCABULARY_H

#include <stdint.h>

struct vocabulary {
    int64_t size; /* largest id + 1; 0: there is no tokenizer */
    int32_t end;  /* id of its end-of-text token; -1: it names none */
};

#endif
