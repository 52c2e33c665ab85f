/* SPDX-License-Identifier: Apache-2.0 */
/* metered_rows.h - one function for every row of struct kernels, which measures
 * a call. Included by metered.c alone, once for each of two tables:
 * METERED(row) names the function, INNER is the table that it calls. */

static status METERED(matmul)(struct stream *stream, const struct matmul *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->matmul(stream, call);

    matmul_end(track, call);
    return result;
}

static status METERED(attention_forward)(struct stream *stream,
                                        const struct attention *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->attention_forward(stream, call);

    attention_end(track, "attention_forward", call, 2,
                  bytes_of(&call->q) + bytes_of(&call->k) +
                      bytes_of(&call->v) + bytes_of(&call->out) +
                      bytes_of(&call->lse));
    return result;
}

/* Scores and the gradient of probabilities in either half; dq in one, dk and
 * dv in the other. */
static status METERED(attention_backward)(struct stream *stream,
                                         const struct attention *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->attention_backward(stream, call);
    const bool queries = call->half != ATTENTION_OF_KEYS;
    const bool keys = call->half != ATTENTION_OF_QUERIES;

    attention_end(track, "attention_backward", call,
                  2 + (queries ? 1 : 0) + (keys ? 2 : 0),
                  bytes_of(&call->q) + bytes_of(&call->k) +
                      bytes_of(&call->v) + bytes_of(&call->out) +
                      bytes_of(&call->dout) + bytes_of(&call->lse) +
                      (queries ? bytes_of(&call->dq) : 0) +
                      (keys ? bytes_of(&call->dk) + bytes_of(&call->dv) : 0));
    return result;
}

static status METERED(attention_delta)(struct stream *stream,
                                      const struct attention *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->attention_delta(stream, call);

    attention_pass(track, "attention_delta", 2 * count_of(&call->out),
                   bytes_of(&call->out) + bytes_of(&call->dout) +
                       bytes_of(&call->delta));
    return result;
}

static status METERED(attention_merge)(struct stream *stream,
                                      const struct attention_node *left,
                                      const struct attention_node *right)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->attention_merge(stream, left, right);

    attention_pass(track, "attention_merge", 3 * count_of(&left->values),
                   2 * bytes_of(&left->values) + bytes_of(&right->values));
    return result;
}

static status METERED(attention_finish)(struct stream *stream,
                                       struct tensor out, struct tensor lse,
                                       const struct attention_node *root)
{
    struct meter_track *track = meter_begin();
    const status result =
        INNER->attention_finish(stream, out, lse, root);

    attention_pass(track, "attention_finish", count_of(&out),
                   bytes_of(&out) + bytes_of(&root->values));
    return result;
}

static status METERED(attention_heads)(struct stream *stream,
                                      struct tensor out, struct tensor in,
                                      int leaves)
{
    struct meter_track *track = meter_begin();
    const status result =
        INNER->attention_heads(stream, out, in, leaves);

    attention_pass(track, "attention_heads", count_of(&in),
                   bytes_of(&out) + bytes_of(&in));
    return result;
}

/* ---- sums ---- */

static status METERED(add)(struct stream *stream, struct tensor y,
                          struct tensor a, struct tensor b)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->add(stream, y, a, b);

    return done(track, "add", result, count_of(&y),
                bytes_of(&y) + bytes_of(&a) + bytes_of(&b));
}

static status METERED(scale)(struct stream *stream, struct tensor y,
                            struct tensor x, double factor)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->scale(stream, y, x, factor);

    return done(track, "scale", result, count_of(&y),
                bytes_of(&y) + bytes_of(&x));
}

static status METERED(fold)(struct stream *stream, struct tensor out,
                           struct tensor in, int leaves, int parts)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->fold(stream, out, in, leaves, parts);

    return done(track, "fold", result, count_of(&in),
                bytes_of(&out) + bytes_of(&in));
}

static status METERED(sum_rows)(struct stream *stream, struct tensor sums,
                               struct tensor dy,
                               const struct token_order *order)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->sum_rows(stream, sums, dy, order);

    return done(track, "sum_rows", result, count_of(&dy),
                bytes_of(&sums) + bytes_of(&dy));
}

static status METERED(sum_squares)(struct stream *stream, double *sums,
                                  struct tensor x, double factor)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->sum_squares(stream, sums, x, factor);

    return done(track, "sum_squares", result, 2 * count_of(&x),
                (factor == 1 ? 1 : 2) * bytes_of(&x));
}

static status METERED(normalize)(struct stream *stream, struct tensor x,
                                double *sums, double least)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->normalize(stream, x, sums, least);

    return done(track, "normalize", result, count_of(&x), 2 * bytes_of(&x));
}

/* ---- norms ---- */

static status METERED(rmsnorm_forward)(struct stream *stream, struct tensor y,
                                      struct tensor rrms, struct tensor x,
                                      struct tensor weight, double epsilon)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->rmsnorm_forward(stream, y, rrms, x,
                                                         weight, epsilon);

    return done(track, "rmsnorm_forward", result, 4 * count_of(&x),
                bytes_of(&y) + bytes_of(&x) + bytes_of(&rrms));
}

static status METERED(rmsnorm_backward)(struct stream *stream,
                                       struct tensor dx, bool adds,
                                       struct tensor sums, struct tensor dy,
                                       struct tensor x, struct tensor rrms,
                                       struct tensor weight,
                                       const struct token_order *order)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->rmsnorm_backward(
        stream, dx, adds, sums, dy, x, rrms, weight, order);

    return done(track, "rmsnorm_backward", result, 9 * count_of(&x),
                (adds ? 2 : 1) * bytes_of(&dx) + bytes_of(&dy) +
                    bytes_of(&x) + bytes_of(&sums));
}

static status METERED(layernorm_forward)(struct stream *stream,
                                        struct tensor y, struct tensor stats,
                                        struct tensor x,
                                        struct tensor weight,
                                        struct tensor bias, double epsilon)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->layernorm_forward(
        stream, y, stats, x, weight, bias, epsilon);

    return done(track, "layernorm_forward", result, 7 * count_of(&x),
                bytes_of(&y) + bytes_of(&x) + bytes_of(&stats));
}

static status METERED(add_norm)(struct stream *stream,
                                const struct add_norm *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->add_norm(stream, call);

    return done(track, "add_norm", result,
                (call->norm.layer ? 8 : 5) * count_of(&call->x),
                bytes_of(&call->x) + bytes_of(&call->left) +
                    bytes_of(&call->y) + bytes_of(&call->norm.y));
}

static status METERED(layernorm_backward)(
    struct stream *stream, struct tensor dx, bool adds,
    struct tensor sums_weight, struct tensor sums_bias, struct tensor dy,
    struct tensor x, struct tensor stats, struct tensor weight,
    const struct token_order *order)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->layernorm_backward(
        stream, dx, adds, sums_weight, sums_bias, dy, x, stats, weight,
        order);

    return done(track, "layernorm_backward", result, 12 * count_of(&x),
                (adds ? 2 : 1) * bytes_of(&dx) + bytes_of(&dy) +
                    bytes_of(&x) + bytes_of(&sums_weight) +
                    bytes_of(&sums_bias));
}

/* ---- elementwise rows ---- */

static status METERED(rope)(struct stream *stream, struct tensor x,
                           const int32_t *positions, struct tensor table,
                           int rotary, bool backward)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->rope(stream, x, positions, table,
                                              rotary, backward);

    return done(track, "rope", result, 3 * count_of(&x), 2 * bytes_of(&x));
}

static status METERED(swiglu_forward)(struct stream *stream, struct tensor out,
                                     struct tensor gate_up)
{
    struct meter_track *track = meter_begin();
    const status result =
        INNER->swiglu_forward(stream, out, gate_up);

    return done(track, "swiglu_forward", result,
                (EXP_FLOPS + 4) * count_of(&out),
                bytes_of(&out) + bytes_of(&gate_up));
}

static status METERED(swiglu_backward)(struct stream *stream,
                                      struct tensor dgate_up,
                                      struct tensor dout,
                                      struct tensor gate_up)
{
    struct meter_track *track = meter_begin();
    const status result =
        INNER->swiglu_backward(stream, dgate_up, dout, gate_up);

    return done(track, "swiglu_backward", result,
                (EXP_FLOPS + 10) * count_of(&dout),
                bytes_of(&dgate_up) + bytes_of(&dout) + bytes_of(&gate_up));
}

static status METERED(geglu_forward)(struct stream *stream, struct tensor out,
                                    struct tensor gate_up)
{
    struct meter_track *track = meter_begin();
    const status result =
        INNER->geglu_forward(stream, out, gate_up);

    return done(track, "geglu_forward", result,
                (EXP_FLOPS + 4) * count_of(&out),
                bytes_of(&out) + bytes_of(&gate_up));
}

static status METERED(geglu_backward)(struct stream *stream,
                                     struct tensor dgate_up,
                                     struct tensor dout,
                                     struct tensor gate_up)
{
    struct meter_track *track = meter_begin();
    const status result =
        INNER->geglu_backward(stream, dgate_up, dout, gate_up);

    return done(track, "geglu_backward", result,
                (EXP_FLOPS + 10) * count_of(&dout),
                bytes_of(&dgate_up) + bytes_of(&dout) + bytes_of(&gate_up));
}

static status METERED(softcap_forward)(struct stream *stream,
                                       struct tensor y, struct tensor x,
                                       double cap)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->softcap_forward(stream, y, x, cap);

    return done(track, "softcap_forward", result,
                (EXP_FLOPS + 4) * count_of(&y), bytes_of(&y) + bytes_of(&x));
}

static status METERED(softcap_backward)(struct stream *stream,
                                        struct tensor dx, struct tensor y,
                                        double cap)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->softcap_backward(stream, dx, y, cap);

    return done(track, "softcap_backward", result, 4 * count_of(&y),
                2 * bytes_of(&dx) + bytes_of(&y));
}

static status METERED(activation_forward)(struct stream *stream,
                                         struct tensor y, struct tensor x,
                                         enum activation kind)
{
    struct meter_track *track = meter_begin();
    const status result =
        INNER->activation_forward(stream, y, x, kind);

    return done(track, "activation_forward", result,
                (EXP_FLOPS + 6) * count_of(&x), bytes_of(&y) + bytes_of(&x));
}

static status METERED(activation_backward)(struct stream *stream,
                                          struct tensor dx, struct tensor dy,
                                          struct tensor x,
                                          enum activation kind)
{
    struct meter_track *track = meter_begin();
    const status result =
        INNER->activation_backward(stream, dx, dy, x, kind);

    return done(track, "activation_backward", result,
                (EXP_FLOPS + 12) * count_of(&x),
                bytes_of(&dx) + bytes_of(&dy) + bytes_of(&x));
}

/* ---- tables, loss, optimizer ---- */

static status METERED(gather_rows)(struct stream *stream, struct tensor out,
                                  bool adds, struct tensor table,
                                  const int32_t *index)
{
    struct meter_track *track = meter_begin();
    const status result =
        INNER->gather_rows(stream, out, adds, table, index);

    return done(track, "gather_rows", result, adds ? count_of(&out) : 0,
                (adds ? 3 : 2) * bytes_of(&out));
}

static status METERED(scatter_rows)(struct stream *stream,
                                   struct tensor dtable, struct tensor dout,
                                   const int32_t *index,
                                   const struct token_order *order)
{
    struct meter_track *track = meter_begin();
    const status result =
        INNER->scatter_rows(stream, dtable, dout, index, order);

    return done(track, "scatter_rows", result, count_of(&dout),
                bytes_of(&dtable) + bytes_of(&dout));
}

static status METERED(dropout)(struct stream *stream,
                              const struct dropout *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->dropout(stream, call);
    const double operands = call->left.data != NULL ? 3 : 2;

    return done(track, "dropout", result, operands * count_of(&call->y),
                operands * bytes_of(&call->y));
}

/* An element is compared, divided, rounded and multiplied. */
static status METERED(quantize)(struct stream *stream,
                               const struct quantize *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->quantize(stream, call);

    return done(track, "quantize", result, 5 * count_of(&call->out),
                bytes_of(&call->in) + bytes_of(&call->out));
}

static status METERED(block_encode)(struct stream *stream,
                                    const struct block_encode *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->block_encode(stream, call);
    const double count = call->last > 0 ? (double)(call->last - call->first)
                                        : count_of(&call->in);

    return done(track, "block_encode", result, 5 * count,
                count * (double)(dtype_bytes(call->in.dtype) + 1));
}

static status METERED(block_decode)(struct stream *stream,
                                    const struct block_decode *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->block_decode(stream, call);

    return done(track, "block_decode", result, 2 * count_of(&call->out),
                count_of(&call->out) + bytes_of(&call->out));
}

static status METERED(integer_product)(struct stream *stream,
                                       const struct integer_product *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->integer_product(stream, call);

    integers_end(track, call);
    return result;
}

static status METERED(rotate)(struct stream *stream, const struct rotate *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->rotate(stream, call);

    return done(track, "rotate", result, ROTATE_FLOPS * count_of(&call->out),
                bytes_of(&call->in) + bytes_of(&call->out));
}

static status METERED(unrotate)(struct stream *stream,
                               const struct unrotate *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->unrotate(stream, call);

    return done(track, "unrotate", result,
                2 * ROTATE_FLOPS * count_of(&call->out),
                bytes_of(&call->x) + bytes_of(&call->gradient) +
                    bytes_of(&call->out));
}

static status METERED(cross_entropy)(struct stream *stream,
                                    const struct cross_entropy *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->cross_entropy(stream, call);

    return done(track, "cross_entropy", result,
                (EXP_FLOPS + 4) * count_of(&call->logits),
                (call->gradient ? 2 : 1) * bytes_of(&call->logits));
}

static status METERED(adamw)(struct stream *stream, const struct adamw *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->adamw(stream, call);

    adamw_end(track, call);
    return result;
}

static status METERED(update_elements)(struct stream *stream,
                                       const struct element_update *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->update_elements(stream, call);

    update_end(track, call);
    return result;
}

static status METERED(descend)(struct stream *stream,
                               const struct descent *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->descend(stream, call);

    step_end(track, "descend", 3 * count_of(&call->weight),
               2 * bytes_of(&call->weight) + bytes_of(&call->step) +
                   bytes_of(&call->copy));
    return result;
}

static status METERED(factored)(struct stream *stream,
                                const struct factored *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->factored(stream, call);

    step_end(track, "factored", 16 * count_of(&call->x),
             8 * bytes_of(&call->x) + bytes_of(&call->weights));
    return result;
}

static status METERED(turned)(struct stream *stream, const struct turned *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->turned(stream, call);

    step_end(track, "turned", 7 * count_of(&call->x),
             2 * bytes_of(&call->x) + bytes_of(&call->v) +
                 2 * bytes_of(&call->m) + bytes_of(&call->gradient));
    return result;
}

static status METERED(masters_join)(struct stream *stream,
                                    const struct masters *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->masters_join(stream, call);

    step_end(track, "masters joined", count_of(&call->values),
             masters_bytes(call));
    return result;
}

static status METERED(masters_split)(struct stream *stream,
                                     const struct masters *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->masters_split(stream, call);

    step_end(track, "masters split", count_of(&call->values),
             masters_bytes(call));
    return result;
}

static status METERED(fixed_add)(struct stream *stream, struct tensor sums,
                                struct tensor x, struct fixed fixed)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->fixed_add(stream, sums, x, fixed);

    return done(track, "fixed_add", result, 2 * count_of(&x),
                (fixed.first ? 1 : 2) * bytes_of(&sums) + bytes_of(&x));
}

static status METERED(fixed_read)(struct stream *stream, struct tensor y,
                                 struct tensor sums, struct fixed fixed)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->fixed_read(stream, y, sums, fixed);

    return done(track, "fixed_read", result, count_of(&y),
                bytes_of(&sums) + bytes_of(&y));
}

/* ---- mixtures of experts ---- */

static status METERED(router_choose)(
    struct stream *stream, const struct router *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->router_choose(stream, call);

    return done(track, "router_choose", result,
                (EXP_FLOPS + 4 + call->form.choices) * count_of(&call->logits),
                bytes_of(&call->logits) + bytes_of(&call->gates));
}

static status METERED(router_losses)(
    struct stream *stream, const struct router_losses *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->router_losses(stream, call);

    return done(track, "router_losses", result,
                (2 * EXP_FLOPS + 8) * count_of(&call->logits),
                bytes_of(&call->logits));
}

static status METERED(router_backward)(
    struct stream *stream, const struct router_losses *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->router_backward(stream, call);

    return done(track, "router_backward", result,
                (2 * EXP_FLOPS + 12) * count_of(&call->logits),
                bytes_of(&call->logits) + bytes_of(&call->dlogits));
}

static status METERED(jitter)(
    struct stream *stream, const struct jitter *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->jitter(stream, call);

    return done(track, "jitter", result,
                2 * count_of(&call->y),
                bytes_of(&call->y) + bytes_of(&call->x));
}

static status METERED(experts_sums)(
    struct stream *stream, const struct experts_sums *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->experts_sums(stream, call);

    return done(track, "experts_sums", result,
                count_of(&call->a.matrix),
                bytes_of(&call->a.matrix) + bytes_of(&call->c));
}

static status METERED(experts_combine)(
    struct stream *stream, const struct experts_combine *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->experts_combine(stream, call);

    return done(track, "experts_combine", result,
                2 * count_of(&call->rows),
                bytes_of(&call->rows) + bytes_of(&call->y));
}

static status METERED(experts_gates)(
    struct stream *stream, const struct experts_gates *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->experts_gates(stream, call);

    return done(track, "experts_gates", result,
                2 * count_of(&call->rows),
                bytes_of(&call->rows) + bytes_of(&call->dy));
}

static status METERED(clamped_forward)(
    struct stream *stream, const struct clamped_glu *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->clamped_forward(stream, call);

    return done(track, "clamped_forward", result,
                (EXP_FLOPS + 5) * count_of(&call->out),
                bytes_of(&call->out) + bytes_of(&call->gate_up));
}

static status METERED(clamped_backward)(
    struct stream *stream, const struct clamped_glu *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->clamped_backward(stream, call);

    return done(track, "clamped_backward", result,
                (EXP_FLOPS + 10) * count_of(&call->dout),
                bytes_of(&call->dgate_up) + bytes_of(&call->dout) +
                    bytes_of(&call->gate_up));
}

static status METERED(experts_product)(
    struct stream *stream, const struct experts_product *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->experts_product(stream, call);

    experts_product_end(track, call);
    return result;
}

static status METERED(experts_gradient)(
    struct stream *stream, const struct experts_gradient *call)
{
    struct meter_track *track = meter_begin();
    const status result = INNER->experts_gradient(stream, call);

    experts_gradient_end(track, call);
    return result;
}
