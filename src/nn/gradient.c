/* SPDX-License-Identifier: Apache-2.0 */
/* gradient.c - gradients as trees over the leaves of the grid. */
#include "nn/gradient.h"

static const struct param *stream_param(const struct gradients *g, int stream)
{
    return &g->program->params.items[g->program->streams[stream].param];
}

static int64_t padded(int64_t elements)
{
    return (elements + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
}

/* Whether some leaf of the step lies in more than one piece. */
static bool leaves_are_cut(const struct cut *cut)
{
    for (int64_t i = 0; i < cut->micro_batches; i++) {
        struct piece_cursor cursor = {0};
        struct piece piece;

        while (piece_next(cut, i, &cursor, &piece))
            if (!piece.begins || !piece.completes) return true;
    }
    return false;
}

status gradients_plan(struct gradients *g, const struct program *program)
{
    void *states = NULL;
    bool unfinished;

    *g = (struct gradients){.program = program};
    for (int head = 0; head < 2; head++)
        g->cut[head] = program_cut(program, head);
    unfinished = leaves_are_cut(&g->cut[0]);
    TRY(memory_take((size_t)program->stream_count, sizeof *g->states,
                    &states));
    g->states = states;
    for (int i = 0; i < program->stream_count; i++) {
        const struct stream_info *info = &program->streams[i];
        const int64_t elements = padded(stream_param(g, i)->elements);
        const int limit = node_limit(&g->cut[info->head], !info->scatter);
        struct stream_state *state = &g->states[i];

        state->unfinished = -1;
        for (int b = 0; b < limit; b++) {
            const bool root = b == 0 && info->use == 0;

            state->offset[b] = root ? -1 : g->partial_elements;
            if (!root) g->partial_elements += elements;
        }
        if (info->vector && unfinished) {
            state->unfinished = g->partial_elements;
            g->partial_elements += program->grid.tensor * elements;
        }
    }
    return OK;
}

void gradients_free(struct gradients *g)
{
    memory_free(g->states);
    *g = (struct gradients){0};
}

void gradients_reset(struct gradients *g)
{
    for (int i = 0; i < g->program->stream_count; i++)
        g->states[i].stack = (struct node_stack){0};
}

static char *partial(const struct gradients *g, int64_t offset)
{
    return (char *)g->partials + offset * dtype_bytes(g->program->dtype);
}

/* Buffer b of a stream, shaped as the parameter. */
static struct tensor buffer_tensor(const struct gradients *g, int stream,
                                   int b)
{
    const struct param *param = stream_param(g, stream);
    const int64_t offset = g->states[stream].offset[b];
    struct tensor view = param_tensor(param, g->root, g->program->dtype);

    if (offset >= 0) view.data = partial(g, offset);
    return view;
}

static struct tensor flat(struct tensor view)
{
    return tensor_1d(view.data, view.dtype, tensor_count(&view));
}

struct tensor gradient_root(const struct gradients *g, int stream)
{
    return flat(buffer_tensor(g, stream, 0));
}

void gradients_close(const struct gradients *g)
{
    for (int i = 0; i < g->program->stream_count; i++)
        CHECK(g->states[i].stack.count == 1 && !g->states[i].stack.open);
}

status gradients_finish(struct gradients *g)
{
    gradients_close(g);
    for (int i = 0; i < g->program->stream_count; i++) {
        const struct tensor root = gradient_root(g, i);

        if (g->program->streams[i].use == 0) continue;
        const struct tensor first = tensor_1d(
            param_tensor(stream_param(g, i), g->root, g->program->dtype).data,
            root.dtype, root.shape[0]);

        TRY(g->kernels->add(g->stream, first, first, root));
    }
    return OK;
}

static const struct cut *stream_cut(const struct gradients *g, int stream)
{
    return &g->cut[g->program->streams[stream].head];
}

void gradient_begin(struct gradients *g, int stream, const struct piece *piece,
                    struct tensor *c, bool *left, bool *continues)
{
    struct stream_state *state = &g->states[stream];

    node_begin(&state->stack, stream_cut(g, stream), piece,
               !g->program->streams[stream].scatter, &state->buffer,
               &state->left);
    state->piece = *piece;
    *c = buffer_tensor(g, stream, state->buffer);
    *left = state->left;
    *continues = !piece->begins;
}

status gradient_end(struct gradients *g, int stream)
{
    struct stream_state *state = &g->states[stream];
    int left, right;

    node_end(&state->stack, &state->piece, state->left);
    while (node_merge(&state->stack, stream_cut(g, stream), &left, &right)) {
        const struct tensor a = flat(buffer_tensor(g, stream, left));

        TRY(g->kernels->add(g->stream, a, a,
                            flat(buffer_tensor(g, stream, right))));
    }
    return OK;
}

void gradient_vector_begin(struct gradients *g, int stream,
                           const struct piece *piece, void *scratch,
                           struct tensor *sums, bool *continues)
{
    struct stream_state *state = &g->states[stream];
    const struct param *param = stream_param(g, stream);
    const bool whole = piece->begins && piece->completes;
    void *data = whole ? scratch : partial(g, state->unfinished);

    CHECK(whole || state->unfinished >= 0);
    state->piece = *piece;
    *sums = tensor_2d(data, g->program->dtype,
                      (int64_t)piece->leaves * g->program->grid.tensor,
                      param->elements);
    *continues = !piece->begins;
}

status gradient_vector_end(struct gradients *g, int stream,
                           struct tensor sums)
{
    struct stream_state *state = &g->states[stream];
    struct piece *piece = &state->piece;
    struct tensor c, right = sums;

    if (!piece->completes) return OK;
    piece->begins = true; /* the tree meets the leaf only now, and whole */
    node_begin(&state->stack, stream_cut(g, stream), piece, true,
               &state->buffer, &state->left);
    c = buffer_tensor(g, stream, state->buffer);
    right = tensor_1d(sums.data, sums.dtype, sums.shape[1]);
    TRY(g->kernels->fold(g->stream, state->left ? right : c, sums,
                         piece->leaves, g->program->grid.tensor));
    if (state->left) TRY(g->kernels->add(g->stream, c, c, right));
    return gradient_end(g, stream);
}
