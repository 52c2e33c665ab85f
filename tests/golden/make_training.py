#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes training/<name>/: 20 AdamW steps of a tiny model in float64.

    python3 tests/golden/make_training.py

    training.json        all settings, the learning rate, loss and gradient norm
                         of each step; starts from ../../models/<model>
    tokens.safetensors   `tokens` I32 [steps, batch, sequence + 1]
    final.safetensors    weights after the last step, F64, Hugging Face names

The loss of a step is the mean over its batch x sequence targets. The gradient
norm is that before clipping, over all tensors, a tied one once.
"""
import json
import math
import pathlib

import torch
from safetensors.torch import load_file, save_file

import oracle

HERE = pathlib.Path(__file__).parent
SETTINGS = {
    "steps": 20, "batch": 6, "sequence": 29, "lr": 3e-3, "min_lr": 3e-4,
    "schedule": "cosine", "warmup": 3, "beta1": 0.9, "beta2": 0.95,
    "epsilon": 1e-8, "weight_decay": 0.1,
    "rules": [
        "step counts from 0",
        "step < warmup: rate = lr (step + 1) / warmup",
        "else progress = (step - warmup) / (steps - warmup), rate = min_lr"
        " + (lr - min_lr) (1 + cos(pi progress)) / 2",
        "clip factor = min(1, clip / (norm + 1e-6)), norm over all gradients",
        "decoupled decay p -= rate weight_decay p, before the update, on"
        " matrices and embeddings (tensors of two dimensions), not on norms"
        " and biases",
        "p -= rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon),"
        " t = step + 1",
    ],
}
# name: the model it starts from, seed of the tokens, clip (llama: every step
# is clipped; gpt2: about half of them)
RUNS = {"llama": ("llama_nine_heads", 21, 1.0),
        "gpt2": ("gpt2_plain_names", 22, 0.7)}


def rate_of(step):
    s = SETTINGS
    if step < s["warmup"]:
        return s["lr"] * (step + 1) / s["warmup"]
    progress = (step - s["warmup"]) / (s["steps"] - s["warmup"])
    return s["min_lr"] + (s["lr"] - s["min_lr"]) * (
        1 + math.cos(math.pi * progress)) / 2


def tokens_make(vocab, generator):
    """Something to learn: mostly a fixed successor, sometimes a jump."""
    s = SETTINGS
    shape = (s["steps"], s["batch"])
    tokens = [torch.randint(0, vocab, shape, generator=generator)]
    for _ in range(s["sequence"]):
        jump = torch.randint(0, vocab, shape, generator=generator)
        jumps = torch.rand(shape, generator=generator) < 0.2
        tokens.append(torch.where(jumps, jump, (5 * tokens[-1] + 3) % vocab))
    return torch.stack(tokens, -1)


def weights_load(directory, config):
    stored = load_file(directory / "model.safetensors")
    weights = {}
    for name in oracle.shapes_of(config):
        value = stored.get(name)
        if value is None:
            value = stored[name.removeprefix("transformer.")]
        weights[name] = value.to(oracle.F64).requires_grad_(True)
    return weights


def update(weights, moments, step, factor):
    """AdamW, Loshchilov and Hutter 2019, algorithm 2, written out."""
    s, rate, t = SETTINGS, rate_of(step), step + 1
    for name, p in weights.items():
        g = p.grad * factor
        m, v = moments[name]
        m.mul_(s["beta1"]).add_((1 - s["beta1"]) * g)
        v.mul_(s["beta2"]).add_((1 - s["beta2"]) * g * g)
        if p.dim() == 2:
            p.data.mul_(1 - rate * s["weight_decay"])
        root = torch.sqrt(v / (1 - s["beta2"] ** t)) + s["epsilon"]
        p.data.sub_(rate * (m / (1 - s["beta1"] ** t)) / root)
        p.grad = None


def torch_optimizer(weights):
    """The library's AdamW over a copy, to check `update`."""
    copy = {k: v.detach().clone().requires_grad_(True)
            for k, v in weights.items()}
    groups = [{"params": [p for p in copy.values() if p.dim() == 2],
               "weight_decay": SETTINGS["weight_decay"]},
              {"params": [p for p in copy.values() if p.dim() != 2],
               "weight_decay": 0.0}]
    return copy, torch.optim.AdamW(
        groups, lr=0.0, betas=(SETTINGS["beta1"], SETTINGS["beta2"]),
        eps=SETTINGS["epsilon"], foreach=False)


def make(run):
    model, seed, clip = RUNS[run]
    config = json.loads((HERE / "models" / model / "config.json").read_text())
    weights = weights_load(HERE / "models" / model, config)
    copy, library = torch_optimizer(weights)
    moments = {k: (torch.zeros_like(v), torch.zeros_like(v))
               for k, v in weights.items()}
    tokens = tokens_make(config["vocab_size"],
                         torch.Generator().manual_seed(seed))
    rows = []
    for step in range(SETTINGS["steps"]):
        batch = tokens[step]
        loss = oracle.loss_of(oracle.logits_of(config, weights, batch[:, :-1]),
                              batch[:, 1:])
        loss.backward()
        norm = math.sqrt(sum((p.grad ** 2).sum().item()
                             for p in weights.values()))
        factor = min(1.0, clip / (norm + 1e-6))
        for name, p in copy.items():
            p.grad = weights[name].grad * factor
        for group in library.param_groups:
            group["lr"] = rate_of(step)
        library.step()
        update(weights, moments, step, factor)
        rows.append({"step": step, "lr": rate_of(step), "loss": loss.item(),
                     "grad_norm": norm})
    worst = max((weights[k] - copy[k]).abs().max().item() for k in weights)
    print(f"{run}: loss {rows[0]['loss']:.6f} to {rows[-1]['loss']:.6f}, "
          f"{sum(r['grad_norm'] > clip for r in rows)} steps clipped, "
          f"torch.optim.AdamW differs by {worst:.1e}")
    assert worst < 1e-12

    directory = HERE / "training" / run
    directory.mkdir(parents=True, exist_ok=True)
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    head = json.dumps({"model": model, "clip": clip, **SETTINGS}, indent=1)
    (directory / "training.json").write_text(
        head[:-2] + ',\n "rows": [\n  ' + lines + "\n ]\n}\n")
    save_file({"tokens": tokens.to(torch.int32).contiguous()},
              directory / "tokens.safetensors")
    save_file({k: v.detach().contiguous() for k, v in weights.items()},
              directory / "final.safetensors")


if __name__ == "__main__":
    for each in RUNS:
        make(each)
