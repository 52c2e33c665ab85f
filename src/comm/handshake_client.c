/* SPDX-License-Identifier: Apache-2.0 */
/* handshake_client.c - the client's side of a handshake, proofs and tokens. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/file.h"
#include "comm/handshake_records.h"
#include "comm/patience.h"

status draw_bytes(void *out, size_t length)
{
    if (getrandom(out, length, 0) != (ssize_t)length)
        FAIL(ERR_IO, "no random numbers from the system: %s", strerror(errno));
    return OK;
}

/* ---- tokens ---- */

enum { TOKEN_TEXT_BYTES = 2 * SHA256_BYTES };

status token_draw(struct token *token)
{
    TRY(draw_bytes(token->key, sizeof token->key));
    return OK;
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static status token_parse(struct token *token, const char *text,
                          const char *path)
{
    for (int i = 0; i < SHA256_BYTES; i++) {
        const int high = digit_value(text[2 * i]);
        const int low = high < 0 ? -1 : digit_value(text[2 * i + 1]);

        if (low < 0)
            FAIL(ERR_FORMAT, "%s: not a token: expected %d hexadecimal digits",
                 path, TOKEN_TEXT_BYTES);
        token->key[i] = (unsigned char)(16 * high + low);
    }
    return OK;
}

status token_read(struct token *token, const char *path)
{
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char text[TOKEN_TEXT_BYTES + 2] = {0};
    struct stat about;
    size_t got;
    status result;

    if (descriptor < 0)
        FAIL(ERR_MISSING, "%s: the token cannot be opened: %s", path,
             strerror(errno));
    if (fstat(descriptor, &about) != 0 || !S_ISREG(about.st_mode) ||
        (about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        close(descriptor);
        FAIL(ERR_CONFIG, "%s: a token is a file that only its owner can read: "
             "chmod 600 %s", path, path);
    }
    result = file_get(descriptor, path, text, sizeof text, 0, &got);
    close(descriptor);
    TRY(result);
    if (got < TOKEN_TEXT_BYTES || got > TOKEN_TEXT_BYTES + 1 ||
        (got > TOKEN_TEXT_BYTES && text[TOKEN_TEXT_BYTES] != '\n'))
        FAIL(ERR_FORMAT, "%s: not a token: expected %d hexadecimal digits",
             path, TOKEN_TEXT_BYTES);
    return token_parse(token, text, path);
}

status token_write(const struct token *token, const char *path)
{
    const int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                                0600);
    char text[TOKEN_TEXT_BYTES + 2];
    status written;

    if (descriptor < 0)
        FAIL(ERR_IO, "%s: the token cannot be written: %s", path,
             strerror(errno));
    for (int i = 0; i < SHA256_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", token->key[i]);
    text[TOKEN_TEXT_BYTES] = '\n';
    written = file_put(descriptor, path, text, TOKEN_TEXT_BYTES + 1);
    if (close(descriptor) != 0 || written != OK) {
        unlink(path);
        TRY(written);
        FAIL(ERR_IO, "%s: the token cannot be written", path);
    }
    return OK;
}

/* ---- proofs ---- */

bool hello_is_sound(const struct hello *hello, uint64_t job)
{
    return memcmp(hello->magic, "LOCKSTEP", 8) == 0 &&
           hello->version == DOOR_VERSION && hello->zero == 0 &&
           hello->visitor.job == job;
}

status proof_make(const struct token *token, const char *role,
                  const struct hello *hello,
                  const unsigned char nonce[SHA256_BYTES],
                  unsigned char proof[SHA256_BYTES])
{
    struct {
        char role[8];
        struct hello hello;
        unsigned char nonce[SHA256_BYTES];
    } text = {.hello = *hello};

    snprintf(text.role, sizeof text.role, "%s", role);
    memcpy(text.nonce, nonce, sizeof text.nonce);
    return hmac_sha256(token->key, &text, sizeof text, proof);
}

/* ---- knocking ---- */

enum { KNOCKS = 4 };

static status await(int descriptor, short events, int64_t end_ns)
{
    struct pollfd poll_one = {.fd = descriptor, .events = events};

    for (;;) {
        const int64_t left = end_ns - clock_ns();
        int ready;

        if (left <= 0) FAIL(ERR_PEER, "no answer in time");
        ready = poll(&poll_one, 1, (int)(left / 1000000) + 1);
        if (ready > 0) return OK;
        if (ready < 0 && errno != EINTR)
            FAIL(ERR_PEER, "cannot wait: %s", strerror(errno));
    }
}

/* Until when a transfer may take; renewed by idle_ns at every byte, if > 0. */
struct until { int64_t end_ns, idle_ns; };

static struct until until_idle(int64_t idle_ms)
{
    return (struct until){clock_ns() + idle_ms * 1000000, idle_ms * 1000000};
}

static void until_renew(struct until *until)
{
    if (until->idle_ns > 0) until->end_ns = clock_ns() + until->idle_ns;
}

status door_broke(int error)
{
    if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH)
        FAIL(ERR_PEER, "its machine is silent");
    FAIL(ERR_PEER, "the connection broke: %s", strerror(error));
}

static status read_until(int descriptor, void *bytes, size_t length,
                         struct until until)
{
    char *at = bytes;

    while (length > 0) {
        const ssize_t got = recv(descriptor, at, length, 0);

        if (got == 0) FAIL(ERR_PEER, "the connection was closed");
        if (got < 0 && errno != EAGAIN && errno != EINTR)
            return door_broke(errno);
        if (got < 0) {
            TRY(await(descriptor, POLLIN, until.end_ns));
            continue;
        }
        at += got;
        length -= (size_t)got;
        until_renew(&until);
    }
    return OK;
}

static status write_until(int descriptor, const void *bytes, size_t length,
                          struct until until)
{
    const char *at = bytes;

    while (length > 0) {
        const ssize_t put = send(descriptor, at, length, MSG_NOSIGNAL);

        if (put < 0 && errno != EAGAIN && errno != EINTR)
            return door_broke(errno);
        if (put < 0) {
            TRY(await(descriptor, POLLOUT, until.end_ns));
            continue;
        }
        at += put;
        length -= (size_t)put;
        until_renew(&until);
    }
    return OK;
}

status door_read(int descriptor, void *bytes, size_t length, int64_t end_ns)
{
    return read_until(descriptor, bytes, length, (struct until){end_ns, 0});
}

status door_write(int descriptor, const void *bytes, size_t length,
                  int64_t end_ns)
{
    return write_until(descriptor, bytes, length, (struct until){end_ns, 0});
}

status door_read_bulk(int descriptor, void *bytes, size_t length,
                      int64_t idle_ms)
{
    return read_until(descriptor, bytes, length, until_idle(idle_ms));
}

status door_write_bulk(int descriptor, const void *bytes, size_t length,
                       int64_t idle_ms)
{
    return write_until(descriptor, bytes, length, until_idle(idle_ms));
}

static status introduce(int descriptor, const struct visitor *self,
                        const struct token *token, int64_t end_ns)
{
    struct hello hello = {.version = DOOR_VERSION, .visitor = *self};
    unsigned char proof[SHA256_BYTES];
    struct answer_record answer;
    struct challenge theirs;

    memcpy(hello.magic, "LOCKSTEP", 8);
    TRY(draw_bytes(hello.nonce, sizeof hello.nonce));
    TRY(door_write(descriptor, &hello, sizeof hello, end_ns));
    TRY(door_read(descriptor, &theirs, sizeof theirs, end_ns));
    TRY(proof_make(token, "server", &hello, theirs.nonce, proof));
    if (!hmac_equal(proof, theirs.proof))
        FAIL(ERR_PEER, "it has another token");
    TRY(proof_make(token, "client", &hello, theirs.nonce, proof));
    TRY(door_write(descriptor, proof, sizeof proof, end_ns));
    TRY(door_read(descriptor, &answer, sizeof answer, end_ns));
    answer.sentence[sizeof answer.sentence - 1] = '\0';
    if (answer.refused) FAIL(ERR_PEER, "%s", answer.sentence);
    return OK;
}

status door_knock(int *descriptor, const char *address,
                  const struct visitor *self, const struct token *token,
                  int64_t limit_ms, enum door_end *how)
{
    const int64_t end = clock_ns() + limit_ms * 1000000;
    enum door_end ended = DOOR_UNKNOWN;
    int64_t later_ms = 0;
    char why[256];

    for (int tries = 0; tries < KNOCKS; tries++) {
        const struct timespec pause = {0, 100000000L << tries};

        *descriptor = -1;
        if (how == NULL) how = &ended;
        TRY(socket_connect(descriptor, address, end, how));
        /* Three more round trips follow. */
        later_ms = patience_more_ms(*descriptor);
        if (later_ms > 2 * limit_ms) later_ms = 2 * limit_ms;
        if (introduce(*descriptor, self, token, end + later_ms * 1000000) ==
            OK) {
            patience_tell(*descriptor, patience_ms(*descriptor));
            return OK;
        }
        *how = clock_ns() >= end + later_ms * 1000000 ? DOOR_LATE
                                                      : DOOR_REFUSED;
        close(*descriptor);
        *descriptor = -1;
        snprintf(why, sizeof why, "%s", status_message());
        status_clear();
        /* Closed without a word, as by a door that is crowded. */
        if (strstr(why, "the connection") == NULL || clock_ns() > end) break;
        nanosleep(&pause, NULL);
    }
    if (strstr(why, "was closed") != NULL)
        snprintf(why, sizeof why, "the connection was closed without a word, "
                 "as another version of lockstep does");
    if (self->purpose == DOOR_AGENT)
        FAIL(ERR_PEER, "%s does not let this agent in: %s", address, why);
    FAIL(ERR_PEER, "%s does not let rank %d in: %s", address, self->rank, why);
}
