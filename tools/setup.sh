#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# setup.sh GROUP... - make sure that the Debian packages of each group are there.
#
#     build   compiler and libraries            test   unit tests
#     demo    text to train on                  ci     everything CI needs
#
# As root it installs what is missing; otherwise it prints the command for it.
# Exit 0: all there; 1: something is missing.
set -u

build="gcc libc6-dev make libyaml-dev libutf8proc-dev libpcre2-dev
       zlib1g-dev libzstd-dev"
test="binutils libcmocka-dev"
demo="bible-kjv bible-kjv-text"
ci="clang libclang-rt-14-dev llvm-14 gcc-aarch64-linux-gnu
    libc6-dev-arm64-cross qemu-user libopenmpi-dev openmpi-bin libmpich-dev
    mpich python3-venv"

wanted=
for group in "$@"; do
    case $group in
    build) wanted="$wanted $build" ;;
    test) wanted="$wanted $build $test" ;;
    demo) wanted="$wanted $demo" ;;
    ci) wanted="$wanted $build $test $demo $ci" ;;
    *) echo "setup: no group $group; there are build, test, demo, ci" >&2
       exit 2 ;;
    esac
done

# Another system than Debian has the libraries under other names: ask the
# compiler instead of the package manager.
if ! command -v dpkg-query >/dev/null; then
    for header in yaml.h utf8proc.h zlib.h zstd.h; do
        echo "#include <$header>" | ${CC:-cc} -E -xc - >/dev/null 2>&1 || {
            echo "setup: no $header. Lockstep needs a C compiler, libyaml," \
                "utf8proc, pcre2, zlib and zstd with their headers; cmocka for" \
                "tests." >&2
            exit 1
        }
    done
    exit 0
fi

missing=
for package in $wanted; do
    case " $missing " in *" $package "*) continue ;; esac
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null \
        | grep -q 'ok installed' || missing="$missing $package"
done
missing=${missing# }
[ -z "$missing" ] && exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "setup: missing packages; install them with" >&2
    echo "    sudo apt-get install --no-install-recommends $missing" >&2
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
