/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c - finds GPUs, and loads the kernels that they are given. */
#include "kernels/cuda/plugin/driver.h"
#include "kernels/cuda/list.h"

#include <pthread.h>
#include <stdio.h>

/* The code that nvcc made of each file of kernels lies in MODULES_PATH. */
#define MODULE_BYTES(name)                                                 \
    __asm__(".section .rodata\n.balign 64\n.globl module_" #name "\n"      \
            ".hidden module_" #name "\nmodule_" #name ":\n"                \
            ".incbin \"" MODULES_PATH "/" #name ".fatbin\"\n.previous\n"); \
    extern const unsigned char module_##name[];
CUDA_MODULES(MODULE_BYTES)

#define MODULE_ADDRESS(name) module_##name,
static const unsigned char *const modules[] = {CUDA_MODULES(MODULE_ADDRESS)};
enum { MODULES = sizeof modules / sizeof *modules, GPUS = 64 };

static const struct gpu_kernel kernels[] = {CUDA_KERNELS(CUDA_KERNEL_ROW)};

/* Modules that each GPU has, for all who have it open. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct loaded {
    int users;
    CUdevice device;
    CUcontext context;
    CUmodule modules[MODULES];
    CUfunction functions[CUDA_KERNEL_COUNT];
} loaded[GPUS];

static CUresult about_memory(CUdevice device, struct gpu_about *out)
{
    return driver.cuDeviceTotalMem_(&out->bytes, device);
}

static CUresult about_device(CUdevice device, struct gpu_about *out)
{
    CUresult error = driver.cuDeviceGetName_(out->name, sizeof out->name,
                                             device);

    if (error == CUDA_SUCCESS)
        error = driver.cuDeviceGetAttribute_(
            &out->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            device);
    if (error == CUDA_SUCCESS)
        error = driver.cuDeviceGetAttribute_(
            &out->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            device);
    if (error == CUDA_SUCCESS) error = about_memory(device, out);
    if (error == CUDA_SUCCESS)
        error = driver.cuDriverGetVersion_(&out->driver);
    return error;
}

/* Whether the GPU and its driver are what the kernels were compiled for. */
static const char *fits(const struct gpu_about *gpu)
{
    if (gpu->major < 8)
        return driver_sentence("%s has compute capability %d.%d; kernels need "
                               "8.0", gpu->name, gpu->major, gpu->minor);
    if (gpu->driver < CUDA_VERSION / 1000 * 1000)
        return driver_sentence("%s: its driver is for CUDA %d.%d; kernels need "
                               "%d.0", gpu->name, gpu->driver / 1000,
                               gpu->driver % 1000 / 10, CUDA_VERSION / 1000);
    return NULL;
}

const char *gpu_find(int number, struct gpu_about *out, CUdevice *device)
{
    const char *sentence = driver_open();
    CUresult error;

    *out = (struct gpu_about){.count = 0};
    if (sentence != NULL) return sentence;
    error = driver.cuInit_(0);
    if (error == CUDA_SUCCESS) error = driver.cuDeviceGetCount_(&out->count);
    if (error == CUDA_ERROR_NO_DEVICE ||
        (error == CUDA_SUCCESS && out->count == 0))
        return driver_sentence("there is a driver, but no GPU");
    if (error == CUDA_SUCCESS && number >= out->count)
        return driver_sentence("there are %d GPUs, from 0 on, and no GPU %d",
                               out->count, number);
    if (error == CUDA_SUCCESS) error = driver.cuDeviceGet_(device, number);
    if (error == CUDA_SUCCESS) error = about_device(*device, out);
    sentence = driver_says(error, "what GPUs there are");
    return sentence != NULL ? sentence : fits(out);
}

static const char *find(int number, struct gpu_about *out)
{
    CUdevice device;

    return gpu_find(number, out, &device);
}

static CUresult find_kernel(struct loaded *l, int kernel)
{
    CUresult error = CUDA_ERROR_NOT_FOUND;

    for (int i = 0; i < MODULES && error != CUDA_SUCCESS; i++)
        error = driver.cuModuleGetFunction_(
            &l->functions[kernel], l->modules[i], kernels[kernel].name);
    return error;
}

static void unload(struct loaded *l)
{
    for (int i = 0; i < MODULES; i++)
        if (l->modules[i] != NULL) driver.cuModuleUnload_(l->modules[i]);
    driver.cuCtxSetCurrent_(NULL);
    driver.cuDevicePrimaryCtxRelease_(l->device);
    *l = (struct loaded){.users = 0};
}

/* The driver loads a kernel when it is started first, and gives threads larger
 * stacks then, if it needs some: it would take memory, and wait, in a step. So
 * both happen now. */
static CUresult take_memory(const struct loaded *l)
{
    CUresult error = CUDA_SUCCESS;
    size_t stack = 0;
    int most = 0;

    for (int k = 0; k < CUDA_KERNEL_COUNT && error == CUDA_SUCCESS; k++) {
        int bytes = 0;

        error = driver.cuFuncLoad_(l->functions[k]);
        if (error == CUDA_SUCCESS)
            error = driver.cuFuncGetAttribute_(
                &bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, l->functions[k]);
        if (bytes > most) most = bytes;
    }
    if (error == CUDA_SUCCESS)
        error = driver.cuCtxGetLimit_(&stack, CU_LIMIT_STACK_SIZE);
    if (error == CUDA_SUCCESS && stack < (size_t)most)
        error = driver.cuCtxSetLimit_(CU_LIMIT_STACK_SIZE, (size_t)most);
    return error;
}

/* Loads every module and finds every kernel in one of them. */
static const char *load(struct loaded *l)
{
    CUresult error =
        driver.cuDevicePrimaryCtxRetain_(&l->context, l->device);
    const char *sentence = driver_says(error, "a context");
    int k = 0;

    if (sentence != NULL) return sentence;
    error = driver.cuCtxSetCurrent_(l->context);
    for (int i = 0; i < MODULES && error == CUDA_SUCCESS; i++)
        error = driver.cuModuleLoadData_(&l->modules[i], modules[i]);
    for (; k < CUDA_KERNEL_COUNT && error == CUDA_SUCCESS; k++)
        error = find_kernel(l, k);
    sentence = driver_says(error, k > 0 ? kernels[k - 1].name : "modules");
    if (sentence == NULL)
        sentence = driver_says(take_memory(l), "memory of kernels");
    if (sentence != NULL) unload(l);
    return sentence;
}

const char *kernels_retain(int number, CUcontext *context,
                           const CUfunction **functions)
{
    struct loaded *l = &loaded[number];
    struct gpu_about about;
    const char *sentence = NULL;

    pthread_mutex_lock(&lock);
    if (l->users == 0) sentence = gpu_find(number, &about, &l->device);
    if (l->users == 0 && sentence == NULL) sentence = load(l);
    if (sentence == NULL) l->users++;
    *context = l->context;
    *functions = l->functions;
    pthread_mutex_unlock(&lock);
    return sentence;
}

void kernels_release(int number)
{
    struct loaded *l = &loaded[number];

    pthread_mutex_lock(&lock);
    if (--l->users == 0) {
        driver.cuCtxSetCurrent_(l->context);
        unload(l);
    }
    pthread_mutex_unlock(&lock);
}

/* Others may take memory, or give it back, meanwhile. */
static size_t grown(size_t before, CUdevice device)
{
    const size_t now = before > 0 ? gpu_used(device) : 0;

    return now > before ? now - before : 0;
}

static bool about(char *text, size_t bytes, size_t *foreign)
{
    struct gpu_about gpu;
    const CUfunction *functions;
    CUcontext context;
    CUdevice device;
    const char *sentence = gpu_find(0, &gpu, &device);

    *foreign = 0;
    if (sentence != NULL) {
        snprintf(text, bytes, "%s", sentence);
        return false;
    }
    const size_t before = gpu_used(device);

    sentence = kernels_retain(0, &context, &functions);
    if (sentence != NULL) {
        snprintf(text, bytes, "%s does not load the kernels: %s", gpu.name,
                 sentence);
        return false;
    }
    *foreign = grown(before, device);
    kernels_release(0);
    snprintf(text, bytes, "%s, compute capability %d.%d, %.1f GiB, driver of "
             "CUDA %d.%d%s", gpu.name, gpu.major, gpu.minor,
             (double)gpu.bytes / 0x1p30, gpu.driver / 1000,
             gpu.driver % 1000 / 10,
             gpu.count > 1 ? ", the first of several" : "");
    return true;
}

__attribute__((visibility("default")))
const struct cuda_plugin lockstep_cuda_plugin = {
    .version = CUDA_PLUGIN_VERSION, .bytes = sizeof(struct cuda_plugin),
    .kernels = {kernels, CUDA_KERNEL_COUNT}, .driver = driver_open,
    .about = about, .health = gpu_health, .find = find, .open = gpu_open,
    .close = gpu_close, .take = gpu_take, .give = gpu_give,
    .pin = gpu_pin, .unpin = gpu_unpin,
    .copy = gpu_copy_rows, .copy_parts = gpu_copy_parts, .fill = gpu_fill,
    .launch = gpu_start, .gather = gpu_gather, .gathered = gpu_gathered,
    .flush = gpu_flush,
    .graphs = gpu_graphs, .tell = gpu_tell, .make_event = gpu_make_event,
    .free_event = gpu_free_event, .record = gpu_record, .after = gpu_after,
    .await = gpu_await, .finish = gpu_finish, .elapsed = gpu_elapsed,
    .make_stream = gpu_make_stream, .free_stream = gpu_free_stream,
    .is_idle = gpu_is_idle, .show = gpu_show, .meet = gpu_meet,
    .part = gpu_part, .show_event = gpu_show_event,
    .meet_event = gpu_meet_event, .move_parts = gpu_move_parts,
    .sum_roots = gpu_sum_roots, .enter = gpu_enter,
    .products = products_open,
    .offers = products_offer, .product = products_run,
    .attention = attention_open, .attends = attention_has,
    .attend = attention_run};
