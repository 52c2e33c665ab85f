# SPDX-License-Identifier: Apache-2.0
"""Random tokenizers, through Lockstep and through the libraries.

    make build/liblockstep.a
    python3 tests/golden/tokenizer_random.py [--count N] [--seed N] [--only KIND]

Each tokenizer is put together by chance from the parts that published ones
have: models, normalizers, pre-tokenizers, added tokens, post-processors and
decoders of `tokenizers`, SentencePiece's training options, tiktoken with the
published patterns. Ids, places and decoded text of random texts must be those
of the library, or the file must be refused with a sentence. What differs is
printed with the tokenizer, and the exit status is 1. Not part of CI: it needs
the packages and some minutes.
"""
import argparse
import collections
import json
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tokenizer_families as families  # noqa: E402
import tokenizer_fuzz as fuzz  # noqa: E402
import tokenizer_golden as golden  # noqa: E402
from tokenizers import (AddedToken, Regex, Tokenizer, decoders,  # noqa: E402
                        models, normalizers, pre_tokenizers, processors,
                        trainers)

MARK = families.MARK
LINES = golden.TRAINING.split("\n")
HAN = r"[\p{Han}]+"
KIMI = "|".join([
    HAN,
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+",
    r"\s+(?!\S)", r"\s+"])
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
            r"|\s+(?!\S)|\s+",
    "llama3": golden.LLAMA3, "qwen2": golden.QWEN2, "o200k": golden.O200K,
    "tekken": families.TEKKEN, "kimi": KIMI,
    "deepseek_coder": r"\s?\p{L}+",
    "deepseek_3": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
                  r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
                  r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek_cjk": "[一-龥\u3040-ゟ゠-ヿ]+",
    "digits3": r"\p{N}{1,3}", "digit": r"\p{N}", "newlines": r"[\r\n]",
    "falcon": r"[0-9][0-9][0-9]",
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "glm4": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
            r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "dbrx": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
            r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "command_r": r"\p{N}{1,3}(?=(\p{N}{3})*\b)",
    "han_digits": r"[\p{Han}]|\d",
    "words": r"\w+|[^\w\s]+", "spaces": r"\s+", "letters": r"[a-m]+",
    "seed_oss": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
                r"|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
    "minimax": r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+"
               r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
BEHAVIORS = ["removed", "isolated", "merged_with_previous",
             "merged_with_next", "contiguous"]
CONTENTS = ["<mark>", "<s>x", "the", " ship", "ﬁn", "<|a|>", "<|a|>b", "É",
            "\n", "  ", "keeper's", "[X]", MARK, "e\u0301"]


def some(rng, items, most):
    return [rng.choice(items) for _ in range(rng.randint(0, most))]


def random_normalizer(rng):
    makers = [
        normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD,
        lambda: normalizers.Prepend(MARK),
        lambda: normalizers.Prepend(rng.choice(["ab", "é ", " "])),
        lambda: normalizers.Replace(" ", MARK),
        lambda: normalizers.Replace(Regex(" {2,}"), " "),
        lambda: normalizers.Replace(Regex(r"\s+"), " "),
        lambda: normalizers.Replace("e", rng.choice(["", "é", "xy"])),
        lambda: normalizers.Replace(Regex("[aeiou]+"),
                                    rng.choice(["", "ü", "--"])),
        lambda: normalizers.Strip(rng.random() < .5, rng.random() < .5),
        lambda: normalizers.Precompiled(CHARSMAP),
        normalizers.Lowercase, normalizers.StripAccents, normalizers.Nmt]
    steps = [make() for make in some(rng, makers, 3)]
    if not steps:
        return None
    return steps[0] if len(steps) == 1 and rng.random() < .5 else \
        normalizers.Sequence(steps)


CHARSMAP = None


def random_split(rng):
    pattern = rng.choice(list(PATTERNS.values()))
    if rng.random() < .2:
        return pre_tokenizers.Split(rng.choice([" ", "e", "the", "船", "\n"]),
                                    rng.choice(BEHAVIORS), rng.random() < .2)
    behavior = "isolated" if rng.random() < .6 else rng.choice(BEHAVIORS)
    return pre_tokenizers.Split(Regex(pattern), behavior, rng.random() < .25)


def falcon_split(rng):
    return pre_tokenizers.Split(
        Regex(rng.choice(["[0-9][0-9][0-9]", "\u0120+", "[\u0080-\u0143]{2}",
                          r"\p{Lu}", "[²³¹¼-¾]", r"\p{P}", "(?<=Ã)."])),
        rng.choice(BEHAVIORS), rng.random() < .2)


def random_pre_tokenizer(rng, byte_level):
    makers = [
        lambda: random_split(rng), lambda: random_split(rng),
        lambda: pre_tokenizers.Digits(rng.random() < .5),
        lambda: pre_tokenizers.Punctuation(rng.choice(BEHAVIORS)),
        pre_tokenizers.WhitespaceSplit, pre_tokenizers.Whitespace,
        lambda: pre_tokenizers.CharDelimiterSplit(rng.choice("-eé ")),
        lambda: pre_tokenizers.Metaspace(
            rng.choice([MARK, MARK, "_", "ß"]),
            rng.choice(["always", "never", "first"]), rng.random() < .7),
        pre_tokenizers.BertPreTokenizer, pre_tokenizers.UnicodeScripts]
    steps = [make() for make in some(rng, makers[:8] if rng.random() < .9
                                     else makers, 3)]
    if byte_level:
        steps.append(pre_tokenizers.ByteLevel(
            add_prefix_space=rng.random() < .4, use_regex=rng.random() < .4,
            trim_offsets=rng.random() < .5))
        if rng.random() < .4:  # on the characters of the byte alphabet
            steps += [make() for make in some(rng, makers[:7] + [
                lambda: falcon_split(rng),
                lambda: pre_tokenizers.CharDelimiterSplit(
                    rng.choice("\u0120\u010aÃ²"))], 3)]
    if not steps:
        return None
    return steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)


def random_added(rng):
    out = []
    for content in rng.sample(CONTENTS, rng.randint(0, 5)):
        special = rng.random() < .4
        out.append(AddedToken(
            content, special=special, single_word=rng.random() < .2,
            lstrip=rng.random() < .3, rstrip=rng.random() < .3,
            normalized=rng.random() < (.2 if special else .5)))
    return out


def random_processor(rng, tokenizer, byte_level):
    name = next(iter(tokenizer.get_vocab()))
    token = (name, tokenizer.token_to_id(name))

    def trim():
        return processors.ByteLevel(add_prefix_space=rng.random() < .5,
                                    trim_offsets=rng.random() < .7)

    def template():
        return processors.TemplateProcessing(
            single=[name, "$A"] if rng.random() < .6 else [name, "$A", name],
            pair=["$A", "$B"], special_tokens=[token])
    makers = [trim, template, lambda: processors.Sequence([trim(), template()]),
              lambda: processors.Sequence([template(), trim()]),
              lambda: processors.Sequence([template(), template()][
                  :1 if rng.random() < .9 else 2]),
              lambda: processors.BertProcessing(token, token),
              lambda: processors.RobertaProcessing(
                  token, token, rng.random() < .6, rng.random() < .5)]
    return rng.choice(makers)() if rng.random() < .7 else None


def random_decoder(rng, byte_level):
    if byte_level:
        return decoders.ByteLevel()
    return rng.choice([
        None, families.llama_decoder(), families.llama_decoder(0),
        decoders.Metaspace(MARK, rng.choice(["always", "never", "first"]),
                           rng.random() < .5), decoders.ByteFallback(),
        decoders.Fuse(), decoders.Sequence([
            decoders.Replace(MARK, " "), decoders.Fuse()])])


def learn_bpe(rng, tokenizer, byte_level):
    options = {}
    if rng.random() < .08:
        options["continuing_subword_prefix"] = "##"
    if rng.random() < .08:
        options["end_of_word_suffix"] = "</w>"
    if byte_level and rng.random() < .8:
        options["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
    special = ["<unk>"] if rng.random() < .7 else []
    tokenizer.train_from_iterator(LINES, trainers.BpeTrainer(
        vocab_size=rng.choice([260, 330, 500]), show_progress=False,
        limit_alphabet=rng.choice([60, 150, 400]), special_tokens=special,
        **options))
    data = json.loads(tokenizer.to_str())
    model = data["model"]
    if special and rng.random() < .9:
        model["unk_token"] = "<unk>"
    model["fuse_unk"] = rng.random() < .5
    model["ignore_merges"] = rng.random() < .3
    if not byte_level and rng.random() < .5:
        model["byte_fallback"] = True
        names = families.FALLBACK[:256 if rng.random() < .8 else 200]
        for name in names:
            model["vocab"].setdefault(name, len(model["vocab"]))
    if rng.random() < .05:
        model["dropout"] = rng.choice([0.0, 0.1])
    return Tokenizer.from_str(json.dumps(data))


def learn_unigram(rng, tokenizer):
    tokenizer.train_from_iterator(LINES, trainers.UnigramTrainer(
        vocab_size=rng.choice([250, 300, 400]), show_progress=False,
        unk_token="<unk>", special_tokens=["<pad>", "<unk>"]))
    data = json.loads(tokenizer.to_str())
    if rng.random() < .4:
        data["model"]["byte_fallback"] = True
        data["model"]["vocab"] += [[n, -20.0] for n in families.FALLBACK]
    return Tokenizer.from_str(json.dumps(data))


def random_json(rng):
    kind = rng.choice(["bytes", "bytes", "bytes", "characters", "characters",
                       "characters", "unigram", "unigram"])
    byte_level = kind == "bytes" or rng.random() < .05
    t = Tokenizer(models.Unigram() if kind == "unigram" else models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(False) if byte_level else \
        pre_tokenizers.Metaspace(MARK, "always", True)
    t = learn_unigram(rng, t) if kind == "unigram" else \
        learn_bpe(rng, t, byte_level)
    normalizer = random_normalizer(rng)
    if normalizer is not None:
        t.normalizer = normalizer
    pre_tokenizer = random_pre_tokenizer(rng, byte_level)
    data = json.loads(t.to_str())
    data["pre_tokenizer"] = None
    t = Tokenizer.from_str(json.dumps(data))
    if pre_tokenizer is not None:
        t.pre_tokenizer = pre_tokenizer
    t.add_tokens(random_added(rng))
    processor = random_processor(rng, t, byte_level)
    if processor is not None:
        t.post_processor = processor
    decoder = random_decoder(rng, byte_level)
    if decoder is not None:
        t.decoder = decoder
    return t


def json_case(rng, folder):
    path = os.path.join(folder, "t.json")
    tokenizer = random_json(rng)
    tokenizer.save(path)
    tokenizer = Tokenizer.from_file(path)
    data = json.loads(tokenizer.to_str())
    data["model"].pop("vocab")
    data["model"].pop("merges", None)
    if data["normalizer"] and "precompiled" in str(data["normalizer"]):
        data["normalizer"] = str(data["normalizer"])[:300]
    plain = {i for i, t in tokenizer.get_added_tokens_decoder().items()
             if t.content in ("<unk>", "<pad>")}
    changed = set(tokenizer.get_added_tokens_decoder()) - plain

    def decode(ids):  # an added token decodes to its content: ours alone
        return None if changed & set(ids) else tokenizer.decode(
            ids, skip_special_tokens=False)
    return (golden.of_tokenizers(tokenizer), list(tokenizer.get_vocab()), path,
            json.dumps(data, ensure_ascii=False), decode)


def piece_case(rng, folder):
    import sentencepiece
    options = dict(
        model_type=rng.choice(["bpe", "unigram"]),
        vocab_size=rng.choice([500, 700, 900]),
        byte_fallback=rng.random() < .5,
        normalization_rule_name=rng.choice(
            ["nmt_nfkc", "identity", "nfkc", "nfkc_cf", "nmt_nfkc_cf"]),
        add_dummy_prefix=rng.random() < .6,
        remove_extra_whitespaces=rng.random() < .5,
        split_digits=rng.random() < .3,
        split_by_whitespace=rng.random() < .8,
        split_by_unicode_script=rng.random() < .8,
        allow_whitespace_only_pieces=rng.random() < .4,
        treat_whitespace_as_suffix=rng.random() < .25,
        character_coverage=rng.choice([.98, .9995]),
        user_defined_symbols=rng.sample(
            ["<mark>", "the", "ship", MARK * 2, "\n", "e", "é", "船", "ab c",
             "<0x41>", " "], rng.randint(0, 4)) if rng.random() < .5 else [],
        control_symbols=["<c>"] if rng.random() < .2 else [],
        unused=rng.choice([0, 0, 0, 3]))
    data = families.pieces(**dict(options))
    path = os.path.join(folder, "t.model")
    with open(path, "wb") as file:
        file.write(data)
    model = sentencepiece.SentencePieceProcessor(model_proto=data)
    return (golden.of_sentencepiece(model), families.words_of(model), path,
            str(options), lambda ids: None if model.unk_id() in ids
            else model.decode(ids))


def rank_case(rng, folder):
    import tiktoken
    name = rng.choice(list(families.PATTERNS))
    path = os.path.join(folder, name + ".tiktoken")
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Split(
        Regex(families.PATTERNS[name].replace("++", "+").replace("*+", "*")
              .replace("?+", "?").replace("}+", "}")), "isolated")
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [t.pre_tokenizer, pre_tokenizers.ByteLevel(False, use_regex=False)])
    t.train_from_iterator(
        rng.sample(LINES, len(LINES) // 2), trainers.BpeTrainer(
            vocab_size=rng.choice([280, 400, 600]), show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    bytes_of = {c: b for b, c in families.byte_alphabet().items()}
    names = sorted(t.get_vocab(), key=t.get_vocab().get)
    ranks = {bytes(bytes_of[c] for c in n): i for i, n in enumerate(names)}
    encoding = families.tiktoken_file(name, path, ranks)
    assert isinstance(encoding, tiktoken.Encoding)
    return (golden.of_tiktoken(encoding),
            [w.decode(errors="ignore") for w in ranks], path, name,
            encoding.decode)


def run(tool, path, mode, texts):
    done = subprocess.run([tool, path, mode], input=fuzz.packed(texts),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def answers(encode, decode, text):
    try:
        ids, places = encode.places(text)
        return ids, places, decode(ids)
    except BaseException as error:  # the library's own panic, too
        return None, None, str(error)


def check(tool, case, rng, options, refused):
    encode, words, path, about, decode = case
    texts = [fuzz.random_text(rng, [w for w in words if w])
             for _ in range(options.texts)]
    texts += golden.NASTY[:12] + families.TEXTS[-12:]
    rows = [(t, *answers(encode, decode, t)) for t in texts]
    rows = [row for row in rows if row[1] is not None]
    texts = [row[0] for row in rows]
    code, out, error = run(tool, path, "places", texts)
    if code < 0 or "BUG" in error or (code and not error.strip()):
        print("CRASH %s\n  %s" % (error, about), flush=True)
        return False
    if code:
        words = error.strip().split("\n")[0]
        refused[words.split(": ", 2)[-1][:150]] += 1
        return True
    ours = out.decode().split("\n")[:-1]
    plain = run(tool, path, "0", texts)[1].decode().split("\n")[:-1]
    back = run(tool, path, "decode", texts)[1].decode().split("\n")[:-1]
    for i, (text, ids, places, decoded) in enumerate(rows):
        x = [int(word) for word in ours[i].split()]
        found = list(zip(x[1::5], x[2::5]))
        mine = bytes.fromhex(back[i]).decode(errors="replace")
        if "\ufffd" in mine:  # what is no UTF-8 is written as it is
            decoded = None
        wrong = []
        if x[0::5] != ids or [int(w) for w in plain[i].split()] != ids:
            wrong.append("ids\n  ours   %s\n  theirs %s" % (plain[i], ids))
        elif not fuzz.same_places(found, places):
            wrong.append("places\n  ours   %s\n  theirs %s" % (found, places))
        if (not wrong and not options.no_decode and decoded is not None
                and mine != decoded):
            wrong.append("text\n  ours   %r\n  theirs %r" % (mine, decoded))
        if wrong:
            print("DIFFERENT %s\n  text   %r\n  %s" % (wrong[0], text, about),
                  flush=True)
            return False
    return True


def main():
    global CHARSMAP
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--texts", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="json model tiktoken")
    parser.add_argument("--no-decode", action="store_true")
    options = parser.parse_args()
    kinds = {"json": json_case, "model": piece_case, "tiktoken": rank_case}
    kinds = [kinds[k] for k in options.only.split()]
    CHARSMAP = families.charsmap()
    refused, wrong = collections.Counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        tool = fuzz.build_tool(folder)
        for i in range(options.count):
            rng = random.Random("%d %d" % (options.seed, i))
            try:
                case = kinds[i % len(kinds)](rng, folder)
            except Exception as error:  # of the trainers: too few pieces
                refused["library: " + str(error)[:100]] += 1
                continue
            if not check(tool, case, rng, options, refused):
                print("  (seed %d, tokenizer %d)" % (options.seed, i))
                wrong += 1
    for words, count in refused.most_common():
        print("%5d refused: %s" % (count, words))
    print("%d tokenizers, %d different" % (options.count, wrong))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
