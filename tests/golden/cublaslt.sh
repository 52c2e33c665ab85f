#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cublaslt.sh - what kernels/cuda/plugin/cublaslt.h declares is what the header
# of cuBLASLt says, and the library itself makes the descriptors that we give
# it. Neither needs a GPU; without header or library that part is not run.
#
#     BUILD=build [CUBLASLT_H=.../include/cublasLt.h] [CUBLASLT_SO=.../libcublasLt.so.13] tests/golden/cublaslt.sh
. "${0%/*}/../drills/common.sh"
cd "$tree" || exit 1
nvcc=$(make -s --eval='which:; @echo $(NVCC)' BUILD="$BUILD" which)
places="$(dirname "${nvcc:-/none/bin/nvcc}")/.. /usr/local/cuda build-nvcc/lib/python3*/site-packages/nvidia/cu13"

# first FILE...: the first one that is there.
first() {
    local file
    for file in "$@"; do [ ! -e "$file" ] || { echo "$file"; return; }; done
}

# shellcheck disable=SC2086,SC2046
header=${CUBLASLT_H:-$(first $(printf '%s/include/cublasLt.h ' $places))}
# shellcheck disable=SC2086,SC2046
library=${CUBLASLT_SO:-$(first $(printf '%s/lib/libcublasLt.so.13 ' $places))}

# Each name of ours, and the library's.
sed 's/^ *//' >"$room/names" <<'NAMES'
    LT_SUCCESS CUBLAS_STATUS_SUCCESS
    LT_NOT_INITIALIZED CUBLAS_STATUS_NOT_INITIALIZED
    LT_INVALID_VALUE CUBLAS_STATUS_INVALID_VALUE
    LT_NOT_SUPPORTED CUBLAS_STATUS_NOT_SUPPORTED
    LT_FLOAT32 CUDA_R_32F
    LT_FLOAT16 CUDA_R_16F
    LT_BFLOAT16 CUDA_R_16BF
    LT_IN_FLOAT32 CUBLAS_COMPUTE_32F
    LT_IN_TF32 CUBLAS_COMPUTE_32F_FAST_TF32
    LT_AS_IT_IS CUBLAS_OP_N
    LT_TURNED CUBLAS_OP_T
    LT_TURN_A CUBLASLT_MATMUL_DESC_TRANSA
    LT_TURN_B CUBLASLT_MATMUL_DESC_TRANSB
    LT_ROOM_MOST CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
    LT_REDUCTIONS CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK
    LT_ALIGNED_A CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES
    LT_ALIGNED_B CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES
    LT_ALIGNED_C CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES
    LT_ALIGNED_D CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
    LT_SPLITS CUBLASLT_ALGO_CONFIG_SPLITK_NUM
    LT_REDUCTION CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME
NAMES
{
    echo '#include <cublasLt.h>'
    echo '#include "src/kernels/cuda/plugin/cublaslt.h"'
    awk '{ print "_Static_assert((int)" $1 " == (int)" $2 ", \"" $1 "\");" }' \
        "$room/names"
    for pair in "lt_layout cublasLtMatrixLayoutOpaque_t" \
        "lt_desc cublasLtMatmulDescOpaque_t" \
        "lt_preference cublasLtMatmulPreferenceOpaque_t" \
        "lt_algorithm cublasLtMatmulAlgo_t" \
        "lt_offer cublasLtMatmulHeuristicResult_t"; do
        echo "_Static_assert(sizeof(struct ${pair% *}) == sizeof(${pair#* }), \"$pair\");"
    done
    echo '_Static_assert(offsetof(struct lt_offer, room) ==
        offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize), "room");
    _Static_assert(offsetof(struct lt_offer, state) ==
        offsetof(cublasLtMatmulHeuristicResult_t, state), "state");'
    # Any pointer is as any other, and int as an enum; nothing else.
    echo '#define SAME(result, name, ...) typedef result type_##name(__VA_ARGS__); \
        static type_##name *const ours_##name = (type_##name *)name;'
    echo 'LT_FUNCTIONS(SAME)'
} >"$room/names.c"
if [ -z "$header" ]; then echo "not run: no header of cuBLASLt"
elif cc -std=gnu11 -I. -Isrc -isystem "$(dirname "$header")" -fsyntax-only \
    -Werror=cast-function-type "$room/names.c" >"$room/log" 2>&1
then ok "what we declare is what $(basename "$header") has"
else bad "declarations" "differ from $header" "$room/log"
fi
if [ -n "$header" ] && sed 's/LT_TURN_A CUBLASLT_MATMUL_DESC_TRANSA/LT_TURN_A CUBLASLT_MATMUL_DESC_TRANSC/' \
    "$room/names" | grep -q TRANSC && sed 's/DESC_TRANSA)/DESC_TRANSC)/; s/(int)CUBLASLT_MATMUL_DESC_TRANSA,/(int)CUBLASLT_MATMUL_DESC_TRANSC,/' \
    "$room/names.c" >"$room/wrong.c"; then
    if cc -std=gnu11 -I. -Isrc -isystem "$(dirname "$header")" -fsyntax-only \
        "$room/wrong.c" >"$room/log" 2>&1
    then bad "a wrong number" "is not noticed"
    else ok "a wrong number is noticed"
    fi
fi
if [ -n "$header" ]; then
    mkdir -p "$room/src/kernels/cuda/plugin"
    sed 's/X(int, cublasLtDestroy, void \*handle)/X(int, cublasLtDestroy, void *handle, int more)/' \
        src/kernels/cuda/plugin/cublaslt.h >"$room/src/kernels/cuda/plugin/cublaslt.h"
    if cc -std=gnu11 -I"$room" -Isrc -isystem "$(dirname "$header")" \
        -fsyntax-only -Werror=cast-function-type "$room/names.c" \
        >"$room/log" 2>&1
    then bad "a function with a parameter too many" "is not noticed"
    elif grep -q cublasLtDestroy "$room/log"
    then ok "a function with a parameter too many is noticed"
    else bad "a function with a parameter too many" "something else is wrong" "$room/log"
    fi
fi

cat >"$room/made.c" <<'C'
#include <dlfcn.h>
#include <stdio.h>
#include "kernels/cuda/plugin/cublaslt.h"

typedef int get(void *, int attribute, void *, size_t bytes, size_t *written);

int main(int count, char **words)
{
    void *library = dlopen(count > 1 ? words[1] : "", RTLD_NOW);
    struct lt lt = {0};
    struct lt_layout layout;
    struct lt_desc desc;
    struct lt_preference preference;
    int32_t turn = 0, turned = LT_TURNED;
    uint64_t rows = 0, room = 1 << 20;
    int64_t stride = 0;
    size_t written;

    if (library == NULL) return printf("%s\n", dlerror()), 77;
#define FIND(result, name, ...) *(void **)&lt.name##_ = dlsym(library, #name); \
    if (lt.name##_ == NULL) return printf("no %s\n", #name), 1;
    LT_FUNCTIONS(FIND)
    get *of_layout, *of_desc;
    *(void **)&of_layout = dlsym(library, "cublasLtMatrixLayoutGetAttribute");
    *(void **)&of_desc = dlsym(library, "cublasLtMatmulDescGetAttribute");
    if (lt.cublasLtMatrixLayoutInit_internal_(&layout, sizeof layout,
            LT_BFLOAT16, 96, 40, 104) != LT_SUCCESS ||
        of_layout(&layout, 2, &rows, sizeof rows, &written) != LT_SUCCESS ||
        of_layout(&layout, 4, &stride, sizeof stride, &written) != LT_SUCCESS)
        return printf("no layout\n"), 1;
    if (lt.cublasLtMatmulDescInit_internal_(&desc, sizeof desc, LT_IN_TF32,
            LT_FLOAT32) != LT_SUCCESS ||
        lt.cublasLtMatmulDescSetAttribute_(&desc, LT_TURN_B, &turned,
            sizeof turned) != LT_SUCCESS ||
        of_desc(&desc, LT_TURN_B, &turn, sizeof turn, &written) != LT_SUCCESS)
        return printf("no description\n"), 1;
    if (lt.cublasLtMatmulPreferenceInit_internal_(&preference,
            sizeof preference) != LT_SUCCESS ||
        lt.cublasLtMatmulPreferenceSetAttribute_(&preference, LT_ROOM_MOST,
            &room, sizeof room) != LT_SUCCESS)
        return printf("no preference\n"), 1;
    printf("rows %d stride %d turned %d version %d\n", (int)rows, (int)stride,
           (int)turn, (int)lt.cublasLtGetVersion_());
    return 0;
}
C
cc -std=gnu11 -D_GNU_SOURCE -Isrc -o "$room/made" "$room/made.c" -ldl || exit 1
if [ -z "$library" ]; then echo "not run: no libcublasLt.so.13"
elif timeout 60 "$room/made" "$library" >"$room/log" 2>&1 &&
    grep -q '^rows 96 stride 104 turned 1 version 1[23]' "$room/log"
then ok "cuBLASLt $(sed 's/.*version //' "$room/log") makes our descriptors"
else bad "descriptors" "cuBLASLt does not make them" "$room/log"
fi
[ $((passed + failed)) -gt 0 ] || exit 77
report
