#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes training/<name>/mup_{adamw,sgd}.json: 20 steps with muP, 4 times as
wide as the base, in float64, for the models and tokens of make_training.py.

    python3 tests/golden/make_mup.py

From table 8 of Yang et al. 2022 (arXiv:2203.03466) as it stands, so with the
multiplier 1 / 4 before the logits, and no factor in any gain:

                        input weights, biases   output weights   hidden weights
    rate of Adam        1                       1                1 / 4
    rate of SGD         4                       4                1

Gains of norms are input weights (of an input of 1). The weights of the model
are taken as drawn. Nothing here knows that elsewhere the multiplier may be part
of the last norm: neither the norm that clips, nor epsilon, which is large enough
to be seen.
"""
import json
import math
import pathlib

import torch

import make_elements
import make_training
import oracle

HERE = pathlib.Path(__file__).parent
WIDER = 4
# name: peak rate, clip of each model (some steps are clipped, some not)
OPTIMIZERS = {"adamw": (3e-3, {"llama": 0.42, "gpt2": 0.22}),
              "sgd": (0.2, {"llama": 0.26, "gpt2": 0.11})}


def factor_of(name, value, optimizer):
    hidden = value.dim() == 2 and (".layers." in name or ".h." in name)
    if optimizer == "sgd":
        return 1.0 if hidden else float(WIDER)
    return 1.0 / WIDER if hidden else 1.0


class AdamW:
    """Loshchilov and Hutter 2019, algorithm 2."""

    def __init__(self, settings):
        self.s, self.moments = settings, {}

    def change(self, name, p, rate, t):
        b1, b2 = self.s["beta1"], self.s["beta2"]
        m, v = self.moments.get(name, (0.0, 0.0))
        m = b1 * m + (1 - b1) * p.grad
        v = b2 * v + (1 - b2) * p.grad ** 2
        self.moments[name] = m, v
        decay = self.s["weight_decay"] if p.dim() == 2 else 0.0
        root = torch.sqrt(v / (1 - b2 ** t)) + self.s["epsilon"]
        return rate * (m / (1 - b1 ** t) / root + decay * p.data)


class Sgd:
    """Nesterov's momentum, decay in the gradient."""

    def __init__(self, settings):
        self.s, self.momentum = settings, {}

    def change(self, name, p, rate, _):
        decay = self.s["weight_decay"] if p.dim() == 2 else 0.0
        g = p.grad + decay * p.data
        b = self.s["beta1"] * self.momentum.get(name, 0.0) + g
        self.momentum[name] = b
        return rate * (g + self.s["beta1"] * b)


def norm_of(weights):
    return math.sqrt(sum((p.grad ** 2).sum().item()
                         for p in weights.values()))


def make(run, optimizer):
    model, seed, _ = make_training.RUNS[run]
    peak, clips = OPTIMIZERS[optimizer]
    settings = {**make_training.SETTINGS, "lr": peak, "clip": clips[run],
                "min_lr": peak / 10, "model": model, "wider": WIDER,
                "epsilon": 1e-4}
    settings.pop("rules")
    config = json.loads((HERE / "models" / model / "config.json").read_text())
    weights = make_training.weights_load(HERE / "models" / model, config)
    tokens = make_training.tokens_make(config["vocab_size"],
                                       torch.Generator().manual_seed(seed))
    kind = {"adamw": AdamW, "sgd": Sgd}[optimizer](settings)
    rows = []
    for step in range(settings["steps"]):
        rate = make_elements.rate_of(settings, step)
        batch = tokens[step]
        logits = oracle.logits_of(config, weights, batch[:, :-1]) / WIDER
        loss = oracle.loss_of(logits, batch[:, 1:])
        loss.backward()
        norm = norm_of(weights)
        with torch.no_grad():
            for name, p in weights.items():
                p.grad *= min(1.0, settings["clip"] / (norm + 1e-6))
                factor = factor_of(name, p, optimizer)
                p -= kind.change(name, p, rate * factor, step + 1)
                p.grad = None
        rows.append({"step": step, "lr": rate, "loss": loss.item(),
                     "grad_norm": norm})
    clipped = sum(r["grad_norm"] > settings["clip"] for r in rows)
    print(f"{run}, {optimizer}: loss {rows[0]['loss']:.6f} to "
          f"{rows[-1]['loss']:.6f}, {clipped} steps clipped")
    assert 0 < clipped < len(rows)
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    (HERE / "training" / run / f"mup_{optimizer}.json").write_text(
        json.dumps(settings, indent=1)[:-2] + ',\n "rows": [\n  ' + lines
        + "\n ]\n}\n")


if __name__ == "__main__":
    for each in make_training.RUNS:
        for name in OPTIMIZERS:
            make(each, name)
