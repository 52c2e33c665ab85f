/* SPDX-License-Identifier: Apache-2.0 */
/* emulated.c - kernels of CUDA under the emulator: one more instruction set for
 * unit tests, in programs that link this file. */
#include <string.h>
#include "base/arena.h"
#include "kernels/cuda/emulator.h"

enum { COPIES_MOST = 3 /* of the host's memory, for one kernel */ };

static struct { void *data; size_t bytes; } copies[COPIES_MOST];
static int copy_count;

static status emulated_copy(const void *data, size_t bytes, const void **out)
{
    void *copy;

    CHECK(copy_count < COPIES_MOST);
    TRY(memory_take(bytes > 0 ? bytes : 1, 1, &copy));
    memcpy(copy, data, bytes);
    copies[copy_count].data = copy;
    copies[copy_count++].bytes = bytes;
    *out = copy;
    return OK;
}

/* Nothing is left where a copy was. */
static status emulated_launch(enum cuda_kernel kernel, int64_t blocks,
                              const void *call, size_t bytes)
{
    emulator_run(kernel, blocks, call, bytes);
    while (copy_count > 0) {
        copy_count--;
        memset(copies[copy_count].data, 0xff, copies[copy_count].bytes);
        memory_free(copies[copy_count].data);
    }
    return OK;
}

static const struct cuda_emulator emulator = {emulated_launch, emulated_copy};

__attribute__((constructor)) static void emulator_set(void)
{
    cuda_emulator = &emulator;
}
