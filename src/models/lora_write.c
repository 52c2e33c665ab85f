/* SPDX-License-Identifier: Apache-2.0 */
/* lora_write.c - adapter_config.json, as PEFT reads it: plain names only. */
#include <string.h>

#include "models/decoder.h"
#include "models/lora.h"

/* How much of a name tells a target: its last word, unless a neighbour has
 * the same and another class; its name in the block; or all of it. */
enum naming { LAST_WORD, IN_BLOCK, WHOLE };

static enum naming naming_of(const struct model *model)
{
    const struct lora *lora = &model->lora;
    char stems[LORA_PARTS][LORA_NAME_BYTES];

    if (lora->varied) return WHOLE;
    if (lora->class_count > 1) return IN_BLOCK;
    for (int i = 0; i < LORA_PARTS; i++) {
        stems[i][0] = 0;
        if (lora_part(model, i) == NULL) continue;
        lora_stem(lora_part(model, i), 0, stems[i]);
        for (int j = 0; j < i; j++)
            if (strcmp(lora_last(stems[i]), lora_last(stems[j])) == 0 &&
                lora_site(lora, 0, i) != lora_site(lora, 0, j))
                return IN_BLOCK;
    }
    return LAST_WORD;
}

/* Which sites: all, those that PEFT finds as modules, or as parameters. Experts
 * that share a tensor, and the routers beside them, are none of them. */
enum sites { ALL_SITES, MODULE_SITES, PARAMETER_SITES };
struct chosen { enum sites sites; bool joined; };

typedef void site_writer(const struct lora *lora, struct json_writer *w,
                         const char *name, int class);

/* Has a part before `index` the same last word, and an adapter? */
static bool is_said(const struct model *model, int index)
{
    char own[LORA_NAME_BYTES], other[LORA_NAME_BYTES];

    lora_stem(lora_part(model, index), 0, own);
    for (int i = 0; i < index; i++) {
        if (lora_site(&model->lora, 0, i) == 0) continue;
        lora_stem(lora_part(model, i), 0, other);
        if (strcmp(lora_last(own), lora_last(other)) == 0) return true;
    }
    return false;
}

static void write_site(const struct model *model, int layer, int index,
                       struct json_writer *w, site_writer *write)
{
    const struct outside *part = lora_part(model, index);
    const int class = lora_site(&model->lora, layer, index);
    const enum naming naming = naming_of(model);
    const int copies = naming == LAST_WORD ? 1 : lora_copies(model, index);
    char stem[LORA_NAME_BYTES], name[LORA_MODULE_BYTES];

    if (naming == LAST_WORD && is_said(model, index)) return;
    for (int i = 0; i < copies; i++) {
        lora_stem(part, i, stem);
        lora_module(model, layer, part, i, name);
        write(&model->lora, w, naming == WHOLE ? name :
              naming == IN_BLOCK ? stem : lora_last(stem), class);
    }
}

static void each_site(const struct model *model, struct json_writer *w,
                      struct chosen of, site_writer *write)
{
    const struct lora *lora = &model->lora;
    const int layers = lora->varied ? model->layers : 1;

    for (int layer = 0; layer < layers; layer++)
        for (int i = 0; i < LORA_PARTS; i++) {
            if (lora_site(lora, layer, i) == 0) continue;
            if (lora->varied && !lora_has(model, layer, i)) continue;
            if (of.joined && (i >= LORA_EXPERTS || i == LORA_ROUTER)) continue;
            if (of.sites != ALL_SITES &&
                (of.sites == PARAMETER_SITES) != (i == LORA_ROUTER))
                continue;
            write_site(model, layer, i, w, write);
        }
}

static void write_target(const struct lora *lora, struct json_writer *w,
                         const char *name, int class)
{
    (void)lora;
    (void)class;
    json_write_string(w, name);
}

/* The parameter of a module. Routers are no modules with a product of their own
 * in transformers. */
static void write_parameter(const struct lora *lora, struct json_writer *w,
                            const char *name, int class)
{
    char weight[LORA_MODULE_BYTES + 8];

    (void)class;
    snprintf(weight, sizeof weight, "%s.weight",
             lora->varied ? name : lora_last(name));
    json_write_string(w, weight);
}

static bool has_parameters(const struct model *model)
{
    if (lora_part(model, LORA_ROUTER) == NULL) return false;
    for (int layer = 0; layer < model->layers; layer++)
        if (lora_site(&model->lora, layer, LORA_ROUTER) > 0) return true;
    return false;
}

static void write_rank(const struct lora *lora, struct json_writer *w,
                       const char *name, int class)
{
    const int rank = lora->classes[class - 1].rank;

    if (rank != lora->rank) json_write_key_integer(w, name, rank);
}

static void write_alpha(const struct lora *lora, struct json_writer *w,
                        const char *name, int class)
{
    const double alpha = lora->classes[class - 1].alpha;

    if (alpha != lora->alpha) json_write_key_real(w, name, alpha);
}

static bool all_as_said(const struct lora *lora)
{
    return lora->class_count == 1 && lora->classes[0].rank == lora->rank &&
           lora->classes[0].alpha == lora->alpha;
}

/* ---- experts that share a tensor ---- */

/* A parameter of a block: what follows its module's name, and its adapter. */
struct joint {
    const char *module, *end;
    int rank;
    double alpha;
};

static void joint_of(const struct model *model, int layer, int which,
                     struct joint *out)
{
    const struct decoder *d = model_decoder(model);
    const int class = lora_has(model, layer, LORA_ROUTER)
                          ? lora_site(&model->lora, layer, LORA_ROUTER) : 0;
    const struct joint joints[] = {
        {d->moe.joined, "gate_up_proj", 0, 0},
        {d->moe.joined, "down_proj", 0, 0},
        {d->moe.joined_router, "weight", 0, 0}};

    *out = joints[which];
    if (which < 2) {
        out->rank = lora_joint(model, layer, which == 1, &out->alpha);
    } else if (class > 0) {
        out->rank = model->lora.classes[class - 1].rank;
        out->alpha = model->lora.classes[class - 1].alpha;
    }
}

enum joint_kind { JOINT_TARGET, JOINT_RANK, JOINT_ALPHA };

static void write_joint(const struct model *model, struct json_writer *w,
                        int layer, const struct joint *joint,
                        enum joint_kind kind)
{
    const char *prefix = model->kind->layer_prefix;
    char name[LORA_MODULE_BYTES];

    if (model->lora.varied)
        snprintf(name, sizeof name, "%.*s%d.%s.%s",
                 (int)(strstr(prefix, "%d") - prefix), prefix, layer,
                 joint->module, joint->end);
    else
        snprintf(name, sizeof name, "%s.%s", lora_last(joint->module),
                 joint->end);
    if (kind == JOINT_TARGET)
        json_write_string(w, name);
    else if (kind == JOINT_RANK && joint->rank != model->lora.rank)
        json_write_key_integer(w, name, joint->rank);
    else if (kind == JOINT_ALPHA && joint->alpha != model->lora.alpha)
        json_write_key_real(w, name, joint->alpha);
}

/* Every block has its own, or, where they are alike, the first that has any. */
static void write_joints(const struct model *model, struct json_writer *w,
                         enum joint_kind kind)
{
    bool said[3] = {false};

    for (int layer = 0; layer < model->layers; layer++)
        for (int i = 0; i < 3; i++) {
            struct joint joint;

            joint_of(model, layer, i, &joint);
            if (joint.rank == 0 || (said[i] && !model->lora.varied)) continue;
            said[i] = true;
            write_joint(model, w, layer, &joint, kind);
        }
}

static void write_sites(const struct model *model, bool joined,
                        struct json_writer *w)
{
    const struct chosen modules = {MODULE_SITES, joined};
    const struct chosen parameters = {PARAMETER_SITES, joined};
    const struct chosen all = {ALL_SITES, joined};

    json_write_key(w, "target_modules");
    json_write_array(w);
    each_site(model, w, modules, write_target);
    json_write_array_end(w);
    if (joined || has_parameters(model)) {
        json_write_key(w, "target_parameters");
        json_write_array(w);
        each_site(model, w, parameters, write_parameter);
        if (joined) write_joints(model, w, JOINT_TARGET);
        json_write_array_end(w);
    }
    if (all_as_said(&model->lora) && !joined) return;
    json_write_key(w, "rank_pattern");
    json_write_object(w);
    each_site(model, w, all, write_rank);
    if (joined) write_joints(model, w, JOINT_RANK);
    json_write_object_end(w);
    json_write_key(w, "alpha_pattern");
    json_write_object(w);
    each_site(model, w, all, write_alpha);
    if (joined) write_joints(model, w, JOINT_ALPHA);
    json_write_object_end(w);
}

static void write_root(const struct model *model, bool joined,
                       struct json_writer *w)
{
    const struct decoder *decoder = model_decoder(model);

    json_write_object(w);
    json_write_key_text(w, "peft_type", "LORA");
    json_write_key_text(w, "task_type", "CAUSAL_LM");
    json_write_key(w, "base_model_name_or_path");
    json_write_null(w);
    json_write_key_integer(w, "r", model->lora.rank);
    json_write_key(w, "lora_alpha");
    json_write_real(w, model->lora.alpha);
    if (model->lora.root) {
        json_write_key(w, "use_rslora");
        json_write_bool(w, true);
    }
    json_write_key(w, "lora_dropout");
    json_write_real(w, 0);
    json_write_key_text(w, "bias", "none");
    json_write_key(w, "fan_in_fan_out");
    json_write_bool(w, decoder->transposed);
    write_sites(model, joined, w);
    json_write_key(w, "inference_mode");
    json_write_bool(w, true);
    json_write_object_end(w);
}

status lora_write_config(const struct model *model, bool joined,
                         struct text *out)
{
    struct json_writer w;
    status result;

    json_write_begin(&w, 2);
    write_root(model, joined, &w);
    TRY_GOTO(done, result, json_write_end(&w));
    TRY_GOTO(done, result, text_append(out, w.out.bytes, w.out.length));
    TRY_GOTO(done, result, text_append_string(out, "\n"));
done:
    json_writer_free(&w);
    return result;
}
