/* SPDX-License-Identifier: Apache-2.0 */
/* far_files.c - files of a run that another machine has. */
#include "control/far_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "base/clock.h"
#include "control/place.h"

enum { FILE_BYTES_MOST = 1 << 20, LIST_BYTES_MOST = 1 << 24, ASK_MS = 10000,
       ANSWER_MS = 30000, IDLE_MS = 600000, WHY_BYTES = 240 };

enum file_what { FILE_LIST = 1, FILE_READ };

struct file_ask {
    int64_t offset;
    int32_t what;
    uint32_t length;
    char path[STORE_PATH_BYTES];
};

struct file_answer {
    int32_t result;       /* status */
    uint32_t length, crc; /* of the bytes that follow */
    char why[WHY_BYTES];
};

/* Waits for a message of that kind and size. */
static status await(struct wire *wire, uint32_t kind, size_t size, void *out,
                    int64_t limit_ms)
{
    const int64_t end = clock_ns() + limit_ms * 1000000;
    const struct wire_head *head = NULL;
    const void *bytes;

    for (;;) {
        struct pollfd one = {.fd = wire->descriptor, .events = POLLIN};

        TRY(wire_get(wire, &head, &bytes));
        if (head != NULL) break;
        if (clock_ns() > end)
            FAIL(ERR_PEER, "no answer for %lld s", (long long)limit_ms / 1000);
        poll(&one, 1, 200);
    }
    if (head->kind != kind || head->bytes != size)
        FAIL(ERR_PEER, "another message than expected");
    memcpy(out, bytes, size);
    return OK;
}

/* ---- the agent's side ---- */

static status answer(struct wire *wire, status result, const void *bytes,
                     size_t length)
{
    struct file_answer said = {.result = (int32_t)result,
                               .length = (uint32_t)length};

    if (result != OK) {
        snprintf(said.why, sizeof said.why, "%s", status_message());
        status_clear();
        said.length = 0;
    }
    said.crc = crc32c(0, bytes, said.length);
    TRY(wire_put(wire, WIRE_FILE_ANSWER, &said, sizeof said));
    return wire_put_bulk(wire, bytes, said.length);
}

static status answer_list(struct wire *wire, const struct stores *stores)
{
    struct text text = {0};
    status result = stores_list(stores, &text);

    if (result == OK && text.length > LIST_BYTES_MOST)
        result = status_fail(ERR_FORMAT, __FILE__, __LINE__,
                             "too many steps to list");
    result = answer(wire, result, text.bytes, text.length);
    text_free(&text);
    return result;
}

static status answer_one(struct wire *wire, const struct stores *stores,
                         void *buffer)
{
    struct file_ask ask;
    size_t got = 0;

    TRY(await(wire, WIRE_FILE, sizeof ask, &ask, IDLE_MS));
    ask.path[sizeof ask.path - 1] = '\0';
    if (ask.what == FILE_LIST) return answer_list(wire, stores);
    if (ask.what != FILE_READ || ask.length > FILE_BYTES_MOST ||
        ask.offset < 0)
        FAIL(ERR_PEER, "a question that makes no sense");
    const status result = stores_read(stores, ask.path, ask.offset, buffer,
                                      ask.length, &got);

    return answer(wire, result, buffer, got);
}

void far_files_serve(struct wire *wire, const struct stores *stores)
{
    void *buffer = NULL;
    status result = memory_take(FILE_BYTES_MOST, 1, &buffer);

    while (result == OK) result = answer_one(wire, stores, buffer);
    status_clear();
    memory_free(buffer);
}

/* ---- the rank's side ---- */

void far_files_init(struct far_files *files, const char *name,
                    const char *address, const struct token *token)
{
    *files = (struct far_files){.token = *token, .wire.descriptor = -1};
    snprintf(files->name, sizeof files->name, "%s", name);
    snprintf(files->address, sizeof files->address, "%s", address);
    pthread_mutex_init(&files->lock, NULL);
}

void far_files_close(struct far_files *files)
{
    wire_close(&files->wire);
    pthread_mutex_destroy(&files->lock);
}

static status open_wire(struct far_files *files)
{
    const struct visitor self = {.purpose = DOOR_FILES};
    int descriptor;

    if (files->wire.descriptor >= 0) return OK;
    TRY(door_knock(&descriptor, files->address, &self, &files->token, ASK_MS,
                   NULL));
    return wire_open(&files->wire, descriptor, &files->token, false);
}

static status take_bytes(struct far_files *files,
                         const struct file_answer *said, void *bytes,
                         size_t length)
{
    if (said->length > length) FAIL(ERR_PEER, "more bytes than asked for");
    TRY(wire_get_bulk(&files->wire, bytes, said->length));
    if (crc32c(0, bytes, said->length) == said->crc) return OK;
    FAIL(ERR_PEER, "bytes were damaged on their way");
}

/* Questions and the head of their answers. */
static status exchange(struct far_files *files, const struct file_ask *ask,
                       struct file_answer *said)
{
    TRY(open_wire(files));
    TRY(wire_put(&files->wire, WIRE_FILE, ask, sizeof *ask));
    TRY(await(&files->wire, WIRE_FILE_ANSWER, sizeof *said, said, ANSWER_MS));
    said->why[sizeof said->why - 1] = '\0';
    return OK;
}

/* Fails as it failed there, or because there is no answer. */
static status fail(struct far_files *files, const char *what, status result,
                   const struct file_answer *said)
{
    char why[WHY_BYTES];

    if (result == OK) {
        const bool known = said->result == ERR_MISSING ||
                           said->result == ERR_FORMAT ||
                           said->result == ERR_IO;

        FAIL(known ? (status)said->result : ERR_PEER, "node %s: %s",
             files->name, said->why);
    }
    snprintf(why, sizeof why, "%s", status_message());
    status_clear();
    wire_close(&files->wire);
    FAIL(ERR_PEER, "node %s (%s) does not give %s: %s", files->name,
         files->address, what, why);
}

status far_files_list(void *argument, struct text *out)
{
    struct far_files *files = argument;
    const struct file_ask ask = {.what = FILE_LIST};
    struct file_answer said = {.result = OK};
    void *memory = NULL;
    status result;

    pthread_mutex_lock(&files->lock);
    result = exchange(files, &ask, &said);
    if (result == OK && said.length > LIST_BYTES_MOST)
        result = status_fail(ERR_PEER, __FILE__, __LINE__, "a list too long");
    if (result == OK && said.result == OK) {
        result = memory_take((size_t)said.length + 1, 1, &memory);
        if (result == OK)
            result = take_bytes(files, &said, memory, said.length);
        if (result == OK) result = text_append(out, memory, said.length);
        memory_free(memory);
    }
    if (result != OK || said.result != OK)
        result = fail(files, "its list", result, &said);
    pthread_mutex_unlock(&files->lock);
    return result;
}

status far_files_read(void *argument, const char *path, int64_t offset,
                      void *bytes, size_t length, size_t *got)
{
    struct far_files *files = argument;
    struct file_ask ask = {.what = FILE_READ, .offset = offset,
                           .length = (uint32_t)length};
    struct file_answer said = {.result = OK};
    status result;

    *got = 0;
    CHECK(length <= FILE_BYTES_MOST);
    snprintf(ask.path, sizeof ask.path, "%s", path);
    pthread_mutex_lock(&files->lock);
    result = exchange(files, &ask, &said);
    if (result == OK && said.result == OK) {
        result = take_bytes(files, &said, bytes, length);
        *got = said.length;
    }
    if (result != OK || said.result != OK)
        result = fail(files, path, result, &said);
    pthread_mutex_unlock(&files->lock);
    return result;
}

/* ---- who there is ---- */

bool far_nodes_find(struct far_nodes *nodes)
{
    const char *own = getenv("LOCKSTEP_NODE");
    const char *lines = getenv("LOCKSTEP_NODES");
    const char *token = getenv("LOCKSTEP_TOKEN");

    *nodes = (struct far_nodes){.lines = lines};
    if (own == NULL || lines == NULL || token == NULL || lines[0] == '\0')
        return false;
    snprintf(nodes->own, sizeof nodes->own, "%s", own);
    if (token_read(&nodes->token, token) == OK) return true;
    status_clear();
    return false;
}

bool far_nodes_next(const char **lines, char name[STORE_NAME_BYTES],
                    char address[DOOR_ADDRESS_BYTES])
{
    const char *at = *lines;
    const size_t length = strcspn(at, "\n");
    const size_t first = strcspn(at, " \n");

    if (*at == '\0') return false;
    snprintf(name, STORE_NAME_BYTES, "%.*s", (int)first, at);
    snprintf(address, DOOR_ADDRESS_BYTES, "%.*s",
             first < length ? (int)(length - first - 1) : 0, at + first + 1);
    *lines = at + length + (at[length] == '\n');
    return true;
}
