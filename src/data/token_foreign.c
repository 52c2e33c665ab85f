/* SPDX-License-Identifier: Apache-2.0 */
/* token_foreign.c - token files of other projects, mapped and read in place. */
#include "data/token_foreign.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "data/little_endian.h"

enum {
    MEGATRON_HEADER = 34,
    LLMC_HEADER = 1024,
    NUMPY_PREFIX = 8         /* magic and version */
};
static const uint32_t llmc_gpt2 = 20240520, llmc_llama3 = 20240801;

/* ---- which ---- */

/* The first bytes of a file; what is not there is zero. A pipe without a
 * writer is refused later: nothing waits for it here. */
static void first_bytes(const char *path, unsigned char out[8])
{
    const int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

    memset(out, 0, 8);
    if (descriptor < 0) return;
    if (read(descriptor, out, 8) < 8) { /* shorter: the rest stays zero */
    }
    close(descriptor);
}

static void change_ending(const char *path, const char *ending,
                          char out[PATH_BYTES])
{
    const char *dot = strrchr(path, '.');

    snprintf(out, PATH_BYTES, "%.*s%s",
             (int)(dot != NULL ? dot - path : (ptrdiff_t)strlen(path)), path,
             ending);
}

static bool is_index(const char *path)
{
    unsigned char first[8];

    first_bytes(path, first);
    return memcmp(first, "MMIDIDX", 7) == 0 || memcmp(first, "TNTIDX", 6) == 0;
}

static bool layout_of(const char *path, bool named, enum token_layout *layout)
{
    char pair[PATH_BYTES];
    unsigned char first[8];
    uint32_t magic;

    *layout = TOKENS_MEGATRON;
    if (text_ends_with(path, ".idx")) return is_index(path);
    if (text_ends_with(path, ".bin")) {
        change_ending(path, ".idx", pair);
        if (is_index(pair)) return named; /* the .idx stands for both */
        first_bytes(path, first);
        magic = load_u32(first);
        *layout = TOKENS_LLMC;
        return magic == llmc_gpt2 || magic == llmc_llama3;
    }
    *layout = TOKENS_NANOSET;
    if (text_ends_with(path, ".ds")) return true;
    *layout = TOKENS_RAW;
    if (text_ends_with(path, ".u16") || text_ends_with(path, ".u32"))
        return true;
    *layout = TOKENS_NUMPY;
    return named && text_ends_with(path, ".npy");
}

bool token_foreign_is(const char *path, bool named)
{
    enum token_layout layout;

    return layout_of(path, named, &layout);
}

/* ---- headers ---- */

static status whole_tokens(struct token_file *file, size_t header)
{
    const size_t body = file->length - header;
    const size_t size = (size_t)file->bytes_per_token;

    if (body % size != 0)
        FAIL(ERR_FORMAT, "%s: %zu bytes from byte %zu are not a whole number "
             "of tokens of %zu bytes (truncated?)", file->path, body, header,
             size);
    if (body == 0) FAIL(ERR_FORMAT, "%s: the file has no tokens", file->path);
    file->tokens = file->image + header;
    file->count = (int64_t)(body / size);
    return OK;
}

static status megatron_type(struct token_file *file, unsigned code)
{
    static const int sizes[] = {0, 1, 1, 2, 4, 8, 0, 0, 2};

    if (code >= sizeof sizes / sizeof *sizes || sizes[code] == 0)
        FAIL(ERR_FORMAT, "%s: byte 17 of the index says type %u; integers are "
             "1 to 5 and 8", file->path, code);
    file->bytes_per_token = sizes[code];
    return OK;
}

static status parse_megatron(struct token_file *file)
{
    const unsigned char *t = file->table.bytes;
    const size_t length = file->table.length;
    uint64_t sequences, boundaries, most;

    if (length >= 6 && memcmp(t, "TNTIDX", 6) == 0)
        FAIL(ERR_FORMAT, "%s: the index has the old form TNTIDX; make it again "
             "with the mmap form (MMIDIDX)", file->path);
    if (length < MEGATRON_HEADER || memcmp(t, "MMIDIDX\0\0", 9) != 0)
        FAIL(ERR_FORMAT, "%s: the index of %zu bytes does not begin with "
             "MMIDIDX and 25 bytes more", file->path, length);
    if (load_u64(t + 9) != 1)
        FAIL(ERR_FORMAT, "%s: the index has version %llu at byte 9, not 1",
             file->path, (unsigned long long)load_u64(t + 9));
    TRY(megatron_type(file, t[17]));
    sequences = load_u64(t + 18);
    boundaries = load_u64(t + 26);
    most = length / 4;
    if (sequences > most || boundaries > most || boundaries < 1 ||
        (length != MEGATRON_HEADER + 12 * sequences + 8 * boundaries &&
         length != MEGATRON_HEADER + 13 * sequences + 8 * boundaries))
        FAIL(ERR_FORMAT, "%s: the index has %zu bytes, but %llu sequences and "
             "%llu boundaries (bytes 18 and 26) take another number "
             "(truncated?)", file->path, length,
             (unsigned long long)sequences, (unsigned long long)boundaries);
    TRY(whole_tokens(file, 0));
    file->sequences = (int64_t)sequences;
    file->documents = (int64_t)boundaries - 1;
    file->offsets = t + MEGATRON_HEADER + 4 * sequences;
    file->starts = file->offsets + 8 * sequences;
    if (load_u64(file->starts) != 0 ||
        load_u64(file->starts + 8 * file->documents) != sequences)
        FAIL(ERR_FORMAT, "%s: the boundaries of documents go from %llu to "
             "%llu, not from 0 to the %llu sequences", file->path,
             (unsigned long long)load_u64(file->starts),
             (unsigned long long)load_u64(file->starts + 8 * file->documents),
             (unsigned long long)sequences);
    return OK;
}

static status parse_llmc(struct token_file *file)
{
    uint32_t magic, version, count;
    bool small;

    if (file->length < LLMC_HEADER)
        FAIL(ERR_FORMAT, "%s: %zu bytes are not a header of llm.c (%d bytes)",
             file->path, file->length, LLMC_HEADER);
    magic = load_u32(file->image);
    version = load_u32(file->image + 4);
    count = load_u32(file->image + 8);
    small = magic == llmc_gpt2;
    if ((!small && magic != llmc_llama3) || version != (small ? 1u : 7u))
        FAIL(ERR_FORMAT, "%s: magic %u and version %u; token files of llm.c "
             "have 20240520 and 1, or 20240801 and 7", file->path, magic,
             version);
    file->bytes_per_token = small ? 2 : 4;
    TRY(whole_tokens(file, LLMC_HEADER));
    if (file->count != (int64_t)count)
        FAIL(ERR_FORMAT, "%s: the header says %u tokens (byte 8), the file has "
             "%lld (truncated?)", file->path, count, (long long)file->count);
    return OK;
}

static status parse_nanoset(struct token_file *file)
{
    const uint64_t entries = file->table.length / 8;
    const uint64_t last = entries > 0
        ? load_u64(file->table.bytes + 8 * (entries - 1)) : 0;

    if (entries == 0 || file->table.length % 8 != 0 || last == 0)
        FAIL(ERR_FORMAT, "%s.index: %zu bytes, expected the end of each "
             "document in 8 bytes, the last above 0", file->path,
             file->table.length);
    file->bytes_per_token = file->length / 4 == last && file->length % 4 == 0
                                ? 4 : 2;
    if (last > file->length ||
        file->length != last * (unsigned)file->bytes_per_token)
        FAIL(ERR_FORMAT, "%s: %zu bytes, but the index ends at token %llu: "
             "expected 2 or 4 bytes for each (truncated?)", file->path,
             file->length, (unsigned long long)last);
    file->starts = file->table.bytes;
    file->documents = (int64_t)entries;
    return whole_tokens(file, 0);
}

/* Compares the metadata of a nanoset: TOKENIZER|BYTES, the number of tokens. */
static status compare_metadata(const struct token_file *file,
                               const char *text)
{
    const size_t first = strcspn(text, "\n");
    const char *bar = memrchr(text, '|', first);
    char *end = NULL;
    long long bytes, count;

    bytes = bar != NULL ? strtoll(bar + 1, &end, 10) : 0;
    if (bar == NULL || end == bar + 1 || end != text + first)
        FAIL(ERR_FORMAT, "%s.metadata: the first line is not TOKENIZER|BYTES",
             file->path);
    if (bytes != file->bytes_per_token)
        FAIL(ERR_FORMAT, "%s.metadata: %lld bytes for a token; by the index "
             "the file has %d", file->path, bytes, file->bytes_per_token);
    if (*end == '\0') return OK;
    count = strtoll(end + 1, &end, 10);
    if (count != file->count)
        FAIL(ERR_FORMAT, "%s.metadata: %lld tokens, the file has %lld "
             "(truncated, or of another file?)", file->path, count,
             (long long)file->count);
    return OK;
}

static status check_metadata(const struct token_file *file, const char *path)
{
    enum { METADATA_MAX = 1 << 16 /* bytes */ };
    char name[PATH_BYTES];
    struct text text = {0};
    status result;

    if (snprintf(name, sizeof name, "%s.metadata", path) >= PATH_BYTES ||
        !file_exists(name))
        return OK;
    TRY(file_read_regular(name, METADATA_MAX, &text));
    result = compare_metadata(file, text.length > 0 ? text.bytes : "");
    text_free(&text);
    return result;
}

/* The value that follows a key of the header's dictionary. */
static const char *numpy_value(const char *header, const char *key)
{
    const char *at = strstr(header, key);

    if (at == NULL) return "";
    at += strlen(key);
    while (*at == ' ' || *at == ':' || *at == '\'' || *at == '"') at++;
    return at;
}

/* How much of a value a message shows. */
static int shown(const char *value, const char *ends)
{
    const size_t length = strcspn(value, ends);

    return length < 20 ? (int)length : 20;
}

static status numpy_header(struct token_file *file, const char *header)
{
    const char *type = numpy_value(header, "descr");
    const char *shape = numpy_value(header, "shape");
    char *end = NULL;

    if ((type[0] != '<' && type[0] != '|') ||
        (type[1] != 'u' && type[1] != 'i') ||
        strchr("1248", type[2]) == NULL || type[2] == '\0' ||
        (type[3] != '\'' && type[3] != '"'))
        FAIL(ERR_FORMAT, "%s: elements are '%.*s'; integers of 1, 2, 4 or 8 "
             "little-endian bytes are read", file->path, shown(type, "'\""),
             type);
    file->bytes_per_token = type[2] - '0';
    if (shape[0] == '(') {
        file->count = strtoll(shape + 1, &end, 10);
        while (*end == ' ') end++;
    }
    if (end == NULL || end == shape + 1 || end[0] != ',' || end[1] != ')')
        FAIL(ERR_FORMAT, "%s: the shape is '%.*s)'; one dimension is read",
             file->path, shown(shape, ")"), shape);
    return OK;
}

static status parse_numpy(struct token_file *file)
{
    enum { HEADER_MAX = 65535 };
    const unsigned char *h = file->image;
    const size_t known = file->length;
    char *header;
    void *memory;
    size_t prefix, length;
    int64_t said;
    status result;

    if (known < NUMPY_PREFIX + 4 || memcmp(h, "\x93NUMPY", 6) != 0 ||
        h[6] < 1 || h[6] > 3)
        FAIL(ERR_FORMAT, "%s: does not begin with \\x93NUMPY and a version "
             "from 1 to 3; raw tokens must end with .u16 or .u32",
             file->path);
    prefix = NUMPY_PREFIX + (h[6] == 1 ? 2 : 4);
    length = (size_t)load_bytes(h + NUMPY_PREFIX, h[6] == 1 ? 2 : 4);
    if (length > HEADER_MAX || prefix + length > file->length)
        FAIL(ERR_FORMAT, "%s: byte 8 says a header of %zu bytes; the file has "
             "%zu", file->path, length, file->length);
    TRY(memory_take(length + 1, 1, &memory));
    header = memory;
    memcpy(header, h + prefix, length);
    header[length] = '\0';
    result = numpy_header(file, header);
    memory_free(memory);
    TRY(result);
    said = file->count;
    TRY(whole_tokens(file, prefix + length));
    if (said != file->count)
        FAIL(ERR_FORMAT, "%s: the header says %lld elements, the file has "
             "%lld (truncated?)", file->path, (long long)said,
             (long long)file->count);
    return OK;
}

static status parse_raw(struct token_file *file)
{
    file->bytes_per_token = text_ends_with(file->path, ".u32") ? 4 : 2;
    return whole_tokens(file, 0);
}

status token_foreign_parse(struct token_file *file)
{
    file->end_token = -1;
    file->largest = -1;
    file->documents = 1;
    switch (file->layout) {
    case TOKENS_MEGATRON: TRY(parse_megatron(file)); break;
    case TOKENS_LLMC: TRY(parse_llmc(file)); break;
    case TOKENS_NANOSET: TRY(parse_nanoset(file)); break;
    case TOKENS_NUMPY: TRY(parse_numpy(file)); break;
    case TOKENS_OWN:
    case TOKENS_RAW: TRY(parse_raw(file)); break;
    }
    return OK;
}

status token_foreign_open(struct token_file *file, const char *path)
{
    char data[PATH_BYTES], table[PATH_BYTES] = "";

    if (!layout_of(path, true, &file->layout))
        FAIL(ERR_FORMAT, "%s: no token file", path);
    snprintf(data, sizeof data, "%s", path);
    if (file->layout == TOKENS_MEGATRON) {
        change_ending(path, ".bin", data);
        change_ending(path, ".idx", table);
    }
    if (file->layout == TOKENS_NANOSET &&
        snprintf(table, sizeof table, "%s.index", path) >= PATH_BYTES)
        FAIL(ERR_CONFIG, "%.60s...: the path is too long", path);
    TRY(file_map_open(&file->map, data));
    if (table[0] != '\0') TRY(file_map_open(&file->table, table));
    file->image = file->map.bytes;
    file->length = file->map.length;
    TRY(token_foreign_parse(file));
    return file->layout == TOKENS_NANOSET ? check_metadata(file, path) : OK;
}

/* ---- documents ---- */

uint64_t token_foreign_start(const struct token_file *file, int64_t index)
{
    uint64_t at;

    if (file->found != NULL) return (uint64_t)file->found[index];
    if (file->starts == NULL || index == file->documents)
        return index > 0 ? (uint64_t)file->count : 0;
    if (file->layout == TOKENS_NANOSET)
        return index > 0 ? load_u64(file->starts + 8 * (index - 1)) : 0;
    at = load_u64(file->starts + 8 * index);
    if (at >= (uint64_t)file->sequences) return (uint64_t)file->count;
    return load_u64(file->offsets + 8 * at) / (unsigned)file->bytes_per_token;
}

static status verify_sequences(const struct token_file *file)
{
    const unsigned char *lengths = file->table.bytes + MEGATRON_HEADER;
    const uint64_t size = (uint64_t)file->bytes_per_token;
    uint64_t expected = 0;

    for (int64_t i = 0; i < file->sequences; i++) {
        const uint64_t length = load_u32(lengths + 4 * i);
        const uint64_t offset = load_u64(file->offsets + 8 * i);

        if (offset != expected || length > INT32_MAX)
            FAIL(ERR_FORMAT, "%s: sequence %lld of %llu tokens begins at byte "
                 "%llu, expected %llu", file->path, (long long)i,
                 (unsigned long long)length, (unsigned long long)offset,
                 (unsigned long long)expected);
        expected += length * size;
    }
    if (expected != file->length)
        FAIL(ERR_FORMAT, "%s: the index ends at byte %llu, the .bin at %zu "
             "(truncated?)", file->path, (unsigned long long)expected,
             file->length);
    return OK;
}

/* The first of count numbers that is smaller than the one ahead of it, or
 * count. A block is looked at as a whole first. */
static int64_t first_descent(const unsigned char *numbers, int64_t count)
{
    enum { BLOCK = 512 };

    for (int64_t at = 1; at < count; at += BLOCK) {
        const int64_t left = count - at;
        const int64_t here = left < BLOCK ? left : BLOCK;
        const unsigned char *now = numbers + 8 * at;
        unsigned down = 0;

        for (int64_t i = 0; i < here; i++)
            down |= load_u64(now + 8 * i) < load_u64(now + 8 * (i - 1));
        if (down == 0) continue;
        while (load_u64(now) >= load_u64(now - 8)) now += 8;
        return (now - numbers) / 8;
    }
    return count;
}

/* Megatron's numbers are where documents begin, those of a nanoset where they
 * end. */
status token_foreign_verify(const struct token_file *file)
{
    const int begins = file->layout == TOKENS_MEGATRON;
    const int64_t count = file->documents + begins;
    int64_t at;

    if (begins) TRY(verify_sequences(file));
    if (file->starts == NULL) return OK;
    at = first_descent(file->starts, count);
    if (at == count) return OK;
    FAIL(ERR_FORMAT, "%s: document %lld begins at %llu, before the one ahead "
         "of it (%llu)", file->path, (long long)(at + !begins),
         (unsigned long long)load_u64(file->starts + 8 * at),
         (unsigned long long)load_u64(file->starts + 8 * (at - 1)));
}
