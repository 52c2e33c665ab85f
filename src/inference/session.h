/* SPDX-License-Identifier: Apache-2.0 */
/* session.h - MODEL as the commands take it: a run directory (its newest whole
 * checkpoint), a checkpoint directory, or a Hugging Face directory.
 *
 * Opening reads the architecture and the tables of contents only. A stage is
 * then planned for what the caller wants to do (score, generate, train) and
 * the weights are read from the files into its arena, a buffer at a time.
 *
 *    MODEL/ckpt/        a run         -> newest whole MODEL/ckpt/step-N
 *    MODEL/manifest.json  a checkpoint -> its config.json
 *    MODEL/config.json  a Hugging Face directory
 *
 * A checkpoint therefore carries config.json (model_write_config) among its
 * files. the tokenizer is looked for beside config.json, then in the run. */
#ifndef LOCKSTEP_INFERENCE_SESSION_H
#define LOCKSTEP_INFERENCE_SESSION_H

#include "checkpoint/run_dir.h"
#include "inference/session_parts.h"

struct session {
    enum place_kind kind;
    char path[PATH_BYTES];      /* as the user named it */
    char directory[PATH_BYTES]; /* that holds config.json and the weights */
    char tokenizer[PATH_BYTES]; /* its file; "" if there is none */
    struct model model;
    const struct model_kind *dense; /* of the file, whose feed-forward parts
                                 * become experts (upcycle.h); else NULL */
    enum dtype dtype;           /* that holds every stored weight exactly:
                                 * float64 if one is, else float32 */
    const char *stored;         /* type of the stored weights, "BF16", or
                                 * "mixed" */
    int grid_expert;            /* likewise: leaves of the experts; 0: auto */
    int grid_tensor;            /* leaves the weights were trained with; 0:
                                 * unknown */
    bool average;               /* set after opening: load the moving average
                                 * of the weights instead, where there is one */
    bool speculative;           /* set after opening: generation has the modules
                                 * that predict later tokens */
    bool latent_cache;          /* set after opening: generation keeps latents
                                 * (docs/latent_attention.md) */
    enum device_kind device;    /* set after opening: where stages compute */
    int64_t step, tokens;       /* of a checkpoint; 0 */
    struct text notice;         /* owned; sentences about damage passed over,
                                 * "" if none: for the user to see */
    struct checkpoint checkpoint; /* owned; unless MODEL_HUGGING_FACE */
    struct weights weights;       /* owned; of MODEL_HUGGING_FACE */
    struct weights adapters;      /* owned; of session_adapt, else empty */
};

/* ERR_MISSING: nothing there that is a model (says what was looked for);
 * ERR_FORMAT; ERR_CONFIG: an architecture that this build cannot follow. */
status session_open(struct session *session, const char *path);
void session_close(struct session *session);
/* Puts the adapters of a directory of PEFT (adapter_config.json,
 * adapter_model.safetensors) beside the weights of an open session that has
 * none; session_adapt.c. ERR_MISSING: it is none; ERR_CONFIG names what is not
 * computed here. */
status session_adapt(struct session *session, const char *directory);
bool session_is_adapted(const struct session *session);
status session_load_adapters(struct session *session, struct stage *stage);
/* The name of the tokenizer's file, without the directory; "" if there is
 * none. */
const char *session_tokenizer_name(const struct session *session);
/* Its bytes, to be copied. ERR_FORMAT unless they are a tokenizer: the file may
 * be a link to anything, and a copy is handed on. */
status session_read_tokenizer(const struct session *session,
                              struct text *out);

/* A request for one forward pass over `batch` sequences of `length` tokens, in
 * float32, all threads, the grid of the weights (data: auto for the batch).
 * The caller changes what it wants otherwise. `session` must outlive it. */
status session_request(const struct session *session, int64_t batch,
                       int64_t length, struct stage_request *out);
/* Plans, opens and fills a stage. Free it with stage_free in every case. */
status session_stage(struct session *session,
                     const struct stage_request *request,
                     struct stage *stage);
/* Fills the weights of an open stage, whose model may differ from the
 * session's in nothing that the arithmetic sees but the context (rotary
 * models). ERR_CONFIG names the first field that differs: init.from. May be
 * called again. */
status session_load_weights(struct session *session, struct stage *stage);
/* Random weights, from counters keyed by the seed, for the parameters of an
 * inventory that `chooses` takes; NULL: for all. */
typedef bool session_chooses(const struct model *model,
                             const struct param *param);
status session_start_random(const struct inventory *inventory,
                          const struct stage *stage, uint64_t seed,
                          session_chooses *chooses);
/* The weights of step 0 in what a rank holds: from the model at `from` (damage
 * that was passed over is told on stderr), or, when that is "", from counters
 * keyed by the seed. Collective over the team's world. */
status session_start_weights(const struct inventory_of *of, const char *from,
                             uint64_t seed);

#endif
