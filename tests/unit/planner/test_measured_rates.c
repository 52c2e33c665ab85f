/* SPDX-License-Identifier: Apache-2.0 */
/* test_measured_rates.c - mirrors src/planner/measured_rates.c: rates of sizes
 * that were measured, and of sizes between them. */
#include "planner/measured_rates.h"

#include "tests/test.h"

static struct measured_product products[] = {
    {256, 256, 256, PRODUCT_NT, 32, 1, 2.0 * 256 * 256 * 256 / 1e9, 0,
     ACCUMULATOR_NONE},
    {1024, 256, 256, PRODUCT_NT, 32, 1, 2.0 * 1024 * 256 * 256 / 4e9, 0,
     ACCUMULATOR_NONE},
    {256, 256, 256, PRODUCT_NN, 32, 1, 2.0 * 256 * 256 * 256 / 8e9, 0,
     ACCUMULATOR_NONE},
    {256, 256, 256, PRODUCT_NT, 32, 2, 2.0 * 256 * 256 * 256 / 1.5e9, 0,
     ACCUMULATOR_NONE},
    {256, 256, 256, PRODUCT_NT, 32, 1, 2.0 * 256 * 256 * 256 / 2.5e7, 0,
     {14, 32, 128}},
};
static struct measured_work works[] = {
    {WORK_ATTENTION, 64, 16, 32, 1, 1e9, 1},
    {WORK_ATTENTION, 256, 16, 32, 1, 4e9, 1},
    {WORK_ATTENTION_BACK, 64, 16, 32, 1, 3e9, 1},
    {WORK_ATTENTION, 64, 16, 32, 4, 6e9, 1},
};
static const struct machine machine = {
    .products = products, .product_count = ROWS(products),
    .works = works, .work_count = ROWS(works)};

static bool near(double a, double b) { return a > 0.999 * b && a < 1.001 * b; }

static double product(double m, enum product_kind kind, int bits, int threads,
                      bool *exact)
{
    const struct product_size size = {m, 256, 256, kind,
                                      ACCUMULATOR_NONE};

    return measured_product_rate(&machine, &size, bits, threads, exact);
}

TEST(measured_sizes_keep_their_rates)
{
    bool exact;

    CHECK(near(product(256, PRODUCT_NT, 32, 1, &exact), 1e9) && exact);
    CHECK(near(product(1024, PRODUCT_NT, 32, 1, &exact), 4e9) && exact);
    CHECK(near(product(256, PRODUCT_NN, 32, 1, &exact), 8e9) && exact);
    CHECK(near(product(256, PRODUCT_NT, 32, 2, &exact), 1.5e9) && exact);
    CHECK(near(measured_work_rate(&machine, WORK_ATTENTION, 256, 16, 32, 1),
               4e9));
    CHECK(near(measured_work_rate(&machine, WORK_ATTENTION_BACK, 64, 16, 32, 1),
               3e9));
}

/* Products whose sums keep few bits are products of their own. */
TEST(accumulators_have_their_own_rates)
{
    struct product_size size = {256, 256, 256, PRODUCT_NT, {14, 32, 128}};
    bool exact;

    CHECK(near(measured_product_rate(&machine, &size, 32, 1, &exact), 2.5e7));
    CHECK(exact);
    size.accumulator.promote = 64;
    CHECK(measured_product_rate(&machine, &size, 32, 1, &exact) == 0);
}

/* Halfway in octaves: the geometric mean; an octave farther counts less. */
TEST(sizes_between_have_rates_between)
{
    bool exact;
    double rate = product(512, PRODUCT_NT, 32, 1, &exact);

    CHECK(near(rate, 2e9) && !exact);
    rate = product(300, PRODUCT_NT, 32, 1, &exact);
    CHECK(rate > 1e9 && rate < 1.1e9);
    CHECK(near(measured_work_rate(&machine, WORK_ATTENTION, 128, 16, 32, 1),
               2e9));
    /* One row alone says what it has, however far away. */
    CHECK(near(measured_work_rate(&machine, WORK_ATTENTION, 4096, 128, 32, 2),
               6e9));
}

/* Between measured rows of a measured width, slow or fast ones beside it say
 * nothing; between widths, a line through both. */
TEST(widths_that_were_measured_keep_their_rates)
{
    struct measured_work rows[] = {
        {WORK_ATTENTION, 64, 16, 32, 1, 4e9, 1},
        {WORK_ATTENTION, 256, 16, 32, 1, 4e9, 1},
        {WORK_ATTENTION, 64, 24, 32, 1, 1e9, 1},
        {WORK_ATTENTION, 256, 24, 32, 1, 1e9, 1},
        {WORK_ATTENTION, 64, 64, 32, 1, 9e9, 1}};
    const struct machine m = {.works = rows, .work_count = ROWS(rows)};
    const enum work work = WORK_ATTENTION;

    CHECK(near(measured_work_rate(&m, work, 128, 24, 32, 1), 1e9));
    CHECK(near(measured_work_rate(&m, work, 64, 19.595917942265424, 32, 1),
               2e9));
    CHECK(near(measured_work_rate(&m, work, 4096, 64, 32, 1), 9e9));
    CHECK(near(measured_work_rate(&m, work, 1, 8, 32, 1), 4e9));
    CHECK(near(measured_work_rate(&m, work, 256, 512, 32, 1), 9e9));
}

/* A rate is that of elements of so many bits; if nobody measured them, that of
 * wide ones. */
TEST(rates_are_of_the_type_of_elements)
{
    struct measured_work rows[] = {works[0], works[0], works[0]};
    const struct machine both = {.works = rows, .work_count = ROWS(rows)};

    rows[1].bits = 16;
    rows[1].seconds /= 2;
    rows[2].bits = 16;
    rows[2].work = WORK_ADD;
    const double width = (double)rows[0].width, n = (double)rows[0].rows;
    const double rate = rows[0].amount / rows[0].seconds;
    const enum work work = rows[0].work;

    CHECK(near(measured_work_rate(&both, work, n, width, 32, 1), rate));
    CHECK(near(measured_work_rate(&both, work, n, width, 16, 1), 2 * rate));
    CHECK(measured_work_rate(&both, WORK_ADD, n, width, 32, 1) == 0);
    CHECK(near(measured_work_rate(&machine, work, n, width, 16, 1),
               measured_work_rate(&machine, work, n, width, 32, 1)));
}

TEST(what_no_row_measured_has_no_rate)
{
    bool exact;

    CHECK(product(256, PRODUCT_TN, 32, 1, &exact) == 0 && !exact);
    CHECK(product(256, PRODUCT_NT, 16, 1, &exact) == 0 && !exact);
    CHECK(measured_work_rate(&machine, WORK_LOSS, 64, 16, 32, 1) == 0);
}

/* Files of older builds do not say the kind. */
TEST(a_row_without_a_kind_stands_for_all)
{
    struct measured_product row = products[0];
    const struct machine old = {.products = &row, .product_count = 1};
    const struct product_size size = {256, 256, 256, PRODUCT_TN,
                                      ACCUMULATOR_NONE};
    bool exact;

    row.kind = PRODUCT_KINDS;
    CHECK(near(measured_product_rate(&old, &size, 32, 1, &exact), 1e9));
}

/* Elements a second of one kind of call; 0: nobody measured it. */
static double rounding(const struct machine *of, uint64_t code, double rows,
                       int threads, bool *guess)
{
    return measured_rounding_rate(
        of, &(struct rounded_size){code, rows, 128, threads}, guess);
}

TEST(roundings_have_rates_of_their_kind)
{
    struct measured_rounding rows[] = {
        {"a", 1, 512, 128, 1, 512 * 128 / 1e9},
        {"a", 1, 2048, 128, 1, 2048 * 128 / 4e9},
        {"a", 1, 512, 128, 2, 512 * 128 / 3e9},
        {"b", 2, 512, 128, 1, 512 * 128 / 5e9}};
    const struct machine some = {.roundings = rows,
                                 .rounding_count = ROWS(rows)};
    bool guess;

    CHECK(near(rounding(&some, 1, 512, 1, &guess), 1e9));
    CHECK(near(rounding(&some, 1, 1024, 1, &guess), 2e9));
    CHECK(near(rounding(&some, 1, 512, 2, &guess), 3e9));
    CHECK(near(rounding(&some, 2, 2048, 1, &guess), 5e9));
    CHECK(rounding(&some, 3, 512, 1, &guess) == 0);
}

/* A whole table is a measurement of the sizes between its rows, too. One that
 * lost rows is of those that it has. */
TEST(rates_of_a_table_that_lost_rows_are_guesses)
{
    struct measured_rounding rows[] = {{"a", 1, 512, 128, 1, 1e-3}};
    const double width = (double)works[0].width, n = (double)works[0].rows;
    struct machine some = machine;
    bool guess;

    some.roundings = rows;
    some.rounding_count = ROWS(rows);
    CHECK(!measured_work_is_guess(&some, works[0].work, 3 * n, width, 32, 1));
    (void)rounding(&some, 1, 4096, 1, &guess);
    CHECK(!guess);
    some.left_out = (struct left_out){.works = 2, .roundings = 1};
    CHECK(measured_work_is_guess(&some, works[0].work, 3 * n, width, 32, 1));
    CHECK(!measured_work_is_guess(&some, works[0].work, n, width, 32, 1));
    (void)rounding(&some, 1, 4096, 1, &guess);
    CHECK(guess);
    (void)rounding(&some, 1, 512, 1, &guess);
    CHECK(!guess);
}

TEST_MAIN(measured_sizes_keep_their_rates, accumulators_have_their_own_rates,
          sizes_between_have_rates_between,
          widths_that_were_measured_keep_their_rates,
          rates_are_of_the_type_of_elements, what_no_row_measured_has_no_rate,
          a_row_without_a_kind_stands_for_all,
          roundings_have_rates_of_their_kind,
          rates_of_a_table_that_lost_rows_are_guesses)
