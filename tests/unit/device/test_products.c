/* SPDX-License-Identifier: Apache-2.0 */
/* test_products.c - mirrors src/device/products.c: which of a library's
 * algorithms a run takes. The library is one of our own, whose algorithms add
 * in other orders; one of them by how many rows and columns there are. */
#include "device/products.h"

#include <math.h>
#include "device/library.h"
#include "kernels/element.h"
#include "tests/test.h"

enum kind {
    SHAPED,  /* blocks of sums depend on rows and columns */
    REFUSES, /* makes no part */
    FORWARD, BACKWARD,
    FLAT     /* adds nothing */
};

static struct library {
    enum kind offers[GPU_OFFERS];
    int count, asked, copies;
    const char *fails;      /* what offers answer */
    int64_t asked_k;
    int negative, infinite, all; /* numbers of the first operand */
} library;

static struct gpu_products products;
static char *room;

static int64_t bytes_of(enum gpu_number number)
{
    return number == GPU_FLOAT32 ? 4 : 2;
}

static float number_at(const void *at, enum gpu_number number, int64_t index)
{
    return element_get(at, number == GPU_FLOAT32   ? DTYPE_F32
                           : number == GPU_FLOAT16 ? DTYPE_F16
                                                   : DTYPE_BF16, index);
}

static const char *lib_offers(struct gpu *gpu, const struct gpu_product *like,
                              size_t bytes,
                              struct gpu_algorithm offers[GPU_OFFERS],
                              int *count)
{
    (void)gpu;
    CHECK(bytes == PRODUCT_ROOM);
    library.asked++;
    library.asked_k = like->form.k;
    *count = library.count;
    for (int i = 0; i < library.count; i++)
        offers[i] = (struct gpu_algorithm){
            .words = {(uint64_t)library.offers[i]}};
    return library.fails;
}

static float sum_of(const struct gpu_product *p, int64_t row, int64_t column,
                    enum kind kind)
{
    const int64_t k = p->form.k;
    const int64_t block = kind == SHAPED && p->m + p->n < 150 ? 3 : 8;
    float sum = 0;

    for (int64_t first = 0; first < k; first += block) {
        float part = 0;

        for (int64_t j = first; j < first + block && j < k; j++) {
            const int64_t at = kind == BACKWARD ? k - 1 - j : j;

            part += number_at(p->a, p->form.number,
                              p->form.a_turned ? at * p->a_stride + row
                                               : row * p->a_stride + at) *
                    number_at(p->b, p->form.number,
                              p->form.b_turned ? column * p->b_stride + at
                                               : at * p->b_stride + column);
        }
        sum += part;
    }
    return sum;
}

static void is_inside(const void *at, int64_t rows, int64_t stride,
                      int64_t row, int64_t element)
{
    const char *first = at, *own = products.own.data;

    CHECK(first >= own);
    CHECK(row <= stride);
    CHECK(first + ((rows - 1) * stride + row) * element <=
          own + products.own.bytes);
}

static void look(const struct gpu_product *p)
{
    if (library.all > 0) return;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->form.k; j++, library.all++) {
            const float x = number_at(
                p->a, p->form.number, p->form.a_turned ? j * p->a_stride + i
                                                       : i * p->a_stride + j);

            library.negative += signbit(x) != 0;
            library.infinite += !isfinite(x);
        }
}

static const char *lib_product(struct gpu *gpu, const struct gpu_product *p,
                               const struct gpu_algorithm *algorithm,
                               const struct gpu_room *its_room)
{
    const enum kind kind = (enum kind)algorithm->words[0];
    const int64_t bytes = bytes_of(p->form.number), k = p->form.k;
    float *c = p->c;

    (void)gpu;
    CHECK((uintptr_t)its_room->data % PRODUCT_ALIGNED == 0 &&
          (char *)its_room->data >= room &&
          its_room->bytes == PRODUCT_ROOM);
    CHECK((char *)its_room->data + PRODUCT_ROOM <= (char *)products.own.data);
    CHECK(!p->form.aligned || ((uintptr_t)p->a % 16 == 0 &&
                               (uintptr_t)p->b % 16 == 0));
    if (p->form.a_turned) is_inside(p->a, k, p->a_stride, p->m, bytes);
    else is_inside(p->a, p->m, p->a_stride, k, bytes);
    if (p->form.b_turned) is_inside(p->b, p->n, p->b_stride, k, bytes);
    else is_inside(p->b, k, p->b_stride, p->n, bytes);
    is_inside(p->c, p->m, p->c_stride, p->n, 4);
    if (kind == REFUSES && p->m < PRODUCT_TRIED) return "not so few";
    look(p);
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++)
            c[i * p->c_stride + j] = kind == FLAT ? 0
                                                  : sum_of(p, i, j, kind);
    return NULL;
}

static const char *lib_copy(struct gpu *gpu, enum gpu_stream stream,
                            const struct gpu_copy *copy)
{
    (void)gpu;
    CHECK(stream == GPU_KERNELS && copy->rows == 1);
    library.copies++;
    memcpy(copy->to.at, copy->from.at, copy->row);
    return NULL;
}

static const char *lib_fill(struct gpu *gpu, void *to, int byte, size_t bytes)
{
    (void)gpu;
    memset(to, byte, bytes);
    return NULL;
}

static const char *lib_finish(struct gpu *gpu, enum gpu_stream stream)
{
    (void)gpu, (void)stream;
    return NULL;
}

static const char *lib_products(int64_t *version)
{
    *version = 130203;
    return NULL;
}

static const struct cuda_plugin plugin = {
    .copy = lib_copy, .fill = lib_fill, .finish = lib_finish,
    .products = lib_products, .offers = lib_offers, .product = lib_product};

/* Its room begins where the arena puts it: at a multiple of 64 bytes. */
static void begin(int count, const enum kind *offers)
{
    const size_t bytes = products_bytes(1, 1);

    library = (struct library){.count = count};
    for (int i = 0; i < count; i++) library.offers[i] = offers[i];
    CHECK(products_build(&products, &plugin, NULL) == NULL);
    room = aligned_alloc(4096, (bytes + 64 + 4095) / 4096 * 4096);
    products_place(&products, room + 64, bytes);
    CHECK((char *)products.own.data + products.own.bytes ==
          room + 64 + bytes);
}

static void end(void)
{
    free(room);
}

static const struct gpu_algorithm *find(const struct gpu_form *form)
{
    const struct gpu_algorithm *found = NULL;

    CHECK(products_find(&products, form, &found) == NULL);
    return found;
}

static const struct gpu_form some = {GPU_BFLOAT16, .aligned = true, .k = 40};

TEST(the_first_one_is_taken_that_has_the_same_bits_in_parts)
{
    const enum gpu_number numbers[] = {GPU_FLOAT32, GPU_BFLOAT16, GPU_FLOAT16};

    for (int i = 0; i < 12; i++) {
        const struct gpu_form form = {numbers[i / 4], i % 2 > 0, i / 2 % 2 > 0,
                                      i < 6, 40};

        begin(4, (enum kind[]){SHAPED, REFUSES, BACKWARD, FORWARD});
        CHECK(find(&form) != NULL);
        EQUAL_INT(find(&form)->words[0], BACKWARD);
        EQUAL_INT(products.choices[0].refused, 2);
        EQUAL_INT(library.infinite, 0);
        CHECK(library.negative > library.all / 4 &&
              library.negative < library.all * 3 / 4);
        end();
    }
}

TEST(a_form_is_asked_about_once)
{
    const struct gpu_form others[] = {
        some, {GPU_FLOAT16, false, false, true, 40},
        {GPU_BFLOAT16, true, false, true, 40},
        {GPU_BFLOAT16, false, true, true, 40},
        {GPU_BFLOAT16, false, false, false, 40},
        {GPU_BFLOAT16, false, false, true, 41}};

    begin(1, (enum kind[]){FORWARD});
    for (int i = 0; i < ROWS(others); i++) {
        CHECK(find(&others[i]) != NULL);
        EQUAL_INT(library.asked, i + 1);
        EQUAL_INT(library.asked_k, others[i].k);
    }
    for (int i = 0; i < ROWS(others); i++)
        CHECK(find(&others[i]) == &products.choices[i].algorithm);
    EQUAL_INT(library.asked, ROWS(others));
    end();
}

TEST(own_kernels_make_what_the_library_does_not)
{
    begin(0, NULL);
    CHECK(find(&some) == NULL && find(&some) == NULL);
    EQUAL_INT(library.asked, 1);
    EQUAL_INT(library.copies, 0);
    end();
    begin(2, (enum kind[]){SHAPED, REFUSES});
    CHECK(find(&some) == NULL && find(&some) == NULL);
    EQUAL_INT(library.asked, 1);
    EQUAL_INT(products.choices[0].refused, 2);
    end();
}

TEST(the_longest_sum_is_tried_in_the_room)
{
    const struct gpu_form forms[] = {
        {GPU_FLOAT32, false, false, false, PRODUCT_LONGEST},
        {GPU_FLOAT32, true, true, false, PRODUCT_LONGEST},
        {GPU_FLOAT16, true, false, true, 1}};

    begin(1, (enum kind[]){FLAT});
    for (int i = 0; i < ROWS(forms); i++) CHECK(find(&forms[i]) != NULL);
    end();
}

TEST(what_the_library_says_is_passed_on)
{
    const struct gpu_algorithm *found;

    begin(1, (enum kind[]){FORWARD});
    library.fails = "it says no";
    EQUAL_TEXT(products_find(&products, &some, &found), "it says no");
    EQUAL_INT(products.count, 0);
    library.fails = NULL;
    CHECK(find(&some) != NULL);
    end();
}

TEST(forms_have_an_end)
{
    const struct gpu_algorithm *found;
    struct gpu_form form = some;

    begin(0, NULL);
    for (int i = 0; i < PRODUCT_FORMS; i++) {
        form.k = i + 1;
        CHECK(find(&form) == NULL);
    }
    form.k++;
    CHECK(strstr(products_find(&products, &form, &found),
                 "more than 1024 forms") != NULL);
    EQUAL_INT(PRODUCT_FORMS, 1024);
    form.k = 7;
    CHECK(find(&form) == NULL);
    end();
}

TEST(a_version_is_three_numbers)
{
    char text[24];

    begin(0, NULL);
    library_version(products.version, text, sizeof text);
    EQUAL_TEXT(text, "13.2.3");
    end();
}

TEST_MAIN(the_first_one_is_taken_that_has_the_same_bits_in_parts,
          a_form_is_asked_about_once,
          own_kernels_make_what_the_library_does_not,
          the_longest_sum_is_tried_in_the_room,
          what_the_library_says_is_passed_on, forms_have_an_end,
          a_version_is_three_numbers)
