/* SPDX-License-Identifier: Apache-2.0 */
/* math.c - our own elementary functions in float64.
 *
 * Exponentials and sines reduce the argument with a constant split in two or
 * three parts (Cody and Waite) and evaluate a minimax polynomial; logarithms
 * use the odd series of log((1 + s) / (1 - s)). All coefficients are own fits
 * (weighted minimax in 50 digits) except those of series, which say so.
 * Adding ROUND_MAGIC rounds to an integer that then stands in the low bits of
 * the sum. */
#include <math.h>
#include <string.h>
#include "kernels/math.h"

#define ROUND_MAGIC 0x1.8p52
#define MAGIC_BITS 0x4338000000000000u
#define LN2_HIGH 0x1.62e42fefa39efp-1
#define LN2_LOW 0x1.abc9e3b39803fp-56
#define LOG2_E 0x1.71547652b82fep+0
#define TWO_PI 0x1.921fb54442d18p+2

static uint64_t bits_of(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double of_bits(uint64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Horner's scheme, highest coefficient first. */
static double polynomial(const double *coefficients, int count, double x)
{
    double sum = coefficients[0];

    for (int i = 1; i < count; i++) sum = fma(sum, x, coefficients[i]);
    return sum;
}

/* 2^k times e^r - 1 in two parts: *n is k as a double, *tail e^r - 1, with
 * |r| <= log(2) / 2. */
static uint64_t exp_reduce(double x, double *tail)
{
    static const double c[] = {
        2.50044896471102493380096347180482907468501707626274e-8,
        2.7630444481328946380684400373206610237820994775e-7,
        2.75575722929165854507230909442583310919872019439936e-6,
        2.48014924827854657546659632588401223074470181018114e-5,
        1.9841269522464735240371846991536131099554964638481e-4,
        1.3888888944313675273545261035224029910750687122345e-3,
        8.333333333487052269061834408603317569941282272339e-3,
        4.1666666666527046869461514688737224787473678588867e-2,
        0.166666666666664242679729568408220075070858001708984,
        0.50000000000000111022302462515654042363166809082031};
    double t = fma(x, LOG2_E, ROUND_MAGIC), n = t - ROUND_MAGIC;
    double r = fma(n, -LN2_HIGH, x);

    r = fma(n, -LN2_LOW, r);
    *tail = fma(r * r, polynomial(c, sizeof c / sizeof *c, r), r);
    return bits_of(t) - MAGIC_BITS;
}

double math_exp(double x)
{
    double c = x < -746 ? -746 : x, tail, p;
    uint64_t k, half; /* the exponent + 4096, so that it stays unsigned */

    c = c > 710 ? 710 : c;
    k = exp_reduce(c, &tail) + 4096u;
    half = k >> 1;
    /* Two scalings: the first is exact, the second rounds once. */
    p = (tail + 1) * of_bits((half - 2048u + 1023u) << 52);
    return p * of_bits((k - half - 2048u + 1023u) << 52);
}

/* x = m 2^e with m in [sqrt(1/2), sqrt(2)); returns m. x is positive. */
static double split_power(double x, double *e)
{
    double shift = x < 0x1p-1022 ? 54 : 0;
    uint64_t bits = bits_of(shift > 0 ? x * 0x1p54 : x);
    uint64_t k = (bits - 0x3fe6a09e667f3bcdu + ((uint64_t)1024 << 52)) >> 52;

    *e = of_bits(MAGIC_BITS + (k - 1024u)) - ROUND_MAGIC - shift;
    return of_bits(bits - ((k - 1024u) << 52));
}

/* With s = f / (2 + f) and z = s^2, log(1 + f) = f - s (f - z q(z)). */
double math_log(double x)
{
    static const double c[] = {
        0.132338089263683844620800300617702305316925048828125,
        0.132522606328669551034593609983858186751604080200195,
        0.1538698358718107728204671502680866979062557220459,
        0.181817784813662064458128497790312394499778747558594,
        0.222222226053559429592709761891455855220556259155273,
        0.28571428569421458698585070123954210430383682250977,
        0.40000000000004898303984646190656349062919616699219,
        0.66666666666666662965923251249478198587894439697266};
    double e, f, s, z, low;

    if (!(x > 0)) return x == 0 ? -HUGE_VAL : (double)NAN;
    if (x > 0x1.fffffffffffffp1023) return x;
    f = split_power(x, &e) - 1;
    s = f / (2 + f);
    z = s * s;
    low = s * (z * polynomial(c, sizeof c / sizeof *c, z) - f);
    low = fma(e, LN2_LOW, low);
    return fma(e, LN2_HIGH, f + low);
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
    double e, f = split_power(x, &e) - 1, two_f = 2 + f;
    struct pair s, z, sum;

    s = pair_quotient(f, (struct pair){two_f, f - (two_f - 2)});
    z = pair_product(s, s);
    sum = pair_product(z, third);
    sum = pair_sum(sum, (struct pair){
        z.high * z.high * polynomial(c, sizeof c / sizeof *c, z.high), 0});
    sum = pair_sum((struct pair){1, 0}, sum);
    sum = pair_product(s, sum);
    sum = (struct pair){2 * sum.high, 2 * sum.low};
    return pair_sum(pair_product((struct pair){e, 0},
                                 (struct pair){LN2_HIGH, LN2_LOW}), sum);
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

/* Both functions of the remainder r of x modulo pi / 2; returns the number of
 * quarter turns taken off. The constant is split in three parts. */
static uint64_t sine_reduce(double x, double *sine, double *cosine)
{
    static const double cs[] = {
        1.58958055507928065667578745952461908741404172928924e-10,
        -2.5050740180725974086373245312384026037225248728646e-8,
        2.7557313570498299617377371828474963422195287421346e-6,
        -1.98412698294317223343327667780356857917970046401024e-4,
        8.3333333333218979205314624891798302996903657913208e-3,
        -0.16666666666666629659232512494781985878944396972656};
    static const double cc[] = {
        -1.13586646149891345179178308947364026311455109663484e-11,
        2.087570398209702169498728824195005193686824895849e-9,
        -2.755731420852103375492383238037907844386609212961e-7,
        2.48015872889803579463232776846365036362840328365564e-5,
        -1.3888888888873322444150737453583133174106478691101e-3,
        4.1666666666666594964762992958637097640460769134521e-2};
    double t = fma(x, 0x1.45f306dc9c883p-1, ROUND_MAGIC);
    double n = t - ROUND_MAGIC, r = fma(n, -0x1.921fb54442d18p+0, x), z;

    r = fma(n, -0x1.1a62633145c07p-54, r);
    r = fma(n, 0x1.f1976b7ed8fbcp-110, r);
    z = r * r;
    *sine = fma(z * r, polynomial(cs, sizeof cs / sizeof *cs, z), r);
    *cosine = fma(z * z, polynomial(cc, sizeof cc / sizeof *cc, z),
                  fma(z, -0.5, 1));
    return bits_of(t);
}

double math_sin(double x)
{
    double sine, cosine;
    uint64_t turns = sine_reduce(x, &sine, &cosine);
    double y = turns & 1 ? cosine : sine;

    return turns & 2 ? -y : y;
}

double math_cos(double x)
{
    double sine, cosine;
    uint64_t turns = sine_reduce(x, &sine, &cosine);
    double y = turns & 1 ? sine : cosine;

    return (turns + 1) & 2 ? -y : y;
}

/* (e^2x - 1) / (e^2x + 1), where e^2x - 1 is computed without cancellation. */
double math_tanh(double x)
{
    double a = x < 0 ? -x : x, tail, scale, e, y;

    if (a < 0x1p-28) return x; /* keeps -0 */
    a = a > 20 ? 20 : a;
    scale = of_bits((exp_reduce(a + a, &tail) + 1023u) << 52);
    e = fma(scale, tail, scale - 1);
    y = e / (e + 2);
    return x < 0 ? -y : y;
}

/* Below 1 an odd polynomial; above, 1 - e^-p, where the polynomial p is fitted
 * to -log erfc on [1, 2.5] and [2.5, 6]. Absolute error below 3e-16. */
double math_erf(double x)
{
    /* Of erf(a) / a - 1 in a^2. */
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

double math_normal(double u1, double u2)
{
    return sqrt(-2 * math_log(1 - u1)) * math_cos(TWO_PI * u2);
}
