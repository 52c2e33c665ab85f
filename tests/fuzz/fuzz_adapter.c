/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_adapter.c - can an adapter from a stranger hurt us? The input is an
 * adapter_config.json, then a zero byte and an adapter_model.safetensors, to
 * stand beside a small golden model: one with experts where the first names
 * them. */
#include <string.h>
#include "models/lora.h"
#include "tests/fuzz/scratch.h"
#include "inference/session.h"
#include "tests/fuzz/safetensors_shape.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An accepted adapter is the same when it is written and read again. */
static void again(const struct model *model)
{
    struct model other = *model;
    struct text text = {0};
    char path[PATH_BYTES];

    CHECK(lora_write_config(model, false, &text) == OK);
    scratch_put("adapter_config.json", text.bytes, text.length);
    CHECK(path_join(path, PATH_BYTES, scratch, "adapter_config.json") ==
          OK);
    CHECK(lora_read_config(&other, path, NULL) == OK);
    CHECK(lora_same(model, &other));
    text_free(&text);
}

static const char *base_of(const uint8_t *config, size_t length)
{
    return memmem(config, length, "experts", 7) != NULL
               ? "tests/golden/models/llama4"
               : "tests/golden/models/mistral";
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size > 0 ? memchr(data, 0, size) : NULL;
    const size_t length = end != NULL ? (size_t)(end - data) : size;
    struct session session = {0};

    (void)scratch_make();
    scratch_put("adapter_config.json", data, length);
    scratch_put("adapter_model.safetensors", end != NULL ? end + 1 : data,
        end != NULL ? size - length - 1 : 0);
    CHECK(session_open(&session, base_of(data, length)) == OK);
    if (session_adapt(&session, scratch) == OK) {
        struct stage_request request;
        struct stage stage = {0};

        CHECK(session.model.lora.class_count > 0);
        if (session_request(&session, 1, 1, &request) == OK &&
            session_stage(&session, &request, &stage) == OK)
            again(&session.model);
        stage_free(&stage);
    }
    status_clear();
    session_close(&session);
    CHECK(arena_bytes_out() == 0);
    return 0;
}

/* ---- the mutator ---- */

static const char *const words[] = {
    "r", "lora_alpha", "target_modules", "layers_to_transform",
    "layers_pattern", "rank_pattern", "alpha_pattern", "peft_type", "LORA",
    "use_rslora", "use_dora", "bias", "none", "all", "modules_to_save",
    "q_proj", "v_proj", "all-linear", "(q|v)_proj", "^model.layers.1", "\\d",
    "(a*)*b", "fan_in_fan_out", "task_type", "CAUSAL_LM",
    "target_parameters", "experts.gate_up_proj", "experts.down_proj",
    "1.feed_forward.experts.down_proj", "router.weight", NULL};
static const struct grammar config = {json_grammar_read, json_grammar_write,
                                      words};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    return mutate_two((const struct grammar *const[]){&config,
                                                      &safetensors_grammar},
                      data, size, room, false);
}
