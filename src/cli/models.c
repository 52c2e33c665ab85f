/* SPDX-License-Identifier: Apache-2.0 */
/* models.c - commands about finished weights: score, import, export. */
#include <string.h>
#include "base/json.h"
#include "cli/config.h"
#include "cli/run.h"
#include "cli/table.h"
#include "inference/export.h"
#include "inference/import.h"
#include "inference/score.h"

static status score_json(const struct score_result *result)
{
    struct json_writer writer = {0};

    json_write_begin(&writer, 0);
    json_write_object(&writer);
    json_write_key(&writer, "loss");
    json_write_real(&writer, result->loss);
    json_write_key(&writer, "targets");
    json_write_integer(&writer, result->targets);
    json_write_key_real(&writer, "bits_per_byte", result->bits_per_byte);
    json_write_key(&writer, "sequences");
    json_write_integer(&writer, result->sequences);
    json_write_key(&writer, "length");
    json_write_integer(&writer, result->length);
    json_write_object_end(&writer);
    return json_print(&writer, stdout);
}

status command_score(struct arguments *arguments)
{
    static const char *const dtypes[] = {"float32", "float64", "bfloat16",
                                         "float16"};
    struct score_request request = {
        .model = arguments->operands[0],
        .tokens = arguments_text(arguments, "tokens", NULL),
        .logits = arguments_text(arguments, "logits", NULL),
        .gradients = arguments_text(arguments, "gradients", NULL)};
    struct score_result result;
    int64_t threads = 0;
    int dtype = 0;

    if (request.tokens == NULL)
        FAIL(ERR_USAGE, "score needs --tokens FILE.json: an array of equally "
                        "long arrays of ids");
    TRY(file_may_replace(request.logits));
    TRY(file_may_replace(request.gradients));
    TRY(arguments_choice(arguments, "dtype", dtypes, 4, &dtype));
    TRY(arguments_average(arguments, &request.average));
    TRY(arguments_device(arguments, &request.device));
    TRY(arguments_integer(arguments, "threads", 0, THREADS_MOST, &threads));
    (void)dtype_parse(dtypes[dtype], &request.dtype);
    request.threads = (int)threads;
    TRY(score(&request, &result));
    if (result.notice[0] != 0) fprintf(stderr, "%s\n", result.notice);
    if (arguments_has(arguments, "json")) return score_json(&result);
    printf("loss %.9g nats, the mean of %lld targets (%lld x %lld tokens)\n",
           result.loss, (long long)result.targets, (long long)result.sequences,
           (long long)result.length);
    if (result.bits_per_byte == result.bits_per_byte)
        printf("%.6g bits per byte of their text\n", result.bits_per_byte);
    if (request.logits != NULL) printf("logits in %s\n", request.logits);
    if (request.gradients != NULL)
        printf("gradients in %s\n", request.gradients);
    return OK;
}

/* Reads what --set says of a mixture; *asked: anything. */
static status read_upcycle(struct arguments *arguments, struct upcycle *out,
                           bool *asked)
{
    static const char *const names[] = {"moe.experts=", "moe.top_k=", "seed="};
    struct assignments said;
    struct options_set set = {0};
    status result;

    TRY(assignments_read(&said, arguments));
    *asked = said.count > 0;
    TRY_GOTO(done, result, options_init(&set));
    for (int i = 0; i < said.count; i++) {
        bool known = false;

        for (int j = 0; j < 3; j++)
            known |= strncmp(said.items[i], names[j], strlen(names[j])) == 0;
        if (!known)
            FAIL_GOTO(done, result, ERR_USAGE,
                      "--set %s: import takes moe.experts, moe.top_k and seed; "
                      "the rest is said when the run is trained",
                      said.items[i]);
        TRY_GOTO(done, result, options_assign(&set, said.items[i],
                                              ORIGIN_COMMAND_LINE));
    }
    *out = (struct upcycle){.experts = (int)set.values.moe.experts,
                            .top_k = (int)set.values.moe.top_k,
                            .seed = (uint64_t)set.values.seed};
    if (*asked && out->experts < 1)
        FAIL_GOTO(done, result, ERR_CONFIG,
                  "moe.experts: import makes a mixture only with --set "
                  "moe.experts=N, 1 or more");
done:
    options_free(&set);
    return result;
}

status command_import(struct arguments *arguments)
{
    struct import_result imported;
    struct upcycle upcycle;
    bool asked;
    struct json_writer writer = {0};
    struct text text = {0};
    status result;

    TRY(read_upcycle(arguments, &upcycle, &asked));
    TRY(model_import(arguments->operands[0], arguments->operands[1],
                     arguments_text(arguments, "adapter", NULL),
                     asked ? &upcycle : NULL, &imported));
    if (arguments_has(arguments, "json")) {
        json_write_begin(&writer, 2);
        json_write_object(&writer);
        json_write_key_text(&writer, "family", imported.model.kind->name);
        json_write_key_integer(&writer, "parameters", imported.parameters);
        json_write_key_integer(&writer, "tensors", imported.tensors);
        json_write_key_text(&writer, "stored", imported.stored);
        json_write_key_text(&writer, "dtype", dtype_name(imported.dtype));
        json_write_key_real(&writer, "dropout_ignored", imported.dropout);
        json_write_key_integer(&writer, "adapter_rank",
                               imported.model.lora.rank);
        json_write_key(&writer, "tokenizer");
        json_write_bool(&writer, imported.tokenizer);
        json_write_key_text(&writer, "checkpoint", imported.checkpoint);
        json_write_object_end(&writer);
        return json_print(&writer, stdout);
    }
    TRY_GOTO(done, result, import_print(&imported, &text));
    fputs(text.bytes, stdout);
done:
    text_free(&text);
    return result;
}

status command_export(struct arguments *arguments)
{
    const char *directory = arguments->operands[1];
    struct export_request request = {
        .model = arguments->operands[0], .directory = directory,
        .adapter = arguments_has(arguments, "adapter")};
    static const char *const dtypes[] = {"float32", "bfloat16", "float16"};
    struct export_result exported;
    struct json_writer writer = {0};
    struct text text = {0};
    int dtype = 0;
    status result;

    request.typed = arguments_has(arguments, "dtype");
    TRY(arguments_choice(arguments, "dtype", dtypes, 3, &dtype));
    (void)dtype_parse(dtypes[dtype], &request.dtype);
    TRY(arguments_average(arguments, &request.average));
    TRY(model_export(&request, &exported));
    if (exported.notice[0] != 0) fprintf(stderr, "%s\n", exported.notice);
    if (arguments_has(arguments, "json")) {
        json_write_begin(&writer, 2);
        json_write_object(&writer);
        json_write_key_text(&writer, "directory", directory);
        json_write_key_integer(&writer, "parameters", exported.parameters);
        json_write_key_integer(&writer, "tensors", exported.tensors);
        json_write_key_text(&writer, "dtype", dtype_name(exported.dtype));
        json_write_key_integer(&writer, "weight_bytes", exported.weight_bytes);
        json_write_key_integer(&writer, "rounded", exported.rounded);
        json_write_key_integer(&writer, "proof_tokens", exported.proof_tokens);
        json_write_key_integer(&writer, "proof_logits_equal",
                               exported.proof_logits);
        json_write_key(&writer, "tokenizer");
        json_write_bool(&writer, exported.tokenizer);
        json_write_key_text(&writer, "notice", exported.notice);
        json_write_object_end(&writer);
        return json_print(&writer, stdout);
    }
    TRY_GOTO(done, result, export_print(&exported, directory, &text));
    fputs(text.bytes, stdout);
done:
    text_free(&text);
    return result;
}
