/* SPDX-License-Identifier: Apache-2.0 */
/* local_run.h - a run whose machines share no file system (checkpoint.local).
 *
 *    DIR/NODE/ckpt/step-...   the shards of a machine's own ranks
 *                             (checkpoint/shards.h)
 *    RUN                      on each machine; metrics and records on that of
 *                             rank 0, with RUN/records: a number that rank 0
 *                             raises whenever it opens them
 *
 * Each step has a copy of the records, so that they outlive the machine of
 * rank 0. What another machine has is read through its agent
 * (control/far_files.h). Without agents all ranks are on one machine, which
 * is called "here". */
#ifndef LOCKSTEP_TRAIN_LOCAL_RUN_H
#define LOCKSTEP_TRAIN_LOCAL_RUN_H

#include "base/options.h"
#include "checkpoint/shards.h"
#include "comm/comm.h"
#include "control/far_files.h"
#include "mesh/layout.h"

struct local_run {
    bool used;                   /* the option is set */
    char node[STORE_NAME_BYTES]; /* this machine's name */
    char store[PATH_BYTES];      /* DIR/NODE */
    struct stores stores;        /* DIR, RUN */
    int ranks;
    char (*nodes)[STORE_NAME_BYTES]; /* owned, [ranks] */
    int lead, index, count;      /* the first rank of this machine; this one's
                                  * number there, of so many */
    int64_t records;             /* number of RUN/records; 0: none */
    bool behind;                 /* they are as old as a checkpoint */
};

/* Finds out who is where. world NULL: alone. Collective. */
status local_open(struct local_run *local, const struct options *o,
                  struct group *world);
void local_close(struct local_run *local);
/* The first rank of its machine makes what all ranks there need; without the
 * option, rank 0. */
bool local_leads(const struct local_run *local, int rank);

/* The machines that have shards: this one, and those whose agents answer. */
struct local_places {
    struct shard_place *places; /* owned, [count]; the first is this machine */
    struct far_files *far;      /* owned, [count] */
    int count;
};
/* far NULL: those that the agent names, if there is one. */
status local_places_open(struct local_places *places,
                         const struct local_run *local,
                         const struct far_nodes *far);
void local_places_close(struct local_places *places);

/* A step that is whole, from all places. */
struct local_source {
    struct local_places places;
    struct shard_list list;
    struct shard_set shards;
};
/* Lists all places; those that do not answer are told in `notice`. */
status local_source_list(struct local_source *source,
                         const struct local_run *local,
                         const struct far_nodes *far, struct text *notice);
void local_source_close(struct local_source *source);
/* Opens the newest step below `below` that is whole. *step -1: there is none.
 * notice: a sentence for each that is not. */
status local_source_newest(struct local_source *source, int64_t below,
                           int64_t *step, struct text *notice);

/* Like local_source_newest, for one of which something is there: its records
 * are. */
status local_source_any(struct local_source *source, int64_t *step);

/* The grid of the newest step that is whole. Collective. */
status local_newest_grid(const struct local_run *local, struct group *world,
                         struct grid *grid, bool *found);
/* How many steps are listed; *none: a store says that it has none yet. */
status local_count(const struct local_run *local, int *count, bool *none);

/* A text of rank 0, to that rank; there. */
status local_give(struct group *world, const struct text *text, int rank);
status local_take(struct group *world, struct text *text);
/* A text of rank 0 on the first rank of each machine, too. world: all ranks.
 * Collective. */
status local_spread(const struct local_run *local, struct group *world,
                    struct text *text);
/* Whether no earlier rank is on the machine of this one. */
bool local_is_lead(const struct local_run *local, int rank);

/* Before a rank of an agent reads RUN/config.yaml: where it is not here, it
 * comes from another machine, with the tokenizer. */
status local_bring_configuration(const char *run);
/* Rank 0, with RUN's lock: its records become the newest that there are. They
 * then go to machines that no checkpoint has brought them to, and the ledger to
 * all. Collective. */
status local_bring_records(struct local_run *local, struct group *world);
/* The records of an open step into RUN, if they are newer; its configuration,
 * if there is none. */
status local_bring_from_step(struct local_run *local,
                             const struct shard_set *shards);
/* The records of RUN, with its configuration, and one after the other. */
enum { LOCAL_RECORD_NAME = 64 };
struct local_record {
    char name[LOCAL_RECORD_NAME];
    const char *bytes; /* borrowed */
    size_t length;
};
status local_collect_records(const struct local_run *local, struct text *out);
bool local_next_record(const char **at, const char *end,
                       struct local_record *record);
/* Rank 0, before it opens its records. */
status local_raise_records(struct local_run *local);

#endif
