/* SPDX-License-Identifier: Apache-2.0 */
/* wire.c - wires between network namespaces, which delay and lose packets: for
 * kernels that have no netem.
 *
 *     wire COUNT            in the namespace that has the bridge
 *
 * Makes tap devices: `eth` in each of the namespaces n1 to nCOUNT, and v1 to
 * vCOUNT here; a frame that goes into one end comes out of the other. Prints
 * "ready". Then it reads lines:
 *
 *     WIRE DELAY LOSS [JITTER]  milliseconds each way, frames lost of a
 *                           million; up to JITTER ms more for each frame; wire
 *                           0: all of them
 *
 * A wire keeps the order of its frames and holds 4,096 of each direction; more
 * are lost, as in a real queue. Ends with its standard input, and then prints
 * how many frames were carried and lost, and how late the latest one was
 * because this program had to wait for a processor. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { WIRES_MOST = 64, QUEUE = 4096, FRAME_MOST = 2048, MILLION = 1000000 };

struct frame {
    int64_t due; /* nanoseconds */
    int bytes;
    unsigned char data[FRAME_MOST];
};

/* From one end to the other. */
struct way {
    struct frame *frames; /* [QUEUE], a ring */
    int first, count;
};

struct wire {
    int end[2];
    struct way way[2]; /* way i begins at end i */
    int64_t delay;     /* nanoseconds */
    int jitter;        /* milliseconds */
    int loss;          /* of a million */
};

static struct wire wires[WIRES_MOST + 1];
static int count;
static long long carried, lost;
static int64_t latest; /* nanoseconds */
static uint64_t random_state = 88172645463325252u;

static void die(const char *what)
{
    fprintf(stderr, "wire: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int random_below(int limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (int)(random_state % (uint64_t)limit);
}

/* A tap device of this name in the namespace that the process is in. */
static int tap_open(const char *name)
{
    struct ifreq request;
    const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0) die("/dev/net/tun");
    memset(&request, 0, sizeof request);
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    if (ioctl(fd, TUNSETIFF, &request) != 0) die(name);
    return fd;
}

static void wire_open(struct wire *wire, int number, int home)
{
    char name[64];
    int namespace;

    snprintf(name, sizeof name, "/run/netns/n%d", number);
    namespace = open(name, O_RDONLY | O_CLOEXEC);
    if (namespace < 0 || setns(namespace, CLONE_NEWNET) != 0) die(name);
    wire->end[0] = tap_open("eth");
    close(namespace);
    if (setns(home, CLONE_NEWNET) != 0) die("own namespace");
    snprintf(name, sizeof name, "v%d", number);
    wire->end[1] = tap_open(name);
    for (int i = 0; i < 2; i++) {
        wire->way[i].frames = calloc(QUEUE, sizeof(struct frame));
        if (!wire->way[i].frames) die("memory");
    }
}

/* Takes what waits at an end. */
static void way_fill(struct wire *wire, int from)
{
    struct way *way = &wire->way[from];

    for (;;) {
        struct frame *frame =
            &way->frames[(way->first + way->count) % QUEUE];
        unsigned char rest[FRAME_MOST];
        const bool full = way->count == QUEUE;
        const ssize_t bytes =
            read(wire->end[from], full ? rest : frame->data, FRAME_MOST);

        if (bytes <= 0) return;
        if (full || random_below(MILLION) < wire->loss) {
            lost++;
            continue;
        }
        frame->bytes = (int)bytes;
        frame->due = now() + wire->delay +
                     (int64_t)random_below(1000 * wire->jitter + 1) * 1000;
        way->count++;
    }
}

/* Delivers what is due. A device that is down takes nothing: lost. */
static void way_drain(struct wire *wire, int from, int64_t at)
{
    struct way *way = &wire->way[from];

    while (way->count > 0 && way->frames[way->first].due <= at) {
        const struct frame *frame = &way->frames[way->first];

        if (at - frame->due > latest) latest = at - frame->due;
        if (write(wire->end[1 - from], frame->data, (size_t)frame->bytes) < 0)
            lost++;
        else
            carried++;
        way->first = (way->first + 1) % QUEUE;
        way->count--;
    }
}

/* Reads orders; false at the end of the input. */
static bool orders_read(void)
{
    static char line[256];
    static size_t used;
    const ssize_t bytes = read(0, line + used, sizeof line - used - 1);
    char *end;

    if (bytes <= 0) return bytes < 0 && (errno == EAGAIN || errno == EINTR);
    used += (size_t)bytes;
    line[used] = 0;
    while ((end = strchr(line, '\n')) != NULL) {
        int number, delay, loss, jitter = 0;

        *end++ = 0;
        if (sscanf(line, "%d %d %d %d", &number, &delay, &loss, &jitter) < 3 ||
            number < 0 || number > count || delay < 0 || loss < 0 ||
            jitter < 0 || jitter > 1000) {
            fprintf(stderr, "wire: expected WIRE DELAY LOSS [JITTER], "
                            "not: %s\n", line);
            exit(1);
        }
        for (int i = 1; i <= count; i++) {
            if (number != 0 && number != i) continue;
            wires[i].delay = (int64_t)delay * 1000000;
            wires[i].loss = loss;
            wires[i].jitter = jitter;
        }
        used -= (size_t)(end - line);
        memmove(line, end, used + 1);
    }
    return used + 1 < sizeof line;
}

/* Milliseconds until the next frame is due, at most a second. */
static int wait_of(int64_t at)
{
    int64_t next = at + 1000000000;

    for (int i = 1; i <= count; i++)
        for (int from = 0; from < 2; from++) {
            const struct way *way = &wires[i].way[from];

            if (way->count > 0 && way->frames[way->first].due < next)
                next = way->frames[way->first].due;
        }
    return next <= at ? 0 : (int)((next - at + 999999) / 1000000);
}

int main(int argc, char **argv)
{
    struct pollfd polled[2 * WIRES_MOST + 1];
    const int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

    count = argc == 2 ? atoi(argv[1]) : 0;
    if (count < 1 || count > WIRES_MOST) {
        fprintf(stderr, "usage: wire COUNT, 1 to %d\n", WIRES_MOST);
        return 2;
    }
    if (home < 0) die("own namespace");
    polled[0] = (struct pollfd){0, POLLIN, 0};
    for (int i = 1; i <= count; i++) {
        wire_open(&wires[i], i, home);
        polled[2 * i - 1] = (struct pollfd){wires[i].end[0], POLLIN, 0};
        polled[2 * i] = (struct pollfd){wires[i].end[1], POLLIN, 0};
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        if (poll(polled, (nfds_t)(2 * count + 1), wait_of(now())) < 0 &&
            errno != EINTR)
            die("poll");
        if (polled[0].revents && !orders_read()) break;
        for (int i = 1; i <= count; i++)
            for (int from = 0; from < 2; from++) {
                if (polled[2 * i - 1 + from].revents & POLLIN)
                    way_fill(&wires[i], from);
                way_drain(&wires[i], from, now());
            }
    }
    printf("carried %lld, lost %lld, late %lld ms\n", carried, lost,
           (long long)latest / 1000000);
    return 0;
}
