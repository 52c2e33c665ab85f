/* SPDX-License-Identifier: Apache-2.0 */
/* test_router.c - routers: which experts tokens choose, their gates, losses and
 * gradients (finite differences in float64), capacity, balance. */
#include "tests/unit/kernels/room.h"

enum { TOKENS = 12, EXPERTS = 12, LENGTH = 4 };

/* One router with losses of everything that it makes. */
struct a_router {
    struct router_form form;
    double logits[TOKENS * EXPERTS], bias[EXPERTS];
    double gates[TOKENS * EXPERTS], dgates[TOKENS * EXPERTS];
    double weights[TOKENS / LENGTH * EXPERTS];
    double balance[TOKENS], z[TOKENS];
    int32_t chosen[TOKENS * EXPERTS], mask[TOKENS];
    bool has_bias;
    double z_loss;
};

static const struct router_form forms[] = {
    {ROUTER_SOFTMAX, false, 0, EXPERTS, 2, 0, 0, ROUTER_GROUP_MAX, 0},
    {ROUTER_SOFTMAX, true, 0, EXPERTS, 3, 0, 0, ROUTER_GROUP_MAX, 0},
    {ROUTER_SOFTMAX, true, 2.5, EXPERTS, 4, 4, 2, ROUTER_GROUP_MAX, 0},
    {ROUTER_SOFTMAX, false, 16, EXPERTS, 6, 3, 2, ROUTER_GROUP_MAX, 0},
    {ROUTER_SIGMOID, false, 0, EXPERTS, 1, 0, 0, ROUTER_GROUP_MAX, 0},
    {ROUTER_SIGMOID, true, 2.5, EXPERTS, 4, 4, 2, ROUTER_GROUP_TOP2, 0},
    {ROUTER_SIGMOID, true, 0, EXPERTS, 3, 0, 0, ROUTER_GROUP_MAX, 0},
    {ROUTER_CHOSEN, false, 0, EXPERTS, 2, 0, 0, ROUTER_GROUP_MAX, 0},
    {ROUTER_CHOSEN, true, 0.5, EXPERTS, 4, 6, 3, ROUTER_GROUP_TOP2, 0},
    {ROUTER_CHOSEN, false, 0, EXPERTS, EXPERTS, 0, 0, ROUTER_GROUP_MAX, 0},
    {ROUTER_SOFTMAX, true, 0, EXPERTS, 1, 12, 5, ROUTER_GROUP_MAX, 0},
    {ROUTER_NEAR, false, 0, EXPERTS, 2, 0, 0, ROUTER_GROUP_MAX, 0.7},
    {ROUTER_NEAR, false, 2, EXPERTS, 4, 6, 3, ROUTER_GROUP_TOP2, 2},
    {ROUTER_NEAR, false, 0, EXPERTS, EXPERTS, 0, 0, ROUTER_GROUP_MAX, 0.02},
};
enum { FORMS = sizeof forms / sizeof *forms };

static struct router router_of(struct a_router *r)
{
    return (struct router){
        .form = r->form, .bias = r->has_bias ? r->bias : NULL,
        .logits = tensor_2d(r->logits, DTYPE_F64, TOKENS, r->form.experts),
        .gates = tensor_2d(r->gates, DTYPE_F64, TOKENS, r->form.choices),
        .chosen = r->chosen};
}

static struct router_losses losses_of(struct a_router *r)
{
    return (struct router_losses){
        .form = r->form, .weights = r->weights, .length = LENGTH,
        .z_loss = r->z_loss, .mask = r->mask, .chosen = r->chosen,
        .balance = r->balance, .z = r->z,
        .logits = tensor_2d(r->logits, DTYPE_F64, TOKENS, r->form.experts),
        .dgates = tensor_2d(r->dgates, DTYPE_F64, TOKENS, r->form.choices)};
}

static void router_build(struct a_router *r, const struct router_form *form,
                         uint64_t seed)
{
    memset(r, 0, sizeof *r);
    r->form = *form;
    assert_int_equal(router_form_check(form), OK);
    r->has_bias = seed % 2 == 0;
    r->z_loss = 0.01;
    for (int i = 0; i < TOKENS * EXPERTS; i++)
        r->logits[i] = 2 * room_number(&seed);
    for (int i = 0; i < TOKENS * EXPERTS; i++)
        r->dgates[i] = room_number(&seed);
    for (int i = 0; i < EXPERTS; i++) r->bias[i] = 0.3 * room_number(&seed);
    for (int i = 0; i < TOKENS / LENGTH * EXPERTS; i++)
        r->weights[i] = 1 + room_number(&seed);
    for (int i = 0; i < TOKENS; i++) r->mask[i] = i % 5 == 3 ? -1 : 7;
}

static void choose(struct a_router *r, int threads)
{
    struct stream stream = {0};
    const struct router call = router_of(r);

    assert_int_equal(threads_build(&stream.threads, threads), OK);
    assert_int_equal(kernels_reference_f64.router_choose(&stream, &call), OK);
    threads_free(stream.threads);
}

/* The loss: gates times dgates (dropped ones do not count), balance and z. */
static double loss_of(struct a_router *r, const int32_t *dropped)
{
    struct stream stream = {0};
    struct router_losses losses;
    double loss = 0;

    choose(r, 1);
    losses = losses_of(r);
    kernels_reference_f64.router_losses(&stream, &losses);
    for (int i = 0; i < TOKENS * r->form.choices; i++)
        if (dropped[i] >= 0) loss += r->gates[i] * r->dgates[i];
    for (int i = 0; i < TOKENS; i++) loss += 3 * (r->balance[i] + r->z[i]);
    return loss;
}

static void test_finite_differences(void **state)
{
    (void)state;
    for (int f = 0; f < 2 * FORMS; f++) {
        struct a_router r;
        struct router_losses back;
        struct stream stream = {0};
        double dlogits[TOKENS * EXPERTS];
        int32_t dropped[TOKENS * EXPERTS];

        router_build(&r, &forms[f / 2], (uint64_t)f);
        choose(&r, 1);
        for (int i = 0; i < TOKENS * r.form.choices; i++)
            dropped[i] = i % 7 == 2 ? -1 - r.chosen[i] : r.chosen[i];
        back = losses_of(&r);
        back.chosen = dropped;
        back.scale = 3;
        back.dlogits = tensor_2d(dlogits, DTYPE_F64, TOKENS, EXPERTS);
        /* dropped entries have gates of any gradient */
        kernels_reference_f64.router_backward(&stream, &back);
        for (int i = 0; i < TOKENS * EXPERTS; i++) {
            const double h = 1e-5, x = r.logits[i];
            double up, down;

            r.logits[i] = x + h;
            up = loss_of(&r, dropped);
            r.logits[i] = x - h;
            down = loss_of(&r, dropped);
            r.logits[i] = x;
            if (fabs((up - down) / (2 * h) - dlogits[i]) >
                1e-7 * (1 + fabs(dlogits[i])))
                fail_msg("form %d element %d: %g, differences say %g", f, i,
                         dlogits[i], (up - down) / (2 * h));
        }
    }
}

/* The rule by itself: an expert is chosen unless enough others are before it.
 */
static bool is_before(double a, int i, double b, int j)
{
    const bool nan_a = a != a, nan_b = b != b;

    if (nan_a || nan_b) return nan_a && (!nan_b || i < j);
    return a > b || (a == b && i < j);
}

/* Experts of the token that come before entry i's. */
static int before_in(const struct a_router *r, int i)
{
    const double *x = r->logits + i / r->form.choices * EXPERTS;
    const int e = r->chosen[i];
    int before = 0;

    for (int j = 0; j < EXPERTS; j++)
        if (j != e && is_before(x[j], j, x[e], e)) before++;
    return before;
}

static void test_choice_without_groups(void **state)
{
    (void)state;
    for (int f = 0; f < FORMS; f++) {
        struct a_router r;

        router_build(&r, &forms[f], 40);
        r.form.groups = 0;
        r.form.score = ROUTER_CHOSEN; /* keys are logits + bias */
        for (int i = 0; i < TOKENS * EXPERTS; i += 5)
            r.logits[i] = r.logits[i / EXPERTS * EXPERTS]; /* ties */
        r.logits[3] = r.logits[7] = (double)NAN;
        r.has_bias = false;
        choose(&r, 3);
        for (int i = 0; i < TOKENS * r.form.choices; i++)
            assert_int_equal(before_in(&r, i), i % r.form.choices);
    }
}

static void test_groups_limit(void **state)
{
    struct a_router r;
    const struct router_form form = {ROUTER_SIGMOID, true, 1, EXPERTS, 4, 4, 2,
                                     ROUTER_GROUP_TOP2, 0};

    (void)state;
    router_build(&r, &form, 8);
    /* token 0: group 0 has the largest key, groups 1 and 2 the largest sums */
    for (int j = 0; j < EXPERTS; j++) r.logits[j] = -3;
    r.has_bias = false;
    r.logits[0] = 4;
    r.logits[1] = r.logits[2] = -8;
    r.logits[3] = r.logits[4] = 3;
    r.logits[6] = r.logits[8] = 2;
    choose(&r, 1);
    assert_int_equal(r.chosen[0], 3);
    assert_int_equal(r.chosen[1], 4);
    assert_int_equal(r.chosen[2], 6);
    assert_int_equal(r.chosen[3], 8);
    r.form.group = ROUTER_GROUP_MAX;
    choose(&r, 1);
    assert_int_equal(r.chosen[0], 0);
    for (int t = 0; t < TOKENS; t++) {
        bool seen[4] = {false};
        int count = 0;

        for (int c = 0; c < 4; c++)
            seen[r.chosen[t * 4 + c] / 3] = true;
        for (int g = 0; g < 4; g++) count += seen[g];
        assert_true(count <= 2);
    }
}

static void test_all_tied_or_nan(void **state)
{
    (void)state;
    for (int f = 0; f < FORMS; f++) {
        struct a_router r;
        double sum = 0;

        router_build(&r, &forms[f], 3);
        for (int i = 0; i < TOKENS * EXPERTS; i++) r.logits[i] = 0.25;
        for (int j = 0; j < EXPERTS; j++) r.logits[EXPERTS + j] = (double)NAN;
        choose(&r, 2);
        for (int t = 0; t < TOKENS; t++)
            for (int c = 0; c < r.form.choices; c++)
                assert_int_equal(r.chosen[t * r.form.choices + c], c);
        for (int c = 0; c < r.form.choices; c++) {
            sum += r.gates[c];
            assert_true(isnan(r.gates[r.form.choices + c]));
        }
        if (r.form.normalised || r.form.score == ROUTER_CHOSEN)
            assert_true(fabs(sum - (r.form.scale == 0 ? 1 : r.form.scale)) <
                        1e-12);
    }
}

static void test_threads_do_not_show(void **state)
{
    struct a_router one, four;

    (void)state;
    for (int f = 0; f < FORMS; f++) {
        router_build(&one, &forms[f], 12);
        router_build(&four, &forms[f], 12);
        choose(&one, 1);
        choose(&four, 4);
        assert_memory_equal(one.gates, four.gates, sizeof one.gates);
        assert_memory_equal(one.chosen, four.chosen, sizeof one.chosen);
    }
}

/* Everything that the rows of a table make of one router in float32: every
 * other token has equal logits, and every seventh choice is dropped. */
struct made {
    float gates[TOKENS * EXPERTS], dlogits[TOKENS * EXPERTS];
    int32_t chosen[TOKENS * EXPERTS];
    double balance[TOKENS], z[TOKENS];
};

static void router_run(const struct kernels *table, const struct a_router *r,
                       struct made *out)
{
    const int k = r->form.choices;
    float logits[TOKENS * EXPERTS], dgates[TOKENS * EXPERTS], bias[EXPERTS];
    struct stream stream = {0};
    struct router call = {
        r->form, tensor_2d(logits, DTYPE_F32, TOKENS, EXPERTS),
        tensor_2d(out->gates, DTYPE_F32, TOKENS, k), bias, out->chosen};
    struct router_losses losses = {
        .form = r->form, .logits = call.logits, .weights = r->weights,
        .length = LENGTH, .z_loss = r->z_loss, .mask = r->mask,
        .balance = out->balance, .z = out->z, .chosen = out->chosen,
        .dgates = tensor_2d(dgates, DTYPE_F32, TOKENS, k),
        .dlogits = tensor_2d(out->dlogits, DTYPE_F32, TOKENS, EXPERTS)};

    memset(out, 0, sizeof *out);
    for (int i = 0; i < TOKENS * EXPERTS; i++) {
        const bool ties = i / EXPERTS % 2 == 1;

        logits[i] = ties ? rintf((float)r->logits[i]) : (float)r->logits[i];
        dgates[i] = (float)r->dgates[i];
    }
    for (int i = 0; i < EXPERTS; i++) bias[i] = (float)r->bias[i];
    if (!r->has_bias) call.bias = NULL;
    assert_int_equal(table->router_choose(&stream, &call), OK);
    for (int i = 0; i < TOKENS * k; i += 7)
        out->chosen[i] = -1 - out->chosen[i];
    assert_int_equal(table->router_losses(&stream, &losses), OK);
    assert_int_equal(table->router_backward(&stream, &losses), OK);
}

static void test_fast_equals_reference(void **state)
{
    (void)state;
    for (int f = 0; f < FORMS * ISA_COUNT; f++) {
        struct kernels table;
        struct a_router r;
        struct made want, have;

        if (!room_table(&table, (enum isa)(f % ISA_COUNT))) continue;
        router_build(&r, &forms[f / ISA_COUNT], (uint64_t)f);
        router_run(&kernels_reference_f32, &r, &want);
        router_run(&table, &r, &have);
        assert_memory_equal(&have, &want, sizeof want);
    }
}

/* ---- integers ---- */

static void test_balance_is_least_at_equal_counts(void **state)
{
    const int64_t even[4] = {5, 5, 5, 5}, skew[4] = {17, 1, 1, 1};
    const int64_t none[4] = {0};
    struct router_balance of = {even, 4, 2, 0.5, 0.25};
    double w[4];

    (void)state;
    router_balance(&of, w);
    for (int i = 0; i < 4; i++) assert_true(fabs(w[i] - 0.75) < 1e-15);
    of.counts = skew;
    router_balance(&of, w);
    assert_true(fabs(w[0] - (0.5 * 3.4 + 0.25 * 1.8)) < 1e-14);
    assert_true(fabs(w[3] - (0.5 * 0.2 + 0.25 * 0.2)) < 1e-14);
    of.counts = none;
    router_balance(&of, w);
    for (int i = 0; i < 4; i++) assert_true(w[i] == 0);
}

static void test_bias_balances(void **state)
{
    enum { MANY = 400, STEPS = 600 };
    static double logits[MANY * EXPERTS];
    static double gates[MANY * 2];
    static int32_t chosen[MANY * 2];
    struct router_form form = {ROUTER_SIGMOID, true, 1, EXPERTS, 2, 0, 0,
                               ROUTER_GROUP_MAX, 0};
    float bias[EXPERTS] = {0};
    double wide[EXPERTS], worst = 0;
    uint64_t seed = 5;
    struct stream stream = {0};

    (void)state;
    for (int i = 0; i < MANY * EXPERTS; i++) /* expert 0 is liked most */
        logits[i] = room_number(&seed) - 0.1 * (double)(i % EXPERTS);
    for (int step = 0; step < STEPS; step++) {
        int64_t counts[EXPERTS] = {0}, most = 0;
        const struct router_tokens tokens = {chosen, NULL, 0, MANY, 2};
        const struct router call = {
            form, tensor_2d(logits, DTYPE_F64, MANY, EXPERTS),
            tensor_2d(gates, DTYPE_F64, MANY, 2), wide, chosen};

        for (int i = 0; i < EXPERTS; i++) wide[i] = (double)bias[i];
        kernels_reference_f64.router_choose(&stream, &call);
        router_count(&tokens, counts);
        for (int i = 0; i < EXPERTS; i++)
            if (counts[i] > most) most = counts[i];
        worst = (double)most * EXPERTS / (2 * MANY);
        if (step == 0) assert_true(worst > 2);
        router_bias_step(bias, counts, EXPERTS, 0.001);
    }
    assert_true(worst < 1.1);
}

static void test_capacity_drops_what_is_predicted(void **state)
{
    enum { LONG = 64, K = 3 };
    int32_t chosen[LONG * K], whole[LONG * K], cut[LONG * K];
    const int64_t capacity = router_capacity(1.25, K, LONG, EXPERTS);
    int64_t used[EXPERTS] = {0}, parts[EXPERTS] = {0}, counts[EXPERTS] = {0};
    struct router_tokens of = {chosen, NULL, 0, LONG, K};
    int64_t dropped, again = 0, expected = 0;
    uint64_t seed = 9;

    (void)state;
    assert_int_equal(capacity, 20); /* 1.25 * 192 / 12 */
    assert_int_equal(router_capacity(1.1, 2, 40, 8), 11);
    assert_int_equal(router_capacity(1e30, 2, 40, 8), 40);
    for (int t = 0; t < LONG; t++)
        for (int c = 0; c < K; c++) /* expert 0 takes part in every token */
            chosen[t * K + c] = c == 0 ? 0 : (int)(fabs(room_number(&seed)) *
                                                   5) + 1 + 5 * (c - 1);
    dropped = router_drop(&of, whole, capacity, used);
    router_count(&of, counts);
    for (int i = 0; i < EXPERTS; i++)
        if (counts[i] > capacity) expected += counts[i] - capacity;
    assert_int_equal(dropped, expected);
    assert_true(dropped >= LONG - capacity);
    for (int t = 0; t < LONG; t++) /* by position: the first ones stay */
        assert_int_equal(whole[t * K] < 0, t >= capacity);
    for (int i = 0; i < LONG * K; i++)
        assert_int_equal(whole[i] < 0 ? -1 - whole[i] : whole[i], chosen[i]);
    for (int first = 0; first < LONG; first += 16) { /* chunks, with counts */
        of.first = first;
        of.tokens = 16;
        again += router_drop(&of, cut, capacity, parts);
    }
    assert_int_equal(again, dropped);
    assert_memory_equal(cut, whole, sizeof whole);
}

/* Against the definition: f' is the mean f of a device's experts, P' the sum of
 * their probabilities, and the loss of a token is alpha times the sum of f' P'
 * over devices. */
static void test_device_loss(void **state)
{
    enum { ALL = 12, DEVICES = 3, EACH = ALL / DEVICES };
    const int64_t counts[ALL] = {7, 0, 2, 1, 9, 9, 0, 3, 1, 1, 30, 5};
    struct router_balance of = {.counts = counts, .experts = ALL,
                                .devices = DEVICES, .alpha_device = 0.3};
    double weights[ALL], p[ALL], expected = 0, found = 0;
    int64_t total = 0;
    uint64_t seed = 7;

    (void)state;
    for (int i = 0; i < ALL; i++) total += counts[i];
    for (int i = 0; i < ALL; i++) p[i] = fabs(room_number(&seed));
    for (int d = 0; d < DEVICES; d++) {
        double f = 0, sum = 0;

        for (int i = d * EACH; i < (d + 1) * EACH; i++) {
            f += (double)counts[i] * ALL / (double)total / EACH;
            sum += p[i];
        }
        expected += 0.3 * f * sum;
    }
    router_balance(&of, weights);
    for (int i = 0; i < ALL; i++) found += weights[i] * p[i];
    assert_true(fabs(found - expected) < 1e-14 * expected);
    of.alpha = 0.2; /* both at once: their sum */
    router_balance(&of, weights);
    for (int i = 0; i < ALL; i++)
        found += 0.2 * (double)counts[i] * ALL / (double)total * p[i];
    for (int i = 0; i < ALL; i++) found -= weights[i] * p[i];
    assert_true(fabs(found) < 1e-13);
}

static void test_bad_forms(void **state)
{
    static const struct router_form bad[] = {
        {ROUTER_SOFTMAX, false, 0, 0, 1, 0, 0, ROUTER_GROUP_MAX, 0},
        {ROUTER_SOFTMAX, false, 0, 8, 9, 0, 0, ROUTER_GROUP_MAX, 0},
        {ROUTER_SOFTMAX, false, 0, 8, 0, 0, 0, ROUTER_GROUP_MAX, 0},
        {ROUTER_SOFTMAX, false, 0, 8, 2, 3, 2, ROUTER_GROUP_MAX, 0},
        {ROUTER_SOFTMAX, false, 0, 8, 2, 4, 5, ROUTER_GROUP_MAX, 0},
        {ROUTER_SOFTMAX, false, 0, 8, 3, 8, 2, ROUTER_GROUP_MAX, 0},
        {ROUTER_SIGMOID, false, 0, 8, 2, 8, 2, ROUTER_GROUP_TOP2, 0},
        {ROUTER_SOFTMAX, false, 0, 2000, 2, 0, 0, ROUTER_GROUP_MAX, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(router_form_check(&bad[i]), ERR_CONFIG);
        status_clear();
    }
}

/* ---- jitter ---- */

static void test_jitter(void **state)
{
    enum { ROWS = 5, WIDTH = 150 };
    float x[ROWS * WIDTH], y[ROWS * WIDTH], fast[ROWS * WIDTH];
    struct dropout_row rows[ROWS];
    struct stream stream = {0};
    struct jitter call = {
        tensor_2d(y, DTYPE_F32, ROWS, WIDTH),
        tensor_2d(x, DTYPE_F32, ROWS, WIDTH), {{3, 4}}, rows, 0.25};
    double mean = 0, least = 2, most = 0;
    struct kernels table;
    uint64_t seed = 2;

    (void)state;
    for (int i = 0; i < ROWS * WIDTH; i++) x[i] = (float)room_number(&seed);
    for (uint64_t i = 0; i < ROWS; i++)
        rows[i] = (struct dropout_row){i, i << 20};
    assert_int_equal(kernels_reference_f32.jitter(&stream, &call), OK);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        const double factor = (double)y[i] / (double)x[i];

        mean += factor / (ROWS * WIDTH);
        least = factor < least ? factor : least;
        most = factor > most ? factor : most;
    }
    assert_true(fabs(mean - 1) < 0.03 && least < 0.77 && most > 1.23);
    assert_true(least >= 0.7499 && most <= 1.2501);
    for (enum isa isa = ISA_PLAIN; isa < ISA_COUNT; isa++) {
        if (!room_table(&table, isa)) continue;
        call.y.data = fast;
        assert_int_equal(table.jitter(&stream, &call), OK);
        assert_memory_equal(fast, y, sizeof y);
    }
    call.y = tensor_2d(fast + WIDTH, DTYPE_F32, 1, WIDTH); /* a row alone */
    call.x = tensor_2d(x + WIDTH, DTYPE_F32, 1, WIDTH);
    call.rows = rows + 1;
    memset(fast, 0, sizeof fast);
    kernels_reference_f32.jitter(&stream, &call);
    assert_memory_equal(fast + WIDTH, y + WIDTH, WIDTH * sizeof *y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_choice_without_groups),
        cmocka_unit_test(test_groups_limit),
        cmocka_unit_test(test_all_tied_or_nan),
        cmocka_unit_test(test_threads_do_not_show),
        cmocka_unit_test(test_fast_equals_reference),
        cmocka_unit_test(test_balance_is_least_at_equal_counts),
        cmocka_unit_test(test_bias_balances),
        cmocka_unit_test(test_capacity_drops_what_is_predicted),
        cmocka_unit_test(test_device_loss),
        cmocka_unit_test(test_bad_forms),
        cmocka_unit_test(test_jitter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
