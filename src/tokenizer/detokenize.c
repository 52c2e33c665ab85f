/* SPDX-License-Identifier: Apache-2.0 */
/* detokenize.c - from names of tokens back to text. */
#include "tokenizer/detokenize.h"

#include <string.h>
#include "tokenizer/component.h"
#include "tokenizer/regex.h"

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool decoder_byte(const char *name, size_t length, unsigned char *byte)
{
    int high, low;

    if (length != 6 || memcmp(name, "<0x", 3) != 0 || name[5] != '>')
        return false;
    high = hex_digit(name[3]);
    low = hex_digit(name[4]);
    if (high < 0 || low < 0) return false;
    *byte = (unsigned char)(high * 16 + low);
    return true;
}

static status read_metaspace(const struct component *in,
                             const struct json *json,
                             struct decoder *decoder, struct decode_step *step)
{
    const char *scheme;
    bool prefix;

    step->kind = DECODE_MARK;
    TRY(component_fields(in, json, "replacement prepend_scheme split "
                                   "add_prefix_space str_rep"));
    TRY(component_string(in, json, "replacement", &step->replace.literal,
                         &step->replace.literal_length));
    TRY(json_get_string_or(json, in->source, "prepend_scheme", "always",
                           &scheme));
    TRY(json_get_bool_or(json, in->source, "add_prefix_space", true, &prefix));
    step->replace.content = " ";
    step->replace.content_length = 1;
    decoder->mark = step->replace.literal;
    decoder->mark_length = step->replace.literal_length;
    decoder->drop_first = prefix && strcmp(scheme, "never") != 0;
    if (decoder->drop_first && decoder->count > 1)
        FAIL(ERR_FORMAT, "%s: %s Metaspace that drops a prefix must stand "
             "first", in->source, in->part);
    return OK;
}

static status read_strip(const struct component *in, const struct json *json,
                         struct decoder *decoder)
{
    const char *content;
    int64_t start, stop;

    TRY(component_fields(in, json, "content start stop"));
    TRY(json_get_string(json, in->source, "content", &content));
    TRY(json_get_integer_or(json, in->source, "start", 0, &start));
    TRY(json_get_integer_or(json, in->source, "stop", 0, &stop));
    if (!decoder->fused || decoder->strip != 0 || start < 0 || stop != 0 ||
        (unsigned char)content[0] >= 0x80 || strlen(content) != 1)
        FAIL(ERR_FORMAT, "%s: %s Strip is supported once, after Fuse, of one "
             "ASCII character at the start", in->source, in->part);
    decoder->strip = start;
    decoder->strip_byte = (unsigned char)content[0];
    return OK;
}

static status read_step(const struct component *in, const struct json *json,
                        struct decoder *decoder)
{
    struct decode_step *step = &decoder->steps[decoder->count];
    const char *type;

    TRY(json_get_string(json, in->source, "type", &type));
    if (strcmp(type, "Strip") == 0) return read_strip(in, json, decoder);
    if (strcmp(type, "Fuse") == 0) {
        decoder->fused = true;
        return component_fields(in, json, "");
    }
    if (strcmp(type, "ByteLevel") == 0) {
        decoder->byte_level = true;
        return component_fields(in, json,
                                "add_prefix_space trim_offsets use_regex");
    }
    if (decoder->fused || decoder->count == DECODE_STEPS_MAX)
        FAIL(ERR_FORMAT, "%s: %s %s: after Fuse only Strip is supported, and "
             "before it %d steps", in->source, in->part, type,
             DECODE_STEPS_MAX);
    decoder->count++; /* now its regex is freed whatever happens */
    if (strcmp(type, "Replace") == 0) {
        step->kind = DECODE_REPLACE;
        return replacement_read(&step->replace, in, json);
    }
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(in, json, decoder, step);
    if (strcmp(type, "ByteFallback") == 0) {
        step->kind = DECODE_FALLBACK;
        return component_fields(in, json, "");
    }
    FAIL(ERR_FORMAT, "%s: %s %s is not supported; ByteLevel, Replace, "
         "ByteFallback, Fuse, Strip, Metaspace and a Sequence of them are",
         in->source, in->part, type);
}

status decoder_read(struct decoder *decoder, struct arena *arena,
                    const struct json *json, const char *source)
{
    const struct component in = {source, "decoder", arena};
    const struct json *list;
    const char *type;

    *decoder = (struct decoder){0};
    if (json == NULL || json->kind == JSON_NULL) {
        decoder->spaced = true;
        return OK;
    }
    TRY(component_type(&in, json, "decoders", &type, &list));
    if (list == NULL) TRY(read_step(&in, json, decoder));
    for (int i = 0; list != NULL && i < list->count; i++)
        TRY(read_step(&in, &list->items[i], decoder));
    return OK;
}

static status replace(const struct replacement *step, const struct text *text,
                      struct text *out)
{
    struct span match = {0, 0};
    size_t done = 0;
    bool found;

    for (;;) {
        TRY(replacement_find(step, text->bytes,
                             (struct span){done, text->length}, &found,
                             &match));
        if (!found || match.start == match.stop) break;
        TRY(text_append(out, text->bytes + done, match.start - done));
        TRY(text_append(out, step->content, step->content_length));
        done = match.stop;
    }
    return text_append(out, text->bytes + done, text->length - done);
}

status decoder_token(const struct decoder *decoder, const char *name,
                     size_t length, struct text *out)
{
    struct text now = {0}, next = {0}, swap;
    status result;

    TRY_GOTO(done, result, text_append(&now, name, length));
    for (int i = 0; i < decoder->count; i++) {
        const struct decode_step *step = &decoder->steps[i];
        unsigned char byte;

        next.length = 0;
        if (step->kind == DECODE_FALLBACK) {
            if (!decoder_byte(now.bytes, now.length, &byte)) continue;
            TRY_GOTO(done, result, text_append(out, &byte, 1));
            goto done; /* no other step may touch a byte */
        }
        TRY_GOTO(done, result, replace(&step->replace, &now, &next));
        swap = now;
        now = next;
        next = swap;
    }
    TRY_GOTO(done, result, text_append(out, now.bytes, now.length));
done:
    text_free(&now);
    text_free(&next);
    return result;
}

void decoder_free(struct decoder *decoder)
{
    for (int i = 0; i < decoder->count; i++)
        regex_free(decoder->steps[i].replace.regex);
    *decoder = (struct decoder){0};
}
