/* SPDX-License-Identifier: Apache-2.0 */
/* chat.c - conversations as text with parts that are learned and parts that
 * are not. */
#include "corpus/chat.h"

#include <string.h>

#include "corpus/task_clean.h"

/* Sources: the chat templates that the families' tokenizer_config.json give,
 * for messages without tools. */
static const struct chat_template templates[] = {
    {"chatml", "", "<|im_start|>", "\n", "<|im_end|>", "\n", "assistant",
     false, true, {"<|im_start|>", "<|im_end|>"}},
    {"llama3", "<|begin_of_text|>", "<|start_header_id|>",
     "<|end_header_id|>\n\n", "<|eot_id|>", "", "assistant", true, true,
     {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
      "<|eot_id|>"}},
    {"gemma", "<bos>", "<start_of_turn>", "\n", "<end_of_turn>", "\n", "model",
     true, false, {"<bos>", "<start_of_turn>", "<end_of_turn>"}},
    {"phi3", "", "<|", "|>\n", "<|end|>", "\n", "assistant", false, true,
     {"<|user|>", "<|assistant|>", "<|end|>"}},
    {"zephyr", "", "<|", "|>\n", "</s>", "\n", "assistant", false, true,
     {"</s>"}},
    /* For tokenizers without tokens for turns. */
    {"plain", "", "", ": ", "\n", "", "assistant", true, true, {NULL}},
};
enum { TEMPLATES = sizeof templates / sizeof *templates, ROLE_BYTES = 32 };

status chat_find(const char *name, const struct chat_template **out)
{
    char names[256] = "";

    for (int i = 0; i < TEMPLATES; i++) {
        if (strcmp(templates[i].name, name) == 0) {
            *out = &templates[i];
            return OK;
        }
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                 i > 0 ? ", " : "", templates[i].name);
    }
    FAIL(ERR_CONFIG, "data.chat: there is no template '%s'; there are %s",
         name, names);
}

status chat_check(const struct chat_template *chat,
                  const struct tokenizer *tokenizer)
{
    for (int i = 0; i < 4 && chat->markers[i] != NULL; i++) {
        int32_t id;

        if (!tokenizer_find(tokenizer, chat->markers[i], &id))
            FAIL(ERR_CONFIG, "data.chat: %s has no token %s, which the "
                 "template %s is written with", tokenizer->source,
                 chat->markers[i], chat->name);
    }
    return OK;
}

static status append(struct chat_text *out, const char *bytes, size_t length,
                     bool learned)
{
    struct corpus_segment *last =
        out->segment_count > 0 ? &out->segments[out->segment_count - 1] : NULL;

    if (length == 0) return OK;
    TRY(text_append(&out->text, bytes, length));
    if (last != NULL && last->learned == learned && !learned) {
        last->length += length;
        return OK;
    }
    if (out->segment_count == out->segment_room) {
        const int room = 2 * out->segment_room + 16;
        void *grown = out->segments;

        TRY(memory_grow(&grown, (size_t)room, sizeof *out->segments));
        out->segments = grown;
        out->segment_room = room;
    }
    out->segments[out->segment_count++] =
        (struct corpus_segment){length, learned};
    return OK;
}

static status append_string(struct chat_text *out, const char *string)
{
    return append(out, string, strlen(string), false);
}

static const struct json *either(const struct json *object, const char *one,
                                 const char *other)
{
    const struct json *value = json_get(object, one);

    return value != NULL ? value : json_get(object, other);
}

/* The role must be known, so that a misspelt role leaves nothing unlearned. */
static status check_role(const char *name, const char *source)
{
    static const char *const roles[] = {
        "system", "developer", "user", "human", "assistant", "gpt", "model",
        "tool", "function", "environment", "ipython"};
    enum { ROLES = sizeof roles / sizeof *roles };
    const char *near = text_nearest(name, roles, ROLES);

    for (int i = 0; i < ROLES; i++)
        if (strcmp(roles[i], name) == 0) return OK;
    FAIL(ERR_FORMAT, "%s: the role '%s' is not system, user, assistant or tool"
                     "%s%s", source, name, near ? "; nearest: " : "",
         near ? near : "");
}

static status role_of(const struct chat_template *chat,
                      const struct json *message, const char *source,
                      char role[ROLE_BYTES], bool *answer)
{
    const struct json *value = either(message, "role", "from");
    const char *name;

    if (value == NULL || value->kind != JSON_STRING ||
        value->string_length == 0 || value->string_length >= ROLE_BYTES)
        FAIL(ERR_FORMAT, "%s: a message has no \"role\" that is a short text",
             source);
    name = value->string;
    TRY(check_role(name, source));
    if (strcmp(name, "human") == 0) name = "user";
    if (strcmp(name, "gpt") == 0 || strcmp(name, "model") == 0)
        name = "assistant";
    if (strcmp(name, "system") == 0 && !chat->system)
        FAIL(ERR_FORMAT, "%s: a system message; the template %s has no place "
             "for one", source, chat->name);
    *answer = strcmp(name, "assistant") == 0;
    snprintf(role, ROLE_BYTES, "%s", *answer ? chat->assistant : name);
    return OK;
}

static status content_of(const struct chat_template *chat,
                         const struct json *message, const char *source,
                         const char **text, size_t *length)
{
    const struct json *value = either(message, "content", "value");

    if (value == NULL || value->kind != JSON_STRING)
        FAIL(ERR_FORMAT, "%s: a message has no \"content\" that is a text",
             source);
    *text = value->string;
    *length = (size_t)value->string_length;
    if (chat->trimmed) task_strip(text, length);
    return OK;
}

/* Content and stop are one part: they are learned together. */
static status append_content(struct chat_text *out,
                             const struct chat_template *chat,
                             const char *text, size_t length, bool learned)
{
    const size_t stop = strlen(chat->stop);
    struct corpus_segment *last;

    if (length == 0) return append(out, chat->stop, stop, learned);
    TRY(append(out, text, length, learned));
    TRY(text_append(&out->text, chat->stop, stop));
    last = &out->segments[out->segment_count - 1];
    last->length += stop;
    return OK;
}

static status render_message(struct chat_text *out,
                             const struct chat_template *chat,
                             const struct json *message, const char *source)
{
    char role[ROLE_BYTES];
    const char *text;
    size_t length;
    double weight;
    bool answer;

    TRY(role_of(chat, message, source, role, &answer));
    TRY(content_of(chat, message, source, &text, &length));
    TRY(json_get_real_or(message, source, "weight", 1, &weight));
    TRY(append_string(out, chat->before_role));
    TRY(append_string(out, role));
    TRY(append_string(out, chat->after_role));
    TRY(append_content(out, chat, text, length, answer && weight != 0));
    return append_string(out, chat->after_stop);
}

static void begin(struct chat_text *out)
{
    out->text.length = 0;
    out->segment_count = 0;
}

status chat_render(struct chat_text *out, const struct chat_template *chat,
                   const struct json *messages, const char *source)
{
    begin(out);
    if (messages->kind != JSON_ARRAY || messages->count == 0)
        FAIL(ERR_FORMAT, "%s: the conversation is not a list of messages",
             source);
    out->headed = chat->markers[0] == NULL; /* others say how they begin */
    TRY(append_string(out, chat->begin));
    for (int32_t i = 0; i < messages->count; i++)
        TRY(render_message(out, chat, &messages->items[i], source));
    return OK;
}

status chat_pair(struct chat_text *out, const struct json *prompt,
                 const struct json *completion)
{
    begin(out);
    out->headed = true;
    TRY(append(out, prompt->string, (size_t)prompt->string_length, false));
    return append(out, completion->string, (size_t)completion->string_length,
                  true);
}

void chat_text_free(struct chat_text *out)
{
    text_free(&out->text);
    memory_free(out->segments);
    *out = (struct chat_text){0};
}
