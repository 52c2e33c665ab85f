/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_write.c - a learned byte-level BPE as a tokenizer.json. */
#include <string.h>
#include "base/json.h"
#include "tokenizer/bpe_merge.h"
#include "tokenizer/byte_level.h"

/* Names of all tokens, in the byte alphabet. */
struct names {
    struct text bytes; /* owned */
    size_t *starts;    /* owned [tokens + 1] */
    int64_t count;
};

static status name_add(struct names *names, const char *name, size_t length)
{
    TRY(text_append(&names->bytes, name, length));
    names->starts[++names->count] = names->bytes.length;
    return OK;
}

static status name_merge(struct names *names, const struct bpe_merge *merge)
{
    struct text joined = {0};
    status result = OK;

    if (merge->id < names->count) return OK; /* spelled before */
    for (int i = 0; i < 2; i++) {
        const int32_t half = i == 0 ? merge->left : merge->right;

        TRY_GOTO(done, result,
                 text_append(&joined,
                             names->bytes.bytes + names->starts[half],
                             names->starts[half + 1] - names->starts[half]));
    }
    TRY_GOTO(done, result, name_add(names, joined.bytes, joined.length));
done:
    text_free(&joined);
    return result;
}

static status name_all(struct names *names, const char *special,
                       const struct bpe_merges *merges)
{
    struct byte_level alphabet;
    void *memory;

    TRY(memory_take((size_t)(BPE_FIRST_MERGE + merges->tokens + 1),
                    sizeof *names->starts, &memory));
    names->starts = memory;
    TRY(name_add(names, special, strlen(special)));
    byte_level_init(&alphabet);
    for (int i = 0; i < BYTE_LEVEL_LIMIT; i++) {
        const unsigned char byte = (unsigned char)alphabet.byte[i];
        char written[2];

        if (alphabet.byte[i] < 0) continue;
        TRY(name_add(names, written,
                     byte_level_write(&alphabet, &byte, 1, written)));
    }
    for (int64_t i = 0; i < merges->count; i++)
        TRY(name_merge(names, &merges->items[i]));
    return OK;
}

static void write_name(struct json_writer *writer, const struct names *names,
                       int32_t id)
{
    json_write_string_n(writer, names->bytes.bytes + names->starts[id],
                        names->starts[id + 1] - names->starts[id]);
}

static void write_null(struct json_writer *writer, const char *key)
{
    json_write_key(writer, key);
    json_write_null(writer);
}

static void write_bool(struct json_writer *writer, const char *key, bool value)
{
    json_write_key(writer, key);
    json_write_bool(writer, value);
}

static void write_text(struct json_writer *writer, const char *key,
                       const char *value)
{
    json_write_key(writer, key);
    json_write_string(writer, value);
}

static void write_byte_level(struct json_writer *writer, const char *key)
{
    json_write_key(writer, key);
    json_write_object(writer);
    write_text(writer, "type", "ByteLevel");
    write_bool(writer, "add_prefix_space", false);
    write_bool(writer, "trim_offsets", true);
    write_bool(writer, "use_regex", true);
    json_write_object_end(writer);
}

static void write_added(struct json_writer *writer, const char *special)
{
    json_write_key(writer, "added_tokens");
    json_write_array(writer);
    json_write_object(writer);
    json_write_key(writer, "id");
    json_write_integer(writer, 0);
    write_text(writer, "content", special);
    write_bool(writer, "single_word", false);
    write_bool(writer, "lstrip", false);
    write_bool(writer, "rstrip", false);
    write_bool(writer, "normalized", false);
    write_bool(writer, "special", true);
    json_write_object_end(writer);
    json_write_array_end(writer);
}

static status write_vocab(struct json_writer *writer,
                          const struct names *names)
{
    struct text key = {0};
    status result = OK;

    json_write_key(writer, "vocab");
    json_write_object(writer);
    for (int64_t i = 0; i < names->count; i++) {
        key.length = 0;
        TRY_GOTO(done, result,
                 text_append(&key, names->bytes.bytes + names->starts[i],
                             names->starts[i + 1] - names->starts[i]));
        json_write_key(writer, key.bytes);
        json_write_integer(writer, i);
    }
    json_write_object_end(writer);
done:
    text_free(&key);
    return result;
}

static status write_model(struct json_writer *writer,
                          const struct names *names,
                          const struct bpe_merges *merges)
{
    json_write_key(writer, "model");
    json_write_object(writer);
    write_text(writer, "type", "BPE");
    write_null(writer, "dropout");
    write_null(writer, "unk_token");
    write_null(writer, "continuing_subword_prefix");
    write_null(writer, "end_of_word_suffix");
    write_bool(writer, "fuse_unk", false);
    write_bool(writer, "byte_fallback", false);
    write_bool(writer, "ignore_merges", false);
    TRY(write_vocab(writer, names));
    json_write_key(writer, "merges");
    json_write_array(writer);
    for (int64_t i = 0; i < merges->count; i++) {
        json_write_array(writer);
        write_name(writer, names, merges->items[i].left);
        write_name(writer, names, merges->items[i].right);
        json_write_array_end(writer);
    }
    json_write_array_end(writer);
    json_write_object_end(writer);
    return OK;
}

status tokenizer_write(struct text *out, const char *special,
                       const struct bpe_merges *merges)
{
    struct json_writer writer = {0};
    struct names names = {0};
    status result;

    json_write_begin(&writer, 0);
    TRY_GOTO(done, result, name_all(&names, special, merges));
    json_write_object(&writer);
    write_text(&writer, "version", "1.0");
    write_null(&writer, "truncation");
    write_null(&writer, "padding");
    write_added(&writer, special);
    write_null(&writer, "normalizer");
    write_byte_level(&writer, "pre_tokenizer");
    write_byte_level(&writer, "post_processor");
    write_byte_level(&writer, "decoder");
    TRY_GOTO(done, result, write_model(&writer, &names, merges));
    json_write_object_end(&writer);
    TRY_GOTO(done, result, json_write_end(&writer));
    TRY_GOTO(done, result,
             text_append(out, writer.out.bytes, writer.out.length));
done:
    json_writer_free(&writer);
    memory_free(names.starts);
    text_free(&names.bytes);
    return result;
}
