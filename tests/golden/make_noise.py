#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes training/<name>/noise.json: the gradient-noise scale of a tiny model.

    python3 tests/golden/make_noise.py

McCandlish et al. 2018, arXiv:1812.06162, appendix A.1, in float64 by autograd:
of the first batches of training/<name>/tokens.safetensors, with the initial
weights, the gradient of each half of the batch and of all of it.

    rows   small: mean |G|^2 of the halves, big: |G|^2 of the batch, trace (S),
           gradient (|G|^2 itself) and scale, in tokens
"""
import json

import torch
from safetensors.torch import load_file

import oracle
from make_training import HERE, RUNS, weights_load

BATCHES = 6


def square_of(config, weights, sequences):
    for p in weights.values():
        p.grad = None
    logits = oracle.logits_of(config, weights, sequences[:, :-1])
    oracle.loss_of(logits, sequences[:, 1:]).backward()
    return sum((p.grad ** 2).sum().item() for p in weights.values())


def row_of(config, weights, batch):
    half, targets = len(batch) // 2, batch[:, 1:].numel()
    small = (square_of(config, weights, batch[:half])
             + square_of(config, weights, batch[half:])) / 2
    big = square_of(config, weights, batch)
    b_small, b_big = targets / 2, targets
    gradient = (b_big * big - b_small * small) / (b_big - b_small)
    trace = (small - big) / (1 / b_small - 1 / b_big)
    return {"small": small, "big": big, "trace": trace, "gradient": gradient,
            "scale": trace / gradient}


for run, (model, _, _) in RUNS.items():
    config = json.loads((HERE / "models" / model / "config.json").read_text())
    weights = weights_load(HERE / "models" / model, config)
    tokens = load_file(HERE / "training" / run / "tokens.safetensors")["tokens"]
    rows = [row_of(config, weights, tokens[i].to(torch.int64))
            for i in range(BATCHES)]
    path = HERE / "training" / run / "noise.json"
    path.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    print(run, [round(r["scale"]) for r in rows])
