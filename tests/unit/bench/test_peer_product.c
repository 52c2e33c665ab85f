/* SPDX-License-Identifier: Apache-2.0 */
/* test_peer_product.c - mirrors src/bench/peer_product.c. Where oneDNN is not
 * installed there is nothing to call. */
#include "bench/peer_product.h"

#include "bench/probe.h"
#include "tests/test.h"

enum { M = 3, N = 4, K = 5 };

/* Small whole numbers: every order of sums gives the same. */
TEST(a_product_lies_as_ours_does)
{
    struct probe_peer peer = {0};
    float a[M * K], b[N * K], c[M * N] = {0};
    const struct matmul call = {
        .c = tensor_2d(c, DTYPE_F32, M, N), .a = tensor_2d(a, DTYPE_F32, M, K),
        .b = tensor_transpose(tensor_2d(b, DTYPE_F32, N, K))};
    struct peer_product product = {0};

    for (int i = 0; i < M * K; i++) a[i] = (float)(i % 7 - 3);
    for (int i = 0; i < N * K; i++) b[i] = (float)(i % 5 - 2);
    IS_OK(probe_peer_open(&peer));
    if (peer.library != NULL) {
        peer_threads(peer.library, 1);
        CHECK(peer_product_open(&product, peer.library, &call));
        CHECK(peer_product_run(&product));
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                float sum = 0;

                for (int k = 0; k < K; k++) sum += a[i * K + k] * b[j * K + k];
                CHECK(c[i * N + j] == sum);
            }
    }
    peer_product_close(&product);
    probe_peer_close(&peer);
}

TEST(what_it_has_not_is_said)
{
    struct probe_peer peer = {0};
    double x[4] = {0};
    const struct tensor t = tensor_2d(x, DTYPE_F64, 2, 2);
    const struct matmul call = {.c = t, .a = t, .b = t};
    struct peer_product product = {0};

    IS_OK(probe_peer_open(&peer));
    if (peer.library != NULL)
        CHECK(!peer_product_open(&product, peer.library, &call));
    peer_product_close(&product);
    peer_product_close(&product); /* again is allowed */
    probe_peer_close(&peer);
}

TEST_MAIN(a_product_lies_as_ours_does, what_it_has_not_is_said)
