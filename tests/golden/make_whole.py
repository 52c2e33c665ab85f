#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes training/<name>/<optimizer>.json: 20 steps in float64 of the models
and tokens of make_training.py under the optimizers that see whole matrices.

    python3 tests/golden/make_whole.py

Rows as in training.json: learning rate, loss and gradient norm of each step.

    muon, muon_rms  torch.optim.Muon on the matrices of blocks, one for each
                    tensor of the file, with float64 where it says bfloat16;
                    AdamW, written out in make_training.py, on the rest
    adafactor       torch.optim.Adafactor on everything
    soap            the algorithm of arXiv:2409.11321, written here in NumPy, on
                    the matrices of blocks; AdamW on the rest
"""
import json
import math
import pathlib

import numpy
import torch

import make_training
import oracle

HERE = pathlib.Path(__file__).parent
SETTINGS = make_training.SETTINGS
# peak learning rate, and what the optimizer has beside
OPTIMIZERS = {
    "muon": (0.02, {"momentum": 0.95, "ns_steps": 5, "adjust": "original"}),
    "muon_rms": (3e-3, {"momentum": 0.9, "ns_steps": 4,
                        "adjust": "match_rms_adamw"}),
    "adafactor": (0.02, {"least_scale": 1e-3, "largest": 1.0,
                         "beta2_decay": -0.8}),
    "soap": (3e-3, {"frequency": 3}),
}


class Float64:
    """The module torch, but for one name."""
    bfloat16 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


class Soap:
    """One matrix. State of the eigenbases only; no code of the authors'."""

    def __init__(self, frequency):
        self.frequency, self.t = frequency, 0

    @staticmethod
    def basis(matrix):
        return numpy.linalg.eigh(matrix)[1][:, ::-1]

    def turn(self, side, covariance):
        """One power iteration, columns by falling estimates."""
        estimate = numpy.einsum("ij,jk,ki->i", self.q[side].T, covariance,
                                self.q[side])
        order = numpy.argsort(-estimate, kind="stable")
        self.v = numpy.take(self.v, order, axis=side)
        self.q[side] = numpy.linalg.qr(
            covariance @ self.q[side][:, order])[0]

    def step(self, w, g, rate, decay):
        s, b1, b2 = SETTINGS, SETTINGS["beta1"], SETTINGS["beta2"]
        pair = [g @ g.T, g.T @ g]
        if self.t == 0:
            self.c = [(1 - b2) * c for c in pair]
            self.q = [self.basis(c) for c in self.c]
            self.m, self.v = numpy.zeros_like(g), numpy.zeros_like(g)
            self.t = 1
            return w
        t = self.t
        turned = self.q[0].T @ g @ self.q[1]
        self.m = b1 * self.m + (1 - b1) * g
        self.v = b2 * self.v + (1 - b2) * turned ** 2
        root = numpy.sqrt(self.v / (1 - b2 ** t)) + s["epsilon"]
        inner = (self.q[0].T @ self.m @ self.q[1]) / (1 - b1 ** t) / root
        w = w * (1 - rate * decay) - rate * (
            self.q[0] @ inner @ self.q[1].T)
        self.c = [b2 * c + (1 - b2) * n for c, n in zip(self.c, pair)]
        if t % self.frequency == 0:
            for side in range(2):
                self.turn(side, self.c[side])
        self.t += 1
        return w


def rate_of(step, peak):
    return make_training.rate_of(step) * peak / SETTINGS["lr"]


def is_inner(name, p):
    return p.dim() == 2 and (".layers." in name or ".h." in name
                             or name.startswith("h."))


def library(kind, options, params):
    if kind == "adafactor":
        return torch.optim.Adafactor(
            [{"params": [p for p in params.values() if p.dim() == 2],
              "weight_decay": SETTINGS["weight_decay"]},
             {"params": [p for p in params.values() if p.dim() != 2],
              "weight_decay": 0.0}],
            lr=0.0, beta2_decay=options["beta2_decay"],
            eps=(SETTINGS["epsilon"], options["least_scale"]),
            d=options["largest"], foreach=False)
    torch.optim._muon.torch = Float64()
    return torch.optim.Muon(
        list(params.values()), lr=0.0,
        weight_decay=SETTINGS["weight_decay"], momentum=options["momentum"],
        ns_steps=options["ns_steps"], adjust_lr_fn=options["adjust"])


def adamw(weights, moments, step, rate):
    """make_training.update of some weights with another rate."""
    old = make_training.rate_of
    make_training.rate_of = lambda _: rate
    make_training.update(weights, moments, step, 1.0)
    make_training.rate_of = old


def make(run, name):
    model, seed, clip = make_training.RUNS[run]
    peak, options = OPTIMIZERS[name]
    config = json.loads((HERE / "models" / model / "config.json").read_text())
    weights = make_training.weights_load(HERE / "models" / model, config)
    moments = {k: (torch.zeros_like(v), torch.zeros_like(v))
               for k, v in weights.items()}
    tokens = make_training.tokens_make(config["vocab_size"],
                                       torch.Generator().manual_seed(seed))
    inner = {k: p for k, p in weights.items()
             if name == "adafactor" or is_inner(k, p)}
    rest = {k: p for k, p in weights.items() if k not in inner}
    soap = {k: Soap(options["frequency"]) for k in inner} \
        if name == "soap" else None
    torch_one = None if soap else library(name, options, inner)
    rows = []
    for step in range(SETTINGS["steps"]):
        batch, rate = tokens[step], rate_of(step, peak)
        loss = oracle.loss_of(oracle.logits_of(config, weights, batch[:, :-1]),
                              batch[:, 1:])
        loss.backward()
        norm = math.sqrt(sum((p.grad ** 2).sum().item()
                             for p in weights.values()))
        for p in weights.values():
            p.grad *= min(1.0, clip / (norm + 1e-6))
        if soap:
            for k, p in inner.items():
                p.data = torch.from_numpy(soap[k].step(
                    p.data.numpy(), p.grad.numpy(), rate,
                    SETTINGS["weight_decay"]))
        else:
            for group in torch_one.param_groups:
                group["lr"] = rate
            torch_one.step()
        adamw(rest, moments, step, rate)
        for p in inner.values():
            p.grad = None
        rows.append({"step": step, "lr": rate, "loss": loss.item(),
                     "grad_norm": norm})
    print(f"{run} {name}: loss {rows[0]['loss']:.6f} to "
          f"{rows[-1]['loss']:.6f}, {len(inner)} tensors")
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    head = json.dumps({"model": model, "clip": clip, **SETTINGS,
                       "lr": peak,
                       "min_lr": SETTINGS["min_lr"] * peak / SETTINGS["lr"],
                       "rules": [], **options}, indent=1)
    (HERE / "training" / run / f"{name}.json").write_text(
        head[:-2] + ',\n "rows": [\n  ' + lines + "\n ]\n}\n")


if __name__ == "__main__":
    for each in make_training.RUNS:
        for optimizer in OPTIMIZERS:
            make(each, optimizer)
