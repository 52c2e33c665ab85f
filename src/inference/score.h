/* SPDX-License-Identifier: Apache-2.0 */
/* score.h - the mean next-token loss of a model over given ids, its logits and
 * its gradients: what `lockstep score` prints and writes. */
#ifndef LOCKSTEP_INFERENCE_SCORE_H
#define LOCKSTEP_INFERENCE_SCORE_H

#include "inference/session.h"

struct score_request {
    const char *model;     /* a path, session.h */
    enum device_kind device; /* where it is computed; zeroed: cpu */
    bool average;          /* the moving average of its weights */
    const char *tokens;    /* FILE.json: array of equally long arrays of ids */
    enum dtype dtype;      /* DTYPE_F32 or DTYPE_F64 */
    const char *logits;    /* file to write, [sequences, length, vocab] in
                            * dtype; NULL: none */
    const char *gradients; /* file to write, Hugging Face names; NULL: none */
    int threads;           /* 0: the cores of this process */
};

struct score_result {
    double loss;           /* mean over the targets, nats */
    int64_t targets;       /* sequences * (length - 1) */
    double bits_per_byte;  /* of the text that the targets stand for; NaN: the
                            * model has no tokenizer, or they stand for none */
    int64_t sequences, length;
    char notice[512];      /* about damage that was passed over; "" */
};

/* ERR_FORMAT: FILE.json is no array of equally long arrays of integers;
 * ERR_CONFIG: an id outside the vocabulary (names sequence and position),
 * sequences shorter than 2 or longer than the model's context. */
status score(const struct score_request *request,
             struct score_result *result);

/* The ids of FILE.json, [sequences, length], owned by the caller
 * (memory_free). */
status score_read_tokens(const char *path, const struct model *model,
                         int32_t **ids, int64_t *sequences, int64_t *length);

#endif
