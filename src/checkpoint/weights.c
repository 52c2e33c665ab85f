/* SPDX-License-Identifier: Apache-2.0 */
/* weights.c - the tensors of a Hugging Face directory, by name. */
#include "checkpoint/weights.h"
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "checkpoint/parts.h"

static const size_t INDEX_BYTES_MAX = 32 << 20;
enum { NAMES_SHOWN = 5 }; /* in a sentence about many tensors */

static int order_by_name(const void *left, const void *right)
{
    const struct weights_entry *a = left, *b = right;

    return strcmp(a->tensor->name, b->tensor->name);
}

static status take_files(struct weights *weights, int count)
{
    void *memory;

    if (count > WEIGHTS_FILES_MAX)
        FAIL(ERR_FORMAT, "%s: %d shards, at most %d are possible",
             weights->directory, count, WEIGHTS_FILES_MAX);
    TRY(arena_take_array(&weights->arena, (size_t)count,
                         sizeof *weights->files, &memory));
    weights->files = memory;
    return OK;
}

static status open_file(struct weights *weights, const char *name)
{
    char path[PATH_BYTES];
    struct safetensors *file = &weights->files[weights->file_count++];

    TRY(path_join(path, sizeof path, weights->directory, name));
    /* Links are followed: the hub's cache is made of them. */
    return safetensors_open(file, path, true);
}

static int order_text(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Distinct file names of the index, sorted; each must be one component. */
static status list_shards(struct weights *weights, const struct json *map,
                          const char *source, const char ***names, int *count)
{
    void *memory;
    const char **all;
    int kept = 0;

    TRY(arena_take_array(&weights->arena, (size_t)map->count + 1,
                         sizeof *all, &memory));
    all = memory;
    for (int i = 0; i < map->count; i++) {
        const struct json *file = &map->items[2 * i + 1];

        if (file->kind != JSON_STRING ||
            strlen(file->string) != (size_t)file->string_length ||
            !file_name_is_safe(file->string))
            FAIL(ERR_FORMAT, "%s: %.200s: its file is not a plain file name "
                 "in the same directory", source, map->items[2 * i].string);
        all[i] = file->string;
    }
    if (map->count > 1)
        qsort(all, (size_t)map->count, sizeof *all, order_text);
    for (int i = 0; i < map->count; i++)
        if (kept == 0 || strcmp(all[kept - 1], all[i]) != 0)
            all[kept++] = all[i];
    *names = all;
    *count = kept;
    return OK;
}

/* Each tensor of the index lies in the file that the index names. The other
 * way round nothing is lost: more tensors than the index knows stay unused. */
static status check_index(const struct weights *weights,
                          const struct json *map, const char *source)
{
    for (int i = 0; i < map->count; i++) {
        const char *name = map->items[2 * i].string;
        const char *file = map->items[2 * i + 1].string;
        const int index = weights_find(weights, name);

        if (index < 0)
            FAIL(ERR_FORMAT, "%s: promises %.200s in %s, which has no such "
                 "tensor", source, name, file);
        if (!text_ends_with(weights->files[weights->entries[index].file].path,
                            file))
            FAIL(ERR_FORMAT, "%s: promises %.200s in %s, it is in another "
                 "file", source, name, file);
    }
    return OK;
}

static status collect(struct weights *weights)
{
    int64_t total = 0;
    void *memory;

    for (int i = 0; i < weights->file_count; i++)
        total += weights->files[i].count;
    if (total > SAFETENSORS_TENSORS_MAX)
        FAIL(ERR_FORMAT, "%s: %lld tensors, at most %d are possible",
             weights->directory, (long long)total, SAFETENSORS_TENSORS_MAX);
    TRY(arena_take_array(&weights->arena, (size_t)total + 1,
                         sizeof *weights->entries, &memory));
    weights->entries = memory;
    for (int i = 0; i < weights->file_count; i++)
        for (int j = 0; j < weights->files[i].count; j++)
            weights->entries[weights->count++] = (struct weights_entry){
                .tensor = &weights->files[i].entries[j], .file = i};
    if (total > 1)
        qsort(weights->entries, (size_t)total, sizeof *weights->entries,
              order_by_name);
    for (int i = 1; i < weights->count; i++)
        if (order_by_name(&weights->entries[i - 1], &weights->entries[i]) == 0)
            FAIL(ERR_FORMAT, "%s: %s is in two of its files",
                 weights->directory, weights->entries[i].tensor->name);
    return OK;
}

static status open_index(struct weights *weights, const char *path)
{
    const struct json *root, *map;
    const char **names = NULL;
    int count = 0;

    TRY(json_read_file(&root, &weights->arena, path, INDEX_BYTES_MAX));
    map = json_get(root, "weight_map");
    if (!map || map->kind != JSON_OBJECT || map->count == 0)
        FAIL(ERR_FORMAT, "%s: expected an object weight_map of tensor and "
             "file names", path);
    TRY(list_shards(weights, map, path, &names, &count));
    TRY(take_files(weights, count));
    for (int i = 0; i < count; i++) TRY(open_file(weights, names[i]));
    TRY(collect(weights));
    return check_index(weights, map, path);
}

static status refuse_missing(const char *directory)
{
    static const char *const pickles[] = {
        "pytorch_model.bin", "pytorch_model.bin.index.json",
        "consolidated.00.pth", "lit_model.pth", "model.pt"};
    char path[PATH_BYTES];
    status result;

    for (size_t i = 0; i < sizeof pickles / sizeof *pickles; i++) {
        if (path_join(path, sizeof path, directory, pickles[i]) != OK ||
            !file_exists(path))
            continue;
        result = status_fail(ERR_MISSING, __FILE__, __LINE__,
                             "%s: has %s, a pickle file; Lockstep never reads "
                             "these, because they can run code",
                             directory, pickles[i]);
        return status_hint(result, "save it as safetensors with the program "
                                   "that wrote it");
    }
    FAIL(ERR_MISSING, "%s: has neither model.safetensors nor "
         "model.safetensors.index.json", directory);
}

static status begin(struct weights *weights, const char *directory)
{
    char *copy;

    memset(weights, 0, sizeof *weights);
    arena_init(&weights->arena, "weights", (size_t)3 << 30);
    TRY(arena_copy_text(&weights->arena, directory, &copy));
    weights->directory = copy;
    return OK;
}

status weights_open(struct weights *weights, const char *directory)
{
    char path[PATH_BYTES];

    TRY(begin(weights, directory));
    TRY(path_join(path, sizeof path, directory,
                  "model.safetensors.index.json"));
    if (file_exists(path)) return open_index(weights, path);
    TRY(path_join(path, sizeof path, directory, "model.safetensors"));
    if (!file_exists(path)) return refuse_missing(directory);
    TRY(take_files(weights, 1));
    TRY(open_file(weights, "model.safetensors"));
    return collect(weights);
}

status weights_open_file(struct weights *weights, const char *directory,
                         const char *name)
{
    TRY(begin(weights, directory));
    TRY(take_files(weights, 1));
    TRY(open_file(weights, name));
    return collect(weights);
}

void weights_close(struct weights *weights)
{
    for (int i = 0; i < weights->file_count; i++)
        safetensors_close(&weights->files[i]);
    arena_free(&weights->arena);
    memset(weights, 0, sizeof *weights);
}

int weights_find(const struct weights *weights, const char *name)
{
    int low = 0, high = weights->count;

    while (low < high) {
        const int middle = low + (high - low) / 2;
        const int order = strcmp(name, weights->entries[middle].tensor->name);

        if (order == 0) return middle;
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return -1;
}

static status refuse_name(struct weights *weights, const char *name)
{
    const char *nearest;
    void *memory;
    status result;

    TRY(arena_take_array(&weights->arena, (size_t)weights->count + 1,
                         sizeof nearest, &memory));
    const char **names = memory;
    for (int i = 0; i < weights->count; i++)
        names[i] = weights->entries[i].tensor->name;
    nearest = text_nearest(name, names, weights->count);
    for (int i = 0; i < weights->count && nearest == NULL; i++)
        if (text_ends_with(names[i], name)) /* "module." before all of them */
            nearest = names[i];
    result = status_fail(ERR_FORMAT, __FILE__, __LINE__,
                         "%s: has no tensor %s", weights->directory, name);
    if (nearest) return status_hint(result, "the nearest name is %s", nearest);
    return result;
}

status weights_need(struct weights *weights, const char *name, int dimensions,
                    const int64_t *shape, int *index)
{
    const struct safetensors_entry *tensor;
    char found[192], expected[192];
    bool same;

    *index = weights_find(weights, name);
    if (*index < 0) return refuse_name(weights, name);
    tensor = weights->entries[*index].tensor;
    same = tensor->dimensions == dimensions;
    for (int i = 0; same && i < dimensions; i++)
        same = tensor->shape[i] == shape[i];
    if (!same)
        FAIL(ERR_FORMAT, "%s: %s has shape %s, the model needs %s",
             weights->directory, name,
             shape_text(found, tensor->dimensions, tensor->shape),
             shape_text(expected, dimensions, shape));
    weights->entries[*index].uses++;
    return OK;
}

status weights_read(const struct weights *weights, int index, int64_t first,
                    int64_t count, enum dtype dtype, void *out)
{
    const struct weights_entry *entry = &weights->entries[index];

    return safetensors_read(&weights->files[entry->file], entry->tensor,
                            first, count, dtype, out);
}

/* An exponent of ones only: infinite or NaN. */
static bool is_finite(enum dtype dtype, const void *values, int64_t at)
{
    const uint64_t wide_ones = UINT64_C(0x7FF) << 52;

    switch (dtype) {
    case DTYPE_F32:
        return (~((const uint32_t *)values)[at] & 0x7F800000) != 0;
    case DTYPE_BF16:
        return (~((const uint16_t *)values)[at] & 0x7F80) != 0;
    case DTYPE_F16:
        return (~((const uint16_t *)values)[at] & 0x7C00) != 0;
    case DTYPE_F64:
        return (~((const uint64_t *)values)[at] & wide_ones) != 0;
    default:
        return true;
    }
}

/* [row, column] of an element. */
static void place_of(const struct safetensors_entry *tensor, int64_t element,
                     struct text *out)
{
    int64_t size = 1;

    for (int i = 1; i < tensor->dimensions; i++) size *= tensor->shape[i];
    for (int i = 0; i < tensor->dimensions; i++) {
        if (text_printf(out, "%s%lld", i > 0 ? ", " : "",
                        (long long)(element / size)) != OK)
            status_clear();
        element %= size;
        if (i + 1 < tensor->dimensions) size /= tensor->shape[i + 1];
    }
}

static status refuse_value(const struct weights *weights, int index,
                           int64_t element, enum dtype dtype)
{
    const struct safetensors_entry *tensor = weights->entries[index].tensor;
    struct text place = {0};
    double value = 0;
    status result;

    TRY(weights_read(weights, index, element, 1, DTYPE_F64, &value));
    place_of(tensor, element, &place);
    result = status_fail(ERR_FORMAT, __FILE__, __LINE__,
                         "%s: %s: the value at [%s] is %s%s; weights must be "
                         "finite", weights->directory, tensor->name,
                         place.bytes != NULL ? place.bytes : "",
                         value != value ? "NaN"
                         : value - value != 0 ? "infinite" : "infinite as ",
                         value - value == 0 ? dtype_name(dtype) : "");
    text_free(&place);
    return result;
}

status weights_read_finite(const struct weights *weights, int index,
                           int64_t first, int64_t count, enum dtype dtype,
                           void *out)
{
    TRY(weights_read(weights, index, first, count, dtype, out));
    for (int64_t i = 0; i < count; i++)
        if (!is_finite(dtype, out, i))
            return refuse_value(weights, index, first + i, dtype);
    return OK;
}

static bool is_ignored(const char *name, const char *const *ignored,
                       int ignored_count)
{
    for (int i = 0; i < ignored_count; i++)
        if (text_ends_with(name, ignored[i])) return true;
    return false;
}

status weights_all_used(const struct weights *weights,
                        const char *const *ignored, int ignored_count)
{
    struct text unused = {0}, twice = {0};
    int unused_count = 0, twice_count = 0;
    status result = OK;

    for (int i = 0; i < weights->count && result == OK; i++) {
        const struct weights_entry *entry = &weights->entries[i];
        const char *name = entry->tensor->name;

        if (entry->uses == 1 || is_ignored(name, ignored, ignored_count))
            continue;
        struct text *list = entry->uses ? &twice : &unused;
        int *count = entry->uses ? &twice_count : &unused_count;
        if ((*count)++ < NAMES_SHOWN)
            result = text_printf(list, "%s%s", list->length ? ", " : "", name);
    }
    if (result == OK && unused_count)
        result = status_fail(ERR_FORMAT, __FILE__, __LINE__,
                             "%s: %d of %d tensors were not used: %s%s",
                             weights->directory, unused_count, weights->count,
                             unused.bytes,
                             unused_count > NAMES_SHOWN ? ", ..." : "");
    else if (result == OK && twice_count)
        result = status_fail(ERR_FORMAT, __FILE__, __LINE__,
                             "%s: %d tensors were used more than once: %s%s",
                             weights->directory, twice_count, twice.bytes,
                             twice_count > NAMES_SHOWN ? ", ..." : "");
    text_free(&unused);
    text_free(&twice);
    return result;
}
