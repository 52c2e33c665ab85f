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
from tokenizer_golden import NASTY, TRAINING, added  # noqa: E402
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
RULES = """\
A\ta
B\tb
C\tc
½\t1⁄2
ﬁ\tfi
①\t1
②\t2
Ｆ\tf
é\te
e\u0301\te
\t\u0020
\r\t\u0020
\n\t\u0020
\u00a0\t\u0020
\u3000\t\u0020
\u200b\t
\u0001\t
""".replace("\t\u0020\n\r", "\t\u0020\n\r")


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
    yield "unigram_bytes", unigram(None, metaspace("first", True),
                                   fallback=True)


def charsmap():
    """RULES as SentencePiece compiles them."""
    import tempfile
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as pb
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        for line in RULES.split("\n"):
            left, tab, right = line.partition("\t")
            if not line:
                continue
            if left == "" and tab:  # a tab itself
                left, right = "\t", " "
            file.write("%s\t%s\n" % (
                " ".join("%X" % ord(c) for c in left),
                " ".join("%X" % ord(c) for c in right)))
        file.write("A\t20\nD\t20\n")
        file.flush()
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TRAINING.split("\n")), model_writer=model,
            vocab_size=300, normalization_rule_tsv=file.name,
            minloglevel=2)
    proto = pb.ModelProto()
    proto.ParseFromString(model.getvalue())
    return proto.normalizer_spec.precompiled_charsmap


def file_kinds(folder):
    """Files of other libraries: (name, encode, vocabulary, path)."""
    return iter(())


def real_kinds(folder):
    """Real tokenizers inside installed packages."""
    import importlib.util
    spec = importlib.util.find_spec("litellm")
    if spec is not None:
        base = os.path.join(os.path.dirname(spec.origin), "litellm_core_utils",
                            "tokenizers")
        path = os.path.join(base, "anthropic_tokenizer.json")
        t = Tokenizer.from_file(path)
        yield ("real anthropic", lambda s: t.encode(s).ids,
               list(t.get_vocab()), path)


def main():
    os.makedirs(HERE, exist_ok=True)
    ids, text = {}, {}
    for name, tokenizer in json_kinds():
        tokenizer.save(os.path.join(HERE, name + ".json"), pretty=False)
        ids[name] = [tokenizer.encode(t).ids for t in TEXTS]
        text[name] = [tokenizer.decode(
            tokenizer.encode(t, add_special_tokens=False).ids,
            skip_special_tokens=False) for t in TEXTS]
    with open(os.path.join(HERE, "expected.json"), "w") as file:
        json.dump({"texts": TEXTS, "ids": ids, "decoded": text}, file,
                  separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
