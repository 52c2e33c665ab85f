/* SPDX-License-Identifier: Apache-2.0 */
/* identity.h - whether a checkpoint belongs to this model. */
#ifndef LOCKSTEP_CHECKPOINT_IDENTITY_H
#define LOCKSTEP_CHECKPOINT_IDENTITY_H

#include "checkpoint/checkpoint.h"

/* Tensors "model.layers.7.": of a prefix with a number, from `first` on, which
 * a reader may leave out. */
struct tensors_left { const char *prefix; int first; };
/* That the weights have exactly the names and shapes of these parts (other
 * kinds are passed over) and the configuration is the same. ERR_CONFIG names
 * the first parameter that differs. config_json NULL: not compared. */
status checkpoint_match_model(const struct checkpoint *checkpoint,
                              const struct saved_part *parts, int count,
                              const char *config_json);
/* The same without the configuration; the checkpoint may have what is left. */
status checkpoint_match_parts(const struct checkpoint *checkpoint,
                              const struct saved_part *parts, int count,
                              const struct tensors_left *left);
/* ERR_CONFIG: another tokenizer. An empty digest on either side passes. */
status checkpoint_match_tokenizer(const struct checkpoint *checkpoint,
                                  const char *digest);
/* SHA-256 over names and shapes of the weights, sorted, and the text. */
status model_digest(char digest[DIGEST_BYTES], const struct saved_part *parts,
                    int count, const char *config_json);

#endif
