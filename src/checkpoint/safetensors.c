/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c - a strict reader of one .safetensors file. */
#include "checkpoint/safetensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "checkpoint/convert.h"
#include "checkpoint/parts.h"
#include "checkpoint/transfer.h"

/* A parsed value is some 50 bytes, and the shortest takes two of text. */
static const size_t ARENA_BYTES_PER_HEADER_BYTE = 64;
static const size_t ARENA_BYTES_LEAST = 1 << 20;

static const struct {
    const char *name;
    int bits;          /* of an element */
    enum dtype dtype;  /* DTYPE_COUNT: none of ours */
} types[] = {
    {"F32", 32, DTYPE_F32},       {"F64", 64, DTYPE_F64},
    {"BF16", 16, DTYPE_BF16},     {"F16", 16, DTYPE_F16},
    {"I32", 32, DTYPE_I32},       {"I64", 64, DTYPE_I64},
    {"U8", 8, DTYPE_U8},          {"BOOL", 8, DTYPE_COUNT},
    {"I8", 8, DTYPE_COUNT},       {"I16", 16, DTYPE_COUNT},
    {"U16", 16, DTYPE_COUNT},     {"U32", 32, DTYPE_COUNT},
    {"U64", 64, DTYPE_COUNT},     {"C64", 64, DTYPE_COUNT},
    {"F8_E5M2", 8, DTYPE_COUNT},  {"F8_E4M3", 8, DTYPE_COUNT},
    {"F8_E8M0", 8, DTYPE_COUNT},  {"F8_E4M3FNUZ", 8, DTYPE_COUNT},
    {"F8_E5M2FNUZ", 8, DTYPE_COUNT}, {"F4", 4, DTYPE_COUNT},
    {"F6_E2M3", 6, DTYPE_COUNT},  {"F6_E3M2", 6, DTYPE_COUNT},
};
enum { TYPES = sizeof types / sizeof *types };

const char *safetensors_type(enum dtype dtype)
{
    for (int i = 0; i < TYPES; i++)
        if (types[i].dtype == dtype) return types[i].name;
    return "?";
}

const char *shape_text(char out[192], int dimensions, const int64_t *shape)
{
    int at = snprintf(out, 192, "[");

    for (int i = 0; i < dimensions; i++)
        at += snprintf(out + at, (size_t)(192 - at), "%s%lld", i ? ", " : "",
                       (long long)shape[i]);
    snprintf(out + at, (size_t)(192 - at), "]");
    return out;
}

static int order_by_place(const void *left, const void *right)
{
    const struct safetensors_entry *a = left, *b = right;

    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int order_by_name(const void *left, const void *right)
{
    const struct safetensors_entry *const *a = left, *const *b = right;

    return strcmp((*a)->name, (*b)->name);
}

static status read_shape(struct safetensors_entry *entry, int bits,
                         const struct json *shape, const char *path)
{
    int64_t total_bits;

    if (!shape || shape->kind != JSON_ARRAY)
        FAIL(ERR_FORMAT, "%s: %s: expected a shape, an array of integers",
             path, entry->name);
    if (shape->count > SAFETENSORS_DIMENSIONS_MAX)
        FAIL(ERR_FORMAT, "%s: %s: has %d dimensions, at most %d are possible",
             path, entry->name, (int)shape->count, SAFETENSORS_DIMENSIONS_MAX);
    entry->dimensions = shape->count;
    entry->elements = 1;
    for (int i = 0; i < entry->dimensions; i++) {
        const struct json *size = &shape->items[i];

        if (size->kind != JSON_INTEGER || size->integer < 0)
            FAIL(ERR_FORMAT, "%s: %s: dimension %d is not an integer from 0",
                 path, entry->name, i);
        entry->shape[i] = size->integer;
        if (__builtin_mul_overflow(entry->elements, size->integer,
                                   &entry->elements))
            FAIL(ERR_FORMAT, "%s: %s: its shape overflows 63 bits", path,
                 entry->name);
    }
    if (__builtin_mul_overflow(entry->elements, (int64_t)bits, &total_bits))
        FAIL(ERR_FORMAT, "%s: %s: its shape overflows 63 bits", path,
             entry->name);
    if (total_bits % 8 != 0 || total_bits / 8 != entry->bytes)
        FAIL(ERR_FORMAT,
             "%s: %s: its shape needs %lld bits, data_offsets span %lld bytes",
             path, entry->name, (long long)total_bits,
             (long long)entry->bytes);
    return OK;
}

/* Both offsets are within the buffer; their order among tensors comes later. */
static status read_offsets(struct safetensors_entry *entry,
                           const struct json *offsets, int64_t data_bytes,
                           const char *path)
{
    if (!offsets || offsets->kind != JSON_ARRAY || offsets->count != 2 ||
        offsets->items[0].kind != JSON_INTEGER ||
        offsets->items[1].kind != JSON_INTEGER)
        FAIL(ERR_FORMAT, "%s: %s: expected data_offsets, two integers", path,
             entry->name);

    const int64_t begin = offsets->items[0].integer;
    const int64_t end = offsets->items[1].integer;

    if (begin < 0 || end < begin || end > data_bytes)
        FAIL(ERR_FORMAT,
             "%s: %s: data_offsets %lld to %lld, the data have %lld bytes",
             path, entry->name, (long long)begin, (long long)end,
             (long long)data_bytes);
    entry->first = begin;
    entry->bytes = end - begin;
    return OK;
}

static status read_entry(struct safetensors_entry *entry,
                         const struct json *key, const struct json *value,
                         int64_t data_bytes, const char *path)
{
    const struct json *type;
    int row = 0;

    if (strlen(key->string) != (size_t)key->string_length ||
        !name_is_safe(key->string))
        FAIL(ERR_FORMAT, "%s: a tensor's name is not 1 to 511 printable "
             "characters without spaces, quotes and backslashes", path);
    entry->name = key->string;
    type = json_get(value, "dtype");
    if (value->kind != JSON_OBJECT || value->count != 3 || !type ||
        type->kind != JSON_STRING)
        FAIL(ERR_FORMAT,
             "%s: %s: expected exactly dtype, shape and data_offsets", path,
             entry->name);
    while (row < TYPES && strcmp(types[row].name, type->string) != 0) row++;
    if (row == TYPES)
        FAIL(ERR_FORMAT, "%s: %s: unknown dtype %.40s", path, entry->name,
             type->string);
    entry->type = types[row].name;
    entry->dtype = types[row].dtype;
    TRY(read_offsets(entry, json_get(value, "data_offsets"), data_bytes,
                     path));
    return read_shape(entry, types[row].bits, json_get(value, "shape"), path);
}

static status check_metadata(const struct json *metadata, const char *path)
{
    if (metadata->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: __metadata__ is not an object", path);
    for (int i = 0; i < metadata->count; i++)
        if (metadata->items[2 * i + 1].kind != JSON_STRING)
            FAIL(ERR_FORMAT, "%s: __metadata__ holds something that is not a "
                 "string", path);
    return OK;
}

/* Sorted by offset, each tensor begins where the one before ended. */
static status check_tiling(const struct safetensors *file, int64_t data_bytes)
{
    int64_t end = 0;

    for (int i = 0; i < file->count; i++) {
        const struct safetensors_entry *entry = &file->entries[i];

        if (entry->first != end)
            FAIL(ERR_FORMAT, "%s: %s: begins at byte %lld of the data, the "
                 "tensor before ends at %lld", file->path, entry->name,
                 (long long)entry->first, (long long)end);
        end += entry->bytes;
    }
    if (end != data_bytes)
        FAIL(ERR_FORMAT,
             "%s: the tensors have %lld bytes, the file has %lld for them",
             file->path, (long long)end, (long long)data_bytes);
    return OK;
}

static status sort_entries(struct safetensors *file)
{
    const size_t count = (size_t)file->count;
    void *memory;

    TRY(arena_take_array(&file->arena, count, sizeof *file->by_name, &memory));
    file->by_name = memory;
    if (count > 1)
        qsort(file->entries, count, sizeof *file->entries, order_by_place);
    for (int i = 0; i < file->count; i++) file->by_name[i] = &file->entries[i];
    if (count > 1)
        qsort(file->by_name, count, sizeof *file->by_name, order_by_name);
    for (int i = 1; i < file->count; i++)
        if (strcmp(file->by_name[i - 1]->name, file->by_name[i]->name) == 0)
            FAIL(ERR_FORMAT, "%s: %s appears twice", file->path,
                 file->by_name[i]->name);
    return OK;
}

static void begin(struct safetensors *file)
{
    memset(file, 0, sizeof *file);
    file->descriptor = -1;
}

static status parse(struct safetensors *file, const char *header,
                    size_t length, int64_t data_bytes)
{
    const struct json *root;
    void *memory;
    int entries;

    if (length == 0 || header[0] != '{')
        FAIL(ERR_FORMAT, "%s: its header does not begin with {", file->path);
    TRY(json_read(&root, &file->arena, header, length, file->path));
    if (root->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: its header is not an object", file->path);
    file->metadata = json_get(root, "__metadata__");
    if (file->metadata) TRY(check_metadata(file->metadata, file->path));
    entries = root->count - (file->metadata ? 1 : 0);
    if (entries > SAFETENSORS_TENSORS_MAX)
        FAIL(ERR_FORMAT, "%s: %d tensors, at most %d are possible",
             file->path, entries, SAFETENSORS_TENSORS_MAX);
    TRY(arena_take_array(&file->arena, (size_t)entries + 1,
                         sizeof *file->entries, &memory));
    file->entries = memory;
    for (int i = 0; i < root->count; i++) {
        if (&root->items[2 * i + 1] == file->metadata) continue;
        TRY(read_entry(&file->entries[file->count], &root->items[2 * i],
                       &root->items[2 * i + 1], data_bytes, file->path));
        file->count++;
    }
    TRY(sort_entries(file));
    TRY(check_tiling(file, data_bytes));
    for (int i = 0; i < file->count; i++)
        file->entries[i].first += file->data_first;
    return OK;
}

static status begin_arena(struct safetensors *file, size_t header_bytes,
                          const char *path)
{
    char *copy;

    arena_init(&file->arena, "safetensors header",
               ARENA_BYTES_LEAST + ARENA_BYTES_PER_HEADER_BYTE * header_bytes);
    TRY(arena_copy_text(&file->arena, path, &copy));
    file->path = copy;
    return OK;
}

status safetensors_parse(struct safetensors *file, const char *header,
                         size_t length, int64_t data_bytes, const char *path)
{
    begin(file);
    if (length > SAFETENSORS_HEADER_BYTES_MAX)
        FAIL(ERR_FORMAT, "%s: its header has %zu bytes, at most %d are read",
             path, length, SAFETENSORS_HEADER_BYTES_MAX);
    TRY(begin_arena(file, length, path));
    file->data_first = 8 + (int64_t)length;
    return parse(file, header, length, data_bytes);
}

status safetensors_open(struct safetensors *file, const char *path,
                        bool follow_links)
{
    unsigned char prefix[8];
    uint64_t length = 0;
    int64_t file_bytes;
    void *header = NULL;
    status result;

    begin(file);
    TRY(transfer_open(path, follow_links, &file->descriptor, &file_bytes));
    if (file_bytes < 8)
        FAIL(ERR_FORMAT, "%s: has %lld bytes, a safetensors file has 8 or "
             "more", path, (long long)file_bytes);
    TRY(transfer_read(file->descriptor, path, 0, prefix, sizeof prefix));
    for (int i = 7; i >= 0; i--) length = length << 8 | prefix[i];
    if (length > (uint64_t)file_bytes - 8)
        FAIL(ERR_FORMAT,
             "%s: its header claims %llu bytes, the file has %lld: truncated, "
             "or not safetensors", path, (unsigned long long)length,
             (long long)file_bytes);
    if (length > SAFETENSORS_HEADER_BYTES_MAX)
        FAIL(ERR_FORMAT, "%s: its header has %llu bytes, at most %d are read",
             path, (unsigned long long)length, SAFETENSORS_HEADER_BYTES_MAX);
    TRY(begin_arena(file, (size_t)length, path));
    TRY(memory_take((size_t)length + 1, 1, &header));
    file->data_first = 8 + (int64_t)length;
    TRY_GOTO(done, result, transfer_read(file->descriptor, path, 8, header,
                                         (size_t)length));
    TRY_GOTO(done, result, parse(file, header, (size_t)length,
                                 file_bytes - file->data_first));
done:
    memory_free(header);
    return result;
}

void safetensors_close(struct safetensors *file)
{
    /* A zeroed one has no path: descriptor 0 is then not ours. */
    if (file->descriptor > 0) close(file->descriptor);
    arena_free(&file->arena);
    memset(file, 0, sizeof *file);
    file->descriptor = -1;
}

const struct safetensors_entry *
safetensors_find(const struct safetensors *file, const char *name)
{
    int low = 0, high = file->count;

    while (low < high) {
        const int middle = low + (high - low) / 2;
        const int order = strcmp(name, file->by_name[middle]->name);

        if (order == 0) return file->by_name[middle];
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

status safetensors_read(const struct safetensors *file,
                        const struct safetensors_entry *entry, int64_t first,
                        int64_t count, enum dtype dtype, void *out)
{
    char block[16384];
    int64_t size, most;

    CHECK(first >= 0 && count >= 0 && first <= entry->elements - count);
    if (!convert_possible(dtype, entry->dtype))
        FAIL(ERR_FORMAT, "%s: %s: has type %s, which does not convert to %s",
             file->path, entry->name, entry->type, dtype_name(dtype));
    size = dtype_bytes(entry->dtype);
    if (dtype == entry->dtype)
        return transfer_read(file->descriptor, file->path,
                             entry->first + first * size, out,
                             (size_t)(count * size));
    most = (int64_t)sizeof block / size;
    for (int64_t done = 0; done < count; done += most) {
        const int64_t n = count - done < most ? count - done : most;

        TRY(transfer_read(file->descriptor, file->path,
                          entry->first + (first + done) * size, block,
                          (size_t)(n * size)));
        convert_elements((struct spacing){dtype, 1},
                         (char *)out + done * dtype_bytes(dtype),
                         (struct spacing){entry->dtype, 1}, block, n);
    }
    return OK;
}
