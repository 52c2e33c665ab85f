/* SPDX-License-Identifier: Apache-2.0 */
/* logits_chunk.h - how many tokens have logits at once. */
#ifndef LOCKSTEP_PLAN_LOGITS_CHUNK_H
#define LOCKSTEP_PLAN_LOGITS_CHUNK_H

#include "plan/stage.h"

/* Tokens of a micro-batch: whole sequences, or granules of one. The one that
 * was asked for, or what takes the least memory among those that make products
 * fast. No bit of a result shows it. */
int64_t logits_chunk(const struct stage_request *request);

#endif
