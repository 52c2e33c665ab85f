/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn.h - the part of cuDNN's backend that the plug-in uses, so that no
 * header of it is needed where the plug-in is built. tests/golden/cudnn.sh
 * compares all of it with the library's own header, where that is found.
 *
 * The backend has descriptors, which have attributes. A graph of operations
 * has tensors; those that are virtual are never in memory. */
#ifndef LOCKSTEP_KERNELS_CUDA_PLUGIN_CUDNN_H
#define LOCKSTEP_KERNELS_CUDA_PLUGIN_CUDNN_H

#include <stddef.h>
#include <stdint.h>

enum dnn_status { DNN_SUCCESS = 0, DNN_NOT_INITIALIZED = 1001,
                  DNN_BAD_PARAM = 2000, DNN_NOT_SUPPORTED = 3000,
                  DNN_FAILED = 5000, DNN_NOT_LOADED = 5001 };

enum dnn_descriptor {
    DNN_POINTWISE = 0, DNN_ENGINE = 2, DNN_ENGINE_CONFIG = 3,
    DNN_HEURISTICS = 4, DNN_PLAN = 5, DNN_KNOB = 7,
    DNN_OPERATION_POINTWISE = 13,
    DNN_GRAPH = 15, DNN_PACK = 16, DNN_TENSOR = 17, DNN_MATMUL = 18,
    DNN_OPERATION_MATMUL = 19, DNN_REDUCTION = 21,
    DNN_OPERATION_REDUCTION = 22, DNN_OPERATION_RESHAPE = 31,
    DNN_PROPERTIES = 38
};

/* Types of attributes. */
enum dnn_type {
    DNN_OF_HANDLE = 0, DNN_OF_NUMBERS = 1, DNN_OF_BOOLEAN = 2,
    DNN_OF_INT64 = 3, DNN_OF_POINTER = 6, DNN_OF_HEURISTIC = 8,
    DNN_OF_NOTE = 11, DNN_OF_POINTWISE = 14, DNN_OF_DESCRIPTOR = 15,
    DNN_OF_REDUCTION = 18, DNN_OF_CHARACTER = 24
};

/* Numbers of a tensor, or in which an operation computes. */
enum dnn_numbers { DNN_FLOAT32 = 0, DNN_INT32 = 4, DNN_BFLOAT16 = 9,
                   DNN_BOOLEAN = 11 };

enum dnn_pointwise {
    DNN_ADD = 0, DNN_MULTIPLY = 1, DNN_DIVIDE = 6, DNN_SUBTRACT = 9,
    DNN_EXP = 13, DNN_LOG = 15, DNN_IS_GREATER = 302,
    DNN_IS_NOT_LESS = 303, DNN_INDEX = 501, DNN_SELECT = 601
};

enum dnn_reduction { DNN_SUM = 0, DNN_MAXIMUM = 3 };
enum { DNN_HEURISTIC_A = 3, DNN_NOTE_UNORDERED = 4 };

enum dnn_attribute {
    DNN_POINTWISE_MODE = 0, DNN_POINTWISE_COMPUTE = 1, DNN_POINTWISE_AXIS = 9,
    DNN_HEURISTICS_MODE = 200, DNN_HEURISTICS_GRAPH = 201,
    DNN_HEURISTICS_RESULTS = 202, DNN_HEURISTICS_PROPERTIES = 204,
    DNN_CONFIG_ENGINE = 300, DNN_CONFIG_KNOBS = 302, DNN_CONFIG_ROOM = 303,
    DNN_PLAN_HANDLE = 400, DNN_PLAN_CONFIG = 401, DNN_PLAN_ROOM = 402,
    DNN_PLAN_PROPERTIES = 407,
    DNN_POINTWISE_OF = 750, DNN_POINTWISE_X = 751, DNN_POINTWISE_B = 752,
    DNN_POINTWISE_Y = 753, DNN_POINTWISE_T = 758,
    DNN_GRAPH_HANDLE = 800, DNN_GRAPH_OPERATIONS = 801,
    DNN_TENSOR_ALIGNMENT = 900, DNN_TENSOR_NUMBERS = 901,
    DNN_TENSOR_DIMENSIONS = 902, DNN_TENSOR_STRIDES = 903,
    DNN_TENSOR_ID = 906, DNN_TENSOR_VIRTUAL = 907, DNN_TENSOR_BY_VALUE = 908,
    DNN_PACK_IDS = 1000, DNN_PACK_POINTERS = 1001, DNN_PACK_ROOM = 1003,
    DNN_ENGINE_GRAPH = 1300, DNN_ENGINE_INDEX = 1301,
    DNN_ENGINE_NOTES = 1303, DNN_ENGINE_PROPERTIES = 1307,
    DNN_MATMUL_COMPUTE = 1500,
    DNN_MATMUL_A = 1520, DNN_MATMUL_B = 1521, DNN_MATMUL_C = 1522,
    DNN_MATMUL_OF = 1523,
    DNN_REDUCTION_MODE = 1600, DNN_REDUCTION_COMPUTE = 1601,
    DNN_REDUCTION_X = 1610, DNN_REDUCTION_Y = 1611, DNN_REDUCTION_OF = 1612,
    DNN_RESHAPE_X = 2200, DNN_RESHAPE_Y = 2201,
    DNN_PROPERTIES_JSON = 2702
};

typedef void *dnn_descriptor;

#define DNN_FUNCTIONS(X)                                                   \
    X(size_t, cudnnGetVersion, void)                                       \
    X(const char *, cudnnGetErrorString, int answer)                       \
    X(int, cudnnCreate, void **handle)                                     \
    X(int, cudnnDestroy, void *handle)                                     \
    X(int, cudnnSetStream, void *handle, void *stream)                     \
    X(int, cudnnBackendCreateDescriptor, int kind, dnn_descriptor *)       \
    X(int, cudnnBackendDestroyDescriptor, dnn_descriptor)                  \
    X(int, cudnnBackendFinalize, dnn_descriptor)                           \
    X(int, cudnnBackendSetAttribute, dnn_descriptor, int attribute,        \
      int type, int64_t count, const void *values)                         \
    X(int, cudnnBackendGetAttribute, dnn_descriptor, int attribute,        \
      int type, int64_t most, int64_t *count, void *values)                \
    X(int, cudnnBackendExecute, void *handle, dnn_descriptor plan,         \
      dnn_descriptor pack)

#define DNN_MEMBER(result, name, ...) result (*name##_)(__VA_ARGS__);
struct dnn {
    void *library;
    DNN_FUNCTIONS(DNN_MEMBER)
};
#undef DNN_MEMBER

#endif
