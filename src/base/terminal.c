/* SPDX-License-Identifier: Apache-2.0 */
/* terminal.c - a filter of terminal output: text from files cannot control the
 * terminal. */
#include "base/terminal.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include "base/text.h"

enum { AT_ONCE = 4096, SEQUENCE = 4 /* bytes of UTF-8, at most */ };

/* ---- one text ---- */

static bool is_control(uint32_t code, bool lines)
{
    if (lines && (code == '\n' || code == '\t')) return false;
    return code < 0x20 || (code >= 0x7f && code < 0xa0) ||
           (code >= 0x202a && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

/* Bytes of the well-formed sequence at bytes[0]; 0: there is none. */
static size_t sequence_length(const char *bytes, size_t length)
{
    const unsigned char first = (unsigned char)bytes[0];
    const size_t wanted = first < 0x80 ? 1 : first < 0xe0 ? 2
                          : first < 0xf0 ? 3 : 4;
    size_t bad;

    if (wanted > length || text_utf8_invalid(bytes, wanted, &bad)) return 0;
    return wanted;
}

size_t terminal_escape(char *out, const char *bytes, size_t length,
                       bool lines)
{
    char hex[TERMINAL_GROWTH + 1];
    size_t used = 0;

    for (size_t at = 0; at < length;) {
        const size_t taken = sequence_length(bytes + at, length - at);
        uint32_t code = 0;

        if (taken > 0) text_utf8_decode(bytes + at, taken, &code);
        if (taken > 0 && !is_control(code, lines)) {
            memcpy(out + used, bytes + at, taken);
            used += taken;
        } else {
            if (taken == 0)
                snprintf(hex, sizeof hex, "\\x%02x",
                         (unsigned char)bytes[at]);
            else
                snprintf(hex, sizeof hex, "\\u%04x",
                         (unsigned)(code & 0xffff));
            memcpy(out + used, hex, strlen(hex));
            used += strlen(hex);
        }
        at += taken > 0 ? taken : 1;
    }
    return used;
}

void terminal_escape_line(char *line, size_t size)
{
    char shown[TERMINAL_GROWTH * AT_ONCE];
    size_t length = strlen(line), used;

    if (length > AT_ONCE) length = AT_ONCE;
    used = terminal_escape(shown, line, length, false);
    if (used < size) {
        memcpy(line, shown, used);
        line[used] = '\0';
    } else if (size >= SEQUENCE) {
        memcpy(line, shown, size - SEQUENCE);
        memcpy(line + size - SEQUENCE, "...", SEQUENCE);
    }
}

/* ---- files ---- */

/* A write by printf may end within a character; the next write continues it. */
struct guarded {
    FILE *raw;    /* the file before */
    FILE *shown;  /* the one in its place; NULL: none */
    size_t held;
    char begun[SEQUENCE];
};

static struct guarded guards[2]; /* stdout, stderr */

FILE *terminal_raw(FILE *file)
{
    for (int i = 0; i < 2; i++)
        if (guards[i].shown == file && file != NULL) return guards[i].raw;
    return file;
}

#ifdef __GLIBC__
/* Bytes at the end that may be the beginning of a character. */
static size_t unfinished(const char *bytes, size_t length)
{
    for (size_t back = 1; back < SEQUENCE && back <= length; back++) {
        const unsigned char byte = (unsigned char)bytes[length - back];

        if (byte < 0x80) return 0;
        if (byte < 0xc0) continue;
        return (byte >= 0xf0 ? 4u : byte >= 0xe0 ? 3u : 2u) > back ? back : 0;
    }
    return 0;
}

/* Colours of our own go to the raw file; both must keep their order. */
static bool put(const struct guarded *guard, const char *bytes, size_t length)
{
    char shown[TERMINAL_GROWTH * (AT_ONCE + SEQUENCE)];
    const size_t used = terminal_escape(shown, bytes, length, true);

    return fwrite(shown, 1, used, guard->raw) == used &&
           fflush(guard->raw) == 0;
}

static ssize_t write_shown(void *cookie, const char *bytes, size_t length)
{
    struct guarded *guard = cookie;
    char piece[AT_ONCE + SEQUENCE];

    for (size_t at = 0; at < length;) {
        const size_t taken = length - at < AT_ONCE ? length - at : AT_ONCE;
        size_t have = guard->held + taken, left;

        memcpy(piece, guard->begun, guard->held);
        memcpy(piece + guard->held, bytes + at, taken);
        left = unfinished(piece, have);
        have -= left;
        if (have > 0 && !put(guard, piece, have)) return 0;
        memcpy(guard->begun, piece + have, left);
        guard->held = left;
        at += taken;
    }
    return (ssize_t)length;
}

static void guard_file(struct guarded *guard, FILE **file, int descriptor)
{
    const cookie_io_functions_t functions = {.write = write_shown};

    guard->raw = *file;
    guard->shown = fopencookie(guard, "w", functions);
    if (guard->shown == NULL) return;
    setvbuf(guard->shown, NULL,
            descriptor == STDERR_FILENO ? _IONBF
            : isatty(descriptor)        ? _IOLBF : _IOFBF, BUFSIZ);
    *file = guard->shown;
}

void terminal_guard(void)
{
    guard_file(&guards[0], &stdout, STDOUT_FILENO);
    guard_file(&guards[1], &stderr, STDERR_FILENO);
}
#else
void terminal_guard(void)
{
}
#endif
