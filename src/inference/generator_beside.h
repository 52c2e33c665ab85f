/* SPDX-License-Identifier: Apache-2.0 */
/* generator_beside.h - a generator that reads the weights of a stage that
 * trains: nothing is copied. */
#ifndef LOCKSTEP_INFERENCE_GENERATOR_BESIDE_H
#define LOCKSTEP_INFERENCE_GENERATOR_BESIDE_H

#include "inference/generator.h"

/* `first` is open, holds the whole model and stays; scratch, tables and threads
 * are its. prompt: tokens of the first call. *fits false, and nothing open:
 * its scratch is too small, or its weights lie otherwise. Close it with
 * generator_close in every case. */
status generator_beside(struct generator *generator, const struct stage *first,
                        int64_t prompt, bool *fits);

#endif
