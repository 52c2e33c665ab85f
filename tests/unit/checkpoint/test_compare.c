/* SPDX-License-Identifier: Apache-2.0 */
/* test_compare.c - mirrors src/checkpoint/compare.c. */
#include "tests/unit/checkpoint/room.h"
#include "checkpoint/compare.h"

static void save_changed(int part, int64_t element, float change)
{
    struct small *small = small_make(1);
    float *data = small->parts[part].data;

    small->plan.run = room_path("b");
    IS_OK(directory_make(small->plan.run));
    data[element] = change == 0 ? -data[element] : data[element] + change;
    IS_OK(checkpoint_save(&small->plan));
    free(small);
}

static struct compare_report compare(const char *a, const char *b)
{
    struct compare_report report;

    IS_OK(weights_compare(room_path(a), room_path(b), &report, NULL));
    return report;
}

TEST(equal_checkpoints)
{
    struct compare_report report;
    struct text text = {0};

    room_open();
    small_save(1, 5);
    report = compare("ckpt/step-00000005", "ckpt/step-00000005");
    CHECK(report.equal);
    EQUAL_INT(report.tensors, SMALL_PARTS);
    IS_OK(compare_describe(&report, &text));
    EQUAL_TEXT(text.bytes, "equal: 9 tensors, every bit");
    text_free(&text);
    room_close();
}

/* The last element of the largest tensor: no chunk is forgotten. */
TEST(the_first_tensor_that_differs)
{
    struct compare_report report;
    struct text text = {0};

    room_open();
    small_save(1, 5);
    save_changed(0, 600001, 0.5f);
    report = compare("ckpt/step-00000005", "b/ckpt/step-00000005");
    CHECK(!report.equal);
    EQUAL_TEXT(report.name, "model.embed.weight");
    EQUAL_INT(report.differing, 1);
    EQUAL_INT(report.tensors, SMALL_PARTS);
    EQUAL_INT(report.count, 1);
    EQUAL_INT(report.first, 600001);
    CHECK(report.max_abs > 0.4999 && report.max_abs < 0.5001);
    CHECK(report.max_scale > 0.9);
    CHECK(report.max_ulp > 1000);
    IS_OK(compare_describe(&report, &text));
    CHECK(strstr(text.bytes, "1 of 600002 elements, first at 600001"));
    text_free(&text);
    room_close();
}

TEST(an_optimizer_state_that_differs)
{
    struct compare_report report;

    room_open();
    small_save(1, 5);
    save_changed(8, 3, 1.0f);
    report = compare("ckpt/step-00000005", "b/ckpt/step-00000005");
    CHECK(!report.equal);
    EQUAL_TEXT(report.name, "model.norm.weight.v");
    EQUAL_INT(report.first, 3);
    room_close();
}

/* A run's checkpoint against an export of the same weights, as bfloat16 too;
 * then with a tensor renamed and another of other shape. */
TEST(a_checkpoint_and_a_hugging_face_directory)
{
    struct small *small = small_make(1);
    struct safetensors_tensor tensors[3];
    struct weights_writer writer = {0};
    struct compare_report report;
    struct text text = {0};

    room_open();
    IS_OK(checkpoint_save(&small->plan));
    for (int i = 0; i < 3; i++) {
        tensors[i] = (struct safetensors_tensor){
            .name = small->parts[3 * i].name,
            .dtype = DTYPE_F32,
            .dimensions = small->parts[3 * i].dimensions};
        memcpy(tensors[i].shape, small->parts[3 * i].shape,
               sizeof tensors[i].shape);
    }
    for (int renamed = 0; renamed < 2; renamed++) {
        const int64_t counts[] = {600002, 120, 7};

        if (renamed) {
            tensors[2].name = "model.other.weight";
            tensors[1].shape[0] = 40;
            tensors[1].shape[1] = 3;
        }
        IS_OK(weights_writer_open(&writer, room_path("hf"), tensors, 3, 0));
        for (int i = 0; i < 3; i++)
            IS_OK(weights_writer_put(&writer, i, 0, counts[i],
                                     small->parts[3 * i].data));
        IS_OK(weights_writer_commit(&writer));
        weights_writer_free(&writer);
        report = compare("ckpt/step-00000005", "hf");
        CHECK(report.equal == !renamed);
        EQUAL_INT(report.tensors, renamed ? 2 : 3);
    }
    EQUAL_TEXT(report.name, "model.layers.0.q.weight");
    CHECK(report.shapes_differ);
    EQUAL_INT(report.only_a, 1);
    EQUAL_INT(report.only_b, 1);
    EQUAL_TEXT(report.first_only, "model.norm.weight");
    IS_OK(compare_describe(&report, &text));
    CHECK(strstr(text.bytes, "[3, 40] in the first and [40, 3]"));
    text_free(&text);
    free(small);
    room_close();
}

/* -0 is not 0, one NaN is another, and neighbours are one ulp apart. */
TEST(bits_count)
{
    static const struct {
        uint32_t a, b;
        bool equal;
        uint64_t ulp;
    } rows[] = {
        {0x3f800000, 0x3f800000, true, 0},  {0x00000000, 0x80000000, false, 1},
        {0x7fc00000, 0x7fc00001, true, 0},  {0x3f800000, 0x3f800001, false, 1},
        {0xbf800000, 0xbf800003, false, 3}, {0x00000001, 0x80000001, false, 3},
        {0x7f800000, 0x7f7fffff, false, 1},
    };

    room_open();
    for (int i = 0; i < ROWS(rows); i++) {
        struct safetensors_tensor tensor = {.name = "w", .dtype = DTYPE_F32};
        struct compare_report report;

        for (int side = 0; side < 2; side++) {
            struct weights_writer writer = {0};

            IS_OK(weights_writer_open(&writer, room_path(side ? "b" : "a"),
                                      &tensor, 1, 0));
            IS_OK(weights_writer_put(&writer, 0, 0, 1,
                                     side ? &rows[i].b : &rows[i].a));
            IS_OK(weights_writer_commit(&writer));
            weights_writer_free(&writer);
        }
        report = compare("a", "b");
        CHECK(report.equal == rows[i].equal);
        EQUAL_INT(report.max_ulp, rows[i].ulp);
    }
    room_close();
}

TEST(damage_is_an_error_and_not_a_difference)
{
    struct compare_report report;
    char path[128];

    room_open();
    small_save(1, 5);
    small_save(1, 6);
    snprintf(path, sizeof path, "ckpt/step-00000006/%s",
             "model-00001-of-00001.safetensors");
    room_flip(path, 900000, 0);
    FAILS(weights_compare(room_path("ckpt/step-00000005"),
                          room_path("ckpt/step-00000006"), &report,
                          NULL),
          ERR_FORMAT, "is damaged");
    FAILS(weights_compare(room_path("none"), room_path("none"), &report,
                          NULL),
          ERR_MISSING, "model.safetensors");
    room_close();
}

TEST_MAIN(equal_checkpoints, the_first_tensor_that_differs,
          an_optimizer_state_that_differs,
          a_checkpoint_and_a_hugging_face_directory, bits_count,
          damage_is_an_error_and_not_a_difference)
