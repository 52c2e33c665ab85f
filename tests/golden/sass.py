#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sass.py - instructions of tensor cores in the machine code that nvcc made.

    tests/golden/sass.py FATBIN...    a line for each kernel and kind of GPU:
                                      KERNEL sm_90 HMMA LDSM LDGSTS ALL

counts products on tensor cores, loads of their operands from memory of the
block, copies to it that arrive later, and all instructions. A fatbin is a head
and images, each with a head: machine code, an ELF file, or PTX
(tests/driver/images.c). From compute capability 7.0 on an instruction has 128
bits, of which the lowest 12 say what it does; what these numbers stand for was
read off the listings of nvdisasm 13."""
import struct
import sys

MAGIC, ELF = 0xBA55ED50, 2
COUNTED = (0x23C, 0x83B, 0xFAE)  # HMMA, LDSM, LDGSTS


def images(data):
    """The ELF files of a fatbin, with the kind of GPU of each."""
    magic, _, head, size = struct.unpack_from("<IHHQ", data)
    if magic != MAGIC:
        sys.exit("no fatbin")
    at, end = head, head + size
    while at < end:
        kind, _, head, size = struct.unpack_from("<HHIQ", data, at)
        arch = struct.unpack_from("<I", data, at + 28)[0]
        if kind == ELF:
            yield arch, data[at + head : at + head + size]
        at += head + size


def kernels(elf):
    """Name and code of each."""
    table = struct.unpack_from("<Q", elf, 40)[0]
    each, count, names = struct.unpack_from("<HHH", elf, 58)
    sections = [
        struct.unpack_from("<IIQQQQ", elf, table + i * each) for i in range(count)
    ]
    for name, _, _, _, at, size in sections:
        begin = sections[names][4] + name
        text = elf[begin : elf.index(b"\0", begin)].decode()
        if text.startswith(".text."):
            yield text[len(".text.") :], elf[at : at + size]


def main(paths):
    for path in paths:
        with open(path, "rb") as file:
            data = file.read()
        for arch, elf in images(data):
            if elf[:4] != b"\x7fELF":
                sys.exit(f"{path}: an image of sm_{arch} is no ELF file")
            for name, code in kernels(elf):
                words = struct.unpack(f"<{len(code) // 8}Q", code)[::2]
                found = [word & 0xFFF for word in words]
                counts = [found.count(number) for number in COUNTED]
                print(name, f"sm_{arch}", *counts, len(found))


main(sys.argv[1:])
