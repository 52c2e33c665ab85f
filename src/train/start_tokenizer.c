/* SPDX-License-Identifier: Apache-2.0 */
/* start_tokenizer.c - the tokenizer of the model that a run starts from. */
#include "train/start_tokenizer.h"

#include <string.h>

#include "checkpoint/run_dir.h"
#include "tokenizer/tokenizer.h"

/* In the directory of the weights, or of their run. False: there is none, or
 * no such model; the reader of the weights has the better sentence for that. */
static bool find(const char *from, struct model_place *place,
                 char file[PATH_BYTES])
{
    char run[PATH_BYTES];
    bool found = false;

    if (model_place_find(from, place) == OK) {
        found = tokenizer_file(place->directory, file);
        if (!found && place->kind != MODEL_HUGGING_FACE &&
            path_join(run, sizeof run, place->directory, "../..") == OK)
            found = tokenizer_file(run, file);
        if (!found && place->kind == MODEL_RUN)
            found = tokenizer_file(from, file);
    }
    status_clear();
    return found;
}

/* The first id that stands for something else, or -1. */
static int64_t first_other(const struct tokenizer *source,
                           const struct tokenizer *given)
{
    for (int64_t id = 0; id < source->vocab; id++) {
        if (source->names[id] == NULL) continue;
        if (id >= given->vocab || given->names[id] == NULL ||
            source->name_lengths[id] != given->name_lengths[id] ||
            memcmp(source->names[id], given->names[id],
                   source->name_lengths[id]) != 0)
            return id;
    }
    return -1;
}

static const char *name_of(const struct tokenizer *tokenizer, int64_t id)
{
    if (id >= tokenizer->vocab || tokenizer->names[id] == NULL)
        return "nothing";
    return tokenizer->names[id];
}

static status refuse(const struct tokenizer *source,
                     const struct tokenizer *given, int64_t id)
{
    status result;

    result = status_fail(ERR_CONFIG, __FILE__, __LINE__,
                         "tokenizer.from: %s has another vocabulary than %s, "
                         "with which init.from was trained: id %lld is %s, "
                         "there %s", given->source, source->source,
                         (long long)id, name_of(given, id),
                         name_of(source, id));
    return status_hint(result, "leave tokenizer.from out; to train new "
                               "meanings of the ids all the same, start from "
                               "lockstep export MODEL DIR and remove DIR's "
                               "tokenizer");
}

static status check(const char *source_file, const char *given_file)
{
    struct tokenizer source = {0}, given = {0};
    int64_t id;
    status result;

    TRY_GOTO(done, result, tokenizer_read(&source, source_file));
    TRY_GOTO(done, result, tokenizer_read(&given, given_file));
    if (strcmp(source.digest, given.digest) == 0) goto done;
    id = first_other(&source, &given);
    if (id >= 0) result = refuse(&source, &given, id);
done:
    tokenizer_free(&source);
    tokenizer_free(&given);
    return result;
}

/* A tokenizer of another library may be of a kind that is not read: then the
 * run needs another source of ids, and says so where it does. */
static status bring(struct options_set *set, const char *file,
                    struct text *told)
{
    struct tokenizer tokenizer = {0};
    char text[PATH_BYTES + 24];
    status result = tokenizer_read(&tokenizer, file);

    tokenizer_free(&tokenizer);
    if (result != OK) {
        result = text_printf(told, "tokenizer of init.from: not used (%s)",
                             status_message());
        status_clear();
        return result;
    }
    snprintf(text, sizeof text, "tokenizer.from=%s", file);
    TRY(options_assign(set, text, options_origin(set, "init.from")));
    return text_printf(told, "tokenizer of init.from: %s", file);
}

status start_tokenizer_choose(struct options_set *set, struct text *told)
{
    const char *from = set->values.init.from;
    const char *given = set->values.tokenizer.from;
    struct model_place place;
    char file[PATH_BYTES];

    if (from[0] == '\0' || !find(from, &place, file)) return OK;
    if (given[0] == '\0') return bring(set, file, told);
    if (place.kind == MODEL_HUGGING_FACE || strcmp(file, given) == 0)
        return OK;
    return check(file, given);
}
