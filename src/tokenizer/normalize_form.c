/* SPDX-License-Identifier: Apache-2.0 */
/* normalize_form.c - the Unicode normal forms, through utf8proc. */
#include <utf8proc.h>
#include "base/arena.h"
#include "tokenizer/normalize.h"

/* The `tokenizers` library normalizes by Unicode 9.0. These code points are
 * newer, and a normal form would change or reorder them: to it they are
 * characters that nothing happens to. tests/golden/tokenizer_golden.py --check
 * compares all code points. */
static const struct { uint32_t first, last; } inert[] = {
    {0x7FD, 0x7FD}, {0x897, 0x89F}, {0x8CA, 0x8D3}, {0x9FE, 0x9FE},
    {0xC3C, 0xC3C}, {0xD3B, 0xD3C}, {0xEBA, 0xEBA}, {0x1715, 0x1715},
    {0x1ABF, 0x1ACE}, {0x1DF6, 0x1DFA}, {0x32FF, 0x32FF}, {0xA7F2, 0xA7F4},
    {0xA82C, 0xA82C}, {0xAB69, 0xAB69}, {0x105C9, 0x105C9}, {0x105D2, 0x105D2},
    {0x105DA, 0x105DA}, {0x105E4, 0x105E4}, {0x10781, 0x10785},
    {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x10D24, 0x10D27},
    {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF},
    {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070},
    {0x1133B, 0x1133B}, {0x11382, 0x11385}, {0x1138B, 0x1138B},
    {0x1138E, 0x1138E}, {0x11390, 0x11391}, {0x113C2, 0x113C2},
    {0x113C5, 0x113C5}, {0x113C7, 0x113C8}, {0x113CE, 0x113D0},
    {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11935, 0x11935},
    {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943},
    {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
    {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x1611E, 0x1611E},
    {0x16121, 0x16129}, {0x1612F, 0x1612F}, {0x16D63, 0x16D63},
    {0x16D67, 0x16D6A}, {0x16FF0, 0x16FF1}, {0x1CCD6, 0x1CCF9},
    {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136},
    {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
    {0x1E5EE, 0x1E5EF}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
};

bool normalize_inert(uint32_t code)
{
    size_t low = 0, high = sizeof inert / sizeof *inert;

    while (low < high) { /* the first range that does not end before it */
        const size_t middle = (low + high) / 2;

        if (inert[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < sizeof inert / sizeof *inert && inert[low].first <= code;
}

/* utf8proc works on code points, 4 bytes each, and encodes them in place. */
static status form_run(enum normal_form form, const char *text, size_t length,
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

/* Text between inert characters is normalized; inert characters are copied. */
status normalize_form(enum normal_form form, const char *text, size_t length,
                       struct text *out)
{
    size_t from = 0, at = 0;

    TRY(text_append(out, "", 0));
    while (at < length) {
        uint32_t code;
        const size_t step =
            (size_t)text_utf8_decode(text + at, length - at, &code);

        if (normalize_inert(code)) {
            if (at > from) TRY(form_run(form, text + from, at - from, out));
            TRY(text_append(out, text + at, step));
            from = at + step;
        }
        at += step;
    }
    if (at > from) TRY(form_run(form, text + from, at - from, out));
    return OK;
}
