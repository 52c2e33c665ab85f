/* SPDX-License-Identifier: Apache-2.0 */
/* test_power_cut.c - mirrors src/checkpoint/commit.c: what a disk may hold
 * after the power went, at every moment of a save.
 *
 * A killed process loses nothing that it wrote; a machine without power loses
 * what was not synced. Calls of fsync, rename and unlink pass through here.
 * Before and after each, every state is built that a disk may be in then: a
 * file that was not synced since it was written has its old bytes, its new
 * ones or half of them, a directory its old names or its new ones, each
 * independent of the others. Then, beside all else that is new, such a file
 * ends at every sector (a small one at every byte), or has zeros in any one of
 * its sectors. Recovery from each finds a whole checkpoint. */
#include "tests/unit/checkpoint/room.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "checkpoint/history.h"

enum { SECTOR = 512, SMALL = 1024 };
enum { NODES = 128, NAMES = 32, NAME = 96, STATES_MOST = 4096,
       COLUMNS = 501 /* of the largest weight: a save of 40 KB */ };

struct listing {
    int count;
    struct { char name[NAME]; ino_t inode; } items[NAMES];
};
struct content { char *bytes; size_t length; };

struct node {
    ino_t inode;
    bool directory, seen;
    struct listing names, safe_names;
    struct content bytes, safe_bytes;
    char path[NAME];       /* below room/ckpt, as it was seen last */
    int choice, choices;   /* 0: what is there, 1: what is safe, 2: half */
};

static struct node nodes[NODES];
static int node_count;
static ino_t top;          /* of room/ckpt */
static bool watching;
static char crashed[PATH_BYTES];
enum { PROBE = 7 /* numbers of the smallest weight */ };
static struct { int64_t step; float numbers[PROBE]; } allowed[2];
static int allowed_count;
static struct saved_part probe;
static long states, moments;

/* ---- what is there, what is safe ---- */

static struct node *node_of(ino_t inode)
{
    for (int i = 0; i < node_count; i++)
        if (nodes[i].inode == inode) return &nodes[i];
    return NULL;
}

static void content_copy(struct content *to, const struct content *from)
{
    free(to->bytes);
    to->bytes = malloc(from->length + 1);
    CHECK(to->bytes != NULL);
    if (from->length > 0) memcpy(to->bytes, from->bytes, from->length);
    to->length = from->length;
}

static ino_t walk(const char *path);

static void walk_names(struct node *node, const char *path)
{
    char **names = NULL, inner[2 * PATH_BYTES];
    struct listing list;
    int count = 0;

    memset(&list, 0, sizeof list);
    IS_OK(directory_list(path, &names, &count));
    CHECK(count <= NAMES);
    for (int i = 0; i < count; i++) {
        snprintf(inner, sizeof inner, "%s/%s", path, names[i]);
        snprintf(list.items[i].name, NAME, "%s", names[i]);
        list.items[i].inode = walk(inner);
    }
    list.count = count;
    node->names = list;
    directory_list_free(names, count);
}

/* Brings the node of a path up to date; a new one has nothing that is safe. */
static ino_t walk(const char *path)
{
    struct stat about;
    struct node *node;

    CHECK(stat(path, &about) == 0);
    node = node_of(about.st_ino);
    if (node == NULL) {
        CHECK(node_count < NODES);
        node = &nodes[node_count++];
        memset(node, 0, sizeof *node);
        node->inode = about.st_ino;
        node->directory = S_ISDIR(about.st_mode);
    }
    node->seen = true;
    if (node->directory) {
        walk_names(node, path);
    } else {
        struct text text = {0};

        CHECK(snprintf(node->path, NAME, "%s",
                       path + strlen(room_path("ckpt"))) < NAME);
        IS_OK(file_read(path, 1 << 24, &text));
        content_copy(&node->bytes, &(struct content){text.bytes, text.length});
        text_free(&text);
    }
    return about.st_ino;
}

static void make_safe(struct node *node)
{
    node->safe_names = node->names;
    content_copy(&node->safe_bytes, &node->bytes);
}

static bool is_safe(const struct node *n)
{
    if (n->directory)
        return memcmp(&n->names, &n->safe_names, sizeof n->names) == 0;
    return n->bytes.length == n->safe_bytes.length &&
           (n->bytes.length == 0 ||
            memcmp(n->bytes.bytes, n->safe_bytes.bytes, n->bytes.length) == 0);
}

/* ---- a disk after the power went ---- */

static void put(const struct node *node, const char *path)
{
    char inner[2 * PATH_BYTES];
    const struct listing *names = node->choice == 1 ? &node->safe_names
                                                    : &node->names;
    const struct content *bytes = node->choice == 1 ? &node->safe_bytes
                                                    : &node->bytes;

    if (!node->directory) {
        const size_t length = node->choice == 2 ? bytes->length / 2
                                                : bytes->length;
        const int to = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

        CHECK(to >= 0 && write(to, bytes->bytes, length) == (ssize_t)length);
        close(to);
        return;
    }
    CHECK(mkdir(path, 0700) == 0);
    for (int i = 0; i < names->count; i++) {
        const struct node *one = node_of(names->items[i].inode);

        CHECK(one != NULL);
        snprintf(inner, sizeof inner, "%s/%s", path, names->items[i].name);
        put(one, inner);
    }
}

/* One of the checkpoints that may be found, whole: no mixture of two. */
static void recover(void)
{
    struct checkpoint checkpoint;
    struct text notice = {0};
    float read[PROBE];
    struct saved_part part = probe;
    bool known = false;

    IS_OK(checkpoint_open_newest_valid(&checkpoint, crashed, NULL, &notice));
    IS_OK(checkpoint_verify(&checkpoint));
    part.data = read;
    IS_OK(checkpoint_read_tensor(&checkpoint, &part));
    for (int i = 0; i < allowed_count; i++)
        known = known ||
                (checkpoint.manifest.step == allowed[i].step &&
                 memcmp(read, allowed[i].numbers, sizeof read) == 0);
    CHECK(known);
    text_free(&notice);
    checkpoint_close(&checkpoint);
    states++;
}

/* Every choice for each node that is not safe. */
static void every_state(void)
{
    char path[2 * PATH_BYTES];
    long count = 1;
    bool more = true;

    for (int i = 0; i < node_count; i++) {
        struct node *n = &nodes[i];

        n->choice = 0;
        n->choices = is_safe(n) ? 1 : n->directory ? 2 : 3;
        if (!n->seen) { /* has no name any more, but an old list may have it */
            n->choice = 1;
            n->choices = 1;
        }
        count *= n->choices;
    }
    CHECK(count <= STATES_MOST);
    snprintf(path, sizeof path, "%s/ckpt", crashed);
    while (more) {
        int i = 0;

        if (file_exists(path)) IS_OK(directory_remove(path));
        put(node_of(top), path);
        recover();
        for (more = false; i < node_count && !more; i++) {
            struct node *n = &nodes[i];

            if (n->choices == 1) continue;
            n->choice = (n->choice + 1) % n->choices;
            more = n->choice != 0;
        }
    }
}

/* ---- every prefix, every hole ---- */

static void rewrite(const char *path, const char *bytes, size_t length)
{
    const int to = open(path, O_WRONLY | O_TRUNC);

    CHECK(to >= 0 && write(to, bytes, length) == (ssize_t)length);
    close(to);
    recover();
}

static void every_part(const struct node *n)
{
    const size_t length = n->bytes.length;
    const size_t step = length <= SMALL ? 1 : SECTOR;
    char path[2 * PATH_BYTES], *bytes = malloc(length + 1);

    CHECK(bytes != NULL);
    snprintf(path, sizeof path, "%s/ckpt%s", crashed, n->path);
    for (size_t cut = 0; cut < length; cut += step)
        rewrite(path, n->bytes.bytes, cut);
    for (size_t at = 0; at < length; at += SECTOR) {
        const size_t some = length - at < SECTOR ? length - at : SECTOR;

        memcpy(bytes, n->bytes.bytes, length);
        memset(bytes + at, 0, some);
        rewrite(path, bytes, length);
    }
    rewrite(path, n->bytes.bytes, length);
    free(bytes);
}

/* All else is new, and on the disk. */
static void every_file(void)
{
    char path[2 * PATH_BYTES];

    for (int i = 0; i < node_count; i++) nodes[i].choice = 0;
    snprintf(path, sizeof path, "%s/ckpt", crashed);
    IS_OK(directory_remove(path));
    put(node_of(top), path);
    for (int i = 0; i < node_count; i++)
        if (!nodes[i].directory && nodes[i].seen && !is_safe(&nodes[i]))
            every_part(&nodes[i]);
}

static void moment(void)
{
    if (!watching) return;
    watching = false;
    for (int i = 0; i < node_count; i++) nodes[i].seen = false;
    top = walk(room_path("ckpt"));
    every_state();
    every_file();
    moments++;
    watching = true;
}

/* ---- calls of the program ---- */

int fsync(int descriptor)
{
    struct stat about;
    struct node *node;
    int code;

    moment();
    code = (int)syscall(SYS_fsync, descriptor);
    if (watching && code == 0 && fstat(descriptor, &about) == 0) {
        node = node_of(about.st_ino);
        if (node != NULL) make_safe(node);
        moment();
    }
    return code;
}

static int renamed(int from, const char *old, int to, const char *new,
                   unsigned flags)
{
    int code;

    moment();
    code = (int)syscall(SYS_renameat2, from, old, to, new, flags);
    moment();
    return code;
}

int rename(const char *old, const char *new)
{
    return renamed(AT_FDCWD, old, AT_FDCWD, new, 0);
}

int renameat(int from, const char *old, int to, const char *new)
{
    return renamed(from, old, to, new, 0);
}

int renameat2(int from, const char *old, int to, const char *new,
              unsigned flags)
{
    return renamed(from, old, to, new, flags);
}

int unlinkat(int directory, const char *name, int flags)
{
    int code;

    moment();
    code = (int)syscall(SYS_unlinkat, directory, name, flags);
    moment();
    return code;
}

/* ---- saves ---- */

static struct small *make(int seed, int64_t step)
{
    struct small *small = small_make(seed);

    for (int i = 0; i < 3; i++) small->parts[i].shape[1] = COLUMNS;
    small->plan.step = step;
    return small;
}

static void allow(int index, int64_t step, int seed)
{
    struct small *small = small_make(seed);

    probe = small->parts[6];
    allowed[index].step = step;
    memcpy(allowed[index].numbers, probe.data, sizeof allowed[index].numbers);
    allowed_count = index + 1;
    free(small);
}

/* All that is there is on the disk. */
static void begin(void)
{
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    room_open();
    IS_OK(path_join(crashed, sizeof crashed, room, "crashed"));
    IS_OK(directory_make(crashed));
    states = moments = 0;
}

static void watch(void)
{
    for (int i = 0; i < node_count; i++) {
        free(nodes[i].bytes.bytes);
        free(nodes[i].safe_bytes.bytes);
    }
    node_count = 0;
    top = walk(room_path("ckpt"));
    for (int i = 0; i < node_count; i++) make_safe(&nodes[i]);
    watching = true;
}

static void save(int seed, int64_t step)
{
    struct small *small = make(seed, step);

    IS_OK(checkpoint_save(&small->plan));
    free(small);
}

/* Once a call has ended, what it made is there in every state. */
static void end(int64_t step, int seed)
{
    allow(0, step, seed);
    moment();
    watching = false;
    print_message("%ld states at %ld moments\n", states, moments);
    CHECK(moments > 4 && states > moments);
}

TEST(a_save_without_power)
{
    begin();
    save(1, 10);
    watch();
    allow(0, 10, 1);
    allow(1, 20, 2);
    save(2, 20);
    end(20, 2);
    room_close();
}

TEST(a_replacement_without_power)
{
    begin();
    save(1, 10);
    save(2, 20);
    watch();
    allow(0, 20, 2);
    allow(1, 20, 3);
    save(3, 20);
    end(20, 3);
    room_close();
}

TEST(a_removal_without_power)
{
    begin();
    save(1, 10);
    save(2, 20);
    watch();
    allow(0, 20, 2);
    IS_OK(checkpoint_prune(room, 1, 0, -1));
    end(20, 2);
    CHECK(!file_exists(room_path("ckpt/step-00000010")));
    room_close();
}

TEST_MAIN(a_save_without_power, a_replacement_without_power,
          a_removal_without_power)
