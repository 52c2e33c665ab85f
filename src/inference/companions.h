/* SPDX-License-Identifier: Apache-2.0 */
/* companions.h - files that stand beside a tokenizer and that Lockstep does not
 * need: a chat template, settings of tokenizers and of generation. Programs
 * that open an export do, so a run keeps them, and export hands them on. */
#ifndef LOCKSTEP_INFERENCE_COMPANIONS_H
#define LOCKSTEP_INFERENCE_COMPANIONS_H

#include <stdbool.h>

#include "base/file.h"
#include "base/text.h"

/* Their names; ends with NULL. */
extern const char *const companion_names[];

/* The bytes of the file `name` in the directory of `tokenizer` (of a
 * checkpoint: of its run); empty if there is none. One that is damaged, that is
 * another kind of file than its name says, or that needs code to be read is
 * passed over with a warning: a link may point at anything. */
status companion_read(const char *tokenizer, const char *name,
                      struct text *out);
/* Copies all that there are into a run. model_max_length becomes the context of
 * the run's model, where it was that of the model beside the tokenizer. */
status companions_copy(const char *tokenizer, const char *run,
                       int64_t context);

#endif
