/* SPDX-License-Identifier: Apache-2.0 */
/* gradient.c - gradients as trees over the leaves of the grid, or as sums of
 * integers. */
#include "nn/gradient_parts.h"

#include <math.h>
#include <string.h>

void gradients_free(struct gradients *g)
{
    memory_free(g->states);
    tied_rows_free(&g->named);
    *g = (struct gradients){0};
}

void gradients_reset(struct gradients *g)
{
    for (int i = 0; i < states_of(g); i++) {
        g->states[i].stack = (struct node_stack){0};
        g->states[i].begun = false;
    }
    g->read = false;
    tied_rows_reset(&g->named);
}

static struct tensor root_tensor(const struct gradients *g,
                                 const struct param *param)
{
    const enum dtype real = program_real(g->program);

    return param_shaped(
        param, (char *)g->root + param->gradient * dtype_bytes(real), real);
}

struct tensor gradient_first_root(const struct gradients *g, int use)
{
    return root_tensor(g, use_param(g, use));
}

/* Buffer b of a use, shaped as the parameter. */
static struct tensor buffer_tensor(const struct gradients *g, int use, int b)
{
    const struct param *param = use_param(g, use);
    const struct use_state *state = state_of(g, use);
    const int64_t offset = state->offset[b];
    struct tensor view = root_tensor(g, param);

    if (g->program->uses[use].rows > 0)
        view.shape[0] = use_rows(g, use);
    if (offset >= 0) view.data = partial(g, offset);
    else if (state->placed != NULL)
        view.data = state->placed;
    else
        view.data = (char *)view.data + b * gradient_root_stride(g, -1);
    return view;
}

int64_t gradient_root_stride(const struct gradients *g, int use)
{
    const int64_t real = dtype_bytes(program_real(g->program));

    if (g->roots.count == 1) return 0;
    return real * (use < 0 || g->states[use].offset[0] < 0
                       ? g->program->params.gradients
                       : buffer_room(g, use));
}

int gradient_leaves(const struct gradients *g)
{
    return g->program->sums.integer ? 0 : g->cut[0].all_leaves;
}

static struct tensor flat(struct tensor view)
{
    return tensor_1d(view.data, view.dtype, tensor_count(&view));
}

static struct tensor joined_rows(const struct gradients *g, int use)
{
    return tensor_2d(partial(g, g->states[use].joined),
                     program_real(g->program),
                     g->program->layout.grid.data * cut_contexts(&g->cut[0]),
                     use_param(g, use)->elements);
}

struct use_range gradients_all(const struct gradients *g)
{
    return (struct use_range){0, g->program->use_count};
}

/* Elements before the rows of the first vector from `use` on: they lie in
 * the order of the uses. */
static int64_t joined_before(const struct gradients *g, int use)
{
    if (g->joined_elements == 0) return 0;
    for (int i = use; i < g->program->use_count; i++)
        if (g->states[i].joined >= 0)
            return g->states[i].joined - g->joined_first;
    return g->joined_elements;
}

int64_t gradients_joined(const struct gradients *g, struct use_range range)
{
    return joined_before(g, range.end) - joined_before(g, range.first);
}

static struct comm_call join_call(const struct gradients *g,
                                  struct use_range range)
{
    const int64_t first = g->joined_first + joined_before(g, range.first);
    const struct tensor all = tensor_1d(
        g->partials == NULL ? NULL : partial(g, first),
        program_real(g->program), gradients_joined(g, range));

    return (struct comm_call){.kind = COMM_ALL_REDUCE,
                              .algorithm = ALGORITHM_ORDERED,
                              .reduction = REDUCE_SUM, .out = all, .in = all};
}

size_t gradients_message_bytes(const struct gradients *g,
                               struct use_range range,
                               const struct group *tensor)
{
    const struct comm_call call = join_call(g, range);

    return gradients_joined(g, range) == 0 ? 0
                                           : comm_scratch_bytes(tensor, &call);
}

/* The sum of a use, flat: integers, and numbers once they were read. */
static struct tensor integer_sum(const struct gradients *g, int use)
{
    const struct param *param = use_param(g, use);
    const struct use_state *state = &g->states[use];
    const enum dtype dtype = gradients_dtype(g);
    void *data = state->sum >= 0        ? partial(g, state->sum)
                 : state->placed != NULL ? state->placed
                                         : (char *)g->root + param->gradient *
                                                       dtype_bytes(dtype);

    return tensor_1d(data, dtype, g->program->uses[use].rows > 0
                                      ? use_rows(g, use) * param->cols
                                      : param->elements);
}

struct tensor gradient_root(const struct gradients *g, int use)
{
    return g->program->sums.integer ? integer_sum(g, use)
                                    : flat(buffer_tensor(g, use, 0));
}

status gradients_merge(const struct gradients *g, struct tensor left,
                       struct tensor right)
{
    if (left.dtype != DTYPE_I64)
        return g->kernels->add(g->stream, left, left, right);
    return g->kernels->fixed_add(g->stream, left, right,
                                 (struct fixed){.scale = 1});
}

static struct fixed fixed_form(const struct gradients *g)
{
    const struct integer_sums *sums = &g->program->sums;

    return (struct fixed){.scale = ldexp(1 / g->factor, sums->exponent),
                          .spare = sums->spare};
}

/* A leaf joins the sum of its use. */
static status integer_add(struct gradients *g, int use, struct tensor leaf)
{
    struct fixed fixed = fixed_form(g);

    fixed.first = !g->states[use].begun;
    g->states[use].begun = true;
    return g->kernels->fixed_add(g->stream, integer_sum(g, use), flat(leaf),
                                 fixed);
}

static status read_sum(const struct gradients *g, void *data, int64_t count)
{
    return g->kernels->fixed_read(
        g->stream, tensor_1d(data, program_real(g->program), count),
        tensor_1d(data, DTYPE_I64, count), fixed_form(g));
}

status gradients_read(struct gradients *g, int64_t elements)
{
    if (!g->program->sums.integer || g->read) return OK;
    TRY(read_sum(g, g->root, elements));
    for (int i = 0; i < g->program->use_count; i++) {
        const struct tensor sum = integer_sum(g, i);

        if (g->states[i].sum >= 0)
            TRY(read_sum(g, sum.data, tensor_count(&sum)));
    }
    g->read = true;
    return OK;
}

bool gradient_made(const struct program *program, int use)
{
    const struct use_info *info = &program->uses[use];

    return param_has_gradient(&program->params.items[info->param]);
}

int gradient_taker(const struct program *program, int use)
{
    const struct use_info *info = &program->uses[use];
    int first = 0, second = 0;

    if (info->number == 0) return -1;
    while (program->uses[first].param != info->param ||
           program->uses[first].number > 0)
        first++;
    if (info->number == 1 || !program->uses[first].enters) return first;
    while (program->uses[second].param != info->param ||
           program->uses[second].number != 1)
        second++;
    return second;
}

void gradients_close(const struct gradients *g)
{
    for (int i = 0; i < g->program->use_count; i++) {
        const struct node_stack *stack = &g->states[i].stack;

        if (!gradient_made(g->program, i)) continue;
        CHECK(stack->count == g->roots.count && !stack->open);
    }
}

static const struct cut *use_cut(const struct gradients *g, int use)
{
    return &g->cut[g->program->uses[use].head];
}

/* A part of a data leaf that has several context leaves. */
static bool fills_contexts(const struct cut *cut, const struct addend *addend)
{
    return cut_contexts(cut) > 1 && !(addend->begins && addend->completes);
}

int gradient_sums(const struct gradients *g, int use,
                  const struct addend *addend)
{
    const struct cut *cut = use_cut(g, use);

    return fills_contexts(cut, addend) && !addend->cut ? cut_contexts(cut) : 1;
}

/* Where context leaf `context` of the open data leaf is summed. */
static struct tensor context_buffer(const struct gradients *g, int use,
                                    int context)
{
    const struct use_state *state = state_of(g, use);
    struct tensor view = buffer_tensor(g, use, state->buffer);

    if (context == 0) return view;
    CHECK(state->unfinished >= 0);
    view.data = partial(g, state->unfinished +
                               (context - 1) * buffer_room(g, use));
    return view;
}

/* Where the leaf of an addend goes. */
static void leaf_begin(struct gradients *g, int use,
                       const struct addend *addend, bool takes)
{
    struct use_state *state = state_of(g, use);

    state->buffer = 0;
    state->left = false;
    if (!g->program->sums.integer)
        node_begin(&state->stack, use_cut(g, use), addend, takes,
                   &state->buffer, &state->left);
}

void gradient_begin(struct gradients *g, int use, const struct addend *addend,
                    int sum, struct gradient_target *out)
{
    struct use_state *state = state_of(g, use);
    const struct cut *cut = use_cut(g, use);
    const bool fills = fills_contexts(cut, addend);
    const int context = addend->cut ? addend->context : sum;

    if (sum == 0)
        leaf_begin(g, use, addend, takes_left(g, use) && !fills);
    state->addend = *addend;
    *out = (struct gradient_target){
        .c = context_buffer(g, use, fills ? context : 0),
        .left = state->left, .continues = !addend->fresh,
        .only = fills ? context + 1 : 0};
}

/* The tree over the context leaves of a data leaf that came in several
 * addends. */
static status contexts_fold(struct gradients *g, int use)
{
    const int contexts = cut_contexts(use_cut(g, use));

    for (int apart = 1; apart < contexts; apart *= 2)
        for (int i = 0; i + apart < contexts; i += 2 * apart) {
            const struct tensor a = flat(context_buffer(g, use, i));

            TRY(g->kernels->add(
                g->stream, a, a, flat(context_buffer(g, use, i + apart))));
        }
    return OK;
}

static struct comm_call leaf_sum(struct tensor leaf)
{
    return (struct comm_call){.kind = COMM_ALL_REDUCE,
                              .algorithm = ALGORITHM_ORDERED,
                              .reduction = REDUCE_SUM, .out = leaf,
                              .in = leaf};
}

/* Adds what the other ranks of the context group have of a finished leaf. */
static status contexts_join(struct gradients *g, struct tensor leaf)
{
    const struct comm_call call = leaf_sum(leaf);

    return g->context == NULL ? OK : comm_run(g->context, &call);
}

size_t gradient_join_bytes(const struct gradients *g,
                           const struct group *context)
{
    size_t most = 0;

    for (int i = 0; context != NULL && i < g->program->use_count; i++) {
        const int64_t leaves =
            g->program->uses[i].local ? g->program->layout.grid.data : 1;
        const struct comm_call call =
            leaf_sum(tensor_1d(NULL, program_real(g->program),
                               leaves * use_param(g, i)->elements));
        const size_t bytes = comm_scratch_bytes(context, &call);

        if (gradient_made(g->program, i) && bytes > most) most = bytes;
    }
    return most;
}

/* A whole leaf joins the sum. */
static status leaf_end(struct gradients *g, int use)
{
    struct use_state *state = state_of(g, use);

    state->stack.open = !state->addend.completes;
    if (state->stack.open) return OK;
    state->stack.count = 1;
    state->stack.node[0].leaves += state->addend.leaves;
    return integer_add(g, use, buffer_tensor(g, use, 0));
}

/* The addend is in the tree: finished siblings meet. */
static status addend_end(struct gradients *g, int use)
{
    struct use_state *state = state_of(g, use);
    int left, right;

    if (g->program->sums.integer) return leaf_end(g, use);
    node_end(&state->stack, &state->addend, state->left);
    while (node_merge(&state->stack, use_cut(g, use), &left, &right)) {
        const struct tensor a = flat(buffer_tensor(g, use, left));

        TRY(g->kernels->add(g->stream, a, a,
                            flat(buffer_tensor(g, use, right))));
    }
    return OK;
}

/* Whether the leaves of the source of now have met in one root. */
static bool is_complete(const struct gradients *g, int use)
{
    const struct node_stack *stack = &state_of(g, use)->stack;

    return stack->count == 1 && !stack->open &&
           stack->node[0].leaves == use_cut(g, use)->data_leaves;
}

static struct tensor source_root(struct gradients *g, int use, int source)
{
    g->source = source;
    return flat(buffer_tensor(g, use, 0));
}

struct tensor gradient_source_root(struct gradients *g, int use, int source)
{
    const int now = g->source;
    const struct tensor root = source_root(g, use, source);

    g->source = now;
    return root;
}

status gradient_fold_sources(struct gradients *g, int use)
{
    const int sources = g->program->uses[use].sources, now = g->source;
    const bool integer = g->program->sums.integer; /* in one sum */

    for (int apart = 1; apart < sources && !integer; apart *= 2)
        for (int i = 0; i + apart < sources; i += 2 * apart) {
            const struct tensor b = source_root(g, use, i + apart);
            const struct tensor a = source_root(g, use, i);

            TRY(g->kernels->add(g->stream, a, a, b));
        }
    for (g->source = 1; g->source < sources; g->source++)
        state_of(g, use)->stack = (struct node_stack){0};
    g->source = now;
    return OK;
}

/* Once each source is complete; where another rank has half of each, later. */
static status sources_end(struct gradients *g, int use)
{
    const int sources = g->program->uses[use].sources, now = g->source;
    bool complete = sources > 1 && !g->halved;

    for (g->source = 0; g->source < sources && complete; g->source++)
        complete = is_complete(g, use);
    g->source = now;
    return complete ? gradient_fold_sources(g, use) : OK;
}

/* The leaf that a context rank's tokens have filled. */
static struct tensor leaf_of(struct gradients *g, int use, int context)
{
    g->of = context;
    return flat(buffer_tensor(g, use, state_of(g, use)->buffer));
}

/* Like leaf_of, where this rank has summed the leaves of all context ranks, one
 * after the other: once the last one's is there, they are added. */
static status ranks_end(struct gradients *g, int use)
{
    const int contexts = g->program->uses[use].contexts, now = g->of;

    if (!state_of(g, use)->addend.completes) return addend_end(g, use);
    if (now + 1 < contexts) return OK;
    for (int apart = 1; apart < contexts; apart *= 2)
        for (int i = 0; i + apart < contexts; i += 2 * apart) {
            const struct tensor b = leaf_of(g, use, i + apart);
            const struct tensor a = leaf_of(g, use, i);

            TRY(g->kernels->add(g->stream, a, a, b));
        }
    for (g->of = 1; g->of < contexts; g->of++)
        state_of(g, use)->stack = (struct node_stack){0};
    g->of = 0;
    TRY(gradient_leaf(g, use,
                      buffer_tensor(g, use, state_of(g, use)->buffer)));
    TRY(addend_end(g, use));
    TRY(sources_end(g, use));
    g->of = now;
    return OK;
}

status gradient_end(struct gradients *g, int use, int sum)
{
    struct use_state *state = state_of(g, use);
    const struct addend *addend = &state->addend;

    if (sum + 1 < gradient_sums(g, use, addend)) return OK;
    if (addend->completes && fills_contexts(use_cut(g, use), addend))
        TRY(contexts_fold(g, use));
    if (g->program->uses[use].contexts > 1) return ranks_end(g, use);
    if (addend->completes) {
        TRY(contexts_join(g, flat(buffer_tensor(g, use, state->buffer))));
        TRY(gradient_leaf(g, use, buffer_tensor(g, use, state->buffer)));
    }
    TRY(addend_end(g, use));
    return sources_end(g, use);
}

void gradients_from(struct gradients *g, int source, int context)
{
    CHECK(source < g->sources && context < g->contexts);
    g->source = source;
    g->of = context;
}

void gradient_vector_begin(struct gradients *g, int use,
                           const struct addend *addend, void *scratch,
                           struct tensor *sums, bool *continues)
{
    struct use_state *state = state_of(g, use);
    const struct param *param = use_param(g, use);
    const struct program *p = g->program;
    const int64_t parts =
        p->uses[use].local ? program_leaves(p).count : p->layout.grid.tensor;
    const bool whole = addend->begins && addend->completes;
    void *data = whole ? scratch : partial(g, state->unfinished);

    CHECK(whole || state->unfinished >= 0);
    state->addend = *addend;
    *sums = tensor_2d(data, program_real(p),
                      addend->leaves * cut_contexts(&g->cut[0]) * parts,
                      param->elements);
    *continues = !addend->begins;
}

/* The tree over `parts` rows, into out. */
static status rows_fold(struct gradients *g, struct tensor out,
                        struct tensor rows, int64_t first, int64_t parts)
{
    return g->kernels->fold(g->stream,
                            tensor_1d(out.data, out.dtype, rows.shape[1]),
                            tensor_rows(rows, first, parts), 1, (int)parts);
}

/* out = the tree over parts, context leaves and leaves of sums. */
static status vector_fold(struct gradients *g, struct tensor out,
                          struct tensor sums, int leaves)
{
    const int contexts = cut_contexts(&g->cut[0]);
    const int parts = g->program->layout.grid.tensor;

    if (contexts == 1)
        return g->kernels->fold(g->stream, out, sums, leaves, parts);
    for (int i = 0; i < leaves * contexts; i++)
        TRY(rows_fold(g, tensor_rows(sums, i * parts, 1), sums, i * parts,
                      parts));
    sums.shape[0] = leaves * contexts;
    sums.stride[0] *= parts;
    return g->kernels->fold(g->stream, out, sums, leaves, contexts);
}

/* The parts of this rank of each context leaf of each leaf of the addend. */
static status keep_parts(struct gradients *g, int use, struct tensor sums)
{
    const struct addend *addend = &g->states[use].addend;
    const int contexts = cut_contexts(&g->cut[0]);
    const int64_t rows = addend->leaves * contexts;
    const int64_t parts = sums.shape[0] / rows;
    const struct tensor joined = joined_rows(g, use);

    for (int64_t i = 0; i < rows; i++)
        TRY(rows_fold(g, tensor_rows(joined,
                                     addend->first_leaf * contexts + i, 1),
                      sums, i * parts, parts));
    return OK;
}

status gradient_vector_end(struct gradients *g, int use, struct tensor sums)
{
    struct use_state *state = state_of(g, use);
    struct addend *addend = &state->addend;
    struct tensor c, right, node;

    if (!addend->completes) return OK;
    if (g->program->uses[use].local)
        return keep_parts(g, use, sums);
    addend->begins = true; /* the tree meets the leaf only now, and whole */
    leaf_begin(g, use, addend, takes_left(g, use));
    c = flat(buffer_tensor(g, use, state->buffer));
    right = tensor_1d(sums.data, sums.dtype, sums.shape[1]);
    node = state->left ? right : c;
    TRY(vector_fold(g, node, sums, addend->leaves));
    TRY(contexts_join(g, node));
    if (state->left) TRY(g->kernels->add(g->stream, c, c, right));
    return addend_end(g, use);
}

/* Each leaf is whole now but for the ranks of the context axis: one row a leaf
 * instead of one a context leaf, then those of the other ranks. */
static status join_contexts(struct gradients *g, int use)
{
    const int contexts = cut_contexts(&g->cut[0]);
    const int64_t leaves = g->program->layout.grid.data;
    const struct tensor joined = joined_rows(g, use);

    for (int64_t i = 0; i < leaves; i++)
        TRY(rows_fold(g, tensor_rows(joined, i, 1), joined, i * contexts,
                      contexts));
    return contexts_join(g, flat(tensor_rows(joined, 0, leaves)));
}

/* The leaves of each of this rank's subtrees, into its root. */
static status leaves_fold(struct gradients *g, int use)
{
    const struct tensor joined = joined_rows(g, use);

    for (int64_t i = 0;
         i < g->program->layout.grid.data && g->program->sums.integer; i++)
        TRY(integer_add(g, use, tensor_rows(joined, i, 1)));
    for (int i = 0; i < g->roots.count && !g->program->sums.integer; i++) {
        const int leaves = g->roots.node[i].leaves;

        TRY(g->kernels->fold(g->stream, flat(buffer_tensor(g, use, i)),
                             tensor_rows(joined, g->roots.node[i].first,
                                         leaves), leaves, 1));
    }
    return OK;
}

status gradients_join(struct gradients *g, struct use_range range,
                      struct group *tensor)
{
    const struct comm_call call = join_call(g, range);

    if (gradients_joined(g, range) == 0) return OK;
    CHECK(tensor != NULL);
    TRY(comm_run(tensor, &call));
    for (int i = range.first; i < range.end; i++) {
        if (!is_joined(g, i)) continue;
        TRY(join_contexts(g, i));
        TRY(leaves_fold(g, i));
        g->states[i].stack = g->roots;
    }
    return OK;
}
