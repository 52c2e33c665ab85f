#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Changes each field of a config.json, one at a time, beside transformers.

    python3 tests/golden/check_keys.py LOCKSTEP [--seed N] [FAMILY...]

For each family it draws a config.json (check_drawn.py), lets transformers write it
with all of its fields, gives each field that any family has other values, and leaves
each out. The program may refuse a value (exit 78 or 65); where it takes it, its logits must be those
of transformers in float64. Prints what differs; a refusal is no fault. Exit 1: a field was passed over, or something failed
otherwise. Needs torch and transformers.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import save_file

import check_drawn
from check_drawn import ABSENT, F32, build, distance, fill, load, pieces, tensors

# What transformers writes about itself, or what the tokens of the test need.
LEFT = {"model_type", "architectures", "transformers_version", "vocab_size",
        "pad_token_id", "dtype", "torch_dtype"}
LONG = ("max_position_embeddings", "sliding_window", "original_max_position_embeddings")
WORDS = ["relu", "gelu", "silu", "gelu_pytorch_tanh", "sigmoid", "softmax", "none"]
# Of version 4, of released files, or read by other programs.
MORE = {"rope_theta": 77.0, "rotary_emb_base": 77.0, "rotary_pct": 0.5, "head_dim": 6,
        "partial_rotary_factor": 0.5, "sliding_window": 3, "sliding_window_size": 3,
        "use_sliding_window": True, "max_window_layers": 1, "layer_types": [],
        "rope_local_base_freq": 77.0, "sliding_window_pattern": 2,
        "_sliding_window_pattern": 2, "no_rope_layer_interval": 2, "hidden_act": "relu",
        "hidden_activation": "relu", "activation_function": "relu", "activation": "relu",
        "rms_norm_eps": 0.1, "layer_norm_eps": 0.1, "layer_norm_epsilon": 0.1,
        "norm_epsilon": 0.1, "n_ctx": 8, "n_embd": 24, "n_head": 2, "n_layer": 1,
        "num_key_value_heads": 1, "num_kv_heads": 1, "multi_query": True,
        "attention_bias": True, "qkv_bias": True, "mlp_bias": True, "use_bias": True,
        "bias": True, "lm_head_bias": True, "tie_word_embeddings": True,
        "scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True,
        "reorder_and_upcast_attn": True, "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 2.0, "query_pre_attn_scalar": 3.0, "clip_qkv": 0.01,
        "logits_scaling": 3.0, "residual_multiplier": 0.3, "embedding_multiplier": 3.0,
        "attention_multiplier": 0.7, "norm_topk_prob": True, "num_experts_per_tok": 2,
        "n_group": 2, "topk_group": 1, "routed_scaling_factor": 3.0,
        "scoring_func": "softmax", "topk_method": "greedy", "moe_layer_freq": 2,
        "first_k_dense_replace": 1, "decoder_sparse_step": 2, "mlp_only_layers": [0],
        "n_shared_experts": 2, "shared_expert_intermediate_size": 12,
        "use_qk_norm": True, "qk_layernorm": True, "use_parallel_residual": False,
        "parallel_attn": False, "alibi": True, "rotary_dim": 2, "rope_interleave": False,
        "rope_interleaved": True, "use_mrope": True, "pretraining_tp": 2,
        "original_max_position_embeddings": 8, "max_position_embeddings": 8,
        "rope_scaling": {"type": "linear", "factor": 3.0},
        "rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 77.0},
        "attention_chunk_size": 2, "attn_temperature_tuning": True, "floor_scale": 2,
        "attn_scale": 0.5, "no_rope_layers": [], "moe_layers": [0], "swiglu_limit": 0.1,
        "interleave_moe_layer_step": 2, "moe_layer_start_index": 1,
        "moe_layer_end_index": 1, "moe_layer_interval": 2, "moe_norm_min": 0.5,
        "mlp_layer_types": [], "router_jitter_noise": 0.3, "input_jitter_noise": 0.3,
        "chunk_size_feed_forward": 4, "is_decoder": True, "add_cross_attention": True,
        "is_encoder_decoder": True, "pruned_heads": {"0": [0]}, "hidden_dropout": 0.1,
        "use_cache": False, "n_inner": 12, "intermediate_size": 12,
        "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4,
        "use_bidirectional_attention": True, "sinks": False, "bos_token_id": 3,
        "is_causal": False, "attention_dropout": 0.1,
        "apply_residual_connection_post_layernorm": True,
        "new_decoder_architecture": True, "num_ln_in_parallel_attn": 1,
        "ffn_hidden_size": 20, "mlp_type": "gated", "norm_type": "rms_norm",
        "full_attn_mod": 2, "interpolate_factor": 2, "attn_type_list": [0],
        "quantization_config": {"quant_method": "fp8"}, "attention_out_bias": True,
        "num_nextn_predict_layers": 1, "moe_k": 1, "q_lora_rank": 5, "ep_size": 2,
        "max_sequence_length": 8, "context_length": 8, "hidden_size_per_layer": 8,
        "attention_sinks": True, "causal": False, "norm_bias": True, "logit_scale": 2.0,
        "swiglu_alpha": 0.9, "initial_context_length": 8, "temperature": 3.0}


def values(value, layers):
    """Others of the same kind, or of any where it is null."""
    if value is None:
        return [True, 1, 2, 0.5]
    if isinstance(value, bool):
        return [not value, None]
    if isinstance(value, int):
        return [n for n in (0, 1, 2, 3, value + 1, 2 * value) if n != value] + [None]
    if isinstance(value, float):
        return [0.0, 0.5 * value + 0.1, 3.0 * value, None]
    if isinstance(value, str):
        return [word for word in WORDS if word != value] + [None]
    if isinstance(value, list):
        return [[], value[::-1], value[:1] * layers, value + value[:1], None]
    return [None]


def changes(full, layers, defaults):
    """(field, value): of each field, and of fields that other families have. Defaults
    that make a model large are left out."""
    for key, value in full.items():
        if key in LEFT:
            continue
        for other in values(value, layers):
            yield key, other
        usual = defaults.get(key)
        if not isinstance(usual, int) or usual <= 512 or key in LONG:
            yield key, ABSENT
        if isinstance(value, dict):
            for inner, old in value.items():
                for other in values(old, layers):
                    yield key, {**value, inner: other}
    for key, value in MORE.items():
        if full.get(key) != value:
            yield key, value


def run(lockstep, directory):
    return subprocess.run(
        [lockstep, "score", directory, "--tokens", directory / "tokens.json", "--dtype",
         "float64", "--logits", directory / "logits"], capture_output=True, text=True,
        check=False)


def write(directory, config):
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def made(directory, config, seed, tokens):
    """The logits of transformers; it writes the weights."""
    model = build(directory)
    fill(model, torch.Generator().manual_seed(seed))
    save_file({outside: piece.detach().to(F32).contiguous()
               for name, value in tensors(model)
               for outside, piece in pieces(name, config["model_type"], value)},
              directory / "model.safetensors", metadata={"format": "pt"})
    with torch.no_grad():
        return model(tokens, use_cache=False).logits


def begin(directory, config, seed):
    """Everything that transformers says of a configuration, tokens, logits."""
    write(directory, config)
    tokens = torch.randint(3, config["vocab_size"], (2, 29),
                           generator=torch.Generator().manual_seed(seed))
    (directory / "tokens.json").write_text(json.dumps(tokens.tolist()))
    full = {**transformers.AutoConfig.from_pretrained(directory).to_dict(), **config}
    if "rope_parameters" in full:  # one spelling; version 5 writes this one
        for key in ("rope_scaling", "rope_theta", "partial_rotary_factor"):
            if key not in config:
                full.pop(key, None)
    write(directory, full)
    return full, tokens, made(directory, full, seed, tokens)


def one(lockstep, directory, config, case):
    """What is wrong with a change, or None; and whether it was refused."""
    seed, tokens, base = case
    write(directory, config)
    first = run(lockstep, directory)
    said = (first.stderr.strip() or "no word").splitlines()[0]
    if first.returncode in (65, 78) and "weight" not in said and "tensor" not in said:
        return None, True
    try:
        wanted = made(directory, config, seed, tokens)
    except Exception as error:  # whatever transformers raises
        if first.returncode == 0:
            return f"only we take it: {str(error).splitlines()[0][:90]}", False
        return None, True
    second = run(lockstep, directory)
    said = (second.stderr.strip() or "no word").splitlines()[0]
    if second.returncode in (65, 78):
        return None, True
    if second.returncode:
        return f"exit code {second.returncode}: {said}", False
    found = load(directory / "logits")["logits"]
    if found.shape != wanted.shape:
        return f"shape {tuple(found.shape)}, not {tuple(wanted.shape)}", False
    gap = distance(found, wanted)
    heeded = wanted.shape != base.shape or distance(base, wanted) > 1e-9
    if not gap <= check_drawn.TOLERANCE:
        return f"differs by {gap:.1e}; transformers " + (
            "heeds it" if heeded else "does not heed it"), False
    return None, False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("family", nargs="*")
    args = parser.parse_intermixed_args()
    for family in args.family:
        if family not in check_drawn.FAMILIES:
            parser.error(f"{family}: transformers has no such family (palm is of none; "
                         f"oracle_families.py has it); expected of "
                         f"{', '.join(check_drawn.FAMILIES)}")
    transformers.logging.set_verbosity_error()
    check_drawn.float64_throughout()
    torch.set_num_threads(1)
    faults = 0
    for family in args.family or list(check_drawn.FAMILIES):
        room = pathlib.Path(tempfile.mkdtemp(prefix=f"keys-{family}-"))
        config = check_drawn.draw(args.seed, [family])
        full, tokens, base = begin(room, config, args.seed)
        layers = full.get("num_hidden_layers", full.get("n_layer", 1))
        count = refused = 0
        if run(args.lockstep, room).returncode:
            print(f"{family}: what transformers writes is refused", flush=True)
            faults += 1
        defaults = type(transformers.AutoConfig.from_pretrained(room))().to_dict()
        for key, value in changes(full, layers, defaults):
            changed = {k: v for k, v in {**full, key: value}.items()
                       if v is not ABSENT}
            wrong, is_refused = one(args.lockstep, room, changed,
                                    (args.seed, tokens, base))
            count += 1
            refused += is_refused
            if wrong:
                faults += not wrong.startswith("only we")
                shown = "left out" if value is ABSENT else json.dumps(value)
                print(f"{family}: {key}: {shown} (was "
                      f"{json.dumps(full.get(key))}): {wrong}", flush=True)
        print(f"{family}: {count} changes, {refused} refused", flush=True)
        shutil.rmtree(room)
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
