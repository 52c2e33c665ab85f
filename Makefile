# SPDX-License-Identifier: Apache-2.0
# make          build/lockstep
# make test     everything that proves it, installs what is missing
# make demo     installs, builds, trains on real text, writes a sample and a report
ifeq ($(origin CC),default)
CC      := gcc
endif
BUILD   ?= build
SAN     ?=
WARN    := -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes
OPT     ?= -O2
KERNEL_OPT ?= -O3
DEBUG   ?= -g
# Flags of reference kernels, and of fast ones in plain C: the bits are the same
# with -mfma, the speed is not.
REF_FLAGS ?=
FLAGS_plain ?=
# A flag for fuzzers, COVER=-fsanitize=fuzzer-no-link, of rooms that read what
# others write. These do not, and compile faster without it:
COVER   ?=
NO_COVER := kernels mesh nn optimizer proof step train
# Against mistakes with foreign files: canaries on stacks, checked copies, an
# image at a drawn address whose tables are read-only. Kernels read no files and
# do without canaries and checks; sanitizers check more than FORTIFY.
HARDEN  := -fstack-protector-strong
ifeq ($(SAN)$(filter -O0,$(OPT)),)
HARDEN  += -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
endif
PIE     := -fPIE
HARD_LINK := -pie -Wl,-z,relro,-z,now
BASIC   := -std=gnu11 $(OPT) $(DEBUG) -ffp-contract=off -fno-math-errno \
           -fno-trapping-math -fopenmp-simd -fno-strict-aliasing -pthread \
           -D_GNU_SOURCE -Isrc -Iinclude -I. $(PIE) $(WARN) $(SAN) $(EXTRA)
CFLAGS  += -MMD -MP
LIBS    := -lyaml -lutf8proc -lpcre2-8 -lz -lzstd -ldl -lm -pthread

MACHINE := $(shell $(CC) -dumpmachine 2>/dev/null)
SRC     := $(sort $(wildcard src/*/*.c) \
             $(filter-out %/emulator.c %/emulated.c,\
               $(wildcard src/kernels/cuda/*.c)))
REF     := $(sort $(wildcard src/kernels/reference/*.c))
CPU     := $(sort $(wildcard src/kernels/cpu/*.c src/kernels/cpu/*/*.c))
# Instruction sets of the fast kernels. ISAS="plain avx2" in the environment: only
# these.
ISAS    ?= plain $(if $(findstring x86_64,$(MACHINE)),avx2 avx512)\
             $(if $(findstring aarch64,$(MACHINE)),neon)
FLAGS_avx2   := -mavx2 -mfma
FLAGS_avx512 := -march=x86-64-v4 -mprefer-vector-width=512
FLAGS_neon   :=

OBJ := $(SRC:%.c=$(BUILD)/%.o) \
       $(REF:%.c=$(BUILD)/%.f32.o) $(REF:%.c=$(BUILD)/%.f64.o) \
       $(foreach i,$(ISAS),$(CPU:%.c=$(BUILD)/%.$(i).o))
LIBOBJ := $(filter-out $(BUILD)/src/cli/main.o,$(OBJ))

# One short line for each file; `make V=1` shows the commands.
ifneq ($(V),1)
.SILENT:
endif
SAY = echo "  $(1) $(2)"

# One plug-in for each MPI whose compiler is found; nothing else needs them.
MPIS    := $(foreach m,openmpi mpich,\
             $(if $(shell command -v mpicc.$(m) 2>/dev/null),$(m)))
PLUGINS := $(MPIS:%=$(BUILD)/comm_%.so)

# Another one for CUDA, where nvcc is found (tools/setup.sh cuda): machine code
# for three generations of GPUs, and PTX, of which the driver makes code for
# others. A kernel that has too few registers is not taken.
# CUDA 13 or newer; nvcc starts g++.
NVCC    ?= $(firstword $(wildcard build-nvcc/lib/python3*/site-packages/nvidia/cu13/bin/nvcc) \
             $(shell command -v nvcc 2>/dev/null))
NVCC_OK := $(if $(NVCC),$(shell command -v g++ >/dev/null 2>&1 && \
             $(NVCC) --version 2>/dev/null | grep -E 'release (1[3-9]|[2-9][0-9])'))
ifneq ($(NVCC_OK),)
ifeq ($(SAN),)
PLUGINS += $(BUILD)/device_cuda.so
endif
endif

# NCCL (comm.library=nccl), where its header is found beside nvcc or in the
# system. It is opened when a run asks for it.
NCCL_H  := $(if $(filter %/device_cuda.so,$(PLUGINS)),$(firstword $(wildcard \
             $(dir $(NVCC))../include/nccl.h /usr/local/cuda/include/nccl.h \
             build-nvcc/lib/python3*/site-packages/nvidia/nccl/include/nccl.h \
             /usr/include/nccl.h /usr/local/include/nccl.h)))
NCCL_FLAGS = -std=gnu11 $(OPT) -g -Isrc -isystem $(dir $(NVCC))../include \
             -isystem $(dir $(NCCL_H)) $(WARN) $(EXTRA) -fvisibility=hidden -fPIC
# It includes headers of the toolkit that nvcc may not bring.
NCCL_H  := $(if $(NCCL_H),$(if $(shell echo '\#include "$(NCCL_H)"' | $(CC) -E \
             -isystem $(dir $(NVCC))../include -xc - 2>/dev/null | tail -n 1),$(NCCL_H)))
ifneq ($(NCCL_H),)
PLUGINS += $(BUILD)/comm_nccl.so
endif

all: $(BUILD)/lockstep $(PLUGINS)

# Before anything is compiled: headers and libraries, by name. Asked once.
$(BUILD)/probed: tools/setup.sh
	CC="$(CC)" PROBE_FLAGS="$(SAN) $(EXTRA)" tools/setup.sh probe
	mkdir -p $(@D) && touch $@
$(OBJ): Makefile | $(BUILD)/probed
$(PLUGINS): Makefile

$(BUILD)/comm_%.so: src/comm/mpi/plugin.c src/comm/mpi/plugin.h src/comm/comm.h
	$(call SAY,MPI ,$@)
	mkdir -p $(@D)
	mpicc.$* -std=gnu11 $(OPT) -g -ffp-contract=off -Isrc -Wall -Wextra -fPIC \
	    $(HARDEN) -Wl,-z,relro,-z,now -shared -o $@ $< || echo "  no plug-in for $*: its compiler fails"

$(BUILD)/comm_nccl.so: src/comm/nccl/plugin.c src/comm/nccl/plugin.h
	$(call SAY,NCCL,$@)
	mkdir -p $(@D)
	$(CC) $(NCCL_FLAGS) $(HARDEN) -Wl,-z,relro,-z,now -shared -o $@ $< -ldl

CUDA    := $(sort $(wildcard src/kernels/cuda/*.cu))
FATBIN  := $(CUDA:%.cu=$(BUILD)/%.fatbin)
# Fewer in the environment: for tests without a GPU, nothing that is shipped.
GPUS_MADE ?= -gencode arch=compute_80,code=[sm_80,compute_80] \
           -gencode arch=compute_90a,code=sm_90a \
           -gencode arch=compute_100,code=sm_100
NVFLAGS := -std=c++20 -O3 -fmad=false -Isrc -Iinclude -I. -Xptxas -v \
           $(GPUS_MADE)
$(BUILD)/gpus_made: FORCE
	mkdir -p $(@D)
	echo '$(GPUS_MADE)' | cmp -s - $@ || echo '$(GPUS_MADE)' >$@
$(FATBIN): Makefile tools/spills.sh $(BUILD)/gpus_made
$(BUILD)/%.fatbin: %.cu
	$(call SAY,NVCC,$@)
	mkdir -p $(@D)
	$(NVCC) $(NVFLAGS) -MMD -MP -MF $@.d -fatbin -o $@.new $< >$@.log 2>&1 \
	    || { cat $@.log; exit 1; }
	sed -i 's|^[^ ]*\.new|$@|' $@.d
	tools/spills.sh $@.log && mv $@.new $@
$(BUILD)/device_cuda.so: $(wildcard src/kernels/cuda/plugin/*) $(FATBIN) \
    src/device/plugin.h src/device/parts.h src/device/roots.h src/device/product.h src/device/attended.h src/device/device.h \
    src/kernels/cuda/launch.h src/kernels/cuda/calls.h
	$(call SAY,CUDA,$@)
	$(CC) -std=gnu11 $(OPT) -g -Isrc -Iinclude -isystem $(dir $(NVCC))../include $(WARN) \
	    -DMODULES_PATH='"$(BUILD)/src/kernels/cuda"' -fvisibility=hidden -fPIC \
	    $(HARDEN) -Wl,-z,relro,-z,now -shared -o $@ $(filter %.c,$^) -ldl

$(BUILD)/lockstep: $(OBJ)
	$(call SAY,LINK,$@)
	$(CC) $(SAN) $(HARD_LINK) -o $@ $^ $(LIBS)

$(BUILD)/liblockstep.a: $(LIBOBJ)
	$(call SAY,AR  ,$@)
	rm -f $@ && ar rcs $@ $^

# Reference kernels are compiled once per element type: `real` is float or
# double (kernels/reference/real.h).
$(BUILD)/%.f32.o: %.c
	$(call SAY,CC  ,$@)
	mkdir -p $(@D)
	$(CC) $(BASIC) $(CFLAGS) $(REF_FLAGS) -DREAL_BITS=32 -c $< -o $@
$(BUILD)/%.f64.o: %.c
	$(call SAY,CC  ,$@)
	mkdir -p $(@D)
	$(CC) $(BASIC) $(CFLAGS) $(REF_FLAGS) -DREAL_BITS=64 -c $< -o $@
# Fast kernels are compiled once per instruction set.
define isa_rule
$(BUILD)/src/kernels/cpu/%.$(1).o: src/kernels/cpu/%.c
	$$(call SAY,CC  ,$$@)
	mkdir -p $$(@D)
	$(CC) $(BASIC) $(CFLAGS) $(FLAGS_$(1)) $(KERNEL_OPT) -DISA=$(1) -c $$< -o $$@
endef
$(foreach i,$(ISAS),$(eval $(call isa_rule,$(i))))
$(BUILD)/%.o: %.c
	$(call SAY,CC  ,$@)
	mkdir -p $(@D)
	$(CC) $(BASIC) $(HARDEN) $(CFLAGS) $(if $(filter $(NO_COVER:%=src/%/%),$<),,$(COVER)) -DISAS="$(ISAS)" $(foreach i,$(ISAS),-DHAVE_ISA_$(i)) -c $< -o $@

# Kernels of CUDA (.cu) as C, with the emulator: unit tests of kernels link
# them, the program does not. Its threads have stacks of their own, which the
# thread sanitizer does not follow.
EMULATOR := $(CUDA:%=$(BUILD)/%.o) $(BUILD)/src/kernels/cuda/emulator.o
EMULATED := $(EMULATOR) $(BUILD)/src/kernels/cuda/emulated.o
ifneq ($(findstring thread,$(SAN)),)
EMULATED :=
endif
$(EMULATED): Makefile
$(EMULATOR): CFLAGS += -fPIC
# A GPU ends a kernel at an address that the type does not divide. So does the
# emulator: a trap, which needs no library; sanitizers say it themselves.
ifeq ($(SAN),)
ALIGNED := -fsanitize=alignment -fsanitize-undefined-trap-on-error
endif
HAS_FMA  := $(shell grep -qsw fma /proc/cpuinfo && echo -mfma)
$(BUILD)/%.cu.o: %.cu
	$(call SAY,CC  ,$@)
	mkdir -p $(@D)
	$(CC) $(BASIC) $(CFLAGS) $(KERNEL_OPT) $(HAS_FMA) $(ALIGNED) -x c -c $< -o $@

# A driver for tests of the device cuda, where no GPU is: kernels run under the
# emulator.
DRIVER   := $(BUILD)/tests/driver/libcuda.so.1
NVML     := $(BUILD)/tests/driver/libnvidia-ml.so.1
$(DRIVER): $(filter-out %/nvml.c %/cublaslt.c %/nccl.c %/nccl_box.c %/nccl_box.h %/cudnn.c %/cudnn.h %/cudnn_run.c,$(wildcard tests/driver/*)) $(EMULATOR)
	$(call SAY,CC  ,$@)
	mkdir -p $(@D)
	$(CC) $(BASIC) -fPIC -isystem $(dir $(NVCC))../include -fvisibility=hidden \
	    -shared -o $@ $(filter %.c %.o,$^) -pthread
$(NVML): tests/driver/nvml.c
	$(call SAY,CC  ,$@)
	mkdir -p $(@D)
	$(CC) $(BASIC) -fPIC -fvisibility=hidden -shared -o $@ $<
# And a library of messages between its GPUs.
NCCL     := $(if $(NCCL_H),$(BUILD)/tests/driver/libnccl.so.2)
$(NCCL): tests/driver/nccl.c tests/driver/nccl_box.h tests/driver/nccl_box.c
	$(call SAY,CC  ,$@)
	mkdir -p $(@D)
	$(CC) $(NCCL_FLAGS) -D_GNU_SOURCE -I. -shared -o $@ $(filter %.c,$^) -ldl -pthread
# And one of products.
CUBLASLT := $(BUILD)/tests/driver/libcublasLt.so.13
$(CUBLASLT): tests/driver/cublaslt.c src/kernels/cuda/plugin/cublaslt.h
	$(call SAY,CC  ,$@)
	mkdir -p $(@D)
	$(CC) $(BASIC) -fPIC -fvisibility=hidden -shared -o $@ $< -ldl -pthread
# And one of attention.
CUDNN    := $(BUILD)/tests/driver/libcudnn.so.9
$(CUDNN): tests/driver/cudnn.c tests/driver/cudnn_run.c tests/driver/cudnn.h src/kernels/cuda/plugin/cudnn.h
	$(call SAY,CC  ,$@)
	mkdir -p $(@D)
	$(CC) $(BASIC) -Itests/driver -fPIC -fvisibility=hidden -shared -o $@ $(filter %.c,$^) -ldl -lm -pthread
driver: $(DRIVER) $(NVML) $(NCCL) $(CUBLASLT) $(CUDNN) $(PLUGINS)
# What is there already is not left behind the plug-in.
ifneq ($(filter %/device_cuda.so,$(PLUGINS)),)
all: $(wildcard $(DRIVER) $(NVML) $(NCCL) $(CUBLASLT) $(CUDNN))
endif

# Unit tests: one program per tests/unit/<folder>/test_<file>.c. They are many:
# the linker of LLVM, where it is, takes half the time.
LLD := $(if $(shell command -v ld.lld 2>/dev/null),-fuse-ld=lld)
TESTS := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard tests/unit/*/test_*.c)))
$(BUILD)/tests/unit/%: tests/unit/%.c $(BUILD)/liblockstep.a
	$(call SAY,CC  ,$@)
	mkdir -p $(@D)
	$(CC) $(BASIC) $(CFLAGS) $(LLD) $< $(BUILD)/liblockstep.a -o $@ -lcmocka $(LIBS)
$(BUILD)/tests/unit/kernels/%: tests/unit/kernels/%.c $(EMULATED) $(BUILD)/liblockstep.a
	$(call SAY,CC  ,$@)
	mkdir -p $(@D)
	$(CC) $(BASIC) $(CFLAGS) $(LLD) $< $(EMULATED) $(BUILD)/liblockstep.a -o $@ -lcmocka $(LIBS)
unit-build: $(TESTS)
# Tests and fuzzers are read for warnings, not compiled: of those, checked builds
# draw a third.
tests-read:
	printf '%s\n' $(wildcard tests/unit/*/*.c tests/fuzz/*.c) | \
	    xargs -P$$(nproc) -n4 $(CC) $(BASIC) -fsyntax-only
unit: $(TESTS)
	@set -e; for t in $(TESTS); do echo "== $$t"; $$t; done

# Fuzzing: tests/fuzz/fuzz_<what>.c has LLVMFuzzerTestOneInput; files to start
# from lie in tests/fuzz/seeds/<what>/. Each runs for FUZZ_SECONDS; FUZZ_ONLY:
# these names alone.
FUZZ_SECONDS ?= 20
FUZZ_ONLY ?= $(patsubst tests/fuzz/%.c,%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))
FUZZERS := $(FUZZ_ONLY:%=$(BUILD)/tests/fuzz/%)
$(BUILD)/tests/fuzz/%: tests/fuzz/%.c $(BUILD)/liblockstep.a
	$(call SAY,CC  ,$@)
	mkdir -p $(@D)
	$(CC) $(BASIC) $(CFLAGS) $(LLD) -fsanitize=fuzzer $< $(BUILD)/liblockstep.a -o $@ $(LIBS)
fuzz:
	@$(MAKE) --no-print-directory BUILD=build-fuzz CC=clang OPT=-O1 KERNEL_OPT=-O1 \
	    SAN="-fsanitize=address,undefined -fno-sanitize-recover=all" \
	    COVER=-fsanitize=fuzzer-no-link fuzz-build
	@FUZZ_SECONDS=$(FUZZ_SECONDS) tools/fuzz.sh build-fuzz
fuzz-build: $(FUZZERS)

# The tree is still in our style, and the checker still finds each fault.
TIDY := $(BUILD)/tests/tidy/tidy
$(TIDY): $(wildcard tests/tidy/*.c) tests/tidy/tidy.h
	$(call SAY,CC  ,$@)
	mkdir -p $(@D)
	$(CC) -std=gnu11 -O2 -D_GNU_SOURCE $(WARN) $(filter %.c,$^) -o $@
tidy: $(TIDY) $(BUILD)/lockstep
	tests/tidy/selftest.sh $(TIDY)
	$(TIDY) . $(BUILD)

# Targets of a newcomer. Each first makes sure that its packages are there, then
# starts make again, which now finds the compiler.
# PARTS, UNITS and ONLY choose among the tests: tests/run.sh.
test:
	@tools/setup.sh test
	@$(MAKE) --no-print-directory -j$$(nproc) all $(if $(UNITS),,unit-build)
	@BUILD=$(BUILD) tests/run.sh $(PARTS)
demo:
	@BUILD=$(BUILD) tools/demo.sh
docs-check: all
	@BUILD=$(BUILD) tools/docs_check.sh

clean:
	rm -rf $(BUILD)
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
.PHONY: FORCE all driver fuzz fuzz-build unit unit-build tests-read clean test demo tidy docs-check
.SECONDARY:
