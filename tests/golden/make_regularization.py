#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes regularization/<name>/: what z-loss, dropout and QK-clip must compute.

    python3 tests/golden/make_regularization.py

    expected.json          loss, and z_loss where there is one; the largest
                           score of each head of each block
    gradients.safetensors  F64, Hugging Face names, of loss + z_loss
    weights.safetensors    F64, after QK-clip (clip_*)

Weights and tokens are those of ../models/<model>. All is float64 by oracle.py.
The masks of dropout come from Philox4x32-10 written anew here, after Salmon et
al. 2011, so that they check the generator and the places of elements too; the
generator is checked against the known answers of its authors.
"""
import json
import math
import pathlib

import torch
from safetensors.torch import load_file, save_file

import oracle

HERE = pathlib.Path(__file__).parent
CASES = {
    "z_loss": {"model": "llama_nine_heads", "z_loss": 0.03},
    "dropout": {"model": "llama_nine_heads", "dropout": 0.3, "seed": 5,
                "sequence": 1000},
    "dropout_gpt2": {"model": "gpt2_plain_names", "dropout": 0.1,
                     "attention_dropout": 0.2, "seed": 2 ** 40 + 1,
                     "sequence": 2 ** 33, "z_loss": 0.01},
    "clip_groups": {"model": "llama_nine_heads", "qk_clip": 0.3},
    "clip_heads": {"model": "llama_tied_bias", "qk_clip": 0.3},
}
WORD, LONG = 2 ** 32, 2 ** 64


def philox(key, counter):
    """Four words from a key of two and a counter of four."""
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [b // WORD ^ counter[1] ^ key[0], b % WORD,
                   a // WORD ^ counter[3] ^ key[1], a % WORD]
        key = [(key[0] + 0x9E3779B9) % WORD, (key[1] + 0xBB67AE85) % WORD]
    return counter


assert philox([0, 0], [0] * 4) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C,
                                   0x9B00DBD8]
assert philox([0xA4093822, 0x299F31D0],
              [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]) == [
                  0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


def key_make(seed, name):
    """FNV-1a of the seed's eight bytes and the name, then a finaliser."""
    value = 0xCBF29CE484222325
    for byte in seed.to_bytes(8, "little") + name.encode():
        value = (value ^ byte) * 0x100000001B3 % LONG
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % LONG
    value = (value ^ value >> 27) * 0x94D049BB133111EB % LONG
    value ^= value >> 31
    return [value % WORD, value // WORD]


class Experiment(oracle.Hooks):
    def __init__(self, case):
        self.rate = case.get("dropout", 0)
        self.key = key_make(case.get("seed", 0), "dropout")
        self.of_weights = case.get("attention_dropout", 0)
        self.run_key = key_make(case.get("seed", 0), "attention dropout")
        self.first = case.get("sequence", 0)
        self.peaks = []

    def kept(self, sequence, position, site, width):
        """Of one token: 0 or 1 for each element."""
        number = self.first + sequence
        low = [number % WORD, number // WORD]
        out = []
        for start in range(0, width, 64):
            columns = []
            for lane in range(16):
                high = position << 40 | site << 20 | start // 4 + lane
                columns.append(philox(self.key,
                                      low + [high % WORD, high // WORD]))
            out += [columns[lane][word] for word in range(4)
                    for lane in range(16)]
        least = math.floor(self.rate * WORD)
        return [float(word >= least) for word in out[:width]]

    def drop(self, x, block, use):
        if self.rate == 0:
            return x
        sequences, length, width = x.shape
        mask = torch.tensor([[self.kept(s, t, (block + 1) * 3 + use, width)
                              for t in range(length)]
                             for s in range(sequences)], dtype=oracle.F64)
        return x * mask / (1 - self.rate)

    def weights(self, probability):
        if self.of_weights == 0:
            return probability
        block = len(self.peaks) - 1
        key = philox(self.run_key, [block, 0, 0, 0])[:2]
        sequences, heads, length, _ = probability.shape
        least = math.floor(self.of_weights * WORD)
        mask = torch.zeros_like(probability)
        for s in range(sequences):
            low = [(self.first + s) % WORD, (self.first + s) // WORD]
            for h in range(heads):
                for i in range(length):
                    for j in range(0, i + 1, 4):
                        high = h << 46 | i << 22 | j // 4
                        words = philox(key, low + [high % WORD, high // WORD])
                        for w in range(min(4, length - j)):
                            mask[s, h, i, j + w] = words[w] >= least
        return probability * mask / (1 - self.of_weights)

    def scores(self, score):
        self.peaks.append(score.detach().amax((0, 2, 3)).tolist())


def clip(config, weights, peaks, bound):
    """Algorithm 1 of Kimi K2; keys that several heads share are left alone."""
    heads = config["num_attention_heads"]
    groups = config.get("num_key_value_heads") or heads
    width = config.get("head_dim") or config["hidden_size"] // heads
    names = ["q_proj"] + (["k_proj"] if groups == heads else [])
    for block, of_heads in enumerate(peaks):
        for head, peak in enumerate(of_heads):
            if peak <= bound:
                continue
            for name in names:
                for kind in (".weight", ".bias"):
                    full = f"model.layers.{block}.self_attn.{name}{kind}"
                    if full in weights:
                        weights[full][head * width:(head + 1) * width] *= (
                            (bound / peak) ** (1 / len(names)))


def make(name):
    case = CASES[name]
    source = HERE / "models" / case["model"]
    config = json.loads((source / "config.json").read_text())
    tokens = torch.tensor(json.loads((source / "tokens.json").read_text()))
    stored = load_file(source / "model.safetensors")
    weights = {}
    for full in oracle.shapes_of(config):
        value = stored.get(full)
        if value is None:
            value = stored[full.removeprefix("transformer.")]
        weights[full] = value.to(oracle.F64).requires_grad_(True)
    experiment = oracle.HOOKS = Experiment(case)
    loss, logits = oracle.next_token_loss(config, weights, tokens)
    z = torch.logsumexp(logits[:, :-1], -1)
    z_loss = case.get("z_loss", 0) * (z * z).mean()
    (loss + z_loss).backward()
    directory = HERE / "regularization" / name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "expected.json").write_text(json.dumps(
        {**case, "loss": loss.item(), "z_loss": float(z_loss.detach()),
         "peaks": experiment.peaks}) + "\n")
    if "qk_clip" not in case:
        save_file({k: v.grad.contiguous() for k, v in weights.items()},
                  directory / "gradients.safetensors")
        return
    clipped = {k: v.detach().clone() for k, v in weights.items()}
    clip(config, clipped, experiment.peaks, case["qk_clip"])
    save_file(clipped, directory / "weights.safetensors")


if __name__ == "__main__":
    for each in CASES:
        make(each)
