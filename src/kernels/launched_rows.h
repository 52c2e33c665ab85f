/* SPDX-License-Identifier: Apache-2.0 */
/* launched_rows.h - for every row of struct kernels the function that launches
 * it and the work that the device's queue does. Included by launched.c alone,
 * once for each of two tables: LAUNCHED(row) and WORK(row) name the functions,
 * BEHIND is the table that the work calls. */

static status WORK(matmul)(void *owner, void *told)
{
    struct matmul_told *to = told;

    return BEHIND(owner)->matmul(device_stream(owner), &to->call);
}

static status LAUNCHED(matmul)(struct stream *stream, const struct matmul *call)
{
    struct launch l;
    struct matmul_told *to = begin(&l, stream, WORK(matmul), sizeof *to);

    tell_matmul(&l, to, call);
    return end(&l);
}

static status WORK(unrotate)(void *owner, void *told)
{
    struct unrotate_told *to = told;

    return BEHIND(owner)->unrotate(device_stream(owner), &to->call);
}

static status LAUNCHED(unrotate)(struct stream *stream,
                                 const struct unrotate *call)
{
    struct launch l;
    struct unrotate_told *to = begin(&l, stream, WORK(unrotate), sizeof *to);

    tell_unrotate(&l, to, call);
    return end(&l);
}

static status WORK(experts_product)(void *owner, void *told)
{
    struct product_told *to = told;

    return BEHIND(owner)->experts_product(device_stream(owner), &to->call);
}

static status LAUNCHED(experts_product)(struct stream *stream,
                                        const struct experts_product *call)
{
    struct launch l;
    struct product_told *to =
        begin(&l, stream, WORK(experts_product), sizeof *to);

    tell_product(&l, to, call);
    return end(&l);
}

static status WORK(experts_gradient)(void *owner, void *told)
{
    struct gradient_told *to = told;

    return BEHIND(owner)->experts_gradient(device_stream(owner), &to->call);
}

static status LAUNCHED(experts_gradient)(struct stream *stream,
                                         const struct experts_gradient *call)
{
    struct launch l;
    struct gradient_told *to =
        begin(&l, stream, WORK(experts_gradient), sizeof *to);

    tell_gradient(&l, to, call);
    return end(&l);
}

static status WORK(experts_sums)(void *owner, void *told)
{
    struct sums_told *to = told;

    return BEHIND(owner)->experts_sums(device_stream(owner), &to->call);
}

static status LAUNCHED(experts_sums)(struct stream *stream,
                                     const struct experts_sums *call)
{
    struct launch l;
    struct sums_told *to = begin(&l, stream, WORK(experts_sums), sizeof *to);

    tell_sums(&l, to, call);
    return end(&l);
}

static status WORK(experts_combine)(void *owner, void *told)
{
    struct combine_told *to = told;

    return BEHIND(owner)->experts_combine(device_stream(owner), &to->call);
}

static status LAUNCHED(experts_combine)(struct stream *stream,
                                        const struct experts_combine *call)
{
    struct launch l;
    struct combine_told *to =
        begin(&l, stream, WORK(experts_combine), sizeof *to);

    tell_combine(&l, to, call);
    return end(&l);
}

static status WORK(attention_forward)(void *owner, void *told)
{
    struct attention *to = told;

    return BEHIND(owner)->attention_forward(device_stream(owner), to);
}

static status LAUNCHED(attention_forward)(struct stream *stream,
                                          const struct attention *call)
{
    struct launch l;
    struct attention *to =
        begin(&l, stream, WORK(attention_forward), sizeof *to);

    *to = attention_of(&l, call);
    return end(&l);
}

static status WORK(attention_backward)(void *owner, void *told)
{
    struct attention *to = told;

    return BEHIND(owner)->attention_backward(device_stream(owner), to);
}

static status LAUNCHED(attention_backward)(struct stream *stream,
                                           const struct attention *call)
{
    struct launch l;
    struct attention *to =
        begin(&l, stream, WORK(attention_backward), sizeof *to);

    *to = attention_of(&l, call);
    return end(&l);
}

static status WORK(attention_delta)(void *owner, void *told)
{
    struct attention *to = told;

    return BEHIND(owner)->attention_delta(device_stream(owner), to);
}

static status LAUNCHED(attention_delta)(struct stream *stream,
                                        const struct attention *call)
{
    struct launch l;
    struct attention *to = begin(&l, stream, WORK(attention_delta), sizeof *to);

    *to = attention_of(&l, call);
    return end(&l);
}

static status WORK(dropout)(void *owner, void *told)
{
    struct dropout *to = told;

    return BEHIND(owner)->dropout(device_stream(owner), to);
}

static status LAUNCHED(dropout)(struct stream *stream,
                                const struct dropout *call)
{
    struct launch l;
    struct dropout *to = begin(&l, stream, WORK(dropout), sizeof *to);

    *to = dropout_of(&l, call);
    return end(&l);
}

static status WORK(jitter)(void *owner, void *told)
{
    struct jitter *to = told;

    return BEHIND(owner)->jitter(device_stream(owner), to);
}

static status LAUNCHED(jitter)(struct stream *stream, const struct jitter *call)
{
    struct launch l;
    struct jitter *to = begin(&l, stream, WORK(jitter), sizeof *to);

    *to = jitter_of(&l, call);
    return end(&l);
}

static status WORK(quantize)(void *owner, void *told)
{
    struct quantize *to = told;

    return BEHIND(owner)->quantize(device_stream(owner), to);
}

static status LAUNCHED(quantize)(struct stream *stream,
                                 const struct quantize *call)
{
    struct launch l;
    struct quantize *to = begin(&l, stream, WORK(quantize), sizeof *to);

    *to = quantize_of(&l, call);
    return end(&l);
}

static status WORK(block_encode)(void *owner, void *told)
{
    struct block_encode *to = told;

    return BEHIND(owner)->block_encode(device_stream(owner), to);
}

static status LAUNCHED(block_encode)(struct stream *stream,
                                     const struct block_encode *call)
{
    struct launch l;
    struct block_encode *to = begin(&l, stream, WORK(block_encode), sizeof *to);

    *to = encode_of(&l, call);
    return end(&l);
}

static status WORK(block_decode)(void *owner, void *told)
{
    struct block_decode *to = told;

    return BEHIND(owner)->block_decode(device_stream(owner), to);
}

static status LAUNCHED(block_decode)(struct stream *stream,
                                     const struct block_decode *call)
{
    struct launch l;
    struct block_decode *to = begin(&l, stream, WORK(block_decode), sizeof *to);

    *to = decode_of(&l, call);
    return end(&l);
}

static status WORK(rotate)(void *owner, void *told)
{
    struct rotate *to = told;

    return BEHIND(owner)->rotate(device_stream(owner), to);
}

static status LAUNCHED(rotate)(struct stream *stream, const struct rotate *call)
{
    struct launch l;
    struct rotate *to = begin(&l, stream, WORK(rotate), sizeof *to);

    *to = rotate_of(&l, call);
    return end(&l);
}

static status WORK(cross_entropy)(void *owner, void *told)
{
    struct cross_entropy *to = told;

    return BEHIND(owner)->cross_entropy(device_stream(owner), to);
}

static status LAUNCHED(cross_entropy)(struct stream *stream,
                                      const struct cross_entropy *call)
{
    struct launch l;
    struct cross_entropy *to =
        begin(&l, stream, WORK(cross_entropy), sizeof *to);

    *to = cross_entropy_of(&l, call);
    return end(&l);
}

static status WORK(router_choose)(void *owner, void *told)
{
    struct router *to = told;

    return BEHIND(owner)->router_choose(device_stream(owner), to);
}

static status LAUNCHED(router_choose)(struct stream *stream,
                                      const struct router *call)
{
    struct launch l;
    struct router *to = begin(&l, stream, WORK(router_choose), sizeof *to);

    *to = router_of(&l, call);
    return end(&l);
}

static status WORK(router_losses)(void *owner, void *told)
{
    struct router_losses *to = told;

    return BEHIND(owner)->router_losses(device_stream(owner), to);
}

static status LAUNCHED(router_losses)(struct stream *stream,
                                      const struct router_losses *call)
{
    struct launch l;
    struct router_losses *to =
        begin(&l, stream, WORK(router_losses), sizeof *to);

    *to = losses_of(&l, call);
    return end(&l);
}

static status WORK(router_backward)(void *owner, void *told)
{
    struct router_losses *to = told;

    return BEHIND(owner)->router_backward(device_stream(owner), to);
}

static status LAUNCHED(router_backward)(struct stream *stream,
                                        const struct router_losses *call)
{
    struct launch l;
    struct router_losses *to =
        begin(&l, stream, WORK(router_backward), sizeof *to);

    *to = losses_of(&l, call);
    return end(&l);
}

static status WORK(experts_gates)(void *owner, void *told)
{
    struct experts_gates *to = told;

    return BEHIND(owner)->experts_gates(device_stream(owner), to);
}

static status LAUNCHED(experts_gates)(struct stream *stream,
                                      const struct experts_gates *call)
{
    struct launch l;
    struct experts_gates *to =
        begin(&l, stream, WORK(experts_gates), sizeof *to);

    *to = gates_of(&l, call);
    return end(&l);
}

static status WORK(clamped_forward)(void *owner, void *told)
{
    struct clamped_glu *to = told;

    return BEHIND(owner)->clamped_forward(device_stream(owner), to);
}

static status LAUNCHED(clamped_forward)(struct stream *stream,
                                        const struct clamped_glu *call)
{
    struct launch l;
    struct clamped_glu *to =
        begin(&l, stream, WORK(clamped_forward), sizeof *to);

    *to = clamped_of(&l, call);
    return end(&l);
}

static status WORK(clamped_backward)(void *owner, void *told)
{
    struct clamped_glu *to = told;

    return BEHIND(owner)->clamped_backward(device_stream(owner), to);
}

static status LAUNCHED(clamped_backward)(struct stream *stream,
                                         const struct clamped_glu *call)
{
    struct launch l;
    struct clamped_glu *to =
        begin(&l, stream, WORK(clamped_backward), sizeof *to);

    *to = clamped_of(&l, call);
    return end(&l);
}

static status WORK(adamw)(void *owner, void *told)
{
    struct adamw *to = told;

    return BEHIND(owner)->adamw(device_stream(owner), to);
}

static status LAUNCHED(adamw)(struct stream *stream, const struct adamw *call)
{
    struct launch l;
    struct adamw *to = begin(&l, stream, WORK(adamw), sizeof *to);

    *to = adamw_of(&l, call);
    return end(&l);
}

static status WORK(update_elements)(void *owner, void *told)
{
    struct element_update *to = told;

    return BEHIND(owner)->update_elements(device_stream(owner), to);
}

static status LAUNCHED(update_elements)(struct stream *stream,
                                        const struct element_update *call)
{
    struct launch l;
    struct element_update *to =
        begin(&l, stream, WORK(update_elements), sizeof *to);

    *to = update_of(&l, call);
    return end(&l);
}

static status WORK(descend)(void *owner, void *told)
{
    struct descent *to = told;

    return BEHIND(owner)->descend(device_stream(owner), to);
}

static status LAUNCHED(descend)(struct stream *stream,
                                const struct descent *call)
{
    struct launch l;
    struct descent *to = begin(&l, stream, WORK(descend), sizeof *to);

    *to = descent_of(&l, call);
    return end(&l);
}

static status WORK(attention_merge)(void *owner, void *told)
{
    struct attention_node *to = told;

    return BEHIND(owner)->attention_merge(device_stream(owner), to, to + 1);
}

static status LAUNCHED(attention_merge)(struct stream *stream,
                                        const struct attention_node *left,
                                        const struct attention_node *right)
{
    struct launch l;
    struct attention_node *to =
        begin(&l, stream, WORK(attention_merge), 2 * sizeof *to);

    to[0] = node_of(&l, left);
    to[1] = node_of(&l, right);
    return end(&l);
}

static status WORK(integer_product)(void *owner, void *told)
{
    struct integer_told *to = told;

    return BEHIND(owner)->integer_product(device_stream(owner), &to->call);
}

static status LAUNCHED(integer_product)(struct stream *stream,
                                        const struct integer_product *call)
{
    struct launch l;
    struct integer_told *to =
        begin(&l, stream, WORK(integer_product), sizeof *to);

    tell_integers(&l, to, call);
    return end(&l);
}
