/* SPDX-License-Identifier: Apache-2.0 */
/* test_run_dir.c - mirrors src/checkpoint/run_dir.c. */
#include "tests/unit/checkpoint/room.h"
#include <signal.h>
#include <sys/wait.h>
#include "checkpoint/history.h"
#include "checkpoint/run_dir.h"

TEST(a_run_is_made_once_and_locked)
{
    struct run_dir run = {0}, other = {0};
    char pid[32];

    room_open();
    IS_OK(run_dir_create(&run, room_path("runs/first")));
    CHECK(file_is_directory(room_path("runs/first")));
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    FAILS(run_dir_create(&other, room_path("runs/first")), ERR_CONFIG, pid);
    run_dir_close(&other);
    room_write("runs/first/config.yaml", "version: 1\n", 11);
    FAILS(run_dir_resume(&other, room_path("runs/first")), ERR_CONFIG, pid);
    run_dir_close(&other);
    IS_OK(run_dir_read(&other, room_path("runs/first"))); /* no lock */
    run_dir_close(&other);
    run_dir_close(&run);
    FAILS(run_dir_create(&run, room_path("runs/first")), ERR_CONFIG,
          "holds a run already");
    run_dir_close(&run);
    IS_OK(directory_make(room_path("runs/first/ckpt/.tmp-step-00000003")));
    IS_OK(run_dir_resume(&run, room_path("runs/first")));
    CHECK(!file_exists(room_path("runs/first/ckpt/.tmp-step-00000003")));
    EQUAL_TEXT(run.config, room_path("runs/first/config.yaml"));
    run_dir_close(&run);
    run_dir_close(&run);
    room_close();
}

/* Only what a run writes itself, and only when nothing is refused. */
TEST(a_start_removes_no_file_of_others)
{
    static const char *const stay[] = {
        "thesis.tmp-draft.txt", "thesis.tmp-1-2-0123456789abcdef",
        "report.html.tmp-1-2-0123456789abcdef.txt", "report.html.tmp-draft",
        "ckpt/.tmp-notes", "ckpt/.none.tmp-mine", "ckpt/latest.tmp-mine",
        "ckpt/mine.tmp-1-2-0123456789abcdef"};
    static const char *const ours[] = {
        "report.html.tmp-1-2-0123456789abcdef",
        "config.yaml.tmp-1-2-0123456789abcdef",
        "launch.json.tmp-1-2-0123456789abcdef",
        "tokenizer.json.tmp-1-2-0123456789abcdef",
        "ckpt/.none.tmp-1-2-0123456789abcdef",
        "ckpt/latest.tmp-1-2-0123456789abcdef", "ckpt/.tmp-step-00000003"};
    enum { STAY = sizeof stay / sizeof *stay,
           OURS = sizeof ours / sizeof *ours };
    struct run_dir run = {0};

    room_open();
    IS_OK(directory_make(room_path("ckpt")));
    for (int i = 0; i < STAY; i++) room_write(stay[i], "x", 1);
    for (int i = 0; i < OURS; i++) room_write(ours[i], "x", 1);
    room_write("config.yaml", "version: 1\n", 11);
    FAILS(run_dir_create(&run, room), ERR_CONFIG, "holds a run already");
    for (int i = 0; i < STAY; i++) CHECK(file_exists(room_path(stay[i])));
    for (int i = 0; i < OURS; i++) CHECK(file_exists(room_path(ours[i])));
    IS_OK(run_dir_resume(&run, room));
    CHECK(file_exists(room_path(ours[0]))); /* it may be refused yet */
    IS_OK(run_dir_clean(&run));
    for (int i = 0; i < STAY; i++) CHECK(file_exists(room_path(stay[i])));
    for (int i = 0; i < OURS; i++) CHECK(!file_exists(room_path(ours[i])));
    run_dir_close(&run);
    room_close();
}

/* The holder is killed: the lock is free, with no file to remove. */
TEST(a_lock_does_not_outlive_its_process)
{
    struct run_dir run = {0};
    int ready[2], code;
    char byte;
    pid_t child;

    room_open();
    EQUAL_INT(pipe(ready), 0);
    child = fork();
    if (child == 0) {
        if (run_dir_create(&run, room_path("run")) != OK) _exit(1);
        if (write(ready[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    EQUAL_INT(read(ready[0], &byte, 1), 1);
    FAILS(run_dir_create(&run, room_path("run")), ERR_CONFIG, "");
    run_dir_close(&run);
    kill(child, SIGKILL);
    EQUAL_INT(waitpid(child, &code, 0), child);
    IS_OK(run_dir_create(&run, room_path("run")));
    run_dir_close(&run);
    close(ready[0]);
    close(ready[1]);
    room_close();
}

TEST(places_where_no_run_can_be)
{
    struct run_dir run = {0};

    room_open();
    room_write("file", "x", 1);
    FAILS(run_dir_create(&run, room_path("file")), ERR_CONFIG, "is a file");
    FAILS(run_dir_create(&run, room_path("file/run")), ERR_IO, "file");
    FAILS(run_dir_resume(&run, room_path("none")), ERR_MISSING,
          "no such directory");
    FAILS(run_dir_resume(&run, room), ERR_MISSING, "config.yaml");
    if (geteuid() != 0) { /* the superuser may write anywhere */
        IS_OK(directory_make(room_path("closed")));
        EQUAL_INT(chmod(room_path("closed"), 0500), 0);
        FAILS(run_dir_create(&run, room_path("closed")), ERR_IO,
              "cannot be written");
    }
    run_dir_close(&run);
    room_close();
}

/* A directory of a run without config.yaml, or a run that saved nothing. */
TEST(runs_that_lack_a_part_are_not_begun_over)
{
    struct run_dir run = {0};

    room_open();
    small_save(1, 10);
    FAILS(run_dir_create(&run, room), ERR_MISSING,
          "holds checkpoints of a run, but no config.yaml");
    IS_OK(directory_remove(room_path("ckpt")));
    room_write("metrics.jsonl", "", 0);
    IS_OK(run_dir_create(&run, room));
    run_dir_close(&run);
    room_write("metrics.jsonl", "{}\n", 3);
    FAILS(run_dir_create(&run, room), ERR_MISSING,
          "holds metrics of a run, but no config.yaml");
    room_write("config.yaml", "version: 1\n", 11);
    IS_OK(checkpoint_announce(room));
    FAILS(run_dir_create(&run, room), ERR_CONFIG,
          "which ended before its first checkpoint");
    CHECK(strstr(status_hint_text(), "begin it again at step 0") != NULL);
    small_save(1, 10);
    FAILS(run_dir_create(&run, room), ERR_CONFIG, "holds a run already");
    CHECK(strstr(status_hint_text(), "continue it with: lockstep resume") !=
          NULL);
    room_close();
}

TEST(what_a_model_argument_names)
{
    struct model_place place;

    room_open();
    IS_OK(directory_make(room_path("hf")));
    room_write("hf/model.safetensors", "", 0);
    IS_OK(model_place_find(room_path("hf"), &place));
    EQUAL_INT(place.kind, MODEL_HUGGING_FACE);
    EQUAL_TEXT(place.directory, room_path("hf"));

    small_save(1, 10);
    small_save(2, 30);
    IS_OK(model_place_find(room, &place));
    EQUAL_INT(place.kind, MODEL_RUN);
    EQUAL_INT(place.step, 30);
    EQUAL_TEXT(place.directory, room_path("ckpt/step-00000030"));
    IS_OK(model_place_find(room_path("ckpt/step-00000010/"), &place));
    EQUAL_INT(place.kind, MODEL_CHECKPOINT);
    EQUAL_TEXT(place.directory, room_path("ckpt/step-00000010/"));
    room_close();
}

TEST(what_is_no_model)
{
    static const struct {
        const char *file;
        status code;
        const char *words;
    } rows[] = {
        {"latest_checkpointed_iteration.txt", ERR_FORMAT, "Megatron"},
        {".metadata", ERR_FORMAT, "torchtitan"},
        {"mp_rank_00_model_states.pt", ERR_FORMAT, "DeepSpeed"},
        {"checkpoint_metadata.json", ERR_FORMAT, "nanotron"},
        {"lit_model.pth", ERR_FORMAT, "LitGPT"},
        {"pytorch_model.bin", ERR_FORMAT, "PyTorch"},
        {"config.yaml", ERR_MISSING, "no checkpoint yet"},
        {"readme.txt", ERR_FORMAT, "neither a run"},
    };
    struct model_place place;

    room_open();
    for (int i = 0; i < ROWS(rows); i++) {
        char path[64];

        IS_OK(directory_make(room_path("m")));
        snprintf(path, sizeof path, "m/%s", rows[i].file);
        room_write(path, "x", 1);
        FAILS(model_place_find(room_path("m"), &place), rows[i].code,
              rows[i].words);
        IS_OK(directory_remove(room_path("m")));
    }
    IS_OK(directory_make(room_path("m")));
    room_write("m/config.json", "{}", 2);
    FAILS(model_place_find(room_path("m"), &place), ERR_FORMAT,
          "neither a run");
    room_write("m/model-00001-of-00002.safetensors", "x", 1);
    FAILS(model_place_find(room_path("m"), &place), ERR_FORMAT,
          "but not the model.safetensors.index.json that names their");
    IS_OK(directory_remove(room_path("m")));
    FAILS(model_place_find(room_path("m"), &place), ERR_MISSING,
          "no such directory");
    room_write("m", "x", 1);
    FAILS(model_place_find(room_path("m"), &place), ERR_FORMAT, "is a file");
    room_close();
}

TEST_MAIN(a_run_is_made_once_and_locked, a_start_removes_no_file_of_others,
          a_lock_does_not_outlive_its_process,
          places_where_no_run_can_be,
          runs_that_lack_a_part_are_not_begun_over,
          what_a_model_argument_names, what_is_no_model)
