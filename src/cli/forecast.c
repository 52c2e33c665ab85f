/* SPDX-License-Identifier: Apache-2.0 */
/* forecast.c - the inputs of a prediction, from a command line. */
#include "cli/forecast.h"

#include <string.h>

#include "cli/config.h"
#include "planner/this_machine.h"
#include "train/auto_mesh.h"

status forecast_amount(const struct arguments *arguments, const char *flag,
                       double *out)
{
    *out = 0;
    if (!arguments_has(arguments, flag)) return OK;
    return arguments_real(arguments, flag, 1e-12, 1e30, out);
}

static status open_machine(struct forecast *f, struct arguments *arguments)
{
    const char *name = arguments_text(arguments, "machine", NULL);
    char key[MACHINE_KEY_BYTES];
    status code;

    if (name == NULL) {
        code = status_fail(ERR_USAGE, __FILE__, __LINE__,
                           "%s needs --machine FILE or PRESET",
                           arguments->command->name);
        return status_hint(code, "lockstep machines lists the presets; "
                                 "lockstep calibrate --out FILE measures this "
                                 "machine");
    }
    this_machine_key(key);
    return machine_open(&f->machine, &(struct machine_choice){
        name, key, arguments_has(arguments, "foreign"), NULL});
}

/* Ranks from --ranks, or from --nodes with the machine's devices. */
static status read_ranks(struct forecast *f, struct arguments *arguments)
{
    const int64_t devices = (int64_t)f->machine.value[M_DEVICES];
    int64_t ranks = 0, nodes = 0;

    TRY(arguments_integer(arguments, "ranks", 1, FORECAST_RANKS, &ranks));
    TRY(arguments_integer(arguments, "nodes", 1, FORECAST_RANKS, &nodes));
    if (ranks == 0 && nodes * devices > FORECAST_RANKS)
        FAIL(ERR_USAGE, "--nodes %lld: %lld devices; at most %d can be planned",
             (long long)nodes, (long long)(nodes * devices), FORECAST_RANKS);
    if (ranks == 0 && nodes == 0 &&
        strcmp(arguments->command->name, "search") == 0)
        nodes = 1; /* a search takes all devices of the nodes */
    if (ranks == 0) ranks = nodes > 0 ? nodes * devices : 1;
    if (nodes > ranks || (nodes > 0 && ranks % nodes != 0))
        FAIL(ERR_USAGE, "--ranks %lld: not a multiple of --nodes %lld; %lld is",
             (long long)ranks, (long long)nodes,
             (long long)(ranks < nodes ? nodes : ranks / nodes * nodes));
    if (nodes > 0 && ranks / nodes > devices) {
        int64_t enough = nodes;

        while (ranks % enough != 0 || ranks / enough > devices) enough++;
        FAIL(ERR_USAGE, "--ranks %lld --nodes %lld: %lld ranks on a node; a "
                        "node of %s has %lld devices; --nodes %lld is enough",
             (long long)ranks, (long long)nodes, (long long)(ranks / nodes),
             f->machine.name, (long long)devices, (long long)enough);
    }
    f->ranks = (int)ranks;
    f->nodes = (int)nodes;
    return OK;
}

/* "states,activations": the executor keeps everything where it computes. */
static status read_offload(struct forecast *f,
                           const struct arguments *arguments)
{
    static const struct { const char *name; unsigned bit; } kinds[] = {
        {"states", OFFLOAD_STATES}, {"weights", OFFLOAD_WEIGHTS},
        {"activations", OFFLOAD_ACTIVATIONS}, {"disk", OFFLOAD_DISK}};
    const char *word = arguments_text(arguments, "offload", NULL);

    while (word != NULL && *word != 0) {
        const size_t length = strcspn(word, ",");
        unsigned bit = 0;

        for (int i = 0; i < 4; i++)
            if (strlen(kinds[i].name) == length &&
                strncmp(kinds[i].name, word, length) == 0)
                bit = kinds[i].bit;
        if (bit == 0)
            FAIL(ERR_USAGE, "--offload: expected states, weights, activations "
                            "or disk, separated by commas, found \"%.40s\"",
                 word);
        f->offload |= bit;
        word += length + (word[length] == ',');
    }
    if (arguments_has(arguments, "offload") && f->offload == 0)
        FAIL(ERR_USAGE, "--offload: names nothing; expected states, weights, "
                        "activations or disk, separated by commas");
    if (f->offload == OFFLOAD_DISK)
        FAIL(ERR_USAGE, "--offload disk: of what? For example states,disk");
    return OK;
}

status forecast_open(struct forecast *f, struct arguments *arguments)
{
    int as = AS_LOCKSTEP;

    *f = (struct forecast){0};
    TRY(arguments_choice(arguments, "as", as_names, AS_COUNT, &as));
    f->as = (enum program_as)as;
    TRY(arguments_bytes(arguments, "max-memory", 0x1p60, &f->max_memory));
    TRY(read_offload(f, arguments));
    TRY(open_machine(f, arguments));
    f->as = layout_program(f->as, &f->machine);
    TRY(read_ranks(f, arguments));
    TRY(config_read(&f->set, arguments->operands[0], arguments));
    if (strcmp(arguments->command->name, "search") != 0) {
        TRY(auto_mesh_choose(&(struct auto_mesh){
            .set = &f->set, .machine = &f->machine, .ranks = f->ranks,
            .nodes = f->nodes, .max_memory = f->max_memory}));
        return forecast_model(f);
    }
    TRY(options_assign(&f->set, "mesh.layout=given", ORIGIN_COMMAND_LINE));
    /* Blocks: evenly. */
    f->uneven = f->set.values.mesh.layers.count > 0;
    TRY(options_assign(&f->set, "mesh.layers=", ORIGIN_COMMAND_LINE));
    return forecast_model(f);
}
