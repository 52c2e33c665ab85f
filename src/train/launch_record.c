/* SPDX-License-Identifier: Apache-2.0 */
/* launch_record.c - how a run was started last: RUN/launch.json. */
#include "train/launch_record.h"

#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/launch.h"
#include "control/board.h"

enum { RANKS_BELIEVED = 1 << 20 };

static status path_of(const char *run, char path[PATH_BYTES])
{
    return path_join(path, PATH_BYTES, run, "launch.json");
}

status launch_record_write(const char *run, int ranks, const char *maker)
{
    const char *launcher = launch_command();
    struct json_writer w;
    char path[PATH_BYTES], name[32];
    status result;

    TRY(path_of(run, path));
    json_write_begin(&w, 1);
    json_write_object(&w);
    json_write_key_integer(&w, "ranks", ranks);
    json_write_key(&w, "launcher");
    snprintf(name, sizeof name, "%s", launcher != NULL ? launcher : "threads");
    if (strstr(name, " -") != NULL) *strstr(name, " -") = '\0';
    json_write_string(&w, name);
    if (maker[0] != '\0') {
        json_write_key(&w, "products");
        json_write_string(&w, maker);
    }
    json_write_object_end(&w);
    TRY_GOTO(done, result, json_write_end(&w));
    result = file_write_atomic(path, w.out.bytes, w.out.length);
done:
    json_writer_free(&w);
    return result;
}

/* The file of the last start; ranks 0: there was none. */
struct launched {
    int64_t ranks;
    char maker[MAKER_BYTES];
};

static status read_object(const struct json *object, const char *path,
                          struct launched *out)
{
    const char *maker;

    TRY(json_get_integer(object, path, "ranks", &out->ranks));
    if (out->ranks < 1 || out->ranks > RANKS_BELIEVED)
        FAIL(ERR_FORMAT, "%s: %lld ranks, expected 1 to %d", path,
             (long long)out->ranks, RANKS_BELIEVED);
    TRY(json_get_string_or(object, path, "products", "", &maker));
    snprintf(out->maker, sizeof out->maker, "%s", maker);
    return OK;
}

static status launch_record_read(const char *run, struct launched *out)
{
    struct arena arena = {0};
    struct text text = {0};
    const struct json *object;
    char path[PATH_BYTES];
    status result;

    *out = (struct launched){0};
    TRY(path_of(run, path));
    if (!file_exists(path)) return OK;
    arena_init(&arena, "launch.json", 0);
    TRY_GOTO(done, result, file_read_own(path, 4096, &text));
    TRY_GOTO(done, result, json_read(&object, &arena, text.bytes, text.length,
                                     path));
    result = read_object(object, path, out);
done:
    text_free(&text);
    arena_free(&arena);
    return result;
}

void launch_record_compare_maker(const char *run, const char *maker)
{
    struct launched old;

    if (launch_record_read(run, &old) != OK) status_clear(); /* it is a hint */
    else if (old.maker[0] != '\0' && strcmp(old.maker, maker) != 0)
        LOG(WARNING, "train", "numerics.gpu=fast: %s made the products of this "
            "run so far, and now %s does; bits may differ from here on from "
            "those of a run that goes on as before", old.maker, maker);
}

status launch_record_ranks(const char *run, const struct options *o, int *ranks)
{
    const int64_t sizes[] = {o->mesh.data, o->mesh.shard, o->mesh.context,
                             o->mesh.tensor, o->mesh.expert, o->mesh.pipe};
    struct launched old = {0};
    int64_t product = 1;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i] < 1) product = 0;
        product = product > RANKS_BELIEVED ? product : product * sizes[i];
    }
    *ranks = product <= RANKS_BELIEVED ? (int)product : 0;
    if (*ranks > 0) return OK;
    /* The file is a hint: damage of it stops no run. */
    if (launch_record_read(run, &old) != OK) {
        LOG(WARNING, "train", "%s; the number of ranks that the run had is not "
                          "known, --ranks N says it", status_message());
        status_clear();
        old.ranks = 0;
    }
    *ranks = (int)old.ranks;
    return OK;
}

/* A path as a shell reads it. */
static void quote(char *out, size_t size, const char *path)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz0123456789"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ_./-+=:@%,";
    size_t at = 0;

    if (path[strspn(path, plain)] == 0) {
        snprintf(out, size, "%s", path);
        return;
    }
    out[at++] = '\'';
    for (; *path != 0 && at + 6 < size; path++) {
        if (*path == '\'') at += (size_t)snprintf(out + at, 5, "'\\''");
        else out[at++] = *path;
    }
    out[at++] = '\'';
    out[at] = 0;
}

void launch_record_resume(char *out, size_t size, const char *run, int ranks)
{
    const char *launcher = launch_command();
    char path[PATH_BYTES];

    quote(path, sizeof path, run);
    if (board_has_agent())
        snprintf(out, size, "the command of its supervisor, and its agents");
    else if (board_generation() > 0) /* its supervisor starts the ranks */
        snprintf(out, size, "lockstep resume %s --ranks %d --supervised", path,
                 ranks);
    else if (launcher != NULL)
        snprintf(out, size, "%s %d%s lockstep resume %s", launcher, ranks,
                 launch_is_own() ? " --" : "", path);
    else if (ranks > 1)
        snprintf(out, size, "lockstep resume %s --ranks %d", path, ranks);
    else
        snprintf(out, size, "lockstep resume %s", path);
}
