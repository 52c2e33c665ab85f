/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.c - the table of contents of a checkpoint. */
#include "checkpoint/manifest.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/parts.h"
#include "checkpoint/safetensors.h"

enum { FILES_MAX = 8192 };

/* The end of a manifest, with its checksum at byte 12. */
static const char END[] = "\n\"crc32c\": \"00000000\"\n}\n";
enum { END_BYTES = sizeof END - 1, END_DIGITS_AT = 12 };

uint32_t crc32c_zeros(uint64_t length)
{
    return crc32c_combine(0xffffffffu, 0, length) ^ 0xffffffffu;
}

uint32_t crc32c_contribution(uint32_t crc, uint64_t length, uint64_t after)
{
    const uint32_t linear = crc ^ crc32c_zeros(length);

    return after ? crc32c_combine(linear, 0, after) : linear;
}

const char *tensor_file_name(char out[640], const char *name,
                             const char *kind)
{
    if (strcmp(kind, "weight") == 0) snprintf(out, 640, "%s", name);
    else snprintf(out, 640, "%s.%.100s", name, kind);
    return out;
}

static status write_head(struct text *out, const struct manifest *manifest)
{
    return text_printf(
        out,
        "{\n\"format\": \"lockstep checkpoint\", \"version\": %d,\n"
        "\"lockstep\": \"%s\", \"numerics\": %lld,\n"
        "\"step\": %lld, \"tokens\": %lld,\n"
        "\"grid\": {\"data\": %d, \"tensor\": %d, \"context\": %d, "
        "\"expert\": %d},\n"
        "\"model\": \"%s\",\n\"tokenizer\": \"%s\",\n"
        "\"block_bytes\": %d,\n\"files\": [",
        MANIFEST_VERSION, manifest->lockstep, (long long)manifest->numerics,
        (long long)manifest->step, (long long)manifest->tokens,
        manifest->grid.data, manifest->grid.tensor, manifest->grid.context,
        manifest->grid.expert > 0 ? manifest->grid.expert : 1, manifest->model,
        manifest->tokenizer, CHECKPOINT_BLOCK_BYTES);
}

static status write_tensor(struct text *out,
                           const struct manifest_tensor *tensor, bool first)
{
    TRY(text_printf(out,
                    "%s\n{\"name\": \"%s\", \"kind\": \"%s\", "
                    "\"dtype\": \"%s\", \"shape\": [",
                    first ? "" : ",", tensor->name, tensor->kind,
                    safetensors_type(tensor->dtype)));
    for (int i = 0; i < tensor->dimensions; i++)
        TRY(text_printf(out, "%s%lld", i ? ", " : "",
                        (long long)tensor->shape[i]));
    TRY(text_printf(out,
                    "], \"file\": %d, \"first\": %lld, \"bytes\": %lld, "
                    "\"crc32c\": \"",
                    tensor->file, (long long)tensor->first,
                    (long long)tensor->bytes));
    for (int64_t i = 0; i < tensor->blocks; i++)
        TRY(text_printf(out, "%08x", tensor->crcs[i]));
    return text_append_string(out, "\"}");
}

status manifest_write(struct text *out, const struct manifest *manifest)
{
    const size_t before = out->length;

    TRY(write_head(out, manifest));
    for (int i = 0; i < manifest->file_count; i++)
        TRY(text_printf(out,
                        "%s\n{\"name\": \"%s\", \"bytes\": %lld, "
                        "\"crc32c\": \"%08x\"}",
                        i ? "," : "", manifest->files[i].name,
                        (long long)manifest->files[i].bytes,
                        manifest->files[i].crc));
    TRY(text_append_string(out, "],\n\"tensors\": ["));
    for (int i = 0; i < manifest->tensor_count; i++)
        TRY(write_tensor(out, &manifest->tensors[i], i == 0));
    TRY(text_append_string(out, "],"));
    return text_printf(out, "%.*s%08x%s", END_DIGITS_AT, END,
                       crc32c(0, out->bytes + before, out->length - before),
                       END + END_DIGITS_AT + 8);
}

/* Exactly 8 * count hexadecimal digits in lower case. */
static bool read_hex(uint32_t *out, int64_t count, const char *digits,
                     int64_t length)
{
    if (length != 8 * count) return false;
    for (int64_t i = 0; i < 8 * count; i++) {
        const char c = digits[i];
        uint32_t value;

        if (c >= '0' && c <= '9') value = (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f') value = (uint32_t)(c - 'a' + 10);
        else return false;
        out[i / 8] = out[i / 8] << 4 | value;
    }
    return true;
}

static status read_crcs(uint32_t *crcs, int64_t count,
                        const struct json *object, const char *source)
{
    const struct json *digits = json_get(object, "crc32c");

    if (!digits || digits->kind != JSON_STRING ||
        !read_hex(crcs, count, digits->string, digits->string_length))
        FAIL(ERR_FORMAT, "%s: expected crc32c of %lld hexadecimal digits",
             source, (long long)(8 * count));
    return OK;
}

static status read_int(const struct json *object, const char *source,
                       const char *key, int64_t least, int64_t *out)
{
    TRY(json_get_integer(object, source, key, out));
    if (*out < least)
        FAIL(ERR_FORMAT, "%s: %s is %lld, expected %lld or more", source, key,
             (long long)*out, (long long)least);
    return OK;
}

static status read_plain_text(const struct json *object, const char *source,
                              const char *key, char *out, size_t size)
{
    const char *text = NULL;

    TRY(json_get_string(object, source, key, &text));
    if (text[0] && !name_is_safe(text))
        FAIL(ERR_FORMAT, "%s: %s contains characters that are not "
             "allowed", source,
             key);
    if (strlen(text) >= size)
        FAIL(ERR_FORMAT, "%s: %s is longer than %zu characters", source, key,
             size - 1);
    memcpy(out, text, strlen(text) + 1);
    return OK;
}

static status read_grid(struct grid *grid, const struct json *root,
                        const char *source)
{
    const struct json *object = json_get(root, "grid");
    int64_t data = 0, tensor = 0, context = 0, expert = 1;

    if (!object)
        FAIL(ERR_FORMAT, "%s: expected an object grid", source);
    TRY(read_int(object, source, "data", 1, &data));
    TRY(read_int(object, source, "tensor", 1, &tensor));
    TRY(read_int(object, source, "context", 1, &context));
    if (json_get(object, "expert") != NULL)
        TRY(read_int(object, source, "expert", 1, &expert));
    if (data > 65536 || tensor > 65536 || context > 65536 || expert > 65536)
        FAIL(ERR_FORMAT, "%s: the grid has more than 65536 leaves", source);
    *grid = (struct grid){(int)data, (int)tensor, (int)context, (int)expert};
    return OK;
}

static status read_head(struct manifest *manifest, const struct json *root,
                        const char *source)
{
    const char *format = NULL;
    int64_t version = 0, block = 0;

    TRY(json_get_string(root, source, "format", &format));
    if (strcmp(format, "lockstep checkpoint") != 0)
        FAIL(ERR_FORMAT, "%s: its format is not \"lockstep checkpoint\"",
             source);
    TRY(read_int(root, source, "version", 1, &version));
    if (version != MANIFEST_VERSION)
        FAIL(ERR_FORMAT, "%s: has version %lld, this program reads version %d",
             source, (long long)version, MANIFEST_VERSION);
    TRY(read_plain_text(root, source, "lockstep", manifest->lockstep,
                        sizeof manifest->lockstep));
    TRY(read_int(root, source, "numerics", 0, &manifest->numerics));
    TRY(read_int(root, source, "step", 0, &manifest->step));
    TRY(read_int(root, source, "tokens", 0, &manifest->tokens));
    TRY(read_grid(&manifest->grid, root, source));
    TRY(read_plain_text(root, source, "model", manifest->model,
                        sizeof manifest->model));
    TRY(read_plain_text(root, source, "tokenizer", manifest->tokenizer,
                        sizeof manifest->tokenizer));
    TRY(read_int(root, source, "block_bytes", 1, &block));
    if (block != CHECKPOINT_BLOCK_BYTES)
        FAIL(ERR_FORMAT, "%s: block_bytes is %lld, expected %d", source,
             (long long)block, CHECKPOINT_BLOCK_BYTES);
    return OK;
}

static int order_text(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* No file is listed twice: one would then hide another. */
static status check_files_differ(const struct manifest *manifest,
                                 struct arena *arena, const char *source)
{
    const char **names;
    void *memory;

    TRY(arena_take_array(arena, (size_t)manifest->file_count + 1,
                         sizeof *names, &memory));
    names = memory;
    for (int i = 0; i < manifest->file_count; i++)
        names[i] = manifest->files[i].name;
    if (manifest->file_count > 1)
        qsort(names, (size_t)manifest->file_count, sizeof *names, order_text);
    for (int i = 1; i < manifest->file_count; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            FAIL(ERR_FORMAT, "%s: lists %s twice", source, names[i]);
    return OK;
}

static status read_files(struct manifest *manifest, struct arena *arena,
                         const struct json *files, const char *source)
{
    void *memory;

    if (!files || files->kind != JSON_ARRAY || files->count > FILES_MAX)
        FAIL(ERR_FORMAT, "%s: expected an array of at most %d files", source,
             FILES_MAX);
    TRY(arena_take_array(arena, (size_t)files->count + 1,
                         sizeof *manifest->files, &memory));
    manifest->files = memory;
    for (int i = 0; i < files->count; i++) {
        struct manifest_file *file = &manifest->files[i];

        TRY(json_get_string(&files->items[i], source, "name", &file->name));
        if (!file_name_is_safe(file->name))
            FAIL(ERR_FORMAT, "%s: file %d has a name that is not one plain "
                 "component", source, i);
        TRY(read_int(&files->items[i], source, "bytes", 0, &file->bytes));
        TRY(read_crcs(&file->crc, 1, &files->items[i], source));
        manifest->file_count++;
    }
    return check_files_differ(manifest, arena, source);
}

static status read_tensor_shape(struct manifest_tensor *tensor,
                                const struct json *object, const char *source)
{
    const struct json *shape = json_get(object, "shape");
    char type[16];

    TRY(read_plain_text(object, source, "dtype", type, sizeof type));
    tensor->dtype = DTYPE_COUNT;
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (strcmp(type, safetensors_type((enum dtype)i)) == 0)
            tensor->dtype = (enum dtype)i;
    if (tensor->dtype == DTYPE_COUNT)
        FAIL(ERR_FORMAT, "%s: %s: unknown dtype %s", source, tensor->name,
             type);
    if (!shape || shape->kind != JSON_ARRAY ||
        shape->count > TENSOR_DIMENSIONS_MAX)
        FAIL(ERR_FORMAT, "%s: %s: expected a shape of at most %d dimensions",
             source, tensor->name, TENSOR_DIMENSIONS_MAX);
    tensor->dimensions = shape->count;
    for (int i = 0; i < shape->count; i++) {
        if (shape->items[i].kind != JSON_INTEGER)
            FAIL(ERR_FORMAT, "%s: %s: dimension %d is not an integer", source,
                 tensor->name, i);
        tensor->shape[i] = shape->items[i].integer;
    }
    return part_elements(tensor->name, tensor->dimensions, tensor->shape,
                         tensor->dtype, &tensor->elements);
}

static status read_tensor_place(struct manifest_tensor *tensor,
                                const struct manifest *manifest,
                                const struct json *object, const char *source)
{
    int64_t file = 0, end;

    TRY(read_int(object, source, "file", 0, &file));
    if (file >= manifest->file_count)
        FAIL(ERR_FORMAT, "%s: %s: is in file %lld, there are %d", source,
             tensor->name, (long long)file, manifest->file_count);
    tensor->file = (int)file;
    manifest->files[file].holds_tensors = true;
    TRY(read_int(object, source, "first", 8, &tensor->first));
    TRY(read_int(object, source, "bytes", 0, &tensor->bytes));
    if (tensor->bytes != tensor->elements * dtype_bytes(tensor->dtype))
        FAIL(ERR_FORMAT, "%s: %s: its bytes do not follow from its shape",
             source, tensor->name);
    if (__builtin_add_overflow(tensor->first, tensor->bytes, &end) ||
        end > manifest->files[file].bytes)
        FAIL(ERR_FORMAT, "%s: %s: leaves its file", source, tensor->name);
    tensor->blocks = tensor->bytes / CHECKPOINT_BLOCK_BYTES +
                     (tensor->bytes % CHECKPOINT_BLOCK_BYTES != 0);
    return OK;
}

static status read_tensor(struct manifest_tensor *tensor,
                          const struct manifest *manifest, struct arena *arena,
                          const struct json *object, const char *source)
{
    const struct json *digits = json_get(object, "crc32c");
    void *memory;

    TRY(json_get_string(object, source, "name", &tensor->name));
    TRY(json_get_string(object, source, "kind", &tensor->kind));
    if (!name_is_safe(tensor->name) || !file_name_is_safe(tensor->kind) ||
        strlen(tensor->kind) > 31)
        FAIL(ERR_FORMAT, "%s: a tensor's name or kind is not plain text",
             source);
    TRY(read_tensor_shape(tensor, object, source));
    TRY(read_tensor_place(tensor, manifest, object, source));
    /* The text is there, so memory for its numbers is within its size. */
    if (!digits || digits->kind != JSON_STRING ||
        digits->string_length / 8 != tensor->blocks)
        FAIL(ERR_FORMAT, "%s: %s: has %lld blocks, crc32c is of another "
             "number", source, tensor->name, (long long)tensor->blocks);
    TRY(arena_take_array(arena, (size_t)tensor->blocks + 1,
                         sizeof *tensor->crcs, &memory));
    tensor->crcs = memory;
    return read_crcs(tensor->crcs, tensor->blocks, object, source);
}

static int order_tensors(const void *left, const void *right)
{
    const struct manifest_tensor *a = left, *b = right;
    const bool a_weight = strcmp(a->kind, "weight") == 0;
    const bool b_weight = strcmp(b->kind, "weight") == 0;
    int order;

    if (a_weight != b_weight) return a_weight ? -1 : 1;
    order = strcmp(a->kind, b->kind);
    return order ? order : strcmp(a->name, b->name);
}

static status read_tensors(struct manifest *manifest, struct arena *arena,
                           const struct json *tensors, const char *source)
{
    void *memory;
    size_t count;

    if (!tensors || tensors->kind != JSON_ARRAY ||
        tensors->count > SAFETENSORS_TENSORS_MAX)
        FAIL(ERR_FORMAT, "%s: expected an array of at most %d tensors",
             source, SAFETENSORS_TENSORS_MAX);
    count = (size_t)tensors->count;
    TRY(arena_take_array(arena, count + 1, sizeof *manifest->tensors,
                         &memory));
    manifest->tensors = memory;
    for (int i = 0; i < tensors->count; i++) {
        TRY(read_tensor(&manifest->tensors[i], manifest, arena,
                        &tensors->items[i], source));
        manifest->tensor_count++;
    }
    if (count > 1)
        qsort(manifest->tensors, count, sizeof *manifest->tensors,
              order_tensors);
    for (int i = 1; i < manifest->tensor_count; i++)
        if (order_tensors(&manifest->tensors[i - 1],
                          &manifest->tensors[i]) == 0)
            FAIL(ERR_FORMAT, "%s: %s appears twice", source,
                 manifest->tensors[i].name);
    return OK;
}

status manifest_parse(struct manifest *manifest, struct arena *arena,
                      const char *text, size_t length, const char *source)
{
    const struct json *root;

    memset(manifest, 0, sizeof *manifest);
    TRY(json_read(&root, arena, text, length, source));
    if (root->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: is not an object", source);
    TRY(read_head(manifest, root, source));
    TRY(read_files(manifest, arena, json_get(root, "files"), source));
    return read_tensors(manifest, arena, json_get(root, "tensors"), source);
}

status manifest_read(struct manifest *manifest, struct arena *arena,
                     const char *text, size_t length, const char *source)
{
    const size_t body = length - END_BYTES;
    uint32_t stated = 0;

    memset(manifest, 0, sizeof *manifest);
    if (length < END_BYTES || memcmp(text + body, END, END_DIGITS_AT) != 0 ||
        strncmp(text + body + END_DIGITS_AT + 8, END + END_DIGITS_AT + 8,
                END_BYTES - END_DIGITS_AT - 8) != 0 ||
        !read_hex(&stated, 1, text + body + END_DIGITS_AT, 8))
        FAIL(ERR_FORMAT, "%s: does not end with its checksum: truncated, or "
             "not a manifest", source);
    if (stated != crc32c(0, text, body))
        FAIL(ERR_FORMAT, "%s: is damaged: its checksum is %08x, stated %08x",
             source, crc32c(0, text, body), stated);
    return manifest_parse(manifest, arena, text, length, source);
}
