/* SPDX-License-Identifier: Apache-2.0 */
/* stream_out.h - stores that go past the caches: of results that nothing reads
 * soon, into lines that need not be read first. */
#ifndef LOCKSTEP_KERNELS_CPU_STREAM_OUT_H
#define LOCKSTEP_KERNELS_CPU_STREAM_OUT_H

#ifdef __SSE2__
#include <immintrin.h>
#else
#include <string.h>
#endif

enum { STREAM_LINE = 64 };

/* `to` begins where a line of the cache does. */
#ifdef __SSE2__
static inline void stream_line(char *to, const char *from)
{
#ifdef __AVX512F__
    _mm512_stream_si512((void *)to, _mm512_loadu_si512((const void *)from));
#else
    for (int i = 0; i < STREAM_LINE; i += 16)
        _mm_stream_si128((__m128i *)(void *)(to + i),
                         _mm_loadu_si128((const __m128i *)(const void *)
                                             (from + i)));
#endif
}
#else
static inline void stream_line(char *to, const char *from)
{
    memcpy(to, from, STREAM_LINE);
}
#endif

/* Before another thread is told that they are there. */
static inline void stream_end(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}

#endif
