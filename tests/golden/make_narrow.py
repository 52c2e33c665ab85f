#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes narrow/<name>/: how far PyTorch's own 16-bit training is from the truth.

    python3 tests/golden/make_narrow.py

    config.json          the architecture
    model.safetensors    random weights, BF16: the narrow model is exactly this one
    tokens.safetensors   `tokens` I32 [8, sequences, length]: eight batches
    logits.safetensors   `logits` F32 [sequences, length, vocabulary], of float64,
                         of the first batch
    gradients.safetensors  F32, of float64, under Hugging Face names, the same
    errors.json          of transformers in bfloat16 and in float16, each against
                         float64: |x - x64| / |x64| (Euclidean, over the tensor)
                         of the logits and of every gradient, the root of the
                         mean square over the batches (of one batch alone, the
                         error of a small tensor is too much of a die)

and, of the 20 steps of make_training.py with eight other draws of tokens,

    training/<run>/narrow_tokens.safetensors  `tokens` I32 [8, steps, batch,
                         sequence + 1]
    training/<run>/narrow.json  of weights that are rounded for each step, whose
                         float32 masters AdamW updates: errors against float64
                         steps, roots of mean squares over the draws


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
BATCHES, SEQUENCES, LENGTH, SCALE = 8, 3, 37, 1024.0

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
    tokens = torch.randint(0, config["vocab_size"], (BATCHES, SEQUENCES, LENGTH),
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


def library_errors(directory, dtype, tokens, truths):
    """Root of the mean square over the batches, of each tensor."""
    model = library_open(directory, dtype)
    scale = SCALE if dtype == torch.float16 else 1.0
    squares = {}
    for batch, (logits, gradients) in zip(tokens, truths):
        model.zero_grad()
        out = model(batch, labels=batch, use_cache=False)
        (out.loss * scale).backward()
        found = {name: apart(p.grad.double() / scale, gradients[name])
                 for name, p in model.named_parameters()}
        found["logits"] = apart(out.logits.detach(), logits)
        for name, value in found.items():
            squares.setdefault(name, []).append(value ** 2)
    errors = {k: math.sqrt(sum(v) / len(v)) for k, v in squares.items()}
    return {"logits": errors.pop("logits"), "gradients": errors}


def truths_make(config, weights, tokens):
    """(logits, gradients) of each batch, float64."""
    truths = []
    for batch in tokens:
        for value in weights.values():
            value.grad = None
        loss, logits = oracle.next_token_loss(config, weights, batch)
        loss.backward()
        truths.append((logits.detach(),
                       {k: v.grad.clone() for k, v in weights.items()}))
    return truths


def make(name):
    config, seed = MODELS[name]
    weights, tokens = weights_make(config, seed)
    truths = truths_make(config, weights, tokens)

    directory = HERE / "narrow" / name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file({k: v.detach().bfloat16().contiguous()
               for k, v in weights.items()},
              directory / "model.safetensors", metadata={"format": "pt"})
    save_file({"tokens": tokens.to(torch.int32).contiguous()},
              directory / "tokens.safetensors")
    logits, gradients = truths[0]
    save_file({"logits": logits.float().contiguous()},
              directory / "logits.safetensors")
    save_file({k: v.float().contiguous() for k, v in gradients.items()},
              directory / "gradients.safetensors")
    errors = {}
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        errors[str(dtype).removeprefix("torch.")] = library_errors(
            directory, dtype, tokens, truths)
    worst = errors.pop("float32")
    assert max(worst["logits"], *worst["gradients"].values()) < 1e-4, worst
    (directory / "errors.json").write_text(json.dumps(errors, indent=1) + "\n")
    for dtype in ("bfloat16", "float16"):
        found = errors[dtype]["gradients"].values()
        print(f"{name}, {dtype}: logits {errors[dtype]['logits']:.2e}, "
              f"gradients {min(found):.2e} to {max(found):.2e}")


# ---- twenty steps ----

def steps_true(config, start, tokens, clip):
    """Losses, norms and weights after the steps, float64."""
    weights = {k: v.clone().requires_grad_(True) for k, v in start.items()}
    moments = {k: (torch.zeros_like(v), torch.zeros_like(v))
               for k, v in start.items()}
    losses, norms = [], []
    for step, batch in enumerate(tokens):
        loss = oracle.loss_of(oracle.logits_of(config, weights, batch[:, :-1]),
                              batch[:, 1:])
        loss.backward()
        norms.append(math.sqrt(sum((p.grad ** 2).sum().item()
                                   for p in weights.values())))
        losses.append(loss.item())
        training.update(weights, moments, step,
                        min(1.0, clip / (norms[-1] + 1e-6)))
    return losses, norms, {k: v.detach() for k, v in weights.items()}


def library_optimizer(weights):
    s = training.SETTINGS
    return torch.optim.AdamW(
        [{"params": [p for p in weights.values() if p.dim() == 2],
          "weight_decay": s["weight_decay"]},
         {"params": [p for p in weights.values() if p.dim() != 2],
          "weight_decay": 0.0}],
        lr=0.0, betas=(s["beta1"], s["beta2"]), eps=s["epsilon"])


def steps_narrow(model, start, tokens, clip):
    """The same of the library's model, with float32 masters."""
    named = dict(model.named_parameters())
    masters = {k: start[k].float().requires_grad_(True) for k in named}
    optimizer = library_optimizer(masters)
    scale = SCALE if model.dtype == torch.float16 else 1.0
    losses, norms = [], []
    for step, batch in enumerate(tokens):
        with torch.no_grad():
            for name, value in masters.items():
                named[name].copy_(value)
        model.zero_grad()
        logits = model(batch[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), batch[:, 1:].flatten())
        (loss * scale).backward()
        for name, value in masters.items():
            value.grad = named[name].grad.float() / scale
        norms.append(torch.nn.utils.clip_grad_norm_(
            masters.values(), clip).item())
        for group in optimizer.param_groups:
            group["lr"] = training.rate_of(step)
        optimizer.step()
        losses.append(loss.item())
    return losses, norms, {k: v.detach().double() for k, v in masters.items()}


def squares(found, expected):
    return sum((a / b - 1) ** 2 for a, b in zip(found, expected)) / len(found)


def matrices_square(left, right):
    """Not vectors: the gradient of a key's bias is zero up to rounding, and
    AdamW makes full steps of the signs of that noise."""
    return sum((left[k] - right[k]).norm().item() ** 2
               for k, v in left.items() if v.dim() == 2)


def make_steps(run):
    _, seed, clip = training.RUNS[run]
    directory = HERE / "training" / run
    stored = json.loads((directory / "training.json").read_text())
    source = HERE / "models" / stored["model"]
    config = json.loads((source / "config.json").read_text())
    start = {k: v.detach() for k, v in
             training.weights_load(source, config).items()}
    draws = [training.tokens_make(config["vocab_size"],
                                  torch.Generator().manual_seed(
                                      100 * seed + draw))
             for draw in range(BATCHES)]
    save_file({"tokens": torch.stack(draws).to(torch.int32).contiguous()},
              directory / "narrow_tokens.safetensors")
    truths = [steps_true(config, start, tokens, clip) for tokens in draws]
    result = {"losses": "root of the mean over steps of (loss / loss64 - 1)^2",
              "norms": "the same of gradient norms",
              "weights": "|w - w64| / |w64 - w at the start|, all matrices"}
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        model = library_open(source, dtype)
        parts = []
        for tokens, true in zip(draws, truths):
            found = steps_narrow(model, start, tokens, clip)
            parts.append((squares(found[0], true[0]),
                          squares(found[1], true[1]),
                          matrices_square(found[2], true[2])
                          / matrices_square(true[2], start)))
        errors = {what: math.sqrt(sum(p[i] for p in parts) / len(parts))
                  for i, what in enumerate(("losses", "norms", "weights"))}
        result[str(dtype).removeprefix("torch.")] = errors
        print(run, dtype, errors, [f"{math.sqrt(p[0]):.1e}" for p in parts])
    assert result.pop("float32")["losses"] < 1e-6
    (directory / "narrow.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    for each in MODELS:
        make(each)
    for each in training.RUNS:
        make_steps(each)
