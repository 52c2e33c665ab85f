/* SPDX-License-Identifier: Apache-2.0 */
/* health.c - memory, clocks, errors and links of GPUs by NVML, where its
 * library can be opened. NVML is not a part of the toolkit; its functions are
 * declared here as its reference has them. */
#include "kernels/cuda/plugin/driver.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, UNCORRECTED = 1, VOLATILE = 0,
       LINKS_MOST = 18, ONE_BYTES = 200, ID_BYTES = 32 };

struct nvml_memory { unsigned long long total, unused, used; };

static struct {
    int (*init)(void);
    int (*handle)(const char *id, void **out);
    int (*memory)(void *, struct nvml_memory *);
    int (*clock)(void *, int kind, unsigned *mhz);
    int (*clock_most)(void *, int kind, unsigned *mhz);
    int (*ecc)(void *, unsigned *now, unsigned *later);
    int (*ecc_errors)(void *, int kind, int counter, unsigned long long *);
    int (*link)(void *, unsigned number, unsigned *is_active);
    int (*pcie)(void *, unsigned *generation);
    int (*pcie_width)(void *, unsigned *width);
} nvml;

static bool nvml_open(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    static const struct { const char *name; void *at; } functions[] = {
        {"nvmlInit_v2", &nvml.init},
        {"nvmlDeviceGetHandleByPciBusId_v2", &nvml.handle},
        {"nvmlDeviceGetMemoryInfo", &nvml.memory},
        {"nvmlDeviceGetClockInfo", &nvml.clock},
        {"nvmlDeviceGetMaxClockInfo", &nvml.clock_most},
        {"nvmlDeviceGetEccMode", &nvml.ecc},
        {"nvmlDeviceGetTotalEccErrors", &nvml.ecc_errors},
        {"nvmlDeviceGetNvLinkState", &nvml.link},
        {"nvmlDeviceGetCurrPcieLinkGeneration", &nvml.pcie},
        {"nvmlDeviceGetCurrPcieLinkWidth", &nvml.pcie_width}};

    if (library == NULL) return false;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = dlsym(library, functions[i].name);

        if (found == NULL) return false;
        memcpy(functions[i].at, &found, sizeof found);
    }
    return nvml.init() == 0;
}

/* More of a text; what does not fit is left out. */
__attribute__((format(printf, 3, 4)))
static void more(char *text, size_t bytes, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text + used, bytes - used, format, arguments);
    va_end(arguments);
}

static void say_clocks(void *gpu, char *text)
{
    unsigned sm, sm_most, memory;

    if (nvml.clock(gpu, CLOCK_SM, &sm) == 0 &&
        nvml.clock_most(gpu, CLOCK_SM, &sm_most) == 0 &&
        nvml.clock(gpu, CLOCK_MEMORY, &memory) == 0)
        more(text, ONE_BYTES, ", clock %u of %u MHz, memory %u MHz", sm,
             sm_most, memory);
}

static void say_errors(void *gpu, char *text)
{
    unsigned now, later;
    unsigned long long errors;

    if (nvml.ecc(gpu, &now, &later) != 0) return;
    more(text, ONE_BYTES, ", ECC %s", now ? "on" : "off");
    if (now && nvml.ecc_errors(gpu, UNCORRECTED, VOLATILE, &errors) == 0)
        more(text, ONE_BYTES, ", %llu uncorrected errors", errors);
}

static void say_links(void *gpu, char *text)
{
    unsigned generation, width, active, links = 0;

    for (unsigned i = 0; i < LINKS_MOST; i++)
        if (nvml.link(gpu, i, &active) == 0) links += active;
    more(text, ONE_BYTES, ", %u NVLinks", links);
    if (nvml.pcie(gpu, &generation) == 0 && nvml.pcie_width(gpu, &width) == 0)
        more(text, ONE_BYTES, ", PCIe %u x%u", generation, width);
}

size_t gpu_used(CUdevice device)
{
    char id[ID_BYTES];
    struct nvml_memory memory;
    void *gpu;

    if (!nvml_open() ||
        driver.cuDeviceGetPCIBusId_(id, sizeof id, device) != CUDA_SUCCESS ||
        nvml.handle(id, &gpu) != 0 || nvml.memory(gpu, &memory) != 0)
        return 0;
    return (size_t)memory.used;
}

static void say_gpu(CUdevice device, char text[ONE_BYTES])
{
    char id[ID_BYTES];
    struct nvml_memory memory;
    void *gpu;

    if (driver.cuDeviceGetPCIBusId_(id, sizeof id, device) != CUDA_SUCCESS ||
        nvml.handle(id, &gpu) != 0) {
        more(text, ONE_BYTES, "unknown to NVML");
        return;
    }
    if (nvml.memory(gpu, &memory) == 0)
        more(text, ONE_BYTES, "%.1f of %.1f GiB unused",
             (double)memory.unused / 0x1p30, (double)memory.total / 0x1p30);
    say_clocks(gpu, text);
    say_errors(gpu, text);
    say_links(gpu, text);
}

/* GPUs first to last, which are alike. */
static void say_run(int first, int last, const char *one, char *text,
                    size_t bytes)
{
    more(text, bytes, "%s%d", first > 0 ? "; " : "", first);
    if (last > first) more(text, bytes, " to %d", last);
    more(text, bytes, ": %s", one);
}

bool gpu_health(char *text, size_t bytes)
{
    char last[ONE_BYTES] = "";
    struct gpu_about about;
    CUdevice device;
    int first = 0, count;
    const char *sentence = gpu_find(0, &about, &device);

    *text = '\0';
    if (sentence == NULL && !nvml_open())
        sentence = "libnvidia-ml.so.1 cannot be used: no clocks, errors, "
                   "links";
    if (sentence != NULL) {
        snprintf(text, bytes, "%s", sentence);
        return false;
    }
    count = about.count;
    for (int i = 0; i < count; i++) {
        char one[ONE_BYTES] = "";

        if (gpu_find(i, &about, &device) == NULL) say_gpu(device, one);
        if (i > 0 && strcmp(one, last) != 0) {
            say_run(first, i - 1, last, text, bytes);
            first = i;
        }
        memcpy(last, one, sizeof last);
    }
    say_run(first, count - 1, last, text, bytes);
    return true;
}
