/* SPDX-License-Identifier: Apache-2.0 */
/* test_save.c - mirrors src/checkpoint/save.c. */
#include "tests/unit/checkpoint/holders.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/threads.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/history.h"

static const char *const FILES[] = {"manifest.json",
                                    "state.json",
                                    "config.json",
                                    "model.safetensors.index.json",
                                    "model-00001-of-00001.safetensors",
                                    "optim-00001-of-00001.safetensors"};

static void check_against(const struct small *small, const char *directory,
                          struct threads *threads)
{
    struct checkpoint checkpoint = {0};
    float *read = calloc(SMALL_FLOATS, sizeof *read);
    int64_t epoch = 0;

    CHECK(read != NULL);
    IS_OK(checkpoint_open(&checkpoint, room_path(directory), threads));
    IS_OK(checkpoint_verify(&checkpoint));
    EQUAL_INT(checkpoint.manifest.step, 5);
    EQUAL_INT(checkpoint.manifest.tokens, 640);
    EQUAL_INT(checkpoint.manifest.grid.data, 8);
    EQUAL_TEXT(checkpoint.manifest.tokenizer, "00112233");
    IS_OK(json_get_integer(checkpoint.state, "state", "epoch", &epoch));
    EQUAL_INT(epoch, 2);
    for (int i = 0; i < SMALL_PARTS; i++) {
        struct saved_part part = small->parts[i];
        int64_t elements = 0;

        part.data = read;
        part.run_count = 0;
        IS_OK(part_elements(part.name, part.dimensions, part.shape, part.dtype,
                            &elements));
        memset(read, 0xee, (size_t)elements * sizeof *read);
        IS_OK(checkpoint_read_tensor(&checkpoint, &part));
        EQUAL_BYTES(read, small->parts[i].data,
                    (size_t)elements * sizeof *read);
    }
    checkpoint_close(&checkpoint);
    free(read);
}

TEST(round_trip)
{
    struct small *small = small_make(1);
    struct threads *threads = NULL;

    room_open();
    IS_OK(checkpoint_save(&small->plan));
    check_against(small, "ckpt/step-00000005", NULL);
    IS_OK(threads_build(&threads, 3));
    check_against(small, "ckpt/step-00000005", threads);
    threads_free(threads);
    free(small);
    room_close();
}

/* The same state gives the same bytes, whatever the threads or what stood there
 * before. */
TEST(equal_states_give_equal_bytes)
{
    struct small *small = small_make(2);
    struct threads *threads = NULL;
    char path[128];

    room_open();
    IS_OK(checkpoint_save(&small->plan));
    EQUAL_INT(rename(room_path("ckpt"), room_path("first")), 0);
    IS_OK(threads_build(&threads, 2));
    small->plan.threads = threads;
    IS_OK(checkpoint_save(&small->plan));
    IS_OK(checkpoint_save(&small->plan)); /* again, over itself */
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        struct text a, b;

        snprintf(path, sizeof path, "first/step-00000005/%s", FILES[i]);
        a = room_read(path);
        snprintf(path, sizeof path, "ckpt/step-00000005/%s", FILES[i]);
        b = room_read(path);
        EQUAL_INT(a.length, b.length);
        EQUAL_BYTES(a.bytes, b.bytes, a.length);
        text_free(&a);
        text_free(&b);
    }
    threads_free(threads);
    free(small);
    room_close();
}

/* Two holders of the same tensors: the files are those of a single one, byte
 * for byte, wherever the cut lies in the blocks. */
TEST(two_holders_write_one_checkpoint)
{
    static const int64_t cuts[] = {1, 70000, 262144, 300000};
    struct small *small = small_make(3);
    struct text expected, found;

    room_open();
    IS_OK(checkpoint_save(&small->plan));
    expected = room_read("ckpt/step-00000005/manifest.json");
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        struct checkpoint_save save;

        IS_OK(checkpoint_save_begin(&save, &small->plan));
        write_holder(&save, small, cuts[c], 0);
        write_holder(&save, small, cuts[c], 1);
        IS_OK(checkpoint_save_finish(&save));
        for (int share = 0; share < 3; share++)
            IS_OK(checkpoint_save_check(&save, share, 3));
        IS_OK(checkpoint_save_commit(&save));
        checkpoint_save_free(&save);
        found = room_read("ckpt/step-00000005/manifest.json");
        EQUAL_TEXT(found.bytes, expected.bytes);
        text_free(&found);
        check_against(small, "ckpt/step-00000005", NULL);
    }
    text_free(&expected);
    free(small);
    room_close();
}

/* A matrix held transposed: whole [rows, cols], local [cols, rows]. */
TEST(transposed_and_converted)
{
    enum { ROWS = 700, COLS = 900 };
    struct saved_run run = {.length = COLS,
                            .repeats = ROWS,
                            .whole_stride = COLS,
                            .local_stride = 1,
                            .local_step = ROWS};
    float *local = calloc(ROWS * COLS, sizeof *local);
    double *back = calloc(ROWS * COLS, sizeof *back);
    struct saved_part part = {.name = "w",
                              .kind = "weight",
                              .dtype = DTYPE_F32,
                              .dimensions = 2,
                              .shape = {ROWS, COLS},
                              .run_count = 1,
                              .runs = &run,
                              .data = local};
    struct checkpoint_plan plan = {.run = room,
                                   .step = 1,
                                   .lockstep = "0",
                                   .grid = {1, 1, 1, 1},
                                   .state_json = "{}",
                                   .parts = &part,
                                   .part_count = 1};
    struct checkpoint checkpoint = {0};

    room_open();
    CHECK(local && back);
    for (int i = 0; i < ROWS * COLS; i++) local[i] = (float)i;
    IS_OK(checkpoint_save(&plan));
    IS_OK(checkpoint_open(&checkpoint, room_path("ckpt/step-00000001"), NULL));
    part.dtype = DTYPE_F64;
    part.data = back;
    part.run_count = 0; /* dense */
    IS_OK(checkpoint_read_tensor(&checkpoint, &part));
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++)
            CHECK(back[r * COLS + c] == (double)(c * ROWS + r));
    part.run_count = 1; /* and into the local order */
    IS_OK(checkpoint_read_tensor(&checkpoint, &part));
    for (int i = 0; i < ROWS * COLS; i++) CHECK(back[i] == (double)i);
    IS_OK(checkpoint_read_range(&checkpoint,
                                checkpoint_find(&checkpoint, "w", "weight"),
                                COLS + 2, 3, DTYPE_F64, back));
    CHECK(back[1] == (double)(3 * ROWS + 1));
    checkpoint_close(&checkpoint);
    free(local);
    free(back);
    room_close();
}

TEST(uncovered_tensors_are_refused)
{
    struct small *small = small_make(4);
    const struct saved_run half = {.length = 300001, .repeats = 1};
    struct saved_part parts[SMALL_PARTS];

    room_open();
    memcpy(parts, small->parts, sizeof parts);
    parts[1].runs = &half;
    parts[1].run_count = 1;
    small->plan.parts = parts;
    FAILS(checkpoint_save(&small->plan), ERR_CONFIG,
          "model.embed.weight (m): 300001 elements were given");
    CHECK(!file_exists(room_path("ckpt/step-00000005")));
    CHECK(!file_exists(room_path("ckpt/.tmp-step-00000005")));
    CHECK(!file_exists(room_path("ckpt/latest")));
    free(small);
    room_close();
}

/* A process whose files may not grow beyond a limit: what a full disk or a
 * quota does, at every possible place. The checkpoint before stays. */
TEST(a_write_that_fails_leaves_no_trace)
{
    static const rlim_t limits[] = {0, 100, 5000, 200000, 1 << 20, 2000000};

    room_open();
    small_save(5, 4);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        char newest[PATH_BYTES];
        int64_t step = 0;
        int code = -1;
        const pid_t child = fork();

        if (child == 0) {
            const struct rlimit limit = {limits[i], limits[i]};
            struct small *small = small_make(6);
            status result;

            signal(SIGXFSZ, SIG_IGN);
            setrlimit(RLIMIT_FSIZE, &limit);
            result = checkpoint_save(&small->plan);
            _exit(result == ERR_IO && (strstr(status_message(), "size limit") ||
                                       strstr(status_message(), "too large"))
                      ? 0
                      : 1);
        }
        EQUAL_INT(waitpid(child, &code, 0), child);
        EQUAL_INT(code, 0);
        CHECK(!file_exists(room_path("ckpt/step-00000005")));
        CHECK(!file_exists(room_path("ckpt/.tmp-step-00000005")));
        IS_OK(checkpoint_find_newest(room, newest, &step));
        EQUAL_INT(step, 4);
    }
    room_close();
}

TEST(plans_that_make_no_sense)
{
    static const char *const names[] = {
        "../config.json", "a/b",          "", ".hidden", "state.json",
        "x.safetensors",  "manifest.json"};
    struct small *small = small_make(7);
    struct saved_part twice[2];

    room_open();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        small->file.name = names[i];
        FAILS(checkpoint_save(&small->plan), ERR_CONFIG, "cannot be the name");
    }
    small->plan.file_count = 0;
    twice[0] = twice[1] = small->parts[0];
    small->plan.parts = twice;
    small->plan.part_count = 2;
    FAILS(checkpoint_save(&small->plan), ERR_CONFIG, "twice");
    twice[1].name = "no spaces";
    FAILS(checkpoint_save(&small->plan), ERR_CONFIG, "no spaces");
    small->plan.part_count = 1;
    small->plan.step = -1;
    FAILS(checkpoint_save(&small->plan), ERR_CONFIG, "step -1");
    free(small);
    room_close();
}

TEST_MAIN(round_trip, equal_states_give_equal_bytes,
          two_holders_write_one_checkpoint, transposed_and_converted,
          uncovered_tensors_are_refused, a_write_that_fails_leaves_no_trace,
          plans_that_make_no_sense)
