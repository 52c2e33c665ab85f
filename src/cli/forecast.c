/* SPDX-License-Identifier: Apache-2.0 */
/* forecast.c - the inputs of a prediction, from a command line. */
#include "cli/forecast.h"

#include <string.h>

#include "cli/config.h"
#include "planner/this_machine.h"
#include "setup/setup.h"
#include "setup/suggest.h"
#include "train/draft.h"

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
        name, key, arguments_has(arguments, "foreign")});
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
    if (ranks == 0) ranks = nodes > 0 ? nodes * devices : 1;
    if (nodes > ranks || (nodes > 0 && ranks % nodes != 0))
        FAIL(ERR_USAGE, "--ranks %lld: not a multiple of --nodes %lld; %lld is",
             (long long)ranks, (long long)nodes,
             (long long)(ranks < nodes ? nodes : ranks / nodes * nodes));
    if (nodes > 0 && ranks / nodes > devices)
        FAIL(ERR_USAGE, "--ranks %lld on %lld nodes are %lld on each; a node "
                        "of %s has %lld devices", (long long)ranks,
             (long long)nodes, (long long)(ranks / nodes), f->machine.name,
             (long long)devices);
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
    TRY(forecast_amount(arguments, "max-memory", &f->max_memory));
    TRY(read_offload(f, arguments));
    TRY(open_machine(f, arguments));
    TRY(read_ranks(f, arguments));
    TRY(config_read(&f->set, arguments->operands[0], arguments));
    if (f->set.values.model.vocab == 0 && f->set.values.model.from[0] == 0 &&
        f->set.values.tokenizer.from[0] != 0) {
        struct setup setup = {0};
        status result = setup_resolve(&setup, &f->set, 1, 0);

        if (result == OK) f->model = setup.model;
        setup_free(&setup);
        if (result != OK) {
            status_clear();
            FAIL(ERR_CONFIG, "model.vocab is 0 and the tokenizer could not "
                             "tell it; set model.vocab");
        }
    } else {
        TRY(model_from_options(&f->model, &f->set.values, 0));
    }
    return shape_of(&f->shape, &f->model, f->set.values.data.sequence);
}

enum { PLANNED_WHOLE = 16 /* pipe ranks; of more, the first and the last */ };

/* The largest rank, planned to the byte; the ranks of a pipe differ. */
static status plan_memory(struct forecast *f, struct setup *setup)
{
    const int pipe = setup->mesh.size[AXIS_PIPE];
    const int ends = f->quick ? 1 : pipe > PLANNED_WHOLE ? 4 : pipe;

    for (int position = 0; position < pipe; position++) {
        if (position == ends && position < pipe - ends)
            position = pipe - ends;
        struct place place = {{0}};
        struct draft draft;
        double bytes;

        place.at[AXIS_PIPE] = position;
        TRY(draft_build(&draft, setup,
                        mesh_rank(&setup->mesh, &setup->order, &place)));
        bytes = (double)draft.pipeline.bytes;
        draft_free(&draft);
        if (bytes <= f->exact_bytes) continue;
        f->exact_bytes = bytes;
        f->exact_position = position;
    }
    return OK;
}

/* Lockstep's own choices where the options leave them open. */
static status settle(struct forecast *f, bool suggest)
{
    struct setup setup = {0};
    status result;

    f->set.values.train.memory =
        (f->max_memory > 0 ? f->max_memory
                           : f->machine.value[M_MEMORY_BYTES]) / 1073741824.0;
    result = suggest ? setup_resolve_or_suggest(&setup, &f->set, f->ranks, 0)
                     : setup_resolve(&setup, &f->set, f->ranks, 0);
    TRY_GOTO(done, result, result);
    f->set.values.train.micro_batch = setup.request.micro_batch;
    TRY_GOTO(done, result, plan_memory(f, &setup));
done:
    setup_free(&setup);
    return result;
}

status forecast_layout(struct forecast *f)
{
    const struct layout_request request = {
        &f->set.values, &f->shape, &f->machine, f->as, f->ranks, f->nodes,
        f->blocks};

    if (f->as == AS_LOCKSTEP) TRY(settle(f, true));
    TRY(layout_from_options(&f->layout, &request));
    f->layout.offload = f->offload;
    if (f->offload != 0) f->exact_bytes = 0;
    return OK;
}

status forecast_exactly(struct forecast *f)
{
    return settle(f, false);
}

enum { WALKED_PIPE = 16, WALKED_ITEMS = 1 << 16 /* blocks of micro-batches */ };

static status walk_lists(struct walk *walk, struct forecast *f,
                         struct setup *setup)
{
    TRY(setup_resolve(setup, &f->set, f->ranks, 0));
    for (int position = 0; position < walk->ranks; position++) {
        struct place place = {{0}};
        struct draft draft;
        status result;

        place.at[AXIS_PIPE] = position;
        TRY(draft_build(&draft, setup,
                        mesh_rank(&setup->mesh, &setup->order, &place)));
        result = walk_rank(walk, &draft.pipeline);
        draft_free(&draft);
        TRY(result);
    }
    return OK;
}

status forecast_steps(struct forecast *f, struct steps *out)
{
    const struct cost cost = forecast_cost(f);
    const double items = (double)f->layout.microbatches * f->shape.layers;
    struct setup setup = {0};
    struct walk walk = {.ranks = 0};
    status result;

    if (f->as != AS_LOCKSTEP || f->offload != 0 ||
        f->layout.pipe > WALKED_PIPE || items > WALKED_ITEMS)
        return steps_build(out, &cost);
    TRY_GOTO(done, result, walk_begin(&walk, &cost, f->layout.pipe));
    TRY_GOTO(done, result, walk_lists(&walk, f, &setup));
    TRY_GOTO(done, result, walk_finish(&walk, out));
    f->walked = true;
done:
    walk_free(&walk);
    setup_free(&setup);
    return result;
}

struct cost forecast_cost(const struct forecast *f)
{
    return (struct cost){&f->machine, &f->shape, &f->layout};
}

void forecast_free(struct forecast *f)
{
    options_free(&f->set);
    machine_free(&f->machine);
}
