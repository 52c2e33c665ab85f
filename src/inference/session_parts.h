/* SPDX-License-Identifier: Apache-2.0 */
/* session_parts.h - the parameters of a stage under the names and in the
 * shapes that they have outside (Hugging Face).
 *
 * Inside, q, k and v are rows of one matrix and every matrix is [out, in];
 * outside they are tensors of their own, some stored transposed. Each outside
 * tensor becomes one struct saved_part whose runs point straight into a flat
 * arena: weights, gradients or moments. Nothing is copied as a whole. */
#ifndef LOCKSTEP_INFERENCE_SESSION_PARTS_H
#define LOCKSTEP_INFERENCE_SESSION_PARTS_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/identity.h"
#include "checkpoint/weights.h"
#include "step/inventory.h"

/* Low-rank adapters and what they stand beside. */
enum parts_only { PARTS_ALL, PARTS_WEIGHTS, PARTS_ADAPTERS };

struct session_parts {
    enum parts_only only;     /* set before parts are added */
    bool gradients;           /* `flat` is laid out as gradients are, and has
                               * none of what no gradient moves. Likewise */
    const char *prefix;       /* of their names; NULL: none. Likewise */
    struct tensors_left left; /* of checkpoints that are read; zeroed: none */
    const struct model_kind *kind; /* whose names they have; files that are
                               * written have its stacks (expert_stack.h) */
    bool rounded;             /* files are of the type `written`, not the */
    enum dtype written;       /* parts' own; to nearest even */
    struct saved_part *items; /* [count]: every tensor of the model; its runs
                               * are those that this rank answers for */
    int count;
    int capacity;
    bool divided;             /* by session_parts_divide */
    struct saved_part *held;  /* [held_count]: whatever this rank has */
    int held_count, held_capacity;
    struct arena arena;       /* owned: names, runs, items */
};

/* Adds one part for every outside tensor of the stage's parameters, in model
 * order, a tied matrix once. `flat`, of the type, is laid out as the weights
 * are: stage->memory[MEMORY_...].data. kind "weight", "m" or "v". The stage
 * must outlive the parts. */
status session_parts_add(struct session_parts *parts,
                         const struct stage *stage, const char *kind,
                         void *flat, enum dtype dtype);
/* Like session_parts_add, for one of several ranks: every tensor of the model,
 * and of each what the inventory lists. kinds: bits 1 << INVENTORY_.... The
 * inventory must outlive the parts. */
status session_parts_divide(struct session_parts *parts,
                            const struct inventory *inventory, unsigned kinds);
/* The parts to be loaded. */
const struct saved_part *session_parts_held(const struct session_parts *parts,
                                            int *count);
void session_parts_free(struct session_parts *parts);

/* A load writes plain numbers. Elements that are stored as codes (8-bit states,
 * split masters) are held here as numbers while they are loaded, one span at a
 * time. Zeroed: it holds none. */
struct parts_room {
    const struct state_codes *codes;
    void *values;              /* owned */
};
/* *part = held, where a load can write it, and the parts before it in the same
 * span were. */
status parts_room_open(struct parts_room *room, const struct saved_part *held,
                       struct saved_part *part);
/* Stores the numbers, and frees the room. */
void parts_room_store(struct parts_room *room);
/* After an error: leaves them. */
void parts_room_free(struct parts_room *room);

/* Fills what is held from the checkpoint, verifying each block, converting the
 * type. ERR_CONFIG: the checkpoint holds other weights (names the first that
 * differs). */
status session_parts_load(const struct session_parts *parts,
                          struct checkpoint *checkpoint);
/* Fills what is held of kind "weight" from a Hugging Face directory. Every
 * tensor there must be used exactly once; buffers that are no weights (causal
 * masks, rotary frequencies) are passed over; names may lack the family's first
 * word ("transformer.", "model."); when `tied`, a head of its own must equal
 * the embedding in every byte. dense: the kind of the directory where the model
 * is a mixture made of it (upcycle.h), else NULL. ERR_FORMAT. */
status session_parts_import(const struct session_parts *parts,
                            const struct model *model,
                            const struct model_kind *dense,
                            struct weights *weights);
/* Writes the parts as safetensors: *.safetensors and, beyond 5 GB, shards and
 * an index, in an existing directory. */
status session_parts_export(const struct session_parts *parts,
                            const char *directory);
/* Writes them into the one file `path`. */
status session_parts_write(const struct session_parts *parts,
                           const char *path);

#endif
