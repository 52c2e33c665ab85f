/* SPDX-License-Identifier: Apache-2.0 */
/* program.c - building the flat list of steps that one stage computes. */
#include "mesh/group.h"
#include "nn/program.h"

#include <string.h>

void program_init(struct program *program, enum program_mode mode,
                  enum dtype dtype, const struct grid *grid)
{
    *program = (struct program){
        .mode = mode, .dtype = dtype, .block = -1,
        .layout = {.grid = *grid, .mesh = mesh_alone(), .method.exchange = 1},
        .size.context_chunks = 1, .slice.entry = -1, .slice.exit = -1,
        .caches.texts = 1};
}

void program_free(struct program *program)
{
    memory_free(program->steps);
    memory_free(program->slots);
    memory_free(program->uses);
    param_table_free(&program->params);
    *program = (struct program){0};
}

void program_enter_block(struct program *p, int block)
{
    p->block = block;
}

/* Room for one more item. */
static status grow(void **items, int count, int *capacity, size_t bytes)
{
    if (count < *capacity) return OK;
    const int larger = *capacity ? 2 * *capacity : 64;

    TRY(memory_grow(items, (size_t)larger, bytes));
    *capacity = larger;
    return OK;
}

/* Keeps the first error; later calls do nothing. */
static bool failed(struct program *p, status result)
{
    if (p->error == OK) p->error = result;
    return p->error != OK;
}

int program_add_step(struct program *p, const struct layer *layer, slot input)
{
    void *items = p->steps;

    if (failed(p, grow(&items, p->step_count, &p->step_capacity,
                       sizeof *p->steps)))
        return -1;
    p->steps = items;
    p->steps[p->step_count] = (struct step){
        .layer = layer, .index = p->step_count, .block = p->block,
        .input = input, .second = -1, .left = -1, .output = -1, .aux = -1,
        .source = -1, .result = -1,
        .named = -1, .each = 1};
    for (int i = 0; i < STEP_PARAMS_MAX; i++)
        p->steps[p->step_count].param[i] = p->steps[p->step_count].use[i] = -1;
    return p->step_count++;
}

void program_swap(struct program *p, int first, int middle, int last)
{
    for (; first < middle && middle < last; first++, middle++) {
        const struct step next = p->steps[middle];

        memmove(&p->steps[first + 1], &p->steps[first],
                (size_t)(middle - first) * sizeof next);
        p->steps[first] = next;
    }
    for (int i = 0; i < p->step_count; i++) p->steps[i].index = i;
}

slot program_add_slot(struct program *p, const char *name, int64_t width,
                      bool statistic)
{
    void *items = p->slots;

    if (failed(p, grow(&items, p->slot_count, &p->slot_capacity,
                       sizeof *p->slots)))
        return -1;
    p->slots = items;
    p->slots[p->slot_count] = (struct slot_info){
        .name = name, .width = width, .block = p->block,
        .local = -1, .dtype = statistic ? program_real(p) : p->dtype,
        .gradient_dtype = p->dtype,
        .layout = {.tokens = 1u << AXIS_DATA | 1u << AXIS_SHARD |
                             1u << AXIS_CONTEXT}};
    return p->slot_count++;
}

/* A sum that tensor ranks have yet to add up is real. */
static void choose_type(struct program *p, slot which)
{
    struct slot_info *info = &p->slots[which];

    if (info->layout.partial >> AXIS_TENSOR & 1 && info->dtype == p->dtype &&
        program_tensor_ranks(p) > 1)
        info->dtype = program_real(p);
}

void program_lay_as(struct program *p, slot which, slot other)
{
    p->slots[which].layout = p->slots[other].layout;
    choose_type(p, which);
}

void program_set_partial(struct program *p, slot which, enum axis axis)
{
    p->slots[which].layout.partial |= 1u << axis;
    choose_type(p, which);
}

void program_set_complete(struct program *p, slot which)
{
    p->slots[which].layout.partial = 0;
    p->slots[which].dtype = p->dtype;
}

/* Does the tensor axis cut the tokens of what the step writes? */
static bool writes_part(const struct program *p, const struct step *step)
{
    return step->output >= 0 &&
           (p->slots[step->output].layout.tokens >> AXIS_TENSOR & 1);
}

void program_add_use(struct program *p, int step, int which, int param)
{
    void *items = p->uses;

    if (failed(p, grow(&items, p->use_count, &p->use_capacity,
                       sizeof *p->uses)))
        return;
    p->uses = items;
    p->uses[p->use_count] = (struct use_info){
        .param = param, .number = p->params.items[param].uses++,
        .vector = p->params.items[param].spec.vector,
        .sources = p->params.items[param].spec.spread > 0
                       ? p->layout.mesh.size[AXIS_EXPERT] : 1,
        .contexts = p->params.items[param].spec.folded >> AXIS_CONTEXT & 1
                        ? p->layout.mesh.size[AXIS_CONTEXT] : 1,
        .local = p->params.items[param].spec.vector &&
                 writes_part(p, &p->steps[step])};
    p->steps[step].param[which] = param;
    p->steps[step].use[which] = p->use_count++;
}

static bool is_alone(const struct program *p)
{
    for (int axis = 0; axis < AXIS_COUNT; axis++)
        if (p->layout.mesh.size[axis] != 1) return false;
    return p->mode == PROGRAM_TRAIN;
}

/* The head's gradient is the parameter's own then. */
void program_name_rows(struct program *p)
{
    const int64_t tokens = p->size.batch * p->size.length;

    if (p->later.depth > 0) return; /* there are more uses */
    for (int i = 0; i < p->use_count && is_alone(p); i++) {
        struct use_info *lookup = &p->uses[i];

        if (!lookup->scatter || lookup->number != 0 ||
            2 * tokens > p->params.items[lookup->param].rows)
            continue;
        for (int j = 0; j < p->use_count; j++) {
            if (p->uses[j].param != lookup->param || i == j) continue;
            p->uses[j].number = 0;
            lookup->number = 1;
            lookup->rows = tokens;
        }
    }
}

void program_add_param(struct program *p, int step, int which,
                       const struct param_spec *spec)
{
    struct param_spec cut = *spec;
    int64_t held[2];
    int index;

    if (spec->split_rows != AXIS_EXPERT && spec->split_cols != AXIS_EXPERT)
        cut.leaves = p->layout.grid.tensor;
    if (failed(p, layout_check(&cut, &p->layout.mesh))) return;
    layout_local_shape(&cut, &p->layout.mesh, &p->layout.place, &held[0],
                       &held[1]);
    if (failed(p, param_add(&p->params, spec->name, p->block, &cut, held,
                            &index)))
        return;
    p->params.items[index].dtype = p->dtype;
    program_add_use(p, step, which, index);
}

int64_t program_sequence(const struct program *program)
{
    return program->size.length * program->layout.mesh.size[AXIS_CONTEXT];
}

/* Where the first or second span of a context rank in a sequence begins. */
static int64_t program_span(const struct program *program, int at, int second)
{
    const int last = 2 * program->layout.mesh.size[AXIS_CONTEXT] - 1;

    return (second ? last - at : at) * (program->size.length / 2);
}

int64_t program_position(const struct program *program, int64_t token)
{
    return program_position_at(program, program->layout.place.at[AXIS_CONTEXT],
                               token);
}

int64_t program_position_at(const struct program *program, int context,
                            int64_t token)
{
    const int64_t half = program->size.length / 2;
    const int second = token >= half;

    if (program->layout.mesh.size[AXIS_CONTEXT] == 1) return token;
    if (program->layout.method.striped)
        return token * program->layout.mesh.size[AXIS_CONTEXT] + context;
    return program_span(program, context, second) + token - second * half;
}

struct step_cost program_cost(const struct program *program)
{
    struct step_cost sum = {0};

    for (int i = 0; i < program->step_count; i++) {
        const struct step *step = &program->steps[i];
        const struct step_cost cost = step->layer->cost(step, program);

        sum.flops += cost.flops;
        sum.bytes_moved += cost.bytes_moved;
        sum.bytes_sent += cost.bytes_sent;
    }
    return sum;
}

double program_training_flops(const struct program *program)
{
    double sum = 0;

    for (int i = 0; i < program->step_count; i++) {
        const struct step *step = &program->steps[i];
        const double flops = step->layer->cost(step, program).flops;
        bool made = step->param[0] < 0;

        for (int j = 0; j < step_uses(step); j += STEP_PARAMS_MAX)
            made |= step->param[0] >= 0 &&
                    param_has_gradient(
                        &program->params.items[step_use(step, j).param]);

        sum += (made ? 3 : 2) * flops;
    }
    return sum;
}

size_t program_scratch_bytes(const struct program *program)
{
    size_t most = 0;

    for (int i = 0; i < program->step_count; i++) {
        const struct step *step = &program->steps[i];

        if (step->layer->scratch == NULL) continue;
        const size_t bytes = step->layer->scratch(step, program);

        if (bytes > most) most = bytes;
    }
    return most;
}

size_t program_message_bytes(const struct program *program,
                             const struct group *tensor)
{
    size_t most = 0;

    for (int i = 0; i < program->step_count; i++) {
        const struct step *step = &program->steps[i];

        if (step->layer->messages == NULL) continue;
        const size_t bytes = step->layer->messages(step, program, tensor);

        if (bytes > most) most = bytes;
    }
    return most;
}

int program_tensor_ranks(const struct program *program)
{
    return program->layout.mesh.size[AXIS_TENSOR];
}

static int leaves_before(const struct program *p, int rank)
{
    return p->layout.grid.tensor * rank / program_tensor_ranks(p);
}

struct layout_span program_leaves(const struct program *program)
{
    const int rank = program->layout.place.at[AXIS_TENSOR];
    const int first = leaves_before(program, rank);

    return (struct layout_span){first,
                                leaves_before(program, rank + 1) - first};
}

struct layout_span program_part(const struct program *program, int rank)
{
    const int64_t leaves = program->layout.grid.tensor;
    const int64_t length = program->size.length / program->size.context_chunks;
    const int64_t first = length * leaves_before(program, rank) / leaves;

    return (struct layout_span){
        first, length * leaves_before(program, rank + 1) / leaves - first};
}

int64_t program_rows(const struct program *program)
{
    return program->size.sequences * program->size.context_chunks;
}

int64_t program_slot_rows(const struct program *program, slot which)
{
    const struct slot_info *info = &program->slots[which];
    const int64_t each = info->bound > 0 ? info->bound : 1;

    if (!(info->layout.tokens >> AXIS_TENSOR & 1))
        return program->size.tokens * each;
    return program_rows(program) * each *
           program_part(program, program->layout.place.at[AXIS_TENSOR]).count;
}

/* Leaves of this rank that are several subtrees have numbers among those of
 * all ranks. */
static void number_leaves(const struct program *p, struct cut *cut)
{
    const int ranks = mesh_batch_ranks(&p->layout.mesh);
    const int all = ranks * p->layout.grid.data;

    if (grid_is_cut(all, ranks)) return;
    cut->first_leaf = mesh_batch_rank(&p->layout.mesh, &p->layout.place) *
                      p->layout.grid.data;
    cut->all_leaves = all;
}

struct cut program_cut(const struct program *program, bool head)
{
    struct cut cut = {.data_leaves = program->layout.grid.data,
                      .sequences_per_leaf =
                          program->size.batch / program->layout.grid.data,
                      .length = program->size.length,
                      .context_chunks = program->size.context_chunks,
                      .shared = program->layout.mesh.size[AXIS_CONTEXT] > 1 ||
                                program->precision.recipe.straight ||
                                program->sums.integer,
                      .micro_batch = program->size.sequences,
                      .micro_batches =
                          program->size.batch / program->size.sequences};

    number_leaves(program, &cut);
    if (head && program->size.logits_chunk < program->size.tokens) {
        cut.addend_sequences =
            program->size.logits_chunk / program->size.length;
        if (cut.addend_sequences == 0) {
            cut.addend_sequences = 1;
            cut.addend_tokens = program->size.logits_chunk;
        }
    }
    return cut;
}

/* A policy may name nothing, the whole block, what is made of latents, or a
 * kind of layer. */
enum { POLICY_NONE, POLICY_BLOCK, POLICY_LATENT, POLICY_KINDS };
static const char *const policies[] = {"none", "block", "latent", "norm",
                                       "activation", "attention", "linear"};
static const enum layer_kind policy_kinds[] = {
    [POLICY_KINDS] = LAYER_NORM, LAYER_ACTIVATION, LAYER_ATTENTION,
    LAYER_LINEAR};

static void drop_kind(struct program *p, enum layer_kind kind)
{
    for (int i = 0; i < p->step_count; i++) {
        const struct step *step = &p->steps[i];

        if (step->block < 0 || step->layer->in_place || step->output < 0 ||
            step->layer->kind != kind)
            continue;
        p->slots[step->output].dropped = true;
        if (step->aux >= 0) p->slots[step->aux].dropped = true;
    }
}

static void drop_latents(struct program *p)
{
    for (int i = 0; i < p->slot_count; i++)
        if (p->slots[i].latent) p->slots[i].dropped = true;
}

/* The last step that reads a slot, and the last of another block than that
 * one's; -1: none. */
struct last_readers { int step, other; };

static void note_reader(const struct program *p, int at, slot which,
                        struct last_readers *readers)
{
    if (which < 0) return;
    struct last_readers *r = &readers[which];

    if (r->step >= 0 && p->steps[r->step].block != p->steps[at].block)
        r->other = r->step;
    r->step = at;
}

/* Whether a later step of another block reads what the step writes. */
static bool leaves_block(const struct program *p, const struct step *step,
                         const struct last_readers *readers)
{
    if (step->output < 0) return true;
    const struct last_readers *r = &readers[step->output];

    if (r->step >= 0 && p->steps[r->step].block != step->block)
        return r->step > step->index;
    return r->other > step->index;
}

/* A block keeps nothing but what enters it: every slot that only its own
 * steps read. */
static status drop_blocks(struct program *p)
{
    struct last_readers *readers;
    void *memory = NULL;

    TRY(memory_take((size_t)p->slot_count + 1, sizeof *readers, &memory));
    readers = memory;
    for (int i = 0; i < p->slot_count; i++)
        readers[i] = (struct last_readers){-1, -1};
    for (int i = 0; i < p->step_count; i++) {
        note_reader(p, i, p->steps[i].input, readers);
        note_reader(p, i, p->steps[i].second, readers);
        note_reader(p, i, p->steps[i].left, readers);
    }
    for (int i = 0; i < p->step_count; i++) {
        const struct step *step = &p->steps[i];

        if (step->block < 0 || leaves_block(p, step, readers)) continue;
        p->slots[step->output].dropped = true;
        if (step->aux >= 0) p->slots[step->aux].dropped = true;
    }
    memory_free(memory);
    return OK;
}

/* A slot that is made of codes is not what F wrote, so nothing else is made of
 * it again. */
static void keep_after_codes(struct program *p)
{
    for (int i = 0; i < p->step_count; i++) {
        const struct step *step = &p->steps[i];

        if (step->input < 0 || step->output < 0 ||
            !p->slots[step->input].coded)
            continue;
        p->slots[step->output].coded = p->slots[step->output].again;
        p->slots[step->output].dropped = p->slots[step->output].again;
        if (step->aux >= 0)
            p->slots[step->aux].dropped = p->slots[step->aux].again;
    }
}

static status find_policy(const char *word, int *found)
{
    const int count = (int)(sizeof policies / sizeof *policies);

    if (strcmp(word, "auto") == 0)
        FAIL(ERR_CONFIG, "train.recompute: auto chooses all of the list, so "
                         "it stands alone; leave it or the other words out");
    for (*found = 0; *found < count; (*found)++)
        if (strcmp(word, policies[*found]) == 0) return OK;
    const char *near = text_nearest(word, policies, count);

    FAIL(ERR_CONFIG, "train.recompute: %s is not none, block, norm, "
                     "activation, attention, linear or latent%s%s",
         word, near ? "; nearest: " : "", near ? near : "");
}

status program_check_recompute(const char *const *policy, int count)
{
    int found;

    if (count == 1 && strcmp(policy[0], "auto") == 0) return OK;
    for (int i = 0; i < count; i++) TRY(find_policy(policy[i], &found));
    return OK;
}

status program_recompute(struct program *program, const char *const *policy,
                         int count)
{
    for (int i = 0; i < program->slot_count; i++)
        program->slots[i].dropped = program->slots[i].again;
    for (int i = 0; i < count; i++) {
        int found;

        TRY(find_policy(policy[i], &found));
        if (found == POLICY_BLOCK) TRY(drop_blocks(program));
        if (found == POLICY_LATENT) drop_latents(program);
        if (found >= POLICY_KINDS) drop_kind(program, policy_kinds[found]);
    }
    keep_after_codes(program);
    return OK;
}

static status print_axes(struct text *out, const char *word, unsigned mask)
{
    bool first = true;

    if (mask == 0) return OK;
    TRY(text_printf(out, " %s/", word));
    for (int axis = AXIS_PIPE; axis < AXIS_COUNT; axis++) {
        if (!(mask & (1u << axis))) continue;
        TRY(text_printf(out, "%s%s", first ? "" : "+",
                        axis_name((enum axis)axis)));
        first = false;
    }
    return OK;
}

status program_print(const struct program *program, struct text *out)
{
    TRY(text_printf(out, "%d steps, %d slots of [%lld tokens, width], %d "
                         "parameters, %d gradient uses\n",
                    program->step_count, program->slot_count,
                    (long long)program->size.tokens, program->params.count,
                    program->use_count));
    for (int i = 0; i < program->step_count; i++) {
        const struct step *step = &program->steps[i];
        const struct step_cost cost = step->layer->cost(step, program);

        TRY(text_printf(out, "%4d  %-14s", i, step->layer->name));
        if (step->output >= 0) {
            const struct slot_info *info = &program->slots[step->output];

            TRY(text_printf(out, " s%d", step->output));
            TRY(text_printf(out, " [%lld]%s", (long long)info->width,
                            info->dropped ? " dropped" : ""));
            TRY(print_axes(out, "tokens", info->layout.tokens));
            TRY(print_axes(out, "width", info->layout.width));
            TRY(print_axes(out, "partial", info->layout.partial));
        }
        if (step->input >= 0) TRY(text_printf(out, " <- s%d", step->input));
        if (step->second >= 0) TRY(text_printf(out, ", s%d", step->second));
        if (step->left >= 0) TRY(text_printf(out, " + s%d", step->left));
        for (int j = 0; j < STEP_PARAMS_MAX; j++)
            if (step->param[j] >= 0)
                TRY(text_printf(
                    out, "  %s", program->params.items[step->param[j]].name));
        if (step->each > 1) TRY(text_printf(out, " x %d", step->each));
        TRY(text_printf(out, "  %.3f GFLOP, %.1f MB",
                        1e-9 * cost.flops,
                        1e-6 * cost.bytes_moved));
        if (cost.bytes_sent > 0)
            TRY(text_printf(out, ", %.3f MB sent",
                            1e-6 * cost.bytes_sent));
        TRY(text_append_string(out, "\n"));
    }
    return OK;
}
