#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the gradient of the routers' losses with PyTorch's, in float64.

    python3 tests/golden/check_balance.py LOCKSTEP

Two runs make steps of SGD with rate 1 from the same weights, one of them with
moe.balance_loss and moe.z_loss: their weights differ by the gradient of these losses
alone. Transformers computes the logits of the routers for the same tokens, and PyTorch
the losses as docs/experts.md defines them, for each moe.balance_scope. Those of
micro-batches come from transformers' load_balancing_loss_func, which is moe.top_k times
ours. For those of the step before, the second of two steps is compared; the first one must
not have the loss. Exit 1: a tensor is further than 1e-9 of the largest value.
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
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

LENGTH, BATCH, MICRO_BATCH, BALANCE, Z = 16, 4, 2, 0.7, 0.3
CONFIG = gated("mixtral", "MixtralForCausalLM", num_local_experts=5,
               num_experts_per_tok=2, vocab_size=300)


def share(logits):
    """f of tokens [any, experts]."""
    experts = logits.shape[-1]
    chosen = logits.softmax(-1).topk(CONFIG["num_experts_per_tok"]).indices.flatten()
    return experts * chosen.bincount(minlength=experts) / chosen.numel()


def balance_loss(logits, scope, before):
    """Of one block, a mean over tokens: logits [tokens, experts]; before: f of the step
    before."""
    p = logits.softmax(-1)
    if scope == "batch":
        return (p * before).sum() / len(p)
    size = LENGTH * (MICRO_BATCH if scope == "micro_batch" else 1)
    total = sum((one.softmax(-1) * share(one)).sum()
                for one in logits.split(size)) / len(p)
    if scope == "micro_batch":
        k = CONFIG["num_experts_per_tok"]
        theirs = sum(load_balancing_loss_func((one,), one.shape[-1], k)
                     for one in logits.split(size)) / k * size / len(p)
        assert abs(theirs - total).item() < 1e-13 * total.item(), (theirs, total)
        return theirs
    return total


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
    (room / "run.yaml").write_text("version: 1\n")
    worst = max(compare(call, room, model, scope)
                for scope in ("sequence", "micro_batch", "batch"))
    sys.exit(worst > 1e-9)


def samples_of(call, sets, step):
    samples = [[] for _ in range(BATCH)]
    for piece in json.loads(call("data", "show", "run.yaml", *sets, "--ids", "--json",
                                 "--step", step + 1))["pieces"]:
        assert piece["learned_tokens"] == piece["tokens"], piece
        samples[piece["sample"]] += map(int, piece["text"].split())
    return torch.tensor(samples)


def compare(call, room, model, scope):
    """The largest error of a gradient, as a part of the largest value."""
    steps = 2 if scope == "batch" else 1
    sets = [word for one in (
        "init.from=.", "model.from=.", "tokenizer.from=tokens.json",
        "data.train=[text.jsonl]", "data.documents=joined", "train.dtype=float64",
        f"data.sequence={LENGTH}", f"train.batch={BATCH}",
        f"train.micro_batch={MICRO_BATCH}", f"moe.balance_scope={scope}",
        "optimizer.name=sgd", "optimizer.lr=1", "optimizer.clip=0",
        "optimizer.beta1=0", "optimizer.weight_decay=0", "optimizer.warmup=0",
        "optimizer.schedule=constant") for word in ("--set", one)]

    def weights(balance, z, count):
        name = f"{scope}-{balance}-{z}-{count}"
        call("train", "run.yaml", "--run", name, *sets, "--set",
             f"moe.balance_loss={balance}", "--set", f"moe.z_loss={z}",
             "--set", f"train.steps={count}")
        call("export", name, f"{name}-out")
        return load(room / f"{name}-out" / "model.safetensors")

    def logits(step):
        out = model(samples_of(call, [*sets, "--set", f"train.steps={steps}"], step),
                    use_cache=False, output_router_logits=True)
        return out.router_logits

    before = [None] * CONFIG["num_hidden_layers"]
    z = Z if steps == 1 else 0 # the first step's would move the second
    if steps == 2:
        first, none = weights(BALANCE, 0, 1), weights(0, 0, 1)
        assert all(torch.equal(first[name], none[name]) for name in none), \
            "the first step has a loss"
        before = [share(one) for one in logits(0)]
        with torch.no_grad():
            for name, value in model.named_parameters():
                for outside, piece in pieces(name, "mixtral", value):
                    piece.copy_(none[outside])
    with_, without = weights(BALANCE, z, steps), weights(0, 0, steps)
    model.zero_grad()
    sum(BALANCE * balance_loss(one, scope, f) + z * (one.logsumexp(-1) ** 2).mean()
        for one, f in zip(logits(steps - 1), before)).backward()
    worst = largest = 0
    for name, value in model.named_parameters():
        grad = torch.zeros_like(value) if value.grad is None else value.grad
        for outside, piece in pieces(name, "mixtral", grad):
            found = without[outside] - with_[outside]
            worst = max(worst, (found - piece).abs().max().item())
            largest = max(largest, piece.abs().max().item())
    print(f"{scope}: largest {largest:.3e}, apart {worst:.1e}")
    return worst / largest


if __name__ == "__main__":
    main()
