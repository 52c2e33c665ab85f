/* SPDX-License-Identifier: Apache-2.0 */
/* policy.c - decisions about a step that went wrong. */
#include "step/policy.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/median.h"
#include "base/text.h"

static const char *const names[] = {
    [POLICY_NONE] = "none", [POLICY_STOP] = "stop", [POLICY_WARN] = "warn",
    [POLICY_SKIP] = "skip", [POLICY_REWIND] = "rewind",
    [POLICY_REPLAY] = "replay"};

const char *const policy_causes[] = {"",        "nan",    "spike",
                                     "replica", "repeat", NULL};
const char *const policy_subjects[] = {
    "loss", "gradient norm", "targets", "weights", "states", "gradients",
    NULL};

const char *policy_action_name(enum policy_action action)
{
    return names[action];
}

/* One of the `count` actions from `first` on, or `other`. */
static status parse(const char *key, const char *text,
                    const enum policy_action *known, int count,
                    enum policy_action *out)
{
    const char *list[4];

    for (int i = 0; i < count; i++) {
        list[i] = names[known[i]];
        *out = known[i];
        if (strcmp(text, list[i]) == 0) return OK;
    }
    const char *near = text_nearest(text, list, count);

    FAIL(ERR_CONFIG, "%s: %s is not one of its %d actions, %s%s", key, text,
         count, near != NULL ? "the nearest is " : "the first is ",
         near != NULL ? near : list[0]);
}

status policy_build(struct policy *policy, const struct options *o)
{
    static const enum policy_action nan_actions[] = {
        POLICY_STOP, POLICY_SKIP, POLICY_REWIND};
    static const enum policy_action spike_actions[] = {
        POLICY_NONE, POLICY_WARN, POLICY_SKIP, POLICY_REWIND};
    double **columns[] = {&policy->losses, &policy->norms, &policy->sorted};

    *policy = (struct policy){
        .window = o->train.spike_window, .sigma = o->train.spike_sigma,
        .norm = o->train.spike_norm, .limit = o->train.event_limit};
    TRY(parse("train.on_nan", o->train.on_nan, nan_actions, 3,
              &policy->on_nan));
    TRY(parse("train.on_spike", o->train.on_spike, spike_actions, 4,
              &policy->on_spike));
    if (!policy_watches(policy)) return OK;
    if (policy->sigma <= 0 && policy->norm <= 0)
        FAIL(ERR_CONFIG, "train.on_spike: %s, but train.spike_sigma and "
                         "train.spike_norm are both 0, so nothing is a spike",
             o->train.on_spike);
    for (int i = 0; i < 3; i++) {
        void *column;

        TRY(memory_take((size_t)policy->window, sizeof(double), &column));
        *columns[i] = column;
    }
    return OK;
}

const char *policy_rewind_option(const struct options *o)
{
    const char *name = names[POLICY_REWIND];

    if (strcmp(o->train.on_nan, name) == 0) return "train.on_nan";
    return strcmp(o->train.on_spike, name) == 0 ? "train.on_spike" : NULL;
}

void policy_free(struct policy *policy)
{
    memory_free(policy->losses);
    memory_free(policy->norms);
    memory_free(policy->sorted);
    *policy = (struct policy){0};
}

/* ---- judging ---- */

static double loss_threshold(const struct policy *policy)
{
    const double count = (double)policy->count;
    double mean = 0, squares = 0, sigma;

    for (int64_t i = 0; i < policy->count; i++) mean += policy->losses[i];
    mean /= count;
    for (int64_t i = 0; i < policy->count; i++) {
        const double d = policy->losses[i] - mean;

        squares += d * d;
    }
    sigma = sqrt(squares / count);
    /* On a flat curve noise would be far from the mean. */
    if (sigma < mean / 100) sigma = mean / 100;
    return mean + policy->sigma * sigma;
}

static double median_norm(const struct policy *policy)
{
    memcpy(policy->sorted, policy->norms,
           (size_t)policy->count * sizeof *policy->norms);
    return median_take(policy->sorted, policy->count);
}

static struct policy_verdict verdict(enum policy_action action,
                                     enum policy_cause cause,
                                     enum policy_subject what,
                                     double value, double threshold)
{
    return (struct policy_verdict){action, cause, what, value, threshold};
}

void policy_judge(const struct policy *policy, double loss, double norm,
                  struct policy_verdict *out)
{
    const double none = (double)NAN;

    *out = (struct policy_verdict){.action = POLICY_NONE};
    if (!isfinite(loss))
        *out =
            verdict(policy->on_nan, POLICY_CAUSE_NAN, POLICY_LOSS, loss, none);
    else if (!isfinite(norm))
        *out =
            verdict(policy->on_nan, POLICY_CAUSE_NAN, POLICY_NORM, norm, none);
    if (out->cause != POLICY_CAUSE_NONE || !policy_watches(policy) ||
        policy->count < policy->window)
        return;
    if (policy->sigma > 0) {
        const double threshold = loss_threshold(policy);

        if (loss > threshold)
            *out = verdict(policy->on_spike, POLICY_CAUSE_SPIKE, POLICY_LOSS,
                           loss, threshold);
    }
    if (policy->norm > 0 && out->cause == POLICY_CAUSE_NONE) {
        const double threshold = policy->norm * median_norm(policy);

        if (norm > threshold)
            *out = verdict(policy->on_spike, POLICY_CAUSE_SPIKE, POLICY_NORM,
                           norm, threshold);
    }
}

void policy_accept(struct policy *policy, double loss, double norm)
{
    if (!policy_watches(policy)) return;
    if (policy->count == policy->window) {
        const size_t rest = (size_t)(policy->window - 1) * sizeof(double);

        memmove(policy->losses, policy->losses + 1, rest);
        memmove(policy->norms, policy->norms + 1, rest);
        policy->count--;
    }
    policy->losses[policy->count] = loss;
    policy->norms[policy->count++] = norm;
}

/* ---- keeping ---- */

void policy_write(const struct policy *policy, struct json_writer *writer)
{
    if (!policy_watches(policy)) return;
    json_write_key_list(writer, "losses", policy->losses, policy->count,
                        json_write_real);
    json_write_key_list(writer, "norms", policy->norms, policy->count,
                        json_write_real);
}

static bool is_number(const struct json *json)
{
    return json->kind == JSON_INTEGER || json->kind == JSON_REAL;
}

status policy_read(struct policy *policy, const struct json *state,
                   const char *source)
{
    const struct json *losses = json_get(state, "losses");
    const struct json *norms = json_get(state, "norms");

    policy->count = 0;
    if (!policy_watches(policy) || losses == NULL) return OK;
    if (norms == NULL || losses->kind != JSON_ARRAY ||
        norms->kind != JSON_ARRAY || losses->count != norms->count)
        FAIL(ERR_FORMAT, "%s: losses and norms are not arrays of the same "
             "length",
             source);
    for (int i = 0; i < losses->count; i++) {
        if (!is_number(&losses->items[i]) || !is_number(&norms->items[i]))
            FAIL(ERR_FORMAT, "%s: losses or norms, item %d is not a number",
                 source, i);
        policy_accept(policy, losses->items[i].real, norms->items[i].real);
    }
    return OK;
}
