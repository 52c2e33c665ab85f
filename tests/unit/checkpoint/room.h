/* SPDX-License-Identifier: Apache-2.0 */
/* room.h - functions shared by the tests of checkpoints: a directory of their
 * own, files in it, damage to them, and a small model to save. */
#ifndef LOCKSTEP_TESTS_CHECKPOINT_ROOM_H
#define LOCKSTEP_TESTS_CHECKPOINT_ROOM_H

#include "tests/test.h"
#include "checkpoint/save.h"

static char room[PATH_BYTES];

static inline void room_open(void)
{
    test_directory(room);
}

static inline void room_close(void)
{
    IS_OK(directory_remove(room));
}

/* Room for several names at once: the last four stay valid. */
static inline const char *room_path(const char *name)
{
    static char paths[4][2 * PATH_BYTES];
    static int next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof paths[0], "%s/%s", room, name);
    return path;
}

static inline void room_write(const char *name, const void *bytes,
                              size_t length)
{
    FILE *file = fopen(room_path(name), "wb");

    CHECK(file != NULL);
    EQUAL_INT(fwrite(bytes, 1, length, file), length);
    EQUAL_INT(fclose(file), 0);
}

static inline struct text room_read(const char *name)
{
    struct text text = {0};

    EQUAL_INT(file_read(room_path(name), 1 << 28, &text), OK);
    return text;
}

static inline void room_flip(const char *name, size_t byte, int bit)
{
    struct text text = room_read(name);

    CHECK(byte < text.length);
    text.bytes[byte] = (char)(text.bytes[byte] ^ (1 << bit));
    room_write(name, text.bytes, text.length);
    text_free(&text);
}

/* A model of three weights with two moments each; one weight spans several
 * blocks, and none is a multiple of a block. */
enum { SMALL_PARTS = 9, SMALL_FLOATS = 2 * 300001 + 3 * 40 + 7 };

struct small {
    float data[3][SMALL_FLOATS];
    struct saved_part parts[SMALL_PARTS];
    struct checkpoint_file file;
    struct checkpoint_plan plan;
};

static inline struct small *small_make(int seed)
{
    static const char *const names[] = {
        "model.embed.weight", "model.layers.0.q.weight", "model.norm.weight"};
    static const char *const kinds[] = {"weight", "m", "v"};
    static const int64_t shapes[3][2] = {{2, 300001}, {3, 40}, {7, 0}};
    struct small *small = calloc(1, sizeof *small);
    uint32_t value = (uint32_t)seed * 2654435761u + 1;

    CHECK(small != NULL);
    for (int kind = 0; kind < 3; kind++) {
        float *at = small->data[kind];

        for (int i = 0; i < SMALL_FLOATS; i++) {
            value = value * 1664525u + 1013904223u;
            at[i] = (float)(int32_t)value / 2147483648.0f;
        }
        for (int i = 0; i < 3; i++) {
            struct saved_part *part = &small->parts[3 * i + kind];

            part->name = names[i];
            part->kind = kinds[kind];
            part->dtype = DTYPE_F32;
            part->dimensions = i == 2 ? 1 : 2;
            memcpy(part->shape, shapes[i], sizeof shapes[i]);
            part->data = at;
            at += shapes[i][0] * (i == 2 ? 1 : shapes[i][1]);
        }
    }
    small->file = (struct checkpoint_file){"config.json", "{}\n", 3};
    small->plan = (struct checkpoint_plan){.run = room,
                                           .step = 5,
                                           .tokens = 640,
                                           .grid = {8, 4, 1, 1},
                                           .lockstep = "0.1.0",
                                           .numerics = 1,
                                           .config_json = "{\"heads\": 4}",
                                           .tokenizer = "00112233",
                                           .state_json = "{\"epoch\": 2}\n",
                                           .parts = small->parts,
                                           .part_count = SMALL_PARTS,
                                           .files = &small->file,
                                           .file_count = 1};
    return small;
}

static inline void small_save(int seed, int64_t step)
{
    struct small *small = small_make(seed);

    small->plan.step = step;
    IS_OK(checkpoint_save(&small->plan));
    free(small);
}

#endif
