/* SPDX-License-Identifier: Apache-2.0 */
/* test_far.c - mirrors src/device/far.c: who may touch its memory, and when
 * work is done. */
#include "device/device.h"
#include "device/queue.h"
#include "device/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include "kernels/kernels.h"
#include "tests/test.h"

enum { BYTES = 1 << 18 }; /* more than one part of a copy */

struct far {
    struct device *device;
    struct stream stream;
    struct kernels table, real, behind[2];
    char *memory;
};

/* A stream with the tables of plain C behind it. */
static void far_begin(struct far *far, enum device_haste haste)
{
    const struct device_choice choice = {
        .kind = DEVICE_FAR, .haste = haste, .threads = 1,
        .launch_bytes = 1 << 16};
    void *memory;

    *far = (struct far){.device = NULL};
    IS_OK(device_open(&far->device, &choice));
    IS_OK(device_take(far->device, BYTES, &memory));
    far->memory = memory;
    IS_OK(kernels_get(&far->table, DTYPE_F32, ISA_PLAIN));
    far->real = far->table;
    far->stream.device = far->device;
    kernels_launch(&far->table, &far->real, far->behind, &far->stream);
    device_join(far->device, &far->stream);
}

static void far_end(struct far *far)
{
    device_give(far->device, far->memory);
    device_close(far->device);
}

static const enum device_haste both[] = {DEVICE_LATE, DEVICE_EARLY};

TEST(what_is_written_is_read)
{
    char *from = malloc(BYTES), *to = malloc(BYTES);

    for (int i = 0; i < BYTES; i++) from[i] = (char)(i * 7 + i / 256);
    for (int i = 0; i < ROWS(both); i++) {
        struct far far;

        far_begin(&far, both[i]);
        IS_OK(device_write(&far.stream, far.memory, from, BYTES));
        IS_OK(device_read(&far.stream, to, far.memory, BYTES));
        EQUAL_BYTES(from, to, BYTES);
        IS_OK(device_fill(&far.stream, far.memory + 64, 3, 64));
        IS_OK(device_copy(&far.stream, far.memory, far.memory + 64, 64));
        IS_OK(device_read(&far.stream, to, far.memory, 128));
        for (int j = 0; j < 128; j++) EQUAL_INT(to[j], 3);
        far_end(&far);
    }
    free(from);
    free(to);
}

/* Columns of heads, zeros, and pairs that turn together: there and back. */
TEST(parts_of_rows_are_copied)
{
    enum { ROWS_OF = 3, PARTS = 2, ELEMENTS = 4, WIDTH = 10 };
    uint16_t in[ROWS_OF * WIDTH], out[ROWS_OF * WIDTH];

    for (int i = 0; i < ROWS_OF * WIDTH; i++) in[i] = (uint16_t)(i + 1);
    for (int i = 0; i < ROWS(both); i++) {
        struct far far;

        far_begin(&far, both[i]);
        char *const there = far.memory + 4096;
        const struct device_rows from = {far.memory, sizeof in / ROWS_OF};
        const struct device_rows to = {there, sizeof in / ROWS_OF};
        struct device_parts copy = {
            .to = to, .from = from, .rows = ROWS_OF, .parts = PARTS,
            .to_part = 5 * sizeof *in, .from_part = 4 * sizeof *in,
            .bytes = ELEMENTS * sizeof *in, .turn = TURN_APART,
            .element = sizeof *in};

        IS_OK(device_write(&far.stream, far.memory, in, sizeof in));
        IS_OK(device_fill(&far.stream, there, 0xff, sizeof out));
        IS_OK(device_copy_parts(&far.stream, &copy));
        copy = (struct device_parts){
            .to = {there + 4 * sizeof *in, to.apart}, .rows = ROWS_OF,
            .parts = PARTS, .to_part = 5 * sizeof *in, .bytes = sizeof *in};
        IS_OK(device_copy_parts(&far.stream, &copy));
        IS_OK(device_read(&far.stream, out, there, sizeof out));
        for (int row = 0; row < ROWS_OF; row++)
            for (int j = 0; j < PARTS; j++) {
                const uint16_t *x = in + row * WIDTH + 4 * j;
                const uint16_t apart[] = {x[0], x[2], x[1], x[3], 0};

                EQUAL_BYTES(out + row * WIDTH + 5 * j, apart, sizeof apart);
            }
        copy = (struct device_parts){
            .to = from, .from = to, .rows = ROWS_OF, .parts = PARTS,
            .to_part = 4 * sizeof *in, .from_part = 5 * sizeof *in,
            .bytes = ELEMENTS * sizeof *in, .turn = TURN_NEAR,
            .element = sizeof *in};
        IS_OK(device_fill(&far.stream, far.memory, 0, sizeof in));
        IS_OK(device_copy_parts(&far.stream, &copy));
        IS_OK(device_read(&far.stream, out, far.memory, sizeof out));
        for (int j = 0; j < ROWS_OF * WIDTH; j++)
            EQUAL_INT(out[j], j % WIDTH < 8 ? in[j] : 0);
        far_end(&far);
    }
}

/* The caller's memory is his again as soon as a call returns. */
TEST(lists_and_writes_are_copied_at_once)
{
    for (int i = 0; i < ROWS(both); i++) {
        float table[8] = {0, 1, 2, 3, 4, 5, 6, 7}, rows[6];
        int32_t index[3] = {3, 0, 2};
        struct far far;

        far_begin(&far, both[i]);
        const struct tensor there =
            tensor_2d(far.memory, DTYPE_F32, 4, 2);
        const struct tensor out =
            tensor_2d(far.memory + 4096, DTYPE_F32, 3, 2);

        IS_OK(device_write(&far.stream, far.memory, table, sizeof table));
        memset(table, 0xff, sizeof table);
        IS_OK(far.table.gather_rows(&far.stream, out, false, there, index));
        memset(index, 0xff, sizeof index);
        IS_OK(device_read(&far.stream, rows, out.data, sizeof rows));
        EQUAL_INT(rows[0], 6);
        EQUAL_INT(rows[3], 1);
        EQUAL_INT(rows[4], 4);
        far_end(&far);
    }
}

/* Late work waits for somebody who wants it; until then the host finds NaN. */
TEST(late_work_is_not_done_before_it_is_awaited)
{
    struct far far;
    double sum = 0;

    far_begin(&far, DEVICE_LATE);
    const struct tensor x = tensor_1d(far.memory, DTYPE_F32, 16);

    IS_OK(device_fill(&far.stream, far.memory, 0, 64));
    IS_OK(far.table.sum_squares(&far.stream, &sum,
                                tensor_2d(x.data, x.dtype, 1, 16), 1));
    usleep(2000);
    CHECK(sum != sum);
    IS_OK(device_finish(&far.stream));
    CHECK(sum == 0);
    far_end(&far);
}

/* Returns the signal that ended a child which does this to the address. */
static int ended_by(void (*touch)(volatile char *), char *at)
{
    const pid_t child = fork();
    int how = 0;

    CHECK(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        fclose(stderr);
        touch(at);
        _exit(0);
    }
    CHECK(waitpid(child, &how, 0) == child);
    return WIFSIGNALED(how) ? WTERMSIG(how) : 0;
}

static void load(volatile char *at)
{
    const char byte = *at;

    (void)byte;
}

static void store(volatile char *at)
{
    *at = 1;
}

TEST(the_host_cannot_touch_its_memory)
{
    struct far far;
    int file;

    far_begin(&far, DEVICE_LATE);
    EQUAL_INT(ended_by(load, far.memory), SIGSEGV);
    EQUAL_INT(ended_by(store, far.memory + BYTES - 1), SIGSEGV);
    EQUAL_INT(ended_by(store, far.memory + BYTES), SIGSEGV);
    file = open("/dev/zero", O_RDONLY);
    CHECK(file >= 0);
    EQUAL_INT(read(file, far.memory, 16), -1);
    EQUAL_INT(errno, EFAULT);
    close(file);
    far_end(&far);
}

static struct far *launching;

static void launch_host_memory(volatile char *at)
{
    float here[4] = {0};
    const struct tensor host = tensor_1d(here, DTYPE_F32, 4);

    (void)at;
    (void)launching->table.add(&launching->stream, host, host, host);
}

TEST(kernels_take_memory_of_the_device_only)
{
    struct far far;

    far_begin(&far, DEVICE_LATE);
    launching = &far;
    EQUAL_INT(ended_by(launch_host_memory, NULL), SIGABRT);
    far_end(&far);
}

/* A part of a matrix that ranks divide is on the device; element 0 would
 * lie before all of its memory. */
TEST(a_part_of_a_matrix_is_coded_where_it_is)
{
    enum { COLS = 64, FIRST = 1 << 24, COUNT = 2 * COLS };
    struct quantize_span rows[] = {{.count = FIRST / COLS + 2}},
                         cols[] = {{.count = COLS}};
    static uint8_t codes[COUNT];
    float in[COUNT], peak = 448;
    struct far far;

    for (int i = 0; i < COUNT; i++) in[i] = (float)(i % 8);
    far_begin(&far, DEVICE_LATE);
    IS_OK(device_write(&far.stream, far.memory, in, sizeof in));
    struct block_encode call = {
        .what = ENCODE_CODES, .first = FIRST, .last = FIRST + COUNT,
        .in = tensor_2d(far.memory - (ptrdiff_t)FIRST * 4, DTYPE_F32,
                        rows[0].count, COLS),
        .coding = {.rows = rows, .cols = cols, .row_spans = 1, .col_spans = 1,
                   .format = FORMAT_E4M3, .scale = SCALE_CEIL},
        .peaks = &peak, .scales = far.memory + 4096,
        .codes = (uint8_t *)far.memory + 8192 - FIRST, .row_bytes = COLS};

    IS_OK(far.table.block_encode(&far.stream, &call));
    IS_OK(device_read(&far.stream, codes, far.memory + 8192, COUNT));
    for (int i = 0; i < COUNT; i++) CHECK(codes[i] == codes[i % 8]);
    CHECK(codes[0] != codes[1] && codes[1] != codes[2]);
    /* A rank that has none of it makes the scales alone. */
    call.in.data = call.codes = NULL;
    call.first = call.last = 1;
    IS_OK(far.table.block_encode(&far.stream, &call));
    IS_OK(device_finish(&far.stream));
    far_end(&far);
}

/* A message finds what the device's copies see. */
TEST(messages_find_its_memory)
{
    struct far far;
    char here = 0;

    far_begin(&far, DEVICE_LATE);
    IS_OK(device_fill(&far.stream, far.memory, 5, 16));
    IS_OK(device_settle(far.memory));
    CHECK(device_seen(far.memory) != (void *)far.memory);
    EQUAL_INT(*(char *)device_seen(far.memory), 5);
    CHECK(device_seen(&here) == (void *)&here);
    far_end(&far);
    CHECK(device_seen(far.memory) == (void *)far.memory);
}

/* As often as anybody likes, also one that is not the last; what is left stays
 * where it is. */
TEST(memory_that_is_given_back_is_nobodys)
{
    struct far far;
    void *first, *second;

    far_begin(&far, DEVICE_LATE);
    for (int i = 0; i < 200; i++) {
        IS_OK(device_take(far.device, 4096, &first));
        IS_OK(device_take(far.device, 8192, &second));
        CHECK(device_seen(first) != first && device_seen(second) != second);
        device_give(far.device, first);
        CHECK(device_near(far.device, first) == NULL);
        CHECK(device_seen(first) == first && device_seen(second) != second);
        device_give(far.device, second);
        CHECK(device_seen(second) == second);
    }
    CHECK(device_seen(far.memory) != (void *)far.memory);
    far_end(&far);
}

static status fail_late(void *owner, void *told)
{
    (void)owner;
    (void)told;
    FAIL(ERR_DEVICE, "this piece of work fails");
}

TEST(an_error_of_its_work_is_told_to_who_waits)
{
    struct far far;

    far_begin(&far, DEVICE_LATE);
    queue_begin(device_kernels(far.device), fail_late, 0);
    queue_end(device_kernels(far.device));
    FAILS(device_finish(&far.stream), ERR_DEVICE, "this piece of work fails");
    status_clear();
    IS_OK(device_finish(&far.stream));
    far_end(&far);
}

/* Room is used again when what lies there was done. */
TEST(a_queue_takes_more_work_than_it_has_room_for)
{
    for (int i = 0; i < ROWS(both); i++) {
        struct far far;
        char last[16];

        far_begin(&far, both[i]);
        for (int j = 0; j < 20000; j++)
            IS_OK(device_fill(&far.stream, far.memory, j % 100, 16));
        IS_OK(device_read(&far.stream, last, far.memory, 16));
        EQUAL_INT(last[15], 19999 % 100);
        far_end(&far);
    }
}

TEST(names_of_devices)
{
    enum device_kind kind;

    IS_OK(device_parse(&kind, "auto"));
    EQUAL_INT(kind, DEVICE_AUTO);
    IS_OK(device_parse(&kind, "far"));
    EQUAL_INT(kind, DEVICE_FAR);
    IS_OK(device_parse(&kind, "cuda"));
    EQUAL_INT(kind, DEVICE_CUDA);
    FAILS(device_parse(&kind, "fra"), ERR_CONFIG,
          "expected auto, cpu, cuda or far");
}

TEST_MAIN(what_is_written_is_read, parts_of_rows_are_copied,
          lists_and_writes_are_copied_at_once,
          late_work_is_not_done_before_it_is_awaited,
          the_host_cannot_touch_its_memory,
          kernels_take_memory_of_the_device_only,
          a_part_of_a_matrix_is_coded_where_it_is, messages_find_its_memory,
          memory_that_is_given_back_is_nobodys,
          an_error_of_its_work_is_told_to_who_waits,
          a_queue_takes_more_work_than_it_has_room_for, names_of_devices)
