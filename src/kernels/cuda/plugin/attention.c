/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - attention by cuDNN, which is opened when a run asks for it. A
 * plan is made for each form, once. */
#include "kernels/cuda/plugin/segment.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include "kernels/cuda/plugin/attention_plan.h"

/* Older ones have mistakes in attention. */
enum { VERSION_LEAST = 91501 };

static struct dnn dnn;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct attention_form {
    struct attended_form form;
    struct attention_plan plan;
};

struct library {
    void *handle;                /* owned */
    struct attention_form forms[ATTENDED_PLANS];
    int count;
};

static const char *find(void)
{
    void *library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL)
        return driver_sentence("there is no cuDNN: libcudnn.so.9 cannot be "
                               "opened");
#define DNN_FIND(result, name, ...)                                        \
    *(void **)&dnn.name##_ = dlsym(library, #name);                        \
    if (dnn.name##_ == NULL)                                               \
        return driver_sentence("cuDNN is too old: it has no " #name);
    DNN_FUNCTIONS(DNN_FIND)
    dnn.library = library;
    return NULL;
}

const char *attention_open(int64_t *version)
{
    const char *result = NULL;

    pthread_mutex_lock(&lock);
    if (dnn.library == NULL) result = find();
    pthread_mutex_unlock(&lock);
    *version = 0;
    if (result != NULL) return result;
    *version = (int64_t)dnn.cudnnGetVersion_();
    if (*version < VERSION_LEAST)
        return driver_sentence("cuDNN %d.%d.%d is too old: 9.15.1 is needed",
                               (int)(*version / 10000),
                               (int)(*version / 100 % 100),
                               (int)(*version % 100));
    return NULL;
}

static const char *says(int answer, const char *asked)
{
    if (answer == DNN_SUCCESS) return NULL;
    return library_says("cuDNN", dnn.cudnnGetErrorString_(answer), asked);
}

static const char *make(struct gpu *gpu)
{
    int64_t version;
    const char *sentence = attention_open(&version);
    struct library *a;

    if (sentence != NULL) return sentence;
    a = mmap(NULL, sizeof *a, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (a == MAP_FAILED)
        return driver_sentence("there is no memory for plans of attention");
    sentence = says(dnn.cudnnCreate_(&a->handle), "its first call");
    if (sentence != NULL) munmap(a, sizeof *a);
    else gpu->attention = a;
    return sentence;
}

/* The GPU's context is the thread's; a library for it is made once. */
static const char *enter(struct gpu *gpu)
{
    const char *sentence = gpu_enter(gpu);

    return sentence != NULL || gpu->attention != NULL ? sentence : make(gpu);
}

void attention_close(struct gpu *gpu)
{
    struct library *a = gpu->attention;

    if (a == NULL) return;
    for (int i = 0; i < a->count; i++)
        attention_plan_free(&a->forms[i].plan);
    dnn.cudnnDestroy_(a->handle);
    munmap(a, sizeof *a);
    gpu->attention = NULL;
}

static struct attention_form *known(struct library *a,
                                    const struct attended_form *form)
{
    for (int i = 0; i < a->count; i++)
        if (memcmp(&a->forms[i].form, form, sizeof *form) == 0)
            return &a->forms[i];
    return NULL;
}

/* Own kernels in one layout and the library in another have other bits. */
static const char *refuses(const struct attention_form *of)
{
    const struct attention_plan *plan = &of->plan;

    if (!plan->is_refused) return NULL;
    return driver_sentence(
        "engine %d of cuDNN has attention of %d heads of %d, and not in rows "
        "%d elements apart, as in this layout; numerics.attention=own takes "
        "any rows",
        (int)plan->offers[plan->offered - 1].engine, (int)of->form.heads,
        (int)of->form.width, (int)of->form.q_row);
}

const char *attention_has(struct gpu *gpu, const struct attended_form *form,
                          bool *out)
{
    const char *sentence = enter(gpu);
    struct library *a = gpu->attention;
    struct attention_form *known_form;
    int answer;

    *out = false;
    if (sentence != NULL || form == NULL) return sentence;
    known_form = known(a, form);
    if (known_form == NULL && a->count == ATTENDED_PLANS)
        return driver_sentence("attention of this run has more than %d forms "
                               "(lengths, heads, windows); "
                               "numerics.attention=own takes any number",
                               ATTENDED_PLANS);
    if (known_form == NULL) {
        known_form = &a->forms[a->count];
        known_form->form = *form;
        answer = attention_plan_make(
            &dnn, &(struct dnn_target){.handle = a->handle}, form,
            attended_room(form) - attended_sums(form), &known_form->plan);
        if (answer != DNN_SUCCESS) {
            attention_plan_free(&known_form->plan);
            return says(answer, "what attention is");
        }
        a->count++;
    }
    *out = known_form->plan.plan != NULL;
    return refuses(known_form);
}

/* stream: where it is performed, or one that is being captured. */
const char *attention_give(struct gpu *gpu, const struct attention_told *told,
                           CUstream stream)
{
    const struct library *a = gpu->attention;
    const struct attention_form *form = known(gpu->attention,
                                              &told->call.form);
    int answer = dnn.cudnnSetStream_(a->handle, stream);

    if (form == NULL || form->plan.plan == NULL) answer = DNN_BAD_PARAM;
    if (answer == DNN_SUCCESS)
        answer = attention_plan_run(&dnn, a->handle, &form->plan, &told->call,
                                    told->room.data);
    return says(answer, "attention");
}

const char *attention_run(struct gpu *gpu, const struct gpu_attended *call,
                          const struct gpu_room *room)
{
    const struct attention_told told = {*call, *room};
    const char *sentence = enter(gpu);

    if (sentence != NULL) return sentence;
    if (gpu->open != NULL)
        return driver_says(segment_attention(gpu->open, &told), "attention");
    return attention_give(gpu, &told, gpu->streams[GPU_KERNELS]);
}
