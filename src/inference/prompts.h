/* SPDX-License-Identifier: Apache-2.0 */
/* prompts.h - texts that a run continues whenever it validates: the rows of
 * validate.prompts, written to RUN/samples.jsonl.
 *
 *   {"step": 100, "prompt": "The fox", "text": " eats berries.", "tokens": 5,
 *    "stopped_by": "end of text"}
 *
 * One rank that has the whole model makes them over a key-value cache and
 * reads the weights where they are. Several use the program that trains:
 * prompts lie side by side in rows (request_rows.h), each pass gives every one
 * its next token; a token then costs a forward pass of a micro-batch. The
 * tokens are those of `lockstep generate` with the same type,
 * seed and temperature, under every layout that the grid holds. */
#ifndef LOCKSTEP_INFERENCE_PROMPTS_H
#define LOCKSTEP_INFERENCE_PROMPTS_H

#include "base/lines.h"
#include "checkpoint/run_dir.h"
#include "inference/request_rows.h"
#include "inference/sample.h"
#include "inference/text_ends.h"
#include "setup/setup.h"
#include "step/step.h"
#include "tokenizer/tokenizer.h"

struct prompt;

struct prompts {
    const struct setup *setup;     /* borrowed */
    const struct tokenizer *tokenizer; /* borrowed; NULL: none */
    struct prompt *items;          /* owned [count] */
    int count;
    struct task_requests requests; /* owned: room for each text */
    struct request_rows rows;      /* owned */
    double *logits;                /* owned [count][vocab] */
    struct sample_candidate *scratch; /* owned [vocab] */
    struct text_ends ends;
};

/* ERR_CONFIG: no tokenizer, a prompt without room to continue. */
status prompts_open(struct prompts *prompts, const struct setup *setup,
                    const struct tokenizer *tokenizer);
void prompts_close(struct prompts *prompts);
/* Continues every prompt. Collective; the same on every rank. */
status prompts_continue(struct prompts *prompts, struct train_step *step);
/* Appends a line for each. */
status prompts_write(const struct prompts *prompts, struct lines *file,
                     int64_t step);
/* Appends every prompt with its text, for people. */
status prompts_text(const struct prompts *prompts, struct text *out);

#endif
