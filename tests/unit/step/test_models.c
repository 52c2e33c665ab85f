/* SPDX-License-Identifier: Apache-2.0 */
/* test_models.c - logits, loss and every gradient of the golden models
 * (tests/golden/README.md) against PyTorch in float64. */
#include <dirent.h>
#include <math.h>
#include "base/json.h"
#include "tests/test.h"
#include "inference/score.h"

static const char *const golden = "tests/golden/models";
static const char *const models[] = {
    "llama_untied", "llama_tied_bias", "llama_nine_heads", "llama_linear",
    "llama_llama3", "llama_yarn", "llama_yarn_scales", "llama_dynamic",
    "smollm2", "smollm3", "qwen2", "qwen2_yarn", "qwen3", "qwen3_bias",
    "mistral_window", "mistral_short", "mistral", "olmo2", "phi3",
    "phi3_part", "stablelm",
    "stablelm_parallel", "starcoder2", "gpt_neox", "gpt_neox_serial",
    "gptj", "falcon", "falcon_groups", "falcon_heads", "palm", "gemma",
    "gemma2", "gemma3", "gemma3_v5", "gpt2", "gpt2_plain_names",
    "qwen2_last", "qwen3_mixed", "smollm3_nope", "smollm3_mixed",
    "ministral", "gemma2_mixed", "gemma3_mixed", "phi3_short",
    "starcoder2_short", "phi3_long", "phi3_long_part",
    "llama_dynamic_long", "stablelm_heads", "stablelm_heads_serial",
    "falcon_2", "falcon_rw", "gpt2_layer_scale", "mixtral", "mixtral_all",
    "mixtral_geglu",
    "olmoe", "qwen2_moe", "deepseek", "deepseek_v2",
    "deepseek_v2_lite", "deepseek_v3", "qwen3_moe", "granitemoe", "glm4_moe",
    "gpt_oss", "gpt_oss_mxfp4", "phimoe", "llama4", "dots1",
    "glm4_moe_lite", "minimax_m2", "flex_olmo", "ernie4_5_moe",
    "granitemoeshared", "solar_open"};

struct tolerance { enum dtype dtype; double relative; };
static const struct tolerance tolerances[] = {{DTYPE_F64, 1e-10},
                                              {DTYPE_F32, 1e-5}};

static double expected_loss(const char *path)
{
    struct arena arena;
    const struct json *root;
    double loss = 0;

    arena_init(&arena, "expected", 0);
    IS_OK(json_read_file(&root, &arena, path, 1 << 20));
    IS_OK(json_get_real(root, path, "loss", &loss));
    arena_free(&arena);
    return loss;
}

/* Largest difference over the largest absolute value of `b`. */
static double distance(const struct safetensors *a,
                       const struct safetensors_entry *one,
                       const struct safetensors *b,
                       const struct safetensors_entry *other)
{
    double most = 0, scale = 0, *x, *y;
    void *memory;

    CHECK(one->elements == other->elements);
    CHECK(one->dimensions == other->dimensions);
    EQUAL_BYTES(one->shape, other->shape, sizeof *one->shape *
                                              (size_t)one->dimensions);
    IS_OK(memory_take((size_t)one->elements * 2, sizeof *x, &memory));
    x = memory;
    y = x + one->elements;
    IS_OK(safetensors_read(a, one, 0, one->elements, DTYPE_F64, x));
    IS_OK(safetensors_read(b, other, 0, one->elements, DTYPE_F64, y));
    for (int64_t i = 0; i < one->elements; i++) {
        const double gap = fabs(x[i] - y[i]);

        if (!(gap <= most)) most = gap; /* NaN counts */
        if (fabs(y[i]) > scale) scale = fabs(y[i]);
    }
    memory_free(memory);
    return scale > 0 ? most / scale : most;
}

static void same_tensors(const char *found, const char *expected,
                         const struct tolerance *tolerance)
{
    struct safetensors a = {0}, b = {0};
    double worst = 0;

    IS_OK(safetensors_open(&a, found, true));
    IS_OK(safetensors_open(&b, expected, true));
    EQUAL_INT(a.count, b.count);
    for (int i = 0; i < b.count; i++) {
        const struct safetensors_entry *entry =
            safetensors_find(&a, b.entries[i].name);

        CHECK(entry != NULL);
        const double gap = distance(&a, entry, &b, &b.entries[i]);

        if (!(gap <= tolerance->relative)) {
            print_error("%s: %s: %g\n", expected, b.entries[i].name, gap);
            worst = gap;
        }
    }
    safetensors_close(&a);
    safetensors_close(&b);
    CHECK(worst == 0);
}

static void score_model(const char *name, const struct tolerance *tolerance)
{
    char model[PATH_BYTES], tokens[PATH_BYTES], directory[PATH_BYTES],
        logits[PATH_BYTES], gradients[PATH_BYTES], path[PATH_BYTES];
    struct score_result result;

    test_directory(directory);
    IS_OK(path_join(model, PATH_BYTES, golden, name));
    IS_OK(path_join(tokens, PATH_BYTES, model, "tokens.json"));
    IS_OK(path_join(logits, PATH_BYTES, directory, "logits.safetensors"));
    IS_OK(path_join(gradients, PATH_BYTES, directory,
                    "gradients.safetensors"));
    const struct score_request request = {
        .model = model, .tokens = tokens, .dtype = tolerance->dtype,
        .logits = logits, .gradients = gradients, .threads = 1};

    IS_OK(score(&request, &result));
    IS_OK(path_join(path, PATH_BYTES, model, "expected.json"));
    const double loss = expected_loss(path);

    EQUAL_INT(result.targets, 108);
    CHECK(fabs(result.loss - loss) <= tolerance->relative * loss);
    IS_OK(path_join(path, PATH_BYTES, model, "logits.safetensors"));
    same_tensors(logits, path, tolerance);
    IS_OK(path_join(path, PATH_BYTES, model, "gradients.safetensors"));
    same_tensors(gradients, path, tolerance);
    IS_OK(directory_remove(directory));
}

TEST(all_models_agree_with_the_oracle)
{
    for (int i = 0; i < ROWS(models); i++)
        for (int j = 0; j < ROWS(tolerances); j++)
            score_model(models[i], &tolerances[j]);
}

/* A folder that the table above forgets would not be tested. */
TEST(every_golden_model_is_listed)
{
    char **names;
    int count;

    IS_OK(directory_list(golden, &names, &count));
    EQUAL_INT(count, ROWS(models));
    directory_list_free(names, count);
}

TEST_MAIN(all_models_agree_with_the_oracle, every_golden_model_is_listed)
