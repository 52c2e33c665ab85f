/* SPDX-License-Identifier: Apache-2.0 */
/* ettr.c - ways to recover and published figures, with their inputs. */
#include "planner/ettr.h"

/* Failures of a node of 8 GPUs in a day. RSC-1: arXiv:2410.21680. Llama 3:
 * arXiv:2407.21783, 466 interruptions in 54 days on 2,048 nodes. */
#define RSC_1 0.0065
#define LLAMA_3 (466.0 / 54 / 2048)
/* Source: arXiv:2602.00277 trained 44% of the time with 10 minutes for each
 * failure on 100,000 GPUs: exp(-r 600 s) = 0.44, on 12,500 nodes. */
#define FT_HSDP_BASE (0.8209805520698302 / 600 * 86400 / 12500)

const struct ettr_way ettr_ways[] = {
    {"job restarted, checkpoints on storage",
     "10 min as arXiv:2602.00277; a save stops 5 s (assumed)",
     {RSC_1, 600, 0, 5}},
    {"ranks restarted, checkpoint each 5 min",
     "3 min as arXiv:2602.00277; a save stops 5 s (assumed)",
     {RSC_1, 180, 300, 5}},
    {"spares, a copy in memory each step",
     "20 s as TrainMover at 1,024 GPUs; steps of 10 s, 0.5% of them for copies",
     {RSC_1, 20, 10, 0.05}},
    {"supervised, a copy in memory each step",
     "3 s, the goal of lockstep (measured on one machine: 0.5 to 5 s); steps "
     "of 10 s, 0.5% for copies", {RSC_1, 3, 10, 0.05}},
};
const int ettr_way_count = (int)(sizeof ettr_ways / sizeof *ettr_ways);

const struct ettr_published ettr_published[] = {
    {"synchronous training on 100K GPUs", "arXiv:2602.00277",
     "600 s a failure published; failure rate fitted to this row", 100000,
     {FT_HSDP_BASE, 600, 1, 0}, 0.44, false, true},
    {"FT-HSDP on 100K GPUs", "arXiv:2602.00277",
     "180 s a failure published; failure rate of the row above", 100000,
     {FT_HSDP_BASE, 180, 1, 0}, 0.80, false, false},
    {"ByteRobust on 9,600 GPUs", "arXiv:2509.16293",
     "failure rate of Llama 3 (arXiv:2407.21783); 600 s a failure as MegaScale "
     "(arXiv:2402.15627); a checkpoint each step of 10 s", 9600,
     {LLAMA_3, 600, 10, 0.05}, 0.97, false, false},
    {"Llama 3 405B on 16,384 GPUs", "arXiv:2407.21783",
     "failure rate published; 600 s a failure as MegaScale; a save stops 5 s "
     "(assumed), at the best interval", 16384,
     {LLAMA_3, 600, 0, 5}, 0.90, true, false},
};
const int ettr_published_count =
    (int)(sizeof ettr_published / sizeof *ettr_published);

const int ettr_sizes[] = {1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};
const int ettr_size_count = (int)(sizeof ettr_sizes / sizeof *ettr_sizes);

void ettr_predict(struct reliability *out, const struct failures *failures,
                  int ranks, int per_node)
{
    reliability_of(out, failures, (ranks + per_node - 1) / per_node);
}
