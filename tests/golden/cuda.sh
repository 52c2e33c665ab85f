#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cuda.sh - kernels of CUDA where no GPU is: what nvcc made of them, what the
# plug-in answers to drivers of all kinds (libraries of our own that stand for
# the real one), and whether mistakes in kernels show. That kernels have the bits
# of the reference is what unit tests of kernels compare.
#
#     BUILD=build tests/golden/cuda.sh
#     THIRD=2/3 BUILD=build tests/golden/cuda.sh    every third file's PTX, every
#                                                   third mistake
#
# Needs nvcc (tools/setup.sh cuda) and a finished build. Ends with "N passed, N
# failed".
. "${0%/*}/../drills/common.sh"
cd "$tree" || exit 1
kernels=src/kernels/cuda
made=$BUILD/$kernels
nvcc=$(make -s --eval='which:; @echo $(NVCC)' BUILD="$BUILD" which)

# Whether THIRD has what has this number.
drawn() { # NUMBER
    [ -z "${THIRD:-}" ] || [ $(($1 % 3)) -eq $((${THIRD%/*} % 3)) ]
}

# --- what nvcc made ---
number=0
for file in "$kernels"/*.cu; do
    name=$(basename "$file" .cu)
    if [ -s "$made/$name.fatbin" ] &&
        tools/spills.sh "$made/$name.fatbin.log" >"$room/log"; then
        ok "$name: $(grep -c 'Compiling entry' "$made/$name.fatbin.log") kernels, no spills"
    else
        bad "$name" "no machine code without spills" "$room/log"
    fi
    # Every operation of floating point rounds to nearest, by itself.
    number=$((number + 1))
    drawn $number || continue
    "$nvcc" -std=c++20 -O3 -fmad=false -Isrc -Iinclude -I. -arch=compute_80 \
        -ptx -o "$room/$name.ptx" "$file" 2>"$room/log" ||
        bad "$name" "no PTX" "$room/log"
    if grep -E '^\s*(@\S+ )?(add|sub|mul|mad|fma|div|sqrt|rcp|ex2|lg2|sin|cos|tanh)\S*\.f(32|64)' \
        "$room/$name.ptx" | grep -v -E '(add|sub|mul|fma|div|sqrt|rcp)\.rn\.f(32|64)' \
        >"$room/log"; then
        bad "$name" "operations that may be fused, or do not round to nearest" \
            "$room/log"
    else
        ok "$name: PTX rounds to nearest, $(grep -c 'fma\.rn' "$room/$name.ptx") FMAs"
    fi
done

# --- tensor cores ---
# Kernels of attention on tensor cores make their products there, on every kind of
# GPU, of operands that come to memory of the block later. No other kernel does:
# nobody says how tensor cores add.
# sass NAME WANTED FATBIN...: no line of the listing is otherwise; WANTED is what
# kernels of the fatbins are like (awk: h, m, c: HMMA, LDSM, LDGSTS)
sass() {
    local name=$1 wanted=$2
    shift 2
    if ! python3 tests/golden/sass.py "$@" >"$room/sass" 2>"$room/log"; then
        bad "machine code: $name" "cannot be read" "$room/log"
    elif ! awk "{ h = \$3; m = \$4; c = \$5 } !($wanted) { print; wrong = 1 }
        END { exit wrong || NR == 0 }" "$room/sass" >"$room/log"; then
        bad "machine code: $name" "other instructions" "$room/log"
    else
        ok "machine code: $name: $(awk '{ sum += $3; kinds[$2] }
            END { for (kind in kinds) n++; print NR, "in all,", n, "kinds of GPUs,", sum + 0, "HMMA" }' \
            "$room/sass")"
    fi
}
if ! command -v python3 >/dev/null; then
    echo "not run: there is no python3 to read machine code"
else
    sass "attention on tensor cores" "h > 0 && m > 0 && c > 0" \
        "$made"/flash_*.fatbin
    # shellcheck disable=SC2046
    sass "other kernels" "h == 0 && m == 0 && c == 0" \
        $(ls "$made"/*.fatbin | grep -v /flash_)
    disassembler=$(command -v cuobjdump ||
        ls "$(dirname "$(command -v "$nvcc")")/cuobjdump" 2>/dev/null)
    if [ -n "$disassembler" ] && command -v nvdisasm >/dev/null; then
        for word in HMMA LDSM LDGSTS; do
            echo "$("$disassembler" --dump-sass "$made/flash_forward.fatbin" |
                grep -c "[ .]$word\.")"
        done | xargs >"$room/told"
        python3 tests/golden/sass.py "$made/flash_forward.fatbin" |
            awk '{ h += $3; m += $4; c += $5 } END { print h, m, c }' >"$room/log"
        if cmp -s "$room/told" "$room/log"
        then ok "machine code: as cuobjdump reads it: $(cat "$room/told")"
        else bad "machine code" "cuobjdump counts $(cat "$room/told")" "$room/log"
        fi
    fi
fi

# --- the page names the rows that there are ---
rows=$(sed -n '/define KERNELS_CUDA_NARROW_ROWS/,/^$/p' "$kernels/rows.h" |
    grep -o 'X([a-z_0-9]*)' | sed 's/X(\(.*\))/\1/' | sort)
told=$(grep -o '^| `[a-z_0-9`, ]*` | yes' docs/cuda.md | grep -o '`[a-z_0-9]*`' |
    tr -d '`' | sort)
if [ -n "$rows" ] && [ "$rows" = "$told" ]; then
    ok "docs/cuda.md names the $(wc -w <<<"$rows") rows that have kernels"
else
    bad "docs/cuda.md" "its table and rows.h differ: $(diff <(echo "$rows") \
        <(echo "$told") | grep '[<>]' | tr '\n' ' ')"
fi

# --- answers of drivers ---
say() { "$program" doctor 2>&1 | grep '^CUDA ' | tr -s ' '; }
# answers NAME SENTENCE [VALUE...]: a driver with these values says it
answers() {
    local name=$1 sentence=$2
    shift 2
    if (export LD_LIBRARY_PATH="$room/driver" "$@"; say) >"$room/log" &&
        grep -qF "$sentence" "$room/log"; then
        ok "driver: $name"
    else
        bad "driver: $name" "does not say: $sentence" "$room/log"
    fi
}
mkdir "$room/driver"
if ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
    echo "this machine has a driver: $(say)"
else
    answers "none" "no there is no driver: libcuda.so.1 cannot be opened;"
fi
make -s -j"$(nproc)" BUILD="$BUILD" EXTRA="${EXTRA:-}" driver \
    >"$room/log" 2>&1 || bad "driver" "does not compile" "$room/log"
cp "$BUILD/tests/driver/libcuda.so.1" "$room/driver"
answers "without a GPU" "no there is a driver, but no GPU;" GPUS=0
answers "with a GPU" \
    "yes a test, compute capability 9.0, 8.0 GiB, driver of CUDA 13.0" GPUS=1
# healthy NAME SENTENCE [VALUE...]: what NVML says of these GPUs
healthy() {
    local name=$1 sentence=$2
    shift 2
    if (export LD_LIBRARY_PATH="$room/driver" "$@"
        "$program" doctor 2>&1 | grep '^GPUs ' | tr -s ' ') >"$room/log" &&
        grep -qF "$sentence" "$room/log"; then
        ok "NVML: $name"
    else
        bad "NVML: $name" "does not say: $sentence" "$room/log"
    fi
}
healthy "none" "no libnvidia-ml.so.1 cannot be used: no clocks, errors, links" \
    GPUS=1
cp "$BUILD/tests/driver/libnvidia-ml.so.1" "$room/driver"
alike="6.0 of 8.0 GiB unused, clock 1200 of 1980 MHz, memory 2600 MHz, ECC on"
healthy "of one" "yes 0: $alike, 0 uncorrected errors, 4 NVLinks, PCIe 5 x16" \
    GPUS=1
# Rates of the GPU: those of a kernel that lasts 20 ms at least, so that the host's
# are out of reach.
rates() { # NAME PATTERN [VALUE...]
    local name=$1 pattern=$2
    shift 2
    if (export LD_LIBRARY_PATH="$room/driver" GPUS=1 LAUNCH_US=20000 "$@"
        "$program" doctor 2>&1 | grep '^GPU rates ' | tr -s ' ') >"$room/log" &&
        grep -qE "$pattern" "$room/log"
    then ok "rates: $name"
    else bad "rates: $name" "does not say: $pattern" "$room/log"
    fi
}
some='yes GPU 0: memory 0\.[01][0-9]* GB/s; products [0-9.]+e-0[5-9] TFLOP/s in float32 by own kernels, [0-9.e-]+ in bfloat16 by'
: >"$room/driver/libcublasLt.so.13" # where the system has a real one
: >"$room/driver/libcublasLt.so.12"
# Meanwhile one whose kernels do not end within half an hour.
cp -r "$room/driver" "$room/endless"
(export LD_LIBRARY_PATH="$room/endless" GPUS=1 LAUNCH_US=2000000000
    LIMIT=400 lockstep doctor >"$room/endless.out" 2>&1) &
endless=$!
rates "without cuBLASLt" "$some own kernels"
cp "$BUILD/tests/driver/libcublasLt.so.13" "$room/driver"
rates "with cuBLASLt" "$some cuBLASLt"
rates "a cuBLASLt that does not work" "$some own kernels" LT_CREATES=0
rates "a GPU without memory" "no GPU 0 has no [0-9]+ bytes" GPU_BYTES=100000000
rates "no GPU" "no no GPU loads the kernels" GPUS=0
rm "$room/driver"/libcublasLt.so.1[23]
# A process that has asked may fork others that use the GPU.
if make -s BUILD="$BUILD" EXTRA="${EXTRA:-}" \
    "$BUILD/tests/unit/kernels/test_cuda_about" >"$room/log" 2>&1 &&
    LD_LIBRARY_PATH=$room/driver LOCKSTEP_PLUGINS=$BUILD GPUS=1 \
        "$BUILD/tests/unit/kernels/test_cuda_about" >"$room/log" 2>&1 &&
    ! grep -q 'not shown' "$room/log"
then ok "driver: it is asked in a process of its own"
else bad "driver" "a process that is forked later has no GPU" "$room/log"
fi
answers "whose NVML counts what a context takes" \
    "context and kernels take 300.0 MiB" GPUS=1
healthy "of some that are alike" "yes 0 to 7: $alike, 0 uncorrected" GPUS=8
healthy "of one with errors" "; 7: $alike, 3 uncorrected errors" \
    GPUS=8 ECC_ERRORS=3
healthy "without a GPU" "no there is a driver, but no GPU" GPUS=0
# what doctor says of NCCL: of the one for tests, and of two that are none
messages() { # NAME SENTENCE
    if (export LD_LIBRARY_PATH="$room/driver"
        "$program" doctor 2>&1 | grep '^NCCL ' | tr -s ' ') >"$room/log" &&
        grep -qF "$2" "$room/log"
    then ok "NCCL: $1"
    else bad "NCCL: $1" "does not say: $2" "$room/log"
    fi
}
if [ -e "$BUILD/comm_nccl.so" ]; then
    cp "$BUILD/tests/driver/libnccl.so.2" "$room/driver"
    messages "of the driver for tests" "yes 2."
    echo 'int ncclGetVersion(int *v) { *v = 22000; return 0; }' |
        cc -shared -fPIC -x c -o "$room/driver/libnccl.so.2" -
    messages "that is old" "no NCCL is too old: it has no ncclGetUniqueId"
    : >"$room/driver/libnccl.so.2"
    messages "that is no library" \
        "no there is no NCCL: libnccl.so.2 cannot be opened"
    rm "$room/driver/libnccl.so.2"
    # A real one needs no GPU to say which it is.
    if ldconfig -p 2>/dev/null | grep -q 'libnccl\.so\.2'; then
        messages "of this machine" "yes 2."
    fi
    if readelf -d "$BUILD/comm_nccl.so" "$program" | grep NEEDED |
        grep -qE 'nccl|cuda'
    then bad "NCCL" "the program or its plug-in is linked with it"
    else ok "NCCL: nothing is linked with it"
    fi
fi
answers "for CUDA 12" "its driver is for CUDA 12.4; kernels need 13.0" \
    GPUS=1 DRIVER=12040
answers "with an old GPU" "has compute capability 7.5; kernels need 8.0" \
    GPUS=1 MAJOR=7 MINOR=5
answers "that takes no modules" \
    "does not load the kernels: the driver answers CUDA_ERROR_INVALID_IMAGE" \
    GPUS=1 BROKEN=1
# A GPU that takes its own machine code alone, and PTX.
case $(cat "$BUILD/gpus_made") in
*,compute_80\]*)
    for kind in 8.0 8.9 9.0 10.3 12.0; do
        answers "of $kind, by its own code or PTX" \
            "yes a test, compute capability $kind" GPUS=1 ONLY_OWN=1 \
            MAJOR=${kind%.*} MINOR=${kind#*.}
    done ;;
*)
    answers "of a kind that this build is not for" \
        "does not load the kernels: the driver answers CUDA_ERROR_NO_BINARY_FOR_GPU" \
        GPUS=1 ONLY_OWN=1 MAJOR=12 ;;
esac
# A real driver has all that is asked of it, under these names.
stub=$(ls "$(dirname "$(command -v "$nvcc")")"/../lib*/stubs/libcuda.so /usr/local/cuda/lib64/stubs/libcuda.so \
    2>/dev/null | head -n 1)
if [ -z "$stub" ]; then echo "not run: there is no stub of the driver"
else
    nm -D "$stub" | awk '$2 == "T" { print $3 }' | sort >"$room/has"
    printf '%s\n' '#include "kernels/cuda/plugin/driver.h"' \
        '#define ASKED(name) asked name' 'DRIVER_FUNCTIONS(ASKED)' |
        cc -std=gnu11 -E -P -Isrc -Iinclude -isystem "$(dirname "$(command -v "$nvcc")")/../include" - |
        grep -oE 'asked cu[A-Za-z0-9_]+' | cut -d ' ' -f 2 | sort >"$room/asks"
    comm -13 "$room/has" "$room/asks" >"$room/log"
    if [ "$(wc -l <"$room/asks")" -ge 50 ] && [ ! -s "$room/log" ]
    then ok "driver: all $(wc -l <"$room/asks") functions are in the toolkit's stub"
    else bad "driver" "the stub does not have these" "$room/log"
    fi
fi

# --- what a GPU refuses to start ---
include=$(dirname "$(command -v "$nvcc")")/../include
# refused NAME FILE CHANGE WORDS: a plug-in, one file of which, or of its kernels
# as nvcc reads them, is changed (perl), starts no step; the driver says why.
refused() {
    local name=$1 file=$2 change=$3 words=$4
    rm -rf "$room/src" "$room/other" "$room/modules"
    mkdir -p "$room/src/kernels" "$room/other" "$room/modules"
    cp -r "$kernels" "$room/src/kernels/cuda"
    perl -0pi -e "$change" "$room/src/kernels/cuda/$file"
    if cmp -s "$kernels/$file" "$room/src/kernels/cuda/$file"
    then bad "refused: $name" "$file has no such text"; return
    fi
    cp "$made"/*.fatbin "$room/modules"
    case $file in
    plugin/*) ;;
    *)
        "$nvcc" -std=c++20 -O1 -fmad=false -I"$room/src" -Isrc -Iinclude -I. \
            -gencode arch=compute_90a,code=sm_90a -fatbin \
            -o "$room/modules/elementwise.fatbin" \
            "$room/src/kernels/cuda/elementwise.cu" >"$room/log" 2>&1 ||
            { bad "refused: $name" "nvcc fails" "$room/log"; return; } ;;
    esac
    cc -std=gnu11 -O1 -Isrc -Iinclude -isystem "$include" \
        -DMODULES_PATH="\"$room/modules\"" -fvisibility=hidden -fPIC -shared \
        -o "$room/other/device_cuda.so" "$room"/src/kernels/cuda/plugin/*.c \
        -ldl >"$room/log" 2>&1 ||
        { bad "refused: $name" "does not compile" "$room/log"; return; }
    if LD_LIBRARY_PATH=$BUILD/tests/driver LOCKSTEP_PLUGINS=$room/other \
        timeout 300 "$program" bench step --device cuda --model llama-1m \
        --batch 1 --length 16 --steps 1 >"$room/log" 2>&1
    then bad "refused: $name" "it is started"
    elif grep -qF "$words" "$room/log"; then ok "refused: $name"
    else bad "refused: $name" "does not say: $words" "$room/log"
    fi
}
refused "more threads than a kernel was made for" words.h \
    's/(CUDA_KERNEL_BOUND\(name, )256\)/${1}128)/' \
    "the driver answers CUDA_ERROR_INVALID_VALUE to"
refused "a call that is longer to the kernel than to us" calls.h \
    's/(struct elementwise_call \{.*?row_blocks;)/$1 int64_t more;/s' \
    "the driver answers CUDA_ERROR_INVALID_VALUE to elementwise"
refused "a kernel that takes memory when it is started first" plugin/plugin.c \
    's/error = driver.cuFuncLoad_\(l->functions\[k\]\);/error = CUDA_SUCCESS;/' \
    "the driver answers CUDA_ERROR_OUT_OF_MEMORY to"
refused "stacks that grow in a step" plugin/plugin.c \
    's/stack < \(size_t\)most/stack > \(size_t\)-1 - 1/' \
    "the driver answers CUDA_ERROR_OUT_OF_MEMORY to attention_forward"

echo 'int cuInit(unsigned f) { return (int)f; }' |
    cc -shared -fPIC -x c -o "$room/driver/libcuda.so.1" -
answers "that is old" "the driver is too old: it has no cuDriverGetVersion"

# --- gpu_run.sh on a machine whose libraries are those of Python, and whose GPU
# fails in a kernel ---
mkdir -p "$room/machine" "$room/site/nvidia/cudnn/lib" "$room/none"
cat >"$room/machine/lockstep" <<END
#!/bin/bash
case \$1 in
doctor)
    echo "CUDA   yes  a test, compute capability 9.0  -"
    case \$LD_LIBRARY_PATH in
    *$room/site/nvidia/cudnn/lib) echo "cuDNN  yes  9.19.0  -" ;;
    *) echo "cuDNN  no   there is no cuDNN: libcudnn.so.9 cannot be opened  -" ;;
    esac ;;
verify)
    echo "error (device): the driver answers an error to" \
        "\${CUDA_LAUNCH_BLOCKING:+the kernel rope}"
    exit 69 ;;
plan) exit 1 ;;
*) exec "$program" "\$@" ;;
esac
END
chmod +x "$room/machine/lockstep"
(export EMULATED=$room/none OUT=$room/out STAGES="env step memory sanitizer"
    PYTHONPATH=$room/site BUILD=$room/machine tools/gpu/gpu_run.sh) \
    >"$room/log" 2>&1
said=$(grep -oE '^ +libraries of Python packages|^passed env|^ +error .*to the kernel rope|^(failed|not run) [a-z]+' \
    <(sed '/^== /,$d' "$room/log") | uniq | sed 's/^ *//' | tr '\n' ';')
if [ "$said" = "libraries of Python packages;passed env;error (device): the driver answers an error to the kernel rope;failed step;not run sanitizer;failed memory;" ]
then ok "gpu_run.sh finds libraries, names the kernel, and then runs the sanitizer"
else bad "gpu_run.sh" "says: $said" "$room/log"
fi

# --- gpu_run.sh whose GPU hangs: nothing of a stage is left beside the next ---
mkdir "$room/hangs"
cat >"$room/hangs/lockstep" <<END
#!/bin/bash
case \$1 in
verify) exec sleep 297.$$ ;;
*) exec "$program" "\$@" ;;
esac
END
chmod +x "$room/hangs/lockstep"
(export EMULATED=$room/none OUT=$room/out STAGES="runs memory" BUDGET=30
    BUILD=$room/hangs tools/gpu/gpu_run.sh) >"$room/log" 2>&1
grep -lszxF "297.$$" /proc/[0-9]*/cmdline >"$room/left"
if grep -q "^not run runs: tests/equivalence/cuda_ranks.sh was not over in" "$room/log" &&
    grep -q "^not run memory: 30 s are over" "$room/log" &&
    [ ! -s "$room/left" ]
then ok "gpu_run.sh ends what a stage has started"
else bad "gpu_run.sh ends what a stage has started" "it does not" "$room/log"
fi

# --- mistakes in kernels show ---
number=0
fma=$(grep -qsw fma /proc/cpuinfo && echo -mfma)
flags="-std=gnu11 -O2 -ffp-contract=off -fno-math-errno -fno-trapping-math
    -fsanitize=alignment -fsanitize-undefined-trap-on-error -fopenmp-simd -fno-strict-aliasing -pthread -D_GNU_SOURCE -fPIE $fma"
# test_object TEST: compiled once, whatever kernels it is linked with
test_object() {
    [ -e "$room/$1.o" ] || gcc $flags -O0 -Isrc -Iinclude -I. \
        -c "tests/unit/kernels/$1.c" -o "$room/$1.o"
}
linker=$(command -v ld.lld >/dev/null && echo -fuse-ld=lld)
# --- work that is gathered, and mistakes there ---
# segment NAME [CHANGE]: the test passes; or fails with a change (perl).
segment() {
    local name=$1 change=${2:-} file=plugin/segment.c
    rm -rf "$room/src" && mkdir -p "$room/src/kernels/cuda/plugin"
    perl -0pe "$change" "$kernels/$file" >"$room/src/kernels/cuda/$file"
    if [ -n "$change" ] && cmp -s "$kernels/$file" "$room/src/kernels/cuda/$file"
    then bad "segment: $name" "$file has no such text"; return
    fi
    # shellcheck disable=SC2086
    if ! gcc $flags -O1 -I"$room/src" -Isrc -Iinclude -I. -isystem "$include" \
        tests/unit/kernels/test_segment.c "$BUILD/liblockstep.a" $linker \
        -o "$room/test_segment" -lcmocka -lyaml -lutf8proc -lpcre2-8 -lz \
        -lzstd -ldl -lm >"$room/log" 2>&1
    then bad "segment: $name" "does not compile" "$room/log"; return
    fi
    timeout 300 "$room/test_segment" >"$room/log" 2>&1
    case $?,$change in
    0, | [1-9],?*) ok "segment: $name" ;;
    0,*) bad "segment: $name" "no test notices" "$room/log" ;;
    *) bad "segment: $name" "the test ends with another code" "$room/log" ;;
    esac
}
segment "work is done as it was asked for"
segment "graphs that differ by an address are one" \
    's/hash\(0xcbf29ce484222325u, s->nodes,.*?\);/(uint64_t)s->count;/s;
    s/memcmp\(g->nodes, s->nodes,.*?== 0/true/s'
segment "products that differ by an address are one" \
    's/return n->kind == NODE_PRODUCT \|\| /return /'
segment "attention that differs by an address is one" \
    's/ \|\| n->kind == NODE_ATTENTION;/;/'
segment "a graph that is told forgets it" \
    's/memcpy\(g->read \+ n->at, s->read \+ n->at, bytes\);//'

# mistake NAME KERNELS FILE FROM TO TEST [ONLY]: FROM becomes TO in a file of one
# of the .cu files; ONLY: of the test's functions those that match
mistake() {
    local name=$1 of=$2 file=$3 from=$4 to=$5 test=$6 only=${7:-*} objects
    rm -rf "$room/src" && mkdir -p "$room/src/kernels"
    cp -r "$kernels" "$room/src/kernels/cuda"
    FROM=$from TO=$to perl -0pi -e 's/\Q$ENV{FROM}\E/$ENV{TO}/' \
        "$room/src/kernels/cuda/$file"
    if cmp -s "$kernels/$file" "$room/src/kernels/cuda/$file"; then
        bad "mistake: $name" "$file has no such text"
        return
    fi
    number=$((number + 1))
    drawn $number || return # its place is there
    objects=$(find "$made" -maxdepth 1 -name '*.o' ! -name "$of.cu.o")
    # shellcheck disable=SC2086
    if ! gcc $flags -I"$room/src" -Isrc -Iinclude -I. -x c \
        -c "$room/src/kernels/cuda/$of.cu" -o "$room/mistake.o" ||
        ! test_object "$test" ||
        ! gcc $flags $linker "$room/$test.o" "$room/mistake.o" $objects \
            "$BUILD/liblockstep.a" -o "$room/test" \
            -lcmocka -lyaml -lutf8proc -lpcre2-8 -lz -lzstd -ldl -lm; then
        bad "mistake: $name" "does not compile"
    elif TEST_ONLY=$only timeout 900 "$room/test" 2>&1 | grep -qEm1 \
        -e 'cuda emulated' -e 'isa emulated' -e '[0-9] emulated: ' \
        -e 'the same barrier' -e 'waited for before the end' -e '(product|gradient|sums|y) [0-9] differs' \
        -e '\[  (ERROR|FAILED) '; then
        ok "mistake: $name"
    else
        bad "mistake: $name" "$test does not notice"
    fi
}
make -s -j"$(nproc)" BUILD="$BUILD" EXTRA="${EXTRA:-}" \
    "$BUILD/tests/unit/kernels/test_matmul" \
    "$BUILD/tests/unit/kernels/test_accumulator" \
    "$BUILD/tests/unit/kernels/test_kernels" \
    "$BUILD/tests/unit/kernels/test_attention" \
    "$BUILD/tests/unit/kernels/test_flash" \
    "$BUILD/tests/unit/kernels/test_flash_ring" \
    "$BUILD/tests/unit/kernels/test_experts" \
    "$BUILD/tests/unit/kernels/test_router" \
    "$BUILD/tests/unit/kernels/test_codes" \
    "$BUILD/tests/unit/kernels/test_quantize" \
    "$BUILD/tests/unit/kernels/test_rotate" \
    "$BUILD/tests/unit/kernels/test_updates" \
    "$BUILD/tests/unit/kernels/test_integers" >"$room/log" 2>&1 ||
    bad "unit tests" "do not build" "$room/log"
mistake "a product without the barrier before it reads" matmul product.h \
    'columns, sum);
    BARRIER;' 'columns, sum);' test_matmul
mistake "a product without the barrier before it writes" matmul product.h \
    '        BARRIER;
    }' '    }' test_matmul
mistake "leaves in another tree" matmul product.h \
    'LOOPED for (; number >> l & 1; l++)' 'LOOPED for (; 0 && l < 1; l++)' \
    test_matmul
mistake "a granule in halves" matmul product.h \
    'for (int k = 0; k < DEPTH; k++)
                chains' 'for (int k = DEPTH - 1; k >= 0; k--)
                chains' test_matmul
mistake "an accumulator that keeps a bit more" matmul product.h '(53 - bits)' \
    '(52 - bits)' test_accumulator
mistake "lanes that are folded from below" norm lanes.h \
    'for (int half = LANES / 2; half > 0; half /= 2)' \
    'for (int half = 1; half < LANES; half *= 2)' test_kernels
mistake "a barrier that half of the threads skip" loss loss.cu \
    'for (int half = BLOCK_THREADS / 2; half > 0; half /= 2) {
        BARRIER;' 'for (int half = BLOCK_THREADS / 2; half > 0; half /= 2) {
        if (THREAD % 2) BARRIER;' test_kernels
mistake "bits of masters before all threads have read them" updates \
    updates.cu 'BARRIER; /* the old bits were read */' '' test_updates "split*"
mistake "bits of others beside those of masters" updates updates.cu \
    'made |= m->ties[at] & ~own;' 'made |= 0;' test_updates "split*"
mistake "weights that are read before all are written" attention attention.h \
    'BARRIER; /* what was there is read, and weights are written */' '' \
    test_attention
mistake "earlier keys merged last" attention attention.cu \
    'left->values.at[i][j], a, right->values.at[i][j] * b' \
    'right->values.at[i][j], b, left->values.at[i][j] * a' test_attention
mistake "heads that are added across leaves" attention_backward \
    attention_backward.cu 'head == begin || head % per_leaf == 0' \
    'head == begin' test_attention
mistake "queries of another granule in a chain" attention_backward \
    attention_backward.cu 'waiting_push(&tree[0], g,' \
    'waiting_push(&tree[0], g ^ 1,' test_attention
mistake "keys of a tile that are read before all are there" flash_forward \
    flash_forward.cu \
    'BARRIER; /* keys are there, and values before them are read */' '' \
    test_flash "cases*"
mistake "keys that come before the last ones are read" flash_forward \
    flash_forward.cu 'BARRIER; /* values are there, and keys are read */' '' \
    test_flash "cases*"
mistake "sums that stay where a larger score comes" flash_forward \
    flash_forward.cu 'r->sum[row] = r->sum[row] * factor;' '' test_flash \
    "cases*"
mistake "a key that a query sees too early" flash_forward flash_tile.h \
    'attention_past(p, at) : at + 1' 'attention_past(p, at) : at + 2' \
    test_flash "cases*"
mistake "a query that sees more keys than those of a ring's block" \
    flash_forward flash_tile.h '(from > begin ? from : begin)' '(from)' \
    test_flash_ring
mistake "elements behind those of a value that stay as they were" \
    flash_forward flash_tile.h 'int e = from + LANE % 4;' \
    'int e = from + 4 + LANE % 4;' test_flash "cases*"
mistake "the wrong elements of a value in the twin" flash_backward \
    flash_backward.cu 'part_of(x->span, x->value).from' \
    'part_of(x->span, x->span).from' test_flash "cases*"
mistake "a sum of a ring's block that is divided before it is merged" \
    flash_forward flash_forward.cu 'is_node ? 1.0f : sum' 'sum' \
    test_flash_ring
mistake "a tile that is read before it has come" flash_backward \
    flash_backward.cu 'COPIES_WAIT(0);
    BARRIER; /* all is there' 'BARRIER; /* all is there' test_flash "cases*"
mistake "a tile that comes although no query sees it" flash_forward \
    flash_forward.cu 'if (at < last) rows_copy' 'rows_copy' test_flash_ring
mistake "queries of a head that come before the last ones are read" \
    flash_backward flash_backward.cu 'BARRIER; /* the head before is read */' \
    '' test_flash "cases*"
mistake "keys of another head for a leaf's share" flash_backward \
    flash_backward.cu 'kv / (p->kv_heads / (int)p->k.shape[1])' \
    'kv % (int)p->k.shape[1]' test_flash "cases*"
mistake "half products of a wide head before they are there" \
    flash_backward flash_backward.cu \
    'BARRIER; /* the twin has given its halves */' '' test_flash "cases*"
mistake "weights of a wide head before they are there" flash_backward \
    flash_backward.cu 'BARRIER; /* the twin has given its weights */' '' \
    test_flash "cases*"
mistake "the other half of a wide head" flash_forward flash_forward.cu \
    'part * form.columns' 'part * form.columns / 2' test_flash "cases*"
mistake "documents of the wrong rows where ranks cut sequences" \
    flash_backward flash_tile.h 'documents[own.row + at - own.begin]' \
    'documents[own.row + at]' test_flash "ranks*"
mistake "weights of tensor cores for the wrong rows" flash_backward \
    flash_tile.h 'of->at[i / 2][i % 2 * 2],' \
    'of->at[i / 2][(1 - i % 2) * 2],' test_flash "cases*"
mistake "another expert's matrix" experts experts.cu \
    'of.number * call->b_stride' '0' test_experts
mistake "tokens of other segments in a leaf" experts product.h \
    'segment = expert_segment(w->of->groups, w->of->number, &segment);' \
    'segment.first += 0;' test_experts
mistake "the higher one of equal experts" router router.cu \
    'at < b_at' 'at > b_at' test_router
mistake "numbers of float16 that are read as bfloat16" elementwise \
    words.h 'element_get(view.data, view.dtype,' \
    'element_get(view.data, view.dtype > 0 ? DTYPE_BF16 : view.dtype,' \
    test_kernels "*of_float16*"
mistake "weights of float16 that are read as bfloat16" norm norm.cu \
    'n->x.dtype, i)' 'n->x.dtype > 0 ? DTYPE_BF16 : n->x.dtype, i)' \
    test_kernels "*of_float16*"
mistake "a gradient of 16 bits over what others have not read" loss loss.cu \
    'if (p->dtype != DTYPE_F32) BARRIER;' '' test_kernels "*bfloat16*"
mistake "pairs whose even element comes first" matmul product.h \
    'w->kind == GRANULE_PAIRS;' '0;' test_matmul_narrow
mistake "sums of bfloat16 that are denormal" matmul product.h \
    'return flushed(r);' 'return r;' test_matmul_narrow
mistake "weights of tiles that are not bfloat16" attention attention.h \
    'return p->tiles ? flushed(f32_of_bits(element_to_bf16(x) << 16)) : x;' \
    'return p->tiles ? flushed(x) : x;' test_attention_narrow "*is_rounded*"
mistake "rows of 16 bits that are not rounded after their gate" experts \
    product.h 'entries[g]], dtype)' 'entries[g]], DTYPE_F32)' test_experts
mistake "a region's peak that is read before all have raised it" codes codes.cu \
    'half > 0; half /= 2) {
        BARRIER;' 'half > 0; half /= 2) {' test_codes
mistake "a block's peak that the next one keeps" codes codes.cu \
    'most = 0;
        }' '}' test_codes
mistake "a scale that is read before all threads have looked" quantize \
    quantize.cu 'BARRIER;
    return s->most[THREAD - THREAD % team];' \
    'return s->most[THREAD - THREAD % team];' test_quantize
mistake "counts of half of the threads" quantize quantize.cu \
    'half = BLOCK_THREADS / 2;' 'half = BLOCK_THREADS / 4;' test_quantize
mistake "a scale that is written over what is not finite" quantize \
    quantize.cu 'BARRIER; /* what is not finite is told later */' '' \
    test_integers
mistake "a short run that is rotated" rotate rotate.cu \
    'if (count == ROTATE_RUN) rotate_run' 'rotate_run' test_rotate
mistake "a mask before the rotation" rotate rotate.cu \
    'if (turns) rotate_run(h, 0);' '' test_rotate
mistake "codes that are read before all are there" integers integers.cu \
    'BARRIER;
        LOOPED' 'LOOPED' test_integers
mistake "leaves of integers in another tree" integers integers.cu \
    'leaf_push(&tree, leaf - 1,' 'leaf_push(&tree, leaf,' test_integers
wait $endless
if tr -s ' ' <"$room/endless.out" |
    grep -q '^GPU rates .*no GPU 0 has not ended what it was given within 60 s' &&
    grep -q '^NCCL ' "$room/endless.out"
then ok "rates: a GPU whose kernels do not end"
else bad "rates: a GPU whose kernels do not end" "does not say so" \
    "$room/endless.out"
fi
report
