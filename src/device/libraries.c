/* SPDX-License-Identifier: Apache-2.0 */
/* libraries.c - products by cuBLASLt and attention by cuDNN on the device cuda
 * (numerics.gpu=fast). */
#include <stdio.h>
#include "device/cuda.h"
#include "device/gpu.h"
#include "device/library.h"

bool gpu_makes_products(const struct device *device, enum gpu_number number)
{
    const struct gpu_products *products =
        &((const struct cuda *)device)->products;

    return products->is_on && products->number == number;
}

bool gpu_product_aligned(const struct device *device)
{
    return ((const struct cuda *)device)->products.aligned;
}

struct gpu_room gpu_product_room(struct device *device)
{
    return cuda_of(device)->products.own;
}

status gpu_product_made(struct device *device, const struct gpu_form *form,
                        bool *out)
{
    struct cuda *c = cuda_of(device);
    const struct gpu_algorithm *algorithm = NULL;
    const char *sentence = products_find(&c->products, form, &algorithm);

    *out = algorithm != NULL;
    return cuda_said(c, sentence);
}

status gpu_product(struct device *device, const struct gpu_product *product)
{
    struct cuda *c = cuda_of(device);
    const struct gpu_algorithm *algorithm;

    TRY(cuda_said(c, products_find(&c->products, &product->form, &algorithm)));
    CHECK(algorithm != NULL);
    return cuda_said(c, c->plugin->product(c->gpu, product, algorithm,
                                           &c->products.room));
}

bool gpu_has_attention(const struct device *device, int64_t length)
{
    const struct cuda *c = (const struct cuda *)device;

    return c->attention.is_on && c->attention.length == length;
}

bool gpu_has_flash(const struct device *device)
{
    return ((const struct cuda *)device)->attention.flash;
}

struct gpu_room gpu_attention_room(struct device *device)
{
    return cuda_of(device)->attention.room;
}

status gpu_attends(struct device *device, const struct attended_form *form,
                   bool *out)
{
    const struct cuda *c = cuda_of(device);

    *out = false;
    if (attended_room(form) > c->attention.room.bytes) return OK;
    return cuda_said(c, c->plugin->attends(c->gpu, form, out));
}

status gpu_attend(struct device *device, const struct gpu_attended *call)
{
    const struct cuda *c = cuda_of(device);

    return cuda_said(c, c->plugin->attend(c->gpu, call, &c->attention.room));
}

void cuda_room(struct device *device, void *at, size_t bytes)
{
    products_place(&cuda_of(device)->products, apart_own(device, at), bytes);
}

void cuda_attention_room(struct device *device, void *at, size_t bytes)
{
    char *own = apart_own(device, at);
    const size_t skip =
        attended_up((uintptr_t)own, ATTENDED_ALIGNED) - (uintptr_t)own;

    cuda_of(device)->attention.room =
        (struct gpu_room){own + skip, bytes - skip};
}

void cuda_maker(const struct device *device, char *text, size_t bytes)
{
    const struct cuda *c = (const struct cuda *)device;
    char products[24], attention[24];

    library_version(c->products.version, products, sizeof products);
    library_version(c->attention.version, attention, sizeof attention);
    if (!c->products.is_on)
        snprintf(text, bytes, "the kernels of this program");
    else if (c->attention.is_on)
        snprintf(text, bytes, "cuBLASLt %s with cuDNN %s on %s", products,
                 attention, c->name);
    else
        snprintf(text, bytes, "cuBLASLt %s on %s", products, c->name);
}

static status open_products(struct cuda *c, const struct device_choice *choice)
{
    const char *sentence = products_build(&c->products, c->plugin, c->gpu);

    c->products.number = choice->products.number;
    c->products.aligned = choice->products.aligned;

    if (sentence == NULL) return OK;
    FAIL(ERR_DEVICE, "numerics.gpu is fast: %s; take exact, or install cuBLAS "
                     "of CUDA 12 or 13", sentence);
}

static status open_attention(struct cuda *c,
                             const struct device_choice *choice)
{
    const char *sentence = c->plugin->attention(&c->attention.version);
    bool has;

    /* Its first call needs the GPU: here, not in the first step. */
    if (sentence == NULL) sentence = c->plugin->attends(c->gpu, NULL, &has);
    c->attention.length = choice->attention.length;
    c->attention.is_on = sentence == NULL;
    if (sentence == NULL) return OK;
    if (choice->attention.needed)
        FAIL(ERR_DEVICE, "numerics.attention is cudnn: %s; take auto or own, "
                         "or install cuDNN 9.15.1 or newer of CUDA 13",
             sentence);
    snprintf(c->attention.missing, sizeof c->attention.missing, "%s",
             sentence);
    return OK;
}

void device_attention(const struct device *device, char *text, size_t bytes)
{
    const struct cuda *c = (const struct cuda *)device;
    char version[24];

    library_version(c->attention.version, version, sizeof version);
    if (c->attention.is_on)
        snprintf(text, bytes, "by cuDNN %s", version);
    else
        snprintf(text, bytes, "by own kernels%s%s%s",
                 c->attention.flash ? " on tensor cores" : "",
                 c->attention.missing[0] != '\0' ? ": " : "",
                 c->attention.missing);
}

status cuda_open_libraries(struct cuda *c, const struct device_choice *choice)
{
    if (choice->products.sums > 0) TRY(open_products(c, choice));
    c->attention.flash = choice->attention.flash;
    return choice->attention.is_on ? open_attention(c, choice) : OK;
}
