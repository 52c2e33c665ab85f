#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the gradient of the routers' losses with PyTorch's, in float64.

    python3 tests/golden/check_balance.py LOCKSTEP

Two runs make one step of SGD with rate 1 from the same weights, one of them with
moe.balance_loss and moe.z_loss: their weights differ by the gradient of these losses
alone. Transformers computes the logits of the routers for the same tokens, and PyTorch
the losses as docs/experts.md defines them. Exit 1: a tensor is further than 1e-9 of the
largest value.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers

import check_drawn
from check_drawn import F32, load, pieces
from make_models import gated
from safetensors.torch import save_file

LENGTH, BATCH, BALANCE, Z = 16, 4, 0.7, 0.3
CONFIG = gated("mixtral", "MixtralForCausalLM", num_local_experts=5,
               num_experts_per_tok=2, vocab_size=300)


def router_losses(logits):
    """Of one block: [tokens, experts]."""
    total, experts = 0, logits.shape[-1]
    for one in logits.view(BATCH, LENGTH, experts):
        p = one.softmax(-1)
        chosen = p.topk(CONFIG["num_experts_per_tok"]).indices.flatten()
        f = experts * chosen.bincount(minlength=experts) / chosen.numel()
        total = total + BALANCE * (p * f).sum() + Z * (
            one.logsumexp(-1) ** 2).sum()
    return total / (BATCH * LENGTH)


def main():
    lockstep, room = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(
        tempfile.mkdtemp(prefix="balance-"))
    transformers.logging.set_verbosity_error()
    check_drawn.float64_throughout()
    (room / "config.json").write_text(json.dumps(CONFIG))
    model = check_drawn.build(room)
    check_drawn.fill(model, torch.Generator().manual_seed(7))
    save_file({outside: piece.detach().to(F32).contiguous()
               for name, value in model.named_parameters()
               for outside, piece in pieces(name, "mixtral", value)},
              room / "model.safetensors", metadata={"format": "pt"})
    (room / "text.jsonl").write_text("\n".join(
        json.dumps({"text": f"the {i} of {i * i} is {i ** 3 % 97} " * 9})
        for i in range(200)))

    def call(*words):
        done = subprocess.run([lockstep, *map(str, words)], cwd=room, check=False,
                              capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        return done.stdout

    call("tokenizer", "train", "text.jsonl", "--vocab", 300, "--out", "tokens.json")
    sets = [word for one in (
        "init.from=.", "model.from=.", "tokenizer.from=tokens.json",
        "data.train=[text.jsonl]", "data.documents=joined", "train.dtype=float64",
        f"data.sequence={LENGTH}", f"train.batch={BATCH}", "train.micro_batch=2",
        "train.steps=1", "optimizer.name=sgd", "optimizer.lr=1", "optimizer.clip=0",
        "optimizer.beta1=0", "optimizer.weight_decay=0", "optimizer.warmup=0",
        "optimizer.schedule=constant") for word in ("--set", one)]
    (room / "run.yaml").write_text("version: 1\n")
    for name, balance, z in (("without", 0, 0), ("with", BALANCE, Z)):
        call("train", "run.yaml", "--run", name, *sets, "--set",
             f"moe.balance_loss={balance}", "--set", f"moe.z_loss={z}")
        call("export", name, f"{name}-out")
    samples = [[] for _ in range(BATCH)]
    for piece in json.loads(call("data", "show", "run.yaml", *sets, "--ids",
                                 "--json"))["pieces"]:
        assert piece["learned_tokens"] == piece["tokens"], piece
        samples[piece["sample"]] += map(int, piece["text"].split())
    out = model(torch.tensor(samples), use_cache=False, output_router_logits=True)
    sum(router_losses(logits) for logits in out.router_logits).backward()
    with_, without = (load(room / f"{name}-out" / "model.safetensors")
                      for name in ("with", "without"))
    worst = largest = 0
    for name, value in model.named_parameters():
        grad = torch.zeros_like(value) if value.grad is None else value.grad
        for outside, piece in pieces(name, "mixtral", grad):
            found = without[outside] - with_[outside]
            worst = max(worst, (found - piece).abs().max().item())
            largest = max(largest, piece.abs().max().item())
    print(f"largest {largest:.3e}, apart {worst:.1e}")
    sys.exit(worst > 1e-9 * largest)


if __name__ == "__main__":
    main()
