#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes mtp/<name>/: the losses and gradients of models with modules that predict
later tokens (DeepSeek-V3, arXiv:2412.19437, section 2.2), over packed documents.

    python3 tests/golden/make_mtp.py

    config.json            of the model without its modules
    model.safetensors      F32: their tensors lie behind the last block
    batch.json             tokens, targets (-1: none), documents, positions
    expected.json          loss, losses of the modules, weight
    gradients.safetensors  F64, of loss + weight / depth (sum of the others' means)

Blocks are transformers', in float64 throughout; what joins them is written here.
"""
import json

import torch
import transformers
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy, linear

import check_drawn
from check_drawn import F32, F64, pieces, tensors
from make_experts import DEEPSEEK_V3, GLM4_MOE, GLM4_MOE_LITE
from make_models import HERE, LENGTH, LLAMA_V5, QWEN3, SEQUENCES

CASES = {"deepseek_v3": (DEEPSEEK_V3, 2, 5), "glm4_moe": (GLM4_MOE, 1, 6),
         "llama": (LLAMA_V5, 2, 7), "qwen3": (QWEN3, 1, 8),
         "glm4_moe_lite": (GLM4_MOE_LITE, 2, 9)}
OTHERS = ("llama", "qwen3")  # whose files have no number of modules
WEIGHT = 0.7
STARTS = [[0, 20], [0], [0, 3, 4, 30]]   # of documents


def norm(x, weight, epsilon):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon) * weight


def extra_draw(config, depth, generator):
    width, extra = config["hidden_size"], {}
    for module in range(depth):
        stem = f"model.layers.{config['num_hidden_layers'] + module}."
        for name in ("enorm", "hnorm", "shared_head.norm"):
            value = 1 + 0.15 * torch.randn(width, generator=generator, dtype=F64)
            extra[f"{stem}{name}.weight"] = value
        extra[stem + "eh_proj.weight"] = 0.15 * torch.randn(
            width, 2 * width, generator=generator, dtype=F64)
    return {name: value.to(F32).to(F64).requires_grad_(True)
            for name, value in extra.items()}


def batch_draw(config, generator):
    tokens = torch.randint(0, config["vocab_size"], (SEQUENCES, LENGTH),
                           generator=generator)
    documents = torch.zeros_like(tokens)
    for row, starts in zip(documents, STARTS):
        for start in starts:
            row[start:] = start
    targets = torch.full_like(tokens, -1)
    same = documents[:, 1:] == documents[:, :-1]
    targets[:, :-1] = torch.where(same, tokens[:, 1:], -1)
    targets[1, 9:13] = -1  # left out, as the words of a user are
    return {"tokens": tokens, "targets": targets, "documents": documents,
            "positions": torch.arange(LENGTH) - documents}


def mean_loss(logits, targets):
    return cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


def ahead(batch, count):
    """The tokens that lie `count` behind each, and their targets where both are
    of one document."""
    tokens, targets = batch["tokens"].clone(), torch.full_like(batch["tokens"], -1)
    tokens[:, :-count] = batch["tokens"][:, count:]
    same = batch["documents"][:, count:] == batch["documents"][:, :-count]
    targets[:, :-count] = torch.where(same, batch["targets"][:, count:], -1)
    return tokens, targets


def losses_of(model, config, extra, batch, depth):
    inner, blocks = model.model, config["num_hidden_layers"]
    epsilon = config["rms_norm_eps"]
    documents, positions = batch["documents"], batch["positions"]
    seen = (documents[:, :, None] == documents[:, None, :]).tril()
    mask = torch.zeros(seen.shape, dtype=F64).masked_fill(~seen, -torch.inf)[:, None]

    def block(number, x):
        return inner.layers[number](
            x, attention_mask=mask, position_ids=positions,
            position_embeddings=inner.rotary_emb(x, positions))

    x = inner.embed_tokens(batch["tokens"])
    for number in range(blocks):
        x = block(number, x)
    x = norm(x, inner.norm.weight, epsilon)
    losses = [mean_loss(model.lm_head(x), batch["targets"])]
    for module in range(depth):
        stem = f"model.layers.{blocks + module}."
        tokens, targets = ahead(batch, module + 1)
        both = torch.cat([
            norm(inner.embed_tokens(tokens), extra[stem + "enorm.weight"], epsilon),
            norm(x, extra[stem + "hnorm.weight"], epsilon)], -1)
        x = block(blocks + module, linear(both, extra[stem + "eh_proj.weight"]))
        x = norm(x, extra[stem + "shared_head.norm.weight"], epsilon)
        losses.append(mean_loss(model.lm_head(x), targets))
    return losses


def make(name):
    config, depth, seed = CASES[name]
    generator = torch.Generator().manual_seed(seed)
    directory = HERE / "mtp" / name
    directory.mkdir(parents=True, exist_ok=True)
    more = {**config, "num_hidden_layers": config["num_hidden_layers"] + depth}
    if "mlp_layer_types" in more:  # blocks of modules have experts
        more["mlp_layer_types"] = more["mlp_layer_types"] + ["sparse"] * depth
    (directory / "config.json").write_text(json.dumps(more, indent=2) + "\n")
    model = check_drawn.build(directory)
    number = {} if name in OTHERS else {"num_nextn_predict_layers": depth}
    (directory / "config.json").write_text(json.dumps(
        {**config, **number}, indent=2) + "\n")
    check_drawn.fill(model, generator)
    extra = extra_draw(config, depth, generator)
    batch = batch_draw(config, generator)
    losses = losses_of(model, config, extra, batch, depth)
    (losses[0] + WEIGHT / depth * sum(losses[1:])).backward()

    def save(file, dtype, of):
        found = {outside: piece.to(dtype).contiguous().clone()
                 for inside, value in tensors(model) if of(value) is not None
                 for outside, piece in pieces(inside, config["model_type"],
                                              of(value))}
        found |= {inside: of(value).to(dtype) for inside, value in extra.items()}
        save_file(found, directory / file, metadata={"format": "pt"})

    save("model.safetensors", F32, lambda value: value.detach())
    save("gradients.safetensors", F64, lambda value: torch.zeros_like(value)
         if value.grad is None else value.grad)  # biases of the choice have none
    (directory / "batch.json").write_text(json.dumps(
        {key: value.tolist() for key, value in batch.items()}) + "\n")
    (directory / "expected.json").write_text(json.dumps(
        {"weight": WEIGHT, "depth": depth,
         "losses": [loss.item() for loss in losses]}) + "\n")
    print(name, [round(loss.item(), 12) for loss in losses])


def main():
    transformers.logging.set_verbosity_error()
    check_drawn.float64_throughout()
    for name in CASES:
        make(name)


if __name__ == "__main__":
    main()
