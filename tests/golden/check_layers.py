#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Are the observations of layers what they say they are?

    check_layers.py [LOCKSTEP]        (build/lockstep)

Trains one step of a small Llama on eight sequences, all that its data has, with
observe.layers, and holds the line of layers.jsonl against transformers and
PyTorch in float64: the inputs of every block and of the last norm, the largest
attention scores, norms of weights, gradients and updates. Needs torch and
transformers. Tolerance 1e-5: Lockstep computes in float32 here.
"""
import json
import os
import random
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

SEQUENCE, BATCH, LAYERS = 48, 8, 3
CONFIG = f"""version: 1
seed: 5
model: {{family: llama, vocab: 300, layers: {LAYERS}, width: 32, heads: 4,
        kv_heads: 2, feed_forward: 48, init_std: 0.1}}
tokenizer: {{from: tokenizer.json}}
data: {{train: [text.jsonl], valid: [text.jsonl], sequence: {SEQUENCE},
       documents: joined}}
train: {{steps: 1, batch: {BATCH}, micro_batch: 4}}
optimizer: {{lr: 3.0e-3, warmup: 0, schedule: constant, clip: 0.5}}
observe: {{layers: 1}}
"""
PIECES = {"attention_norm": ["input_layernorm.weight"],
          "attention.wqkv": [f"self_attn.{x}_proj.weight" for x in "qkv"],
          "attention.wo": ["self_attn.o_proj.weight"],
          "ffn_norm": ["post_attention_layernorm.weight"],
          "ffn.w13": ["mlp.gate_proj.weight", "mlp.up_proj.weight"],
          "ffn.w2": ["mlp.down_proj.weight"]}
OUTSIDE = {"embedding": ["model.embed_tokens.weight"],
           "norm": ["model.norm.weight"], "head": ["lm_head.weight"]}


def outside(name):
    if name in OUTSIDE:
        return OUTSIDE[name]
    _, layer, rest = name.split(".", 2)
    return [f"model.layers.{layer}.{piece}" for piece in PIECES[rest]]


def norm(tensors):
    return sum((t.double() ** 2).sum() for t in tensors).sqrt().item()


def lockstep(room, *arguments):
    return subprocess.run([program, *arguments], cwd=room, check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True).stdout


def make_runs(room):
    """A run of a step, its weights before and after, and its ids."""
    draw = random.Random(7)
    words = [a + b for a in "bdgklmnprst" for b in "aeiou"]

    def write(count):
        text = " ".join(draw.choice(words) for _ in range(count))
        with open(os.path.join(room, "text.jsonl"), "w") as out:
            out.write(json.dumps({"text": text}) + "\n")
        with open(os.path.join(room, "text.txt"), "w") as out:
            out.write(text)

    write(3000)
    lockstep(room, "tokenizer", "train", "text.jsonl", "--vocab", "300",
             "--out", "tokenizer.json")
    ids, count = [], 400
    while not SEQUENCE * BATCH < len(ids) <= SEQUENCE * (BATCH + 1) - 2:
        count += -9 if len(ids) > SEQUENCE * BATCH else 9
        write(count)
        ids = json.loads(lockstep(room, "tokenize", "tokenizer.json",
                                  "text.txt", "--ids", "--no-special"))
    with open(os.path.join(room, "config.yaml"), "w") as out:
        out.write(CONFIG)
    lockstep(room, "train", "config.yaml", "--run", "first")
    lockstep(room, "train", "config.yaml", "--run", "run", "--set",
             "init.from=first", "--set", "optimizer.beta1=0.8")
    lockstep(room, "export", "first", "before")
    lockstep(room, "export", "run", "after")
    with open(os.path.join(room, "run", "layers.jsonl")) as line:
        return ids, json.loads(line.read())


def observe(room, ids):
    """The same numbers in float64."""
    model = AutoModelForCausalLM.from_pretrained(
        os.path.join(room, "before"), dtype=torch.float64,
        attn_implementation="eager")
    seen, scores = {}, {}

    def read(key):
        return lambda _, arguments: seen.__setitem__(key, arguments[0])

    for i, block in enumerate(model.model.layers):
        block.register_forward_pre_hook(read(i))
    model.model.norm.register_forward_pre_hook(read(LAYERS))
    import transformers.models.llama.modeling_llama as llama
    plain = llama.eager_attention_forward

    def attention(module, q, k, v, mask, scaling, **rest):
        each = llama.repeat_kv(k, module.num_key_value_groups)
        product = q @ each.transpose(2, 3) * scaling
        causal = torch.ones(q.shape[2], q.shape[2]).tril().bool()
        scores[module.layer_idx] = product[:, :, causal].max().item()
        return plain(module, q, k, v, mask, scaling, **rest)

    llama.eager_attention_forward = attention
    tokens = torch.tensor(ids[:SEQUENCE * BATCH + 1])
    inputs = tokens[:-1].reshape(BATCH, SEQUENCE)
    targets = tokens[1:].reshape(BATCH, SEQUENCE)
    logits = model(inputs).logits
    torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)).backward()
    x = [seen[i].detach() for i in range(LAYERS + 1)]
    return model, {
        "rms": [(t ** 2).mean().sqrt().item() for t in x],
        "max": [t.abs().max().item() for t in x],
        "kurtosis": [((t ** 4).mean() / (t ** 2).mean() ** 2).item()
                     for t in x],
        "logit": [scores[i] for i in range(LAYERS)]}


def main():
    checked = 0

    def same(what, found, wanted):
        nonlocal checked
        assert abs(found - wanted) <= 1e-5 * abs(wanted), \
            f"{what}: {found}, expected {wanted}"
        checked += 1

    with tempfile.TemporaryDirectory() as room:
        ids, line = make_runs(room)
        model, wanted = observe(room, ids)
        for name, values in wanted.items():
            assert len(line[name]) == len(values), name
            for i, value in enumerate(values):
                same(f"{name}[{i}]", line[name][i], value)
        gradients = {n: p.grad for n, p in model.named_parameters()}
        before = load_file(os.path.join(room, "before", "model.safetensors"))
        after = load_file(os.path.join(room, "after", "model.safetensors"))
        for row in line["parameters"]:
            names = outside(row["name"])
            same(row["name"] + " weight", row["weight"],
                 norm(before[n] for n in names))
            same(row["name"] + " gradient", row["gradient"],
                 norm(gradients[n] for n in names))
            same(row["name"] + " update", row["update"],
                 norm(after[n].double() - before[n].double() for n in names))
    print(f"{checked} values, as in float64")


if __name__ == "__main__":
    program = os.path.abspath(sys.argv[1] if sys.argv[1:]
                              else "build/lockstep")
    main()
