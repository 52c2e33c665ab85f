/* SPDX-License-Identifier: Apache-2.0 */
/* launch.c - finds out who started this process: lockstep itself, an MPI's
 * launcher, or nobody. */
#include "comm/launch.h"

#include <stdlib.h>
#include <string.h>
#include "comm/mpi.h"
#include "comm/process.h"

/* In the order in which they are believed: Open MPI also sets PMIx's, and what
 * Slurm sets may be of a step that started MPI's own launcher. */
static const struct launcher {
    const char *rank, *size; /* variables */
    const char *plugin;      /* NULL: the ranks cannot find each other */
} launchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "openmpi"},
    {"PMI_RANK", "PMI_SIZE", "mpich"},
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "openmpi"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", NULL},
};

static int variable(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? (int)strtol(text, NULL, 10) : otherwise;
}

static const struct launcher *launcher_find(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const struct launcher *l = &launchers[i];

        if (getenv(l->rank) == NULL) continue;
        /* A batch script, or a shell in a step, is one task of Slurm. */
        if (l->plugin != NULL || variable(l->size, 1) > 1) return l;
    }
    return NULL;
}

int launch_rank(void)
{
    const struct launcher *launcher = launcher_find();

    if (process_is_rank()) return variable("LOCKSTEP_RANK", 0);
    return launcher != NULL ? variable(launcher->rank, 0) : -1;
}

const char *launch_command(void)
{
    const struct launcher *launcher = launcher_find();

    if (process_is_rank()) return "lockstep launch --ranks";
    if (launcher == NULL) return NULL;
    return strncmp(launcher->size, "SLURM", 5) == 0 ? "srun -n" : "mpirun -n";
}

bool launch_is_own(void)
{
    return process_is_rank() || launcher_find() == NULL;
}

/* The body of a rank whose groups have a limit from the start. */
struct limited {
    int64_t limit_ms;
    status (*body)(void *argument, struct group *world);
    void *argument;
};

static status limited_body(void *argument, struct group *world)
{
    const struct limited *limited = argument;

    if (limited->limit_ms > 0) group_limit_ms(world, limited->limit_ms);
    return limited->body(limited->argument, world);
}

static status plugin_choose(const struct launcher *launcher, const char **out)
{
    const char *wish = getenv("LOCKSTEP_MPI");

    *out = wish != NULL ? wish : launcher->plugin;
    if (*out == NULL)
        FAIL(ERR_CONFIG, "srun started %d tasks that do not know of each "
             "other; use srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH)",
             variable(launcher->size, 0));
    if (strcmp(*out, "openmpi") != 0 && strcmp(*out, "mpich") != 0)
        FAIL(ERR_CONFIG, "LOCKSTEP_MPI is \"%s\"; known are openmpi and mpich",
             *out);
    return OK;
}

status launch_run(const struct launch *launch,
                  status (*body)(void *argument, struct group *world),
                  void *argument)
{
    const struct launcher *launcher = launcher_find();
    struct limited limited = {launch->limit_ms, body, argument};
    struct mpi_launch mpi = {.count = launch->ranks,
                             .limit_ms = launch->limit_ms};

    if (process_is_rank()) {
        TRY(process_ranks_run(launch->ranks, launch->limit_ms, limited_body,
                              &limited));
        return OK;
    }
    if (launcher == NULL) {
        TRY(ranks_run(launch->ranks > 0 ? launch->ranks : 1, limited_body,
                      &limited));
        return OK;
    }
    TRY(plugin_choose(launcher, &mpi.name));
    mpi.variable = launcher->rank;
    mpi.rank = variable(launcher->rank, 0);
    mpi.size = variable(launcher->size, 0);
    TRY(mpi_ranks_run(&mpi, limited_body, &limited));
    return OK;
}
