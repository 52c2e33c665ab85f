/* SPDX-License-Identifier: Apache-2.0 */
/* images.c - machine code of the driver for tests: what a GPU reads of nvcc's
 * file of kernels (a fatbin) before it starts one. Kernels run under the
 * emulator all the same.
 *
 * A fatbin is a head and images, each with a head: machine code of a kind of
 * GPU, which is an ELF file, or PTX. Of a kernel NAME the ELF file has sections
 * .text.NAME, .nv.shared.NAME and .nv.info.NAME; the latter, and .nv.info for
 * all kernels, are lists of attributes (cuobjdump --dump-elf shows them). */
#include "driver.h"

#include <elf.h>
#include <string.h>

enum { FATBIN_MAGIC = (int)0xBA55ED50, KIND_PTX = 1, KIND_ELF = 2,
       FOR_ONE_KIND = 0x100000 /* sm_90a: no other GPU takes it */ };

struct fatbin { uint32_t magic; uint16_t version, head; uint64_t bytes; };
struct image {
    uint16_t kind, version;
    uint32_t head;
    uint64_t bytes;
    uint32_t unused[3], arch; /* 90 of 9.0 */
    uint64_t unused_too, flags;
};

/* ---- the image for a GPU ---- */

static bool takes(const struct image *image)
{
    const int major = driver_number("MAJOR", 9);
    const int arch = 10 * major + driver_number("MINOR", 0);
    const int its = (int)image->arch;

    if (image->kind == KIND_PTX) return its <= arch;
    if (image->flags & FOR_ONE_KIND) return its == arch;
    return its / 10 == major && its <= arch;
}

/* Machine code that the GPU takes, else PTX, of which the driver makes code:
 * then, and where the build has neither, another GPU's code says what kernels
 * are like. */
CUresult image_choose(const void *fatbin, struct CUmod_st *out)
{
    const struct fatbin *head = fatbin;
    const char *at = (const char *)fatbin + head->head;
    const char *end = at + head->bytes;
    bool fits = false;

    if (head->magic != (uint32_t)FATBIN_MAGIC || driver_number("BROKEN", 0))
        return CUDA_ERROR_INVALID_IMAGE;
    *out = (struct CUmod_st){0};
    for (const struct image *image; at < end;
         at += image->head + image->bytes) {
        const bool chosen = takes(image = (const void *)at);

        if (image->kind == KIND_ELF && (out->elf == NULL || chosen))
            out->elf = at + image->head;
        fits = fits || chosen;
    }
    if (!fits && driver_number("ONLY_OWN", 0))
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (out->elf == NULL || memcmp(out->elf, ELFMAG, SELFMAG) != 0)
        return CUDA_ERROR_INVALID_IMAGE;
    return CUDA_SUCCESS;
}

/* ---- a kernel ---- */

/* The section PREFIX NAME; NULL: there is none. */
static const Elf64_Shdr *section(const char *elf, const char *prefix,
                                 const char *name)
{
    const Elf64_Ehdr *head = (const void *)elf;
    const Elf64_Shdr *all = (const void *)(elf + head->e_shoff);
    const char *names = elf + all[head->e_shstrndx].sh_offset;
    const size_t length = strlen(prefix);

    for (int i = 0; i < head->e_shnum; i++) {
        const char *its = names + all[i].sh_name;

        if (strncmp(its, prefix, length) == 0 &&
            strcmp(its + length, name) == 0)
            return &all[i];
    }
    return NULL;
}

enum attribute { MOST_THREADS = 0x05, FRAME_BYTES = 0x11, STACK_BYTES = 0x12,
                 CALL_BYTES = 0x19, REGISTERS = 0x2f };

/* A list of attributes: either a number of 16 bits or, in format 4, so many
 * bytes of words follow. Those of symbol `symbol`; 0: of the list's kernel. */
static void attributes_read(const char *elf, const Elf64_Shdr *of,
                            uint32_t symbol, struct kernel_image *out)
{
    const char *at = elf + of->sh_offset, *end = at + of->sh_size;

    while (at < end) {
        const int format = at[0];
        const enum attribute attribute = (enum attribute)(unsigned char)at[1];
        uint16_t value;
        uint32_t words[3] = {0};

        memcpy(&value, at + 2, sizeof value);
        at += 4;
        if (format == 4) {
            memcpy(words, at, value < sizeof words ? value : sizeof words);
            at += value;
        }
        if (attribute == CALL_BYTES) out->call = value;
        if (attribute == MOST_THREADS) out->threads = words[0];
        if (symbol == 0 || words[0] != symbol) continue;
        if (attribute == REGISTERS) out->registers = words[1];
        if ((attribute == FRAME_BYTES || attribute == STACK_BYTES) &&
            words[1] > out->local)
            out->local = words[1];
    }
}

bool image_kernel(const struct CUmod_st *module, const char *name,
                  struct kernel_image *out)
{
    const Elf64_Shdr *code = section(module->elf, ".text.", name);
    const Elf64_Shdr *own = section(module->elf, ".nv.info.", name);
    const Elf64_Shdr *all = section(module->elf, ".nv.info", "");
    const Elf64_Shdr *shared = section(module->elf, ".nv.shared.", name);

    *out = (struct kernel_image){0};
    if (code == NULL || own == NULL || all == NULL) return false;
    attributes_read(module->elf, own, 0, out);
    attributes_read(module->elf, all, code->sh_info & 0xffffff, out);
    if (shared != NULL) out->shared = (uint32_t)shared->sh_size;
    return out->registers > 0 && out->threads > 0;
}

/* ---- a launch ---- */

enum { REGISTERS_MOST = 65536, WARP = 32, UNIT = 256 /* of registers */,
       BLOCK_MOST = 1024, SHARED_MOST = 48 * 1024 };

/* A block's warps have registers in units. Dynamic memory of blocks beyond
 * SHARED_MOST would have to be asked for. The GPU's memory is full: a kernel
 * that was not loaded, or needs larger stacks than the context has, would take
 * some. */
CUresult image_starts(const struct CUfunc_st *function, uint32_t threads,
                      uint32_t shared)
{
    const struct kernel_image *k = &function->image;
    const uint32_t warps = (threads + WARP - 1) / WARP;
    const uint32_t each = (k->registers * WARP + UNIT - 1) / UNIT * UNIT;

    if (threads > BLOCK_MOST || threads > k->threads)
        return CUDA_ERROR_INVALID_VALUE;
    if (warps * each > REGISTERS_MOST || k->shared + shared > SHARED_MOST)
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    if (!function->loaded || k->local > driver_stack())
        return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}
