/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_token_foreign.c - can a token file of another project hurt us? The first
 * byte of the input chooses the layout, the next two say how many bytes are the
 * second file's; then come that file and the first. A nanoset may have a third,
 * the end of the first. */
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "data/token_foreign.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads everything that a loader may read, whether verified or not. */
static void read_all(struct token_file *file)
{
    int64_t sum = 0;

    for (int64_t i = 0; i <= file->documents; i++) {
        const int64_t start = token_file_start(file, i);

        CHECK(start >= 0 && start <= file->count);
    }
    for (int64_t i = 0; i < file->count; i++) sum += token_file_at(file, i);
    CHECK(sum >= -file->count);
}

/* From the disk, with what it says of itself. */
static void open_nanoset(const uint8_t *data, size_t size, size_t cut)
{
    enum { METADATA_MOST = 48 };
    const size_t said = (size - cut) % METADATA_MOST;
    struct token_file file = {0};
    char path[PATH_BYTES];

    scratch_make();
    scratch_put("a.ds.index", data, cut);
    scratch_put("a.ds", data + cut, size - cut - said);
    scratch_put("a.ds.metadata", data + size - said, said);
    CHECK(path_join(path, PATH_BYTES, scratch, "a.ds") == OK);
    if (token_file_open(&file, path) == OK) read_all(&file);
    token_file_close(&file);
    status_clear();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const paths[] = {"a.u16", "a.idx", "a.bin", "a.ds",
                                        "a.npy", "a.u32"};
    struct token_file file = {0};
    unsigned char *image, *table;
    size_t cut;

    if (size < 3) return 0;
    file.layout = data[0] % 6 == 0 ? TOKENS_RAW
                                   : (enum token_layout)(data[0] % 6);
    file.path = paths[data[0] % 6];
    cut = (size_t)data[1] | (size_t)data[2] << 8;
    data += 3;
    size -= 3;
    if (cut > size) cut = size;
    if (strcmp(file.path, "a.ds") == 0) open_nanoset(data, size, cut);
    table = malloc(cut + 1); /* of their own, so that overruns show */
    image = malloc(size - cut + 1);
    if (table == NULL || image == NULL) abort();
    if (cut > 0) memcpy(table, data, cut);
    if (size > cut) memcpy(image, data + cut, size - cut);
    file.table.bytes = table;
    file.table.length = cut;
    file.image = image;
    file.length = size - cut;
    if (token_foreign_parse(&file) == OK) {
        read_all(&file);
        if (token_foreign_verify(&file) == OK &&
            token_file_split(&file, 9, NULL) == OK)
            read_all(&file);
    }
    memory_free(file.found_image);
    status_clear();
    free(image);
    free(table);
    CHECK(arena_bytes_out() == 0);
    return 0;
}

/* ---- the mutator ---- */

static void put_megatron(struct out *out)
{
    static const unsigned widths[] = {0, 1, 1, 2, 4, 8, 4, 8, 2};
    const unsigned type = draw(4) == 0 ? 1 + (unsigned)draw(8) : 8;
    const uint64_t sequences = draw(12), boundaries = sequences + 1;
    uint64_t lengths[12] = {0}, at = 0;

    put(out, "MMIDIDX\0\0\1\0\0\0\0\0\0\0", 17);
    put_byte(out, type);
    put_integer(out, sequences, 8);
    put_integer(out, boundaries, 8);
    for (uint64_t i = 0; i < sequences; i++)
        put_integer(out, lengths[i] = draw(9), 4);
    for (uint64_t i = 0; i < sequences; i++) {
        put_integer(out, at, 8);
        at += lengths[i] * widths[type];
    }
    for (uint64_t i = 0; i < boundaries; i++) put_integer(out, i, 8);
    out->bytes[1] = (uint8_t)(out->at - 3);
    out->bytes[2] = (uint8_t)((out->at - 3) >> 8);
    for (uint64_t i = 0; i < at; i++) put_byte(out, draw(3) ? 0 : 1);
}

static void put_numpy(struct out *out)
{
    static const char *const types[] = {"<u2", "<u4", "<i4", "<i8", "|u1",
                                        ">u2", "<f4", "<u8", "=u2", "u2"};
    static const char *const shapes[] = {"(4,)", "(4)", "()", "(2, 2)", "(0,)",
                                         "(-4,)", "(4,", "(4294967296,)",
                                         "(9223372036854775807,)"};
    const uint64_t version = draw(16) ? 1 + draw(3) : draw(5);
    char header[256];
    const int length = snprintf(
        header, sizeof header,
        "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }%*s\n",
        types[draw(2) ? 0 : draw(10)], draw(4) ? "False" : "True",
        shapes[draw(2) ? 0 : draw(9)], (int)draw(64), "");

    put(out, "\x93NUMPY", 6);
    put_integer(out, version, 2);
    put_integer(out, (uint64_t)length, version == 1 ? 2 : 4);
    put(out, header, (size_t)length);
    for (int i = 0; i < 8; i++) put_byte(out, (unsigned)draw(3));
}

static void put_llmc(struct out *out)
{
    const bool old = draw(2) == 0;
    const uint64_t count = draw(40);

    put_integer(out, old ? 20240520 : 20240801, 4);
    put_integer(out, old ? 1 : 7, 4);
    put_integer(out, count, 4);
    for (int i = 3; i < 256; i++) put_integer(out, 0, 4);
    for (uint64_t i = 0; i < count; i++)
        put_integer(out, draw(4) ? draw(99) : old ? 50256 : 128000,
                    old ? 2 : 4);
}

/* Two bytes a token; now and then with what the third file says. */
static void put_nanoset(struct out *out)
{
    const uint64_t documents = draw(8);
    uint64_t end = 0;

    out->bytes[1] = (uint8_t)(8 * documents);
    for (uint64_t i = 0; i < documents; i++)
        put_integer(out, end += 1 + draw(9), 8);
    for (uint64_t i = 0; i < end; i++) put_integer(out, draw(99), 2);
    if (draw(2) == 0) put_text(out, "gpt2|2\n12");
}

static size_t make_file(uint8_t *data, size_t room)
{
    struct out out = {.bytes = data, .room = room};

    if (room < 4096) return 0;
    put_byte(&out, 1 + (unsigned)draw(4));
    put_integer(&out, 0, 2);
    switch (data[0]) {
    case TOKENS_MEGATRON: put_megatron(&out); break;
    case TOKENS_LLMC: put_llmc(&out); break;
    case TOKENS_NANOSET: put_nanoset(&out); break;
    default: put_numpy(&out);
    }
    return out.full ? 0 : out.at;
}

/* The header of NumPy is text; what the others have is integers. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    static const struct grammar text = {words_grammar_read,
                                        words_grammar_write, NULL};

    mutate_seed(seed);
    if (draw(4) == 0 || size < 16) {
        const size_t made = make_file(data, room);

        if (made != 0) size = made;
    }
    if (size < 16 || draw(16) == 0) return LLVMFuzzerMutate(data, size, room);
    if (data[0] % 6 == TOKENS_NUMPY && draw(2) == 0 && size > 13)
        return mutate_from(&text, data, size, room, 13);
    for (uint64_t i = draw(3); i > 0; i--) {
        const int bytes = 1 << draw(4);
        const size_t head = size < 64 ? size : 64;
        const size_t at = draw(draw(2) ? head - 8 : size - 8);

        mutate_integer(data, size, at, bytes);
    }
    return size;
}
