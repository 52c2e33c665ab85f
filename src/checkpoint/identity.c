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

static bool is_left(const struct tensors_left *left, const char *name)
{
    const char *mark = left == NULL || left->prefix == NULL
                           ? NULL : strstr(left->prefix, "%d");

    return mark != NULL &&
           strncmp(name, left->prefix, (size_t)(mark - left->prefix)) == 0 &&
           atoll(name + (mark - left->prefix)) >= left->first;
}

/* The weights come first in the manifest, sorted by name. */
static status match_sorted(const struct checkpoint *checkpoint,
                           const struct saved_part *const *sorted, int mine,
                           const struct tensors_left *left)
{
    const struct manifest *manifest = &checkpoint->manifest;
    int its = 0, at = 0;

    while (its < manifest->tensor_count &&
           strcmp(manifest->tensors[its].kind, "weight") == 0)
        its++;
    for (int i = 0; i < its; i++) {
        const struct manifest_tensor *tensor = &manifest->tensors[i];

        if (is_left(left, tensor->name)) continue;
        TRY(compare_one(checkpoint, at < mine ? sorted[at] : NULL, tensor));
        at++;
    }
    return at < mine ? compare_one(checkpoint, sorted[at], NULL) : OK;
}

status checkpoint_match_parts(const struct checkpoint *checkpoint,
                              const struct saved_part *parts, int count,
                              const struct tensors_left *left)
{
    const struct saved_part **sorted = NULL;
    status result;
    int mine = 0;

    TRY(sort_weights(&sorted, &mine, parts, count));
    result = match_sorted(checkpoint, sorted, mine, left);
    memory_free(sorted);
    return result;
}

status checkpoint_match_model(const struct checkpoint *checkpoint,
                              const struct saved_part *parts, int count,
                              const char *config_json)
{
    const struct manifest *manifest = &checkpoint->manifest;
    char digest[DIGEST_BYTES];

    TRY(checkpoint_match_parts(checkpoint, parts, count, NULL));
    TRY(model_digest(digest, parts, count, config_json));
    if (config_json && manifest->model[0] &&
        strcmp(digest, manifest->model) != 0)
        FAIL(ERR_CONFIG, "%s: is of another model: names and shapes of its "
                         "weights agree, its configuration (heads, norms, "
                         "rotary base or the like) does not",
             checkpoint->directory);
    return OK;
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
