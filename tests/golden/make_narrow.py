#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes narrow/<name>/: how far PyTorch's own 16-bit training is from the truth.

    python3 tests/golden/make_narrow.py

    config.json          the architecture
    model.safetensors    random weights, BF16: the narrow model is exactly this one
    tokens.json          three sequences of 37 ids
    logits.safetensors   `logits` F32 [sequences, length, vocabulary], of float64
    gradients.safetensors  F32, of float64, under Hugging Face names
    errors.json          of transformers in bfloat16 and in float16, each against
                         float64: |x - x64| / |x64| (Euclidean, over the tensor)
                         of the logits and of every gradient

and training/<run>/narrow.json: the 20 steps of make_training.py with weights that
are rounded to bfloat16 for each step, whose float32 masters AdamW updates.

The narrow side is what a user of PyTorch writes: the whole model in 16 bits
(no autocast), scaled_dot_product_attention, the library's own loss. float16 scales
the loss by 1,024.
"""
import json
import math
import pathlib

import torch
import transformers
from safetensors.torch import load_file, save_file

import make_training as training
import oracle

HERE = pathlib.Path(__file__).parent
SEQUENCES, LENGTH, SCALE = 3, 37, 1024.0

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False,
    "attention_dropout": 0.0, "bos_token_id": 1, "dtype": "bfloat16",
    "eos_token_id": 2, "head_dim": 16, "hidden_act": "silu",
    "hidden_size": 64, "initializer_range": 0.02, "intermediate_size": 88,
    "max_position_embeddings": 64, "mlp_bias": False, "model_type": "llama",
    "num_attention_heads": 4, "num_hidden_layers": 3, "num_key_value_heads": 2,
    "pad_token_id": None, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "tie_word_embeddings": False, "transformers_version": "5.23.0",
    "use_cache": True, "vocab_size": 101,
}
GPT2 = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.0, "bos_token_id": 96, "dtype": "bfloat16",
    "embd_pdrop": 0.0, "eos_token_id": 96, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_embd": 64,
    "n_head": 4, "n_inner": None, "n_layer": 2, "n_positions": 64,
    "resid_pdrop": 0.0, "summary_type": "cls_index",
    "transformers_version": "5.23.0", "use_cache": True, "vocab_size": 97,
}
# A contraction longer than a granule of 256: the feed-forward width.
WIDE = {**LLAMA, "intermediate_size": 328, "num_hidden_layers": 1,
        "hidden_size": 48, "head_dim": 12, "num_key_value_heads": 4,
        "vocab_size": 67}
MODELS = {"llama": (LLAMA, 41), "gpt2": (GPT2, 42), "llama_wide": (WIDE, 43)}


def apart(found, expected):
    expected = expected.double()
    return ((found.double() - expected).norm() / expected.norm()).item()


def weights_make(config, seed):
    """float64 values that bfloat16 and float16 hold exactly."""
    generator = torch.Generator().manual_seed(seed)
    weights = oracle.weights_random(config, generator, 0.125)
    tokens = torch.randint(0, config["vocab_size"], (SEQUENCES, LENGTH),
                           generator=generator)
    for name, value in weights.items():
        value = value.detach().bfloat16().double()
        value[value.abs() < 2.0 ** -14] = 0
        weights[name] = value.requires_grad_(True)
    return weights, tokens


def library_open(directory, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=dtype, attn_implementation="sdpa")
    return model.eval()  # no dropout


def library_errors(directory, dtype, tokens, logits, gradients):
    model = library_open(directory, dtype)
    out = model(tokens, labels=tokens, use_cache=False)
    scale = SCALE if dtype == torch.float16 else 1.0
    (out.loss * scale).backward()
    found = {name: p.grad.double() / scale
             for name, p in model.named_parameters()}
    return {"logits": apart(out.logits.detach(), logits),
            "gradients": {name: apart(found[name], value)
                          for name, value in gradients.items()}}


def make(name):
    config, seed = MODELS[name]
    weights, tokens = weights_make(config, seed)
    loss, logits = oracle.next_token_loss(config, weights, tokens)
    loss.backward()
    logits = logits.detach()
    gradients = {k: v.grad for k, v in weights.items()}

    directory = HERE / "narrow" / name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file({k: v.detach().bfloat16().contiguous()
               for k, v in weights.items()},
              directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "tokens.json").write_text(json.dumps(tokens.tolist()) + "\n")
    save_file({"logits": logits.float().contiguous()},
              directory / "logits.safetensors")
    save_file({k: v.float().contiguous() for k, v in gradients.items()},
              directory / "gradients.safetensors")
    errors = {"loss": loss.item()}
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        errors[str(dtype).removeprefix("torch.")] = library_errors(
            directory, dtype, tokens, logits, gradients)
    worst = errors.pop("float32")
    assert max(worst["logits"], *worst["gradients"].values()) < 1e-4, worst
    (directory / "errors.json").write_text(json.dumps(errors, indent=1) + "\n")
    for dtype in ("bfloat16", "float16"):
        found = errors[dtype]["gradients"].values()
        print(f"{name}, {dtype}: logits {errors[dtype]['logits']:.2e}, "
              f"gradients {min(found):.2e} to {max(found):.2e}")


# ---- twenty steps ----

def steps_narrow(run, model, config, weights, dtype):
    """Losses, norms and weights after 20 steps; `weights`: float32 masters."""
    s, clip = training.SETTINGS, training.RUNS[run][2]
    narrow = {k.removeprefix("transformer.") if k not in dict(
        model.named_parameters()) else k: k for k in weights}
    named = dict(model.named_parameters())
    copy, optimizer = library_optimizer(weights)
    scale = SCALE if dtype == torch.float16 else 1.0
    tokens = training.tokens_make(
        config["vocab_size"],
        torch.Generator().manual_seed(training.RUNS[run][1]))
    losses, norms = [], []
    for step in range(s["steps"]):
        with torch.no_grad():
            for theirs, ours in narrow.items():
                named[theirs].copy_(copy[ours])
        model.zero_grad()
        logits = model(tokens[step][:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), tokens[step][:, 1:].flatten())
        (loss * scale).backward()
        for theirs, ours in narrow.items():
            copy[ours].grad = named[theirs].grad.float() / scale
        norms.append(torch.nn.utils.clip_grad_norm_(
            copy.values(), clip).item())
        for group in optimizer.param_groups:
            group["lr"] = training.rate_of(step)
        optimizer.step()
        losses.append(loss.item())
    return losses, norms, {k: v.detach().double() for k, v in copy.items()}


def library_optimizer(weights):
    copy = {k: v.detach().float().clone().requires_grad_(True)
            for k, v in weights.items()}
    s = training.SETTINGS
    return copy, torch.optim.AdamW(
        [{"params": [p for p in copy.values() if p.dim() == 2],
          "weight_decay": s["weight_decay"]},
         {"params": [p for p in copy.values() if p.dim() != 2],
          "weight_decay": 0.0}],
        lr=0.0, betas=(s["beta1"], s["beta2"]), eps=s["epsilon"])


def rms(found, expected):
    return math.sqrt(sum((a / b - 1) ** 2 for a, b in zip(found, expected))
                     / len(expected))


def make_steps(run):
    directory = HERE / "training" / run
    stored = json.loads((directory / "training.json").read_text())
    source = HERE / "models" / stored["model"]
    config = json.loads((source / "config.json").read_text())
    weights = {k: v.detach() for k, v in
               training.weights_load(source, config).items()}
    final = load_file(directory / "final.safetensors")
    # Not vectors: the gradient of a key's bias is zero up to rounding, and
    # AdamW makes full steps of the signs of that noise.
    matrices = [k for k, v in final.items() if v.dim() == 2]
    moved = math.sqrt(sum((final[k] - weights[k]).norm().item() ** 2
                          for k in matrices))
    result = {"losses": "root of the mean over steps of (loss / loss64 - 1)^2",
              "norms": "the same of gradient norms",
              "weights": "|w - w64| / |w64 - w at the start|, all matrices"}
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        model = library_open(source, dtype)
        losses, norms, ends = steps_narrow(run, model, config, weights, dtype)
        off = math.sqrt(sum((ends[k] - final[k]).norm().item() ** 2
                            for k in matrices))
        result[str(dtype).removeprefix("torch.")] = {
            "losses": rms(losses, [r["loss"] for r in stored["rows"]]),
            "norms": rms(norms, [r["grad_norm"] for r in stored["rows"]]),
            "weights": off / moved}
        print(run, dtype, result[str(dtype).removeprefix("torch.")])
    assert result.pop("float32")["losses"] < 1e-6
    (directory / "narrow.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    for each in MODELS:
        make(each)
    for each in training.RUNS:
        make_steps(each)
