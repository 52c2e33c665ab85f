/* SPDX-License-Identifier: Apache-2.0 */
/* updates.c - one step of optimizers that see each weight alone.
 *
 * Threads take blocks of UPDATE_BLOCK elements. One loop reads LANES elements
 * of each array, works on them and stores them, wherever the old numbers lie:
 * new ones that lie apart from them go past the caches. It adds them up, if it
 * is asked to. What is not float32 passes through a copy of its block in the
 * first cache. */
#include <math.h>
#include <stdbool.h>
#include "base/range_sum.h"
#include "kernels/code8.h"
#include "kernels/cpu/masters_block.h"
#include "kernels/cpu/stream_out.h"
#include "kernels/element.h"
#include "kernels/view.h"

enum { AHEAD = 256 }; /* elements, of a line that is read */
_Static_assert((int)LANES == (int)RANGE_SUM_WORDS, "a line is one of the sum");

struct update_constants {
    float scale, beta1, beta2, rest1, rest2, epsilon, root, step, keep, decay,
          lr, share, push;
};

struct update_job {
    const struct element_update *p;
    struct update_constants c;
    struct view weight, gradient, copy;
    struct masters_block masters; /* weights NULL: none */
    int64_t states_from; /* bytes, as p->from */
    bool counts;         /* new numbers are added up, */
    bool counts_states;  /* those of states, too */
    int64_t count;
    int64_t at_once;     /* elements of a block */
    float tables[UPDATE_STATES][CODE8_COUNT];
    struct code8_bins bins[UPDATE_STATES];
};

/* An array of float32 that a step reads and writes. */
struct update_array {
    const float *old; /* NULL: the formula has none */
    float *now;
    bool counted;     /* new ones are added up */
};

/* Adjacent elements of all arrays. */
struct update_run {
    struct update_array w, a, b;
    const float *g;
    void *copy;       /* NULL: none */
    enum dtype copy_dtype;
    int64_t count;
    bool past;        /* new ones lie apart: they go past the caches */
    const struct range_sum *sum;
    const char *base; /* of the sum */
    uint64_t total;   /* of what was written */
};

/* ---- formulas: kernels/reference/updates.c has the sources ---- */

ELEMENTARY void step_adamw(const struct update_constants *c, float gradient,
                           float *w, float *a, float *b)
{
    const float g = gradient * c->scale;
    const float m = __builtin_fmaf(c->beta1, *a, c->rest1 * g);
    const float v = __builtin_fmaf(c->beta2, *b, c->rest2 * g * g);

    *a = m;
    *b = v;
    *w = __builtin_fmaf(
        c->step, m / __builtin_fmaf(__builtin_sqrtf(v), c->root, c->epsilon),
        *w * c->keep);
}

ELEMENTARY void step_lion(const struct update_constants *c, float gradient,
                          float *w, float *a)
{
    const float g = gradient * c->scale;
    const float u = __builtin_fmaf(c->beta1, *a, c->rest1 * g);
    const float sign = u > 0 ? 1.0f : u < 0 ? -1.0f : 0.0f;

    *w = __builtin_fmaf(c->lr, sign, *w * c->keep);
    *a = __builtin_fmaf(c->beta2, *a, c->rest2 * g);
}

ELEMENTARY void step_sgd(const struct update_constants *c, float gradient,
                         float *w, float *a)
{
    const float g = __builtin_fmaf(c->decay, *w, gradient * c->scale);
    const float m = __builtin_fmaf(c->beta1, *a, g);

    *a = m;
    *w = __builtin_fmaf(c->lr, __builtin_fmaf(c->beta1, m, g), *w);
}

ELEMENTARY void step_momentum(const struct update_constants *c, float gradient,
                              float *w, float *a)
{
    const float g = gradient * c->scale;
    const float m = __builtin_fmaf(c->beta1, *a, c->rest1 * g);

    *a = m;
    *w = c->share > 0 ? __builtin_fmaf(c->beta1, m, c->rest1 * g) : m;
}

ELEMENTARY void step_free(const struct update_constants *c, float gradient,
                          float *w, float *a, float *b)
{
    const float g = gradient * c->scale, z = *a;
    const float v = __builtin_fmaf(c->beta2, *b, c->rest2 * g * g);
    float y = *w, u;

    u = g / __builtin_fmaf(__builtin_sqrtf(v), c->root, c->epsilon);
    u = __builtin_fmaf(c->decay, y, u);
    y = __builtin_fmaf(c->share, z - y, y);
    *b = v;
    *w = __builtin_fmaf(c->push, u, y);
    *a = __builtin_fmaf(c->lr, u, z);
}

ELEMENTARY void step_towards(const struct update_constants *c, float *w,
                             const float *a)
{
    *w = __builtin_fmaf(c->share, *a - *w, *w);
}

ELEMENTARY void step_average(const struct update_constants *c, float *w,
                             const float *a)
{
    *w = *w + c->share * (*a - *w);
}

/* States that a formula reads. */
ELEMENTARY int inputs_of(enum update_formula f)
{
    return f == UPDATE_ADAMW || f == UPDATE_FREE ? 2 : 1;
}

/* Two formulas read theirs, and let them stay. */
ELEMENTARY bool writes_states(enum update_formula f)
{
    return f != UPDATE_TOWARDS && f != UPDATE_AVERAGE;
}

/* One element with states a and b, whose gradient is g. f: a constant. */
ELEMENTARY void step_element(enum update_formula f,
                             const struct update_constants *c, float g,
                             float *w, float *a, float *b)
{
    switch (f) {
    case UPDATE_ADAMW: step_adamw(c, g, w, a, b); break;
    case UPDATE_LION: step_lion(c, g, w, a); break;
    case UPDATE_SGD: step_sgd(c, g, w, a); break;
    case UPDATE_MOMENTUM: step_momentum(c, g, w, a); break;
    case UPDATE_FREE: step_free(c, g, w, a, b); break;
    case UPDATE_TOWARDS: step_towards(c, w, a); break;
    case UPDATE_AVERAGE: step_average(c, w, a); break;
    }
}

/* ---- lines of LANES elements ---- */

/* Adds up what was written. */
static void count_in(struct update_run *x, const void *at, const void *data,
                     size_t bytes)
{
    if (x->sum != NULL) x->total += range_sum_of(x->sum, at, data, bytes);
}

/* A line is asked for before it is needed, which takes a twentieth off the time
 * of a step that writes apart. */
ELEMENTARY void line_ahead(const float *from)
{
    __builtin_prefetch(from + AHEAD, 0, 3);
}

ELEMENTARY void line_count(struct range_sum_lines *lines, float *at,
                           const float *line, bool past)
{
    range_sum_line(lines, line);
    if (past) stream_line((char *)at, (const char *)line);
    else memcpy(at, line, LANES * sizeof *line);
}

static size_t place_of(const struct update_run *x, const float *at)
{
    return (size_t)((uintptr_t)at - (uintptr_t)x->base);
}

/* The element at which the next page of the sum begins. */
static int64_t page_end(const struct update_run *x, const float *now, int64_t i)
{
    const size_t used = place_of(x, now + i) % RANGE_SUM_PAGE;

    return i + (int64_t)((RANGE_SUM_PAGE - used) / sizeof *now);
}

/* count: of elements, from `at` on. */
ELEMENTARY void page_count(struct update_run *x, const float *at,
                           int64_t count, const struct range_sum_lines *lines)
{
    x->total += range_sum_close(lines, place_of(x, at),
                                (size_t)(count / LANES));
}

ELEMENTARY void line_round(enum dtype dtype, void *copy, int64_t i,
                           const float *line, int n)
{
    SIMD for (int j = 0; j < n; j++) element_set(copy, dtype, i + j, line[j]);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Which new numbers are added up; whether they go past the caches. */
enum { WEIGHTS = 1, STATES = 2, PAST = 4 };

/* All whole lines of [first, x->count). Those that are added up are lines of
 * the cache. Where it ends. */
ELEMENTARY int64_t lines_whole(enum update_formula f,
                               const struct update_job *job,
                               struct update_run *x, int64_t first, int how)
{
    const bool weights = (how & WEIGHTS) != 0, states = (how & STATES) != 0;
    const bool past = (how & PAST) != 0;
    const struct update_constants c = job->c;
    const struct update_run r = *x;
    const bool writes = writes_states(f), two = inputs_of(f) > 1;
    int64_t i = first;

    while (i + LANES <= r.count) {
        const int64_t begin = i;
        int64_t end = r.count;
        struct range_sum_lines of_w = {0}, of_a = {0}, of_b = {0};

        if (weights) end = least(end, page_end(x, r.w.now, i));
        if (writes && states) end = least(end, page_end(x, r.a.now, i));
        if (two && states) end = least(end, page_end(x, r.b.now, i));
        for (; i + LANES <= end; i += LANES) {
            float w[LANES], a[LANES], b[LANES] = {0};

            if (weights) line_ahead(r.g + i);
            if (weights) line_ahead(r.w.old + i);
            if (states) line_ahead(r.a.old + i);
            if (two && states) line_ahead(r.b.old + i);
            memcpy(w, r.w.old + i, sizeof w);
            memcpy(a, r.a.old + i, sizeof a);
            if (two) memcpy(b, r.b.old + i, sizeof b);
            SIMD for (int j = 0; j < LANES; j++)
                step_element(f, &c, r.g[i + j], &w[j], &a[j], &b[j]);
            if (weights) line_count(&of_w, r.w.now + i, w, past);
            else memcpy(r.w.now + i, w, sizeof w);
            if (writes && states) line_count(&of_a, r.a.now + i, a, past);
            else if (writes) memcpy(r.a.now + i, a, sizeof a);
            if (two && states) line_count(&of_b, r.b.now + i, b, past);
            else if (two) memcpy(r.b.now + i, b, sizeof b);
            if (r.copy != NULL)
                ELEMENT_CHOOSE(r.copy_dtype, line_round, r.copy, i, w, LANES);
        }
        if (weights) page_count(x, r.w.now + begin, i - begin, &of_w);
        if (writes && states)
            page_count(x, r.a.now + begin, i - begin, &of_a);
        if (two && states)
            page_count(x, r.b.now + begin, i - begin, &of_b);
    }
    return i;
}

static void store(struct update_run *x, const struct update_array *to,
                  int64_t i, const float *line, int n)
{
    const size_t bytes = (size_t)n * sizeof *line;

    memcpy(to->now + i, line, bytes);
    if (to->counted) count_in(x, to->now + i, line, bytes);
}

/* Elements [first, last), whatever is known of them. */
ELEMENTARY void lines_any(enum update_formula f, const struct update_job *job,
                          struct update_run *x, int64_t first, int64_t last)
{
    const bool two = inputs_of(f) > 1;

    for (int64_t i = first; i < last; i += LANES) {
        const int n = last - i < LANES ? (int)(last - i) : LANES;
        const size_t bytes = (size_t)n * sizeof(float);
        float g[LANES] = {0}, w[LANES] = {0}, a[LANES] = {0}, b[LANES] = {0};

        memcpy(g, x->g + i, bytes);
        memcpy(w, x->w.old + i, bytes);
        memcpy(a, x->a.old + i, bytes);
        if (two) memcpy(b, x->b.old + i, bytes);
        SIMD for (int j = 0; j < LANES; j++)
            step_element(f, &job->c, g[j], &w[j], &a[j], &b[j]);
        store(x, &x->w, i, w, n);
        if (writes_states(f)) store(x, &x->a, i, a, n);
        if (two) store(x, &x->b, i, b, n);
        if (x->copy != NULL)
            ELEMENT_CHOOSE(x->copy_dtype, line_round, x->copy, i, w, n);
    }
}

/* Whether lines of an array are added up where lines of the weights are, and
 * lie in one page of the sum. */
static bool is_even(const struct update_run *x, const struct update_array *y)
{
    const uintptr_t at = (uintptr_t)y->now;

    return y->counted && (at - (uintptr_t)x->w.now) % STREAM_LINE == 0 &&
           (uintptr_t)x->base % STREAM_LINE == 0;
}

/* Lines begin where those of the cache do, if they are added up. */
ELEMENTARY void lines_step(enum update_formula f, const struct update_job *job,
                           struct update_run *x)
{
    const bool weights = is_even(x, &x->w);
    const bool states = !writes_states(f) ||
                        (is_even(x, &x->a) &&
                         (inputs_of(f) == 1 || is_even(x, &x->b)));
    const bool states_not = !x->a.counted && !x->b.counted;
    const int64_t before =
        weights ? (int64_t)(-(uintptr_t)x->w.now % STREAM_LINE / 4) : 0;
    const int64_t first = before < x->count ? before : x->count;
    int64_t i = first;

    lines_any(f, job, x, 0, first);
    if (weights && states && x->past)
        i = lines_whole(f, job, x, i, WEIGHTS | STATES | PAST);
    else if (weights && states)
        i = lines_whole(f, job, x, i, WEIGHTS | STATES);
    else if (weights && states_not && x->past)
        i = lines_whole(f, job, x, i, WEIGHTS | PAST);
    else if (weights && states_not)
        i = lines_whole(f, job, x, i, WEIGHTS);
    else if (!x->w.counted && states_not)
        i = lines_whole(f, job, x, i, 0);
    lines_any(f, job, x, i, x->count);
}

static void run_step(const struct update_job *job, struct update_run *x)
{
    switch (job->p->formula) {
    case UPDATE_ADAMW: lines_step(UPDATE_ADAMW, job, x); break;
    case UPDATE_LION: lines_step(UPDATE_LION, job, x); break;
    case UPDATE_SGD: lines_step(UPDATE_SGD, job, x); break;
    case UPDATE_MOMENTUM: lines_step(UPDATE_MOMENTUM, job, x); break;
    case UPDATE_FREE: lines_step(UPDATE_FREE, job, x); break;
    case UPDATE_TOWARDS: lines_step(UPDATE_TOWARDS, job, x); break;
    case UPDATE_AVERAGE: lines_step(UPDATE_AVERAGE, job, x); break;
    }
}

/* ---- 8 bits ---- */

static void codes_read(const float *table, const unsigned char *codes,
                       float scale, int64_t count, float *out)
{
    SIMD for (int64_t i = 0; i < count; i++) out[i] = table[codes[i]] * scale;
}

/* A maximum is exact, so its order is free. */
static float largest_of(const float *x, int64_t count)
{
    float lanes[LANES] = {0}, largest = 0;
    int64_t i = 0;

    for (; i + LANES <= count; i += LANES) {
        SIMD for (int j = 0; j < LANES; j++) {
            const float size = __builtin_fabsf(x[i + j]);

            lanes[j] = size > lanes[j] ? size : lanes[j];
        }
    }
    for (; i < count; i++) {
        const float size = __builtin_fabsf(x[i]);

        largest = size > largest ? size : largest;
    }
    for (int j = 0; j < LANES; j++)
        largest = lanes[j] > largest ? lanes[j] : largest;
    return largest;
}

ELEMENTARY void codes_of(const struct code8_bins *bins, int bits,
                         const float *x, float inverse, int64_t count,
                         unsigned char *codes)
{
    const struct code8_bins own = *bins;

    SIMD for (int64_t i = 0; i < count; i++)
        codes[i] = (unsigned char)code8_of(&own, bits, x[i], inverse);
}

static void codes_write(const struct update_job *job, int state,
                        int64_t first, const float *x, int64_t count)
{
    const struct element_state *to = &job->p->states[state];
    const struct code8_bins *bins = &job->bins[state];
    const float largest = largest_of(x, count);
    const float inverse = code8_inverse(largest);
    unsigned char *codes = (unsigned char *)to->values.data + first;

    to->scales[first / UPDATE_BLOCK] = inverse > 0 ? largest : 0;
    if (bins->bits == CODE8_SIGNED_BITS)
        codes_of(bins, CODE8_SIGNED_BITS, x, inverse, count, codes);
    else
        codes_of(bins, CODE8_BITS_MAX, x, inverse, count, codes);
}

/* ---- blocks ---- */

/* A block of a state: where it lies, or a copy that is filled. */
static struct update_array state_open(const struct update_job *job, int state,
                                      int64_t first, int64_t count,
                                      float *copy)
{
    const struct element_state *from = &job->p->states[state];
    const struct tensor *values = &from->values;
    const char *old = values->data;

    if (old == NULL) return (struct update_array){NULL, NULL, false};
    old += job->states_from;
    if (values->dtype == DTYPE_F32)
        return (struct update_array){
            (const float *)(const void *)old + first,
            (float *)values->data + first, job->counts_states};
    if (values->dtype == DTYPE_U8) {
        const char *scale = (const char *)&from->scales[first / UPDATE_BLOCK];

        codes_read(job->tables[state], (const unsigned char *)old + first,
                   *(const float *)(const void *)(scale + job->states_from),
                   count, copy);
    } else {
        SIMD for (int64_t i = 0; i < count; i++)
            copy[i] = element_get(old, DTYPE_BF16, first + i);
    }
    return (struct update_array){copy, copy, false};
}

static void state_close(const struct update_job *job, int state,
                        int64_t first, int64_t count, const float *copy,
                        struct update_run *x)
{
    const struct element_state *to = &job->p->states[state];
    const struct tensor *values = &to->values;
    char *at = values->data;

    if (at == NULL || values->dtype == DTYPE_F32) return;
    at += first * dtype_bytes(values->dtype);
    if (values->dtype == DTYPE_U8)
        codes_write(job, state, first, copy, count);
    else
        SIMD for (int64_t i = 0; i < count; i++)
            element_set(values->data, DTYPE_BF16, first + i, copy[i]);
    if (!job->counts_states) return;
    count_in(x, at, at, (size_t)(count * dtype_bytes(values->dtype)));
    if (values->dtype == DTYPE_U8) {
        float *scale = &to->scales[first / UPDATE_BLOCK];

        count_in(x, scale, scale, sizeof *scale);
    }
}

static void array_skip(struct update_array *array, int64_t count)
{
    if (array->old == NULL) return;
    array->old += count;
    array->now += count;
}

static float *view_at(const struct view *view, int64_t row, int64_t column)
{
    return (float *)view->data + row * view->stride + column;
}

/* All of a block, row by row. */
static void rows_step(const struct update_job *job, int64_t first,
                      int64_t count, struct update_run *x)
{
    const struct view *weight = &job->weight, *copy = &job->copy;
    int64_t row = first / weight->width, column = first % weight->width;

    for (int64_t done = 0; done < count; done += x->count, row++, column = 0) {
        const int64_t rest = weight->width - column, left = count - done;
        float *w = view_at(weight, row, column);

        x->count = rest < left ? rest : left;
        x->w = (struct update_array){
            (const float *)(void *)((char *)w + job->p->from), w,
            job->counts};
        x->g = view_at(&job->gradient, row, column);
        if (copy->data != NULL)
            x->copy = element_at(copy->data, copy->dtype,
                                 row * copy->stride + column);
        run_step(job, x);
        array_skip(&x->a, x->count);
        array_skip(&x->b, x->count);
    }
}

/* All of a block of split masters, which are numbers meanwhile. */
static void masters_step(const struct update_job *job, int64_t first,
                         int64_t count, struct update_run *x)
{
    float numbers[UPDATE_BLOCK];

    masters_block_join(&job->masters, first, first + count, numbers);
    x->count = count;
    x->w = (struct update_array){numbers, numbers, false};
    x->g = (const float *)job->gradient.data + first;
    run_step(job, x);
    masters_block_split(&job->masters, first, first + count, numbers);
}

/* The sum of what it writes. */
static uint64_t block_step(const struct update_job *job, int64_t first,
                           int64_t count)
{
    float copies[UPDATE_STATES][UPDATE_BLOCK];
    struct update_run x = {
        .a = state_open(job, 0, first, count, copies[0]),
        .b = state_open(job, 1, first, count, copies[1]),
        .copy_dtype = job->copy.dtype, .past = job->p->from != 0,
        .sum = job->p->sum,
        .base = job->p->sum == NULL ? NULL : job->p->sum->base};

    if (job->masters.weights != NULL) masters_step(job, first, count, &x);
    else rows_step(job, first, count, &x);
    for (int k = 0; k < UPDATE_STATES; k++)
        state_close(job, k, first, count, copies[k], &x);
    return x.total;
}

static void update_body(void *argument, int index, int count)
{
    const struct update_job *job = argument;
    int64_t first, last;
    uint64_t sum = 0;

    threads_split((job->count + UPDATE_BLOCK - 1) / UPDATE_BLOCK, 1, index,
                  count, &first, &last);
    first *= UPDATE_BLOCK;
    last = last * UPDATE_BLOCK < job->count ? last * UPDATE_BLOCK : job->count;
    for (; first < last; first += job->at_once)
        sum += block_step(job, first,
                          last - first < job->at_once ? last - first
                                                      : job->at_once);
    if (job->p->sum != NULL) range_sum_add(job->p->sum, sum);
    if (job->p->from != 0) stream_end();
}

static void states_check(struct update_job *job)
{
    for (int k = 0; k < UPDATE_STATES; k++) {
        const struct element_state *state = &job->p->states[k];
        const struct tensor *values = &state->values;
        const int bits = state->positive ? CODE8_BITS_MAX : CODE8_SIGNED_BITS;

        if (values->data == NULL) continue;
        if (values->dtype != DTYPE_F32) job->at_once = UPDATE_BLOCK;
        CHECK(tensor_count(values) == job->count);
        CHECK(values->dtype == DTYPE_F32 || values->dtype == DTYPE_BF16 ||
              values->dtype == DTYPE_U8);
        if (values->dtype != DTYPE_U8) continue;
        code8_table(bits, job->tables[k]);
        code8_bins(bits, &job->bins[k]);
    }
}

/* Rows that are adjacent in all views are one. */
static void join_rows(struct update_job *job)
{
    struct view *const views[] = {&job->weight, &job->gradient, &job->copy};
    const int64_t width = job->weight.width;

    for (int i = 0; i < 3; i++)
        if (views[i]->data != NULL && views[i]->stride != width) return;
    for (int i = 0; i < 3; i++)
        views[i]->width = views[i]->stride = job->count;
}

status CPU(update_elements)(struct stream *stream,
                            const struct element_update *p)
{
    struct update_job job = {
        .p = p,
        .c = {(float)p->scale, (float)p->beta1, (float)p->beta2,
              (float)(1 - p->beta1), (float)(1 - p->beta2),
              (float)p->epsilon, (float)(1 / sqrt(p->correction2)),
              (float)(-p->lr / p->correction1),
              (float)(1 - p->lr * p->decay), (float)p->decay, (float)-p->lr,
              (float)p->share,
              (float)(p->lr * (p->beta1 * (1 - p->share) - 1))},
        .weight = view_of(p->weight, DTYPE_F32),
        .gradient = view_of(p->gradient, DTYPE_F32)};

    job.counts = p->from != 0 || p->sum != NULL;
    job.counts_states = job.counts && writes_states(p->formula);
    job.states_from = writes_states(p->formula) ? p->from : 0;
    job.count = job.at_once = job.weight.rows * job.weight.width;
    CHECK(view_same_shape(job.weight, job.gradient));
    if (p->copy.data != NULL) {
        job.copy = view_any(p->copy);
        CHECK(view_same_shape(job.weight, job.copy) &&
              dtype_is_narrow(job.copy.dtype));
    }
    if (p->masters.weights.data != NULL) {
        CHECK(masters_check(&p->masters) == job.count && !job.counts);
        CHECK(p->masters.first == 0 && p->copy.data == NULL);
        CHECK(job.gradient.stride == job.gradient.width);
        job.masters = masters_block_of(&p->masters);
        job.at_once = UPDATE_BLOCK;
    }
    states_check(&job);
    join_rows(&job);
    cpu_run(stream, job.count, update_body, &job);
    return OK;
}

/* The same formula, of dense float32. */
status CPU(adamw)(struct stream *stream, const struct adamw *p)
{
    const struct element_update all = {
        .formula = UPDATE_ADAMW, .weight = p->weight, .gradient = p->gradient,
        .copy = p->copy, .states = {{.values = p->m}, {.values = p->v}},
        .scale = p->scale, .lr = p->lr, .beta1 = p->beta1, .beta2 = p->beta2,
        .epsilon = p->epsilon, .decay = p->decay,
        .correction1 = p->correction1, .correction2 = p->correction2};

    CHECK(p->m.dtype == DTYPE_F32 && p->v.dtype == DTYPE_F32);
    return CPU(update_elements)(stream, &all);
}
