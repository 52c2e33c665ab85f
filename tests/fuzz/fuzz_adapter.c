/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_adapter.c - can an adapter from a stranger hurt us? The input is an
 * adapter_config.json, then a zero byte and an adapter_model.safetensors, to
 * stand beside a small golden model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "models/lora.h"
#include "train/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char directory[PATH_BYTES];

static void remove_directory(void)
{
    if (directory_remove(directory) != OK) status_clear();
}

static void make_once(void)
{
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";

    if (directory[0]) return;
    snprintf(directory, sizeof directory, "%s/lockstep-fuzz-XXXXXX", base);
    CHECK(mkdtemp(directory) != NULL);
    atexit(remove_directory);
}

static void put(const char *name, const void *bytes, size_t size)
{
    char path[PATH_BYTES];

    CHECK(path_join(path, PATH_BYTES, directory, name) == OK);
    CHECK(file_write_atomic(path, bytes, size) == OK);
}

/* What is taken says the same when it is written and read again. */
static void again(const struct model *model)
{
    struct model other = *model;
    struct text text = {0};
    char path[PATH_BYTES];

    CHECK(lora_write_config(model, &text) == OK);
    put("adapter_config.json", text.bytes, text.length);
    CHECK(path_join(path, PATH_BYTES, directory, "adapter_config.json") ==
          OK);
    CHECK(lora_read_config(&other, path, NULL) == OK);
    CHECK(lora_same(model, &other));
    text_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size > 0 ? memchr(data, 0, size) : NULL;
    const size_t length = end != NULL ? (size_t)(end - data) : size;
    struct session session = {0};

    make_once();
    put("adapter_config.json", data, length);
    put("adapter_model.safetensors", end != NULL ? end + 1 : data,
        end != NULL ? size - length - 1 : 0);
    CHECK(session_open(&session, "tests/golden/models/mistral") == OK);
    if (session_adapt(&session, directory) == OK) {
        struct stage_request request;
        struct stage stage = {0};

        CHECK(session.model.lora.class_count > 0);
        if (session_request(&session, 1, 1, &request) == OK &&
            session_stage(&session, &request, &stage) == OK)
            again(&session.model);
        stage_free(&stage);
    }
    status_clear();
    session_close(&session);
    CHECK(arena_bytes_out() == 0);
    return 0;
}
