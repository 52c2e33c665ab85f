/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn_offline.c - cuDNN itself is asked for plans of our graphs of attention,
 * for a GPU that is only described: cudnn_offline LIBRARY DESCRIPTION. It takes
 * the graphs, has an engine whose room is at most what the plan of memory says,
 * and compiles its kernels; nothing can load those where no GPU is. Prints a
 * line for each form, and ends with 1 where one is refused. */
#include <dlfcn.h>
#include <stdio.h>
#include "kernels/cuda/plugin/attention_plan.h"

static const struct {
    int length, heads, kv_heads, width, window, documents;
} forms[] = {{1024, 12, 12, 64, 0, 1}, {4096, 8, 2, 128, 0, 0},
             {8192, 4, 1, 128, 4096, 1}, {24, 2, 1, 8, 0, 1},
             {1000, 4, 4, 256, 100, 0}};
enum { FORMS = sizeof forms / sizeof *forms };

static struct attended_form form_of(int i, int backward)
{
    const int64_t own = (int64_t)forms[i].heads * forms[i].width;
    const int64_t row = own + 2 * forms[i].kv_heads * forms[i].width;

    return (struct attended_form){
        .length = forms[i].length, .window = forms[i].window,
        .heads = forms[i].heads, .kv_heads = forms[i].kv_heads,
        .width = forms[i].width, .backward = backward,
        .documents = forms[i].documents, .q_row = row, .k_row = row,
        .out_row = own, .statistics_row = forms[i].heads,
        .dq_row = backward ? row : 0, .dk_row = backward ? row : 0,
        .dout_row = backward ? own : 0};
}

static int try_form(const struct dnn *dnn, const struct dnn_target *on, int i,
                    int backward)
{
    const struct attended_form f = form_of(i, backward);
    const size_t most = attended_room(&f) - attended_sums(&f);
    struct attention_plan plan;
    const int answer = attention_plan_make(dnn, on, &f, most, &plan);
    const struct attention_offer *offer =
        &plan.offers[plan.offered > 0 ? plan.offered - 1 : 0];
    const bool fits = (answer == DNN_NOT_LOADED || plan.plan != NULL) &&
                      plan.offered > 0 && offer->is_ordered &&
                      offer->room <= most;

    printf("%s %d tokens, heads %d/%d of %d, window %d, documents %d: %s "
           "operations %d engine %d room %zu of %zu\n",
           backward ? "backward" : "forward", forms[i].length, forms[i].heads,
           forms[i].kv_heads, forms[i].width, forms[i].window,
           forms[i].documents, fits ? "made" : "refused", plan.operations,
           (int)offer->engine, offer->room, most);
    attention_plan_free(&plan);
    return fits ? 0 : 1;
}

int main(int count, char **words)
{
    static char text[4096];
    struct dnn dnn = {.library = count == 3 ? dlopen(words[1], RTLD_NOW)
                                            : NULL};
    FILE *file = count == 3 ? fopen(words[2], "r") : NULL;
    struct dnn_target on = {.handle = NULL};
    int wrong = 0;

    if (dnn.library == NULL || file == NULL)
        return printf("not run: %s\n", dlerror()), 77;
    const size_t bytes = fread(text, 1, sizeof text, file);

    fclose(file);
#define FIND(result, name, ...)                                            \
    *(void **)&dnn.name##_ = dlsym(dnn.library, #name);                    \
    if (dnn.name##_ == NULL) return printf("no %s\n", #name), 1;
    DNN_FUNCTIONS(FIND)
    printf("version %zu\n", dnn.cudnnGetVersion_());
    if (dnn.cudnnBackendCreateDescriptor_(DNN_PROPERTIES, &on.properties) ||
        dnn.cudnnBackendSetAttribute_(on.properties, DNN_PROPERTIES_JSON,
                                      DNN_OF_CHARACTER, (int64_t)bytes, text) ||
        dnn.cudnnBackendFinalize_(on.properties))
        return printf("the description of the GPU is refused\n"), 1;
    for (int i = 0; i < FORMS; i++)
        for (int backward = 0; backward < 2; backward++)
            wrong += try_form(&dnn, &on, i, backward);
    return wrong > 0;
}
