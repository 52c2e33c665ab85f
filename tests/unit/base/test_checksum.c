/* SPDX-License-Identifier: Apache-2.0 */
/* test_checksum.c - mirrors src/base/checksum.c. */
#include "tests/test.h"

/* RFC 3720, appendix B.4, and the check value of the polynomial. */
TEST(crc32c_gives_the_published_values)
{
    unsigned char bytes[32];

    EQUAL_INT(crc32c(0, "", 0), 0);
    EQUAL_INT(crc32c(0, "123456789", 9), 0xE3069283);
    memset(bytes, 0, sizeof bytes);
    EQUAL_INT(crc32c(0, bytes, 32), 0x8A9136AA);
    memset(bytes, 0xFF, sizeof bytes);
    EQUAL_INT(crc32c(0, bytes, 32), 0x62A8AB43);
    for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)i;
    EQUAL_INT(crc32c(0, bytes, 32), 0x46DD794E);
}

/* Bit by bit, as the definition reads. */
static uint32_t crc_slowly(const unsigned char *bytes, size_t length)
{
    uint32_t crc = 0xFFFFFFFF;

    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
    }
    return ~crc;
}

TEST(crc32c_is_right_at_every_length_and_offset)
{
    unsigned char bytes[200];

    for (int i = 0; i < 200; i++) bytes[i] = (unsigned char)(i * i * 31 + 7);
    for (size_t first = 0; first < 9; first++)
        for (size_t length = 0; length <= 190; length++) {
            const uint32_t right = crc_slowly(bytes + first, length);

            EQUAL_INT(crc32c(0, bytes + first, length), right);
            EQUAL_INT(crc32c_by_tables(0, bytes + first, length), right);
        }
}

/* Around the lengths from which streams run side by side. */
TEST(crc32c_is_right_for_long_texts)
{
    enum { CHUNK = 3 * 16384, LENGTH = 2 * CHUNK + 20 };
    static unsigned char bytes[LENGTH];

    for (int i = 0; i < LENGTH; i++) bytes[i] = (unsigned char)(i * 7 + i / 9);
    for (int chunks = 1; chunks <= 2; chunks++)
        for (int more = -9; more <= 9; more++) {
            const size_t length = (size_t)(chunks * CHUNK + more);

            EQUAL_INT(crc32c(0, bytes + 1, length),
                      crc_slowly(bytes + 1, length));
        }
}

TEST(crc32c_continues_and_combines)
{
    enum { LENGTH = 5000 };
    static unsigned char bytes[LENGTH];
    uint32_t whole;

    for (int i = 0; i < LENGTH; i++) bytes[i] = (unsigned char)(i * 7 + i / 9);
    whole = crc32c(0, bytes, LENGTH);
    for (size_t cut = 0; cut <= LENGTH; cut += 250) {
        const uint32_t a = crc32c(0, bytes, cut);
        const uint32_t b = crc32c(0, bytes + cut, LENGTH - cut);

        EQUAL_INT(crc32c(a, bytes + cut, LENGTH - cut), whole);
        EQUAL_INT(crc32c_combine(a, b, LENGTH - cut), whole);
    }
    /* Lengths beyond 32 bits: zeros appended in two ways. */
    EQUAL_INT(crc32c_combine(crc32c_combine(whole, 5, 1ull << 40), 9, 77),
              crc32c_combine(whole, crc32c_combine(5, 9, 77),
                             (1ull << 40) + 77));
}

/* FIPS 180-2, appendix B, and lengths around the padding's edges. */
TEST(sha256_gives_the_published_values)
{
    static char million[1000000];
    char hex[65];

    sha256_hex("", 0, hex);
    EQUAL_TEXT(hex, "e3b0c44298fc1c149afbf4c8996fb924"
                    "27ae41e4649b934ca495991b7852b855");
    sha256_hex("abc", 3, hex);
    EQUAL_TEXT(hex, "ba7816bf8f01cfea414140de5dae2223"
                    "b00361a396177a9cb410ff61f20015ad");
    sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
               hex);
    EQUAL_TEXT(hex, "248d6a61d20638b8e5c026930c3e6039"
                    "a33ce45964ff2167f6ecedd419db06c1");
    memset(million, 'a', sizeof million);
    sha256_hex(million, sizeof million, hex);
    EQUAL_TEXT(hex, "cdc76e5c9914fb9281a1c7e284d73e67"
                    "f1809a48a497200e046d39ccc7112cd0");
    sha256_hex(million, 55, hex);
    EQUAL_TEXT(hex, "9f4390f8d30c2dd92ec9f095b65e2b9a"
                    "e9b0a925a5258e241c9f1e910f734318");
    sha256_hex(million, 64, hex);
    EQUAL_TEXT(hex, "ffe054fe7ae0cb6dc65c3af9b61d5209"
                    "f439851db43d0ba5997337df154668eb");
}

/* RFC 1321, appendix A.5, and lengths around the padding's edges. */
TEST(md5_gives_the_published_values)
{
    static char many[1000];
    char hex[33];

    md5_hex("", 0, hex);
    EQUAL_TEXT(hex, "d41d8cd98f00b204e9800998ecf8427e");
    md5_hex("message digest", 14, hex);
    EQUAL_TEXT(hex, "f96b697d7cb7938d525a2f31aaf161d0");
    md5_hex("1234567890123456789012345678901234567890"
            "1234567890123456789012345678901234567890", 80, hex);
    EQUAL_TEXT(hex, "57edf4a22be3c955ac49da2e2107b67a");
    memset(many, 'a', sizeof many);
    md5_hex(many, 55, hex);
    EQUAL_TEXT(hex, "ef1772b6dff9a122358552954ad0df65");
    md5_hex(many, 64, hex);
    EQUAL_TEXT(hex, "014842d480b571495a4a0363793f7367");
    md5_hex(many, sizeof many, hex);
    EQUAL_TEXT(hex, "cabe45dcc9ae5b66ba86600cca6b8ba8");
}

/* RFC 4231, test cases 1 and 2, with keys filled up with zeros. */
TEST(hmac_gives_the_published_values)
{
    static const unsigned char expected[2][4] = {{0xb0, 0x34, 0x4c, 0x61},
                                                 {0x5b, 0xdc, 0xc1, 0x46}};
    unsigned char key[SHA256_BYTES] = {0}, out[SHA256_BYTES];
    unsigned char other[SHA256_BYTES];

    memset(key, 0x0b, 20);
    IS_OK(hmac_sha256(key, "Hi There", 8, out));
    EQUAL_BYTES(out, expected[0], 4);
    memset(key, 0, sizeof key);
    memcpy(key, "Jefe", 4);
    IS_OK(hmac_sha256(key, "what do ya want for nothing?", 28, out));
    EQUAL_BYTES(out, expected[1], 4);
    memcpy(other, out, sizeof other);
    CHECK(hmac_equal(out, other));
    other[31] ^= 1;
    CHECK(!hmac_equal(out, other));
}

TEST_MAIN(crc32c_gives_the_published_values,
          crc32c_is_right_at_every_length_and_offset,
          crc32c_is_right_for_long_texts,
          crc32c_continues_and_combines, sha256_gives_the_published_values,
          md5_gives_the_published_values, hmac_gives_the_published_values)
