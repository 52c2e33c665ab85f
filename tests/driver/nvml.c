/* SPDX-License-Identifier: Apache-2.0 */
/* nvml.c - a libnvidia-ml.so.1 beside the driver for tests: what NVML says of
 * GPUs that are not there.
 *
 *   ECC_ERRORS   uncorrected errors of the GPU with the largest bus id (0)
 *   GPUS         as of the driver */
#include <dlfcn.h>
#include <stdlib.h>

#define EXPORTED __attribute__((visibility("default")))

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? atoi(text) : otherwise;
}

static int gpus[64];

EXPORTED int nvmlInit_v2(void)
{
    return 0;
}

/* "0000:07:00.0": number 7. */
EXPORTED int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **out)
{
    const int at = (int)strtol(id + 5, NULL, 16);

    if (at < 0 || at >= number("GPUS", 1)) return 6; /* not found */
    gpus[at] = at;
    *out = &gpus[at];
    return 0;
}

/* A context takes 300 MiB. */
static unsigned long long context_bytes(int at)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    int (*retained)(int) = NULL;

    if (driver != NULL)
        *(void **)&retained = dlsym(driver, "lockstep_driver_retained");
    return retained != NULL && retained(at) > 0 ? 300ull << 20 : 0;
}

EXPORTED int nvmlDeviceGetMemoryInfo(void *gpu, unsigned long long *of)
{
    of[0] = 8ull << 30; /* all, unused, used */
    of[2] = (2ull << 30) + context_bytes(*(int *)gpu);
    of[1] = of[0] - of[2];
    return 0;
}

EXPORTED int nvmlDeviceGetClockInfo(void *gpu, int kind, unsigned *mhz)
{
    (void)gpu;
    *mhz = kind == 1 ? 1200 : 2600;
    return 0;
}

EXPORTED int nvmlDeviceGetMaxClockInfo(void *gpu, int kind, unsigned *mhz)
{
    (void)gpu;
    *mhz = kind == 1 ? 1980 : 2600;
    return 0;
}

EXPORTED int nvmlDeviceGetEccMode(void *gpu, unsigned *now, unsigned *later)
{
    (void)gpu;
    *now = *later = 1;
    return 0;
}

EXPORTED int nvmlDeviceGetTotalEccErrors(void *gpu, int kind, int counter,
                                         unsigned long long *errors)
{
    const int last = *(int *)gpu == number("GPUS", 1) - 1;

    *errors = kind == 1 && counter == 0 && last
                  ? (unsigned long long)number("ECC_ERRORS", 0) : 0;
    return 0;
}

EXPORTED int nvmlDeviceGetNvLinkState(void *gpu, unsigned link, unsigned *on)
{
    (void)gpu;
    *on = link < 4;
    return link < 6 ? 0 : 3; /* there is none */
}

EXPORTED int nvmlDeviceGetCurrPcieLinkGeneration(void *gpu, unsigned *out)
{
    (void)gpu;
    *out = 5;
    return 0;
}

EXPORTED int nvmlDeviceGetCurrPcieLinkWidth(void *gpu, unsigned *out)
{
    (void)gpu;
    *out = 16;
    return 0;
}
