# SPDX-License-Identifier: Apache-2.0
"""A mixture of experts of Hugging Face transformers, and one process that
trains it.

    python3 benchmarks/peer_transformers.py MODEL PRECISION MODE EXPERTS \\
        THREADS BATCH LENGTH

    MODEL      of benchmarks/mixtures.py: mixtral-60m, olmoe-60m
    PRECISION  float32, bfloat16 (the whole model)
    MODE       eager, compile
    EXPERTS    how transformers computes experts: eager (a loop), batched_mm,
               grouped_mm

Fused AdamW, scaled_dot_product_attention, clip_grad_norm_, gradients set to
None; no balance loss. It speaks as peer_torch.py does: a line of JSON after the
first step, then one for each line of its input.
"""
import os
import sys
import time

import torch
import transformers
from torch import nn

from mixtures import MODELS
from peer_torch import optimizer_build, say, serve


def model_build(name, experts):
    shape = MODELS[name]
    common = {"vocab_size": shape["vocab"], "hidden_size": shape["width"],
              "num_hidden_layers": shape["layers"],
              "num_attention_heads": shape["heads"],
              "num_key_value_heads": shape["kv_heads"],
              "intermediate_size": shape["inner"],
              "num_experts_per_tok": shape["top_k"], "use_cache": False,
              "tie_word_embeddings": False, "rms_norm_eps": 1e-5,
              "attn_implementation": "sdpa"}
    if shape["family"] == "mixtral":
        config = transformers.MixtralConfig(
            num_local_experts=shape["experts"], **common)
    else:
        config = transformers.OlmoeConfig(num_experts=shape["experts"],
                                          **common)
    return transformers.AutoModelForCausalLM.from_config(
        config, experts_implementation=experts)


class Training:
    def __init__(self, name, precision, mode, experts, shape):
        torch.manual_seed(1)
        self.vocab, self.shape = MODELS[name]["vocab"], shape
        model = model_build(name, experts)
        if precision == "bfloat16":
            model = model.to(torch.bfloat16)
        self.parameters = list(model.parameters())
        self.optimizer = optimizer_build(model)
        self.model = torch.compile(model) if mode == "compile" else model

    def step(self):
        tokens = torch.randint(0, self.vocab, self.shape)
        loss = self.model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()


def main():
    name, precision, mode, experts = sys.argv[1:5]
    threads, batch, length = map(int, sys.argv[5:8])
    torch.set_num_threads(threads)
    began = float(os.environ.get("PEERS_BEGAN") or time.monotonic())
    training = Training(name, precision, mode, experts, (batch, length))
    serve(training, began, tokens=batch * length,
          transformers=transformers.__version__)


if __name__ == "__main__":
    main()
