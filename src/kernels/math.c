/* SPDX-License-Identifier: Apache-2.0 */
/* math.c - our own elementary functions in float64.
 *
 * Exponentials, sines and logarithms: elementary64.h. All coefficients are own
 * fits (weighted minimax in 50 digits) except those of series, which say so. */
#include <math.h>
#include "kernels/elementary64.h"
#include "kernels/math.h"

/* Horner's scheme, highest coefficient first. */
static double polynomial(const double *coefficients, int count, double x)
{
    double sum = coefficients[0];

    for (int i = 1; i < count; i++) sum = fma(sum, x, coefficients[i]);
    return sum;
}

double math_exp(double x)
{
    return exp_f64(x);
}

double math_log(double x)
{
    if (!(x > 0)) return x == 0 ? -HUGE_VAL : (double)NAN;
    if (x > 0x1.fffffffffffffp1023) return x;
    return log_f64(x);
}

/* A number in two parts, high + low with |low| at most half an ulp of high.
 * Sums and products: Dekker, Knuth; products by FMA. */
struct pair {
    double high, low;
};

static struct pair pair_sum(struct pair a, struct pair b)
{
    double s = a.high + b.high, t = s - a.high;
    double e = (a.high - (s - t)) + (b.high - t) + (a.low + b.low);
    double high = s + e;

    return (struct pair){high, e - (high - s)};
}

static struct pair pair_product(struct pair a, struct pair b)
{
    double p = a.high * b.high, e = fma(a.high, b.high, -p);
    double high;

    e = fma(a.high, b.low, fma(a.low, b.high, e));
    high = p + e;
    return (struct pair){high, e - (high - p)};
}

static struct pair pair_quotient(double a, struct pair b)
{
    double q = a / b.high;
    double rest = fma(-q, b.high, a) - q * b.low, low = rest / b.high;
    double high = q + low;

    return (struct pair){high, low - (high - q)};
}

/* log x to about 70 bits. Series 2 s (1 + z / 3 + z^2 (1/5 + z / 7 + ...)):
 * the first two terms in two parts, the rest, below 2^-12, in one. */
static struct pair log_pair(double x)
{
    static const double c[] = {1.0 / 25, 1.0 / 23, 1.0 / 21, 1.0 / 19,
                               1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11,
                               1.0 / 9,  1.0 / 7,  1.0 / 5};
    static const struct pair third = {0x1.5555555555555p-2,
                                      0x1.5555555555555p-56};
    double e, f = split_power_f64(x, &e) - 1, two_f = 2 + f;
    struct pair s, z, sum;

    s = pair_quotient(f, (struct pair){two_f, f - (two_f - 2)});
    z = pair_product(s, s);
    sum = pair_product(z, third);
    sum = pair_sum(sum, (struct pair){
        z.high * z.high * polynomial(c, sizeof c / sizeof *c, z.high), 0});
    sum = pair_sum((struct pair){1, 0}, sum);
    sum = pair_product(s, sum);
    sum = (struct pair){2 * sum.high, 2 * sum.low};
    return pair_sum(
        pair_product((struct pair){e, 0},
                     (struct pair){LN2_HIGH_F64, LN2_LOW_F64}), sum);
}

double math_pow(double base, double power)
{
    struct pair y;
    double result;

    if (power == 0 || base == 1) return 1;
    if (!(base > 0 && base < HUGE_VAL)) /* 0, infinity, or no answer */
        return math_exp(power * math_log(base));
    y = pair_product(log_pair(base), (struct pair){power, 0});
    result = math_exp(y.high);
    /* y.low is no number when the product overflows; the result is exact. */
    return result > 0 && result < HUGE_VAL ? fma(result, y.low, result)
                                           : result;
}

double math_pow_int(double base, int64_t power)
{
    uint64_t rest = power < 0 ? -(uint64_t)power : (uint64_t)power;
    double result = 1;

    for (; rest > 0; rest >>= 1) {
        if (rest & 1) result *= base;
        base *= base;
    }
    return power < 0 ? 1 / result : result;
}

double math_sin(double x)
{
    double sine, cosine;
    uint64_t turns = sine_reduce_f64(x, &sine, &cosine);
    double y = turns & 1 ? cosine : sine;

    return turns & 2 ? -y : y;
}

double math_cos(double x)
{
    double sine, cosine;
    uint64_t turns = sine_reduce_f64(x, &sine, &cosine);
    double y = turns & 1 ? sine : cosine;

    return (turns + 1) & 2 ? -y : y;
}

/* (e^2x - 1) / (e^2x + 1), where e^2x - 1 is computed without cancellation. */
double math_tanh(double x)
{
    double a = x < 0 ? -x : x, tail, scale, e, y;

    if (a < 0x1p-28) return x; /* keeps -0 */
    a = a > 20 ? 20 : a;
    scale = f64_of_bits((exp_reduce_f64(a + a, &tail) + 1023u) << 52);
    e = fma(scale, tail, scale - 1);
    y = e / (e + 2);
    return x < 0 ? -y : y;
}

/* Below 1 an odd polynomial; above, 1 - e^-p, where the polynomial p is fitted
 * to -log erfc on [1, 2.5] and [2.5, 6]. Absolute error below 3e-16. */
double math_erf(double x)
{
    /* The coefficients of erf(a) / a - 1 in a^2. */
    static const double c[] = {
        0x1.057bfe6f184f9p-34, -0x1.386b9d4e2a430p-30,
        0x1.f7a459859741bp-27, -0x1.5f1d3d60888cap-23,
        0x1.b9def264ecbeep-20, -0x1.f4d1df48b1af6p-17,
        0x1.f9a321a1e8cf0p-14, -0x1.c02db3d8f3ffep-11,
        0x1.565bcd0db053bp-8, -0x1.b82ce312849abp-6,
        0x1.ce2f21a042b21p-4, -0x1.812746b0379e6p-2,
        0x1.06eba8214db68p-3};
    static const double ends[2][16] = {
        {
         0x1.0e6342dfd88eap-31, -0x1.c9483bf4311cep-27,
         0x1.61d835052e9c3p-23, -0x1.465d3c9ebefb1p-20,
         0x1.8036e45f6fb50p-18, -0x1.0b18eee06967dp-16,
         0x1.1e4fc955a6083p-17, 0x1.37cd94304516ep-13,
         -0x1.987b2c234c766p-11, 0x1.f57f9d96bd562p-10,
         -0x1.a0a8d8ec37698p-12, -0x1.37652421ec8f2p-6,
         0x1.a4b80812a5ae9p-4, 0x1.45f5837e8f8aep-1,
         0x1.20dd34cbc0936p+0, 0x1.81e2f8abc083fp-22},
        {
         -0x1.c14194d57fe34p-39, 0x1.8862e7a074f7ep-33,
         -0x1.406f0fe88d56ap-28, 0x1.447a003db5183p-24,
         -0x1.c71f81535cd61p-21, 0x1.d2dde5ab01496p-18,
         -0x1.6710d854799d1p-15, 0x1.9da4fe7d02157p-13,
         -0x1.548f38846f855p-11, 0x1.3f18895094400p-10,
         0x1.5199aaa53162ap-10, -0x1.62ec4f54ee2cep-6,
         0x1.b07cb70c8c92cp-4, 0x1.44e51b1a64c2fp-1,
         0x1.21190a9283e26p+0, -0x1.8374a8245ef28p-13}};
    double a = x < 0 ? -x : x, y;

    if (a != a) return x;
    if (a <= 1) {
        y = fma(x, polynomial(c, sizeof c / sizeof *c, a * a), x);
        return y;
    }
    a = a > 6 ? 6 : a;
    y = 1 - math_exp(-polynomial(ends[a > 2.5], 16, a));
    return x < 0 ? -y : y;
}
