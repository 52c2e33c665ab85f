#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws configurations of every family and compares them with transformers.

    python3 tests/golden/check_drawn.py LOCKSTEP FIRST LAST [FAMILY...]
    python3 tests/golden/check_drawn.py LOCKSTEP published.jsonl [NAME...]

The second form takes those that have been published, made small; the rest is the
same. For each seed from FIRST to LAST - 1 it draws a config.json, builds the model with
transformers in float64 (its inner float32 steps are float64 here), saves it, and
compares the logits and gradients of `LOCKSTEP score`, and the logits of what
`LOCKSTEP import` and `export` make of it. Exit 1: one is further than 1e-10 of the
largest value, or was refused; its directory is kept and named.
"""
import functools
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.numpy import load_file  # that of PyTorch asks for torch.float32
from safetensors.torch import save_file
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

F32, F64 = torch.float32, torch.float64
LENGTH, TOLERANCE = 29, 1e-10
FLAGS = [False, True]
ACTIVATIONS = ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"]
SCALINGS = [
    {"rope_type": "default"}, {"rope_type": "linear", "factor": 2.5},
    {"rope_type": "dynamic", "factor": 4.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
     "high_freq_factor": 4.0, "original_max_position_embeddings": 40},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    {"rope_type": "yarn", "factor": 16.0, "truncate": False,
     "original_max_position_embeddings": 32, "attention_factor": 1.3}]
TYPES = ["full_attention", "sliding_attention"]
ABSENT = object()

GROUPED = {"num_key_value_heads": "groups", "rope": SCALINGS,
           "tie_word_embeddings": FLAGS + [ABSENT]}
GATED = {**GROUPED, "rms_norm_eps": [1e-6, 1e-3]}
FREE = {**GATED, "head_dim": [4, 10, 22]}
BIASES = {"attention_bias": FLAGS, "mlp_bias": FLAGS}
WINDOW = {"sliding_window": [2, 6, 100]}
LAYERS = {**WINDOW, "layer_types": "types"}
USED = {**LAYERS, "use_sliding_window": [True], "max_window_layers": [0, 1, 28]}
OLD = {"n_inner": [None, 27], "activation_function": ["gelu", "gelu_new", "relu"],
       "layer_norm_epsilon": [1e-5, 1e-3]}
GEMMA = {**FREE, **LAYERS, "query_pre_attn_scalar": [7, 256],
         "hidden_activation": ["gelu_pytorch_tanh"], "attention_bias": FLAGS}
EXPERTS = {"num_experts": [1, 3, 8, 20], "num_experts_per_tok": "chosen",
           "norm_topk_prob": FLAGS}
SPARSER = {**EXPERTS, "moe_intermediate_size": [10, 16],
           "decoder_sparse_step": [1, 2, ABSENT], "mlp_only_layers": "layers"}
# Scores are stretched, too, where mscale_all_dim says so.
YARN = {"rope_type": "yarn", "factor": 40.0, "beta_fast": 32, "beta_slow": 1,
        "mscale": 0.707, "mscale_all_dim": 0.707,
        "original_max_position_embeddings": 16}
LATENT = {"rope": SCALINGS + [YARN, {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}],
          "rms_norm_eps": [1e-6, 1e-3], "tie_word_embeddings": FLAGS + [ABSENT],
          "q_lora_rank": [None, 5, 14], "kv_lora_rank": [6, 16],
          "qk_nope_head_dim": [4, 8], "qk_rope_head_dim": [4, 6],
          "v_head_dim": [3, 6], "n_routed_experts": [8, 12],
          "num_experts_per_tok": [1, 3], "n_shared_experts": [1, 2],
          "moe_intermediate_size": [10, 16], "first_k_dense_replace": [0, 0, 1],
          "routed_scaling_factor": [1.0, 2.5], "n_group": [4], "topk_group": [2]}
GRANITE = {**GATED, "attention_bias": FLAGS, "num_local_experts": [1, 3, 8],
           "num_experts_per_tok": "chosen", "embedding_multiplier": [1.0, 12],
           "logits_scaling": [1.0, 6.0], "residual_multiplier": [0.22, ABSENT],
           "attention_multiplier": [0.1, ABSENT]}
FAMILIES = {
    "llama": {**FREE, **BIASES}, "olmo2": {**GATED, "attention_bias": FLAGS},
    "mistral": {**FREE, "sliding_window": [None, 2, 6]},
    "ministral": {**FREE, **LAYERS}, "qwen2": {**GATED, **USED},
    "qwen3": {**FREE, **USED, "attention_bias": FLAGS},
    "smollm3": {**GATED, **BIASES, **USED, "no_rope_layers": "flags"},
    "phi3": {**GATED, "sliding_window": [None, 6], "rope": SCALINGS[:1]},
    "stablelm": {**GROUPED, "partial_rotary_factor": [0.5, 1.0], "rope": SCALINGS[:1],
                 "use_qkv_bias": FLAGS, "use_parallel_residual": FLAGS,
                 "qk_layernorm": FLAGS},
    "starcoder2": {**GROUPED, **WINDOW, "hidden_act": ACTIVATIONS},
    "gpt_neox": {"rotary_pct": [0.5, 1.0, ABSENT], "rotary_emb_base": [500, ABSENT],
                 "hidden_act": ACTIVATIONS + ["gelu_fast"],
                 "use_parallel_residual": FLAGS},
    "falcon": {"new_decoder_architecture": FLAGS, "num_kv_heads": "groups",
               "multi_query": FLAGS, "ffn_hidden_size": [27, ABSENT],
               "activation": ["gelu", "relu"], "rope": SCALINGS, "alibi": FLAGS,
               "bias": FLAGS, "parallel_attn": FLAGS,
               "num_ln_in_parallel_attn": [1, 2, None]},
    "gpt2": {**OLD, "scale_attn_by_inverse_layer_idx": FLAGS}, "gptj": {**OLD, "rotary_dim": [2, 8]},
    "gemma": {**FREE, "hidden_act": ["gelu", "gelu_pytorch_tanh"]},
    "gemma2": {**GEMMA, "attn_logit_softcapping": [None, 2.0, 50.0],
               "final_logit_softcapping": [None, 3.0, 30.0]},
    "gemma3_text": {**GEMMA, "rope": SCALINGS[:2]},
    "mixtral": {**FREE, "sliding_window": [None, 2, 6], "num_local_experts": [1, 3, 8],
                "num_experts_per_tok": "chosen"},
    "granitemoe": GRANITE,
    "granitemoeshared": {**GRANITE, "shared_intermediate_size": [0, 10, 27, ABSENT]},
    "deepseek_v2": {**LATENT, "topk_method": ["greedy", "group_limited_greedy"]},
    "deepseek_v3": {**LATENT, "norm_topk_prob": FLAGS,
                    "num_nextn_predict_layers": [0]},
    "olmoe": {**GATED, **EXPERTS, "attention_bias": FLAGS},
    "qwen2_moe": {**GATED, **SPARSER, "shared_expert_intermediate_size": [6, 20]},
    "glm4_moe": {**GATED, "head_dim": [4, 12], "attention_bias": FLAGS, "use_qk_norm": FLAGS,
                 "n_routed_experts": [4, 8, 12], "num_experts_per_tok": [1, 2, 3],
                 "moe_intermediate_size": [10, 16], "n_shared_experts": [1, 2],
                 "n_group": [1, 2], "topk_group": "all groups", "norm_topk_prob": FLAGS,
                 "routed_scaling_factor": [1.0, 2.5],
                 "first_k_dense_replace": "first",
                 "partial_rotary_factor": [0.5, ABSENT],
                 "rope": SCALINGS[:1]},
    "dots1": {**FREE, "attention_bias": FLAGS, **LAYERS,
              "max_window_layers": [0, 1, ABSENT], "n_routed_experts": [4, 8, 12],
              "num_experts_per_tok": [1, 2, 3], "moe_intermediate_size": [10, 16],
              "n_shared_experts": [1, 2], "n_group": [1, 2],
              "topk_group": "all groups", "norm_topk_prob": FLAGS + [ABSENT],
              "routed_scaling_factor": [1.0, 2.5], "first_k_dense_replace": "first"},
    "glm4_moe_lite": {**{k: v for k, v in LATENT.items() if "first_k" not in k},
                      "mlp_layer_types": "dense first", "norm_topk_prob": FLAGS},
    "minimax_m2": {**FREE, "num_local_experts": [1, 3, 8], "head_dim": [6, 12, 22],
                   "num_experts_per_tok": "chosen", "rotary_dim": [4, 6, ABSENT]},
    "flex_olmo": {**GATED, **EXPERTS, "attention_bias": FLAGS},
    "ernie4_5_moe": {**GATED, "moe_num_experts": [3, 8], "moe_k": [1, 2, 3],
                     "moe_intermediate_size": [10, 16],
                     "moe_num_shared_experts": [0, 1, 2, ABSENT],
                     "moe_layer_start_index": "first", "moe_layer_interval": [1],
                     "moe_layer_end_index": [-1, ABSENT]},
    "solar_open": {**FREE, "attention_bias": FLAGS, "n_routed_experts": [4, 8, 12],
                   "num_experts_per_tok": [1, 2, 3],
                   "moe_intermediate_size": [10, 16], "n_shared_experts": [1, 2],
                   "n_group": [1, 2], "topk_group": "all groups",
                   "norm_topk_prob": FLAGS, "routed_scaling_factor": [1.0, 2.5]},
    "phimoe": {**GATED, "attention_bias": FLAGS, "lm_head_bias": FLAGS,
               "sliding_window": [None, 6, 100], "num_local_experts": [2, 3, 16],
               "router_jitter_noise": [0.01, 0.3, 1.0], "input_jitter_noise": [0.01],
               "rope": "long or none", "num_experts_per_tok": [2]},
    "gpt_oss": {**FREE, **LAYERS, "attention_bias": FLAGS,
                "num_local_experts": [1, 3, 8], "num_experts_per_tok": "chosen",
                "swiglu_limit": [0.2, 7.0], "swiglu_alpha": [1.702, ABSENT]},
    "llama4_text": {**FREE, "attention_bias": FLAGS, "num_local_experts": [1, 3, 8],
                    "num_experts_per_tok": [1], "intermediate_size_mlp": [10, 21],
                    "attention_chunk_size": [1, 5, 100], "use_qk_norm": FLAGS,
                    "layer_types": "types", "no_rope_layers": "flags or none",
                    "interleave_moe_layer_step": [1, 1, 2], "moe_layers": "some layers",
                    "attn_temperature_tuning": FLAGS + [ABSENT],
                    "floor_scale": [1, 5, ABSENT], "attn_scale": [0.1, 1.0]},
    "qwen3_moe": {**FREE, **SPARSER, "attention_bias": FLAGS, **WINDOW,
                  "use_sliding_window": FLAGS}}
NAMES_OLD = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer",
             "num_attention_heads": "n_head", "max_position_embeddings": "n_positions"}


def rope_of(chance, family, scaling):
    """A scaling in the spelling of version 4 or 5."""
    base = chance.choice([500.0, 10000.0, 1000000.0])
    if family == "gemma3_text":
        return {"rope_theta": base, "rope_local_base_freq": 300.0,
                "rope_scaling": scaling}
    if chance.random() < 0.5:
        return {"rope_parameters": {**scaling, "rope_theta": base}}
    return {"rope_theta": base, "rope_scaling": scaling}


def draw(seed, families):
    """The config.json of a seed."""
    chance = random.Random(seed)
    family = chance.choice(families)
    layers, heads = chance.choice([1, 2, 4]), chance.choice([1, 3, 4, 6])
    config = {"model_type": family, "vocab_size": chance.choice([37, 64]),
              "hidden_size": heads * chance.choice([8, 16]),
              "intermediate_size": chance.choice([12, 27]),
              "num_hidden_layers": layers, "num_attention_heads": heads,
              "max_position_embeddings": 64, "pad_token_id": None,
              "bos_token_id": 1, "eos_token_id": 2}
    for name, values in FAMILIES[family].items():
        if values == "groups":
            values = [n for n in range(1, heads + 1) if heads % n == 0]
        elif values == "types":
            types = [t.replace("sliding", "chunked" if "llama4" in family else
                               "sliding") for t in TYPES]
            values = [ABSENT, [chance.choice(types) for _ in range(layers)]]
        elif values == "chosen":  # of the experts that were drawn before
            most = config.get("num_experts", config.get("num_local_experts"))
            values = range(1, min(most, 4) + 1)
        elif values == "long or none":
            half = config["hidden_size"] // heads // 2
            values = [{"rope_type": "default"}] + [
                {"type": "longrope", "short_mscale": 1.2, "long_mscale": 1.3,
                 "short_factor": [1 + i / 9 for i in range(half)],
                 "long_factor": [1.5 + i for i in range(half)],
                 "original_max_position_embeddings": n} for n in (16, 40)]
        elif values == "all groups":
            values = [config["n_group"]]
        elif values == "dense first":
            first = chance.choice(range(layers))
            values = [["dense"] * first + ["sparse"] * (layers - first)]
        elif values == "first":
            values = range(layers)
        elif values == "layers":
            values = [ABSENT, [], [chance.randrange(layers)]]
        elif values == "some layers":
            values = [ABSENT, sorted({chance.randrange(layers), layers - 1})]
        elif values in ("flags", "flags or none"):
            values = ([[]] if values != "flags" else []) + [
                ABSENT, [chance.randint(0, 1) for _ in range(layers)]]
        value = chance.choice(values)
        if name == "rope":
            config.update(rope_of(chance, family, value))
        elif value is not ABSENT:
            config[name] = value
    if "kv_lora_rank" in config:
        config["num_key_value_heads"] = heads
        if layers == 1 and family != "glm4_moe_lite":
            config["first_k_dense_replace"] = 0
    if family == "llama4_text" and layers == 1:
        config["interleave_moe_layer_step"] = 1
    if family in ("gpt2", "gptj", "falcon"):
        del config["intermediate_size"]
    if family == "falcon":  # the rest, transformers cannot run
        new = config["new_decoder_architecture"]
        config["parallel_attn"] |= new
        if not new:
            del config["num_kv_heads"], config["num_ln_in_parallel_attn"]
    if "dynamic" in json.dumps(config):  # sequences are longer, or not
        config["max_position_embeddings"] = chance.choice([11, 64])
    if family in ("gpt2", "gptj"):
        config = {NAMES_OLD.get(k, k): v for k, v in config.items()}
    return config


def lengths(module, args, kwargs):
    """The library forgets the length when it asks for factors; the model's own code
    takes long_factor in longer sequences."""
    length = int(kwargs["position_ids"].max()) + 1
    module.rope_init_fn = functools.partial(
        ROPE_INIT_FUNCTIONS["longrope"], seq_len=length)


def build(directory):
    """What transformers makes of a config.json, in float64 throughout."""
    config = transformers.AutoConfig.from_pretrained(directory)
    biased = getattr(config, "alibi", False)  # eager adds the biases twice
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="sdpa" if biased else "eager",
        dtype=F64).to(F64).eval()
    if config.model_type == "phimoe" and \
            config.rope_parameters["rope_type"] != "default":
        model.model.rotary_emb.register_forward_pre_hook(lengths, with_kwargs=True)
    if any("experts" in name for name, _ in model.named_parameters()):
        model.set_experts_implementation("eager")  # others do not take float64
    return model


SPARSE = {"mixtral": "block_sparse_moe", "phimoe": "block_sparse_moe",
          "minimax_m2": "block_sparse_moe"}  # mlp
EXPERT = {family: ("w1", "w3", "w2") for family in SPARSE}


# Files that have all experts of a block in one tensor, under other names.
RENAMED = {"granitemoe": {"experts.gate_up_proj": "input_linear.weight",
                          "experts.down_proj": "output_linear.weight",
                          "router.weight": "router.layer.weight"},
           "gpt_oss": {}, "llama4_text": {}}
RENAMED["granitemoeshared"] = RENAMED["granitemoe"]


def pieces(name, family, value):
    """Names in files, with their parts of a tensor of version 5, which has all
    experts of a block in two tensors, and calls GPT-NeoX's head otherwise."""
    if family in RENAMED:
        for inside, outside in RENAMED[family].items():
            if name.endswith("." + inside):
                name = name.removesuffix(inside) + outside
        yield name, value
        return
    if (family, name) == ("gpt_neox", "lm_head.weight"):
        name = "embed_out.weight"
    name = name.replace("mlp.gate.moe_statics", "mlp.moe_statics")
    block, _, last = name.rpartition(".mlp.")
    if family in SPARSE and block:
        last = last.replace("router.", "gate.")
        name = f"{block}.{SPARSE[family]}.{last}"
    gate, up, down = EXPERT.get(family, ("gate_proj", "up_proj", "down_proj"))
    stem, _, last = name.rpartition(".experts.")
    if last == "gate_up_proj":
        for i, one in enumerate(value):
            half = one.shape[0] // 2
            yield f"{stem}.experts.{i}.{gate}.weight", one[:half]
            yield f"{stem}.experts.{i}.{up}.weight", one[half:]
    elif last == "down_proj":
        for i, one in enumerate(value):
            yield f"{stem}.experts.{i}.{down}.weight", one
    else:
        yield name, value


def tensors(model):
    """Parameters, and biases of the choice of experts, which are buffers."""
    yield from model.named_parameters()
    for name, value in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            yield name, value


def fill(model, generator):
    """Values that float32 holds; weights of norms near what leaves x alone."""
    with torch.no_grad():
        for name, value in tensors(model):
            drawn = torch.randn(value.shape, generator=generator, dtype=F64) * 0.15
            last = name.split(".")[-2]
            if "gemma" not in model.config.model_type and name.endswith(
                    "weight") and ("norm" in last or last.startswith("ln")):
                drawn += 1
            value.copy_(drawn.to(F32).to(F64))


def distance(found, wanted):
    """Of the largest value; where all vanish (a window of one token), of 1e-3."""
    return ((found - wanted).abs().max()
            / wanted.abs().max().clamp_min(1e-3)).item()


def load(path):
    return {name: torch.from_numpy(value).to(F64)
            for name, value in load_file(path).items()}


def call(lockstep, *words):
    done = subprocess.run([lockstep, *map(str, words)], capture_output=True,
                          text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr.strip().splitlines()[0])


def compare(lockstep, directory, config, seed):
    """The largest of all distances."""
    family = config["model_type"]
    generator = torch.Generator().manual_seed(seed)
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    model = build(directory)
    fill(model, generator)
    tokens = torch.randint(0, config["vocab_size"], (2, LENGTH), generator=generator)
    if (pad := getattr(model.config, "pad_token_id", None)) is not None:
        pad %= config["vocab_size"]  # the library gives its row no gradient
        tokens[tokens == pad] = (pad + 1) % config["vocab_size"]
    (directory / "tokens.json").write_text(json.dumps(tokens.tolist()))
    logits = model(tokens, use_cache=False).logits
    torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1),
                                      tokens[:, 1:].flatten()).backward()
    save_file({outside: piece.detach().to(F32).contiguous()
               for name, value in tensors(model)
               for outside, piece in pieces(name, family, value)},
              directory / "model.safetensors", metadata={"format": "pt"})
    call(lockstep, "score", directory, "--tokens", directory / "tokens.json",
         "--dtype", "float64", "--logits", directory / "logits", "--gradients",
         directory / "gradients")
    call(lockstep, "import", directory, directory / "run")
    call(lockstep, "export", directory / "run", directory / "exported")
    gradients = load(directory / "gradients")
    worst = distance(load(directory / "logits")["logits"], logits.detach())
    for name, value in model.named_parameters():
        if not value.requires_grad:
            continue
        for outside, piece in pieces(name, family, value.grad):
            worst = max(worst, distance(gradients.pop(outside), piece))
    if gradients:
        raise ValueError(f"gradients that nobody knows: {sorted(gradients)}")
    again = build(directory / "exported")
    stored = load(directory / "exported" / "model.safetensors")
    with torch.no_grad():
        for name, value in tensors(again):
            for outside, piece in pieces(name, family, value):
                piece.copy_(stored[outside])
        return max(worst, distance(again(tokens, use_cache=False).logits,
                                   logits.detach()))


def published(path, names):
    """Name and config.json; not those that are refused, nor models of images."""
    for line in pathlib.Path(path).read_text().splitlines():
        row = json.loads(line)
        if (not names or row["name"] in names) and "refused" not in row \
                and "text_config" not in row["config"]:
            yield row["name"], row["config"]


def cases():
    if sys.argv[2].endswith(".jsonl"):
        yield from published(sys.argv[2], sys.argv[3:])
        return
    for seed in range(int(sys.argv[2]), int(sys.argv[3])):
        yield seed, draw(seed, sys.argv[4:] or list(FAMILIES))


def float64_throughout():
    torch.Tensor.float = lambda tensor: tensor.to(F64)
    torch.float32 = torch.float = F64  # what transformers takes for inner steps
    torch.set_default_dtype(F64)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    lockstep = sys.argv[1]
    transformers.logging.set_verbosity_error()
    float64_throughout()
    failures = 0
    for seed, config in cases():
        directory = pathlib.Path(tempfile.mkdtemp(prefix=f"drawn-{seed}-"))
        try:
            worst = compare(lockstep, directory, config,
                            seed if isinstance(seed, int) else len(seed))
            verdict = f"differs by {worst:.1e}"
        except ValueError as refusal:
            worst, verdict = 1, str(refusal)
        print(f"{seed} {config['model_type']}: {verdict}", flush=True)
        if worst > TOLERANCE:
            failures += 1
            print(f"  kept: {directory}")
        else:
            shutil.rmtree(directory)
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
