/* SPDX-License-Identifier: Apache-2.0 */
/* layer.c - code shared by the layers: a walk over the pieces of a micro-batch
 * for the gradients of vectors. */
#include "nn/quantized.h"

static size_t sums_bytes(const struct program *p, int64_t width)
{
    const int contexts =
        p->size.context_chunks > 1 ? p->size.context_chunks / 2 : 1;
    const size_t bytes = (size_t)(p->layout.grid.data * contexts *
                                  p->layout.grid.tensor * width) *
                         (size_t)dtype_bytes(program_real(p));

    return arena_aligned(bytes);
}

size_t vector_scratch(const struct program *p, int count, int64_t width)
{
    return (size_t)count * sums_bytes(p, width);
}

bool vector_next(struct run *run, const struct step *step, int first,
                 struct vector_pass *pass)
{
    const struct program *p = run->program;
    char *scratch = run->scratch;
    bool continues = false, local = false;

    if (run->gradients == NULL ||
        !piece_next(&run->gradients->cut[0], run->batch.index, &pass->cursor,
                    &pass->piece))
        return false;
    for (int i = first; i < STEP_PARAMS_MAX; i++) {
        if (step->use[i] < 0) continue;
        local = p->uses[step->use[i]].local;
        gradient_vector_begin(run->gradients, step->use[i], &pass->piece,
                              scratch, &pass->sums[i], &continues);
        scratch += sums_bytes(p, p->params.items[step->param[i]].elements);
    }
    pass->order = local ? run_part_order(run, &pass->piece, continues)
                        : run_token_order(run, &pass->piece, continues);
    return true;
}

status vector_end(struct run *run, const struct step *step, int first,
                  const struct vector_pass *pass)
{
    for (int i = first; i < STEP_PARAMS_MAX; i++)
        if (step->use[i] >= 0)
            TRY(gradient_vector_end(run->gradients, step->use[i],
                                    pass->sums[i]));
    return OK;
}

static status product_sums(struct run *run, int use,
                           const struct matmul *product,
                           const struct piece *piece)
{
    struct gradients *g = run->gradients;
    const int sums = gradient_sums(g, use, piece);

    for (int i = 0; i < sums; i++) {
        struct gradient_target target;

        gradient_begin(g, use, piece, i, &target);
        const struct sum_order order =
            run_order_tokens(run, piece, target.only);
        struct matmul call = *product;

        call.c = target.c;
        call.order = &order;
        call.continues = target.continues;
        call.left = target.left ? &target.c : NULL;
        TRY(run->kernels->matmul(run->stream, &call));
        TRY(gradient_end(g, use, i));
    }
    return OK;
}

status use_product(struct run *run, int use, struct tensor dy, struct tensor x,
                   const struct piece *piece)
{
    const struct matmul product = {.a = tensor_transpose(dy), .b = x};

    return product_sums(run, use, &product, piece);
}

status weight_pieces(const struct step *step, struct run *run,
                     piece_product *product)
{
    struct piece_cursor cursor = {0};
    struct piece piece;

    if (!gradient_made(run->program, step->use[0])) return OK;
    if (!quantized_is_saved(run, step))
        TRY(overlap_wait_all(run, run_slot(run, step->input)));
    TRY(overlap_wait_all(run, run_gradient(run, step->output)));
    while (piece_next(&run->gradients->cut[0], run->batch.index, &cursor,
                      &piece))
        TRY(product(run, step, &piece));
    return OK;
}

status weight_product(struct run *run, const struct step *step,
                      struct tensor dy, struct tensor x,
                      const struct piece *piece)
{
    const struct matmul product = {
        .a = tensor_transpose(dy), .b = x,
        .accumulator = quantized_accumulator(run, step)};

    return product_sums(run, step->use[0], &product, piece);
}

struct tensor piece_rows(const struct run *run, struct tensor matrix,
                         const struct piece *piece)
{
    const struct program *p = run->program;
    const int64_t held = matrix.shape[0] / p->size.sequences;

    if (held != p->size.length) {
        CHECK(piece->tokens == p->size.length);
        return tensor_rows(matrix, piece->first_sequence * held,
                           piece->sequences * held);
    }
    return tensor_rows(matrix, piece_first_token(p, piece),
                       piece_tokens(piece));
}
