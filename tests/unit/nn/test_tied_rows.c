/* SPDX-License-Identifier: Apache-2.0 */
/* test_tied_rows.c - places of named rows, and who keeps only those. */
#include "models/model.h"
#include "nn/tied_rows.h"
#include "plan/stage.h"
#include "tests/test.h"

TEST(rows_take_places_in_the_order_in_which_they_come_up)
{
    static const int32_t first[] = {7, 2, 7, 9}, second[] = {2, 0, 9};
    static const int32_t places[] = {0, 1, 0, 2}, more[] = {1, 3, 2};
    struct tied_rows rows;
    int32_t out[4];

    IS_OK(tied_rows_build(&rows, 10, 4));
    tied_rows_find(&rows, first, 4, out);
    EQUAL_BYTES(out, places, sizeof places);
    tied_rows_find(&rows, second, 3, out);
    EQUAL_BYTES(out, more, sizeof more);
    EQUAL_INT(rows.count, 4);
    EQUAL_INT(rows.places[5], -1);
    tied_rows_reset(&rows);
    EQUAL_INT(rows.count, 0);
    for (int i = 0; i < 10; i++) EQUAL_INT(rows.places[i], -1);
    tied_rows_find(&rows, second, 1, out);
    EQUAL_INT(out[0], 0);
    tied_rows_free(&rows);
}

/* Rows that the lookup of a tied table keeps, and which stream is the
 * parameter's own. */
static int64_t kept(const struct model *model, int64_t length,
                    struct stage_request request)
{
    struct stage stage;
    int64_t rows = 0;

    request.model = model;
    request.size.length = length;
    request.machine.isa = ISA_PLAIN;
    request.size.batch = request.size.micro_batch = 2;
    request.machine.threads = 1;
    request.backward = BACKWARD_FUSED;
    request.layout.grid = (struct grid){.data = 1, .tensor = 2, .context = 1};
    IS_OK(stage_plan(&stage, &request));
    for (int i = 0; i < stage.program.use_count; i++) {
        const struct use_info *info = &stage.program.uses[i];

        if (info->rows == 0) continue;
        rows = info->rows;
        CHECK(info->scatter && info->number == 1);
    }
    stage_free(&stage);
    return rows;
}

TEST(tied_tables_of_one_rank_keep_named_rows)
{
    const struct stage_request plain = {.dtype = DTYPE_F32};
    struct stage_request ranks = plain;
    struct model model;

    IS_OK(model_from_config(&model, "tests/golden/models/gpt2"));
    CHECK(model.tied && model.vocab >= 32);
    EQUAL_INT(kept(&model, 4, plain), 8);
    EQUAL_INT(kept(&model, model.vocab / 2, plain), 0); /* would not pay */
    ranks.layout.mesh = mesh_alone();
    ranks.layout.mesh.size[AXIS_TENSOR] = 2;
    EQUAL_INT(kept(&model, 4, ranks), 0);
    IS_OK(model_from_config(&model, "tests/golden/models/llama_untied"));
    EQUAL_INT(kept(&model, 4, plain), 0);
}

TEST_MAIN(rows_take_places_in_the_order_in_which_they_come_up,
          tied_tables_of_one_rank_keep_named_rows)
