/* SPDX-License-Identifier: Apache-2.0 */
/* session_adapt.c - adapters of a PEFT directory beside a model's weights. */
#include <string.h>

#include "tokenizer/regex.h"
#include "models/lora.h"
#include "inference/session.h"

/* The prefix of every name in adapter_model.safetensors: the model inside
 * PEFT's own. */
static const char outer[] = "base_model.model.";

/* ---- expressions in the settings ---- */

struct source { const char *config; const struct weights *adapters; };

static status matches(void *argument, const char *pattern, const char *name,
                      bool *yes)
{
    const struct source *source = argument;
    const struct span all = {0, strlen(name)};
    struct regex *regex = NULL;
    struct text whole = {0};
    struct span found;
    status result;

    TRY_GOTO(done, result, text_printf(&whole, "\\A(?:%s)\\z", pattern));
    TRY_GOTO(done, result, regex_build(&regex, whole.bytes, source->config));
    result = regex_find(regex, name, all, yes, &found);
done:
    regex_free(regex);
    text_free(&whole);
    return result;
}

static bool has(void *argument, const char *module)
{
    const struct source *source = argument;
    char name[4 * PARAM_NAME_BYTES];

    snprintf(name, sizeof name, "%s%s.lora_A.weight", outer, module);
    return weights_find(source->adapters, name) >= 0;
}

/* ---- opening ---- */

/* All of a block; what stands beside embeddings and heads is named. */
static status check_names(const struct session *session)
{
    const char *prefix = session->model.kind->layer_prefix;
    const size_t word = (size_t)(strstr(prefix, "%d") - prefix);
    const size_t skip = sizeof outer - 1;

    for (int i = 0; i < session->adapters.count; i++) {
        const char *name = session->adapters.entries[i].tensor->name;

        if (strncmp(name, outer, skip) != 0)
            FAIL(ERR_FORMAT, "%s: %.200s does not begin with %s, as names of "
                             "PEFT do", session->adapters.directory, name,
                 outer);
        if (strncmp(name + skip, prefix, word) != 0)
            FAIL(ERR_CONFIG, "%s: %.200s belongs to no block (%s); adapters "
                             "are computed beside matrices of blocks only",
                 session->adapters.directory, name, prefix);
    }
    return OK;
}

static status find_file(const char *directory, const char *name,
                        char path[PATH_BYTES])
{
    TRY(path_join(path, PATH_BYTES, directory, name));
    if (file_exists(path)) return OK;
    FAIL(ERR_MISSING, "%s: has no %s; a directory with adapter_config.json and "
                      "adapter_model.safetensors, as PEFT saves it, was "
                      "expected", directory, name);
}

status session_adapt(struct session *session, const char *directory)
{
    char config[PATH_BYTES], values[PATH_BYTES];
    struct source source = {config, &session->adapters};
    const struct lora_matcher matcher = {matches, has, &source};

    if (session->model.lora.rank > 0)
        FAIL(ERR_CONFIG, "%s: has adapters already; several at once are not "
                         "computed, `lockstep export` merges them",
             session->path);
    TRY(find_file(directory, "adapter_config.json", config));
    TRY(find_file(directory, "adapter_model.safetensors", values));
    TRY(weights_open_file(&session->adapters, directory,
                          "adapter_model.safetensors"));
    TRY(lora_read_config(&session->model, config, &matcher));
    for (int i = 0; i < session->adapters.count; i++)
        if (session->adapters.entries[i].tensor->dtype == DTYPE_F64)
            session->dtype = DTYPE_F64;
    return check_names(session);
}

bool session_is_adapted(const struct session *session)
{
    return session->adapters.directory != NULL;
}

/* ---- values ---- */

status session_load_adapters(struct session *session, struct stage *stage)
{
    struct session_parts parts = {.only = PARTS_ADAPTERS, .prefix = outer};
    status result;

    for (int i = 0; i < session->adapters.count; i++)
        session->adapters.entries[i].uses = 0;
    TRY_GOTO(done, result,
             session_parts_add(&parts, stage, "weight",
                               stage->host[stage_keeps(stage)],
                               stage_keeps_dtype(stage)));
    result = session_parts_import(&parts, &session->model, NULL,
                                  &session->adapters);
done:
    session_parts_free(&parts);
    return result;
}
