/* SPDX-License-Identifier: Apache-2.0 */
/* test_best.c - mirrors src/checkpoint/best.c. */
#include "checkpoint/best.h"

#include "checkpoint/history.h"
#include "checkpoint/run_dir.h"
#include "tests/test.h"
#include "tests/unit/checkpoint/room.h"

/* A step with this state.json; the newest. */
static void make_step(int64_t step, const char *state)
{
    char path[PATH_BYTES], name[32], line[40];

    step_name(name, step);
    snprintf(path, sizeof path, "ckpt/%s", name);
    IS_OK(directory_make(room_path(path)));
    snprintf(path, sizeof path, "ckpt/%s/state.json", name);
    room_write(path, state, strlen(state));
    snprintf(line, sizeof line, "%s\n", name);
    room_write("ckpt/latest", line, strlen(line));
}

TEST(the_lowest_loss_of_those_that_are_there)
{
    int64_t best;

    room_open();
    IS_OK(checkpoint_best_step(room, -1, &best));
    EQUAL_INT(best, -1);
    make_step(10, "{\"valid_loss\": 3.5, \"best_step\": 10}");
    make_step(20, "{\"valid_loss\": 3.25, \"best_step\": 20}");
    make_step(25, "{\"best_step\": 20}");
    make_step(30, "{\"valid_loss\": 3.25, \"best_step\": 20}");
    make_step(40, "{\"valid_loss\": 2.5, \"best_step\": 40}");
    IS_OK(checkpoint_best_step(room, -1, &best));
    EQUAL_INT(best, 40);
    IS_OK(checkpoint_best_step(room, 10, &best)); /* known */
    EQUAL_INT(best, 10);
    IS_OK(checkpoint_best_step(room, 15, &best)); /* known, and not there */
    EQUAL_INT(best, 40);
    /* The newest is 30: what is beyond was given up. */
    room_write("ckpt/latest", "step-00000030\n", 14);
    IS_OK(checkpoint_best_step(room, -1, &best));
    EQUAL_INT(best, 20);
    IS_OK(checkpoint_best_step(room, 40, &best));
    EQUAL_INT(best, 20);
    room_write("ckpt/step-00000020/state.json", "{\"valid_loss\": 3", 16);
    IS_OK(checkpoint_best_step(room, -1, &best)); /* 20 is damaged */
    EQUAL_INT(best, 30);
    room_close();
}

TEST(a_model_argument_names_it)
{
    struct model_place place;
    char path[PATH_BYTES];
    int64_t step;

    room_open();
    make_step(10, "{\"valid_loss\": 3.5, \"best_step\": 10}");
    make_step(20, "{\"valid_loss\": 3.75, \"best_step\": 10}");
    IS_OK(checkpoint_find_best(room, path, &step));
    EQUAL_INT(step, 10);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"best", "ckpt/best", "best//"};

        IS_OK(model_place_find(room_path(names[i]), &place));
        EQUAL_INT(place.kind, MODEL_CHECKPOINT);
        EQUAL_INT(place.step, 10);
        EQUAL_TEXT(place.directory, room_path("ckpt/step-00000010"));
    }
    IS_OK(checkpoint_best_known(room_path("ckpt/step-00000020"), &step));
    EQUAL_INT(step, 10);
    IS_OK(directory_remove(room_path("ckpt/step-00000010")));
    FAILS(model_place_find(room_path("best"), &place), ERR_MISSING,
          "lowest at step 10, whose checkpoint is not here");
    CHECK(strstr(status_message(), "step-00000020") != NULL);
    /* A directory of that name is what it is. */
    IS_OK(directory_make(room_path("best")));
    room_write("best/model.safetensors", "", 0);
    IS_OK(model_place_find(room_path("best"), &place));
    EQUAL_INT(place.kind, MODEL_HUGGING_FACE);
    room_close();
}

TEST(no_loss_was_recorded)
{
    struct model_place place;
    char path[PATH_BYTES];
    int64_t step;

    room_open();
    FAILS(checkpoint_find_best(room, path, &step), ERR_MISSING,
          "has no checkpoint yet");
    FAILS(model_place_find(room_path("best"), &place), ERR_MISSING,
          "there is no such directory");
    make_step(10, "{\"step\": 10}");
    FAILS(checkpoint_find_best(room, path, &step), ERR_MISSING,
          "no checkpoint has a validation loss");
    make_step(20, "[1]");
    FAILS(checkpoint_find_best(room, path, &step), ERR_FORMAT,
          "is not an object");
    room_close();
}

TEST_MAIN(the_lowest_loss_of_those_that_are_there, a_model_argument_names_it,
          no_loss_was_recorded)
