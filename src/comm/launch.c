/* SPDX-License-Identifier: Apache-2.0 */
/* launch.c - finds out who started this process. */
#include "comm/launch.h"

#include <stdlib.h>
#include "comm/mpi.h"

/* In the order in which they are believed: Open MPI also sets PMIx's. */
static const struct launcher {
    const char *variable; /* holds the rank */
    const char *plugin;
} launchers[] = {
    {"OMPI_COMM_WORLD_RANK", "openmpi"},
    {"PMI_RANK", "mpich"},
    {"PMIX_RANK", "openmpi"},
};

static const struct launcher *launcher_find(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (getenv(launchers[i].variable) != NULL) return &launchers[i];
    return NULL;
}

int launch_rank(void)
{
    const struct launcher *launcher = launcher_find();

    return launcher != NULL
               ? (int)strtol(getenv(launcher->variable), NULL, 10) : -1;
}

status launch_run(int count, status (*body)(void *argument,
                                            struct group *world),
                  void *argument)
{
    const struct launcher *launcher = launcher_find();

    if (launcher == NULL)
        TRY(ranks_run(count > 0 ? count : 1, body, argument));
    else
        TRY(mpi_ranks_run(launcher->plugin, count, body, argument));
    return OK;
}
