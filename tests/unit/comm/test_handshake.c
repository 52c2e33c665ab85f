/* SPDX-License-Identifier: Apache-2.0 */
/* test_handshake.c - mirrors src/comm/handshake.c, handshake_client.c and
 * handshake_socket.c: a client that knows the token is let in, and no other,
 * whatever it sends or does not send. */
#include "base/clock.h"
#include "comm/handshake.h"

#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/handshake_records.h"
#include "tests/test.h"

static struct token right, wrong;
enum {
    JOB = 77,
    PATIENCE_MS = 30000 /* for what happens at once, unless a machine is busy */
};

/* A guest in a thread of its own. */
struct guest {
    pthread_t thread;
    const struct token *token;
    char address[DOOR_ADDRESS_BYTES];
    struct visitor self;
    int descriptor;
    status result;
    enum door_end end;
    char sentence[256];
    atomic_bool done;
};

static void *knock(void *argument)
{
    struct guest *g = argument;

    g->result = door_knock(&g->descriptor, g->address, &g->self, g->token,
                           PATIENCE_MS, &g->end);
    snprintf(g->sentence, sizeof g->sentence, "%s", status_message());
    g->done = true;
    return NULL;
}

static void guest_begin(struct guest *g, const struct door *door,
                        const struct token *token)
{
    *g = (struct guest){.token = token, .descriptor = -1,
                        .self = {.purpose = DOOR_MEET, .rank = 1, .size = 2,
                                 .generation = 5, .job = JOB}};
    snprintf(g->address, sizeof g->address, "%s", door->address);
    pthread_create(&g->thread, NULL, knock, g);
}

static int64_t in_time(void)
{
    return clock_ns() + (int64_t)PATIENCE_MS * 1000000;
}

/* Serves for so long, or until a visitor is in. */
static bool serve(struct door *door, int ms, struct visitor *visitor)
{
    const int64_t end = clock_ns() + (int64_t)ms * 1000000;
    struct pollfd polls[DOOR_POLLS];
    int descriptor;

    while (clock_ns() < end) {
        poll(polls, (nfds_t)door_polls(door, polls), 10);
        if (!door_step(door, visitor, &descriptor)) continue;
        IS_OK(door_answer(&descriptor, NULL));
        close(descriptor);
        return true;
    }
    return false;
}

/* Serves until the guest has given up, or somebody is in. */
static bool turns_away(struct door *door, const struct guest *g)
{
    const int64_t end = in_time();
    struct visitor visitor;

    while (!g->done && clock_ns() < end)
        if (serve(door, 20, &visitor)) return false;
    return g->done;
}

/* Serves until so many were refused, or somebody is in. */
static bool refuses(struct door *door, int count)
{
    const int64_t end = in_time();
    struct visitor visitor;

    while ((int)door->refused < count && clock_ns() < end)
        if (serve(door, 20, &visitor)) return false;
    return (int)door->refused == count;
}

/* Serves until the door has said something there. */
static void serve_answer(struct door *door, int descriptor)
{
    struct pollfd heard = {.fd = descriptor, .events = POLLIN};
    const int64_t end = in_time();
    struct visitor visitor;

    while (poll(&heard, 1, 0) == 0 && clock_ns() < end)
        serve(door, 20, &visitor);
}

static int raw_connect(const struct door *door)
{
    int descriptor;

    IS_OK(socket_connect(&descriptor, door->address, in_time(),
                         &(enum door_end){0}));
    return descriptor;
}

static void open_one(struct door *door)
{
    IS_OK(token_draw(&right));
    IS_OK(token_draw(&wrong));
    IS_OK(door_open(door, "127.0.0.1:0", &right, JOB));
}

TEST(the_token_opens)
{
    static struct door door;
    struct visitor visitor = {0};
    struct guest g;

    open_one(&door);
    guest_begin(&g, &door, &right);
    CHECK(serve(&door, PATIENCE_MS, &visitor));
    pthread_join(g.thread, NULL);
    EQUAL_INT(g.result, OK);
    EQUAL_INT(visitor.rank, 1);
    EQUAL_INT(visitor.generation, 5);
    EQUAL_INT(door.refused, 0);
    close(g.descriptor);
    door_close(&door);
}

TEST(another_token_and_another_job_do_not)
{
    static struct door door;
    struct guest g;

    open_one(&door);
    guest_begin(&g, &door, &wrong);
    CHECK(turns_away(&door, &g));
    pthread_join(g.thread, NULL);
    EQUAL_INT(g.result, ERR_PEER);
    CHECK(strstr(g.sentence, "another token") != NULL);
    EQUAL_INT(g.end, DOOR_REFUSED);
    g.self.job = JOB + 1;
    g.token = &right;
    g.done = false;
    pthread_create(&g.thread, NULL, knock, &g);
    CHECK(turns_away(&door, &g));
    pthread_join(g.thread, NULL);
    EQUAL_INT(g.result, ERR_PEER);
    CHECK(door.refused >= 2); /* it knocks again */
    door_close(&door);
}

/* Hundreds of clients that say nothing neither keep a good one out nor grow
 * anything; all are dropped in the end. */
TEST(silent_clients_keep_nobody_out)
{
    static struct door door;
    struct visitor visitor;
    struct guest g;
    int silent[200];
    char byte;

    open_one(&door);
    for (int i = 0; i < 200; i++) {
        silent[i] = raw_connect(&door);
        if (i % 16 == 15) serve(&door, 5, &visitor);
    }
    guest_begin(&g, &door, &right);
    CHECK(serve(&door, PATIENCE_MS, &visitor));
    pthread_join(g.thread, NULL);
    EQUAL_INT(g.result, OK);
    close(g.descriptor);
    CHECK(refuses(&door, 200));
    for (int i = 0; i < 200; i++) {
        EQUAL_INT(recv(silent[i], &byte, 1, MSG_DONTWAIT), 0);
        close(silent[i]);
    }
    door_close(&door);
}

/* More ranks than places come at the same moment to a server that is late:
 * nobody is driven out by the others. */
TEST(a_crowd_comes_in)
{
    enum { CROWD = DOOR_CLIENTS + 40 };
    static struct guest guests[CROWD];
    static struct door door;
    struct visitor visitor;

    open_one(&door);
    for (int i = 0; i < CROWD; i++) guest_begin(&guests[i], &door, &right);
    usleep(100000);
    for (int i = 0; i < CROWD; i++) CHECK(serve(&door, PATIENCE_MS, &visitor));
    for (int i = 0; i < CROWD; i++) {
        pthread_join(guests[i].thread, NULL);
        EQUAL_INT(guests[i].result, OK);
        close(guests[i].descriptor);
    }
    EQUAL_INT(door.refused, 0);
    door_close(&door);
}

/* The bytes of a good client prove nothing on another connection. */
TEST(a_recorded_handshake_is_refused)
{
    static struct door door;
    struct hello hello = {.magic = "LOCKSTE", .version = DOOR_VERSION,
                          .visitor = {.purpose = DOOR_MEET, .job = JOB}};
    struct challenge first, second;
    unsigned char proof[SHA256_BYTES];
    int descriptor;
    char byte;

    open_one(&door);
    hello.magic[7] = 'P';
    descriptor = raw_connect(&door);
    IS_OK(door_write(descriptor, &hello, sizeof hello, in_time()));
    serve_answer(&door, descriptor);
    IS_OK(door_read(descriptor, &first, sizeof first, in_time()));
    IS_OK(proof_make(&right, "client", &hello, first.nonce, proof));
    close(descriptor); /* the recording is complete */
    CHECK(refuses(&door, 1));

    descriptor = raw_connect(&door);
    IS_OK(door_write(descriptor, &hello, sizeof hello, in_time()));
    serve_answer(&door, descriptor);
    IS_OK(door_read(descriptor, &second, sizeof second, in_time()));
    CHECK(memcmp(first.nonce, second.nonce, sizeof first.nonce) != 0);
    IS_OK(door_write(descriptor, proof, sizeof proof, in_time()));
    CHECK(refuses(&door, 2));
    EQUAL_INT(recv(descriptor, &byte, 1, MSG_DONTWAIT), 0);
    close(descriptor);

    /* Nor is the server's own proof one of a client. */
    descriptor = raw_connect(&door);
    IS_OK(door_write(descriptor, &hello, sizeof hello, in_time()));
    serve_answer(&door, descriptor);
    IS_OK(door_read(descriptor, &second, sizeof second, in_time()));
    IS_OK(door_write(descriptor, second.proof, sizeof second.proof, in_time()));
    CHECK(refuses(&door, 3));
    close(descriptor);
    door_close(&door);
}

/* Nothing is taken from a stranger beyond the size of a hello. */
TEST(noise_is_dropped)
{
    static struct door door;
    static char noise[1 << 20];
    const size_t before = arena_bytes_out();
    int descriptor;

    open_one(&door);
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (char)(i * 131 + 7);
    descriptor = raw_connect(&door);
    CHECK(send(descriptor, noise, sizeof noise, MSG_DONTWAIT | MSG_NOSIGNAL) >
          0);
    CHECK(refuses(&door, 1));
    EQUAL_INT(arena_bytes_out(), before);
    close(descriptor);
    door_close(&door);
}

TEST(a_token_is_private)
{
    char path[] = "/tmp/lockstep-token-XXXXXX";
    struct token read_back;
    const int descriptor = mkstemp(path);

    close(descriptor);
    unlink(path);
    IS_OK(token_draw(&right));
    IS_OK(token_write(&right, path));
    IS_OK(token_read(&read_back, path));
    EQUAL_BYTES(&right, &read_back, sizeof right);
    FAILS(token_write(&right, path), ERR_IO, "cannot be written");
    chmod(path, 0640);
    FAILS(token_read(&read_back, path), ERR_CONFIG, "chmod 600");
    chmod(path, 0600);
    truncate(path, 63);
    FAILS(token_read(&read_back, path), ERR_FORMAT, "64 hexadecimal digits");
    unlink(path);
    FAILS(token_read(&read_back, path), ERR_MISSING, "cannot be opened");
}

TEST(addresses_are_checked)
{
    static struct door door, second;

    IS_OK(token_draw(&right));
    FAILS(door_open(&door, "127.0.0.1", &right, JOB), ERR_CONFIG, "HOST:PORT");
    FAILS(door_open(&door, "127.0.0.1:x", &right, JOB), ERR_CONFIG,
          "HOST:PORT");
    FAILS(door_open(&door, ":7", &right, JOB), ERR_CONFIG, "HOST:PORT");
    IS_OK(door_open(&door, "127.0.0.1:0", &right, JOB));
    FAILS(door_open(&second, door.address, &right, JOB), ERR_CONFIG,
          "another process listens there");
    door_close(&door);
}

static void *close_later(void *door)
{
    const struct timespec pause = {0, 100000000};

    nanosleep(&pause, NULL);
    door_close(door);
    return NULL;
}

/* A supervisor is started again at once after its death. Where the machine is
 * so busy that the thread comes late, it is tried again. */
TEST(an_address_may_be_taken_for_a_moment)
{
    static struct door door, second;
    char address[DOOR_ADDRESS_BYTES];
    status result = ERR_CONFIG;
    pthread_t thread;

    IS_OK(token_draw(&right));
    IS_OK(door_open(&door, "127.0.0.1:0", &right, JOB));
    memcpy(address, door.address, sizeof address); /* the thread clears it */
    CHECK(pthread_create(&thread, NULL, close_later, &door) == 0);
    for (int tries = 0; tries < 5 && result != OK; tries++) {
        status_clear();
        result = door_open(&second, address, &right, JOB);
    }
    IS_OK(result);
    CHECK(pthread_join(thread, NULL) == 0);
    EQUAL_TEXT(second.address, address);
    door_close(&second);
}

/* Agents tell these apart: where nobody listens, no supervisor has begun
 * another generation; one that is slow may have. */
TEST(knocks_say_how_they_ended)
{
    static struct door door;
    const struct visitor self = {.purpose = DOOR_AGENT};
    enum door_end end = DOOR_IN;
    int descriptor;

    IS_OK(token_draw(&right));
    IS_OK(door_open(&door, "127.0.0.1:0", &right, JOB));
    FAILS(door_knock(&descriptor, door.address, &self, &right, 200, &end),
          ERR_PEER, "no answer in time"); /* the system accepts, nobody steps */
    EQUAL_INT(end, DOOR_LATE);
    char address[DOOR_ADDRESS_BYTES];

    memcpy(address, door.address, sizeof address);
    door_close(&door);
    FAILS(door_knock(&descriptor, address, &self, &right, 200, &end),
          ERR_PEER, "refused");
    EQUAL_INT(end, DOOR_NOBODY);
    FAILS(door_knock(&descriptor, "nowhere", &self, &right, 200, &end),
          ERR_CONFIG, "HOST:PORT");
    EQUAL_INT(end, DOOR_UNKNOWN);
    FAILS(door_knock(&descriptor, address, &self, &right, 200, NULL),
          ERR_PEER, "refused");
}

/* 0.0.0.0 is nothing that an agent could be given. */
TEST(a_listener_at_all_addresses_is_reached_by_its_machines_name)
{
    char out[DOOR_ADDRESS_BYTES], host[64] = "", want[DOOR_ADDRESS_BYTES];

    door_reached("10.0.0.1:7077", out);
    EQUAL_TEXT(out, "10.0.0.1:7077");
    CHECK(gethostname(host, sizeof host - 1) == 0);
    snprintf(want, sizeof want, "%.63s:7077", host);
    door_reached("0.0.0.0:7077", out);
    EQUAL_TEXT(out, want);
    door_reached("[::]:7077", out);
    EQUAL_TEXT(out, want);
}

/* ---- names with several addresses ---- */

/* The names "two..." and "moved" have a first address at which nobody listens,
 * or that this machine has not, as those of IPv6; "apart" has, too, and "both"
 * one of IPv6; the rest as the system. */
int getaddrinfo(const char *restrict host, const char *restrict port,
                const struct addrinfo *restrict hints,
                struct addrinfo **restrict out)
{
    int (*real)(const char *, const char *, const struct addrinfo *,
                struct addrinfo **);
    const bool two = strncmp(host, "two", 3) == 0;
    const bool both = strncmp(host, "both", 4) == 0;
    struct addrinfo *second;
    int error;

    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (!two && !both && strcmp(host, "moved") != 0 &&
        strcmp(host, "apart") != 0)
        return real(host, port, hints, out);
    error = real("127.0.0.1", port, hints, &second);
    if (error != 0) return error;
    error = real(two ? "127.0.0.9" : both ? "2001:db8::1" : "192.0.2.1", port,
                 hints, out);
    if (error == 0) (*out)->ai_next = second;
    else freeaddrinfo(second);
    return error;
}

/* Only the first address was tried: an agent that was told the name of a
 * machine with IPv6 never reached a supervisor that listens by IPv4. */
TEST(all_addresses_of_a_name_are_tried)
{
    static struct door door;
    char address[128], there[DOOR_ADDRESS_BYTES];
    enum door_end end = DOOR_UNKNOWN;
    int descriptor;

    open_one(&door);
    /* As long as those of Kubernetes are. */
    snprintf(address, sizeof address, "two%065d%s", 0,
             strrchr(door.address, ':'));
    IS_OK(socket_connect(&descriptor, address, in_time(), &end));
    EQUAL_INT(end, DOOR_IN);
    door_far_side(descriptor, there);
    EQUAL_TEXT(there, door.address);
    close(descriptor);
    door_close(&door);
    FAILS(socket_connect(&descriptor, address, in_time(), &end), ERR_PEER,
          "refused");
    EQUAL_INT(end, DOOR_NOBODY);
    IS_OK(door_open(&door, "moved:0", &right, JOB));
    EQUAL_TEXT(strtok(memcpy(there, door.address, sizeof there), ":"),
               "127.0.0.1");
    door_close(&door);
}

static int no_way; /* the error of what is not on the loopback; 0: none */

static bool is_away(const struct sockaddr *to)
{
    const struct sockaddr_in *v4 = (const void *)to;

    return to->sa_family == AF_INET6 ||
           (to->sa_family == AF_INET &&
            (ntohl(v4->sin_addr.s_addr) >> 24) != 127);
}

int connect(int descriptor, __CONST_SOCKADDR_ARG to, socklen_t length)
{
    int (*real)(int, __CONST_SOCKADDR_ARG, socklen_t);

    *(void **)&real = dlsym(RTLD_NEXT, "connect");
    if (no_way == 0 || !is_away(to.__sockaddr__))
        return real(descriptor, to, length);
    errno = no_way;
    return -1;
}

/* An address of a port at which nobody listens. */
static void find_silence(char out[DOOR_ADDRESS_BYTES], const char *host)
{
    static struct door door;

    open_one(&door);
    snprintf(out, DOOR_ADDRESS_BYTES, "%s%s", host,
             strrchr(door.address, ':'));
    door_close(&door);
}

/* Ranks on a machine without IPv6 ended when their supervisor did, where its
 * name has such an address, too. A link that is down looks alike where it is
 * the same family's. */
TEST(a_family_without_a_way_is_told_from_a_link_that_is_down)
{
    static const struct { const char *host; int error; enum door_end end; }
    rows[] = {
        {"both", ENETUNREACH, DOOR_NO_WAY},
        {"both", EADDRNOTAVAIL, DOOR_NO_WAY},
        {"apart", ENETUNREACH, DOOR_UNKNOWN},
        {"192.0.2.1", ENETUNREACH, DOOR_UNKNOWN},
        {"both", EPERM, DOOR_UNKNOWN}, /* these need IPv6 */
        {"both", ECONNREFUSED, DOOR_NOBODY},
    };
    char address[DOOR_ADDRESS_BYTES];
    int descriptor = socket(AF_INET6, SOCK_STREAM, 0);
    const size_t count = sizeof rows / sizeof *rows - (descriptor < 0 ? 2 : 0);

    if (descriptor >= 0) close(descriptor);
    for (size_t i = 0; i < count; i++) {
        enum door_end end = DOOR_IN;

        find_silence(address, rows[i].host);
        no_way = rows[i].error;
        CHECK(socket_connect(&descriptor, address, in_time(), &end) ==
              ERR_PEER);
        no_way = 0;
        status_clear();
        EQUAL_INT(end, rows[i].end);
    }
}

/* Ranks of other machines were told to meet at 0.0.0.0, which is their own. */
TEST(a_meeting_at_all_addresses_is_where_the_supervisor_is)
{
    static struct door door;
    char address[DOOR_ADDRESS_BYTES];
    int descriptor;

    open_one(&door);
    descriptor = raw_connect(&door);
    snprintf(address, sizeof address, "0.0.0.0:7078");
    door_through(address, descriptor);
    EQUAL_TEXT(address, "127.0.0.1:7078");
    snprintf(address, sizeof address, "[::]:7");
    door_through(address, descriptor);
    EQUAL_TEXT(address, "127.0.0.1:7");
    snprintf(address, sizeof address, "10.0.0.1:7078");
    door_through(address, descriptor);
    EQUAL_TEXT(address, "10.0.0.1:7078");
    close(descriptor);
    snprintf(address, sizeof address, "0.0.0.0:7078");
    door_through(address, -1); /* nobody knows */
    EQUAL_TEXT(address, "0.0.0.0:7078");
    door_close(&door);
}

TEST_MAIN(a_listener_at_all_addresses_is_reached_by_its_machines_name,
          all_addresses_of_a_name_are_tried,
          a_family_without_a_way_is_told_from_a_link_that_is_down,
          a_meeting_at_all_addresses_is_where_the_supervisor_is,
          the_token_opens, another_token_and_another_job_do_not,
          silent_clients_keep_nobody_out,
          a_crowd_comes_in, a_recorded_handshake_is_refused,
          noise_is_dropped, a_token_is_private, addresses_are_checked,
          an_address_may_be_taken_for_a_moment, knocks_say_how_they_ended)
