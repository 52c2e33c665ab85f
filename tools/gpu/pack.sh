#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# pack.sh - what gpu_run.sh needs in one file, for a machine with a GPU that has
# no compiler, or time only to measure: the program without symbols, the plug-ins
# with code for one kind of GPU, and the libraries that the program is linked
# with.
#
#     [BUILD=build-gpu] tools/gpu/pack.sh FILE.tar.xz [GPU]
#
# GPU: sm_90a (default: H100, H200), sm_80, sm_100. On the other machine, in the
# same tree:
#
#     tar -xf FILE.tar.xz
#     LD_LIBRARY_PATH=$PWD/packed/lib BUILD=packed tools/gpu/gpu_run.sh
set -eu
: "${BUILD:=build-gpu}"
file=${1:?pack.sh FILE.tar.xz [GPU]} kind=${2:-sm_90a}
cd "${0%/*}/../.."
export GPUS_MADE="-gencode arch=compute_${kind#sm_},code=$kind"
make -s -j"$(nproc)" BUILD="$BUILD" all
[ -e "$BUILD/device_cuda.so" ] ||
    { echo "pack.sh: make found no nvcc; tools/setup.sh cuda" >&2; exit 1; }
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
packed=$room/packed
mkdir -p "$packed/lib" "$packed/src/kernels/cuda"
strip -o "$packed/lockstep" "$BUILD/lockstep"
for plugin in device_cuda comm_nccl; do
    [ ! -e "$BUILD/$plugin.so" ] ||
        strip -o "$packed/$plugin.so" "$BUILD/$plugin.so"
done
cp "$BUILD"/src/kernels/cuda/*.fatbin.log "$packed/src/kernels/cuda"
# Every Linux has those that are left out.
ldd "$BUILD/lockstep" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' |
    grep -vE '/(libc|libm|libdl|libpthread|librt)\.so' |
    xargs -I{} cp -L {} "$packed/lib"
tar -cJf "$file" -C "$room" packed
ls -l "$file"
