/* SPDX-License-Identifier: Apache-2.0 */
/* layer.c - code shared by the layers: a walk over the addends of a micro-batch
 * for the gradients of vectors. */
#include "nn/quantized_operands.h"

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
        !addend_next(&run->gradients->cut[0], run->batch.index, &pass->cursor,
                     &pass->addend))
        return false;
    for (int i = first; i < STEP_PARAMS_MAX; i++) {
        if (step->use[i] < 0) continue;
        local = p->uses[step->use[i]].local;
        gradient_vector_begin(run->gradients, step->use[i], &pass->addend,
                              scratch, &pass->sums[i], &continues);
        scratch += sums_bytes(p, p->params.items[step->param[i]].elements);
    }
    pass->order = local ? run_part_order(run, &pass->addend, continues)
                        : run_token_order(run, &pass->addend, continues);
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
                           const struct addend *addend)
{
    struct gradients *g = run->gradients;
    const int sums = gradient_sums(g, use, addend);

    for (int i = 0; i < sums; i++) {
        struct gradient_target target;

        gradient_begin(g, use, addend, i, &target);
        const struct sum_order order =
            run_order_tokens(run, addend, target.only);
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
                   const struct addend *addend)
{
    const struct matmul product = {.a = tensor_transpose(dy), .b = x};

    return product_sums(run, use, &product, addend);
}

status weight_addends(const struct step *step, struct run *run,
                      addend_product *product)
{
    struct addend_cursor cursor = {0};
    struct addend addend;

    if (!gradient_made(run->program, step->use[0])) return OK;
    if (!quantized_is_saved(run, step))
        TRY(overlap_wait_all(run, run_slot(run, step->input)));
    TRY(overlap_wait_all(run, run_gradient(run, step->output)));
    while (addend_next(&run->gradients->cut[0], run->batch.index, &cursor,
                       &addend))
        TRY(product(run, step, &addend));
    return OK;
}

status weight_product(struct run *run, const struct step *step,
                      struct tensor dy, struct tensor x,
                      const struct addend *addend)
{
    const struct matmul product = {
        .a = tensor_transpose(dy), .b = x,
        .accumulator = quantized_accumulator(run, step)};

    return product_sums(run, step->use[0], &product, addend);
}

struct tensor addend_rows(const struct run *run, struct tensor matrix,
                          const struct addend *addend)
{
    const struct program *p = run->program;
    const int64_t held = matrix.shape[0] / p->size.sequences;

    if (held != p->size.length) {
        CHECK(addend->tokens == p->size.length);
        return tensor_rows(matrix, addend->first_sequence * held,
                           addend->sequences * held);
    }
    return tensor_rows(matrix, addend_first_token(p, addend),
                       addend_tokens(addend));
}

void product_beside(struct run *run, const struct step *step,
                    struct product_room *room, struct matmul *call)
{
    if (step->param[1] >= 0) {
        room->bias = run_weight(run, step, 1);
        call->bias = &room->bias;
    }
    if (step->left >= 0) {
        room->left = run_slot(run, step->left);
        call->left = &room->left;
    }
}
