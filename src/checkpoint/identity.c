/* SPDX-License-Identifier: Apache-2.0 */
/* identity.c - whether a checkpoint belongs to this model. */
#include "checkpoint/identity.h"
#include <stdlib.h>
#include <string.h>
#include "checkpoint/safetensors.h"

static int order_by_name(const void *left, const void *right)
{
    const struct saved_part *a = *(const struct saved_part *const *)left;
    const struct saved_part *b = *(const struct saved_part *const *)right;

    return strcmp(a->name, b->name);
}

/* The weights among the parts, sorted by name; free with memory_free. */
static status sort_weights(const struct saved_part ***out, int *found,
                           const struct saved_part *parts, int count)
{
    const struct saved_part **sorted;
    void *memory;

    *found = 0;
    TRY(memory_take((size_t)count + 1, sizeof *sorted, &memory));
    *out = sorted = memory;
    for (int i = 0; i < count; i++)
        if (part_is_weight(&parts[i])) sorted[(*found)++] = &parts[i];
    if (*found > 1)
        qsort(sorted, (size_t)*found, sizeof *sorted, order_by_name);
    return OK;
}

static status digest_sorted(char digest[DIGEST_BYTES],
                            const struct saved_part *const *sorted, int count,
                            const char *config_json)
{
    struct text text = {0};
    char shape[192];
    status result = OK;

    for (int i = 0; i < count && result == OK; i++)
        result = text_printf(&text, "%s %s\n", sorted[i]->name,
                             shape_text(shape, sorted[i]->dimensions,
                                        sorted[i]->shape));
    if (result == OK)
        result = text_append_string(&text, config_json ? config_json : "");
    if (result == OK) sha256_hex(text.bytes, text.length, digest);
    text_free(&text);
    return result;
}

status model_digest(char digest[DIGEST_BYTES], const struct saved_part *parts,
                    int count, const char *config_json)
{
    const struct saved_part **sorted = NULL;
    int weights = 0;
    status result;

    TRY(sort_weights(&sorted, &weights, parts, count));
    result = digest_sorted(digest, sorted, weights, config_json);
    memory_free(sorted);
    return result;
}

static status compare_one(const struct checkpoint *checkpoint,
                          const struct saved_part *mine,
                          const struct manifest_tensor *its)
{
    const int order = !mine ? 1 : !its ? -1 : strcmp(mine->name, its->name);
    char found[192], expected[192];
    bool same;

    if (order > 0)
        FAIL(ERR_CONFIG, "%s: belongs to another model: it has %s, which this "
             "model does not have", checkpoint->directory, its->name);
    if (order < 0)
        FAIL(ERR_CONFIG, "%s: belongs to another model: it does not have %s",
             checkpoint->directory, mine->name);
    same = mine->dimensions == its->dimensions;
    for (int i = 0; same && i < mine->dimensions; i++)
        same = mine->shape[i] == its->shape[i];
    if (!same)
        FAIL(ERR_CONFIG,
             "%s: is of another model: its %s has shape %s, this model's %s",
             checkpoint->directory, mine->name,
             shape_text(found, its->dimensions, its->shape),
             shape_text(expected, mine->dimensions, mine->shape));
    return OK;
}

status checkpoint_match_model(const struct checkpoint *checkpoint,
                              const struct saved_part *parts, int count,
                              const char *config_json)
{
    const struct manifest *manifest = &checkpoint->manifest;
    const struct saved_part **sorted = NULL;
    char digest[DIGEST_BYTES];
    int mine = 0, its = 0;
    status result;

    TRY(sort_weights(&sorted, &mine, parts, count));
    /* The weights come first in the manifest, sorted by name. */
    while (its < manifest->tensor_count &&
           strcmp(manifest->tensors[its].kind, "weight") == 0)
        its++;
    for (int i = 0; i < mine || i < its; i++)
        TRY_GOTO(done, result,
                 compare_one(checkpoint, i < mine ? sorted[i] : NULL,
                             i < its ? &manifest->tensors[i] : NULL));
    TRY_GOTO(done, result, digest_sorted(digest, sorted, mine, config_json));
    if (config_json && manifest->model[0] &&
        strcmp(digest, manifest->model) != 0)
        FAIL_GOTO(done, result, ERR_CONFIG,
                  "%s: is of another model: names and shapes of its weights "
                  "agree, its configuration (heads, norms, rotary base or the "
                  "like) does not", checkpoint->directory);
done:
    memory_free(sorted);
    return result;
}

status checkpoint_match_tokenizer(const struct checkpoint *checkpoint,
                                  const char *digest)
{
    const char *its = checkpoint->manifest.tokenizer;

    if (digest && digest[0] && its[0] && strcmp(digest, its) != 0)
        FAIL(ERR_CONFIG, "%s: was trained with another tokenizer: digest "
             "%.12s..., this one has %.12s...", checkpoint->directory, its,
             digest);
    return OK;
}
