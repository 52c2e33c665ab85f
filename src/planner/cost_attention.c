/* SPDX-License-Identifier: Apache-2.0 */
/* cost_attention.c - seconds of attention. */
#include "planner/cost_parts.h"

/* FLOP/s that FlashAttention-2 reaches on a machine, at most. They are of an
 * H100 whose products reach 0.6 of the peak; where they reach less, since the
 * device has less power (h100-96: 500 W of 700), attention does, too. */
static double program_limit(const struct cost *cost)
{
    const double *v = cost->machine->value;
    const double slower = v[M_GEMM] < 0.6 ? v[M_GEMM] / 0.6 : 1;

    return habits_of[cost->layout->as].attention_most * slower;
}

double cost_attention_rate(const struct cost *cost, double keys, double width,
                           bool back)
{
    const struct machine *m = cost->machine;
    const double rate = measured_work_rate(
        m, back ? WORK_ATTENTION_BACK : WORK_ATTENTION, keys, width,
        cost->layout->bits, cost_threads(cost));
    const bool measured = m->mark[M_ATTENTION] == MARK_MEASURED;
    /* Known up to H100 alone; a share that a user names counts. */
    const double most = m->mark[M_ATTENTION] == MARK_BY_HAND ||
                                m->value[M_PEAK_16] > 1e15
                            ? 0 : program_limit(cost);
    double share;

    if (rate > 0) return rate;
    share = (measured ? m->value[M_PEAK_32] * cost_threads(cost)
                      : cost_peak(cost, cost->layout->bits < 16
                                       ? 16 : cost->layout->bits)) *
            m->value[M_ATTENTION];
    return most > 0 && most < share ? most : share;
}

void cost_attended(const struct cost *cost, const struct attended *a,
                   struct spent *out)
{
    const struct machine *m = cost->machine;
    const double seconds =
        a->flops / cost_attention_rate(cost, a->keys, a->width, a->back);

    out->seconds[CAUSE_ATTENTION] += seconds;
    if (m->mark[M_ATTENTION] == MARK_ASSUMED ||
        measured_work_is_guess(
            m, a->back ? WORK_ATTENTION_BACK : WORK_ATTENTION, a->keys,
            a->width, cost->layout->bits, cost_threads(cost)))
        out->guessed += seconds;
}

/* Programs before fused attention write all scores. GPT's are of that time. */
bool cost_writes_scores(const struct cost *cost)
{
    return habits_of[cost->layout->as].scores && cost->shape->biased;
}

void cost_attention(const struct cost *cost, double passes,
                    struct spent *out)
{
    const struct shape *s = cost->shape;
    const struct layout *l = cost->layout;
    const double heads = (double)s->heads / l->tensor;
    const double tokens = cost_tokens(cost);

    if (cost_writes_scores(cost)) {
        const double rows = (double)s->sequence / l->context;
        const double batch = (double)l->micro_batch * heads;
        const double scores = batch * rows * (double)s->sequence;
        const struct product_size size = {
            rows, (double)s->sequence, (double)s->head_width, PRODUCT_NT,
            ACCUMULATOR_NONE};

        cost_product(cost, size, 2 * passes * batch, CAUSE_ATTENTION, out);
        out->seconds[CAUSE_LAUNCH] = 0; /* one call for all heads */
        cost_moved(cost, passes * 9 * scores, out);
    } else {
        const double flops = 2 * tokens * heads *
                             (s->head_width + s->value_width) * s->keys;

        cost_attended(cost, &(struct attended){
            passes * flops, (double)s->sequence / l->context,
            (double)s->head_width, passes > 1}, out);
    }
}
