/* SPDX-License-Identifier: Apache-2.0 */
/* local_stores.c - files of a run on a machine's own disk. */
#include "base/local_stores.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const stores_run_files[] = {
    "config.yaml", "config.json", "tokenizer.json", "tokenizer.model",
    "tekken.json", "r50k_base.tiktoken", "p50k_base.tiktoken",
    "cl100k_base.tiktoken", "o200k_base.tiktoken", "llama3.tiktoken",
    "qwen.tiktoken",
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "generation_config.json",
    "metrics.jsonl", "consumed.jsonl", "ledger.jsonl", "layers.jsonl",
    "samples.jsonl", "notes.jsonl", "records", NULL};
_Static_assert(sizeof stores_run_files / sizeof *stores_run_files ==
                   STORES_MIRRORED_FILES + 2, "records and the end");

enum { STEPS_MOST = 1 << 16 };

bool store_name_is_plain(const char *name)
{
    static const char PLAIN[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    return name[0] != '\0' && name[0] != '.' &&
           strspn(name, PLAIN) == strlen(name);
}

static bool is_step(const char *name)
{
    return strncmp(name, "step-", 5) == 0 && strlen(name) <= 16 &&
           strspn(name + 5, "0123456789") == strlen(name + 5);
}

/* The steps of one store. */
static status list_store(const char *directory, const char *store,
                         struct text *out)
{
    char at[PATH_BYTES], ckpt[PATH_BYTES];
    char **names = NULL;
    int count = 0;
    status result = OK;

    TRY(path_join(at, sizeof at, directory, store));
    TRY(path_join(ckpt, sizeof ckpt, at, "ckpt"));
    if (file_is_link(at) || !file_is_directory(ckpt)) return OK;
    TRY(directory_list(ckpt, &names, &count));
    for (int i = 0; i < count && i < STEPS_MOST && result == OK; i++)
        if (is_step(names[i]) || strcmp(names[i], ".none") == 0)
            result = text_printf(out, "%s/ckpt/%s\n", store, names[i]);
    directory_list_free(names, count);
    return result;
}

status stores_list(const struct stores *stores, struct text *out)
{
    char **names = NULL;
    int count = 0;
    status result = OK;

    if (!file_is_directory(stores->directory)) return OK;
    TRY(directory_list(stores->directory, &names, &count));
    for (int i = 0; i < count && result == OK; i++)
        if (store_name_is_plain(names[i]) &&
            strlen(names[i]) < STORE_NAME_BYTES)
            result = list_store(stores->directory, names[i], out);
    directory_list_free(names, count);
    return result;
}

static bool is_run_file(const char *name)
{
    for (int i = 0; stores_run_files[i] != NULL; i++)
        if (strcmp(stores_run_files[i], name) == 0) return true;
    return false;
}

/* Splits the path, in `copy`, at its slashes. */
static int split(char *copy, char *parts[5])
{
    int count = 0;

    for (char *at = copy; at != NULL && count < 5; count++) {
        parts[count] = at;
        at = strchr(at, '/');
        if (at != NULL) *at++ = '\0';
    }
    return count;
}

static status find(const struct stores *stores, const char *path,
                   char out[PATH_BYTES])
{
    char copy[STORE_PATH_BYTES], at[PATH_BYTES], *parts[5];
    int count;

    if (strlen(path) >= sizeof copy) FAIL(ERR_CONFIG, "the path is too long");
    memcpy(copy, path, strlen(path) + 1);
    count = split(copy, parts);
    if (count == 2 && strcmp(parts[0], "run") == 0 && is_run_file(parts[1]))
        return path_join(out, PATH_BYTES, stores->run, parts[1]);
    if (count != 4 || !store_name_is_plain(parts[0]) ||
        strcmp(parts[1], "ckpt") != 0 || !is_step(parts[2]) ||
        !store_name_is_plain(parts[3]))
        FAIL(ERR_CONFIG, "%s: is no file of a store", path);
    TRY(path_join(out, PATH_BYTES, stores->directory, parts[0]));
    for (int i = 1; i < 4; i++) {
        memcpy(at, out, sizeof at);
        TRY(path_join(out, PATH_BYTES, at, parts[i]));
    }
    return OK;
}

status stores_read(const struct stores *stores, const char *path,
                   int64_t offset, void *bytes, size_t length, size_t *got)
{
    char where[PATH_BYTES];
    struct stat facts;
    int descriptor;
    status result;

    *got = 0;
    TRY(find(stores, path, where));
    descriptor = open(where, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0)
        FAIL(errno == ENOENT || errno == ENOTDIR ? ERR_MISSING : ERR_IO,
             "%s: cannot be opened: %s", where, strerror(errno));
    if (fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode))
        result = status_fail(ERR_FORMAT, __FILE__, __LINE__,
                             "%s: is no regular file", where);
    else
        result = file_get(descriptor, where, bytes, length, offset, got);
    close(descriptor);
    return result;
}
