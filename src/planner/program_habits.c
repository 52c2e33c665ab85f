/* SPDX-License-Identifier: Apache-2.0 */
/* program_habits.c - the table of programs.
 *
 * Kernels, gaps and hosts of megatron were read from steps of small models on
 * A100 (arXiv:2312.12391); bytes of pytorch from torchtitan's step with and
 * without its compiler. DeepEP's authors measured 43 to 47 GB/s of ports of 50,
 * and 153 to 158 GB/s of links of 200 (the README of deepseek-ai/DeepEP,
 * "normal kernels"; H800). A layer of experts of Megatron-LM on 8 H100 takes
 * 11.91, 14.55 and 18.05 ms forward and backward with 4, 8 and 16 experts of a
 * rank, whose products are the same (marin-community/marin, issue 3666): 0.51
 * ms for each more, in four parts. NCCL's all-to-all goes at the rate of ports
 * (its maintainers in NVIDIA/nccl-tests, issues 130 and 267), of which 46 to 48
 * GB/s of 50 are expected (issue 290). The attention of llm-foundry until 2024
 * (attn_impl: triton) is the one in Triton that arXiv:2307.08691, 4.1, found
 * 1.3 to 1.5 times slower than FlashAttention-2 in F, twice in B. That of
 * torch on an H100 is FlashAttention-2, which reaches up to 335 TFLOP/s there
 * (arXiv:2307.08691, 4.1); torchtitan leaves cuDNN's out with context ranks
 * (torchtitan/utils.py, 2024-12: FLASH_ATTENTION and EFFICIENT_ATTENTION).
 * Its tensor ranks gather rows and their gradients as codes, and add up in
 * bfloat16 (torchao of that month, float8/float8_tensor_parallel.py).
 *
 * NeMo AutoModel (commit c2b7f37) starts two products for each expert in F
 * (grouped_gemm 1.1.4 in components/moe/experts.py), with a gap each; Adam of
 * torch reads and writes numbers of bfloat16 twenty times for a parameter.
 * Context ranks of Megatron-Core pass keys and values on in a ring, on a stream
 * of its own, while attention reads those before (cp_comm_type p2p is its
 * default; TransformerEngine, AttnFuncWithCPAndKVP2P).
 * Both AutoModel (components/distributed/utils.py, get_sync_ctx;
 * defer_fsdp_grad_sync) and KempnerForge (commit 5666d0d, training/grad.py) sum
 * gradients over ranks with the last micro-batch alone; until then FSDP adds
 * them up whole in the type of its sums (to_accumulated_grad_if_needed in
 * torch/distributed/fsdp/_fully_shard/_fsdp_param.py). KempnerForge's head
 * gathers logits (distributed/tensor_parallel.py).
 * InternLM of 2023 has FlashAttention 1.0.5 (doc/en/install.md), half as fast
 * as the second (arXiv:2307.08691, abstract), and operations that are not
 * fused; its sums, owners and tokens are those of
 * internlm/solver/optimizer/hybrid_zero_optim.py and configs/7B_sft.py.
 *
 * A loss of torch that is not compiled holds logits of 16 and 32 bits, their
 * log-softmax, and its gradient while B begins: 14 bytes (torchtitan 2024-12
 * has "compiling loss function causes CUDA errors"; AutoModel's masked_ce.py).
 * Where logits stay in 16 bits (fms-fsdp, KempnerForge) all four have 2.
 * nanotron's has three (parallel/tensor_parallel/functional.py), keeps what
 * silu makes (GLUActivation) and the inputs that its column products gather. */
#include "planner/program_habits.h"

const char *const as_names[AS_COUNT] = {
    "lockstep", "megatron", "torchtitan", "megatron-core",
    "megatron-deepspeed", "pytorch", "nanotron", "nemo", "llm-foundry",
    "torchtitan-bf16", "pytorch-bf16", "automodel", "jax", "internlm",
    "torchtitan-2024", "kempnerforge"};

/* Megatron-Core, and NeMo, which runs it with other gradients. */
#define CORE(update, gradient)                                             \
    {.kernels = 1.2, .gap = 1e-5, .host = 3e-5, .each_expert = 1.28e-4,    \
     .moved = 1, .update_bytes = (update), .gradient_bytes = (gradient),   \
     .masks = true, .beside = true, .gathers_beside = true,                \
     .border_divided = true, .rows_once = true, .rows_port = 0.9,          \
     .rows_link = 0.775, .library_port = 0.92, .codes_kept = true,         \
     .sums_fused = true, .context_beside = true}

/* FSDP of single parameters of a model that is bfloat16, as its states are. */
#define NARROW_FSDP                                                        \
    .kernels = 1.2, .gap = 1e-5, .host = 3e-5, .each_expert = 2e-5,        \
    .moved = 1, .update_bytes = 40, .gradient_bytes = 2, .sent_bytes = 4,  \
    .beside = true, .shard_bytes = 2, .ends_early = true, .copies = true,  \
    .sums_once = true, .rows_once = true, .rows_port = 0.9,                \
    .rows_link = 0.775, .library_port = 0.92, .inputs_whole = true,        \
    .root_kept = true

#define FLASH_2 335e12

#define COMPILED                                                           \
    .kernels = 1.2, .gap = 1e-5, .host = 3e-5, .moved = 1,                 \
    .update_bytes = 30, .gradient_bytes = 4, .beside = true,               \
    .shard_bytes = 4

#define TORCHTITAN                                                         \
    COMPILED, .attention_most = FLASH_2, .ring = true,                     \
    .ends_early = true, .codes_gathered = true, .inputs_whole = true,      \
    .root_kept = true
#define TORCHTITAN_FSDP2                                                   \
    TORCHTITAN, .copies = true, .products_again = true, .pipe_whole = true

#define PYTORCH                                                            \
    .kernels = 2, .gap = 1e-5, .host = 4.6e-5, .moved = 2,                 \
    .update_bytes = 46, .gradient_bytes = 4, .beside = true,               \
    .shard_bytes = 4, .root_kept = true
#define EAGER                                                              \
    PYTORCH, .eager = true, .attention_most = FLASH_2, .gate_apart = true, \
    .inputs_whole = true

/* Bytes of an update: it reads gradient, two moments and weight, writes three
 * and the narrow one: 30. Programs without one pass for all also clear the
 * gradient, read it for its norm, and scale it. */
const struct habits habits_of[AS_COUNT] = {
    [AS_LOCKSTEP] = {.kernels = 1, .moved = 1, .gradient_bytes = 4,
                     .beside = true},
    [AS_MEGATRON] = {.kernels = 2, .gap = 2e-5, .host = 4.6e-5, .moved = 1,
                     .update_bytes = 46, .gradient_bytes = 4, .waits = 1,
                     .scores = true,
                     .masks = true, .border_divided = true,
                     .block_whole = true},
    [AS_TORCHTITAN] = {TORCHTITAN_FSDP2},
    [AS_TORCHTITAN_2024] = {TORCHTITAN_FSDP2, .logit_bytes = 14},
    [AS_TORCHTITAN_BF16] = {TORCHTITAN, .sent_bytes = 2, .logit_bytes = 8},
    [AS_MEGATRON_CORE] = CORE(46, 4),
    [AS_MEGATRON_DEEPSPEED] = {.kernels = 2, .gap = 2e-5, .host = 4.6e-5,
                               .moved = 1, .update_bytes = 46,
                               .gradient_bytes = 4, .waits = 2,
                               .scores = true, .masks = true,
                               .block_whole = true},
    [AS_PYTORCH] = {EAGER, .copies = true, .products_again = true,
                    .pipe_whole = true, .logit_bytes = 14},
    [AS_PYTORCH_BF16] = {EAGER, .sent_bytes = 2, .logit_bytes = 8},
    [AS_NANOTRON] = {.kernels = 2, .gap = 2e-5, .host = 4.6e-5, .moved = 1,
                     .update_bytes = 46, .gradient_bytes = 4, .waits = 1,
                     .masks = true, .gate_apart = true,
                     .inputs_whole = true, .logit_bytes = 10,
                     .border_divided = true, .block_whole = true},
    [AS_NEMO] = CORE(40, 2),
    [AS_LLM_FOUNDRY] = {PYTORCH, .attention_most = FLASH_2,
                        .attention = {1.4, 2}},
    [AS_AUTOMODEL] = {NARROW_FSDP, .logit_bytes = 14},
    [AS_KEMPNERFORGE] = {NARROW_FSDP, .logits_whole = true, .logit_bytes = 8},
    [AS_JAX] = {COMPILED},
    [AS_INTERNLM] = {.kernels = 2, .gap = 1e-5, .host = 4.6e-5,
                     .attention = {2, 2}, .moved = 2, .update_bytes = 46,
                     .gradient_bytes = 2, .masks = true, .beside = true,
                     .gate_apart = true, .tokens_whole = true,
                     .sums_whole = true, .owners = true},
};
