/* SPDX-License-Identifier: Apache-2.0 */
/* products.c - chooses algorithms of the library of products. */
#include "device/products.h"

#include <stdio.h>
#include <string.h>
#include "base/arena.h"
#include "device/library.h"

enum {
    ASKED = 4096,    /* rows and columns that the library is asked about */
    ROWS_LEAST = 16, /* of a sum that waits */
    OWN_MOST = 64 << 20,
    SLACK = 16 * ARENA_ALIGN
};

static size_t element_bytes(enum gpu_number number)
{
    return number == GPU_FLOAT32 ? 4 : 2;
}

/* Both operands, rows a little longer than they need, and the result. */
static size_t tried_bytes(int64_t k, size_t element)
{
    const size_t longest = k > PRODUCT_TRIED ? (size_t)k : PRODUCT_TRIED;

    return 2 * (PRODUCT_TRIED + 16) * (longest + 16) * element +
           PRODUCT_TRIED * PRODUCT_TRIED * sizeof(float) + SLACK;
}

size_t products_bytes(int64_t widest, int sums)
{
    const size_t row = (size_t)widest * (size_t)sums * sizeof(float);
    const size_t tried = tried_bytes(PRODUCT_LONGEST, sizeof(float));
    size_t own = PRODUCT_TRIED * row;

    if (own > OWN_MOST) own = OWN_MOST;
    if (own < ROWS_LEAST * row) own = ROWS_LEAST * row;
    if (own < tried) own = tried;
    return PRODUCT_ALIGNED + PRODUCT_ROOM + arena_aligned(own);
}

const char *products_build(struct gpu_products *products,
                           const struct cuda_plugin *plugin, struct gpu *gpu)
{
    *products = (struct gpu_products){.is_on = true, .plugin = plugin,
                                      .gpu = gpu};
    return plugin->products(&products->version);
}

void library_version(int64_t version, char *text, size_t bytes)
{
    snprintf(text, bytes, "%d.%d.%d", (int)(version / 10000),
             (int)(version / 100 % 100), (int)(version % 100));
}

void products_place(struct gpu_products *products, void *at, size_t bytes)
{
    const size_t skip = -(uintptr_t)at % PRODUCT_ALIGNED;
    char *room = (char *)at + skip;

    products->room = (struct gpu_room){room, PRODUCT_ROOM};
    products->own = (struct gpu_room){room + PRODUCT_ROOM,
                                      bytes - skip - PRODUCT_ROOM};
}

/* ---- a product that is tried ---- */

struct trial {
    struct gpu_products *products;
    struct gpu_product whole; /* [PRODUCT_TRIED, PRODUCT_TRIED] */
};

/* A number of either sign, from 2^-12 to 2^8: sums of such ones are rounded
 * everywhere. */
static void set_number(char *at, enum gpu_number number, uint32_t word)
{
    const uint32_t sign = word >> 31, power = word % 20, rest = word >> 5;
    const uint32_t bits =
        sign << 31 | (127 - 12 + power) << 23 | (rest & 0x7fffff);
    const uint16_t bfloat = (uint16_t)(bits >> 16);
    const uint16_t half = (uint16_t)(sign << 15 | (15 - 12 + power) << 10 |
                                     (rest & 0x3ff));

    switch (number) {
    case GPU_FLOAT32: memcpy(at, &bits, sizeof bits); break;
    case GPU_BFLOAT16: memcpy(at, &bfloat, sizeof bfloat); break;
    case GPU_FLOAT16: memcpy(at, &half, sizeof half); break;
    }
}

static const char *copy(const struct trial *t, enum gpu_way way, void *to,
                        const void *from, size_t bytes)
{
    return t->products->plugin->copy(t->products->gpu, GPU_KERNELS,
                                     &(struct gpu_copy){
        way, {to, 0}, {(void *)(uintptr_t)from, 0}, 1, bytes});
}

/* Numbers of both signs, the same for every rank. */
static const char *set_operands(struct trial *t)
{
    const struct gpu_product *p = &t->whole;
    const size_t element = element_bytes(p->form.number);
    const char *end = p->c;
    char *numbers = t->products->host.numbers;
    const char *sentence = NULL;
    uint32_t word = 2463534242u;

    for (const char *at = p->a; at < end && sentence == NULL;
         at += PRODUCT_NUMBERS) {
        const size_t left = (size_t)(end - at);
        const size_t bytes = left < PRODUCT_NUMBERS ? left : PRODUCT_NUMBERS;

        for (size_t i = 0; i + element <= bytes; i += element) {
            word ^= word << 13, word ^= word >> 17, word ^= word << 5;
            set_number(numbers + i, p->form.number, word);
        }
        sentence = copy(t, GPU_TO_DEVICE, (void *)(uintptr_t)at, numbers,
                        bytes);
        if (sentence == NULL)
            sentence = t->products->plugin->finish(t->products->gpu,
                                                   GPU_KERNELS);
    }
    return sentence;
}

static const char *run_part(const struct trial *t,
                            const struct gpu_algorithm *algorithm,
                            const int64_t row[2], const int64_t column[2])
{
    struct gpu_product part = t->whole;
    const size_t element = element_bytes(part.form.number);

    part.m = row[1] - row[0];
    part.n = column[1] - column[0];
    part.a = (const char *)part.a +
             (size_t)(row[0] * (part.form.a_turned ? 1 : part.a_stride)) *
                 element;
    part.b = (const char *)part.b +
             (size_t)(column[0] * (part.form.b_turned ? part.b_stride : 1)) *
                 element;
    part.c = (float *)part.c + row[0] * part.c_stride + column[0];
    return t->products->plugin->product(t->products->gpu, &part, algorithm,
                                        &t->products->room);
}

/* In cuts x cuts parts of different sizes. */
static const char *run_parts(const struct trial *t,
                             const struct gpu_algorithm *algorithm, int cuts,
                             float *sums)
{
    static const int64_t at[] = {0, 8, 24, 48, PRODUCT_TRIED};
    const int64_t all[] = {0, PRODUCT_TRIED};
    const struct cuda_plugin *plugin = t->products->plugin;
    const size_t bytes = PRODUCT_TRIED * PRODUCT_TRIED * sizeof *sums;
    const char *sentence =
        plugin->fill(t->products->gpu, t->whole.c, 0xff, bytes);

    for (int i = 0; i < cuts && sentence == NULL; i++)
        for (int j = 0; j < cuts && sentence == NULL; j++)
            sentence = run_part(t, algorithm, cuts > 1 ? &at[i] : all,
                                cuts > 1 ? &at[j] : all);
    if (sentence != NULL) return sentence;
    sentence = copy(t, GPU_TO_HOST, sums, t->whole.c, bytes);
    if (sentence != NULL) return sentence;
    return plugin->finish(t->products->gpu, GPU_KERNELS);
}

/* An algorithm that cannot make one of the parts is none. */
static bool is_alike(struct trial *t, const struct gpu_algorithm *algorithm)
{
    float (*sums)[PRODUCT_TRIED * PRODUCT_TRIED] = t->products->host.sums;

    return run_parts(t, algorithm, 1, sums[0]) == NULL &&
           run_parts(t, algorithm, 4, sums[1]) == NULL &&
           memcmp(sums[0], sums[1], sizeof sums[0]) == 0;
}

static int64_t stride_of(const struct gpu_form *form, int64_t dense)
{
    const int64_t full = (dense + 7) / 8 * 8;

    return form->aligned ? full : full + 1;
}

/* A product of that form with so many rows and columns. */
static struct gpu_product product_of(const struct gpu_form *form, int64_t most)
{
    return (struct gpu_product){
        .form = *form, .m = most, .n = most,
        .a_stride = stride_of(form, form->a_turned ? most : form->k),
        .b_stride = stride_of(form, form->b_turned ? form->k : most),
        .c_stride = most};
}

static void place_operands(struct trial *t)
{
    struct gpu_product *p = &t->whole;
    const size_t element = element_bytes(p->form.number);
    char *at = t->products->own.data;
    const int64_t a_rows = p->form.a_turned ? p->form.k : p->m;
    const int64_t b_rows = p->form.b_turned ? p->n : p->form.k;

    p->a = at;
    at += arena_aligned((size_t)(a_rows * p->a_stride) * element);
    p->b = at;
    p->c = at + arena_aligned((size_t)(b_rows * p->b_stride) * element);
}

static const char *choose_alike(struct trial *t, struct product_choice *choice,
                                const struct gpu_algorithm *offers, int count)
{
    const char *sentence = set_operands(t);

    for (int i = 0; i < count && sentence == NULL && !choice->is_made; i++) {
        choice->algorithm = offers[i];
        choice->is_made = is_alike(t, &offers[i]);
        if (!choice->is_made) choice->refused++;
    }
    return sentence;
}

static const char *try_offers(struct gpu_products *products,
                              struct product_choice *choice,
                              const struct gpu_algorithm *offers, int count)
{
    struct trial t = {.products = products,
                      .whole = product_of(&choice->form, PRODUCT_TRIED)};

    place_operands(&t);
    CHECK((char *)t.whole.c + sizeof products->host.sums[0] <=
          (char *)products->own.data + products->own.bytes);
    return choose_alike(&t, choice, offers, count);
}

static const char *choose(struct gpu_products *products,
                          struct product_choice *choice)
{
    const struct gpu_product like = product_of(&choice->form, ASKED);
    struct gpu_algorithm offers[GPU_OFFERS];
    int count;
    const char *sentence = products->plugin->offers(
        products->gpu, &like, products->room.bytes, offers, &count);

    if (sentence != NULL || count == 0) return sentence;
    return try_offers(products, choice, offers, count);
}

static bool is_same(const struct gpu_form *a, const struct gpu_form *b)
{
    return a->number == b->number && a->a_turned == b->a_turned &&
           a->b_turned == b->b_turned && a->aligned == b->aligned &&
           a->k == b->k;
}

const char *products_find(struct gpu_products *products,
                          const struct gpu_form *form,
                          const struct gpu_algorithm **out)
{
    struct product_choice *choice = products->choices;
    const char *sentence;

    *out = NULL;
    while (choice < products->choices + products->count &&
           !is_same(&choice->form, form))
        choice++;
    if (choice == products->choices + PRODUCT_FORMS)
        return "products of this run have more than 1024 forms (types and "
               "lengths of sums); numerics.gpu=exact takes any number";
    if (choice == products->choices + products->count) {
        *choice = (struct product_choice){.form = *form};
        sentence = choose(products, choice);
        if (sentence != NULL) return sentence;
        products->count++;
    }
    if (choice->is_made) *out = &choice->algorithm;
    return NULL;
}
