/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn_meaning.c - our graphs of attention, computed operation by operation by
 * the cuDNN for tests (tests/driver/cudnn.c), mean attention and its gradients:
 * compared with both in float64, from their formulas. cudnn_meaning LIBRARY. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/cuda/plugin/attention_plan.h"
#include "kernels/element.h"

enum { LENGTH = 64, HEADS = 8, WIDTH = 32, ROW = 3 * HEADS * WIDTH + 8,
       NUMBERS = LENGTH * ROW, DOCUMENT = 11 };
static const struct {
    int length, heads, kv_heads, width, window, documents;
} forms[] = {{24, 4, 4, 16, 0, 0}, {33, 4, 2, 8, 0, 0}, {40, 6, 2, 24, 0, 1},
             {50, 4, 1, 16, 7, 0}, {37, 2, 2, 8, 9, 1}};
enum { FORMS = sizeof forms / sizeof *forms };

/* Rows of q, k and v as they lie, and of out; and as they lie backward. */
static uint16_t qkv[NUMBERS], out[NUMBERS], dqkv[NUMBERS], dout[NUMBERS];
static float statistics[LENGTH * HEADS];
static int32_t of_document[LENGTH];
static int width; /* of the heads of the form */

static struct attended_form form_of(int i, int backward)
{
    return (struct attended_form){
        .length = forms[i].length, .window = forms[i].window,
        .heads = forms[i].heads, .kv_heads = forms[i].kv_heads,
        .width = forms[i].width, .backward = backward,
        .documents = forms[i].documents, .q_row = ROW, .k_row = ROW,
        .out_row = ROW, .statistics_row = HEADS,
        .dq_row = backward ? ROW : 0, .dk_row = backward ? ROW : 0,
        .dout_row = backward ? ROW : 0};
}

/* Where the keys of a row begin, and its values. */
static int keys_at(const struct attended_form *f)
{
    return f->heads * f->width;
}

static int values_at(const struct attended_form *f)
{
    return keys_at(f) + f->kv_heads * f->width;
}

static double number(const uint16_t *of, int row, int64_t at)
{
    return (double)element_get(of, DTYPE_BF16, row * (int64_t)ROW + at);
}

static void draw(uint16_t *of)
{
    for (int i = 0; i < NUMBERS; i++)
        element_set(of, DTYPE_BF16, i, (float)(rand() % 2001 - 1000) * 1e-3f);
}

/* ---- attention in float64 ---- */

static struct {
    double p[LENGTH][LENGTH], out[LENGTH][WIDTH], lse[LENGTH];
    double dq[LENGTH][WIDTH], dp[LENGTH][LENGTH];
    double dk[HEADS][LENGTH][WIDTH], dv[HEADS][LENGTH][WIDTH];
} want;

static int sees(const struct attended_form *f, int query, int key)
{
    return key <= query && (f->window == 0 || key > query - f->window) &&
           (f->documents == 0 || of_document[key] == of_document[query]);
}

/* Row i of a, from column `at` on, times row j of qkv, from `from` on. */
static double dot(const uint16_t *a, int i, int64_t at, int j, int64_t from)
{
    double sum = 0;

    for (int e = 0; e < width; e++)
        sum += number(a, i, at + e) * number(qkv, j, from + e);
    return sum;
}

static void want_forward(const struct attended_form *f, int head, double scale)
{
    const int kv = head / (f->heads / f->kv_heads);
    const int64_t q = head * f->width, k = keys_at(f) + kv * f->width;

    for (int i = 0; i < f->length; i++) {
        double sum = 0;

        for (int j = 0; j < f->length; j++)
            sum += want.p[i][j] =
                sees(f, i, j) ? exp(scale * dot(qkv, i, q, j, k)) : 0;
        want.lse[i] = log(sum);
        for (int j = 0; j < f->length; j++) want.p[i][j] /= sum;
        for (int e = 0; e < f->width; e++) {
            want.out[i][e] = 0;
            for (int j = 0; j < f->length; j++)
                want.out[i][e] += want.p[i][j] *
                    number(qkv, j, values_at(f) + kv * f->width + e);
        }
    }
}

/* ds = p (dp - sum(p dp)); dk and dv of a key-value head are sums. */
static void want_backward(const struct attended_form *f, int head,
                          double scale)
{
    const int kv = head / (f->heads / f->kv_heads);
    const int64_t q = head * f->width, k = keys_at(f) + kv * f->width;
    const int64_t v = values_at(f) + kv * f->width;

    memset(want.dq, 0, sizeof want.dq);
    for (int i = 0; i < f->length; i++) {
        double sum = 0;

        for (int j = 0; j < f->length; j++) {
            want.dp[i][j] = dot(dout, i, q, j, v);
            sum += want.p[i][j] * want.dp[i][j];
        }
        for (int j = 0; j < f->length; j++) {
            const double ds = want.p[i][j] * (want.dp[i][j] - sum) * scale;

            for (int e = 0; e < f->width; e++) {
                want.dq[i][e] += ds * number(qkv, j, k + e);
                want.dk[kv][j][e] += ds * number(qkv, i, q + e);
                want.dv[kv][j][e] += want.p[i][j] * number(dout, i, q + e);
            }
        }
    }
}

/* ---- what is compared ---- */

struct near { double worst, largest; };

static void compare(struct near *near, double found, double wanted)
{
    const double error = fabs(found - wanted);

    if (!(error <= near->worst)) near->worst = error; /* NaN, too */
    if (fabs(wanted) > near->largest) near->largest = fabs(wanted);
}

static int is_near(const char *what, int i, struct near near)
{
    const int right = near.worst <= 0.02 * near.largest && near.largest > 0;

    printf("%s %d tokens, heads %d/%d of %d, window %d, documents %d: %s: "
           "%.3g of %.3g\n", right ? "near" : "far", forms[i].length,
           forms[i].heads, forms[i].kv_heads, forms[i].width, forms[i].window,
           forms[i].documents, what, near.worst, near.largest);
    return right;
}

static void compare_heads(const struct attended_form *f, struct near *near,
                          int64_t at, const double (*wanted)[WIDTH])
{
    for (int i = 0; i < f->length; i++)
        for (int e = 0; e < f->width; e++)
            compare(near, number(dqkv, i, at + e), wanted[i][e]);
}

/* Columns behind the heads, which nobody may write. */
static int is_whole(const uint16_t *of, int first)
{
    int whole = 1;

    for (int i = 0; i < LENGTH; i++)
        for (int e = first; e < ROW; e++)
            whole = whole && of[i * ROW + e] == 0x4242;
    return whole;
}

static int compare_all(const struct attended_form *f, int i, double scale)
{
    struct near near[5] = {{0, 0}};

    memset(&want, 0, sizeof want);
    for (int head = 0; head < f->heads; head++) {
        want_forward(f, head, scale);
        want_backward(f, head, scale);
        for (int row = 0; row < f->length; row++) {
            compare(&near[1], (double)statistics[row * HEADS + head],
                    want.lse[row]);
            for (int e = 0; e < f->width; e++)
                compare(&near[0], number(out, row, head * f->width + e),
                        want.out[row][e]);
        }
        compare_heads(f, &near[2], head * f->width, want.dq);
    }
    for (int kv = 0; kv < f->kv_heads; kv++) {
        compare_heads(f, &near[3], keys_at(f) + kv * f->width, want.dk[kv]);
        compare_heads(f, &near[4], values_at(f) + kv * f->width, want.dv[kv]);
    }
    return is_near("out", i, near[0]) & is_near("statistics", i, near[1]) &
           is_near("dq", i, near[2]) & is_near("dk", i, near[3]) &
           is_near("dv", i, near[4]) & is_whole(out, keys_at(f)) &
           is_whole(dqkv, values_at(f) + f->kv_heads * f->width);
}

static int run(const struct dnn *dnn, void *handle, int i, int backward,
               float scale)
{
    const struct attended_form f = form_of(i, backward);
    const size_t bytes = attended_room(&f);
    void *room = aligned_alloc(256, (bytes + 255) / 256 * 256);
    const struct gpu_attended call = {
        .form = f, .q = qkv, .k = qkv + keys_at(&f), .v = qkv + values_at(&f),
        .out = out, .statistics = statistics, .dout = dout, .dq = dqkv,
        .dk = dqkv + keys_at(&f), .dv = dqkv + values_at(&f),
        .of_document = of_document, .scale = scale};
    struct attention_plan plan;
    int answer = attention_plan_make(dnn, &(struct dnn_target){handle, NULL},
                                     &f, bytes - attended_sums(&f), &plan);

    if (answer == DNN_SUCCESS && plan.plan == NULL) answer = DNN_NOT_SUPPORTED;
    if (answer == DNN_SUCCESS)
        answer = attention_plan_run(dnn, handle, &plan, &call, room);
    attention_plan_free(&plan);
    free(room);
    if (answer != DNN_SUCCESS)
        printf("form %d: %s\n", i, dnn->cudnnGetErrorString_(answer));
    return answer == DNN_SUCCESS;
}

int main(int count, char **words)
{
    struct dnn dnn = {.library = count == 2 ? dlopen(words[1], RTLD_NOW)
                                            : NULL};
    void *handle;
    int right = 1;

    if (dnn.library == NULL) return printf("%s\n", dlerror()), 1;
#define FIND(result, name, ...)                                            \
    *(void **)&dnn.name##_ = dlsym(dnn.library, #name);                    \
    if (dnn.name##_ == NULL) return printf("no %s\n", #name), 1;
    DNN_FUNCTIONS(FIND)
    if (dnn.cudnnCreate_(&handle) != DNN_SUCCESS) return 1;
    srand(7);
    for (int i = 0; i < LENGTH; i++) of_document[i] = i / DOCUMENT * DOCUMENT;
    for (int i = 0; i < FORMS; i++) {
        const float scale = 0.37f;

        width = forms[i].width;
        draw(qkv);
        draw(dout);
        for (int j = 0; j < NUMBERS; j++) out[j] = dqkv[j] = 0x4242;
        right &= run(&dnn, handle, i, 0, scale) &&
                 run(&dnn, handle, i, 1, scale);
        const struct attended_form f = form_of(i, 1);

        right &= compare_all(&f, i, (double)scale);
    }
    dnn.cudnnDestroy_(handle);
    return !right;
}
