/* SPDX-License-Identifier: Apache-2.0 */
/* test_elements.c - mirrors src/optimizer/elements.c and codes.c: AdamW with
 * narrow moments finds what tests/golden/make_elements.py found, and 8-bit
 * states are the same numbers for every way to cut a parameter. */
#include <math.h>
#include "checkpoint/safetensors.h"
#include "kernels/code8.h"
#include "optimizer/update.h"
#include "tests/test.h"
#include "tests/unit/divided.h"

enum { STEPS = 6, COUNT = 2500 };

/* A tensor of a golden file; the caller frees it with memory_free. */
static void *read_from(const char *path, const char *name, enum dtype dtype)
{
    struct safetensors file = {0};
    void *out = NULL;

    IS_OK(safetensors_open(&file, path, true));
    for (int i = 0; i < file.count; i++) {
        const struct safetensors_entry *entry = &file.entries[i];

        if (strcmp(entry->name, name) != 0) continue;
        IS_OK(memory_take((size_t)entry->elements, sizeof(double), &out));
        IS_OK(safetensors_read(&file, entry, 0, entry->elements, dtype, out));
    }
    CHECK(out != NULL);
    safetensors_close(&file);
    return out;
}

static void *read_tensor(const char *name, enum dtype dtype)
{
    return read_from("tests/golden/optimizers/states.safetensors", name,
                     dtype);
}

/* One parameter, and everything that updates it. */
struct room {
    struct param_table table;
    struct holding holding;
    struct shards shards;
    struct states states;
    struct kernels kernels;
    struct stream stream;
    struct update update;
    void *memory[2];
};

static void room_open(struct room *r, const struct param_spec *spec,
                      enum state_type type)
{
    const struct optimizer_choice choice = {.states = type};
    int index;

    *r = (struct room){.holding = {.mesh = mesh_alone(),
                                   .leaves = spec->leaves}};
    IS_OK(kernels_get(&r->kernels, DTYPE_F32, ISA_AUTO));
    IS_OK(param_add(&r->table, spec->name, 0, spec, NULL, &index));
    IS_OK(divided_build(&r->shards, &r->table, &r->holding, 1, 0));
    const struct states_request request = {
        .params = &r->table, .holding = &r->holding, .shards = &r->shards,
        .choice = &choice, .real = DTYPE_F32};

    IS_OK(states_plan(&r->states, &request));
    for (int k = 0; k < 2; k++) {
        IS_OK(memory_take(r->states.bytes[k], 1, &r->memory[k]));
        memset(r->memory[k], 0, r->states.bytes[k]);
    }
    r->update = (struct update){
        .kernels = &r->kernels, .stream = &r->stream, .params = &r->table,
        .holding = &r->holding, .shards = &r->shards, .layout = &r->states,
        .states = {r->memory[0], r->memory[1]}, .beta1 = 0.9, .beta2 = 0.95,
        .epsilon = 1e-8, .weight_decay = 0.1};
}

static void room_close(struct room *r)
{
    for (int k = 0; k < 2; k++) memory_free(r->memory[k]);
    states_free(&r->states);
    shards_free(&r->shards);
    param_table_free(&r->table);
}

static const struct param_spec vector = {
    .name = "v", .rows = 1, .cols = COUNT, .vector = true, .leaves = 1,
    .decay = true};

static void six_steps(struct room *r, float *weight, float *gradients)
{
    r->update.weights.data = weight;
    for (int t = 0; t < STEPS; t++) {
        r->update.gradients.data = gradients + (size_t)t * COUNT;
        IS_OK(update_apply(&r->update, 1, 1e-3, t + 1));
    }
}

/* The oracle rounds each fma once from 64 bits: almost always the same. */
static void near(const char *name, const float *found)
{
    float *wanted = read_tensor(name, DTYPE_F32);
    int differ = 0;

    for (int i = 0; i < COUNT; i++) {
        const double gap = (double)found[i] - (double)wanted[i];

        CHECK(gap <= 1e-6 && gap >= -1e-6);
        differ += gap != 0;
    }
    CHECK(differ <= COUNT / 500);
    memory_free(wanted);
}

TEST(states_of_8_bits_are_the_oracle_s)
{
    static const char *const names[] = {"m8", "v8"};
    static const char *const scales[] = {"m8_scales", "v8_scales"};
    float *weight = read_tensor("weight", DTYPE_F32);
    float *gradients = read_tensor("gradients", DTYPE_F32);
    struct room r;

    room_open(&r, &vector, STATE_INT8);
    six_steps(&r, weight, gradients);
    near("weight8", weight);
    for (int k = 0; k < 2; k++) {
        const struct state_place *place = states_place(&r.states, 0, k);
        unsigned char *codes = read_tensor(names[k], DTYPE_U8);
        float *scale = read_tensor(scales[k], DTYPE_F32);
        const unsigned char *found =
            (const unsigned char *)r.memory[k] + place->at;
        int differ = 0;

        for (int i = 0; i < COUNT; i++) differ += codes[i] != found[i];
        CHECK(differ <= COUNT / 500);
        EQUAL_BYTES((const char *)r.memory[k] + place->scales, scale,
                    3 * sizeof *scale);
        memory_free(codes);
        memory_free(scale);
    }
    room_close(&r);
    memory_free(weight);
    memory_free(gradients);
}

TEST(states_of_16_bits_are_the_oracle_s)
{
    float *weight = read_tensor("weight", DTYPE_F32);
    float *gradients = read_tensor("gradients", DTYPE_F32);
    float widened[COUNT];
    struct room r;

    room_open(&r, &vector, STATE_BFLOAT16);
    CHECK(r.states.bytes[0] == (2 * COUNT + 63) / 64 * 64);
    six_steps(&r, weight, gradients);
    near("weight16", weight);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < COUNT; i++)
            widened[i] = bf16_to_f32(((uint16_t *)r.memory[k])[i]);
        near(k == 0 ? "m16" : "v16", widened);
    }
    room_close(&r);
    memory_free(weight);
    memory_free(gradients);
}

static bool is_among(const float *numbers, float sought)
{
    for (int i = 0; i < CODE8_COUNT; i++)
        if (fabsf(numbers[i] - sought) <= 1e-6f * fabsf(sought)) return true;
    return false;
}

/* Our codes are the published ones without the middles of the last bins, which
 * stand for 1 here, so that both ends are exact. Values that are never negative
 * have one decade more below. */
TEST(codes_stand_for_the_published_numbers)
{
    static const char *const names[] = {"signed", "unsigned"};
    static const char *const path =
        "tests/golden/optimizers/dynamic_map.safetensors";

    for (int k = 0; k < 2; k++) {
        const int bits = CODE8_SIGNED_BITS + k;
        float *published = read_from(path, names[k], DTYPE_F32);
        float ours[CODE8_COUNT], lost = 0;
        int missing = 0;

        code8_table(bits, ours);
        for (int i = 0; i < CODE8_COUNT; i++)
            if (!is_among(ours, published[i])) {
                missing++;
                lost = fabsf(published[i]);
            }
        EQUAL_INT(missing, 2 - k);
        CHECK(fabsf(lost - (1 - 0.45f / (float)(1 << (bits - 1)))) < 1e-6f);
        for (int i = 0; i < 1 << bits; i++)
            CHECK(is_among(published, ours[i]) == !(k == 1 && i == 1));
        memory_free(published);
    }
}

/* ---- cuts ---- */

static float value(int64_t i)
{
    const uint32_t mixed = (uint32_t)(i * 7919 + 13) * 2654435761u;

    return (float)(((double)mixed - 2147483648.0) / 2147483648.0 /
                   (1 + (double)(mixed % 9973)));
}

static const struct param_spec matrices[] = {
    {.name = "rows", .rows = 67, .cols = 48, .leaves = 4,
     .split_rows = AXIS_TENSOR},
    {.name = "columns", .rows = 52, .cols = 72, .leaves = 4,
     .split_cols = AXIS_TENSOR},
    {.name = "fused", .rows = 96, .cols = 40, .leaves = 2,
     .split_rows = AXIS_TENSOR, .piece_count = 3,
     .pieces = {{.rows = 48}, {.rows = 24}, {.rows = 24}}},
    {.name = "whole", .rows = 31, .cols = 77, .leaves = 4},
};

/* Codes of a parameter, encoded whole, are decoded one by one, in steps, and
 * encode to themselves. */
TEST(codes_decode_wherever_they_lie)
{
    for (int m = 0; m < ROWS(matrices); m++) {
        const int64_t count = matrices[m].rows * matrices[m].cols;
        float from[4000], one[4000], all[4000];
        struct state_codes codes;
        struct room r;
        void *copy = NULL;

        CHECK(count <= 4000);
        room_open(&r, &matrices[m], STATE_INT8);
        const struct state_place *place = states_place(&r.states, 0, 0);

        codes = (struct state_codes){
            .param = &r.table.items[0], .holding = &r.holding,
            .range = {.last = count},
            .codes = (unsigned char *)r.memory[0] + place->at,
            .scales = (float *)(void *)((char *)r.memory[0] +
                                        place->scales)};
        for (int64_t i = 0; i < count; i++) from[i] = value(i);
        state_encode(&codes, from);
        IS_OK(memory_take(r.states.bytes[0], 1, &copy));
        memcpy(copy, r.memory[0], r.states.bytes[0]);
        state_decode(&codes, 0, 1, count, all);
        for (int64_t i = 0; i < count; i++) {
            state_decode(&codes, i, 1, 1, &one[i]);
            CHECK(all[i] - from[i] < 0.02 && from[i] - all[i] < 0.02);
        }
        EQUAL_BYTES(one, all, (size_t)count * sizeof *all);
        for (int64_t i = 0; i < 7; i++) {
            state_decode(&codes, i, 7, (count - i + 6) / 7, one);
            for (int64_t j = 0; i + 7 * j < count; j++)
                CHECK(one[j] == all[i + 7 * j]);
        }
        memset(r.memory[0], 255, r.states.bytes[0]);
        state_encode(&codes, all);
        EQUAL_BYTES((char *)r.memory[0] + place->at, copy, (size_t)count);
        state_decode(&codes, 0, 1, count, one);
        EQUAL_BYTES(one, all, (size_t)count * sizeof *all);
        memory_free(copy);
        room_close(&r);
    }
}

TEST_MAIN(states_of_8_bits_are_the_oracle_s,
          states_of_16_bits_are_the_oracle_s,
          codes_stand_for_the_published_numbers, codes_decode_wherever_they_lie)
