#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# handover.sh - a model goes on elsewhere: its tokenizer comes along with
# init.from, another vocabulary is refused, and an export is of the type that
# was asked for.
. "${0%/*}/common.sh"
prepare
must train config.yaml --run first --set train.steps=10 --set optimizer.ema=0.9

# --- init.from brings the tokenizer ---
grep -v '^tokenizer:' config.yaml >bare.yaml
for from in first first/ckpt/step-00000010; do
    rm -rf next cache2
    expect "init.from=$from brings its tokenizer" 0 \
        "tokenizer of init.from: first/" train bare.yaml --run next \
        --set init.from=$from --set train.steps=4 --set data.cache=cache2
    cmp -s next/tokenizer.json first/tokenizer.json ||
        bad "init.from=$from" "the run has another tokenizer"
    must resume next --set train.steps=6
done
grep -q 'from: first' next/config.yaml &&
    ok "config.yaml says where the tokenizer is from" ||
    bad "config.yaml" "does not name the tokenizer" next/config.yaml
expect "the same tokenizer by name" 0 "" train config.yaml --run same \
    --set init.from=first --set train.steps=4
sed 's/ko/qu/g; s/ba/ze/g' text.jsonl >other.jsonl
must tokenizer train other.jsonl --vocab 300 --out other.json
rm -rf refused
expect "another vocabulary" 78 "has another vocabulary than" \
    train config.yaml --run refused --set init.from=first \
    --set tokenizer.from=other.json --set train.steps=4
[ ! -e refused ] || bad "another vocabulary" "a run was begun"
expect "plan refuses it too" 78 "has another vocabulary than" \
    plan config.yaml --set init.from=first --set tokenizer.from=other.json

# --- what other programs read beside the tokenizer comes along ---
# Guards an import and an export that lost the template of chats.
must export first lent
echo '{{ messages }}' >lent/chat_template.jinja
echo '{"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "x"}' \
    >lent/tokenizer_config.json
echo '{"eos_token_id": [0, 1], "temperature": 0.6}' >lent/generation_config.json
echo 'a secret' >secret
must import lent kept
must train bare.yaml --run tuned --set init.from=kept --set train.steps=2
must resume tuned --set train.steps=3
must export tuned back
must export tuned/ckpt/step-00000003 back2
for name in chat_template.jinja tokenizer_config.json generation_config.json; do
    for dir in kept tuned back back2; do
        cmp -s lent/$name $dir/$name || bad "$name" "$dir has another, or none"
    done
done
ok "templates and settings come along to the export"
ln -sf "$PWD/secret" lent/chat_template.jinja
echo '{"auto_map": {"AutoTokenizer": ["x.X", null]}}' >lent/tokenizer_config.json
expect "a link to something else" 0 "chat_template.jinja is not handed on" \
    import lent kept2
[ ! -e kept2/chat_template.jinja ] && [ ! -e kept2/tokenizer_config.json ] &&
    ok "what is none, or needs code, stays behind" ||
    bad "what is none, or needs code" "was copied"

# Guards a gathered run without its tokenizer, where that is no tokenizer.json.
for i in {0..255}; do
    # shellcheck disable=SC2059
    echo "$(printf "\\x$(printf %02x "$i")" | base64) $i"
done >my_r50k_base.tiktoken
must train config.yaml --run apart --set checkpoint.local=shards \
    --set tokenizer.from=my_r50k_base.tiktoken --set train.steps=2 \
    --set tokenizer.end_of_text=z --set data.cache=cache3
must train bare.yaml --run apart2 --set init.from=kept --set train.steps=2 \
    --set checkpoint.local=shards2
rm -rf apart apart2
must gather apart --local shards
must gather apart2 --local shards2
cmp -s apart/r50k_base.tiktoken my_r50k_base.tiktoken &&
    cmp -s apart2/tokenizer.json first/tokenizer.json &&
    cmp -s apart2/chat_template.jinja kept/chat_template.jinja &&
    ok "a gathered run has its tokenizer and what is beside it" ||
    bad "a gathered run" "has: $(ls apart apart2)"
rm my_r50k_base.tiktoken
must resume apart --set train.steps=3

# --- the type of an export ---
must export first hf32
for type in bfloat16 float16; do
    expect "an export in $type" 0 "$type, 46.7 KiB" export first hf-$type \
        --dtype $type
    grep -q "\"dtype\": \"$type\"" hf-$type/config.json &&
        grep -q "\"torch_dtype\": \"$type\"" hf-$type/config.json ||
        bad "an export in $type" "config.json says another type" \
            hf-$type/config.json
    must import hf-$type run-$type
    must export run-$type again-$type --dtype $type
    if cmp -s hf-$type/model.safetensors again-$type/model.safetensors &&
        lockstep compare run-$type hf-$type >log 2>&1
    then ok "$type is imported as it was exported"
    else bad "$type is imported" "the bytes differ" log; fi
done
expect "a type that is none" 2 "float32, bfloat16" export first no \
    --dtype int8
expect "of the average" 0 "float16" export first ema16 --weights ema \
    --dtype float16
if command -v python3 >/dev/null; then
    cat >check.py <<'END'
# Rounds to nearest even with integers, and holds every element to it.
import json, struct, sys

def load(path):
    raw = open(path + "/model.safetensors", "rb").read()
    size = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + size])
    head.pop("__metadata__", None)
    return {name: (about["dtype"], raw[8 + size:][slice(*about["data_offsets"])])
            for name, about in head.items()}

def even(bits, drop):
    half = 1 << drop - 1
    low = bits & (1 << drop) - 1
    bits >>= drop
    return bits + (low > half or (low == half and bits & 1))

wide = load("hf32")
for path, name in ("hf-bfloat16", "BF16"), ("hf-float16", "F16"):
    narrow = load(path)
    assert narrow.keys() == wide.keys()
    for key, (kind, data) in wide.items():
        count = len(data) // 4
        want = (struct.pack("<%dH" % count, *(even(bits, 16) for bits in
                            struct.unpack("<%dI" % count, data)))
                if name == "BF16" else
                struct.pack("<%de" % count, *struct.unpack("<%df" % count, data)))
        assert narrow[key] == (name, want), (path, key)
# One weight that float16 cannot hold.
raw = bytearray(open("hf32/model.safetensors", "rb").read())
raw[-4:] = struct.pack("<f", 70000.0)
open("hf32/model.safetensors", "wb").write(raw)
END
    if python3 check.py 2>log; then ok "every weight is rounded to nearest even"
    else bad "rounding" "it is not to nearest even" log; fi
    expect "beyond the range of float16" 78 "is 70000, beyond the range of" \
        export hf32 no --dtype float16
    [ ! -e no ] || bad "beyond the range" "something was left"
    expect "but not of bfloat16" 0 "bfloat16" export hf32 yes --dtype bfloat16
else
    echo "left out: rounding needs python3"
fi
report
