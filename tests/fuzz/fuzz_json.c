/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_json.c - can JSON from a stranger hurt us? What is read is also looked
 * up, written and read again: the second text must equal the first. */
#include <string.h>
#include "base/json.h"
#include "tests/fuzz/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Writes a value without recursion: a stack as deep as the reader allows. */
static void write_value(struct json_writer *w, const struct json *value)
{
    struct {
        const struct json *value;
        int64_t at;
    } stack[JSON_DEPTH_MAX + 1];
    int depth = 0;

    for (;;) {
        switch (value->kind) {
        case JSON_NULL: json_write_null(w); break;
        case JSON_FALSE: json_write_bool(w, false); break;
        case JSON_TRUE: json_write_bool(w, true); break;
        case JSON_INTEGER: json_write_integer(w, value->integer); break;
        case JSON_REAL: json_write_real(w, value->real); break;
        case JSON_STRING:
            json_write_string_n(w, value->string,
                                (size_t)value->string_length);
            break;
        case JSON_ARRAY:
        case JSON_OBJECT:
            CHECK(depth <= JSON_DEPTH_MAX);
            stack[depth].value = value;
            stack[depth++].at = 0;
            if (value->kind == JSON_ARRAY)
                json_write_array(w);
            else
                json_write_object(w);
            break;
        }
        /* Up past what is finished, then on to the next value. */
        while (depth > 0 &&
               stack[depth - 1].at == stack[depth - 1].value->count) {
            if (stack[--depth].value->kind == JSON_ARRAY)
                json_write_array_end(w);
            else
                json_write_object_end(w);
        }
        if (depth == 0) return;
        const struct json *in = stack[depth - 1].value;
        const int64_t at = stack[depth - 1].at++;

        if (in->kind == JSON_OBJECT) {
            const struct json *key = &in->items[2 * at];

            /* A key with U+0000 cannot be written or asked for. */
            if (strlen(key->string) == (size_t)key->string_length)
                CHECK(json_get(in, key->string) == &in->items[2 * at + 1]);
            json_write_key(w, key->string);
            value = &in->items[2 * at + 1];
        } else {
            value = &in->items[at];
        }
    }
}

/* Writes `value` and reads that; *again may be refused when a key was cut at
 * U+0000 and now stands twice. */
static status round_trip(const struct json *value, struct arena *arena,
                         struct json_writer *w, const struct json **again)
{
    json_write_begin(w, 0);
    write_value(w, value);
    TRY(json_write_end(w));
    TRY(json_read(again, arena, w->out.bytes, w->out.length, "again"));
    return OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct json *root, *again;
    struct json_writer first = {0}, second = {0};
    struct arena arena;

    arena_init(&arena, "fuzz", (size_t)1 << 30);
    if (json_read(&root, &arena, (const char *)data, size, "fuzz") == OK &&
        round_trip(root, &arena, &first, &again) == OK) {
        CHECK(again->kind == root->kind || root->kind == JSON_REAL);
        CHECK(round_trip(again, &arena, &second, &root) == OK);
        CHECK(second.out.length == first.out.length &&
              memcmp(second.out.bytes, first.out.bytes, first.out.length) ==
                  0);
    }
    json_writer_free(&first);
    json_writer_free(&second);
    arena_free(&arena);
    CHECK(arena_bytes_out() == 0);
    return 0;
}

/* ---- the mutator ---- */

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    return mutate_from(&(const struct grammar){json_grammar_read,
                                               json_grammar_write, NULL},
                       data, size, room, 0);
}
