/* SPDX-License-Identifier: Apache-2.0 */
/* attended.c - gives attention to a library of the GPU.
 *
 * A call of the library has one sequence, and query heads of one leaf, or some
 * of those (attended_heads): no layout cuts it, so no layout shows. */
#include "kernels/cuda/attended.h"

#include "device/gpu.h"

static bool is_pair(const struct tensor *k, const struct tensor *v, int width)
{
    return attended_is_heads(k, width) && attended_is_heads(v, width) &&
           k->stride[0] == v->stride[0];
}

/* Whole sequences, whose weights are those of a softmax of scores. */
static bool is_plain(const struct attention *p)
{
    return attended_is_whole(p) && p->delta.data == NULL &&
           p->softcap == 0 && p->chunk == 0 && p->drop.rate == 0 &&
           p->alibi.heads == 0;
}

/* Query heads of a leaf, and of a key-value head. */
struct heads { int leaf, group; };

static struct heads heads_of(const struct attention *p)
{
    return (struct heads){p->heads / p->leaves, p->heads / p->kv_heads};
}

static bool takes(struct stream *stream, const struct attention *p)
{
    const int width = p->head_width;

    return stream->gpu != NULL && gpu_has_attention(stream->gpu, p->queries) &&
           is_plain(p) && width % ATTENDED_WIDTH_STEP == 0 &&
           width <= ATTENDED_WIDTH_MOST && p->leaves >= 1 &&
           attended_is_heads(&p->q, width) && is_pair(&p->k, &p->v, width) &&
           attended_is_heads(&p->out, width) && p->lse.stride[1] == 1;
}

static struct attended_form form_of(const struct attention *p)
{
    const struct heads of = heads_of(p);
    const int heads = attended_heads(p->queries, of.leaf, of.group);
    const int64_t window = p->window < p->queries ? p->window : 0;

    return (struct attended_form){
        .length = p->queries, .window = window, .heads = heads,
        .kv_heads = heads > of.group ? heads / of.group : 1,
        .width = p->head_width, .documents = p->query_documents != NULL,
        .q_row = p->q.stride[0], .k_row = p->k.stride[0],
        .out_row = p->out.stride[0], .statistics_row = p->lse.stride[0]};
}

static void *at(const struct tensor *t, int64_t row, int head)
{
    return (char *)t->data + (row * t->stride[0] + head * t->stride[1]) *
                                 dtype_bytes(t->dtype);
}

/* The sequence, and the call's query heads from `head` on. */
static struct gpu_attended call_of(const struct attention *p,
                                   const struct attended_form *form,
                                   int64_t sequence, int head)
{
    const int64_t row = sequence * p->queries;
    const int kv = head / heads_of(p).group;
    struct gpu_attended call = {
        .form = *form, .q = at(&p->q, row, head), .k = at(&p->k, row, kv),
        .v = at(&p->v, row, kv), .out = at(&p->out, row, head),
        .statistics = at(&p->lse, row, head), .scale = (float)p->scale};

    if (p->query_documents != NULL)
        call.of_document = p->query_documents + row;
    if (form->backward == 0) return call;
    call.dout = at(&p->dout, row, head);
    call.dq = at(&p->dq, row, head);
    call.dk = at(&p->dk, row, kv);
    call.dv = at(&p->dv, row, kv);
    return call;
}

static status run(struct stream *stream, const struct attention *p,
                  const struct attended_form *form, bool *done)
{
    TRY(gpu_attends(stream->gpu, form, done));
    if (!*done) return OK;
    for (int64_t s = 0; s < p->sequences; s++)
        for (int head = 0; head < p->heads; head += form->heads) {
            const struct gpu_attended call = call_of(p, form, s, head);

            TRY(gpu_attend(stream->gpu, &call));
        }
    return OK;
}

/* A leaf has whole groups, or a group whole leaves. */
status cuda_attended_forward(struct stream *stream, const struct attention *p,
                             bool *done)
{
    *done = false;
    if (!takes(stream, p)) return OK;
    const struct heads of = heads_of(p);

    if (of.leaf % of.group != 0 && of.group % of.leaf != 0) return OK;
    const struct attended_form form = form_of(p);

    return run(stream, p, &form, done);
}

/* Sums over the query heads of a key-value head that several leaves have are
 * made by our own kernels, by the tree; so are those whose ranks add them:
 * their dk and dv are float32. */
status cuda_attended_backward(struct stream *stream,
                              const struct attention *p, bool *done)
{
    *done = false;
    if (!takes(stream, p)) return OK;
    const struct heads of = heads_of(p);

    if (of.leaf % of.group != 0 ||
        !attended_is_heads(&p->dout, p->head_width) ||
        !attended_is_heads(&p->dq, p->head_width) ||
        !is_pair(&p->dk, &p->dv, p->head_width))
        return OK;
    struct attended_form form = form_of(p);

    form.backward = 1;
    form.dq_row = p->dq.stride[0];
    form.dk_row = p->dk.stride[0];
    form.dout_row = p->dout.stride[0];
    return run(stream, p, &form, done);
}
