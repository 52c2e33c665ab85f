/* SPDX-License-Identifier: Apache-2.0 */
/* auto_mesh.c - `mesh: auto`: from search's best to options. */
#include "train/auto_mesh.h"

#include <string.h>
#include <unistd.h>

#include "comm/launch.h"
#include "setup/agreement.h"
#include "setup/setup.h"
#include "tokenizer/run_tokenizer.h"
#include "train/found_layouts.h"
#include "train/run_machine.h"

enum { TOP = 8, AXES = 4 };

static bool is_asked(const struct options *o)
{
    return strcmp(o->mesh.layout, "auto") == 0;
}

/* ---- what is set already ---- */

static bool is_open(const struct options_set *set, const char *name)
{
    const enum option_origin origin = options_origin(set, name);

    return origin == ORIGIN_DEFAULT || origin == ORIGIN_SEARCH;
}

static enum recompute recompute_of(const struct option_list *kinds)
{
    int kind = RECOMPUTE_NONE;

    for (int i = 0; i < kinds->count; i++)
        for (int r = 0; r < RECOMPUTES; r++)
            if (strcmp(kinds->items[i], recompute_names[r]) == 0) kind = r;
    return (enum recompute)kind;
}

/* Parts of a layout that search does not enumerate. */
static status check_closed(const struct options *o)
{
    if (o->mesh.shard != 1)
        FAIL(ERR_CONFIG, "mesh.shard: %lld, and mesh: auto chooses among "
                         "layouts with 1; leave it out, or give the whole "
                         "mesh", (long long)o->mesh.shard);
    if (o->mesh.layers.count > 0)
        FAIL(ERR_CONFIG, "mesh.layers: mesh: auto divides the blocks; "
                         "leave it out, or give the whole mesh");
    if (o->mesh.expert_tensor > 1)
        FAIL(ERR_CONFIG, "mesh.expert_tensor: %lld, and mesh: auto chooses "
                         "between 0 and 1; leave it out, or give the whole "
                         "mesh", (long long)o->mesh.expert_tensor);
    for (int i = 0; i < o->train.recompute.count; i++) {
        const char *kind = o->train.recompute.items[i];
        bool known = strcmp(kind, "auto") == 0;

        for (int r = 0; r < RECOMPUTES; r++)
            known = known || strcmp(kind, recompute_names[r]) == 0;
        if (!known)
            FAIL(ERR_CONFIG, "train.recompute: %s, and mesh: auto chooses "
                             "among none, attention and block; leave it out, "
                             "or give the whole mesh", kind);
    }
    return OK;
}

/* An axis that takes what is left is open. */
static int axis_of(const struct options_set *set, const char *name,
                   int64_t value)
{
    return is_open(set, name) || value < 1 ? -1 : (int)value;
}

static int zero_of(const char *name)
{
    static const char *const names[] = {"ddp", "zero1", "zero2", "zero3",
                                        "fsdp"};

    for (int i = 0; i < 5; i++)
        if (strcmp(names[i], name) == 0) return i < 3 ? i : 3;
    return -1;
}

/* The leaves that the axes must divide; in fast mode the grid gives way. */
static status grid_of(struct grid *grid, const struct options_set *set)
{
    struct options_set alone;
    struct setup setup = {0};
    struct vocabulary vocabulary;
    status result;

    forecast_alone(set, &alone);
    TRY(run_vocabulary(&vocabulary, &set->values));
    result = setup_resolve(&setup, &alone, &vocabulary, 1, 0);
    if (result == OK && setup.exact) *grid = setup.grid;
    setup_free(&setup);
    return result;
}

static status fix(struct search_fixed *fixed, const struct options_set *set)
{
    const struct options *o = &set->values;
    const bool recompute = !is_open(set, "train.recompute") &&
                           o->train.recompute.count > 0 &&
                           strcmp(o->train.recompute.items[0], "auto") != 0;
    const bool micro_batch = !is_open(set, "train.micro_batch") &&
                             o->train.micro_batch > 0;

    TRY(check_closed(o));
    *fixed = (struct search_fixed){
        .tensor = axis_of(set, "mesh.tensor", o->mesh.tensor),
        .context = axis_of(set, "mesh.context", o->mesh.context),
        .pipe = axis_of(set, "mesh.pipe", o->mesh.pipe),
        .data = axis_of(set, "mesh.data", o->mesh.data),
        .expert = axis_of(set, "mesh.expert", o->mesh.expert),
        .expert_tensor = is_open(set, "mesh.expert_tensor")
                             ? -1 : (int)o->mesh.expert_tensor,
        .expert_context = is_open(set, "mesh.expert_context")
                              ? -1 : o->mesh.expert_context,
        .zero = is_open(set, "zero") ? -1 : zero_of(o->zero),
        .recompute = recompute ? (int)recompute_of(&o->train.recompute) : -1,
        .micro_batch = micro_batch ? o->train.micro_batch : -1};
    if (!is_open(set, "zero") && fixed->zero < 0)
        FAIL(ERR_CONFIG, "zero: %s, and mesh: auto chooses among ddp, zero1, "
                         "zero2, fsdp and sets of axes; leave it out, or give "
                         "the whole mesh", o->zero);
    if (!is_open(set, "schedule.name"))
        snprintf(fixed->schedule, sizeof fixed->schedule, "%.23s",
                 o->schedule.name);
    return grid_of(&fixed->grid, set);
}

/* ---- the search ---- */

static bool mentions(const struct search_fixed *fixed, const char *setting)
{
    return (strncmp(setting, "zero=", 5) == 0 && fixed->zero >= 0) ||
           (strncmp(setting, "train.recompute=", 16) == 0 &&
            fixed->recompute >= 0) ||
           (strncmp(setting, "train.micro_batch=", 18) == 0 &&
            fixed->micro_batch >= 0);
}

static status take(struct options_set *set, const struct search_fixed *fixed,
                   const struct layout *layout, const struct shape *shape)
{
    char settings[HUNTED_SETTINGS][HUNTED_SETTING];
    const int count = found_settings(layout, shape, false, settings);

    for (int i = 0; i < count; i++)
        if (!mentions(fixed, settings[i]))
            TRY(options_assign(set, settings[i], ORIGIN_SEARCH));
    return OK;
}

static status none_found(const struct found_layouts *h)
{
    status code;

    if (h->search.feasible > 0)
        code = status_fail(ERR_FIT, __FILE__, __LINE__,
                           "mesh: auto: no layout of %lld was accepted: %s",
                           (long long)h->search.feasible, h->refused);
    else if (h->search.candidates > 0)
        code = status_fail(ERR_FIT, __FILE__, __LINE__,
                           "mesh: auto: none of %lld layouts fits %.1f GiB",
                           (long long)h->search.candidates,
                           h->request.max_memory / 1073741824.0);
    else
        code = status_fail(ERR_FIT, __FILE__, __LINE__,
                           "mesh: auto: no layout of %d ranks divides this "
                           "model, its batch and its numerics grid and agrees "
                           "with what is set", h->request.ranks);
    return status_hint(code, "lockstep search prints every layout, and why it "
                             "is none");
}

static void tell(const struct found_layouts *h, const struct auto_mesh *request,
                 bool preset)
{
    const struct candidate *c = &h->search.found[h->kept[0]];
    char text[160], schedule[48];

    snprintf(schedule, sizeof schedule, "%s%s",
             c->layout.pipe > 1 ? ", " : "",
             c->layout.pipe > 1 ? c->layout.schedule : "");
    fprintf(stderr, "mesh      auto: %d rank%s as %s%s: %.4g s a step by %s, "
                    "the best of %lld layouts in %.1f s\n", request->ranks,
            request->ranks > 1 ? "s" : "",
            layout_text(&c->layout, text, sizeof text), schedule,
            c->prediction.step_s, h->forecast.machine.name,
            (long long)h->search.candidates, h->seconds);
    if (preset)
        fprintf(stderr, "notice    no profile of this machine: mesh: auto took "
                        "the preset cpu; lockstep calibrate --out "
                        "machine.json measures it, machine: machine.json "
                        "names it\n");
}

/* The machine of the request, of the run, or the preset with this machine's
 * cores. A machine is copied shallowly: its owner frees it. */
static status open_machine(const struct auto_mesh *request,
                           struct machine *machine, bool *preset, bool *owned)
{
    const struct options *o = &request->set->values;
    bool there;

    *preset = *owned = false;
    if (request->machine != NULL) {
        *machine = *request->machine;
        return OK;
    }
    *owned = true;
    TRY(run_machine_open(machine, o, &there));
    if (there) return OK;
    *preset = true;
    TRY(machine_open(machine, &(struct machine_choice){.what = "cpu"}));
    machine->value[M_DEVICES] = (double)sysconf(_SC_NPROCESSORS_ONLN);
    return OK;
}

static status hunt(struct found_layouts *h, const struct auto_mesh *request)
{
    struct options_set *set = request->set;
    const double memory = set->values.train.memory;
    struct search_fixed fixed;
    bool preset, owned;
    status result;

    h->forecast.set = *set;
    h->forecast.ranks = request->ranks;
    h->forecast.nodes = request->nodes;
    h->forecast.max_memory = request->max_memory > 0
                                 ? request->max_memory
                                 : memory * 1073741824.0;
    TRY(open_machine(request, &h->forecast.machine, &preset, &owned));
    /* The search plans with meshes of its own. */
    TRY_GOTO(done, result, options_assign(&h->forecast.set,
                                          "mesh.layout=chosen",
                                          ORIGIN_SEARCH));
    if (is_open(&h->forecast.set, "mesh.layers"))
        TRY_GOTO(done, result, options_assign(&h->forecast.set,
                                              "mesh.layers=", ORIGIN_SEARCH));
    h->fixed = &fixed;
    TRY_GOTO(done, result, fix(&fixed, &h->forecast.set));
    TRY_GOTO(done, result, forecast_model(&h->forecast));
    TRY_GOTO(done, result, found_run(h));
    if (h->kept_count == 0) {
        result = none_found(h);
        goto done;
    }
    TRY_GOTO(done, result, take(&h->forecast.set, &fixed,
                                &h->search.found[h->kept[0]].layout,
                                &h->forecast.shape));
    if (!request->quiet) tell(h, request, preset);
done:
    if (owned) machine_free(&h->forecast.machine);
    return result;
}

status auto_mesh_choose(const struct auto_mesh *request)
{
    struct found_layouts h = {.top = TOP, .grid_stays = true};
    status result;

    if (!is_asked(&request->set->values)) return OK;
    result = hunt(&h, request);
    *request->set = h.forecast.set; /* its arena may have grown */
    found_free(&h);
    return result;
}

/* ---- among processes ---- */

/* "mesh.tensor=2\nzero=fsdp\n": what search set. */
static status describe(const struct options_set *set, struct text *out)
{
    struct text value = {0};
    status result = OK;

    for (int i = 0; i < options_count() && result == OK; i++) {
        const char *name = option_name(i);

        if (options_origin(set, name) != ORIGIN_SEARCH) continue;
        value.length = 0;
        result = options_get_text(set, name, &value);
        if (result == OK)
            result = text_printf(out, "%s=%.*s\n", name,
                                 (int)value.length, value.bytes);
    }
    text_free(&value);
    return result;
}

static status follow(struct options_set *set, char *lines)
{
    char *rest = lines, *line;

    while ((line = strsep(&rest, "\n")) != NULL)
        if (line[0] != 0) TRY(options_assign(set, line, ORIGIN_SEARCH));
    return OK;
}

static status share(struct options_set *set, struct group *world,
                    struct text *lines)
{
    const bool leads = world->rank == 0;
    int64_t length = (int64_t)lines->length;
    void *room = NULL;
    status result;

    TRY(comm_broadcast(world, tensor_1d(&length, DTYPE_I64, 1), 0));
    TRY(memory_take((size_t)length + 1, 1, &room));
    if (leads) memcpy(room, lines->bytes, (size_t)length);
    result = comm_broadcast(world, tensor_1d(room, DTYPE_U8, length), 0);
    ((char *)room)[length] = 0;
    if (result == OK && !leads) result = follow(set, room);
    memory_free(room);
    return result;
}

status auto_mesh_agree(struct options_set *set, struct group *world)
{
    struct text lines = {0};
    status result = OK;

    if (!is_asked(&set->values)) return OK;
    TRY(same_options(world, set));
    if (world->rank == 0) {
        result = auto_mesh_choose(&(struct auto_mesh){
            .set = set, .ranks = world->size, .nodes = launch_is_own()});
        if (result == OK) result = describe(set, &lines);
    }
    TRY_GOTO(done, result, comm_agree(world, result));
    result = share(set, world, &lines);
done:
    text_free(&lines);
    return result;
}
