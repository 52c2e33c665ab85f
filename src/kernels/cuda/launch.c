/* SPDX-License-Identifier: Apache-2.0 */
/* launch.c - kernels of CUDA are started on the GPU of the stream, or else by
 * the emulator. */
#include "kernels/cuda/launch.h"

#include "device/gpu.h"

const struct cuda_emulator *cuda_emulator;

status cuda_launch(struct stream *stream, enum cuda_kernel kernel,
                   int64_t blocks, const void *call, size_t bytes)
{
    if (stream->gpu == NULL)
        return cuda_emulator->launch(kernel, blocks, call, bytes);
    return gpu_launch(stream->gpu, (int)kernel, blocks, call, bytes);
}

status cuda_copy(struct stream *stream, const void *data, size_t bytes,
                 const void **out)
{
    if (stream->gpu == NULL) return cuda_emulator->copy(data, bytes, out);
    return gpu_copy(stream->gpu, data, bytes, out);
}
