/* SPDX-License-Identifier: Apache-2.0 */
/* device_rows_operands.h - the rows of device_rows.c whose arguments are
 * tensors and little else. Included by it alone, once for each of two tables:
 * LAUNCHED(row) and WORK(row) name the functions that launch a row and run it
 * later, BEHIND is the table that the work calls. */

struct LAUNCHED(finish_told) {
    struct tensor out, lse;
    struct attention_node root;
};

static status WORK(attention_finish)(void *owner, void *told)
{
    struct LAUNCHED(finish_told) *to = told;

    return BEHIND(owner)->attention_finish(device_stream(owner), to->out,
                                           to->lse, &to->root);
}

static status LAUNCHED(attention_finish)(struct stream *stream,
                                         struct tensor out, struct tensor lse,
                                         const struct attention_node *root)
{
    struct launch l;
    struct LAUNCHED(finish_told) *to =
        begin(&l, stream, WORK(attention_finish), sizeof *to);

    to->out = tensor(&l, out);
    to->lse = tensor(&l, lse);
    to->root = node_of(&l, root);
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

static status WORK(attention_heads)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->attention_heads(device_stream(owner), to->t[0],
                                          to->t[1], to->leaves);
}

static status LAUNCHED(attention_heads)(struct stream *stream,
                                        struct tensor out, struct tensor in,
                                        int leaves)
{
    struct launch l;
    struct operands *to = begin(&l, stream, WORK(attention_heads), sizeof *to);

    to->t[0] = tensor(&l, out);
    to->t[1] = tensor(&l, in);
    to->leaves = leaves;
    return end(&l);
}

static status WORK(add)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->add(device_stream(owner), to->t[0], to->t[1],
                              to->t[2]);
}

static status LAUNCHED(add)(struct stream *stream, struct tensor y,
                            struct tensor a, struct tensor b)
{
    struct launch l;
    struct operands *to = begin(&l, stream, WORK(add), sizeof *to);

    to->t[0] = tensor(&l, y);
    to->t[1] = tensor(&l, a);
    to->t[2] = tensor(&l, b);
    return end(&l);
}

static status WORK(scale)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->scale(device_stream(owner), to->t[0], to->t[1],
                                to->number);
}

static status LAUNCHED(scale)(struct stream *stream, struct tensor y,
                              struct tensor x, double factor)
{
    struct launch l;
    struct operands *to = begin(&l, stream, WORK(scale), sizeof *to);

    to->t[0] = tensor(&l, y);
    to->t[1] = tensor(&l, x);
    to->number = factor;
    return end(&l);
}

static status WORK(fixed_add)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->fixed_add(device_stream(owner), to->t[0], to->t[1],
                                    to->fixed);
}

static status LAUNCHED(fixed_add)(struct stream *stream, struct tensor sums,
                                  struct tensor x, struct fixed fixed)
{
    struct launch l;
    struct operands *to = begin(&l, stream, WORK(fixed_add), sizeof *to);

    to->t[0] = tensor(&l, sums);
    to->t[1] = tensor(&l, x);
    to->fixed = fixed;
    return end(&l);
}

static status WORK(fixed_read)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->fixed_read(device_stream(owner), to->t[0], to->t[1],
                                     to->fixed);
}

static status LAUNCHED(fixed_read)(struct stream *stream, struct tensor y,
                                   struct tensor sums, struct fixed fixed)
{
    struct launch l;
    struct operands *to = begin(&l, stream, WORK(fixed_read), sizeof *to);

    to->t[0] = tensor(&l, y);
    to->t[1] = tensor(&l, sums);
    to->fixed = fixed;
    return end(&l);
}

static status WORK(fold)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->fold(device_stream(owner), to->t[0], to->t[1],
                               to->leaves, to->parts);
}

static status LAUNCHED(fold)(struct stream *stream, struct tensor out,
                             struct tensor in, int leaves, int parts)
{
    struct launch l;
    struct operands *to = begin(&l, stream, WORK(fold), sizeof *to);

    to->t[0] = tensor(&l, out);
    to->t[1] = tensor(&l, in);
    to->leaves = leaves;
    to->parts = parts;
    return end(&l);
}

static status WORK(sum_rows)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->sum_rows(device_stream(owner), to->t[0], to->t[1],
                                   &to->order);
}

static status LAUNCHED(sum_rows)(struct stream *stream, struct tensor sums,
                                 struct tensor dy,
                                 const struct token_order *order)
{
    struct launch l;
    struct operands *to = begin(&l, stream, WORK(sum_rows), sizeof *to);

    to->t[0] = tensor(&l, sums);
    to->t[1] = tensor(&l, dy);
    to->order = *order;
    return end(&l);
}

static status WORK(sum_squares)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->sum_squares(device_stream(owner), to->sums, to->t[0],
                                      to->number);
}

static status LAUNCHED(sum_squares)(struct stream *stream, double *sums,
                                    struct tensor x, double factor)
{
    struct launch l;
    struct operands *to = begin(&l, stream, WORK(sum_squares), sizeof *to);

    to->t[0] = tensor(&l, x);
    to->number = factor;
    to->sums = set_later(&l, sums, squares_blocks(&x) * sizeof *sums);
    return end(&l);
}

static status WORK(normalize)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->normalize(device_stream(owner), to->t[0], to->sums,
                                    to->number);
}

static status LAUNCHED(normalize)(struct stream *stream, struct tensor x,
                                  double *sums, double least)
{
    struct launch l;
    struct operands *to = begin(&l, stream, WORK(normalize), sizeof *to);

    to->t[0] = tensor(&l, x);
    to->number = least;
    to->sums = shared(&l, sums, squares_blocks(&x) * sizeof *sums);
    return end(&l);
}

static status WORK(rmsnorm_forward)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->rmsnorm_forward(device_stream(owner), to->t[0],
                                          to->t[1], to->t[2], to->t[3],
                                          to->number);
}

static status LAUNCHED(rmsnorm_forward)(struct stream *stream, struct tensor y,
                                        struct tensor rrms, struct tensor x,
                                        struct tensor weight, double epsilon)
{
    struct launch l;
    struct operands *to = begin(&l, stream, WORK(rmsnorm_forward), sizeof *to);

    to->t[0] = tensor(&l, y);
    to->t[1] = tensor(&l, rrms);
    to->t[2] = tensor(&l, x);
    to->t[3] = tensor(&l, weight);
    to->number = epsilon;
    return end(&l);
}

static status WORK(rmsnorm_backward)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->rmsnorm_backward(
        device_stream(owner), to->t[0], to->flag, to->t[1], to->t[2], to->t[3],
        to->t[4], to->t[5], &to->order);
}

static status LAUNCHED(rmsnorm_backward)(struct stream *stream,
                                         struct tensor dx, bool adds,
                                         struct tensor sums, struct tensor dy,
                                         struct tensor x, struct tensor rrms,
                                         struct tensor weight,
                                         const struct token_order *order)
{
    struct launch l;
    struct operands *to = begin(&l, stream, WORK(rmsnorm_backward), sizeof *to);

    to->t[0] = tensor(&l, dx);
    to->t[1] = tensor(&l, sums);
    to->t[2] = tensor(&l, dy);
    to->t[3] = tensor(&l, x);
    to->t[4] = tensor(&l, rrms);
    to->t[5] = tensor(&l, weight);
    to->flag = adds;
    to->order = *order;
    return end(&l);
}

static status WORK(layernorm_forward)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->layernorm_forward(device_stream(owner), to->t[0],
                                            to->t[1], to->t[2], to->t[3],
                                            to->t[4], to->number);
}

static status LAUNCHED(layernorm_forward)(struct stream *stream,
                                          struct tensor y, struct tensor stats,
                                          struct tensor x, struct tensor weight,
                                          struct tensor bias, double epsilon)
{
    struct launch l;
    struct operands *to =
        begin(&l, stream, WORK(layernorm_forward), sizeof *to);

    to->t[0] = tensor(&l, y);
    to->t[1] = tensor(&l, stats);
    to->t[2] = tensor(&l, x);
    to->t[3] = tensor(&l, weight);
    to->t[4] = tensor(&l, bias);
    to->number = epsilon;
    return end(&l);
}

static status WORK(add_norm)(void *owner, void *told)
{
    return BEHIND(owner)->add_norm(device_stream(owner), told);
}

static status LAUNCHED(add_norm)(struct stream *stream,
                                 const struct add_norm *call)
{
    struct launch l;
    struct add_norm *to = begin(&l, stream, WORK(add_norm), sizeof *to);

    *to = (struct add_norm){tensor(&l, call->x), tensor(&l, call->left),
                            tensor(&l, call->y), norm_of(&l, &call->norm)};
    return end(&l);
}

static status WORK(layernorm_backward)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->layernorm_backward(
        device_stream(owner), to->t[0], to->flag, to->t[1], to->t[2], to->t[3],
        to->t[4], to->t[5], to->t[6], &to->order);
}

static status
LAUNCHED(layernorm_backward)(struct stream *stream, struct tensor dx, bool adds,
                             struct tensor sums_weight, struct tensor sums_bias,
                             struct tensor dy, struct tensor x,
                             struct tensor stats, struct tensor weight,
                             const struct token_order *order)
{
    struct launch l;
    struct operands *to =
        begin(&l, stream, WORK(layernorm_backward), sizeof *to);

    to->t[0] = tensor(&l, dx);
    to->t[1] = tensor(&l, sums_weight);
    to->t[2] = tensor(&l, sums_bias);
    to->t[3] = tensor(&l, dy);
    to->t[4] = tensor(&l, x);
    to->t[5] = tensor(&l, stats);
    to->t[6] = tensor(&l, weight);
    to->flag = adds;
    to->order = *order;
    return end(&l);
}

static status WORK(rope)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->rope(device_stream(owner), to->t[0], to->list,
                               to->t[1], to->leaves, to->flag);
}

static status LAUNCHED(rope)(struct stream *stream, struct tensor x,
                             const int32_t *positions, struct tensor table,
                             int rotary, bool backward)
{
    struct launch l;
    struct operands *to = begin(&l, stream, WORK(rope), sizeof *to);

    to->t[0] = tensor(&l, x);
    to->t[1] = tensor(&l, table);
    to->list = tokens(&l, positions, x.shape[0]);
    to->leaves = rotary;
    to->flag = backward;
    return end(&l);
}

static status WORK(swiglu_forward)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->swiglu_forward(device_stream(owner), to->t[0],
                                         to->t[1]);
}

static status LAUNCHED(swiglu_forward)(struct stream *stream, struct tensor out,
                                       struct tensor gate_up)
{
    struct launch l;
    struct operands *to = begin(&l, stream, WORK(swiglu_forward), sizeof *to);

    to->t[0] = tensor(&l, out);
    to->t[1] = tensor(&l, gate_up);
    return end(&l);
}

static status WORK(swiglu_backward)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->swiglu_backward(device_stream(owner), to->t[0],
                                          to->t[1], to->t[2]);
}

static status LAUNCHED(swiglu_backward)(struct stream *stream,
                                        struct tensor dgate_up,
                                        struct tensor dout,
                                        struct tensor gate_up)
{
    struct launch l;
    struct operands *to = begin(&l, stream, WORK(swiglu_backward), sizeof *to);

    to->t[0] = tensor(&l, dgate_up);
    to->t[1] = tensor(&l, dout);
    to->t[2] = tensor(&l, gate_up);
    return end(&l);
}

static status WORK(geglu_forward)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->geglu_forward(device_stream(owner), to->t[0],
                                        to->t[1]);
}

static status LAUNCHED(geglu_forward)(struct stream *stream, struct tensor out,
                                      struct tensor gate_up)
{
    struct launch l;
    struct operands *to = begin(&l, stream, WORK(geglu_forward), sizeof *to);

    to->t[0] = tensor(&l, out);
    to->t[1] = tensor(&l, gate_up);
    return end(&l);
}

static status WORK(geglu_backward)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->geglu_backward(device_stream(owner), to->t[0],
                                         to->t[1], to->t[2]);
}

static status LAUNCHED(geglu_backward)(struct stream *stream,
                                       struct tensor dgate_up,
                                       struct tensor dout,
                                       struct tensor gate_up)
{
    struct launch l;
    struct operands *to = begin(&l, stream, WORK(geglu_backward), sizeof *to);

    to->t[0] = tensor(&l, dgate_up);
    to->t[1] = tensor(&l, dout);
    to->t[2] = tensor(&l, gate_up);
    return end(&l);
}

static status WORK(softcap_forward)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->softcap_forward(device_stream(owner), to->t[0],
                                          to->t[1], to->number);
}

static status LAUNCHED(softcap_forward)(struct stream *stream, struct tensor y,
                                        struct tensor x, double cap)
{
    struct launch l;
    struct operands *to = begin(&l, stream, WORK(softcap_forward), sizeof *to);

    to->t[0] = tensor(&l, y);
    to->t[1] = tensor(&l, x);
    to->number = cap;
    return end(&l);
}

static status WORK(softcap_backward)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->softcap_backward(device_stream(owner), to->t[0],
                                           to->t[1], to->number);
}

static status LAUNCHED(softcap_backward)(struct stream *stream,
                                         struct tensor dx, struct tensor y,
                                         double cap)
{
    struct launch l;
    struct operands *to = begin(&l, stream, WORK(softcap_backward), sizeof *to);

    to->t[0] = tensor(&l, dx);
    to->t[1] = tensor(&l, y);
    to->number = cap;
    return end(&l);
}

static status WORK(activation_forward)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->activation_forward(
        device_stream(owner), to->t[0], to->t[1], (enum activation)to->leaves);
}

static status LAUNCHED(activation_forward)(struct stream *stream,
                                           struct tensor y, struct tensor x,
                                           enum activation kind)
{
    struct launch l;
    struct operands *to =
        begin(&l, stream, WORK(activation_forward), sizeof *to);

    to->t[0] = tensor(&l, y);
    to->t[1] = tensor(&l, x);
    to->leaves = (int)kind;
    return end(&l);
}

static status WORK(activation_backward)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->activation_backward(device_stream(owner), to->t[0],
                                              to->t[1], to->t[2],
                                              (enum activation)to->leaves);
}

static status LAUNCHED(activation_backward)(struct stream *stream,
                                            struct tensor dx, struct tensor dy,
                                            struct tensor x,
                                            enum activation kind)
{
    struct launch l;
    struct operands *to =
        begin(&l, stream, WORK(activation_backward), sizeof *to);

    to->t[0] = tensor(&l, dx);
    to->t[1] = tensor(&l, dy);
    to->t[2] = tensor(&l, x);
    to->leaves = (int)kind;
    return end(&l);
}

static status WORK(gather_rows)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->gather_rows(device_stream(owner), to->t[0], to->flag,
                                      to->t[1], to->list);
}

static status LAUNCHED(gather_rows)(struct stream *stream, struct tensor out,
                                    bool adds, struct tensor table,
                                    const int32_t *index)
{
    struct launch l;
    struct operands *to = begin(&l, stream, WORK(gather_rows), sizeof *to);

    to->t[0] = tensor(&l, out);
    to->t[1] = tensor(&l, table);
    to->flag = adds;
    to->list = tokens(&l, index, out.shape[0]);
    return end(&l);
}

static status WORK(scatter_rows)(void *owner, void *told)
{
    struct operands *to = told;

    return BEHIND(owner)->scatter_rows(device_stream(owner), to->t[0], to->t[1],
                                       to->list, &to->order);
}

static status LAUNCHED(scatter_rows)(struct stream *stream,
                                     struct tensor dtable, struct tensor dout,
                                     const int32_t *index,
                                     const struct token_order *order)
{
    struct launch l;
    struct operands *to = begin(&l, stream, WORK(scatter_rows), sizeof *to);

    to->t[0] = tensor(&l, dtable);
    to->t[1] = tensor(&l, dout);
    to->list = tokens(&l, index, dout.shape[0]);
    to->order = *order;
    return end(&l);
}
