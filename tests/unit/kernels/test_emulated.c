/* SPDX-License-Identifier: Apache-2.0 */
/* test_emulated.c - the emulator of CUDA itself: it is there, and every thread
 * of every block runs once. Other tests compare what the kernels compute. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "kernels/cuda/emulator.h"
#include "kernels/cuda/rows.h"
#include "tests/test.h"
#include "tests/unit/kernels/room.h"

/* A build for the thread sanitizer links no emulator. */
#pragma weak emulator_run

/* Otherwise all comparisons with it would be left out in silence. */
TEST(every_row_is_compared)
{
    struct kernels table;

    if (SANITIZED_THREADS) skip(); /* not linked */
    IS_OK(kernels_get(&table, DTYPE_F32, ISA_EMULATED));
    assert_string_equal(table.backend, "cuda emulated");
#define ROW_IS_EMULATED(row) \
    assert_true(table.row != NULL && table.row != kernels_reference_f32.row);
    KERNELS_CUDA_ROWS(ROW_IS_EMULATED)
    IS_OK(kernels_get(&table, DTYPE_BF16, ISA_PLAIN));
    const struct kernels plain = table;

    IS_OK(kernels_get(&table, DTYPE_BF16, ISA_EMULATED));
#define ROW_IS_NARROW(row) assert_true(table.row != plain.row);
    KERNELS_CUDA_NARROW_ROWS(ROW_IS_NARROW)
}

/* Each element is added to once, whatever the order was. */
TEST(threads_run_once)
{
    enum { COUNT = 70001 };
    static float x[COUNT], one[COUNT];
    struct stream stream = {0};
    struct kernels table;
    const struct tensor sum = tensor_1d(x, DTYPE_F32, COUNT);

    if (SANITIZED_THREADS) skip();
    IS_OK(kernels_get(&table, DTYPE_F32, ISA_EMULATED));
    for (int i = 0; i < COUNT; i++) one[i] = 1;
    for (int n = 1; n <= 3; n++) {
        IS_OK(table.add(&stream, sum, sum, tensor_1d(one, DTYPE_F32, COUNT)));
        for (int i = 0; i < COUNT; i++) CHECK(x[i] == (float)n);
    }
}

/* A kernel that writes float32 `shift` bytes behind a multiple of four; how its
 * process ends. */
static int end_of_write(int shift)
{
    static _Alignas(64) char room[64], numbers[64];
    const struct descend_call call = {
        .weight = (float *)(void *)(room + shift),
        .step = (const float *)(void *)numbers, .count = 4};
    const pid_t process = fork();
    int end = 0;

    if (process == 0) {
        signal(SIGABRT, SIG_DFL); /* cmocka has it, */
        signal(SIGILL, SIG_DFL);  /* and what a trap is */
        if (freopen("/dev/null", "w", stderr) == NULL) _exit(3);
        emulator_run(CUDA_descend, 1, &call, sizeof call);
        _exit(0);
    }
    CHECK(waitpid(process, &end, 0) == process);
    return end;
}

TEST(an_address_that_the_type_does_not_divide_ends_a_kernel)
{
    if (SANITIZED_THREADS) skip();
    EQUAL_INT(end_of_write(0), 0);
    EQUAL_INT(end_of_write(4), 0);
    CHECK(end_of_write(2) != 0);
    CHECK(end_of_write(1) != 0);
}

TEST_MAIN(every_row_is_compared, threads_run_once,
          an_address_that_the_type_does_not_divide_ends_a_kernel)
