/* SPDX-License-Identifier: Apache-2.0 */
/* cache_files.c - files that data.cache keeps beside token files. */
#include "data/cache_files.h"

#include "data/pack_file.h"
#include "data/split.h"
#include "data/token_foreign.h"

static status verify_pack(const char *path, int64_t *documents,
                          int64_t *tokens)
{
    struct pack_facts facts;

    TRY(pack_file_verify(path, &facts));
    *documents = (int64_t)facts.documents;
    *tokens = (int64_t)facts.tokens;
    return OK;
}

static const struct kind {
    const char *ending, *name;
    status (*verify)(const char *path, int64_t *documents, int64_t *tokens);
} kinds[] = {{".pack", "packed samples", verify_pack},
             {".starts", "found documents", token_starts_verify},
             {".split", "held-out list", split_verify}};

static const struct kind *kind_of(const char *path)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (text_ends_with(path, kinds[i].ending)) return &kinds[i];
    return NULL;
}

const char *kept_kind(const char *path)
{
    const struct kind *kind = kind_of(path);

    return kind != NULL ? kind->name : NULL;
}

status kept_verify(const char *path, struct kept *out)
{
    const struct kind *kind = kind_of(path);
    struct file_map map = {0};

    CHECK(kind != NULL);
    *out = (struct kept){.kind = kind->name};
    TRY(file_map_open(&map, path));
    out->bytes = (int64_t)map.length;
    out->crc = crc32c(0, map.bytes, map.length);
    file_map_close(&map);
    return kind->verify(path, &out->documents, &out->tokens);
}
