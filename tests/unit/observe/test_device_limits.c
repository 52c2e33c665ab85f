/* SPDX-License-Identifier: Apache-2.0 */
/* test_device_limits.c - mirrors src/observe/device_limits.c: how long kernels
 * of a device apart take, by its clock, and what they are measured on. */
#include "observe/device_limits.h"

#include <math.h>
#include "kernels/element.h"
#include "tests/test.h"

enum { BYTES = 100 * 1024, PAUSE_US = 1000 };

struct far {
    struct device *device;
    struct stream stream;
    struct kernels table, real, inner[2], behind[2];
    void *memory;
};

/* Tables that measure themselves, as a stage has them. */
static void far_begin(struct far *far, enum device_haste haste)
{
    const struct device_choice choice = {
        .kind = DEVICE_FAR, .haste = haste, .threads = 1,
        .launch_bytes = 1 << 16};

    *far = (struct far){.device = NULL};
    IS_OK(device_open(&far->device, &choice));
    IS_OK(device_take(far->device, BYTES, &far->memory));
    IS_OK(kernels_get(&far->table, DTYPE_F32, ISA_PLAIN));
    far->real = far->table;
    far->stream.device = far->device;
    kernels_meter(&far->table, &far->real, far->inner, &far->stream);
    kernels_launch(&far->table, &far->real, far->behind, &far->stream);
    device_join(far->device, &far->stream);
}

static void far_end(struct far *far)
{
    device_give(far->device, far->memory);
    device_close(far->device);
}

static struct far *working;
static int calls;

/* A kernel, behind a pause of the host that is none of its time. */
static status add_once(struct stream *stream, void *of)
{
    const struct tensor *x = of;

    calls++;
    usleep(PAUSE_US);
    return working->table.add(stream, *x, *x, *x);
}

TEST(seconds_are_those_of_kernels)
{
    static const enum device_haste both[] = {DEVICE_LATE, DEVICE_EARLY};

    for (int i = 0; i < ROWS(both); i++) {
        struct tensor x;
        struct far far;
        double seconds;

        far_begin(&far, both[i]);
        working = &far;
        calls = 0;
        x = tensor_1d(far.memory, DTYPE_F32, 16);
        IS_OK(device_fill(&far.stream, far.memory, 0, 64));
        IS_OK(device_limits_seconds(&far.stream, add_once, &x, &seconds));
        CHECK(seconds > 0 && seconds < 1e-6 * PAUSE_US);
        CHECK(calls >= 4); /* a round of one, and three of some */
        far_end(&far);
    }
}

static status start_fails(struct stream *stream, void *of)
{
    (void)stream;
    (void)of;
    FAIL(ERR_DEVICE, "a kernel that does not start");
}

TEST(an_error_is_told)
{
    struct far far;
    double seconds;

    far_begin(&far, DEVICE_LATE);
    FAILS(device_limits_seconds(&far.stream, start_fails, NULL, &seconds),
          ERR_DEVICE, "does not start");
    status_clear();
    far_end(&far);
}

/* In every type, at both signs, and not alike from row to row. */
TEST(numbers_are_ordinary)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    char *found = malloc(BYTES);
    struct far far;

    far_begin(&far, DEVICE_LATE);
    IS_OK(device_limits_fill(&far.stream, far.memory, BYTES));
    IS_OK(device_read(&far.stream, found, far.memory, BYTES));
    for (int t = 0; t < ROWS(types); t++) {
        const int64_t count = BYTES / dtype_bytes(types[t]);
        int negative = 0;

        for (int64_t i = 0; i < count; i++) {
            const float v = element_get(found, types[t], i);

            CHECK(fabsf(v) > 0.4f && fabsf(v) < 2.1f);
            negative += v < 0;
        }
        CHECK(negative > count / 3 && negative < 2 * count / 3);
    }
    CHECK(memcmp(found, found + 4096, 4096) != 0);
    CHECK(memcmp(found, found + 8192, 4096) != 0);
    IS_OK(device_limits_fill(&far.stream, far.memory, 6));
    far_end(&far);
    free(found);
}

TEST_MAIN(seconds_are_those_of_kernels, an_error_is_told,
          numbers_are_ordinary)
