/* SPDX-License-Identifier: Apache-2.0 */
/* kinds.c - the families of this build by name, and why others are not
 * built. */
#include "models/kinds.h"

#include <string.h>

static const struct model_kind *const kinds[] = {&model_llama, &model_gpt2,
    &model_qwen2, &model_qwen3, &model_mistral, &model_ministral,
    &model_smollm3, &model_olmo2, &model_phi3, &model_stablelm,
    &model_starcoder2, &model_gpt_neox, &model_gptj, &model_falcon,
    &model_palm, &model_gemma, &model_gemma2, &model_gemma3, &model_mixtral,
    &model_olmoe, &model_qwen2_moe, &model_qwen3_moe, &model_granitemoe,
    &model_deepseek, &model_deepseek_v2, &model_deepseek_v3,
    &model_glm4_moe, &model_gpt_oss, &model_phimoe, &model_llama4,
    &model_dots1, &model_glm4_moe_lite, &model_minimax_m2, &model_flex_olmo,
    &model_ernie4_5_moe, &model_granitemoeshared, &model_solar_open};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Other mixtures of experts that are published, what of them no family here
 * has, and the family that has most of the rest. */
static const struct foreign { const char *name, *has, *near; } foreign[] = {
    {"afmoe", "gates behind attention", "dots1"},
    {"arctic", "a dense part beside the experts", "mixtral"},
    {"bailing_hybrid", "linear attention in most blocks", "deepseek_v3"},
    {"bailing_moe", "queries, keys and values in one tensor", "deepseek"},
    {"bailing_moe_v2", "queries, keys and values in one tensor", "glm4_moe"},
    {"cohere2_moe", "attention beside the experts", "mixtral"},
    {"dbrx", "clipped queries, keys and values", "mixtral"},
    {"deepseek_v32", "attention to tokens that an indexer selects",
     "deepseek_v3"},
    {"deepseek_v4", "compressed attention and several residual streams",
     "deepseek_v3"},
    {"exaone_moe", "blocks that turn only where they have a window", "dots1"},
    {"glm_moe_dsa", "attention to tokens that an indexer selects",
     "glm4_moe_lite"},
    {"granitemoehybrid", "blocks of Mamba", "granitemoeshared"},
    {"grok-1", "norms before and behind each part beside experts", "mixtral"},
    {"hunyuan_v1_moe", "norms of queries and keys that have turned",
     "qwen3_moe"},
    {"hy_v3", "dots.llm1's experts under other names", "dots1"},
    {"jamba", "blocks of Mamba", "mixtral"},
    {"jetmoe", "experts of attention", "mixtral"},
    {"kimi_linear", "linear attention in most blocks", "deepseek_v3"},
    {"lfm2_moe", "blocks of convolutions", "qwen3_moe"},
    {"longcat_flash", "experts that compute nothing, two attentions a block",
     "deepseek_v3"},
    {"mimo_v2_flash", "values of another width than keys beside windows",
     "gpt_oss"},
    {"minimax", "linear attention in most blocks", "minimax_m2"},
    {"mistral4", "latent attention whose queries grow with their position",
     "deepseek_v2"},
    {"nemotron_h", "blocks of Mamba", "deepseek_v3"},
    {"nllb_moe", "an encoder", "mixtral"},
    {"qwen3_5_moe", "linear attention in most blocks", "qwen3_moe"},
    {"qwen3_next", "linear attention in most blocks", "qwen3_moe"},
    {"sarvam_moe", "GLM-4.5's blocks under other names", "glm4_moe"},
    {"switch_transformers", "an encoder", "mixtral"},
    {"zamba2", "blocks of Mamba", "mixtral"}};
enum { FOREIGN = sizeof foreign / sizeof *foreign };

static bool is_name(const char *one, const char *name)
{
    return one != NULL && strcmp(one, name) == 0;
}

static const struct model_kind *find(const char *name)
{
    for (int i = 0; i < KINDS; i++)
        if (is_name(kinds[i]->name, name) || is_name(kinds[i]->type, name) ||
            is_name(kinds[i]->also, name))
            return kinds[i];
    return NULL;
}

status kinds_find(const char *where, const char *name,
                  const struct model_kind **out)
{
    const char *names[KINDS];
    struct text all = {0};
    status result;

    *out = find(name);
    if (*out != NULL) return OK;
    for (int i = 0; i < FOREIGN; i++)
        if (strcmp(foreign[i].name, name) == 0)
            FAIL(ERR_CONFIG, "%s: %s is not a family of this build: it has %s; "
                             "nearest: %s", where, name, foreign[i].has,
                 foreign[i].near);
    for (int i = 0; i < KINDS; i++) {
        names[i] = kinds[i]->name;
        TRY_GOTO(done, result,
                 text_printf(&all, "%s%s", i ? ", " : "", names[i]));
    }
    const char *near = text_nearest(name, names, KINDS);

    FAIL_GOTO(done, result, ERR_CONFIG,
              "%s: %.60s is not a family of this build (%s)%s%s", where, name,
              all.bytes, near ? "; nearest: " : "", near ? near : "");
done:
    text_free(&all);
    return result;
}
