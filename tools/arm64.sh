#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# arm64.sh DIR - builds DIR/lockstep for aarch64 with Debian's cross compiler.
#
# The three libraries are unpacked into DIR/sysroot from their arm64 packages;
# nothing is installed and no foreign architecture is added to this system.
# Run the result with: qemu-aarch64 -L /usr/aarch64-linux-gnu -E
#     LD_LIBRARY_PATH=DIR/sysroot/usr/lib/aarch64-linux-gnu DIR/lockstep
set -eu
cd "$(dirname "$0")/.."
dir=$1
root=$dir/sysroot
mkdir -p "$dir"

if [ ! -e "$root/done" ] || [ ! -e "$root/usr/include/zstd.h" ]; then
    lists=$(mktemp -d)
    trap 'rm -rf "$lists"' EXIT
    mkdir -p "$lists/partial" "$root"
    options=(-qq -o "Dir::State::lists=$lists" -o APT::Architectures::=amd64
        -o APT::Architectures::=arm64 -o Dir::Cache::pkgcache=
        -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update
    (cd "$lists" && apt-get "${options[@]}" download libyaml-dev:arm64 \
        libyaml-0-2:arm64 libutf8proc-dev:arm64 libutf8proc2:arm64 \
        libpcre2-dev:arm64 libpcre2-8-0:arm64 zlib1g-dev:arm64 \
        zlib1g:arm64 libzstd-dev:arm64 libzstd1:arm64)
    for package in "$lists"/*.deb; do dpkg -x "$package" "$root"; done
    touch "$root/done"
fi
headers=$PWD/$root/usr/include
make -j"$(nproc)" BUILD="$dir" CC=aarch64-linux-gnu-gcc \
    EXTRA="-isystem $headers -isystem $headers/aarch64-linux-gnu" \
    SAN="-L$PWD/$root/usr/lib/aarch64-linux-gnu" "$dir/lockstep"
