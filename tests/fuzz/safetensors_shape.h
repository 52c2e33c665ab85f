/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_shape.h - the grammar of a safetensors file: its header is JSON,
 * and the places of tensors follow from their shapes and types. */
#ifndef LOCKSTEP_TESTS_FUZZ_SAFETENSORS_SHAPE_H
#define LOCKSTEP_TESTS_FUZZ_SAFETENSORS_SHAPE_H

#include "tests/fuzz/grammar.h"

/* The reader under test takes 8 last bytes as the number of data bytes. */
static bool safetensors_claims;

/* The header, and the data as an atom. */
static inline struct item *safetensors_grammar_read(const uint8_t *data,
                                                    size_t size)
{
    struct item *top;
    uint64_t length;

    if (size < 8) return NULL;
    length = get_integer(data, 8);
    if (length > size - 8) return NULL;
    top = json_grammar_read(data + 8, (size_t)length);
    if (top == NULL) return NULL;
    top->first->next = item_new(ITEM_ATOM, data + 8 + length,
                                size - 8 - (size_t)length);
    return top->first->next == NULL ? NULL : top;
}

static inline uint64_t safetensors_bits(const struct item *type)
{
    static const struct { const char *name; uint64_t bits; } types[] = {
        {"F64", 64}, {"I64", 64}, {"U64", 64}, {"F32", 32}, {"I32", 32},
        {"U32", 32}, {"F16", 16}, {"BF16", 16}, {"I16", 16}, {"U16", 16},
        {"F4", 4}};

    for (size_t i = 0; type != NULL && i < sizeof types / sizeof *types; i++)
        if (type->length == strlen(types[i].name) &&
            memcmp(type->bytes, types[i].name, type->length) == 0)
            return types[i].bits;
    return 8;
}

/* Tensors come one after the other; the number of data bytes. */
static inline uint64_t safetensors_tile(struct item *header)
{
    uint64_t end = 0;

    for (struct item *pair = header->first; pair != NULL; pair = pair->next) {
        struct item *tensor = pair->first ? pair->first->next : NULL;
        struct item *places = json_value(tensor, "data_offsets");
        const struct item *shape = json_value(tensor, "shape");
        uint64_t bits = safetensors_bits(json_value(tensor, "dtype"));

        if (places == NULL || places->first == NULL ||
            places->first->next == NULL || shape == NULL)
            continue;
        for (const struct item *i = shape->first; i != NULL; i = i->next)
            bits *= i->kind == ITEM_ATOM ? (uint64_t)item_number(i) : 1;
        item_set_number(places->first, (int64_t)end);
        end += bits / 8;
        item_set_number(places->first->next, (int64_t)end);
    }
    return end;
}

static inline void safetensors_grammar_write(struct out *out,
                                             const struct item *top)
{
    const struct item *data = top->first ? top->first->next : NULL;
    uint64_t bytes = data == NULL ? 0 : data->length;
    const size_t at = out->at;
    uint64_t length;

    if (top->first == NULL) return;
    if (top->first->kind == ITEM_OBJECT && draw(4) != 0)
        bytes = safetensors_tile(top->first);
    put_integer(out, 0, 8);
    json_put(out, top->first);
    for (uint64_t pad = draw(9); pad > 0; pad--) put_byte(out, ' ');
    if (out->full) return;
    length = draw(16) == 0 ? (uint64_t)draw_number(0) : out->at - at - 8;
    put_integer(&(struct out){.bytes = out->bytes + at, .room = 8}, length, 8);
    if (safetensors_claims && (bytes == 8 || bytes > 64)) {
        put_integer(out, bytes, 8);
        return;
    }
    if (data != NULL)
        put(out, data->bytes, data->length < bytes ? data->length : bytes);
    for (uint64_t i = data ? data->length : 0; i < bytes && !out->full; i++)
        put_byte(out, 0);
}

static const struct grammar safetensors_grammar = {
    safetensors_grammar_read, safetensors_grammar_write,
    (const char *const[]){"dtype", "shape", "data_offsets", "__metadata__",
                          "F64", "F32", "F16", "BF16", "I64", "I32", "U8", "F4",
                          "F8_E4M3", "BOOL", "C64", "format", "pt", NULL}};

#endif
