/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_about.c - asks the plug-in of CUDA what it finds. */
#include "kernels/cuda_about.h"

#include <pthread.h>
#include <stdio.h>
#include "base/child.h"
#include "device/library.h"
#include "kernels/cuda/list.h"

enum { PATIENCE_MS = 60000, ABOUT_BYTES = 320, HEALTH_BYTES = 2048 };

static const struct gpu_kernel rows[] = {CUDA_KERNELS(CUDA_KERNEL_ROW)};
const struct gpu_kernels cuda_kernels = {rows, CUDA_KERNEL_COUNT};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct answer {
    enum cuda_found found;
    size_t foreign;
    bool healthy;
    char text[ABOUT_BYTES], health[HEALTH_BYTES];
};
static struct answer answer;
static bool asked;

static void look_there(void *to, const void *of)
{
    const struct cuda_plugin *plugin = of;
    struct answer *found = to;

    found->found = CUDA_UNUSABLE;
    if (plugin->about(found->text, sizeof found->text, &found->foreign))
        found->found = CUDA_LOADS;
    found->healthy = plugin->health(found->health, sizeof found->health);
}

static void say_unusable(const char *why)
{
    answer = (struct answer){.found = CUDA_UNUSABLE};
    snprintf(answer.text, sizeof answer.text, "%s", why);
    snprintf(answer.health, sizeof answer.health, "%s", why);
}

/* In a process of its own: once a process has asked a driver, processes that it
 * forks cannot use a GPU, and ranks may be forked later. */
static void ask(const struct cuda_plugin *plugin)
{
    struct answer heard;

    switch (child_ask(look_there, plugin, &heard, sizeof heard, PATIENCE_MS)) {
    case CHILD_ANSWERED: answer = heard; break;
    case CHILD_NONE:
        say_unusable("a process that asks the driver cannot be started");
        break;
    case CHILD_ENDED:
        say_unusable("the process that asked the driver ended without an "
                     "answer");
        break;
    case CHILD_LATE: say_unusable("the driver does not answer"); break;
    }
}

static void look(void)
{
    const struct cuda_plugin *plugin;
    const char *sentence;

    if (cuda_plugin_open(&cuda_kernels, &plugin) != OK) {
        say_unusable(status_message());
        status_clear();
        return;
    }
    if (plugin == NULL) {
        say_unusable("this build has no kernels for GPUs");
        answer.found = CUDA_ABSENT;
        return;
    }
    sentence = plugin->driver();
    if (sentence == NULL) ask(plugin);
    else say_unusable(sentence);
}

/* The answer stays as it is. */
static const struct answer *know(void)
{
    pthread_mutex_lock(&lock);
    if (!asked) look();
    asked = true;
    pthread_mutex_unlock(&lock);
    return &answer;
}

enum cuda_found cuda_about(char *text, size_t bytes)
{
    const struct answer *known = know();

    snprintf(text, bytes, "%s", known->text);
    return known->found;
}

bool cuda_health(char *text, size_t bytes)
{
    const struct answer *known = know();

    snprintf(text, bytes, "%s", known->health);
    return known->healthy;
}

/* A library that the plug-in opens. */
static bool about_library(char *text, size_t bytes, const char *option,
                          const char *(*open)(const struct cuda_plugin *,
                                              int64_t *version))
{
    const struct cuda_plugin *plugin;
    const char *sentence = "this build has no kernels for GPUs";
    char name[24];
    int64_t version = 0;

    if (cuda_plugin_open(&cuda_kernels, &plugin) != OK) {
        snprintf(text, bytes, "%s", status_message());
        status_clear();
        return false;
    }
    if (plugin != NULL) sentence = open(plugin, &version);
    library_version(version, name, sizeof name);
    if (sentence != NULL) snprintf(text, bytes, "%s", sentence);
    else snprintf(text, bytes, "%s (%s)", name, option);
    return sentence == NULL;
}

static const char *open_products(const struct cuda_plugin *plugin,
                                 int64_t *version)
{
    return plugin->products(version);
}

static const char *open_attention(const struct cuda_plugin *plugin,
                                  int64_t *version)
{
    return plugin->attention(version);
}

bool cuda_products(char *text, size_t bytes)
{
    return about_library(text, bytes, "numerics.gpu=fast", open_products);
}

bool cuda_attention(char *text, size_t bytes)
{
    return about_library(text, bytes, "numerics.attention", open_attention);
}

size_t cuda_foreign(void)
{
    return know()->foreign;
}
