#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/adapters: low-rank adapters that the peft library made
and saved beside golden models, and the logits of both together in float64.

    python3 tests/golden/make_adapters.py

The models are those of tests/golden/models. peft chooses the modules, writes
the files and merges them (in float64); oracle.py computes the logits of what
comes out. What transformers computes with the adapters in place must agree (it
takes norms and rotary angles in float32). Values are such that float32 holds
them exactly. All was made with peft 0.21.2 on 2026-11-22.
"""
import json
import pathlib
import shutil
import tempfile

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

import oracle
import oracle_families  # noqa: F401  (more families for the oracle)

HERE = pathlib.Path(__file__).parent

# name: model, and what peft is asked for
CASES = {
    "expression": ("llama_nine_heads", dict(
        r=3, lora_alpha=6, use_rslora=True,
        target_modules=r".*\.(q_proj|v_proj|down_proj)")),
    "patterns": ("llama_untied", dict(
        r=4, lora_alpha=8, exclude_modules=["layers.1.mlp.gate_proj"],
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj",
                        "up_proj", "down_proj"],
        rank_pattern={"k_proj": 2, r"layers\.0\.mlp\.(up|down)_proj": 1},
        alpha_pattern={"^model.layers.1.self_attn.q_proj": 3,
                       r"layers.\d.self_attn.v_proj": 5})),
    "layers": ("qwen2", dict(r=2, lora_alpha=5, target_modules="all-linear",
                             exclude_modules=r".*\.0\.mlp\..*")),
    "chosen_layers": ("mistral", dict(
        r=2, lora_alpha=2, target_modules=["q_proj", "o_proj"],
        layers_to_transform=[1], layers_pattern="layers")),
    "conv1d": ("gpt2", dict(r=2, lora_alpha=7, fan_in_fan_out=True,
                            target_modules=["c_attn", "attn.c_proj"],
                            lora_dropout=0.1)),
    "fused": ("gpt_neox", dict(
        r=3, lora_alpha=4, target_modules=["query_key_value", "dense"])),
    "fused_gate": ("phi3", dict(
        r=2, lora_alpha=3, target_modules=["qkv_proj", "gate_up_proj"])),
    "pairs": ("gptj", dict(
        r=2, lora_alpha=3, target_modules=["q_proj", "v_proj", "fc_in"])),
    "gemma2": ("gemma2", dict(
        r=2, lora_alpha=3, rank_pattern={"up_proj": 5},
        target_modules=["q_proj", "up_proj", "gate_proj"])),
}


def fill(model, generator):
    """B is zero in peft, which would prove nothing."""
    for name, value in model.named_parameters():
        if "lora_" not in name:
            continue
        inner = value.shape[1]
        drawn = torch.randn(value.shape, generator=generator) / inner ** 0.5
        value.data.copy_(drawn.to(value.dtype))


def make(name):
    base, settings = CASES[name]
    source = HERE / "models" / base
    target = HERE / "adapters" / name
    tokens = torch.tensor(
        json.loads((source / "tokens.json").read_text()))[:2, :11]
    config = json.loads((source / "config.json").read_text())
    torch.manual_seed(len(name))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        source, dtype=torch.float64, attn_implementation="eager")
    model = peft.get_peft_model(
        model, peft.LoraConfig(task_type="CAUSAL_LM", **settings)).eval()
    fill(model, torch.Generator().manual_seed(len(name)))
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        target.mkdir(parents=True)
        values = load_file(f"{folder}/adapter_model.safetensors")
        save_file({k: v.to(torch.float32) for k, v in values.items()},
                  target / "adapter_model.safetensors",
                  metadata={"format": "pt"})
        asked = json.loads(
            pathlib.Path(f"{folder}/adapter_config.json").read_text())
    asked["base_model_name_or_path"] = base
    for key in ("target_modules", "exclude_modules"):
        if isinstance(asked.get(key), list):
            asked[key].sort()  # a set, in any order
    (target / "adapter_config.json").write_text(
        json.dumps(asked, indent=1, sort_keys=True) + "\n")
    (target / "base.json").write_text(json.dumps({"model": base}) + "\n")
    (target / "tokens.json").write_text(json.dumps(tokens.tolist()) + "\n")
    with torch.no_grad():
        theirs = model(tokens).logits
    merged = model.merge_and_unload().state_dict()
    weights = {k: v.to(oracle.F64)
               for k, v in load_file(source / "model.safetensors").items()}
    changed = 0
    for key in weights:
        if key not in merged or torch.equal(merged[key], weights[key]):
            continue
        weights[key] = merged[key]
        changed += 1
    assert changed == len(values) // 2, (name, changed, len(values))
    logits = oracle.logits_of(config, weights, tokens)
    worst = ((logits - theirs).abs().max() / logits.abs().max()).item()
    assert worst < 1e-5, (name, worst)
    save_file({"logits": logits.contiguous()},
              target / "logits.safetensors")
    print(f"{name}: {changed} matrices of {base}, transformers with peft "
          f"differs by {worst:.1e}")


for case in CASES:
    make(case)
