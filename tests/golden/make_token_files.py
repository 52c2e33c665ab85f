# SPDX-License-Identifier: Apache-2.0
"""make_token_files.py - token files from the writers of other projects.

    python3 tests/golden/make_token_files.py    writes tests/golden/data/

megatron-core 0.16.1 writes the pairs, datatrove 0.10.1 the nanosets, NumPy 2.3.5
the arrays. tests/unit/data/test_token_foreign.c knows what is in them.
"""
import importlib.util
import os
import sys
import types

import numpy as np
import torch

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")


def indexed_dataset():
    """Megatron's writer alone: its package wants a GPU's libraries."""
    root = importlib.util.find_spec("megatron").submodule_search_locations[0]
    for name in ("megatron", "megatron.core", "megatron.core.datasets"):
        module = types.ModuleType(name)
        module.__path__ = [root + name[len("megatron"):].replace(".", "/")]
        sys.modules[name] = module
    utils = types.ModuleType("megatron.core.utils")
    utils.log_single_rank = lambda *args, **options: None
    sys.modules["megatron.core.utils"] = utils
    from megatron.core.datasets import indexed_dataset as module
    return module


def megatron(name, kind):
    path = os.path.join(HERE, name)
    builder = indexed_dataset().IndexedDatasetBuilder(path + ".bin", dtype=kind)
    for document in ([5, 6, 7], [8, 9], [], [10]):
        builder.add_document(torch.tensor(document, dtype=torch.long),
                             [len(document)])
    builder.add_item(torch.tensor([1, 2]))  # one document of two sequences
    builder.add_item(torch.tensor([3]))
    builder.end_document()
    builder.finalize(path + ".idx")


def nanoset(name, size):
    from datatrove.pipeline.tokens.tokenizer import TokenizedFile
    out = TokenizedFile(HERE, name, save_final_metadata=True, token_size=size,
                        tokenizer_name_or_path="none")
    for document in ([5, 6, 7], [8, 9], [10], [1, 2, 3]):
        out.write(document, None)
    out.close()


def main():
    os.makedirs(HERE, exist_ok=True)
    megatron("megatron_u16", np.uint16)
    megatron("megatron_i32", np.int32)
    nanoset("nanoset_2.ds", 2)
    nanoset("nanoset_4.ds", 4)
    for name, kind in (("numpy_u2", "<u2"), ("numpy_i8", "<i8")):
        np.save(os.path.join(HERE, name + ".npy"),
                np.array([5, 6, 7, 0, 8, 9, 0], dtype=kind))


if __name__ == "__main__":
    main()
