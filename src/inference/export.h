/* SPDX-License-Identifier: Apache-2.0 */
/* export.h - a MODEL as a Hugging Face directory that transformers opens:
 * `lockstep export`.
 *
 * The directory is made aside, proven, and then renamed: the weights are read
 * back from the files and a forward pass over the same tokens must give the
 * same logits in every bit. In another type each weight is rounded once, to
 * nearest even, before the first of the two passes. */
#ifndef LOCKSTEP_INFERENCE_EXPORT_H
#define LOCKSTEP_INFERENCE_EXPORT_H

#include "inference/session.h"

struct export_result {
    int64_t parameters;
    int tensors;
    enum dtype dtype;         /* of the files */
    enum dtype source;        /* of the weights before */
    int64_t rounded;          /* weights that the type of the files changed */
    int64_t weight_bytes;     /* in the files, without their headers */
    int64_t proof_tokens;     /* over which the logits were compared; 0: of
                               * adapters alone, which have none */
    int64_t proof_logits;     /* how many were equal: all */
    bool tokenizer;           /* tokenizer.json and its settings are there */
    char notice[512];         /* about damage that was passed over; "" */
};

/* The request for an export. Low-rank adapters are merged into the matrices
 * beside which they stand. */
struct export_request {
    const char *model, *directory;
    bool average;             /* the moving average of the weights */
    bool adapter;             /* nothing but the adapters, as PEFT reads them:
                               * adapter_model.safetensors and its settings */
    bool typed;               /* the files are of `dtype`; else of the type */
    enum dtype dtype;         /* in which the model is kept */
};

/* ERR_CONFIG: `directory` is there and not empty. ERR_VERIFY: the proof
 * failed; nothing is left behind. */
status model_export(const struct export_request *request,
                    struct export_result *result);
/* Prints the written files and the proof, as text of a few lines. */
status export_print(const struct export_result *result, const char *directory,
                    struct text *out);

#endif
