/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - the table of options, and how a value gets into the struct.
 *
 * Every value, defaults included, arrives as text and passes the same checks
 * here. */
#include "base/options.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "base/options_table.h"

#define INITIAL_INT(value) #value
#define INITIAL_REAL(value) #value
#define INITIAL_BOOL(value) #value
#define INITIAL_TEXT(value) value
#define INITIAL_LIST(value) value
#define INITIAL_SETS(value) value

const struct option_row option_rows[] = {
#define TOP_ROW(free, type, field, initial, unit, least, most, help) \
    {#field, NULL, #field, TYPE_##type, offsetof(struct options, field), \
     INITIAL_##type(initial), unit, least, most, help, free},
#define TOP(...) TOP_ROW(FREE_NO, __VA_ARGS__)
#define TOP_CHANGES(...) TOP_ROW(FREE_ON_RESUME, __VA_ARGS__)
#define SECTION(name, help)
#define ROW(free, type, section, field, initial, unit, least, most, help) \
    {#section "." #field, #section, #field,                               \
     TYPE_##type, offsetof(struct options, section.field),                \
     INITIAL_##type(initial), unit, least, most, help, free},
#define OPTION(...) ROW(FREE_NO, __VA_ARGS__)
#define CHANGES(...) ROW(FREE_ON_RESUME, __VA_ARGS__)
#define LOCAL(...) ROW(FREE_OF_RANK, __VA_ARGS__)
#define END(name)
#include "base/options.def"
#undef TOP
#undef TOP_CHANGES
#undef SECTION
#undef OPTION
#undef CHANGES
#undef LOCAL
#undef END
};

const struct option_section option_sections[] = {
#define TOP(...)
#define TOP_CHANGES(...)
#define SECTION(name, help) {#name, help},
#define OPTION(...)
#define CHANGES(...)
#define LOCAL(...)
#define END(name)
#include "base/options.def"
#undef TOP
#undef TOP_CHANGES
#undef SECTION
#undef OPTION
#undef CHANGES
#undef LOCAL
#undef END
};

enum {
    ROWS = sizeof option_rows / sizeof *option_rows,
    SECTIONS = sizeof option_sections / sizeof *option_sections
};
const int option_count = ROWS;
const int option_section_count = SECTIONS;

bool options_may_change(const char *name)
{
    const struct option_row *row = option_find(name);

    if (row == NULL) row = option_short(name);
    return row != NULL && row->free != FREE_NO;
}

bool options_may_differ(const char *name)
{
    const struct option_row *row = option_find(name);

    return row != NULL && row->free == FREE_OF_RANK;
}

int options_count(void)
{
    return ROWS;
}

const char *option_name(int at)
{
    return option_rows[at].name;
}

const struct option_row *option_find(const char *name)
{
    for (int i = 0; i < ROWS; i++)
        if (strcmp(option_rows[i].name, name) == 0) return &option_rows[i];
    return NULL;
}

const struct option_row *option_short(const char *name)
{
    return strcmp(name, "mesh") == 0 ? option_find("mesh.layout") : NULL;
}

const struct option_section *option_section_find(const char *name)
{
    for (int i = 0; i < SECTIONS; i++)
        if (strcmp(option_sections[i].name, name) == 0)
            return &option_sections[i];
    return NULL;
}

/* The name that was probably meant: the same field of another section,
 * otherwise the option or section with the fewest typing errors. */
static const char *nearest_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    const char *field = dot != NULL ? dot + 1 : name;
    const char *sections[SECTIONS], *names[ROWS];
    const char *nearest;

    for (int i = 0; i < SECTIONS; i++) sections[i] = option_sections[i].name;
    for (int i = 0; i < ROWS; i++) names[i] = option_rows[i].name;
    nearest = text_nearest(name, names, ROWS);
    if (nearest == NULL && dot == NULL)
        nearest = text_nearest(name, sections, SECTIONS);
    for (int i = 0; i < ROWS && nearest == NULL; i++)
        if (strcmp(option_rows[i].field, field) == 0) nearest = names[i];
    return nearest;
}

/* Names of options in Megatron-LM, torchtitan, Hugging Face, nanotron and
 * LitGPT, and ours. */
static const struct { const char *theirs, *ours; } foreign[] = {
    {"hidden_size", "model.width"}, {"n_embd", "model.width"},
    {"d_model", "model.width"}, {"dim", "model.width"},
    {"num_layers", "model.layers"}, {"num_hidden_layers", "model.layers"},
    {"n_layer", "model.layers"}, {"n_layers", "model.layers"},
    {"n_head", "model.heads"}, {"n_heads", "model.heads"},
    {"num_heads", "model.heads"}, {"num_attention_heads", "model.heads"},
    {"num_key_value_heads", "model.kv_heads"},
    {"num_query_groups", "model.kv_heads"},
    {"n_kv_heads", "model.kv_heads"}, {"n_query_groups", "model.kv_heads"},
    {"head_dim", "model.head_width"}, {"kv_channels", "model.head_width"},
    {"intermediate_size", "model.feed_forward"},
    {"ffn_hidden_size", "model.feed_forward"},
    {"n_inner", "model.feed_forward"},
    {"max_position_embeddings", "model.context"},
    {"n_positions", "model.context"}, {"block_size", "model.context"},
    {"vocab_size", "model.vocab"}, {"padded_vocab_size", "model.vocab"},
    {"rope_theta", "model.rope_base"}, {"rms_norm_eps", "model.norm_epsilon"},
    {"tie_word_embeddings", "model.tied"},
    {"sliding_window", "model.window"},
    {"initializer_range", "model.init_std"},
    {"seq_length", "data.sequence"}, {"seq_len", "data.sequence"},
    {"sequence_length", "data.sequence"},
    {"max_seq_length", "data.sequence"},
    {"learning_rate", "optimizer.lr"}, {"lr", "optimizer.lr"},
    {"weight_decay", "optimizer.weight_decay"},
    {"wd", "optimizer.weight_decay"},
    {"warmup_steps", "optimizer.warmup"},
    {"lr_warmup_iters", "optimizer.warmup"},
    {"max_grad_norm", "optimizer.clip"}, {"clip_grad", "optimizer.clip"},
    {"grad_clip", "optimizer.clip"}, {"adam_beta1", "optimizer.beta1"},
    {"adam_beta2", "optimizer.beta2"}, {"adam_eps", "optimizer.epsilon"},
    {"lr_scheduler_type", "optimizer.schedule"},
    {"lr_decay_style", "optimizer.schedule"},
    {"lr_wsd_decay_style", "optimizer.decay_type"},
    {"batch_size", "train.batch"}, {"global_batch_size", "train.batch"},
    {"micro_batch_size", "train.micro_batch"},
    {"per_device_train_batch_size", "train.micro_batch"},
    {"local_batch_size", "train.micro_batch"},
    {"gradient_accumulation_steps", "train.micro_batch"},
    {"steps", "train.steps"}, {"max_steps", "train.steps"},
    {"train_iters", "train.steps"}, {"train_steps", "train.steps"},
    {"num_train_epochs", "train.epochs"}, {"max_tokens", "train.tokens"},
    {"dtype", "train.dtype"}, {"torch_dtype", "train.dtype"},
    {"precision", "train.dtype"}, {"bf16", "train.dtype"},
    {"fp16", "train.dtype"}, {"dp", "mesh.data"}, {"tp", "mesh.tensor"},
    {"pp", "mesh.pipe"}, {"cp", "mesh.context"}, {"fsdp", "mesh.shard"},
    {"zero_stage", "zero"},
    {"tensor_model_parallel_size", "mesh.tensor"},
    {"pipeline_model_parallel_size", "mesh.pipe"},
    {"context_parallel_size", "mesh.context"},
    {"data_parallel_shard_degree", "mesh.shard"},
    {"save_interval", "checkpoint.every"}, {"save_steps", "checkpoint.every"},
    {"eval_interval", "validate.every"}, {"eval_steps", "validate.every"},
    {"hidden", "model.width"}, {"hidden_dim", "model.width"},
    {"embed_dim", "model.width"}, {"ffn", "model.feed_forward"},
    {"ffn_dim", "model.feed_forward"}, {"tie_embeddings", "model.tied"},
    {"num_experts", "moe.experts"}, {"num_local_experts", "moe.experts"},
    {"n_routed_experts", "moe.experts"},
    {"num_experts_per_tok", "moe.top_k"},
    {"moe_intermediate_size", "moe.intermediate_size"},
    {"dropless", "moe.capacity_factor"}, {"router", "model.family"},
    {"router_type", "model.family"}, {"scoring_func", "model.family"},
    {"score_func", "model.family"},
    {"moe_expert_capacity_factor", "moe.capacity_factor"},
    {"moe_router_topk", "moe.top_k"},
    {"router_aux_loss_coef", "moe.balance_loss"},
    {"moe_aux_loss_coeff", "moe.balance_loss"},
    {"moe_z_loss_coeff", "moe.z_loss"}, {"n_group", "moe.groups"},
    {"topk_group", "moe.groups_chosen"}, {"norm_topk_prob", "moe.normalize"},
    {"routed_scaling_factor", "moe.scale"},
    {"n_shared_experts", "moe.shared_intermediate_size"},
    {"first_k_dense_replace", "moe.first_dense"},
    {"num_nextn_predict_layers", "mtp.depth"},
    {"expert_tensor_parallel_size", "mesh.expert_tensor"},
    {"q_lora_rank", "mla.query_rank"}, {"kv_lora_rank", "mla.rank"},
    {"eps", "optimizer.epsilon"}, {"betas", "optimizer.beta1"},
    {"optimizer.type", "optimizer.name"}, {"max_norm", "optimizer.clip"},
    {"gradient_clipping", "optimizer.clip"},
    {"train_batch_size", "train.batch"},
    {"train_micro_batch_size_per_gpu", "train.micro_batch"},
    {"gradient_accumulation", "train.micro_batch"},
    {"grad_accum", "train.micro_batch"},
    {"accumulate_grad_batches", "train.micro_batch"},
    {"gradient_checkpointing", "train.recompute"},
    {"activation_checkpoint", "train.recompute"},
    {"activation_checkpointing", "train.recompute"},
    {"recompute_granularity", "train.recompute"},
    {"seed", "seed"}, {"random_seed", "seed"},
    {"ep", "mesh.expert"}, {"tensor_parallel", "mesh.tensor"},
    {"pipeline_parallel", "mesh.pipe"}, {"context_parallel", "mesh.context"},
    {"expert_parallel", "mesh.expert"},
    {"expert_model_parallel_size", "mesh.expert"},
    {"tensor_parallel_degree", "mesh.tensor"},
    {"pipeline_parallel_degree", "mesh.pipe"},
    {"context_parallel_degree", "mesh.context"},
    {"expert_parallel_degree", "mesh.expert"},
    {"data_parallel_replicate_degree", "mesh.data"},
    {"checkpoint.interval", "checkpoint.every"},
    {"validation.freq", "validate.every"},
    {"log_interval", "run.log_every"}, {"log_freq", "run.log_every"},
    {"logging_steps", "run.log_every"}, {"output_dir", "run.dir"},
    {"out_dir", "run.dir"},
    /* sections */
    {"training", "train"}, {"trainer", "train"}, {"optim", "optimizer"},
    {"lr_scheduler", "optimizer"}, {"parallelism", "mesh"},
    {"parallel", "mesh"}, {"validation", "validate"},
    {"evaluation", "validate"}, {"eval", "validate"}, {"dataset", "data"},
    {"dataloader", "data"}, {"checkpoints", "checkpoint"},
    {"model_config", "model"}, {"logging", "run"}};

/* The last part of the name is looked for, whatever its section, or all of
 * it. */
static const char *foreign_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    const char *field = dot != NULL ? dot + 1 : name;

    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (strcasecmp(foreign[i].theirs, field) == 0 ||
            strcasecmp(foreign[i].theirs, name) == 0) return foreign[i].ours;
    return NULL;
}

status option_unknown(const char *where, const char *name)
{
    const char *nearest = nearest_name(name);
    const char *ours = foreign_name(name);

    if (option_section_find(name) != NULL)
        FAIL(ERR_CONFIG, "%s%s is a section and needs fields, such as %s: {%s}",
             where, name, name, "field: value");
    if (ours != NULL)
        FAIL(ERR_CONFIG, "%s%.80s is not an option; did you mean %s? "
                         "(docs/coming_from.md)", where, name, ours);
    if (nearest != NULL)
        FAIL(ERR_CONFIG, "%s%.80s is not an option; nearest: %s", where, name,
             nearest);
    FAIL(ERR_CONFIG, "%s%.80s is not an option; see docs/generated/options.md "
                     "and docs/coming_from.md", where, name);
}

const void *option_field(const struct options_set *set,
                         const struct option_row *row)
{
    return (const char *)&set->values + row->offset;
}

/* Does the text read [+-]digits[.digits][e[+-]digits], and is it without
 * point and exponent? A point needs a digit on one side. */
static bool is_number(const char *text, bool *plain)
{
    size_t digits;

    text += *text == '+' || *text == '-';
    digits = strspn(text, "0123456789");
    text += digits;
    *plain = *text == '\0';
    if (*text == '.') {
        const size_t more = strspn(text + 1, "0123456789");

        digits += more;
        text += 1 + more;
    }
    if (digits == 0) return false;
    if (*text == 'e' || *text == 'E') {
        text++;
        text += *text == '+' || *text == '-';
        if (!isdigit((unsigned char)*text)) return false;
        text += strspn(text, "0123456789");
    }
    return *text == '\0';
}

/* A decimal integer, or a number such as 1e6 or 2.5e3 that is whole. */
static bool parse_integer(const char *text, int64_t *out)
{
    const bool negative = *text == '-';
    bool plain;
    double real;

    if (!is_number(text, &plain)) return false;
    if (!plain) {
        real = strtod(text, NULL);
        if (!(fabs(real) <= 0x1p53) || real != floor(real)) return false;
        *out = (int64_t)real;
        return true;
    }
    *out = 0;
    for (text += negative || *text == '+'; *text != '\0'; text++)
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_sub_overflow(*out, *text - '0', out))
            return false;
    if (negative) return true;
    return !__builtin_sub_overflow(0, *out, out);
}

static bool parse_real(const char *text, double *out)
{
    bool plain;

    if (!is_number(text, &plain)) return false;
    *out = strtod(text, NULL);
    return isfinite(*out);
}

bool options_flag(const char *text, bool *out)
{
    static const char *const words[] = {"false", "true", "no", "yes",
                                        "off",   "on",   "0",  "1"};

    for (int i = 0; i < 8; i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *out = i % 2 != 0;
            return true;
        }
    }
    return false;
}

/* The number without what people write around it: 1_000, or 4 GiB where the
 * option counts GiB. */
static bool bare_number(const struct option_row *row, const char *text,
                        char *out, size_t size)
{
    const size_t unit = strlen(row->unit);
    size_t length = 0;
    int64_t integer;
    double real;

    for (; *text != '\0' && length + 1 < size; text++)
        if (*text != '_' && *text != ' ') out[length++] = *text;
    out[length] = '\0';
    if (*text != '\0') return false;
    if (unit > 0 && length > unit &&
        strcasecmp(out + length - unit, row->unit) == 0)
        out[length - unit] = '\0';
    return row->type == TYPE_INT ? parse_integer(out, &integer)
                                 : parse_real(out, &real);
}

static status check_range(const struct option_row *row, double value,
                          const char *text, const char *where)
{
    if (row->least == 0 && row->most == 0) return OK;
    if (value >= row->least && value <= row->most) return OK;
    FAIL(ERR_CONFIG, "%s%s: %.60s is outside %.16g to %.16g%s%s", where,
         row->name, text, row->least, row->most,
         row->unit[0] != '\0' ? " " : "", row->unit);
}

static status refuse_number(const struct option_row *row, const char *text,
                            const char *where)
{
    const char *kind = row->type == TYPE_INT ? "an integer"
                                             : "a finite number";
    char bare[64];
    bool plain;

    if (row->type == TYPE_INT && is_number(text, &plain) &&
        fabs(strtod(text, NULL)) > 0x1p53)
        TRY(check_range(row, strtod(text, NULL), text, where));
    if (strcasecmp(text, "null") == 0 || strcmp(text, "~") == 0)
        FAIL(ERR_CONFIG, "%s%s: \"%s\" is not %s; without the line it is %s",
             where, row->name, text, kind, row->initial);
    if (bare_number(row, text, bare, sizeof bare))
        FAIL(ERR_CONFIG, "%s%s: \"%.60s\" is not %s; write %s", where,
             row->name, text, kind, bare);
    if (row->unit[0] != '\0')
        FAIL(ERR_CONFIG, "%s%s: \"%.60s\" is not %s; it counts %s", where,
             row->name, text, kind, row->unit);
    FAIL(ERR_CONFIG, "%s%s: \"%.60s\" is not %s", where, row->name, text,
         kind);
}

static status store_list(struct options_set *set, struct option_value value,
                         struct option_list *out)
{
    /* One empty text is how an empty list looks without brackets. */
    const bool none =
        value.count == 0 || (!value.sequence && value.items[0][0] == '\0');
    struct option_list list = {.count = none ? 0 : value.count};
    void *piece;

    if (!none) {
        TRY(arena_take_array(&set->arena, (size_t)list.count,
                             sizeof *list.items, &piece));
        list.items = piece;
    }
    for (int i = 0; i < list.count; i++) {
        char *copy;

        TRY(arena_copy_text(&set->arena, value.items[i], &copy));
        list.items[i] = copy;
    }
    *out = list;
    return OK;
}

const char *options_type_name(const char *text)
{
    static const struct { const char *shorter, *name; } rows[] = {
        {"bf16", "bfloat16"}, {"fp16", "float16"}, {"fp32", "float32"},
        {"fp64", "float64"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcasecmp(rows[i].shorter, text) == 0) return rows[i].name;
    return text;
}

static status store_typed(struct options_set *set,
                          const struct option_row *row,
                          struct option_value value, const char *where)
{
    void *field = (char *)&set->values + row->offset;
    const char *text = value.count > 0 ? value.items[0] : "";
    int64_t integer;
    double real;
    char *copy;

    switch (row->type) {
    case TYPE_INT:
        if (row->least == -1 && strcmp(text, "auto") == 0)
            text = "-1";
        if (!parse_integer(text, &integer))
            return refuse_number(row, text, where);
        TRY(check_range(row, (double)integer, text, where));
        *(int64_t *)field = integer;
        return OK;
    case TYPE_REAL:
        if (!parse_real(text, &real)) return refuse_number(row, text, where);
        TRY(check_range(row, real, text, where));
        *(double *)field = real;
        return OK;
    case TYPE_BOOL:
        if (!options_flag(text, field))
            FAIL(ERR_CONFIG, "%s%s: \"%.60s\" is neither true nor false",
                 where, row->name, text);
        return OK;
    case TYPE_TEXT:
    case TYPE_SETS:
        TRY(arena_copy_text(&set->arena, strstr(row->field, "dtype") == NULL
                                                ? text
                                                : options_type_name(text),
                            &copy));
        *(const char **)field = copy;
        return OK;
    case TYPE_LIST:
        TRY(store_list(set, value, field));
        return OK;
    }
    return OK;
}

status option_store(struct options_set *set, const struct option_row *row,
                    struct option_value value, enum option_origin origin,
                    const char *where)
{
    size_t bad;

    if (row->type != TYPE_LIST && value.sequence)
        FAIL(ERR_CONFIG, "%s%s takes one value, found a list", where,
             row->name);
    for (int i = 0; i < value.count; i++)
        if (text_utf8_invalid(value.items[i], strlen(value.items[i]), &bad))
            FAIL(ERR_CONFIG, "%s%s: the value is not UTF-8", where, row->name);
    TRY(store_typed(set, row, value, where));
    set->origin[row - option_rows] = (unsigned char)origin;
    return OK;
}

status options_init(struct options_set *set)
{
    void *piece;

    *set = (struct options_set){0};
    arena_init(&set->arena, "options", 0);
    TRY(arena_take(&set->arena, ROWS, &piece));
    set->origin = piece;
    for (int i = 0; i < ROWS; i++) {
        const struct option_row *row = &option_rows[i];

        TRY(option_store(set, row,
                         (struct option_value){&row->initial, 1, false},
                         ORIGIN_DEFAULT, "default of "));
    }
    return OK;
}

void options_free(struct options_set *set)
{
    arena_free(&set->arena);
    *set = (struct options_set){0};
}

enum option_origin options_origin(const struct options_set *set,
                                  const char *name)
{
    const struct option_row *row = option_find(name);

    if (row == NULL || set->origin == NULL) return ORIGIN_DEFAULT;
    return (enum option_origin)set->origin[row - option_rows];
}

status options_get_text(const struct options_set *set, const char *name,
                        struct text *out)
{
    const struct option_row *row = option_find(name);

    if (row == NULL) TRY(option_unknown("", name));
    TRY(option_print(set, row, out));
    return OK;
}

/* "a,b" for a list: the commas become ends of texts. */
static status store_commas(struct options_set *set,
                           const struct option_row *row, char *text,
                           enum option_origin origin)
{
    int count = 1, at = 0;
    status result;
    void *items;

    for (const char *c = text; *c != '\0'; c++) count += *c == ',';
    TRY(memory_take((size_t)count, sizeof(char *), &items));
    for (char *rest = text; rest != NULL;) {
        ((const char **)items)[at++] = rest;
        rest = strchr(rest, ',');
        if (rest != NULL) *rest++ = '\0';
    }
    TRY_GOTO(done, result,
             option_store(set, row,
                          (struct option_value){items, count, count > 1},
                          origin, ""));
done:
    memory_free(items);
    return result;
}

static status assign(struct options_set *set, const struct option_row *row,
                     char *value, enum option_origin origin)
{
    const char *one = value;

    if (row->type != TYPE_LIST)
        TRY(option_store(set, row, (struct option_value){&one, 1, false},
                         origin, ""));
    else
        TRY(store_commas(set, row, value, origin));
    return OK;
}

status options_assign(struct options_set *set, const char *assignment,
                      enum option_origin origin)
{
    const char *equals = strchr(assignment, '=');
    const struct option_row *row;
    struct text copy = {0};
    status result;

    if (equals == NULL || equals == assignment)
        FAIL(ERR_CONFIG, "\"%.80s\" is not of the form NAME=VALUE", assignment);
    TRY_GOTO(done, result,
             text_append(&copy, assignment, (size_t)(equals - assignment)));
    row = option_find(copy.bytes);
    if (row == NULL) row = option_short(copy.bytes);
    if (row == NULL) TRY_GOTO(done, result, option_unknown("", copy.bytes));
    if (row->type == TYPE_LIST && equals[1] == '[') {
        TRY_GOTO(done, result,
                 text_printf(&copy, ": %s", equals + 1)); /* as in a file */
        TRY_GOTO(done, result,
                 options_read_text(set, copy.bytes, copy.length, row->name,
                                   origin));
        goto done;
    }
    copy.length = 0;
    TRY_GOTO(done, result, text_append_string(&copy, equals + 1));
    TRY_GOTO(done, result, assign(set, row, copy.bytes, origin));
done:
    text_free(&copy);
    return result;
}

/* "optimizer_lr": one underscore where two are meant would be silent. */
static status option_misspelt(char *name)
{
    for (char *at = strchr(name, '_'); at != NULL; at = strchr(at + 1, '_')) {
        const struct option_row *row;

        *at = '.';
        row = option_find(name);
        *at = '_';
        if (row != NULL)
            FAIL(ERR_CONFIG, "an environment variable LOCKSTEP_... looks like "
                             "%s: write two underscores for the dot",
                 row->name);
    }
    return OK;
}

/* "OPTIMIZER__LR=3e-4" becomes "optimizer.lr=3e-4"; false when the variable
 * is not an option's: one outside a section has no "__". */
static bool option_variable(const char *variable, struct text *out,
                            status *result)
{
    const size_t length = strcspn(variable, "=");
    char name[OPTION_NAME_BYTES];
    size_t at = 0;
    bool dotted = false;

    for (size_t i = 0; i < length && at < sizeof name - 1; i++) {
        const bool dot = variable[i] == '_' && variable[i + 1] == '_' &&
                         !dotted;

        name[at++] = dot ? '.' : (char)tolower((unsigned char)variable[i]);
        i += dot;
        dotted = dotted || dot;
    }
    name[at] = '\0';
    if (!dotted && option_find(name) == NULL) {
        *result = option_misspelt(name);
        return *result != OK;
    }
    *result = text_printf(out, "%s%s", name, variable + length);
    return true;
}

status options_read_environment(struct options_set *set)
{
    static const char prefix[] = "LOCKSTEP_";
    struct text assignment = {0};
    status result = OK;

    for (char **at = environ; at != NULL && *at != NULL; at++) {
        if (strncmp(*at, prefix, sizeof prefix - 1) != 0) continue;
        assignment.length = 0;
        if (!option_variable(*at + sizeof prefix - 1, &assignment, &result))
            continue;
        TRY_GOTO(done, result, result);
        TRY_GOTO(done, result,
                 options_assign(set, assignment.bytes, ORIGIN_ENVIRONMENT));
    }
done:
    text_free(&assignment);
    return result;
}
