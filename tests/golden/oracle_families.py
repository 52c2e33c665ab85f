# SPDX-License-Identifier: Apache-2.0
"""The other families in plain PyTorch float64: see oracle.py.

One block with switches; what a family switches, and what its tensors are
called, is in its entry of FAMILIES.
"""
import math

import torch

import oracle

LLAMA = dict(prefix="model.layers.{}.", embed="model.embed_tokens", head="lm_head",
             last="model.norm", norm1="input_layernorm",
             norm2="post_attention_layernorm", q="self_attn.q_proj",
             k="self_attn.k_proj", v="self_attn.v_proj", out="self_attn.o_proj",
             gate="mlp.gate_proj", up="mlp.up_proj", down="mlp.down_proj")
FALCON = dict(prefix="transformer.h.{}.", embed="transformer.word_embeddings",
              head="lm_head", last="transformer.ln_f",
              qkv="self_attention.query_key_value", out="self_attention.dense",
              up="mlp.dense_h_to_4h", down="mlp.dense_4h_to_h", layernorm=True,
              grouped=True, parallel=True)


def falcon(config):
    new = config.get("new_decoder_architecture")
    biased = config.get("bias", False)
    parts = {**FALCON, "norm1": "input_layernorm", "norm2": None,
             "kv": config["num_kv_heads"] if new
             else 1 if config.get("multi_query", True)
             else config["num_attention_heads"],
             "qkv_bias": biased, "out_bias": biased, "mlp_bias": biased,
             "slopes": config.get("alibi", False)}
    if new and config.get("num_ln_in_parallel_attn", 2) == 2:
        return {**parts, "norm1": "ln_attn", "norm2": "ln_mlp"}
    if not config.get("parallel_attn", True):
        return {**parts, "norm2": "post_attention_layernorm", "parallel": False}
    return parts


FAMILIES = {
    "qwen3": lambda c: {**LLAMA, "head_norms": "self_attn.{}_norm"},
    "olmo2": lambda c: {**LLAMA, "norm1": None, "norm2": None,
                        "after1": "post_attention_layernorm",
                        "after2": "post_feedforward_layernorm",
                        "whole_norms": "self_attn.{}_norm"},
    "phi3": lambda c: {**LLAMA, "qkv": "self_attn.qkv_proj",
                       "gate_up": "mlp.gate_up_proj"},
    "stablelm": lambda c: {**LLAMA, "layernorm": True, "biases": True,
                           "qkv_bias": c.get("use_qkv_bias", False),
                           "parallel": c.get("use_parallel_residual", False),
                           **({"norm2": None} if c.get("use_parallel_residual")
                              else {}),
                           **({"each_norm": "self_attn.{}_layernorm.norms.{}"}
                              if c.get("qk_layernorm") else {})},
    "starcoder2": lambda c: {**LLAMA, "layernorm": True, "gate": None,
                             "up": "mlp.c_fc", "down": "mlp.c_proj",
                             "biases": True, "qkv_bias": True, "out_bias": True,
                             "mlp_bias": True},
    "smollm3": lambda c: {**LLAMA, "skip": c["no_rope_layers"]},
    "gpt_neox": lambda c: dict(
        prefix="gpt_neox.layers.{}.", embed="gpt_neox.embed_in",
        head="embed_out", last="gpt_neox.final_layer_norm",
        norm1="input_layernorm", norm2="post_attention_layernorm",
        qkv="attention.query_key_value", out="attention.dense",
        up="mlp.dense_h_to_4h", down="mlp.dense_4h_to_h", layernorm=True,
        grouped=True, parallel=c.get("use_parallel_residual", True),
        biases=True, qkv_bias=True, out_bias=True, mlp_bias=True),
    "gptj": lambda c: dict(
        prefix="transformer.h.{}.", embed="transformer.wte", head="lm_head",
        last="transformer.ln_f", norm1="ln_1", norm2=None, q="attn.q_proj",
        k="attn.k_proj", v="attn.v_proj", out="attn.out_proj",
        up="mlp.fc_in", down="mlp.fc_out", layernorm=True, parallel=True,
        neighbours=True, biases=True, qkv_bias=False, out_bias=False,
        mlp_bias=True, head_bias=True),
    "falcon": falcon,
    "gemma2": lambda c: {
        **LLAMA, "plus_one": True, "scaled": True,
        "after1": "post_attention_layernorm",
        "norm2": "pre_feedforward_layernorm",
        "after2": "post_feedforward_layernorm"},
    "gemma3_text": lambda c: {
        **LLAMA, "plus_one": True, "scaled": True,
        "head_norms": "self_attn.{}_norm",
        "after1": "post_attention_layernorm",
        "norm2": "pre_feedforward_layernorm",
        "after2": "post_feedforward_layernorm"},
    "gemma": lambda c: {**LLAMA, "plus_one": True, "scaled": True},
    "palm": lambda c: {**LLAMA, "layernorm": True, "parallel": True,
                       "norm2": None},
}


class Shape:
    """Sizes under one name each."""

    def __init__(self, config):
        def first(*names, other=None):
            for name in names:
                if config.get(name) is not None:
                    return config[name]
            return other

        self.family = FAMILIES[config["model_type"]](config)
        self.width = first("hidden_size", "n_embd")
        self.layers = first("num_hidden_layers", "n_layer")
        self.heads = first("num_attention_heads", "n_head")
        self.kv = self.family.get("kv") or first("num_key_value_heads",
                                                 other=self.heads)
        self.head = first("head_dim", other=self.width // self.heads)
        self.inner = first("intermediate_size", "ffn_hidden_size", "n_inner",
                           other=4 * self.width)
        self.epsilon = first("rms_norm_eps", "layer_norm_eps", "norm_epsilon",
                             "layer_norm_epsilon")
        self.act = first("hidden_activation", "hidden_act", "activation", "activation_function",
                         other="gelu")
        rope = config.get("rope_parameters") or {}
        share = rope.get("partial_rotary_factor") or first(
            "partial_rotary_factor", "rotary_pct", other=1.0)
        self.rotary = first("rotary_dim", other=int(self.head * share))
        self.vocab = config["vocab_size"]
        self.tied = config["tie_word_embeddings"]


def turn(x, config, shape):
    """The first `rotary` elements of each head, in halves or neighbours."""
    part, rest = x[..., :shape.rotary], x[..., shape.rotary:]
    if shape.family.get("neighbours"):
        part = torch.cat((part[..., 0::2], part[..., 1::2]), -1)
    part = oracle.rotate(part, config)
    if shape.family.get("neighbours"):
        half = shape.rotary // 2
        part = torch.stack((part[..., :half], part[..., half:]), -1).flatten(-2)
    return torch.cat((part, rest), -1)


def rope_of(config, layer):
    """The configuration as a layer's kind of attention turns."""
    kinds = config.get("rope_parameters") or {}
    kind = (config.get("layer_types") or ["full_attention"] * (layer + 1))[layer]
    if kind in kinds:
        return {**config, "rope_parameters": kinds[kind]}
    if "rope_local_base_freq" in config and kind == "sliding_attention":
        return {**config, "rope_theta": config["rope_local_base_freq"],
                "rope_scaling": None}
    return config


def logits(config, weights, tokens):
    shape = Shape(config)
    family = shape.family

    def norm(name, x):
        if not name:
            return x
        if not family.get("layernorm"):
            weight = weights[name + ".weight"] + family.get("plus_one", 0)
            return oracle.rms_norm(x, weight, shape.epsilon)
        bias = weights.get(name + ".bias", torch.zeros(1, dtype=oracle.F64))
        return oracle.layer_norm(x, weights[name + ".weight"], bias, shape.epsilon)

    def linear(name, x):
        y = x @ weights[name + ".weight"].T
        bias = weights.get(name + ".bias")
        return y if bias is None else y + bias

    def split(at, h):
        q, kv = shape.heads * shape.head, shape.kv * shape.head
        if "qkv" not in family:
            return [linear(at + family[each], h) for each in "qkv"]
        fused = linear(at + family["qkv"], h)
        if not family.get("grouped"):
            return fused.split((q, kv, kv), -1)
        fused = fused.view(*h.shape[:2], shape.kv, -1, shape.head)
        return [part.flatten(2) for part in (
            fused[..., :-2, :], fused[..., -2:-1, :], fused[..., -1:, :])]

    def attention(at, layer, h):
        q, k, v = split(at, h)
        whole = family.get("whole_norms")
        if whole:
            q = norm(at + whole.format("q"), q)
            k = norm(at + whole.format("k"), k)
        q = oracle.heads_split(q, shape.heads)
        k, v = (oracle.heads_split(each, shape.kv) for each in (k, v))
        each = family.get("head_norms")
        if each:
            q = norm(at + each.format("q"), q)
            k = norm(at + each.format("k"), k)
        each = family.get("each_norm")
        if each:
            q, k = (torch.stack([norm(at + each.format(name, i), x[:, i])
                                 for i in range(x.shape[1])], 1)
                    for name, x in (("q", q), ("k", k)))
        if family.get("skip", [1] * shape.layers)[layer] and not family.get(
                "slopes"):
            rope = rope_of(config, layer)
            q, k = turn(q, rope, shape), turn(k, rope, shape)
        k = k.repeat_interleave(shape.heads // shape.kv, 1)
        v = v.repeat_interleave(shape.heads // shape.kv, 1)
        y = oracle.heads_join(oracle.attention(
            q, k, v, config.get("query_pre_attn_scalar"),
            config.get("attn_logit_softcapping"),
            oracle.window_of(config, layer), family.get("slopes")))
        return linear(at + family["out"], y)

    def feed_forward(at, h):
        if "gate_up" in family:
            gate, up = linear(at + family["gate_up"], h).chunk(2, -1)
            h = oracle.activation(shape.act, gate) * up
        elif family.get("gate"):
            h = (oracle.activation(shape.act, linear(at + family["gate"], h))
                 * linear(at + family["up"], h))
        else:
            h = oracle.activation(shape.act, linear(at + family["up"], h))
        return linear(at + family["down"], h)

    def at_norm(at, name, x):
        return norm(at + family[name], x) if family.get(name) else x

    x = weights[family["embed"] + ".weight"][tokens]
    if family.get("scaled"):
        x = x * math.sqrt(shape.width)
    for layer in range(shape.layers):
        at = family["prefix"].format(layer)
        h = at_norm(at, "norm1", x)
        a = at_norm(at, "after1", attention(at, layer, h))
        if family.get("parallel"):
            h = at_norm(at, "norm2", x) if family.get("norm2") else h
            x = x + a + feed_forward(at, h)
        else:
            x = x + a
            h = at_norm(at, "norm2", x)
            x = x + at_norm(at, "after2", feed_forward(at, h))
    x = norm(family["last"], x)
    y = linear(family["embed" if shape.tied else "head"], x)
    cap = config.get("final_logit_softcapping")
    return cap * torch.tanh(y / cap) if cap else y


def shapes(config):
    """Hugging Face name -> shape, in the order of the model."""
    s, out = Shape(config), {}
    family = s.family
    q, kv = s.heads * s.head, s.kv * s.head

    def norm(name, width=s.width):
        if name:
            out[name + ".weight"] = (width,)
            if family.get("layernorm") and ".norms." not in name \
                    and config["model_type"] != "palm":
                out[name + ".bias"] = (width,)

    def linear(name, rows, cols, biased):
        out[name + ".weight"] = (rows, cols)
        if biased:
            out[name + ".bias"] = (rows,)

    attention_bias = config.get("attention_bias", False)
    biased = family.get("qkv_bias", attention_bias)
    out[family["embed"] + ".weight"] = (s.vocab, s.width)
    for layer in range(s.layers):
        at = family["prefix"].format(layer)
        norm(family.get("norm1") and at + family["norm1"])
        if "qkv" in family:
            linear(at + family["qkv"], q + 2 * kv, s.width, biased)
        else:
            for each, rows in zip("qkv", (q, kv, kv)):
                linear(at + family[each], rows, s.width, biased)
        for key, widths in (("head_norms", (s.head, s.head)),
                            ("whole_norms", (q, kv))):
            for each, width in zip("qk", widths):
                if key in family:
                    norm(at + family[key].format(each), width)
        for each, count in (("q", s.heads), ("k", s.kv)):
            for i in range(count if "each_norm" in family else 0):
                norm(at + family["each_norm"].format(each, i), s.head)
        linear(at + family["out"], s.width, q, family.get(
            "out_bias", False if family.get("biases") else attention_bias))
        norm(family.get("after1") and at + family["after1"])
        norm(family.get("norm2") and at + family["norm2"])
        inner = family.get("mlp_bias", config.get("mlp_bias", False))
        if "gate_up" in family:
            linear(at + family["gate_up"], 2 * s.inner, s.width, inner)
        else:
            if family.get("gate"):
                linear(at + family["gate"], s.inner, s.width, inner)
            linear(at + family["up"], s.inner, s.width, inner)
        linear(at + family["down"], s.width, s.inner, inner)
        norm(family.get("after2") and at + family["after2"])
    norm(family["last"])
    if not s.tied:
        out[family["head"] + ".weight"] = (s.vocab, s.width)
        if family.get("head_bias"):
            out[family["head"] + ".bias"] = (s.vocab,)
    return out
