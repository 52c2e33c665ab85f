#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cudnn.sh - attention by cuDNN without a GPU.
#
#   meaning   our graphs, computed operation by operation, are attention and its
#             gradients in float64; a mistake in a graph is noticed
#   header    what kernels/cuda/plugin/cudnn.h declares is what cuDNN's own
#             header says
#   offline   cuDNN itself takes the graphs for a GPU that is described
#             (data/h200_properties.json: written by hand, after the figures that
#             NVIDIA publishes of an H200), has engines whose sums have one
#             order, needs no more room than the plan of memory has, and
#             compiles their kernels
#
# Where header or library are not found, that part is not run.
#
#     BUILD=build [CUDNN_H=.../include/cudnn.h] [CUDNN_SO=.../libcudnn.so.9] tests/golden/cudnn.sh
. "${0%/*}/../drills/common.sh"
cd "$tree" || exit 1
graph=src/kernels/cuda/plugin/attention_graph.c
plan=src/kernels/cuda/plugin/attention_plan.c
flags="-std=gnu11 -D_GNU_SOURCE -O1 -ffp-contract=off -Isrc -Iinclude -I."
nvcc=$(make -s --eval='which:; @echo $(NVCC)' BUILD="$BUILD" which)
places="$(dirname "${nvcc:-/none/bin/nvcc}")/.. /usr/local/cuda /usr build-nvcc/lib/python3*/site-packages/nvidia/cudnn"

# first FILE...: the first one that is there.
first() {
    local file
    for file in "$@"; do [ ! -e "$file" ] || { echo "$file"; return; }; done
}

# ---- meaning ----

# shellcheck disable=SC2086
cc $flags -Itests/driver -fPIC -shared -o "$room/libcudnn.so.9" \
    tests/driver/cudnn.c tests/driver/cudnn_run.c -ldl -lm -pthread || exit 1
# shellcheck disable=SC2086
cc $flags -c -o "$room/meaning.o" tests/golden/cudnn_meaning.c || exit 1

# means FILE: whether graphs of that source are attention.
means() {
    # shellcheck disable=SC2086
    cc $flags -o "$room/meaning" "$room/meaning.o" "$1" $plan -ldl -lm || exit 1
    DNN_HOST=1 timeout 60 "$room/meaning" "$room/libcudnn.so.9" >"$room/log" 2>&1
}
if means $graph
then ok "graphs are attention and its gradients: $(grep -c '^near' "$room/log") tensors"
else bad "graphs" "are not attention" "$room/log"
fi

# wrong NAME SCRIPT: a graph that sed has changed is noticed.
wrong() {
    sed "$2" $graph >"$room/wrong.c"
    if cmp -s $graph "$room/wrong.c"; then bad "$1" "sed finds nothing"
    elif means "$room/wrong.c"; then bad "$1" "is not noticed"
    else ok "$1 is noticed"
    fi
}
wrong "a query that does not see its own key" \
    's/keep(g, scores, DNN_IS_NOT_LESS, row, column)/keep(g, scores, DNN_IS_GREATER, row, column)/'
wrong "a window that is one too long" \
    's/keep(g, scores, DNN_IS_GREATER, past, row)/keep(g, scores, DNN_IS_NOT_LESS, past, row)/'
wrong "keys of other documents" 's/if (g->form->documents == 0) return scores;/return scores;/'
wrong "gradients of scores without their sums" 's/weights_gradient(g, dout), row_sums, all/weights_gradient(g, dout), weights_gradient(g, dout), all/'
wrong "gradients that are not scaled" 's/compute(g, DNN_MULTIPLY, dp, p, all), scale,/compute(g, DNN_MULTIPLY, dp, p, all), value(g, ID_ONE, DNN_FLOAT32),/'
wrong "keys that are turned the wrong way" 's/keys_gradient(g, reshape(g, ds, across), q, ID_DK)/keys_gradient(g, reshape(g, ds, all), q, ID_DK)/'
wrong "statistics without the largest score" 's/compute_to(g, DNN_ADD, most, log,/compute_to(g, DNN_ADD, log, log,/'

# An engine with more knobs than we know is not taken.
means $graph
for knobs in 44 45; do
    if DNN_KNOBS=$knobs DNN_HOST=1 timeout 60 "$room/meaning" \
        "$room/libcudnn.so.9" >"$room/log" 2>&1
    then ok "an engine with $knobs knobs"
    else bad "an engine with $knobs knobs" "graphs are not attention" "$room/log"
    fi
done
sed 's/ && knobs->count <= KNOBS;/;/' $plan >"$room/knobs.c"
if cmp -s $plan "$room/knobs.c"; then bad "more knobs than we know" "sed finds nothing"
elif plan=$room/knobs.c DNN_KNOBS=45 means $graph 2>/dev/null
then bad "more knobs than we know" "are not noticed"
else ok "more knobs than we know are noticed"
fi

# ---- header ----

# shellcheck disable=SC2086,SC2046
header=${CUDNN_H:-$(first $(printf '%s/include/cudnn.h ' $places))}
sed 's/^ *//' >"$room/names" <<'NAMES'
    DNN_SUCCESS STATUS_SUCCESS
    DNN_NOT_INITIALIZED STATUS_NOT_INITIALIZED
    DNN_BAD_PARAM STATUS_BAD_PARAM
    DNN_NOT_SUPPORTED STATUS_NOT_SUPPORTED
    DNN_FAILED STATUS_EXECUTION_FAILED
    DNN_NOT_LOADED STATUS_EXECUTION_FAILED_CUDA_DRIVER
    DNN_POINTWISE BACKEND_POINTWISE_DESCRIPTOR
    DNN_ENGINE BACKEND_ENGINE_DESCRIPTOR
    DNN_ENGINE_CONFIG BACKEND_ENGINECFG_DESCRIPTOR
    DNN_HEURISTICS BACKEND_ENGINEHEUR_DESCRIPTOR
    DNN_PLAN BACKEND_EXECUTION_PLAN_DESCRIPTOR
    DNN_KNOB BACKEND_KNOB_CHOICE_DESCRIPTOR
    DNN_OPERATION_POINTWISE BACKEND_OPERATION_POINTWISE_DESCRIPTOR
    DNN_GRAPH BACKEND_OPERATIONGRAPH_DESCRIPTOR
    DNN_PACK BACKEND_VARIANT_PACK_DESCRIPTOR
    DNN_TENSOR BACKEND_TENSOR_DESCRIPTOR
    DNN_MATMUL BACKEND_MATMUL_DESCRIPTOR
    DNN_OPERATION_MATMUL BACKEND_OPERATION_MATMUL_DESCRIPTOR
    DNN_REDUCTION BACKEND_REDUCTION_DESCRIPTOR
    DNN_OPERATION_REDUCTION BACKEND_OPERATION_REDUCTION_DESCRIPTOR
    DNN_OPERATION_RESHAPE BACKEND_OPERATION_RESHAPE_DESCRIPTOR
    DNN_PROPERTIES BACKEND_DEVICEPROP_DESCRIPTOR
    DNN_OF_HANDLE TYPE_HANDLE
    DNN_OF_NUMBERS TYPE_DATA_TYPE
    DNN_OF_BOOLEAN TYPE_BOOLEAN
    DNN_OF_INT64 TYPE_INT64
    DNN_OF_POINTER TYPE_VOID_PTR
    DNN_OF_HEURISTIC TYPE_HEUR_MODE
    DNN_OF_NOTE TYPE_NUMERICAL_NOTE
    DNN_OF_POINTWISE TYPE_POINTWISE_MODE
    DNN_OF_DESCRIPTOR TYPE_BACKEND_DESCRIPTOR
    DNN_OF_REDUCTION TYPE_REDUCTION_OPERATOR_TYPE
    DNN_OF_CHARACTER TYPE_CHAR
    DNN_FLOAT32 DATA_FLOAT
    DNN_INT32 DATA_INT32
    DNN_BFLOAT16 DATA_BFLOAT16
    DNN_BOOLEAN DATA_BOOLEAN
    DNN_ADD POINTWISE_ADD
    DNN_MULTIPLY POINTWISE_MUL
    DNN_DIVIDE POINTWISE_DIV
    DNN_SUBTRACT POINTWISE_SUB
    DNN_EXP POINTWISE_EXP
    DNN_LOG POINTWISE_LOG
    DNN_IS_GREATER POINTWISE_CMP_GT
    DNN_IS_NOT_LESS POINTWISE_CMP_GE
    DNN_INDEX POINTWISE_GEN_INDEX
    DNN_SELECT POINTWISE_BINARY_SELECT
    DNN_SUM REDUCE_TENSOR_ADD
    DNN_MAXIMUM REDUCE_TENSOR_MAX
    DNN_HEURISTIC_A HEUR_MODE_A
    DNN_NOTE_UNORDERED NUMERICAL_NOTE_NONDETERMINISTIC
    DNN_POINTWISE_MODE ATTR_POINTWISE_MODE
    DNN_POINTWISE_COMPUTE ATTR_POINTWISE_MATH_PREC
    DNN_POINTWISE_AXIS ATTR_POINTWISE_AXIS
    DNN_HEURISTICS_MODE ATTR_ENGINEHEUR_MODE
    DNN_HEURISTICS_GRAPH ATTR_ENGINEHEUR_OPERATION_GRAPH
    DNN_HEURISTICS_RESULTS ATTR_ENGINEHEUR_RESULTS
    DNN_HEURISTICS_PROPERTIES ATTR_ENGINEHEUR_DEVICEPROP
    DNN_CONFIG_ENGINE ATTR_ENGINECFG_ENGINE
    DNN_CONFIG_KNOBS ATTR_ENGINECFG_KNOB_CHOICES
    DNN_CONFIG_ROOM ATTR_ENGINECFG_WORKSPACE_SIZE
    DNN_PLAN_HANDLE ATTR_EXECUTION_PLAN_HANDLE
    DNN_PLAN_CONFIG ATTR_EXECUTION_PLAN_ENGINE_CONFIG
    DNN_PLAN_ROOM ATTR_EXECUTION_PLAN_WORKSPACE_SIZE
    DNN_PLAN_PROPERTIES ATTR_EXECUTION_PLAN_DEVICEPROP
    DNN_POINTWISE_OF ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR
    DNN_POINTWISE_X ATTR_OPERATION_POINTWISE_XDESC
    DNN_POINTWISE_B ATTR_OPERATION_POINTWISE_BDESC
    DNN_POINTWISE_Y ATTR_OPERATION_POINTWISE_YDESC
    DNN_POINTWISE_T ATTR_OPERATION_POINTWISE_TDESC
    DNN_GRAPH_HANDLE ATTR_OPERATIONGRAPH_HANDLE
    DNN_GRAPH_OPERATIONS ATTR_OPERATIONGRAPH_OPS
    DNN_TENSOR_ALIGNMENT ATTR_TENSOR_BYTE_ALIGNMENT
    DNN_TENSOR_NUMBERS ATTR_TENSOR_DATA_TYPE
    DNN_TENSOR_DIMENSIONS ATTR_TENSOR_DIMENSIONS
    DNN_TENSOR_STRIDES ATTR_TENSOR_STRIDES
    DNN_TENSOR_ID ATTR_TENSOR_UNIQUE_ID
    DNN_TENSOR_VIRTUAL ATTR_TENSOR_IS_VIRTUAL
    DNN_TENSOR_BY_VALUE ATTR_TENSOR_IS_BY_VALUE
    DNN_PACK_IDS ATTR_VARIANT_PACK_UNIQUE_IDS
    DNN_PACK_POINTERS ATTR_VARIANT_PACK_DATA_POINTERS
    DNN_PACK_ROOM ATTR_VARIANT_PACK_WORKSPACE
    DNN_ENGINE_GRAPH ATTR_ENGINE_OPERATION_GRAPH
    DNN_ENGINE_INDEX ATTR_ENGINE_GLOBAL_INDEX
    DNN_ENGINE_NOTES ATTR_ENGINE_NUMERICAL_NOTE
    DNN_ENGINE_PROPERTIES ATTR_ENGINE_DEVICEPROP
    DNN_MATMUL_COMPUTE ATTR_MATMUL_COMP_TYPE
    DNN_MATMUL_A ATTR_OPERATION_MATMUL_ADESC
    DNN_MATMUL_B ATTR_OPERATION_MATMUL_BDESC
    DNN_MATMUL_C ATTR_OPERATION_MATMUL_CDESC
    DNN_MATMUL_OF ATTR_OPERATION_MATMUL_DESC
    DNN_REDUCTION_MODE ATTR_REDUCTION_OPERATOR
    DNN_REDUCTION_COMPUTE ATTR_REDUCTION_COMP_TYPE
    DNN_REDUCTION_X ATTR_OPERATION_REDUCTION_XDESC
    DNN_REDUCTION_Y ATTR_OPERATION_REDUCTION_YDESC
    DNN_REDUCTION_OF ATTR_OPERATION_REDUCTION_DESC
    DNN_RESHAPE_X ATTR_OPERATION_RESHAPE_XDESC
    DNN_RESHAPE_Y ATTR_OPERATION_RESHAPE_YDESC
    DNN_PROPERTIES_JSON ATTR_DEVICEPROP_JSON_REPRESENTATION
NAMES
{
    echo '#include <cudnn.h>'
    echo '#include "src/kernels/cuda/plugin/cudnn.h"'
    awk '{ print "_Static_assert((int)" $1 " == (int)CUDNN_" $2 ", \"" $1 "\");" }' \
        "$room/names"
    # Any pointer is as any other, and int as an enum; nothing else.
    echo '#define SAME(result, name, ...) typedef result type_##name(__VA_ARGS__); \
        static type_##name *const ours_##name = (type_##name *)name;'
    echo 'DNN_FUNCTIONS(SAME)'
} >"$room/names.c"
declared=$(sed 's|/\*.*\*/||; s|^ \*.*||; s|/\*.*||' src/kernels/cuda/plugin/cudnn.h |
    grep -oE '\bDNN_[A-Z0-9_]+ = ' | sort -u | wc -l)
[ "$declared" = "$(sort -u "$room/names" | wc -l)" ] ||
    bad "names" "$declared are declared, $(sort -u "$room/names" | wc -l) are compared"
if [ -z "$header" ]; then echo "not run: no header of cuDNN"
elif cc -std=gnu11 -I. -Isrc -isystem "$(dirname "$header")" \
    -isystem "$(dirname "${nvcc:-/none/bin/nvcc}")/../include" -Wno-deprecated-declarations \
    -Werror=cast-function-type -fsyntax-only "$room/names.c" >"$room/log" 2>&1
then ok "what we declare is what $(basename "$header") has"
else bad "declarations" "differ from $header" "$room/log"
fi

# ---- offline ----

# shellcheck disable=SC2086,SC2046
library=${CUDNN_SO:-$(first $(printf '%s/lib/libcudnn.so.9 ' $places) /usr/lib/x86_64-linux-gnu/libcudnn.so.9)}
# shellcheck disable=SC2086,SC2046
stub=$(first $(printf '%s/lib/stubs/libcuda.so ' $places) $(printf '%s/lib64/stubs/libcuda.so ' $places))
if [ -z "$library" ] || [ -z "$stub" ]; then
    echo "not run: no libcudnn.so.9, or no stub of libcuda"
else
    ln -s "$(realpath "$stub")" "$room/libcuda.so.1"
    # shellcheck disable=SC2086
    cc $flags -o "$room/offline" tests/golden/cudnn_offline.c $graph $plan -ldl || exit 1
    rm "$room/libcudnn.so.9" # cuDNN's own parts are in its folder
    if LD_LIBRARY_PATH="$room:$(dirname "$library")" timeout 300 "$room/offline" \
        "$library" tests/golden/data/h200_properties.json >"$room/log" 2>&1
    then ok "cuDNN $(sed -n 's/^version //p' "$room/log") makes $(grep -c ': made ' "$room/log") graphs for an H200"
    else bad "graphs" "cuDNN refuses them" "$room/log"
    fi
fi
report
