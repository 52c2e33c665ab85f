/* SPDX-License-Identifier: Apache-2.0 */
/* cublaslt.h - the part of cuBLASLt that the plug-in uses, so that no
 * header of it is needed where the plug-in is built. tests/golden/cublaslt.sh
 * compares all of it with the library's own header, where that is found. */
#ifndef LOCKSTEP_KERNELS_CUDA_PLUGIN_CUBLASLT_H
#define LOCKSTEP_KERNELS_CUDA_PLUGIN_CUBLASLT_H

#include <stddef.h>
#include <stdint.h>

enum lt_status { LT_SUCCESS = 0, LT_NOT_INITIALIZED = 1, LT_INVALID_VALUE = 7,
                 LT_NOT_SUPPORTED = 15 };
enum lt_type { LT_FLOAT32 = 0, LT_FLOAT16 = 2, LT_BFLOAT16 = 14 };
enum lt_compute { LT_IN_FLOAT32 = 68, LT_IN_TF32 = 77 };
enum lt_turn { LT_AS_IT_IS = 0, LT_TURNED = 1 };
enum lt_desc_attribute { LT_TURN_A = 3, LT_TURN_B = 4 };
enum lt_preference_attribute { LT_ROOM_MOST = 1, LT_REDUCTIONS = 3,
                               LT_ALIGNED_A = 5, LT_ALIGNED_B = 6,
                               LT_ALIGNED_C = 7, LT_ALIGNED_D = 8 };
enum lt_algorithm_attribute { LT_SPLITS = 2, LT_REDUCTION = 3 };

struct lt_layout { uint64_t data[8]; };
struct lt_desc { uint64_t data[32]; };
struct lt_preference { uint64_t data[8]; };
struct lt_algorithm { uint64_t data[8]; };
struct lt_offer {
    struct lt_algorithm algorithm;
    size_t room;
    int state;
    float waves;
    int reserved[4];
};

/* Matrices are stored by columns. */
#define LT_FUNCTIONS(X)                                                    \
    X(size_t, cublasLtGetVersion, void)                                    \
    X(const char *, cublasLtGetStatusName, int answer)                     \
    X(int, cublasLtCreate, void **handle)                                  \
    X(int, cublasLtDestroy, void *handle)                                  \
    X(int, cublasLtMatrixLayoutInit_internal, struct lt_layout *,          \
      size_t bytes, int type, uint64_t rows, uint64_t columns,             \
      int64_t stride)                                                      \
    X(int, cublasLtMatmulDescInit_internal, struct lt_desc *,              \
      size_t bytes, int compute, int scale_type)                           \
    X(int, cublasLtMatmulDescSetAttribute, struct lt_desc *,               \
      int attribute, const void *, size_t bytes)                           \
    X(int, cublasLtMatmulPreferenceInit_internal, struct lt_preference *,  \
      size_t bytes)                                                        \
    X(int, cublasLtMatmulPreferenceSetAttribute, struct lt_preference *,   \
      int attribute, const void *, size_t bytes)                           \
    X(int, cublasLtMatmulAlgoGetHeuristic, void *handle, struct lt_desc *, \
      struct lt_layout *a, struct lt_layout *b, struct lt_layout *c,       \
      struct lt_layout *d, struct lt_preference *, int most,               \
      struct lt_offer *, int *count)                                       \
    X(int, cublasLtMatmulAlgoConfigGetAttribute,                           \
      const struct lt_algorithm *, int attribute, void *, size_t bytes,    \
      size_t *written)                                                     \
    X(int, cublasLtMatmul, void *handle, struct lt_desc *,                 \
      const void *alpha, const void *a, struct lt_layout *,                \
      const void *b, struct lt_layout *, const void *beta, const void *c,  \
      struct lt_layout *, void *d, struct lt_layout *,                     \
      const struct lt_algorithm *, void *room, size_t bytes, void *stream)

#define LT_MEMBER(result, name, ...) result (*name##_)(__VA_ARGS__);
struct lt {
    void *library;
    LT_FUNCTIONS(LT_MEMBER)
};
#undef LT_MEMBER

#endif
