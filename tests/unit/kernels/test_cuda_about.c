/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_about.c - a process that has asked for GPUs forks another one, and
 * that uses a GPU: the question was asked in a process of its own. Without a
 * GPU, or the plug-in, nothing is shown (tests/golden/cuda.sh has both). */
#include <sys/wait.h>
#include "device/device.h"
#include "kernels/cuda_about.h"
#include "tests/test.h"

static bool finds_gpu(void)
{
    char text[400], again[400];
    const enum cuda_found found = cuda_about(text, sizeof text);

    EQUAL_INT(cuda_about(again, sizeof again), found);
    EQUAL_TEXT(again, text);
    if (found != CUDA_LOADS) print_message("not shown: %s\n", text);
    return found == CUDA_LOADS;
}

TEST(a_process_that_is_forked_later_uses_the_gpu)
{
    const struct device_choice choice = {
        .kind = DEVICE_CUDA, .threads = 1, .launch_bytes = 4096,
        .lent_bytes = 4096, .kernels = &cuda_kernels};
    struct device *device = NULL;
    int ended = 1;
    pid_t child;

    if (!finds_gpu()) return;
    child = fork();
    if (child == 0) {
        const status opened = device_open(&device, &choice);

        if (opened != OK) print_error("%s\n", status_message());
        device_close(device);
        _exit(opened == OK ? 0 : 1);
    }
    CHECK(waitpid(child, &ended, 0) == child);
    EQUAL_INT(ended, 0);
}

TEST_MAIN(a_process_that_is_forked_later_uses_the_gpu)
