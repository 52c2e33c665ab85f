/* SPDX-License-Identifier: Apache-2.0 */
/* probes.c - the rows of `lockstep doctor`: each really tries something. */
#include "cli/probes.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>
#include "base/file.h"
#include "base/numa_nodes.h"
#include "base/options.h"
#include "base/threads.h"
#include "bench/gpu_rates.h"
#include "checkpoint/s3_curl.h"
#include "cli/about.h"
#include "comm/mpi.h"
#include "comm/nccl.h"
#include "kernels/cuda_about.h"
#include "kernels/features.h"
#include "kernels/kernels.h"
#include "tokenizer/unicode.h"

static void say(struct finding *finding, bool works, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void say(struct finding *finding, bool works, const char *format, ...)
{
    va_list arguments;

    finding->works = works;
    va_start(arguments, format);
    vsnprintf(finding->why, sizeof finding->why, format, arguments);
    va_end(arguments);
}

static void advise(struct finding *finding, const char *advice)
{
    snprintf(finding->advice, sizeof finding->advice, "%s", advice);
}

/* The message of a failed call as the reason. */
static void say_status(struct finding *finding)
{
    say(finding, false, "%s", status_message());
    status_clear();
}

/* First line of a small system file; "" when it cannot be read. */
static void first_line(const char *path, char *out, size_t size)
{
    FILE *file = fopen(path, "r");

    out[0] = '\0';
    if (file == NULL) return;
    if (fgets(out, (int)size, file) == NULL) out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    fclose(file);
}

static void count_body(void *argument, int index, int count)
{
    (void)index;
    (void)count;
    atomic_fetch_add((atomic_int *)argument, 1);
}

static void probe_cores(struct finding *finding)
{
    struct threads *threads = NULL;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    char quota[64];
    atomic_int ran = 0;

    first_line("/sys/fs/cgroup/cpu.max", quota, sizeof quota);
    if (threads_build(&threads, 0) != OK) {
        say_status(finding);
        return;
    }
    threads_run(threads, count_body, &ran);
    say(finding, ran == threads_count(threads),
        "%d of %ld cores may be used; a pool of %d threads ran",
        threads_cores(), online, (int)ran);
    if (quota[0] != '\0' && strncmp(quota, "max", 3) != 0)
        advise(finding, "a cgroup limits CPU time (cpu.max): set train.threads "
                        "to that limit");
    threads_free(threads);
}

static void probe_memory(struct finding *finding)
{
    char line[128], bytes[32];
    long long available = 0;
    FILE *file = fopen("/proc/meminfo", "r");

    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "MemAvailable: %lld kB", &available) == 1) break;
    if (file != NULL) fclose(file);
    if (available == 0) {
        say(finding, false, "/proc/meminfo does not say what is available");
        return;
    }
    say(finding, available > 256 * 1024, "%s available",
        text_bytes(bytes, (uint64_t)available * 1024));
    first_line("/sys/fs/cgroup/memory.max", line, sizeof line);
    if (line[0] != '\0' && strcmp(line, "max") != 0)
        snprintf(finding->advice, sizeof finding->advice,
                 "a cgroup allows %s bytes: keep the plan below it", line);
}

/* The mode bits, and a sum that only round-to-nearest without flushing of
 * small numbers gets right. */
static void probe_rounding(struct finding *finding)
{
    volatile double one = 1, half_ulp = 0x1p-53, small = 0x1p-1074;

    if (threads_check_rounding() != OK) {
        say_status(finding);
        advise(finding, "a library changed the mode: unset LD_PRELOAD");
        return;
    }
    say(finding, one + half_ulp == one && one + 3 * half_ulp > one &&
                     small > 0 && small + small == 0x1p-1073,
        "to nearest even, small numbers kept");
}

enum { PRODUCT_WIDTH = 67 }; /* not a multiple of any vector */

static void product_fill(float *a, float *b)
{
    for (int i = 0; i < PRODUCT_WIDTH * PRODUCT_WIDTH; i++) {
        a[i] = (float)((i * 37) % 101) / 101 - 0.5f;
        b[i] = (float)((i * 53) % 97) / 97 - 0.5f;
    }
}

static status product_run(const struct kernels *kernels, float *c, float *a,
                          float *b)
{
    const struct sum_segment segment = {0, PRODUCT_WIDTH, 0};
    const struct sum_order order = {&segment, 1, 1};
    const int64_t n = PRODUCT_WIDTH;
    const struct matmul product = {.c = tensor_2d(c, DTYPE_F32, n, n),
                                   .a = tensor_2d(a, DTYPE_F32, n, n),
                                   .b = tensor_2d(b, DTYPE_F32, n, n),
                                   .order = &order};
    struct stream stream = {0};
    struct arena arena = {0};
    status result;

    arena_init(&arena, "doctor", 0);
    stream.scratch_bytes = kernels_scratch_bytes(kernels, 1, n, n);
    TRY_GOTO(done, result,
             arena_take(&arena, stream.scratch_bytes, &stream.scratch));
    TRY_GOTO(done, result, kernels->matmul(&stream, &product));
done:
    arena_free(&arena);
    return result;
}

static void probe_kernels(struct finding *finding)
{
    static float a[PRODUCT_WIDTH * PRODUCT_WIDTH];
    static float b[PRODUCT_WIDTH * PRODUCT_WIDTH];
    static float fast[PRODUCT_WIDTH * PRODUCT_WIDTH];
    static float plain[PRODUCT_WIDTH * PRODUCT_WIDTH];
    struct kernels kernels = {0};

    product_fill(a, b);
    if (kernels_get(&kernels, DTYPE_F32, ISA_AUTO) != OK ||
        product_run(&kernels, fast, a, b) != OK ||
        product_run(&kernels_reference_f32, plain, a, b) != OK) {
        say_status(finding);
        return;
    }
    say(finding, memcmp(fast, plain, sizeof fast) == 0,
        "%s of {%s}; a product equals the reference in every bit",
        isa_name(isa_best()), about_isas());
    if (!finding->works) {
        say(finding, false, "%s: a product differs from the reference",
            isa_name(isa_best()));
        advise(finding, "set numerics.isa to plain and report this");
    }
}

/* The instruction for products of bytes, as cpu/integers.c chooses it. */
static const char *bytes_how(void)
{
    switch (isa_best()) {
    case ISA_AVX512:
        return features_bytes_wide() ? "AVX512-VNNI" : "VPMADDUBSW of AVX-512";
    case ISA_AVX2: return features_bytes() ? "AVX-VNNI" : "VPMADDUBSW of AVX2";
    case ISA_NEON: return "NEON in 16 bits";
    default: return "plain C, which is slow";
    }
}

/* Every machine has the bits of every recipe; what differs is the speed. */
static void probe_recipes(struct finding *finding)
{
    const char *how =
        features_tiles()   ? "AMX (with numerics.bfloat16=tiles)"
        : features_pairs() ? "AVX-512 BF16"
        : isa_best() == ISA_PLAIN ? "plain C, which is slow"
                                  : "float32 instructions";

    say(finding, true, "bitnet: y = x W' in integers by %s; all other "
        "products, hfp8, fp8-*, mxfp8*, mxfp4*, nvfp4*: no instruction for "
        "8 or 4 bits, blocks are rounded to bfloat16 and multiplied by %s",
        bytes_how(), how);
}

static void probe_huge_pages(struct finding *finding)
{
    char line[128];

    first_line("/sys/kernel/mm/transparent_hugepage/enabled", line,
               sizeof line);
    if (line[0] == '\0') {
        say(finding, false, "the kernel has no transparent huge pages");
        return;
    }
    say(finding, strstr(line, "[never]") == NULL, "transparent: %s", line);
    if (!finding->works)
        advise(finding, "echo madvise > /sys/kernel/mm/"
                        "transparent_hugepage/enabled (a few percent)");
}

static void probe_nodes(struct finding *finding)
{
    const int nodes = nodes_online("/sys");

    say(finding, true,
        nodes > 1 ? "%d: what a step needs is dealt to the threads of all"
                  : "%d: memory is as near to every core",
        nodes);
}

/* The library's version in front of what was tried with it. */
static void say_library(struct finding *finding, int index, bool works,
                        const char *what)
{
    struct about_library libraries[ABOUT_LIBRARIES];

    about_libraries(libraries);
    say(finding, works, "%s; %s", libraries[index].version, what);
}

static void probe_yaml(struct finding *finding)
{
    static const char document[] = "seed: 41\n";
    struct options_set set = {0};
    status result = options_init(&set);

    if (result == OK)
        result = options_read_text(&set, document, strlen(document),
                                   "doctor", ORIGIN_FILE);
    if (result == OK)
        say_library(finding, 0, set.values.seed == 41, "read a document");
    else
        say_status(finding);
    options_free(&set);
}

static void probe_pcre2(struct finding *finding)
{
    int error;
    PCRE2_SIZE where;
    uint32_t jit = 0;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR) "\\p{L}+", PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_UCP, &error, &where, NULL);

    if (code == NULL) {
        say_library(finding, 1, false, "cannot compile \\p{L}+");
        advise(finding, "install a PCRE2 with Unicode support");
        return;
    }
    pcre2_config(PCRE2_CONFIG_JIT, &jit);
    say_library(finding, 1, true,
                jit && pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0
                    ? "compiled a pattern to machine code"
                    : "compiled a pattern, without JIT (slower)");
    pcre2_code_free(code);
}

/* e and a combining acute accent become one code point. */
static void probe_utf8proc(struct finding *finding)
{
    utf8proc_int32_t codes[8] = {0};
    const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    utf8proc_ssize_t count =
        utf8proc_decompose((const utf8proc_uint8_t *)"e\xCC\x81", 3, codes, 8,
                           options);
    char what[64];

    if (count == 2) count = utf8proc_normalize_utf32(codes, count, options);
    snprintf(what, sizeof what, "normalises Unicode %s",
             utf8proc_unicode_version());
    say_library(finding, 2, count == 1 && codes[0] == 0xE9, what);
}

/* A letter that no Unicode before 16 has. */
static void probe_unicode(struct finding *finding)
{
    say(finding, unicode_category(0x105C0) == UNICODE_LO,
        "our own tables of Unicode 16.0.0; U+105C0 is a letter");
}

static void probe_onednn(struct finding *finding)
{
    static const char *const names[] = {"libdnnl.so.3", "libdnnl.so.2",
                                        "libdnnl.so.1"};

    for (int i = 0; i < 3; i++) {
        void *library = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
        const bool has_product =
            library != NULL && dlsym(library, "dnnl_sgemm") != NULL;

        if (library != NULL) dlclose(library);
        if (!has_product) continue;
        say(finding, true, "%s has dnnl_sgemm; a peer in bench only",
            names[i]);
        return;
    }
    say(finding, false, "libdnnl.so.1 to .3 cannot be opened");
    advise(finding, "only for comparison: apt-get install libdnnl-dev");
}

static void probe_curl(struct finding *finding)
{
    const char *version = curl_version_text();

    if (version != NULL && curl_signs()) {
        say(finding, true, "libcurl %s signs requests to S3 "
            "(checkpoint.mirror)", version);
        return;
    }
    if (version == NULL)
        say(finding, false, "libcurl.so.4 cannot be opened");
    else
        say(finding, false, "libcurl %s cannot sign requests to S3; 7.75 can",
            version);
    advise(finding, "only for checkpoint.mirror: apt-get install libcurl4");
}

/* Space, a write that reaches the disk, and a lock, in this directory. */
static void probe_disk(struct finding *finding)
{
    char name[64];
    struct statvfs space;
    struct file_lock lock = {0};
    char bytes[32];
    status result;

    if (statvfs(".", &space) != 0) {
        say(finding, false, "the space of this directory is unknown");
        return;
    }
    snprintf(name, sizeof name, "lockstep-doctor-%ld.tmp", (long)getpid());
    result = file_write_atomic(name, "doctor\n", 7);
    if (result == OK) result = file_lock_take(&lock, name);
    if (result == OK) {
        say(finding, true, "%s free here; wrote, synced and locked a file",
            text_bytes(bytes, (uint64_t)space.f_bavail * space.f_frsize));
    } else {
        say_status(finding);
        advise(finding, "choose another run.dir");
    }
    file_lock_drop(&lock);
    unlink(name);
}

static void probe_mpi(struct finding *finding)
{
    static const char *const names[] = {"openmpi", "mpich"};
    char works[40] = "";

    for (int i = 0; i < 2; i++) {
        if (mpi_check(names[i]) == OK)
            snprintf(works + strlen(works), sizeof works - strlen(works),
                     "%s%s", works[0] ? ", " : "", names[i]);
        else
            say_status(finding);
    }
    if (works[0] != '\0') say(finding, true, "%s", works);
    else advise(finding, "--ranks N needs none; apt install libopenmpi-dev "
                         "openmpi-bin, then make");
}

static void probe_cuda(struct finding *finding)
{
    char text[FINDING_BYTES - 80], foreign[80] = "", bytes[32];
    const enum cuda_found found = cuda_about(text, sizeof text);

    if (cuda_foreign() > 0)
        snprintf(foreign, sizeof foreign, ", context and kernels take %s",
                 text_bytes(bytes, cuda_foreign()));
    say(finding, found == CUDA_LOADS, "%s%s", text,
        found == CUDA_LOADS ? foreign : "; kernels run on the CPU");
    if (found == CUDA_ABSENT)
        advise(finding, "tools/setup.sh cuda, then make: kernels are compiled "
                        "(docs/cuda.md)");
}

/* `about` writes what it found; true: it works. */
static void probe_library(struct finding *finding,
                          bool (*about)(char *text, size_t bytes),
                          const char *advice)
{
    char text[FINDING_BYTES];

    say(finding, about(text, sizeof text), "%s", text);
    if (!finding->works) advise(finding, advice);
}

static void probe_gpus(struct finding *finding)
{
    probe_library(finding, cuda_health, "");
}

static void probe_rates(struct finding *finding)
{
    char text[FINDING_BYTES];
    struct gpu_rates rates;

    if (cuda_about(text, sizeof text) != CUDA_LOADS) {
        say(finding, false, "no GPU loads the kernels");
        return;
    }
    if (gpu_rates_measure(&rates) != OK) {
        say_status(finding);
        return;
    }
    say(finding, true, "GPU 0: memory %.4g GB/s; products %.3g TFLOP/s in "
        "float32 by own kernels, %.3g in bfloat16 by %s",
        1e-9 * rates.memory_bytes, 1e-12 * rates.float32_flops,
        1e-12 * rates.bfloat16_flops,
        rates.by_library ? "cuBLASLt" : "own kernels");
}

static void probe_products(struct finding *finding)
{
    probe_library(finding, cuda_products,
                  "only for numerics.gpu=fast: own kernels make products");
}

static void probe_attention(struct finding *finding)
{
    probe_library(finding, cuda_attention,
                  "only for numerics.gpu=fast: own kernels compute attention");
}

static void probe_nccl(struct finding *finding)
{
    const struct nccl_plugin *nccl;
    int version;

    if (nccl_open(&nccl, &version) != OK) {
        say_status(finding);
        advise(finding, "only for comm.library=nccl: ranks send through "
                        "memory and sockets");
        return;
    }
    say(finding, true, "%d.%d.%d (comm.library=nccl)", version / 10000,
        version / 100 % 100, version % 100);
}

const struct probe probes[] = {
    {"cores", true, probe_cores},
    {"memory", true, probe_memory},
    {"rounding", true, probe_rounding},
    {"fast kernels", true, probe_kernels},
    {"recipes", false, probe_recipes},
    {"huge pages", false, probe_huge_pages},
    {"memory nodes", false, probe_nodes},
    {"disk", false, probe_disk},
    {"libyaml", true, probe_yaml},
    {"pcre2", false, probe_pcre2},
    {"utf8proc", true, probe_utf8proc},
    {"Unicode tables", true, probe_unicode},
    {"oneDNN", false, probe_onednn},
    {"libcurl", false, probe_curl},
    {"MPI", false, probe_mpi},
    {"CUDA", false, probe_cuda},
    {"GPUs", false, probe_gpus},
    {"GPU rates", false, probe_rates},
    {"cuBLASLt", false, probe_products},
    {"cuDNN", false, probe_attention},
    {"NCCL", false, probe_nccl},
};
const int probe_count = (int)(sizeof probes / sizeof *probes);
