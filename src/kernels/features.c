/* SPDX-License-Identifier: Apache-2.0 */
/* features.c - asks the processor, once, and the system where it must. */
#include "kernels/features.h"

#include <pthread.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static int limit = FEATURES_ALL;
static int found;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#if defined(__x86_64__)
/* Bits of CPUID's leaf 7: Intel, Software Developer's Manual, volume 2A. */
enum {
    EAX, EBX, ECX, EDX,
    BIT_AVX512_BF16 = 5, /* of EAX, subleaf 1 */
    BIT_AVX_VNNI = 4,
    BIT_AVX512_VNNI = 11, /* of ECX, subleaf 0 */
    BIT_AMX_BF16 = 22,   /* of EDX, subleaf 0 */
    BIT_AMX_TILE = 24,
    /* A constant of arch_prctl, Linux's Documentation/arch/x86/xstate.rst. */
    REQUEST_PERMISSION = 0x1023,
    TILE_DATA = 18
};

static bool cpuid_bit(unsigned subleaf, int reg, int bit)
{
    unsigned r[4] = {0};

    return __get_cpuid_count(7, subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) &&
           (r[reg] >> bit & 1);
}

static void features_find(void)
{
    if (__builtin_cpu_supports("avx512f") &&
        cpuid_bit(1, EAX, BIT_AVX512_BF16))
        found |= FEATURE_PAIRS;
    if (__builtin_cpu_supports("avx2") && cpuid_bit(1, EAX, BIT_AVX_VNNI))
        found |= FEATURE_BYTES;
    if (__builtin_cpu_supports("avx512f") &&
        cpuid_bit(0, ECX, BIT_AVX512_VNNI))
        found |= FEATURE_BYTES_WIDE;
    /* Results of tiles are rounded by an instruction of the pairs. */
    if (found & FEATURE_PAIRS && cpuid_bit(0, EDX, BIT_AMX_BF16) &&
        cpuid_bit(0, EDX, BIT_AMX_TILE) &&
        syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0)
        found |= FEATURE_TILES;
}
#else
static void features_find(void)
{
}
#endif

bool features_pairs(void)
{
    pthread_once(&once, features_find);
    return found & limit & FEATURE_PAIRS;
}

bool features_tiles(void)
{
    pthread_once(&once, features_find);
    return found & limit & FEATURE_TILES;
}

bool features_bytes(void)
{
    pthread_once(&once, features_find);
    return found & limit & FEATURE_BYTES;
}

bool features_bytes_wide(void)
{
    pthread_once(&once, features_find);
    return found & limit & FEATURE_BYTES_WIDE;
}

bool features_even_slow(void)
{
    return limit & FEATURE_EVEN_SLOW;
}

void features_limit(int features)
{
    limit = features;
}
