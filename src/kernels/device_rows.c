/* SPDX-License-Identifier: Apache-2.0 */
/* device_rows.c - every row of struct kernels on a device that is apart from
 * the host: the call is copied, what it points to is copied or looked up on the
 * device, and the device's queue runs the row later.
 *
 * Three kinds of arguments:
 *   tensor, where()  memory of the device, nothing else
 *   told()           arguments that the thread which starts the kernel reads,
 *                    such as the order of a sum: copied
 *   list()           a list of the host's that the kernel reads, such as
 *                    tokens: copied to where it does; may lie on the device
 *   shared()         host memory that the kernel writes, such as losses: the
 *                    host reads it after device_finish; or the device's */
#include "device/queue.h"
#include "kernels/kernels.h"

#include <string.h>
#include "kernels/codes.h"

struct launch {
    struct device *device;
    struct queue *queue;
};

static void *begin(struct launch *l, const struct stream *stream,
                   queue_work *work, size_t bytes)
{
    l->device = stream->device;
    l->queue = device_kernels(stream->device);
    return queue_begin(l->queue, work, bytes);
}

static status end(const struct launch *l)
{
    queue_end(l->queue);
    return OK;
}

static void *where(const struct launch *l, const void *at)
{
    void *near;

    if (at == NULL) return NULL;
    near = device_near(l->device, at);
    CHECK(near != NULL); /* a kernel was given memory of the host */
    return near;
}

static struct tensor tensor(const struct launch *l, struct tensor t)
{
    t.data = tensor_count(&t) == 0 ? NULL : where(l, t.data);
    return t;
}

/* A tensor that a call may lack: without data, or NULL. */
static struct tensor maybe(const struct launch *l, struct tensor t)
{
    return t.data == NULL ? t : tensor(l, t);
}

static const struct tensor *beside(const struct launch *l, struct tensor *copy,
                                   const struct tensor *at)
{
    if (at == NULL) return NULL;
    *copy = tensor(l, *at);
    return copy;
}

static const void *told(const struct launch *l, const void *at, size_t bytes)
{
    void *copy;

    if (at == NULL) return NULL;
    CHECK(device_near(l->device, at) == NULL);
    copy = queue_more(l->queue, bytes);
    memcpy(copy, at, bytes);
    return copy;
}

static const void *list(const struct launch *l, const void *at, size_t bytes)
{
    void *near;

    if (at == NULL) return NULL;
    near = device_near(l->device, at);
    return near != NULL ? near : device_tell(l->device, at, bytes);
}

static void *shared(const struct launch *l, void *at, size_t bytes)
{
    void *near = at == NULL ? NULL : device_near(l->device, at);

    if (near != NULL || at == NULL) return near;
    return device_lend(l->device, at, bytes, false);
}

/* Memory that is set, not added to. */
static void *set_later(const struct launch *l, void *at, size_t bytes)
{
    void *near = at == NULL ? NULL : device_near(l->device, at);

    if (near != NULL || at == NULL) return near;
    return device_lend(l->device, at, bytes, true);
}

static const int32_t *tokens(const struct launch *l, const int32_t *at,
                             int64_t count)
{
    return list(l, at, (size_t)count * sizeof *at);
}

static struct sum_order order_of(const struct launch *l,
                                 const struct sum_order *order)
{
    struct sum_order copy = *order;

    copy.segments = told(l, order->segments,
                         (size_t)order->segment_count * sizeof *copy.segments);
    return copy;
}

/* ---- calls with more than tensors ---- */

static struct norm_after norm_of(const struct launch *l,
                                 const struct norm_after *norm)
{
    return (struct norm_after){
        norm->layer, tensor(l, norm->y), tensor(l, norm->stats),
        tensor(l, norm->weight), maybe(l, norm->bias), norm->epsilon};
}

struct matmul_told {
    struct matmul call;
    struct sum_order order;
    struct tensor bias, left;
    struct norm_after norm;
};

static void tell_matmul(const struct launch *l, struct matmul_told *to,
                        const struct matmul *call)
{
    to->call = *call;
    to->call.a = tensor(l, call->a);
    to->call.b = tensor(l, call->b);
    to->call.c = tensor(l, call->c);
    to->order = order_of(l, call->order);
    to->call.order = &to->order;
    to->call.accumulator =
        told(l, call->accumulator, sizeof *call->accumulator);
    to->call.bias = beside(l, &to->bias, call->bias);
    to->call.left = beside(l, &to->left, call->left);
    if (call->norm == NULL) return;
    to->norm = norm_of(l, call->norm);
    to->call.norm = &to->norm;
}

/* Rows of the last sequence end with what is used. */
static int64_t rows_used(int64_t sequences, int64_t used, int64_t stride)
{
    return (sequences - 1) * (stride > 0 ? stride : used) + used;
}

static struct attention attention_of(const struct launch *l,
                                     const struct attention *call)
{
    const int64_t queries = rows_used(call->sequences, call->queries,
                                      call->query_stride);
    const int64_t keys = rows_used(call->sequences, call->keys,
                                   call->key_stride);
    struct attention copy = *call;
    struct tensor *const all[] = {&copy.q, &copy.k, &copy.v, &copy.out,
                                  &copy.lse, &copy.dq, &copy.dk, &copy.dv,
                                  &copy.dout, &copy.denominator, &copy.delta};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        *all[i] = maybe(l, *all[i]);
    copy.query_documents = tokens(l, call->query_documents, queries);
    copy.key_documents = copy.query_documents;
    if (call->key_documents != call->query_documents || keys != queries)
        copy.key_documents = tokens(l, call->key_documents, keys);
    copy.peaks = shared(l, call->peaks, (size_t)call->heads * (size_t)
                        dtype_bytes(dtype_real(call->q.dtype)));
    return copy;
}

static struct attention_node node_of(const struct launch *l,
                                     const struct attention_node *node)
{
    return (struct attention_node){tensor(l, node->values),
                                   tensor(l, node->maximum),
                                   tensor(l, node->denominator)};
}

static struct dropout dropout_of(const struct launch *l,
                                 const struct dropout *call)
{
    struct dropout copy = *call;

    copy.y = tensor(l, call->y);
    copy.x = tensor(l, call->x);
    copy.left = maybe(l, call->left);
    copy.rows = list(l, call->rows,
                     (size_t)call->y.shape[0] * sizeof *call->rows);
    return copy;
}

static struct jitter jitter_of(const struct launch *l,
                               const struct jitter *call)
{
    struct jitter copy = *call;

    copy.y = tensor(l, call->y);
    copy.x = tensor(l, call->x);
    copy.rows = list(l, call->rows,
                     (size_t)call->y.shape[0] * sizeof *call->rows);
    return copy;
}

static const struct quantize_span *spans(const struct launch *l,
                                         const struct quantize_span *at,
                                         int64_t count)
{
    return told(l, at, (size_t)count * sizeof *at);
}

static struct quantize quantize_of(const struct launch *l,
                                   const struct quantize *call)
{
    struct quantize copy = *call;

    copy.out = tensor(l, call->out);
    copy.in = tensor(l, call->in);
    copy.rows = spans(l, call->rows, call->row_spans);
    copy.cols = spans(l, call->cols, call->col_spans);
    copy.places = told(l, call->places,
                       (size_t)call->in.shape[0] * sizeof *call->places);
    copy.peaks = shared(l, call->peaks,
                        (size_t)(call->row_spans * call->col_spans) *
                            sizeof *call->peaks);
    copy.scales = where(l, call->scales);
    copy.tally = shared(l, call->tally, sizeof *call->tally);
    copy.seen = shared(l, call->seen, sizeof *call->seen);
    return copy;
}

static struct block_coding coding_of(const struct launch *l,
                                     struct block_coding coding)
{
    coding.rows = spans(l, coding.rows, coding.row_spans);
    coding.cols = spans(l, coding.cols, coding.col_spans);
    return coding;
}

/* The address of what begins `before` bytes ahead of the device's memory. */
static void *where_behind(const struct launch *l, const void *at,
                          int64_t before)
{
    return (char *)where(l, (const char *)at + before) - before;
}

/* Elements of a divided matrix are here from `first` on: element 0
 * may lie anywhere. */
static struct block_encode encode_of(const struct launch *l,
                                     const struct block_encode *call)
{
    struct block_encode copy = *call;
    const int64_t cols = call->in.shape[1], first = call->first;
    const int64_t bits = number_formats[call->coding.format].bits;

    copy.coding = coding_of(l, call->coding);
    copy.peaks = shared(l, call->peaks,
                        (size_t)coding_blocks(&call->coding) *
                            sizeof *call->peaks);
    copy.sums = shared(l, call->sums,
                       (size_t)(coding_blocks(&call->coding) * CODE_SUMS) *
                           sizeof *call->sums);
    copy.scales = where(l, call->scales);
    copy.most = where(l, call->most);
    if (call->last > 0 && call->last <= first) { /* none are: nobody reads */
        copy.in.data = copy.scales;
        copy.codes = copy.scales;
        return copy;
    }
    if (first == 0) copy.in = tensor(l, call->in);
    else copy.in.data = where_behind(l, call->in.data,
                                     first * dtype_bytes(call->in.dtype));
    copy.codes = call->codes == NULL ? NULL
        : where_behind(l, call->codes, first / cols * call->row_bytes +
                                           first % cols * bits / 8);
    return copy;
}

static struct block_decode decode_of(const struct launch *l,
                                     const struct block_decode *call)
{
    struct block_decode copy = *call;

    copy.out = tensor(l, call->out);
    copy.out_scales = where(l, call->out_scales);
    copy.coding = coding_of(l, call->coding);
    copy.scales = where(l, call->scales);
    copy.codes = where(l, call->codes);
    copy.most = where(l, call->most);
    copy.seen = shared(l, call->seen, sizeof *call->seen);
    return copy;
}

static struct rotate rotate_of(const struct launch *l,
                               const struct rotate *call)
{
    struct rotate copy = *call;

    copy.out = tensor(l, call->out);
    copy.in = tensor(l, call->in);
    copy.rows = spans(l, call->rows, call->row_spans);
    copy.cols = spans(l, call->cols, call->col_spans);
    return copy;
}

struct integer_told {
    struct integer_product call;
    struct sum_order order;
    struct tensor bias, left;
};

static void tell_integers(const struct launch *l, struct integer_told *to,
                          const struct integer_product *call)
{
    to->call = *call;
    to->call.c = tensor(l, call->c);
    to->call.a = tensor(l, call->a);
    to->call.b = tensor(l, call->b);
    to->call.a_scales = where(l, call->a_scales);
    to->call.b_scales = where(l, call->b_scales);
    to->order = order_of(l, call->order);
    to->call.order = &to->order;
    to->call.bias = beside(l, &to->bias, call->bias);
    to->call.left = beside(l, &to->left, call->left);
}

struct unrotate_told { struct unrotate call; struct tensor left; };

static void tell_unrotate(const struct launch *l, struct unrotate_told *to,
                          const struct unrotate *call)
{
    to->call = *call;
    to->call.out = tensor(l, call->out);
    to->call.gradient = tensor(l, call->gradient);
    to->call.x = tensor(l, call->x);
    to->call.cols = spans(l, call->cols, call->col_spans);
    to->call.left = beside(l, &to->left, call->left);
}

static struct cross_entropy cross_entropy_of(const struct launch *l,
                                             const struct cross_entropy *call)
{
    const int64_t n = call->logits.shape[0];
    const bool ends = call->phase == LOSS_WHOLE || call->phase == LOSS_END;
    struct cross_entropy copy = *call;

    copy.logits = tensor(l, call->logits);
    copy.targets = tokens(l, call->targets, n);
    if (ends) {
        copy.losses = set_later(l, call->losses,
                                (size_t)n * sizeof *call->losses);
        copy.z_losses = set_later(l, call->z_losses,
                                  (size_t)n * sizeof *call->z_losses);
    }
    copy.maximum = where(l, call->maximum);
    copy.target = where(l, call->target);
    copy.sum = where(l, call->sum);
    return copy;
}

static struct router router_of(const struct launch *l,
                               const struct router *call)
{
    struct router copy = *call;

    copy.logits = tensor(l, call->logits);
    copy.gates = tensor(l, call->gates);
    copy.bias = list(l, call->bias,
                     (size_t)call->form.experts *
                         (size_t)dtype_bytes(call->logits.dtype));
    copy.chosen = shared(l, call->chosen,
                         (size_t)(call->logits.shape[0] *
                                  call->form.choices) * sizeof *call->chosen);
    return copy;
}

static struct router_losses losses_of(const struct launch *l,
                                      const struct router_losses *call)
{
    const int64_t n = call->logits.shape[0];
    struct router_losses copy = *call;

    copy.logits = tensor(l, call->logits);
    copy.weights = list(l, call->weights,
                        call->length == 0
                            ? 0 : (size_t)(n / call->length) *
                                      (size_t)call->form.experts *
                                      sizeof *call->weights);
    copy.mask = tokens(l, call->mask, n);
    copy.balance = shared(l, call->balance, (size_t)n * sizeof(double));
    copy.z = shared(l, call->z, (size_t)n * sizeof(double));
    copy.dlogits = maybe(l, call->dlogits);
    copy.dgates = maybe(l, call->dgates);
    copy.gates = maybe(l, call->gates);
    copy.chosen = tokens(l, call->chosen, n * call->form.choices);
    return copy;
}

/* ---- mixtures of experts: lists that the host makes ---- */

static struct expert_groups groups_of(const struct launch *l,
                                      const struct expert_groups *groups)
{
    struct expert_groups copy = *groups;

    if (groups->offsets != NULL &&
        device_near(l->device, groups->offsets) == NULL)
        copy.counted = told(l, groups->offsets, (size_t)(groups->experts + 1) *
                                                    sizeof *copy.counted);
    copy.offsets = tokens(l, groups->offsets, groups->experts + 1);
    copy.entries = copy.offsets == NULL ||
                           device_near(l->device, groups->offsets) != NULL
                       ? where(l, groups->entries)
                       : tokens(l, groups->entries,
                                groups->offsets[groups->experts]);
    return copy;
}

struct grouped_sum {
    struct expert_groups groups;
    struct sum_order order;
};

static void tell_sum(const struct launch *l, struct grouped_sum *to,
                     const struct expert_groups *groups,
                     const struct sum_order *order)
{
    to->groups = groups_of(l, groups);
    to->order = order_of(l, order);
}

static struct expert_rows rows_of(const struct launch *l,
                                  struct expert_rows rows)
{
    rows.matrix = tensor(l, rows.matrix);
    rows.scales = where(l, rows.scales);
    return rows;
}

struct product_told {
    struct experts_product call;
    struct grouped_sum sum;
};

static void tell_product(const struct launch *l, struct product_told *to,
                         const struct experts_product *call)
{
    to->call = *call;
    tell_sum(l, &to->sum, call->groups, call->order);
    to->call.groups = &to->sum.groups;
    to->call.order = &to->sum.order;
    to->call.accumulator =
        told(l, call->accumulator, sizeof *call->accumulator);
    to->call.c = tensor(l, call->c);
    to->call.a = rows_of(l, call->a);
    to->call.b = tensor(l, call->b);
    to->call.bias = maybe(l, call->bias);
}

struct gradient_told {
    struct experts_gradient call;
    struct grouped_sum sum;
};

static void tell_gradient(const struct launch *l, struct gradient_told *to,
                          const struct experts_gradient *call)
{
    to->call = *call;
    tell_sum(l, &to->sum, call->groups, call->order);
    to->call.groups = &to->sum.groups;
    to->call.order = &to->sum.order;
    to->call.accumulator =
        told(l, call->accumulator, sizeof *call->accumulator);
    to->call.c = tensor(l, call->c);
    to->call.a = rows_of(l, call->a);
    to->call.b = rows_of(l, call->b);
}

struct sums_told {
    struct experts_sums call;
    struct grouped_sum sum;
};

static void tell_sums(const struct launch *l, struct sums_told *to,
                      const struct experts_sums *call)
{
    to->call = *call;
    tell_sum(l, &to->sum, call->groups, call->order);
    to->call.groups = &to->sum.groups;
    to->call.order = &to->sum.order;
    to->call.c = tensor(l, call->c);
    to->call.a = rows_of(l, call->a);
}

struct combine_told { struct experts_combine call; struct tensor left; };

static void tell_combine(const struct launch *l, struct combine_told *to,
                         const struct experts_combine *call)
{
    const int64_t n = call->y.shape[0] * call->choices;

    to->call = *call;
    to->call.y = tensor(l, call->y);
    to->call.rows = tensor(l, call->rows);
    to->call.places = tokens(l, call->places, n);
    to->call.numbers = tokens(l, call->numbers, n);
    to->call.gates = where(l, call->gates);
    to->call.left = beside(l, &to->left, call->left);
}

static struct experts_gates gates_of(const struct launch *l,
                                     const struct experts_gates *call)
{
    struct experts_gates copy = *call;

    copy.dgates = tensor(l, call->dgates);
    copy.dy = tensor(l, call->dy);
    copy.rows = tensor(l, call->rows);
    copy.places = tokens(l, call->places,
                         call->dy.shape[0] * call->choices);
    return copy;
}

static struct clamped_glu clamped_of(const struct launch *l,
                                     const struct clamped_glu *call)
{
    struct clamped_glu copy = *call;
    struct tensor *const all[] = {&copy.out, &copy.gate_up, &copy.dout,
                                  &copy.dgate_up};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        *all[i] = maybe(l, *all[i]);
    return copy;
}

/* ---- the optimizer ---- */

#include "kernels/device_rows_updates.h"

/* Calls of tensors and little else. */
enum { OPERANDS = 9 };
struct operands {
    struct tensor t[OPERANDS];
    struct token_order order;
    struct fixed fixed;
    const int32_t *list;
    double *sums;
    double number;
    int leaves, parts;
    bool flag;
};

static size_t squares_blocks(const struct tensor *x)
{
    return (size_t)((tensor_count(x) + SQUARES_BLOCK - 1) / SQUARES_BLOCK);
}

/* ---- the two tables ---- */

/* COPY: the row, the struct of its call, and the function that copies it; TELL:
 * the copy is a member of a larger struct, which the function fills. */
#define LAUNCHED_CALLS(COPY, TELL) \
    TELL(matmul, matmul, matmul_told, tell_matmul) \
    TELL(unrotate, unrotate, unrotate_told, tell_unrotate) \
    TELL(experts_product, experts_product, product_told, tell_product) \
    TELL(experts_gradient, experts_gradient, gradient_told, tell_gradient) \
    TELL(experts_sums, experts_sums, sums_told, tell_sums) \
    TELL(experts_combine, experts_combine, combine_told, tell_combine) \
    COPY(attention_forward, attention, attention_of) \
    COPY(attention_backward, attention, attention_of) \
    COPY(attention_delta, attention, attention_of) \
    COPY(dropout, dropout, dropout_of) \
    COPY(jitter, jitter, jitter_of) \
    COPY(quantize, quantize, quantize_of) \
    COPY(block_encode, block_encode, encode_of) \
    COPY(block_decode, block_decode, decode_of) \
    COPY(rotate, rotate, rotate_of) \
    COPY(cross_entropy, cross_entropy, cross_entropy_of) \
    COPY(router_choose, router, router_of) \
    COPY(router_losses, router_losses, losses_of) \
    COPY(router_backward, router_losses, losses_of) \
    COPY(experts_gates, experts_gates, gates_of) \
    COPY(clamped_forward, clamped_glu, clamped_of) \
    COPY(clamped_backward, clamped_glu, clamped_of) \
    COPY(adamw, adamw, adamw_of) \
    COPY(update_elements, element_update, update_of) \
    COPY(descend, descent, descent_of) \
    COPY(factored, factored, factored_of) \
    COPY(turned, turned, turned_of) \
    COPY(masters_join, masters, masters_of) \
    COPY(masters_split, masters, masters_of) \
    TELL(integer_product, integer_product, integer_told, tell_integers)

#define LAUNCH_COPY(row, type, copy_of)                                    \
    static status WORK(row)(void *owner, void *told)                       \
    {                                                                      \
        return BEHIND(owner)->row(device_stream(owner), told);             \
    }                                                                      \
                                                                           \
    static status LAUNCHED(row)(struct stream *stream,                     \
                                const struct type *call)                   \
    {                                                                      \
        struct launch l;                                                   \
        struct type *to = begin(&l, stream, WORK(row), sizeof *to);        \
                                                                           \
        *to = copy_of(&l, call);                                           \
        return end(&l);                                                    \
    }

#define LAUNCH_TELL(row, type, whole, tell)                                \
    static status WORK(row)(void *owner, void *told)                       \
    {                                                                      \
        const struct whole *to = told;                                     \
                                                                           \
        return BEHIND(owner)->row(device_stream(owner), &to->call);        \
    }                                                                      \
                                                                           \
    static status LAUNCHED(row)(struct stream *stream,                     \
                                const struct type *call)                   \
    {                                                                      \
        struct launch l;                                                   \
        struct whole *to = begin(&l, stream, WORK(row), sizeof *to);       \
                                                                           \
        tell(&l, to, call);                                                \
        return end(&l);                                                    \
    }

#define LAUNCHED(row) launched_##row##_first
#define WORK(row) work_##row##_first
#define BEHIND(owner) (&device_stream(owner)->behind[0])
LAUNCHED_CALLS(LAUNCH_COPY, LAUNCH_TELL)
#include "kernels/device_rows_operands.h"
#undef LAUNCHED
#undef WORK
#undef BEHIND
#define LAUNCHED(row) launched_##row##_second
#define WORK(row) work_##row##_second
#define BEHIND(owner) (&device_stream(owner)->behind[1])
LAUNCHED_CALLS(LAUNCH_COPY, LAUNCH_TELL)
#include "kernels/device_rows_operands.h"

void kernels_launch(struct kernels *table, struct kernels *real,
                    struct kernels *behind, struct stream *stream)
{
    behind[0] = *table;
    behind[1] = *real;
    stream->behind = behind;
    table->strips = real->strips = (struct strips){0};
#define LAUNCH_FIRST(row) table->row = launched_##row##_first;
    KERNELS_ROWS(LAUNCH_FIRST)
#define LAUNCH_SECOND(row) real->row = launched_##row##_second;
    KERNELS_ROWS(LAUNCH_SECOND)
}
