/* SPDX-License-Identifier: Apache-2.0 */
/* test_math.c - mirrors src/kernels/math.c, elementary.h and power.h: errors in
 * units of the last place against long double libm, special values, and a hash
 * that all compilers and machines must give. */
#include <math.h>
#include "kernels/activations.h"
#include "kernels/elementary.h"
#include "kernels/math.h"
#include "kernels/power.h"
#include "tests/test.h"

/* |found - exact| in units of the last place of a number of `digits` bits whose
 * smallest exponent is `low`. */
static double units(double found, long double exact, int digits, int low)
{
    int exponent;

    if (exact == 0) return found == 0 ? 0 : INFINITY;
    frexpl(exact, &exponent);
    if (exponent < low) exponent = low;
    return (double)(fabsl((long double)found - exact) /
                    ldexpl(1, exponent - digits));
}

static float sigmoid_exact_input(float x)
{
    return sigmoid_f32(x);
}

static long double sigmoid_exact(long double x)
{
    return 1 / (1 + expl(-x));
}

static float exp_found(float x) { return exp_f32(x); }
static float expz_found(float x) { return expz_f32(x); }
static float exp2z_found(float x) { return exp2z_f32(x); }
static float log_found(float x) { return log_f32(x); }
static float tanh_found(float x) { return tanh_f32(x); }
static float erf_found(float x) { return erf_f32(x); }
static float silu_found(float x) { return silu_f32(x); }

TEST(float32_functions_are_accurate)
{
    static const struct {
        const char *name;
        float (*found)(float);
        long double (*exact)(long double);
        float first, last;
        double units; /* the claim */
    } rows[] = {
        {"exp", exp_found, expl, -103.9f, 88.7f, 1.05},
        {"expz", expz_found, expl, -86.9f, 88.0f, 1.05},
        {"exp2z", exp2z_found, exp2l, -125.9f, 127.0f, 3.0},
        {"sigmoid", sigmoid_exact_input, sigmoid_exact, -80.0f, 80.0f, 2.6},
        {"log", log_found, logl, 1.2e-38f, 3e38f, 0.95},
        {"tanh", tanh_found, tanhl, -11.0f, 11.0f, 2.7},
        {"erf", erf_found, erfl, -5.0f, 5.0f, 1.2},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        double worst = 0;
        float at = 0;

        /* Every 509th float: all binades, no pattern. */
        for (uint32_t bits = 0; bits < 0xff800000u; bits += 509) {
            float x = f32_of_bits(bits);
            double error;

            if (!(x >= rows[i].first && x <= rows[i].last)) continue;
            error = units((double)rows[i].found(x),
                          rows[i].exact((long double)x), 24, -125);
            if (error > worst) worst = error, at = x;
        }
        if (worst > rows[i].units || worst < 0.5)
            print_error("%s: %.3f units at %a, claimed %.3f\n", rows[i].name,
                        worst, (double)at, rows[i].units);
        CHECK(worst <= rows[i].units && worst > 0.49);
    }
}

TEST(float32_special_values)
{
    CHECK(exp_f32(INFINITY) == INFINITY && exp_f32(-INFINITY) == 0);
    CHECK(exp_f32(89.0f) == INFINITY && exp_f32(0) == 1);
    CHECK(expz_f32(-INFINITY) == 0 && expz_f32(-87.5f) == 0);
    CHECK(exp2z_f32(-INFINITY) == 0 && exp2z_f32(-126.5f) == 0);
    CHECK(exp2z_f32(0) == 1 && exp2z_f32(-126.0f) == 0x1p-126f);
    CHECK(tanh_f32(INFINITY) == 1 && tanh_f32(-INFINITY) == -1);
    CHECK(signbit(tanh_f32(-0.0f)) && signbit(erf_f32(-0.0f)));
    CHECK(erf_f32(INFINITY) == 1 && erf_f32(-9.0f) == -1);
    CHECK(sigmoid_f32(-INFINITY) == 0 && sigmoid_f32(INFINITY) == 1);
    CHECK(log_f32(INFINITY) == INFINITY && log_f32(1) == 0);
    CHECK(isnan(exp_f32(NAN)) && isnan(expz_f32(NAN)) && isnan(erf_f32(NAN)) &&
          isnan(exp2z_f32(NAN)));
    CHECK(isnan(tanh_f32(NAN)) && isnan(log_f32(NAN)));
}

/* A GPU answers 0x7fffffff where a CPU answers 0x7fc00000 or its like: no
 * function may make a number of either by adding to its bits. */
TEST(every_nan_stays_nan)
{
    static const struct { const char *name; float (*found)(float); } rows[] = {
        {"exp", exp_found}, {"expz", expz_found}, {"exp2z", exp2z_found},
        {"sigmoid", sigmoid_exact_input}, {"silu", silu_found},
        {"log", log_found}, {"tanh", tanh_found}, {"erf", erf_found},
        {"gelu", gelu_tanh}, {"slope of gelu", gelu_tanh_slope},
        {"slope of erf", gelu_erf_slope}, {"slope of silu", silu_slope},
    };

    for (int i = 0; i < ROWS(rows); i++)
        for (uint32_t payload = 1; payload < 1u << 23; payload += 997) {
            const uint32_t quiet = payload | 1u << 22;
            const uint32_t all[] = {0x7f800000u | payload,
                                    0xff800000u | payload,
                                    0x7fffffffu - (payload & 0xfff),
                                    0xffffffffu - (payload & 0xfff),
                                    0x7f800000u | quiet, 0xff800000u | quiet};

            for (int j = 0; j < ROWS(all); j++)
                if (!isnan(rows[i].found(f32_of_bits(all[j]))))
                    fail_msg("%s of NaN 0x%08x is a number", rows[i].name,
                             all[j]);
        }
}

TEST(float64_functions_are_accurate)
{
    static const struct {
        const char *name;
        double (*found)(double);
        long double (*exact)(long double);
        double first, step, factor, last; /* x = x * factor + step */
        double units;
    } rows[] = {
        {"exp", math_exp, expl, -745.0, 0.00731, 1, 709.7, 1.0},
        {"log", math_log, logl, 1e-310, 0, 1.0071, 1e300, 1.0},
        {"log", math_log, logl, 0.5, 0.0000117, 1, 2, 1.0},
        {"sin", math_sin, sinl, -40, 0.00051, 1, 40, 1.6},
        {"sin", math_sin, sinl, 1, 0, 1.00013, 0x1p30, 1.6},
        {"cos", math_cos, cosl, -40, 0.00051, 1, 40, 1.6},
        {"cos", math_cos, cosl, 1, 0, 1.00013, 0x1p30, 1.6},
        {"tanh", math_tanh, tanhl, -22, 0.00023, 1, 22, 2.5},
        {"tanh", math_tanh, tanhl, 1e-20, 0, 1.0013, 1, 2.5},
        {"erf", math_erf, erfl, -7, 0.00011, 1, 7, 1.1},
        {"erf", math_erf, erfl, 1e-20, 0, 1.0013, 1, 1.1},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        double worst = 0, at = 0;

        for (double x = rows[i].first; x < rows[i].last;
             x = x * rows[i].factor + rows[i].step) {
            double error = units(rows[i].found(x),
                                 rows[i].exact((long double)x), 53, -1021);

            if (error > worst) worst = error, at = x;
        }
        if (worst > rows[i].units)
            print_error("%s: %.3f units at %a, claimed %.3f\n", rows[i].name,
                        worst, at, rows[i].units);
        CHECK(worst <= rows[i].units && worst > 0.49);
    }
}

TEST(powers_are_accurate)
{
    double worst = 0;

    for (double base = 1e-9; base < 1e9; base *= 1.0237)
        for (double power = -33; power < 33; power += 0.173) {
            long double exact = powl((long double)base, (long double)power);
            double error;

            if (exact < 1e-307L || exact > 1e308L) continue;
            error = units(math_pow(base, power), exact, 53, -1021);
            if (error > worst) worst = error;
        }
    CHECK(worst < 1.5);
    CHECK(math_pow(0.5, 2000) == 0 && math_pow(2, 2000) == INFINITY);
    CHECK(math_pow(7, 0) == 1 && math_pow(1, 1e300) == 1);
    CHECK(math_pow_int(3, 20) == 3486784401.0);
    CHECK(math_pow_int(2, -3) == 0.125 && math_pow_int(0.9, 0) == 1);
}

TEST(float64_special_values)
{
    CHECK(math_exp(INFINITY) == INFINITY && math_exp(-INFINITY) == 0);
    CHECK(math_log(0) == -INFINITY && isnan(math_log(-1)));
    CHECK(math_log(INFINITY) == INFINITY && isnan(math_log(NAN)));
    CHECK(isnan(math_exp(NAN)) && isnan(math_tanh(NAN)));
    CHECK(isnan(math_erf(NAN)) && math_erf(40) == 1 && math_erf(-40) == -1);
    CHECK(math_tanh(-40) == -1 && signbit(math_tanh(-0.0)));
    CHECK(math_sin(0) == 0 && math_cos(0) == 1);
}

/* FNV-1a over results: computed with gcc on x86-64 and the same everywhere. */
TEST(bits_are_the_same_everywhere)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (int i = 1; i <= 20000; i++) {
        double x = i * 0.0137 - 130, y = i * 1e-3;
        double values[] = {math_exp(x), math_log(y), math_sin(x), math_cos(x),
                           math_tanh(x / 50), math_erf(x / 20),
                           math_pow(y, x / 70)};

        for (int j = 0; j < ROWS(values); j++) {
            uint64_t bits;

            memcpy(&bits, &values[j], sizeof bits);
            hash = (hash ^ bits) * 0x100000001b3u;
        }
    }
    if (hash != 0x950beaea39a19803u)
        print_error("the hash is 0x%llxu\n",
                    (unsigned long long)hash);
    CHECK(hash == 0x950beaea39a19803u);
}

TEST_MAIN(float32_functions_are_accurate, float32_special_values,
          float64_functions_are_accurate, powers_are_accurate,
          float64_special_values, bits_are_the_same_everywhere,
          every_nan_stays_nan)
