/* SPDX-License-Identifier: Apache-2.0 */
/* normalize.c - the Unicode normal forms, through utf8proc. */
#include "data/normalize.h"

#include <string.h>
#include <utf8proc.h>
#include "base/arena.h"

static status step_read(struct normalizer *normalizer, const char *type,
                        const char *source)
{
    static const char *const names[] = {"NFC", "NFD", "NFKC", "NFKD"};

    for (int i = 0; i < 4; i++) {
        if (strcmp(type, names[i]) != 0) continue;
        if (normalizer->count == NORMALIZE_STEPS_MAX)
            FAIL(ERR_FORMAT, "%s: normalizer: more than %d steps", source,
                 NORMALIZE_STEPS_MAX);
        normalizer->steps[normalizer->count++] = (enum normal_form)i;
        return OK;
    }
    FAIL(ERR_FORMAT,
         "%s: normalizer %s is not supported; NFC, NFD, NFKC, NFKD and a "
         "Sequence of them are", source, type);
}

status normalizer_read(struct normalizer *normalizer, const struct json *json,
                       const char *source)
{
    const struct json *list;
    const char *type;

    *normalizer = (struct normalizer){0};
    if (json == NULL || json->kind == JSON_NULL) return OK;
    TRY(json_get_string(json, source, "type", &type));
    if (strcmp(type, "Sequence") != 0) {
        TRY(step_read(normalizer, type, source));
        return OK;
    }
    list = json_get(json, "normalizers");
    if (list == NULL || list->kind != JSON_ARRAY)
        FAIL(ERR_FORMAT, "%s: normalizer Sequence has no list `normalizers`",
             source);
    for (int i = 0; i < list->count; i++) {
        TRY(json_get_string(&list->items[i], source, "type", &type));
        TRY(step_read(normalizer, type, source));
    }
    return OK;
}

static bool is_ascii(const char *text, size_t length)
{
    unsigned char seen = 0;

    for (size_t i = 0; i < length; i++) seen |= (unsigned char)text[i];
    return seen < 0x80;
}

/* utf8proc works on code points, 4 bytes each, and encodes them in place. */
static status step_run(enum normal_form form, const char *text, size_t length,
                       struct text *out)
{
    static const utf8proc_option_t options[] = {
        [FORM_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [FORM_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [FORM_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [FORM_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    const utf8proc_uint8_t *bytes = (const utf8proc_uint8_t *)text;
    utf8proc_ssize_t count, used;
    void *codes = NULL;
    status result = OK;

    /* Compatibility forms grow a code point to 18 at most. */
    count = utf8proc_decompose(bytes, (utf8proc_ssize_t)length, NULL, 0,
                               options[form]);
    if (count < 0)
        FAIL(ERR_FORMAT, "normalizing %zu bytes: %s", length,
             utf8proc_errmsg(count));
    TRY(memory_take((size_t)count + 1, sizeof(utf8proc_int32_t), &codes));
    used = utf8proc_decompose(bytes, (utf8proc_ssize_t)length, codes, count,
                              options[form]);
    if (used >= 0) used = utf8proc_reencode(codes, used, options[form]);
    if (used < 0)
        FAIL_GOTO(done, result, ERR_FORMAT, "normalizing %zu bytes: %s",
                  length, utf8proc_errmsg(used));
    TRY_GOTO(done, result, text_append(out, codes, (size_t)used));
done:
    memory_free(codes);
    return result;
}

status normalizer_run(const struct normalizer *normalizer, const char *text,
                      size_t length, struct text *work, const char **result,
                      size_t *result_length)
{
    *result = text;
    *result_length = length;
    if (normalizer->count == 0 || is_ascii(text, length)) return OK;
    for (int i = 0; i < normalizer->count; i++) {
        struct text next = {0};
        status code = step_run(normalizer->steps[i], *result, *result_length,
                               &next);

        text_free(work);
        *work = next;
        TRY(code);
        *result = work->bytes;
        *result_length = work->length;
    }
    return OK;
}
