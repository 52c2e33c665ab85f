#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# setup.sh GROUP... - make sure that what each group needs is there.
#
#     build   compiler and libraries            test   unit tests
#     demo    text to train on                  ci     everything CI needs
#     cuda    nvcc of CUDA 13, into build-nvcc, unless PATH has one (docs/cuda.md)
#     probe   as build, but nothing is installed: `make` asks before it compiles
#
# A library that the compiler finds is there, wherever it came from (docs/install.md).
# For the rest: as root on Debian it installs packages; otherwise it names those
# of Debian, Fedora, Arch and Homebrew. Exit 0: all there; 1: something is missing.
set -u
cd "$(dirname "$0")/.." || exit 1

build="gcc libc6-dev make libyaml-dev libutf8proc-dev libpcre2-dev
       zlib1g-dev libzstd-dev"
test="binutils libcmocka-dev"
demo="bible-kjv bible-kjv-text"
ci="clang lld libclang-rt-14-dev llvm-14 gcc-aarch64-linux-gnu
    libc6-dev-arm64-cross qemu-user libopenmpi-dev openmpi-bin libmpich-dev
    mpich python3-venv debootstrap slurmctld slurmd slurm-client munge
    iproute2 libcurl4"

cuda="g++ libc6-dev python3-venv"
# Compiler, its headers, its back end, the headers of the driver: 280 MB.
wheels="nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88
        nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96"

# header, library, and packages: Debian, Fedora, Arch, Homebrew
libraries="
yaml.h      yaml      libyaml-dev      libyaml-devel   libyaml      libyaml
utf8proc.h  utf8proc  libutf8proc-dev  utf8proc-devel  libutf8proc  utf8proc
pcre2.h     pcre2-8   libpcre2-dev     pcre2-devel     pcre2        pcre2
zlib.h      z         zlib1g-dev       zlib-devel      zlib         zlib
zstd.h      zstd      libzstd-dev      libzstd-devel   zstd         zstd
"
cmocka="
cmocka.h    cmocka    libcmocka-dev    libcmocka-devel cmocka       cmocka
"

compiler=${CC:-cc}
[ -n "${CC:-}" ] || ! command -v gcc >/dev/null || compiler=gcc

# found HEADER LIBRARY: the compiler finds both, with the flags of the build
found() {
    printf '%s\n' '#include <stdarg.h>' '#include <stddef.h>' \
        '#include <setjmp.h>' '#include <stdint.h>' \
        '#define PCRE2_CODE_UNIT_WIDTH 8' "#include <$1>" \
        'int main(void) { return 0; }' |
        $compiler ${PROBE_FLAGS:-} -xc - -o /dev/null "-l$2" >/dev/null 2>&1
}

# lacking TABLE: its rows that the compiler does not find; all without one
lacking() {
    echo "$1" | while read -r header library packages; do
        [ -n "$header" ] || continue
        found "$header" "$library" || echo "$header $library $packages"
    done
}

names() { # COLUMN ROWS
    echo "$2" | awk -v c="$1" '{ printf "%s%s", sep, $c; sep = " " }'
}

say_lacking() { # ROWS
    echo "setup: $compiler does not find $(names 1 "$1") and their libraries;" \
        "install" >&2
    echo "    Debian, Ubuntu  sudo apt-get install $(names 3 "$1")" >&2
    echo "    Fedora          sudo dnf install $(names 4 "$1")" >&2
    echo "    Arch            sudo pacman -S $(names 5 "$1")" >&2
    echo "    Homebrew        brew install $(names 6 "$1")" >&2
    echo "Without root: tools/prefix.sh, docs/install.md" >&2
}

has_nvcc() {
    nvcc --version 2>/dev/null |
        grep -qE 'release (1[3-9]|[2-9][0-9])' ||
        ls build-nvcc/lib/python3*/site-packages/nvidia/cu13/bin/nvcc \
            >/dev/null 2>&1
}

# wheels_install: nvcc from the package index, into build-nvcc
wheels_install() {
    echo "setup: installing nvcc into build-nvcc"
    # shellcheck disable=SC2086
    python3 -m venv build-nvcc &&
        build-nvcc/bin/python -m pip -q --disable-pip-version-check \
            --no-cache-dir install --retries 1 --timeout 20 --no-deps $wheels &&
        has_nvcc && return
    echo "setup: nvcc could not be installed; $0 cuda tries it again" >&2
    rm -rf build-nvcc
    return 1
}

# satisfied GROUP: the compiler and the tools of the group work
satisfied() {
    case $1 in
    build) command -v make >/dev/null && [ -z "$(lacking "$libraries")" ] ;;
    test) command -v nm >/dev/null && [ -z "$(lacking "$cmocka")" ] ;;
    cuda) has_nvcc && command -v g++ >/dev/null ;;
    *) false ;;
    esac
}

wanted=
table=
for group in "$@"; do
    case $group in
    build) groups=build ;;
    test) groups="build test" ;;
    demo|ci) groups=$group
        [ "$group" = demo ] || groups="build test demo ci" ;;
    cuda) groups="build cuda" ;;
    probe)
        rows=$(lacking "$libraries")
        [ -z "$rows" ] && exit 0
        command -v "$compiler" >/dev/null || {
            echo "setup: there is no C compiler ($compiler)." \
                "As root on Debian: tools/setup.sh build" >&2
            exit 1
        }
        say_lacking "$rows"
        exit 1 ;;
    *) echo "setup: no group $group; there are build, test, demo, ci, cuda, probe" >&2
       exit 2 ;;
    esac
    for each in $groups; do
        ! satisfied "$each" || continue
        case $each in
        build) wanted="$wanted $build" table="$table$libraries" ;;
        test) wanted="$wanted $test" table="$table$cmocka" ;;
        demo) wanted="$wanted $demo" ;;
        ci) wanted="$wanted $ci" ;;
        cuda) wanted="$wanted $cuda" ;;
        esac
    done
done
# The end of a run that has all packages.
finish() {
    case " $* " in *" cuda "*) has_nvcc || wheels_install || exit 1 ;; esac
    exit 0
}
[ -n "$wanted" ] || finish "$@"

# Another system than Debian: the compiler is asked, not the package manager.
if ! command -v dpkg-query >/dev/null; then
    rows=$(lacking "$table")
    [ -z "$rows" ] && finish "$@"
    command -v "$compiler" >/dev/null ||
        echo "setup: there is no C compiler ($compiler)" >&2
    say_lacking "$rows"
    exit 1
fi

missing=
for package in $wanted; do
    case " $missing " in *" $package "*) continue ;; esac
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null \
        | grep -q 'ok installed' || missing="$missing $package"
done
missing=${missing# }
[ -z "$missing" ] && finish "$@"

if [ "$(id -u)" -ne 0 ]; then
    echo "setup: missing packages; install them with" >&2
    echo "    sudo apt-get install --no-install-recommends $missing" >&2
    rows=$(lacking "$table")
    [ -z "$rows" ] || say_lacking "$rows"
    exit 1
fi
echo "setup: installing $missing"
export DEBIAN_FRONTEND=noninteractive
install="apt-get -qq install -y --no-install-recommends"
log=$(mktemp)
# Package lists may be absent or too old: refresh them once, then try again.
# shellcheck disable=SC2086
if ! $install $missing >"$log" 2>&1; then
    apt-get -qq update >>"$log" 2>&1
    if ! $install $missing >>"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        echo "setup: could not install $missing" >&2
        exit 1
    fi
fi
rm -f "$log"
finish "$@"
