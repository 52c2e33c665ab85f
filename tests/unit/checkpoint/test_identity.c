/* SPDX-License-Identifier: Apache-2.0 */
/* test_identity.c - mirrors src/checkpoint/identity.c. */
#include "tests/unit/checkpoint/room.h"
#include "checkpoint/identity.h"

TEST(a_checkpoint_of_another_model_is_refused)
{
    struct small *small = small_make(1);
    struct checkpoint checkpoint;
    const char *config = small->plan.config_json;

    room_open();
    IS_OK(checkpoint_save(&small->plan));
    IS_OK(checkpoint_open(&checkpoint, room_path("ckpt/step-00000005"), NULL));
    IS_OK(
        checkpoint_match_model(&checkpoint, small->parts, SMALL_PARTS, config));
    /* Order does not matter, nor do other kinds. */
    struct saved_part swapped[2] = {small->parts[3], small->parts[0]};
    FAILS(checkpoint_match_model(&checkpoint, swapped, 2, config), ERR_CONFIG,
          "it has model.norm.weight, which this model does not have");
    small->parts[3].shape[1] = 41;
    FAILS(
        checkpoint_match_model(&checkpoint, small->parts, SMALL_PARTS, config),
        ERR_CONFIG,
        "its model.layers.0.q.weight has shape [3, 40], this model's "
        "[3, 41]");
    small->parts[3].shape[1] = 40;
    small->parts[3].name = "model.layers.0.k.weight";
    FAILS(
        checkpoint_match_model(&checkpoint, small->parts, SMALL_PARTS, config),
        ERR_CONFIG, "it does not have model.layers.0.k.weight");
    small->parts[3].name = "model.layers.0.q.weight";
    FAILS(checkpoint_match_model(&checkpoint, small->parts, SMALL_PARTS,
                                 "{\"heads\": 8}"),
          ERR_CONFIG, "its configuration");
    IS_OK(checkpoint_match_model(&checkpoint, small->parts, SMALL_PARTS, NULL));
    IS_OK(checkpoint_match_tokenizer(&checkpoint, "00112233"));
    IS_OK(checkpoint_match_tokenizer(&checkpoint, ""));
    FAILS(checkpoint_match_tokenizer(&checkpoint, "445566"), ERR_CONFIG,
          "another tokenizer");
    checkpoint_close(&checkpoint);
    free(small);
    room_close();
}

TEST_MAIN(a_checkpoint_of_another_model_is_refused)
