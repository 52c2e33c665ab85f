/* SPDX-License-Identifier: Apache-2.0 */
/* import.h - a Hugging Face directory as a run at step 0: `lockstep import`.
 * The result is a MODEL like any other: generate, score, export and init.from
 * accept it.
 *
 *    RUN/config.yaml      the architecture as model.*, tokenizer.from
 *    RUN/config.json      the same as the outside writes it
 *    RUN/tokenizer.json   if the source has one
 *    RUN/adapter_config.json  with adapters, all names written out
 *    RUN/ckpt/step-00000000  the weights, nothing of an optimizer */
#ifndef LOCKSTEP_INFERENCE_IMPORT_H
#define LOCKSTEP_INFERENCE_IMPORT_H

#include "inference/session.h"
#include "inference/upcycle.h"

struct import_result {
    struct model model;
    const struct model_kind *dense; /* of the source of a mixture; or NULL */
    int tensors;              /* outside; each was used exactly once */
    int64_t parameters;
    enum dtype dtype;         /* in which they are stored now, exactly */
    char stored[16];          /* in which they were: "BF16"; or "mixed" */
    double dropout;           /* largest probability in config.json; 0:
                               * none */
    bool tokenizer;
    char checkpoint[PATH_BYTES];
};

/* adapter: a directory of PEFT whose adapters come beside the weights; NULL:
 * none. upcycle: makes a mixture of a dense model; NULL: not. ERR_CONFIG:
 * `source` is a run already, RUN holds one, or an
 * architecture that this build cannot follow; ERR_FORMAT: a tensor is missing,
 * unused or of another shape. RUN is not touched before everything was read.
 */
status model_import(const char *source, const char *run,
                    const char *adapter, const struct upcycle *upcycle,
                    struct import_result *result);
/* The summary, as text of a few lines. */
status import_print(const struct import_result *result, struct text *out);

#endif
