/* SPDX-License-Identifier: Apache-2.0 */
/* run_machine.c - the machine that a run is predicted on. */
#include "train/run_machine.h"

#include <string.h>

#include "base/file.h"
#include "comm/launch.h"
#include "planner/this_machine.h"

/* A launcher may give each process a part of the cores. */
static status check_key(const struct machine *machine)
{
    const char *cores = strrchr(machine->key, ',');
    const size_t name = cores != NULL ? (size_t)(cores - machine->key) : 0;
    char key[MACHINE_KEY_BYTES];
    status code;

    this_machine_key(key);
    if (machine->key[0] == 0 || strcmp(machine->key, key) == 0 ||
        (launch_rank() >= 0 && name > 0 &&
         strncmp(machine->key, key, name + 1) == 0))
        return OK;
    code = status_fail(ERR_CONFIG, __FILE__, __LINE__,
                       "machine: this profile was measured on \"%s\"; this "
                       "machine is \"%s\"", machine->key, key);
    return status_hint(code, "lockstep calibrate measures this machine");
}

status run_machine_open(struct machine *machine, const struct options *o,
                        bool *there)
{
    const char *what = o->machine;
    char path[PATH_BYTES];
    status result;

    *machine = (struct machine){0};
    *there = false;
    path[0] = 0;
    if (o->run.dir[0] != 0)
        TRY(path_join(path, sizeof path, o->run.dir, RUN_MACHINE));
    if (path[0] != 0 && file_exists(path) &&
        (what[0] == 0 || (!machine_is_preset(what) && !file_exists(what))))
        what = path;
    if (what[0] == 0) return OK;
    TRY(machine_open(machine, &(struct machine_choice){
        .what = what, .foreign = true, .where = "machine"}));
    result = check_key(machine);
    if (result != OK) machine_free(machine);
    *there = result == OK;
    return result;
}
