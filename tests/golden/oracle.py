# SPDX-License-Identifier: Apache-2.0
"""Llama, its relatives and GPT-2 in plain PyTorch float64: the oracle of the golden files.

The transformers library computes norms, softmax and rotary angles in float32
even when a model is float64, which costs nine digits. Here every operation is
float64, and the scripts that use it compare it with transformers, so that a
mistake in these few lines would show as a difference far above 1e-5.

Weights are dictionaries under Hugging Face names. Nothing here is fast.
"""
import math

import torch

F64 = torch.float64


class Hooks:
    """What an experiment does to activations on their way: here, nothing."""

    def drop(self, x, block, use):
        """Embeddings (block -1, use 0); what attention (1) and feed-forward (2)
        of a block add."""
        return x

    def scores(self, score):
        """Of one block, [sequences, heads, queries, keys], -inf: not seen."""

    def weights(self, probability):
        """The softmax of the scores that were shown last."""
        return probability


HOOKS = Hooks()  # a script may put its own here


def rms_norm(x, weight, epsilon):
    """Zhang and Sennrich 2019, equation 4."""
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon) * weight


def layer_norm(x, weight, bias, epsilon):
    """Ba et al. 2016, equation 4, with the variance of the population."""
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred / torch.sqrt(variance + epsilon) * weight + bias


def activation(name, x):
    if name in ("gelu_new", "gelu_pytorch_tanh"):
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)
        return 0.5 * x * (1 + torch.tanh(inner))
    if name == "gelu":
        return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
    if name == "relu":
        return torch.relu(x)
    if name == "silu":
        return x / (1 + torch.exp(-x))
    raise ValueError(f"activation {name} is not in the oracle")


def frequencies(config, width, length):
    """Angles per position [width / 2], and what multiplies cos and sin."""
    rope = dict(config.get("rope_parameters") or {})
    rope.update(config.get("rope_scaling") or {})
    base = float(rope.get("rope_theta") or config.get("rope_theta")
                 or config.get("rotary_emb_base") or 10000)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    longest = config.get("max_position_embeddings")
    if kind == "dynamic" and length > longest:
        base *= (1 + float(rope["factor"]) * (length / longest - 1)) ** (
            width / (width - 2))
    plain = base ** -(torch.arange(0, width, 2, dtype=F64) / width)
    if kind in ("default", "dynamic"):
        return plain, 1.0
    old = (rope.get("original_max_position_embeddings")
           or config.get("original_max_position_embeddings") or longest)
    if kind == "longrope":
        factors = rope["long_factor" if length > old else "short_factor"]
        stretch = rope.get("factor") or longest / old
        scale = 1 if stretch <= 1 else math.sqrt(
            1 + math.log(stretch) / math.log(old))
        return (plain / torch.tensor(factors, dtype=F64),
                rope.get("attention_factor") or scale)
    factor = float(rope["factor"])
    if kind == "linear":
        return plain / factor, 1.0
    if kind == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        turns = old * plain / (2 * math.pi)
        keep = ((turns - low) / (high - low)).clamp(0, 1)
        return plain * (keep + (1 - keep) / factor), 1.0
    if kind != "yarn":
        raise ValueError(f"rotary kind {kind} is not in the oracle")

    def pair(turns):
        return width * math.log(old / (turns * 2 * math.pi)) / 2 / math.log(base)

    def scale(weight):
        return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0

    low, high = pair(rope.get("beta_fast") or 32), pair(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    if low == high:
        high += 0.001
    ramp = ((torch.arange(width // 2, dtype=F64) - low) / (high - low)).clamp(0, 1)
    attention = rope.get("attention_factor")
    if attention is None:
        attention = scale(1)
        if rope.get("mscale") and rope.get("mscale_all_dim"):
            attention = scale(rope["mscale"]) / scale(rope["mscale_all_dim"])
    return plain * (1 - ramp) + plain / factor * ramp, attention


def rotate(x, config):
    """x [sequences, heads, length, width]: halves turned by position.

    Su et al. 2021, equation 34, in the half-split order of Hugging Face.
    """
    length, width = x.shape[-2:]
    frequency, scale = frequencies(config, width, length)
    angle = torch.outer(torch.arange(length, dtype=F64), frequency)
    cos, sin = scale * torch.cos(angle), scale * torch.sin(angle)
    first, second = x[..., : width // 2], x[..., width // 2:]
    return torch.cat((first * cos - second * sin,
                      second * cos + first * sin), -1)


def slopes(heads):
    """Of linear biases, one for each head: 2^(-8 i / n), i = 1 to n, of the power
    of two n; then those of 2 n at odd i. Press et al. 2022, section 3."""
    power = 1 << heads.bit_length() - 1
    first = [2.0 ** (-8 * i / power) for i in range(1, power + 1)]
    rest = [2.0 ** (-4 * i / power) for i in range(1, 2 * power, 2)]
    return torch.tensor(first + rest[:heads - power], dtype=F64)


def attention(q, k, v, scalar=None, cap=None, window=None, biased=False):
    """Causal; q, k, v [sequences, heads, length, width]."""
    length = q.shape[-2]
    score = q @ k.transpose(-1, -2)
    if biased:  # 8 significant bits, as Falcon's were trained
        score = score + torch.outer(
            slopes(q.shape[1]).bfloat16(),
            torch.arange(length).bfloat16()).to(F64)[:, None, :]
    score = score / math.sqrt(scalar or q.shape[-1])
    if cap:
        score = cap * torch.tanh(score / cap)
    seen = torch.ones(length, length, dtype=torch.bool).tril()
    if window:
        seen = seen.triu(1 - window)
    score = score.masked_fill(~seen, -math.inf)
    HOOKS.scores(score)
    return HOOKS.weights(torch.softmax(score, -1)) @ v


def window_of(config, layer):
    """How many tokens a token of that layer sees; None: all before it."""
    window, family = config.get("sliding_window"), config["model_type"]
    if family in ("mistral", "phi3", "starcoder2"):
        return window
    if family in ("qwen2", "qwen3", "smollm3") and not config.get(
            "use_sliding_window"):
        return None
    types = config.get("layer_types")
    if types:
        slides = types[layer] == "sliding_attention"
    elif family == "smollm3":
        slides = not config["no_rope_layers"][layer]
    elif family in ("qwen2", "qwen3"):
        slides = layer >= config["max_window_layers"]
    else:
        slides = family == "ministral"
    return window if slides else None


def heads_split(x, heads):
    sequences, length, width = x.shape
    return x.view(sequences, length, heads, width // heads).transpose(1, 2)


def heads_join(x):
    return x.transpose(1, 2).flatten(2)


def llama_logits(config, weights, tokens):
    """config: the dictionary of config.json. tokens [sequences, length]."""
    heads = config["num_attention_heads"]
    groups = config.get("num_key_value_heads") or heads
    epsilon = config["rms_norm_eps"]

    def linear(name, x):
        y = x @ weights[name + ".weight"].T
        bias = weights.get(name + ".bias")
        return y if bias is None else y + bias

    x = HOOKS.drop(weights["model.embed_tokens.weight"][tokens], -1, 0)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        h = rms_norm(x, weights[at + "input_layernorm.weight"], epsilon)
        q = rotate(heads_split(linear(at + "self_attn.q_proj", h), heads),
                   config)
        k = rotate(heads_split(linear(at + "self_attn.k_proj", h), groups),
                   config)
        v = heads_split(linear(at + "self_attn.v_proj", h), groups)
        k = k.repeat_interleave(heads // groups, 1)
        v = v.repeat_interleave(heads // groups, 1)
        window = window_of(config, layer)
        x = x + HOOKS.drop(linear(
            at + "self_attn.o_proj",
            heads_join(attention(q, k, v, window=window))), layer, 1)
        h = rms_norm(x, weights[at + "post_attention_layernorm.weight"],
                     epsilon)
        gate = activation(config["hidden_act"], linear(at + "mlp.gate_proj", h))
        h = gate * linear(at + "mlp.up_proj", h)
        x = x + HOOKS.drop(linear(at + "mlp.down_proj", h), layer, 2)
    x = rms_norm(x, weights["model.norm.weight"], epsilon)
    head = weights.get("lm_head.weight")
    return x @ (weights["model.embed_tokens.weight"] if head is None else head).T


def gpt2_logits(config, weights, tokens):
    epsilon = config["layer_norm_epsilon"]

    def norm(name, x):
        return layer_norm(x, weights[name + ".weight"], weights[name + ".bias"],
                          epsilon)

    def linear(name, x):  # Conv1D: weights are [in, out]
        return x @ weights[name + ".weight"] + weights[name + ".bias"]

    at = "transformer."
    x = weights[at + "wte.weight"][tokens]
    x = HOOKS.drop(x + weights[at + "wpe.weight"][: tokens.shape[1]], -1, 0)
    for layer in range(config["n_layer"]):
        at = f"transformer.h.{layer}."
        h = linear(at + "attn.c_attn", norm(at + "ln_1", x))
        q, k, v = (heads_split(part, config["n_head"])
                   for part in h.split(config["n_embd"], -1))
        scalar = None
        if config.get("scale_attn_by_inverse_layer_idx"):
            scalar = q.shape[-1] * (layer + 1) ** 2
        x = x + HOOKS.drop(linear(at + "attn.c_proj",
                                  heads_join(attention(q, k, v, scalar))),
                           layer, 1)
        h = linear(at + "mlp.c_fc", norm(at + "ln_2", x))
        h = activation(config["activation_function"], h)
        x = x + HOOKS.drop(linear(at + "mlp.c_proj", h), layer, 2)
    x = norm("transformer.ln_f", x)
    return x @ weights["transformer.wte.weight"].T


FAMILIES = {"llama": llama_logits, "gpt2": gpt2_logits,
            "mistral": llama_logits, "ministral": llama_logits,
            "qwen2": llama_logits}


def logits_of(config, weights, tokens):
    if config["model_type"] in FAMILIES:
        return FAMILIES[config["model_type"]](config, weights, tokens)
    import oracle_families
    return oracle_families.logits(config, weights, tokens)


def loss_of(logits, targets):
    """Mean over all targets; logits [..., vocabulary], targets [...]."""
    logits, targets = logits.flatten(0, -2), targets.flatten()
    chosen = logits.gather(1, targets[:, None])[:, 0]
    return (torch.logsumexp(logits, -1) - chosen).mean()


def next_token_loss(config, weights, tokens):
    """Loss of predicting tokens[:, 1:] from tokens[:, :-1], and all logits."""
    logits = logits_of(config, weights, tokens)
    return loss_of(logits[:, :-1], tokens[:, 1:]), logits


def shapes_of(config):
    """Hugging Face name -> shape, in the order of the model."""
    shapes = {}
    if config["model_type"] not in FAMILIES:
        import oracle_families
        return oracle_families.shapes(config)
    if config["model_type"] == "gpt2":
        width, inner = config["n_embd"], config["n_inner"] or 4 * config["n_embd"]
        shapes["transformer.wte.weight"] = (config["vocab_size"], width)
        shapes["transformer.wpe.weight"] = (config["n_positions"], width)
        for layer in range(config["n_layer"]):
            at = f"transformer.h.{layer}."
            for name, shape in (("ln_1", (width,)),
                                ("attn.c_attn", (width, 3 * width)),
                                ("attn.c_proj", (width, width)),
                                ("ln_2", (width,)),
                                ("mlp.c_fc", (width, inner)),
                                ("mlp.c_proj", (inner, width))):
                shapes[at + name + ".weight"] = shape
                shapes[at + name + ".bias"] = shape[-1:]
        shapes["transformer.ln_f.weight"] = (width,)
        shapes["transformer.ln_f.bias"] = (width,)
        return shapes
    width, inner = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    groups = config.get("num_key_value_heads") or heads
    head = config.get("head_dim") or width // heads
    shapes["model.embed_tokens.weight"] = (config["vocab_size"], width)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        shapes[at + "input_layernorm.weight"] = (width,)
        for name, rows, cols, biased in (
                ("self_attn.q_proj", heads * head, width, "attention_bias"),
                ("self_attn.k_proj", groups * head, width, "attention_bias"),
                ("self_attn.v_proj", groups * head, width, "attention_bias"),
                ("self_attn.o_proj", width, heads * head, "attention_bias"),
                ("mlp.gate_proj", inner, width, "mlp_bias"),
                ("mlp.up_proj", inner, width, "mlp_bias"),
                ("mlp.down_proj", width, inner, "mlp_bias")):
            shapes[at + name + ".weight"] = (rows, cols)
            if config.get(biased) or config["model_type"] == "qwen2" and \
                    name.split(".")[1] in ("q_proj", "k_proj", "v_proj"):
                shapes[at + name + ".bias"] = (rows,)
        shapes[at + "post_attention_layernorm.weight"] = (width,)
    shapes["model.norm.weight"] = (width,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], width)
    return shapes


def is_norm(name):
    return "norm" in name or ".ln_" in name or ".ln" in name


def weights_random(config, generator, scale):
    """Values that float32 holds exactly; norms near 1, biases not zero."""
    weights = {}
    for name, shape in shapes_of(config).items():
        value = torch.randn(shape, generator=generator, dtype=F64) * scale
        if is_norm(name) and name.endswith(".weight"):
            value = 1 + value
        weights[name] = value.to(torch.float32).to(F64)
    return weights
