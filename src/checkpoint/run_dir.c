/* SPDX-License-Identifier: Apache-2.0 */
/* run_dir.c - the directory of a run, and what a MODEL argument names. */
#include "checkpoint/run_dir.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/local_stores.h"
#include "base/log.h"
#include "checkpoint/best.h"
#include "checkpoint/history.h"

static status set_paths(struct run_dir *run, const char *path)
{
    memset(run, 0, sizeof *run);
    TRY(path_join(run->path, PATH_BYTES, "", path));
    TRY(path_join(run->config, PATH_BYTES, path, "config.yaml"));
    TRY(path_join(run->metrics, PATH_BYTES, path, "metrics.jsonl"));
    TRY(path_join(run->samples, PATH_BYTES, path, "samples.jsonl"));
    TRY(path_join(run->consumed, PATH_BYTES, path, "consumed.jsonl"));
    TRY(path_join(run->report, PATH_BYTES, path, "report.html"));
    return path_join(run->checkpoints, PATH_BYTES, path, "ckpt");
}

static status check_writable(const char *path)
{
    if (access(path, W_OK | X_OK) == 0) return OK;
    FAIL(ERR_IO, "%s: the directory cannot be written: %s", path,
         strerror(errno));
}

static status take_lock(struct run_dir *run)
{
    char path[PATH_BYTES];
    status result;

    TRY(check_writable(run->path));
    TRY(path_join(path, sizeof path, run->path, "lock"));
    result = file_lock_take(&run->lock, path);
    if (result == ERR_CONFIG)
        return status_hint(result, "it trains or saves in %s; end it with kill "
                           "(it saves first), or choose another directory",
                           run->path);
    return result;
}

/* Nobody else saves here now: what is unfinished stays so. */
static status or_later(status result)
{
    if (result != ERR_IO) return result;
    LOG(WARNING, "checkpoint", "what an interrupted save left stays for now: "
        "%s", status_message());
    status_clear();
    return OK;
}

/* Files at the top of a run that are written beside and renamed. */
static bool is_written(const char *name)
{
    /* Beside those that other machines may read. */
    static const char *const more[] = {
        "adapter_config.json", "launch.json", "machine.json", "profile.json",
        "report.html", "timeline.svg", NULL};

    for (int i = 0; stores_run_files[i] != NULL; i++)
        if (strcmp(name, stores_run_files[i]) == 0) return true;
    for (int i = 0; more[i] != NULL; i++)
        if (strcmp(name, more[i]) == 0) return true;
    return false;
}

status run_dir_clean(const struct run_dir *run)
{
    return or_later(directory_clean(run->path, is_written));
}

/* Metrics or checkpoints without a config.yaml are those of another run. */
static status check_unused(struct run_dir *run)
{
    char path[PATH_BYTES];
    int64_t bytes = 0;
    int count = 0;
    bool none;

    memcpy(path, run->path, sizeof path);
    TRY(checkpoint_count(path, &count, &none));
    if (count == 0 && file_exists(run->metrics))
        TRY(file_size(run->metrics, &bytes));
    if (count == 0 && bytes == 0) return OK;
    run_dir_close(run);
    FAIL(ERR_MISSING, "%s: holds %s of a run, but no config.yaml; bring it "
         "back and resume, or choose another directory with --run", path,
         count > 0 ? "checkpoints" : "metrics");
}

/* A run that has nothing to go on from begins again; its own configuration may
 * be another than that of this command, so it is not guessed. */
static status refuse_begun(const char *path)
{
    int count = 0;
    bool none = false;
    status result;

    if (checkpoint_count(path, &count, &none) != OK) status_clear();
    if (count > 0 || !none) {
        result = status_fail(ERR_CONFIG, __FILE__, __LINE__,
                             "%s: holds a run already", path);
        return status_hint(result, "continue it with: lockstep resume %s, or "
                                   "choose another directory with --run", path);
    }
    result = status_fail(ERR_CONFIG, __FILE__, __LINE__,
                         "%s: holds a run already, which ended before its "
                         "first checkpoint", path);
    return status_hint(result, "begin it again at step 0, with its own "
                       "configuration (%s/config.yaml): lockstep resume %s; "
                       "or choose another directory with --run", path, path);
}

status run_dir_create(struct run_dir *run, const char *path)
{
    TRY(set_paths(run, path));
    if (file_exists(path) && !file_is_directory(path))
        FAIL(ERR_CONFIG, "%s: is a file, a directory is needed for the run",
             path);
    TRY(directory_make_private(path));
    TRY(take_lock(run));
    if (!file_exists(run->config)) {
        TRY(check_unused(run));
        return or_later(checkpoint_clean(run->path));
    }
    run_dir_close(run);
    return refuse_begun(path);
}

status run_dir_read(struct run_dir *run, const char *path)
{
    TRY(set_paths(run, path));
    if (!file_is_directory(path))
        FAIL(ERR_MISSING, "%s: there is no such directory", path);
    if (!file_exists(run->config))
        FAIL(ERR_MISSING, "%s: is not the directory of a run: it has no "
             "config.yaml", path);
    return OK;
}

status run_dir_resume(struct run_dir *run, const char *path)
{
    TRY(run_dir_read(run, path));
    TRY(take_lock(run));
    return or_later(checkpoint_clean(run->path));
}

void run_dir_close(struct run_dir *run)
{
    file_lock_drop(&run->lock);
    memset(run, 0, sizeof *run);
}

status run_dir_log(const char *run, int rank, char path[PATH_BYTES])
{
    char name[32], logs[PATH_BYTES];

    if (rank == 0) return path_join(path, PATH_BYTES, run, "log.txt");
    snprintf(name, sizeof name, "rank-%05d.log", rank);
    TRY(path_join(logs, sizeof logs, run, "logs"));
    TRY(directory_make_own(logs));
    return path_join(path, PATH_BYTES, logs, name);
}

static bool has(const char *directory, const char *name)
{
    char path[PATH_BYTES];

    if (path_join(path, sizeof path, directory, name) == OK)
        return file_exists(path);
    status_clear();
    return false;
}

bool run_dir_exists(const char *path)
{
    return has(path, "config.yaml");
}

/* Files that only other trainers write. */
static const struct {
    const char *file, *trainer, *how;
} others[] = {
    {"latest_checkpointed_iteration.txt", "Megatron",
     "convert it with Megatron's own exporter to Hugging Face"},
    {"model_optim_rng.pt", "Megatron",
     "convert it with Megatron's own exporter to Hugging Face"},
    {".metadata", "PyTorch DCP (torchtitan, Megatron dist)",
     "export it as Hugging Face safetensors with the trainer that wrote it"},
    {"checkpoint_metadata.json", "nanotron",
     "convert it with nanotron's own converter to Hugging Face"},
    {"mp_rank_00_model_states.pt", "DeepSpeed",
     "convert it with DeepSpeed's zero_to_fp32 and save as safetensors"},
    {"lit_model.pth", "LitGPT",
     "convert it with litgpt convert_from_litgpt and save as safetensors"},
    {"consolidated.00.pth", "Meta's original Llama",
     "convert it with the transformers library and save as safetensors"},
    {"pytorch_model.bin", "PyTorch",
     "it is a pickle file, which Lockstep never reads; save it as safetensors"},
    {"adapter_model.safetensors", "PEFT",
     "merge the adapter into its base model first"},
};

/* Shards without the file that says which tensor is in which. */
static bool has_shards(const char *path)
{
    char **names = NULL;
    int count = 0;
    bool found = false;

    if (directory_list(path, &names, &count) != OK) {
        status_clear();
        return false;
    }
    for (int i = 0; i < count; i++)
        found |= strncmp(names[i], "model-", 6) == 0 &&
                 text_ends_with(names[i], ".safetensors");
    directory_list_free(names, count);
    return found;
}

static status refuse(const char *path)
{
    status result;

    if (has(path, "config.json") && has_shards(path))
        FAIL(ERR_FORMAT, "%s: has shards of a model (model-...safetensors), "
             "but not the model.safetensors.index.json that names their "
             "tensors; bring it, too", path);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (!has(path, others[i].file)) continue;
        result = status_fail(ERR_FORMAT, __FILE__, __LINE__,
                             "%s: is a checkpoint of %s (it has %s), which "
                             "Lockstep cannot read", path, others[i].trainer,
                             others[i].file);
        return status_hint(result, "%s", others[i].how);
    }
    FAIL(ERR_FORMAT, "%s: is neither a run (config.yaml and ckpt), nor a "
         "checkpoint (manifest.json), nor a Hugging Face directory "
         "(config.json and model.safetensors)", path);
}

/* RUN/best and RUN/ckpt/best are no files: the run's checkpoints say which it
 * is. */
static status find_best(const char *path, struct model_place *out, bool *is)
{
    char run[PATH_BYTES];
    size_t length = strlen(path);

    *is = false;
    while (length > 0 && path[length - 1] == '/') length--;
    if (length < 5 || strncmp(path + length - 5, "/best", 5) != 0 ||
        length >= PATH_BYTES || file_exists(path))
        return OK;
    length -= 5;
    if (length > 5 && strncmp(path + length - 5, "/ckpt", 5) == 0) length -= 5;
    snprintf(run, sizeof run, "%.*s", (int)length, path);
    if (!has(run, "ckpt")) return OK;
    *is = true;
    out->kind = MODEL_CHECKPOINT;
    return checkpoint_find_best(run, out->directory, &out->step);
}

status model_place_find(const char *path, struct model_place *out)
{
    bool best;

    memset(out, 0, sizeof *out);
    out->step = -1;
    TRY(find_best(path, out, &best));
    if (best) return OK;
    if (!file_exists(path))
        FAIL(ERR_MISSING, "%s: there is no such directory; a model is a "
             "directory on this machine, nothing is downloaded by name", path);
    if (!file_is_directory(path))
        FAIL(ERR_FORMAT, "%s: is a file; a model is a directory: of a run, "
             "of a checkpoint, or in the form of Hugging Face", path);
    TRY(path_join(out->directory, PATH_BYTES, "", path));
    if (has(path, "manifest.json")) {
        out->kind = MODEL_CHECKPOINT;
        return OK;
    }
    if (has(path, "ckpt")) {
        out->kind = MODEL_RUN;
        return checkpoint_find_newest(path, out->directory, &out->step);
    }
    if (has(path, "config.yaml"))
        FAIL(ERR_MISSING, "%s: is a run that has no checkpoint yet", path);
    if (has(path, "model.safetensors") ||
        has(path, "model.safetensors.index.json")) {
        out->kind = MODEL_HUGGING_FACE;
        return OK;
    }
    return refuse(path);
}
