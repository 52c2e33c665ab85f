# SPDX-License-Identifier: Apache-2.0
"""The shapes that programs are compared on."""

# name: kind, vocabulary, width, feed-forward, layers, heads, key-value heads,
# batch, length: the presets of src/bench/step.c
PRESETS = {
    "gpt2-124m": ("gpt2", 50257, 768, 3072, 12, 12, 12, 4, 256),
    "gpt2-1.5b": ("gpt2", 50257, 1600, 6400, 48, 25, 25, 1, 1024),
    "llama-1b": ("llama", 128256, 2048, 8192, 16, 32, 8, 1, 4096),
    "llama-58m": ("llama", 32000, 512, 1376, 8, 8, 8, 8, 512),
    "llama-10m": ("llama", 8192, 288, 768, 6, 6, 6, 16, 256),
    "llama-1m": ("llama", 2048, 128, 352, 4, 4, 2, 16, 128),
}
