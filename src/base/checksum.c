/* SPDX-License-Identifier: Apache-2.0 */
/* checksum.c - CRC-32C, SHA-256 and MD5 of file.h.
 *
 * CRC-32C, reflected: polynomial 0x82F63B78 with x^31 in the lowest bit. The
 * processor's own instruction is used where it has one; else eight tables
 * take eight bytes a step. Source: Castagnoli et al. 1993 (the polynomial);
 * Kounavis and Berry 2005, "A systematic approach to building high
 * performance software-based CRC generators" (slicing). */
#include <pthread.h>
#include <string.h>
#include "base/file.h"

#define CRC_POLYNOMIAL 0x82F63B78u
enum { CRC_SLICES = 8 };

static uint32_t slices[CRC_SLICES][256];
static pthread_once_t slices_made = PTHREAD_ONCE_INIT;

static void make_slices(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;

        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ ((crc & 1) != 0 ? CRC_POLYNOMIAL : 0);
        slices[0][byte] = crc;
    }
    for (int k = 1; k < CRC_SLICES; k++)
        for (int byte = 0; byte < 256; byte++)
            slices[k][byte] = slices[k - 1][byte] >> 8 ^
                              slices[0][slices[k - 1][byte] & 0xFF];
}

uint32_t crc32c_by_tables(uint32_t crc, const void *bytes, size_t length)
{
    const unsigned char *at = bytes;

    crc = ~crc;
    pthread_once(&slices_made, make_slices);
    for (; length >= 8; at += 8, length -= 8) {
        crc ^= (uint32_t)at[0] | (uint32_t)at[1] << 8 |
               (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        crc = slices[7][crc & 0xFF] ^ slices[6][crc >> 8 & 0xFF] ^
              slices[5][crc >> 16 & 0xFF] ^ slices[4][crc >> 24] ^
              slices[3][at[4]] ^ slices[2][at[5]] ^ slices[1][at[6]] ^
              slices[0][at[7]];
    }
    for (; length > 0; at++, length--)
        crc = crc >> 8 ^ slices[0][(crc ^ *at) & 0xFF];
    return ~crc;
}

#if defined(__x86_64__)
#include <nmmintrin.h>
#define CRC_TARGET __attribute__((target("sse4.2")))
#define CRC_WORD(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define CRC_BYTE(crc, byte) _mm_crc32_u8((crc), (byte))
static bool machine_has_crc(void)
{
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#define CRC_TARGET __attribute__((target("+crc")))
#define CRC_WORD(crc, word) __builtin_aarch64_crc32cx((crc), (word))
#define CRC_BYTE(crc, byte) __builtin_aarch64_crc32cb((crc), (byte))
static bool machine_has_crc(void)
{
    return (getauxval(AT_HWCAP) & 1u << 7) != 0; /* HWCAP_CRC32 */
}
#endif

/* Product of two polynomials modulo the CRC's; bit 31 is x^0. */
static uint32_t polynomial_multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (; a != 0; a <<= 1) {
        if ((a & 0x80000000u) != 0) product ^= b;
        b = b >> 1 ^ ((b & 1) != 0 ? CRC_POLYNOMIAL : 0);
    }
    return product;
}

/* x^(8 n), by squaring: what appending n bytes multiplies a CRC by. */
static uint32_t polynomial_power(uint64_t bytes)
{
    uint32_t power = 0x00800000u; /* x^8: one byte */
    uint32_t product = 0x80000000u; /* 1 */

    for (; bytes != 0; bytes >>= 1) {
        if ((bytes & 1) != 0) product = polynomial_multiply(power, product);
        power = polynomial_multiply(power, power);
    }
    return product;
}

#ifdef CRC_TARGET
/* The instruction takes three cycles and one may start in each, so long texts
 * are three parts side by side, joined as crc32c_combine does. */
enum { PART_BYTES = 16384, PARTS = 3 };

CRC_TARGET static uint32_t crc_by_parts(uint32_t crc, const unsigned char *at,
                                        size_t rounds)
{
    const uint32_t one = polynomial_power(PART_BYTES);
    const uint32_t two = polynomial_multiply(one, one);

    for (; rounds > 0; rounds--, at += PARTS * PART_BYTES) {
        uint32_t second = 0, third = 0;

        for (int i = 0; i < PART_BYTES; i += 8) {
            uint64_t word[PARTS];

            memcpy(&word[0], at + i, 8);
            memcpy(&word[1], at + PART_BYTES + i, 8);
            memcpy(&word[2], at + 2 * PART_BYTES + i, 8);
            crc = CRC_WORD(crc, word[0]);
            second = CRC_WORD(second, word[1]);
            third = CRC_WORD(third, word[2]);
        }
        crc = polynomial_multiply(two, crc) ^
              polynomial_multiply(one, second) ^ third;
    }
    return crc;
}

CRC_TARGET static uint32_t crc_by_machine(uint32_t crc,
                                          const unsigned char *at,
                                          size_t length)
{
    const size_t rounds = length / (PARTS * PART_BYTES);

    if (rounds > 0) crc = crc_by_parts(crc, at, rounds);
    at += rounds * PARTS * PART_BYTES;
    length -= rounds * PARTS * PART_BYTES;
    for (; length >= 8; at += 8, length -= 8) {
        uint64_t word;

        memcpy(&word, at, 8);
        crc = CRC_WORD(crc, word);
    }
    for (; length > 0; at++, length--) crc = CRC_BYTE(crc, *at);
    return crc;
}
#endif

uint32_t crc32c(uint32_t crc, const void *bytes, size_t length)
{
#ifdef CRC_TARGET
    if (machine_has_crc()) return ~crc_by_machine(~crc, bytes, length);
#endif
    return crc32c_by_tables(crc, bytes, length);
}

/* The two inversions of the CRC cancel. */
uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t length_b)
{
    return polynomial_multiply(polynomial_power(length_b), crc_a) ^ crc_b;
}

/* SHA-256. Source: FIPS 180-4, sections 4.1.2, 4.2.2 and 6.2. */
static const uint32_t sha_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, int bits)
{
    return x >> bits | x << (32 - bits);
}

static void sha_block(uint32_t state[8], const unsigned char *block)
{
    uint32_t w[64], s[8];

    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        const uint32_t a = w[i - 15], b = w[i - 2];

        w[i] = w[i - 16] + w[i - 7] +
               (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        const uint32_t one =
            s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) +
            ((s[4] & s[5]) ^ (~s[4] & s[6])) + sha_constants[i] + w[i];
        const uint32_t two =
            (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) +
            ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));

        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

/* One bit, zeros and the length: the end of what SHA-256 and MD5 take in blocks
 * of 64 bytes. Its bytes: 64 or 128. */
static size_t end_blocks(const unsigned char *bytes, size_t length,
                         bool big_first, unsigned char last[128])
{
    const size_t rest = length % 64, padded = rest < 56 ? 64 : 128;
    const uint64_t bits = (uint64_t)length * 8;

    memset(last, 0, 128);
    if (rest > 0) memcpy(last, bytes + (length - rest), rest);
    last[rest] = 0x80;
    for (size_t i = 0; i < 8; i++)
        last[big_first ? padded - 1 - i : padded - 8 + i] =
            (unsigned char)(bits >> 8 * i);
    return padded;
}

static void sha256(const void *bytes, size_t length,
                   unsigned char out[SHA256_BYTES])
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const unsigned char *at = bytes;
    unsigned char last[128];
    const size_t padded = end_blocks(at, length, true, last);

    for (size_t i = 0; i < length / 64 * 64; i += 64) sha_block(state, at + i);
    for (size_t i = 0; i < padded; i += 64) sha_block(state, last + i);
    for (int i = 0; i < SHA256_BYTES; i++)
        out[i] = (unsigned char)(state[i / 4] >> (24 - 8 * (i % 4)));
}

/* hex [2 count + 1]. */
static void write_hex(const unsigned char *hash, int count, char *hex)
{
    static const char digits[] = "0123456789abcdef";

    for (int i = 0; i < 2 * count; i++)
        hex[i] = digits[hash[i / 2] >> (i % 2 == 0 ? 4 : 0) & 0xF];
    hex[2 * count] = '\0';
}

void sha256_hex(const void *bytes, size_t length, char hex[65])
{
    unsigned char hash[SHA256_BYTES];

    sha256(bytes, length, hash);
    write_hex(hash, SHA256_BYTES, hex);
}

status hmac_sha256(const unsigned char key[SHA256_BYTES], const void *bytes,
                   size_t length, unsigned char out[SHA256_BYTES])
{
    unsigned char inner[64 + HMAC_BYTES_MOST], outer[64 + SHA256_BYTES];

    if (length > HMAC_BYTES_MOST)
        FAIL(ERR_CONFIG, "%zu bytes to be authenticated, at most %d", length,
             HMAC_BYTES_MOST);
    for (int i = 0; i < 64; i++) {
        const unsigned char k = i < SHA256_BYTES ? key[i] : 0;

        inner[i] = k ^ 0x36;
        outer[i] = k ^ 0x5c;
    }
    memcpy(inner + 64, bytes, length);
    sha256(inner, 64 + length, outer + 64);
    sha256(outer, sizeof outer, out);
    return OK;
}

bool hmac_equal(const unsigned char a[SHA256_BYTES],
                const unsigned char b[SHA256_BYTES])
{
    unsigned char differs = 0;

    for (int i = 0; i < SHA256_BYTES; i++)
        differs = (unsigned char)(differs | (a[i] ^ b[i]));
    return differs == 0;
}

/* ---- MD5 ---- */

/* floor(2^32 |sin(i + 1)|) */
static const uint32_t md5_constants[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee,
    0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be,
    0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa,
    0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed,
    0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c,
    0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05,
    0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039,
    0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1,
    0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};

static void md5_block(uint32_t state[4], const unsigned char *block)
{
    static const unsigned char turns[16] = {7, 12, 17, 22, 5, 9, 14, 20,
                                            4, 11, 16, 23, 6, 10, 15, 21};
    uint32_t w[16], a = state[0], b = state[1], c = state[2], d = state[3];

    for (int i = 0; i < 16; i++)
        w[i] = block[4 * i] | (uint32_t)block[4 * i + 1] << 8 |
               (uint32_t)block[4 * i + 2] << 16 |
               (uint32_t)block[4 * i + 3] << 24;
    for (int i = 0; i < 64; i++) {
        const int round = i / 16;
        const uint32_t mixed = round == 0   ? (b & c) | (~b & d)
                               : round == 1 ? (d & b) | (~d & c)
                               : round == 2 ? b ^ c ^ d
                                            : c ^ (b | ~d);
        const int from = round == 0   ? i
                         : round == 1 ? 5 * i + 1
                         : round == 2 ? 3 * i + 5
                                      : 7 * i;
        const uint32_t sum = a + mixed + md5_constants[i] + w[from % 16];

        a = d;
        d = c;
        c = b;
        b += rotate(sum, 32 - turns[4 * round + i % 4]);
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

void md5_hex(const void *bytes, size_t length, char hex[33])
{
    uint32_t state[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
    const unsigned char *at = bytes;
    unsigned char last[128], out[16];
    const size_t padded = end_blocks(at, length, false, last);

    for (size_t i = 0; i < length / 64 * 64; i += 64) md5_block(state, at + i);
    for (size_t i = 0; i < padded; i += 64) md5_block(state, last + i);
    for (int i = 0; i < 16; i++)
        out[i] = (unsigned char)(state[i / 4] >> 8 * (i % 4));
    write_hex(out, 16, hex);
}
