#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# experts_in.sh - mixtures of experts of every family come in and go out, as
# different programs write them; configurations of released models are read.
. "${0%/*}/common.sh"
prepare
golden=$tree/tests/golden/models

# --- from a Hugging Face directory and back ---
for name in mixtral deepseek deepseek_v2 deepseek_v2_lite deepseek_v3 \
    qwen2_moe qwen3_moe olmoe granitemoe glm4_moe gpt_oss phimoe llama4 \
    dots1 glm4_moe_lite minimax_m2 flex_olmo ernie4_5_moe granitemoeshared \
    solar_open; do
    must import "$golden/$name" "in-$name"
    must export "in-$name" "out-$name"
    lockstep compare "$golden/$name" "out-$name" >out 2>&1
    if [ $? -eq 0 ] && grep -q "equal" out; then
        ok "$name: imported and exported, every tensor the same"
    else
        bad "$name: imported and exported" "compare says otherwise" out
    fi
done
must score "$golden/mixtral" --tokens "$golden/mixtral/tokens.json" \
    --dtype float64 --json
if grep -q '"loss": 4.2227878407' log; then ok "score: transformers' loss"
else bad "score" "another loss than 4.2227878407" log; fi

# --- files with all experts of a block in one tensor ---
cp -r "$golden/granitemoe" stacked && chmod -R u+w stacked
sed -i 's/"num_local_experts": 6/"num_local_experts": 7/' stacked/config.json
expect "another number of experts" 65 "has shape [6, 36], the model needs" \
    import stacked none
sed -i 's/"logits_scaling": 6.0/"logits_scaling": 0/' stacked/config.json
expect "a multiplier of zero" 78 "logits_scaling: 0; expected more than 0" \
    import stacked none
cp "$golden/granitemoe/config.json" stacked
sed -i 's/input_linear.weight/input_linear.height/' stacked/model.safetensors
expect "no tensor of all experts" 65 "block_sparse_moe.input_linear.weight" \
    import stacked none

# --- configurations of released mixtures: as many parameters as transformers
# makes of them, and within 1% of what their authors say ---
cat >released.yaml <<'END'
version: 1
model: {from: released}
data: {train: [text.jsonl], sequence: 4096}
train: {steps: 1, batch: 8, micro_batch: 1}
END
mkdir -p released
python3 - "$tree/tests/golden/published_mixtures.jsonl" "$program" <<'END' \
    >released.txt
import json, subprocess, sys
for line in open(sys.argv[1]):
    row = json.loads(line)
    with open("released/config.json", "w") as file:
        json.dump(row["config"], file)
    made = subprocess.run([sys.argv[2], "plan", "released.yaml"], text=True,
                          capture_output=True)
    found = [int(l.split()[1].replace(",", ""))
             for l in made.stdout.splitlines() if l.startswith("parameters  ")]
    right = (found and abs(found[0] / 1e9 / row["billions"] - 1) < 0.01
             and found[0] == row.get("parameters", found[0]))
    print("ok" if right else "bad", row["model"], found or made.stderr)
END
if [ "$(grep -c ^ok released.txt)" -ge 20 ] && ! grep -q ^bad released.txt; then
    ok "configurations of $(grep -c ^ok released.txt) released mixtures"
else bad "configurations of released mixtures" "see below" released.txt; fi

# --- as transformers 5 writes it ---
cp -r "$golden/qwen3_moe" local && chmod -R u+w local
sed -i 's/"num_experts"/"num_local_experts"/' local/config.json
must import local in-local
must compare "$golden/qwen3_moe" in-local
if grep -q "equal" log; then ok "qwen3_moe: num_local_experts"
else bad "qwen3_moe: num_local_experts" "compare says otherwise" log; fi
sed -i 's/"num_local_experts": 7/"num_experts": 7, "num_local_experts": 8/' \
    local/config.json
expect "qwen3_moe: two numbers of experts" 78 "what num_experts says" \
    import local none

cp -r "$golden/deepseek_v3" scored && chmod -R u+w scored
sed -i '1s/{/{"scoring_func": "softmax",/' scored/config.json
expect "deepseek_v3: another score" 78 \
    "scoring_func: softmax is not supported; supported is only sigmoid" \
    import scored none

# --- as transformers 5 holds them: all experts of a block in two tensors, the
# router and its biases under other names (save_original_format=False) ---
held() { # NAME: from its golden files
    python3 - "$golden/$1" "held-$1" <<'END'
import json, os, re, shutil, struct, sys
source, out = sys.argv[1:]
with open(source + "/model.safetensors", "rb") as file:
    size, = struct.unpack("<Q", file.read(8))
    told, data = json.loads(file.read(size)), file.read()
told.pop("__metadata__")
tensors, parts = {}, {}
for name, t in told.items():
    bytes_ = data[slice(*t["data_offsets"])]
    one = re.fullmatch(r"(.*)\.experts\.(\d+)\.(\w+)\.weight", name)
    if one:
        parts.setdefault(one[1], {})[int(one[2]), one[3]] = t["shape"], bytes_
        continue
    for before, after in (("router.layer", "router"), ("input_linear.weight",
            "experts.gate_up_proj"), ("output_linear.weight", "experts.down_proj"),
            ("mlp.moe_statics", "mlp.gate.moe_statics")):
        name = name.replace(before, after)
    if not any("input_linear" in key for key in told):
        name = name.replace("block_sparse_moe.", "mlp.")
    tensors[name] = t["shape"], bytes_
for stem, all_ in parts.items():
    count = 1 + max(number for number, _ in all_)
    stem = stem.replace("block_sparse_moe", "mlp") + ".experts."
    w = ("w1", "w3", "w2") if (0, "w1") in all_ else \
        ("gate_proj", "up_proj", "down_proj")
    rows, cols = all_[0, w[0]][0]
    tensors[stem + "gate_up_proj"] = [count, 2 * rows, cols], b"".join(
        all_[i, part][1] for i in range(count) for part in w[:2])
    tensors[stem + "down_proj"] = [count, cols, rows], b"".join(
        all_[i, w[2]][1] for i in range(count))
at, header = 0, {}
for name, (shape, bytes_) in tensors.items():
    header[name] = {"dtype": "F32", "shape": shape,
                    "data_offsets": [at, at + len(bytes_)]}
    at += len(bytes_)
text = json.dumps(header).encode()
os.makedirs(out)
shutil.copy(source + "/config.json", out)
with open(out + "/model.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    file.writelines(bytes_ for _, bytes_ in tensors.values())
END
}
for name in mixtral qwen3_moe minimax_m2 granitemoe ernie4_5_moe; do
    held $name
    must import "held-$name" "in-held-$name"
    must compare "in-$name" "in-held-$name"
    if grep -q "equal" log; then ok "$name: experts as transformers holds them"
    else bad "$name: experts as transformers holds them" "not equal" log; fi
done

# --- relatives: another name, fields that decide what is computed ---
relative() { # NAME EXPRESSION
    rm -rf relative
    cp -r "$golden/$1" relative && chmod -R u+w relative
    sed -i "$2" relative/config.json
}
relative deepseek_v3 's/"deepseek_v3"/"kimi_k2"/'
must import relative in-kimi
must compare "$golden/deepseek_v3" in-kimi
if grep -q "equal" log; then ok "kimi_k2: a deepseek_v3"
else bad "kimi_k2" "compare says otherwise" log; fi
relative deepseek_v3 's/"deepseek_v3"/"deepseek_v32"/'
expect "deepseek_v32: its name" 78 \
    "an indexer selects; nearest: deepseek_v3" import relative none
relative qwen3_moe 's/"qwen3_moe"/"qwen3_next"/'
expect "qwen3_next: what it has" 78 \
    "qwen3_next is not a family of this build: it has linear attention" \
    import relative none
relative ernie4_5_moe 's/"moe_layer_start_index": 1/"moe_norm_min": 0.1/'
expect "ernie4_5_moe: gates that are not over their sum" 78 \
    "moe_norm_min: 0.1; gates are divided" import relative none
relative granitemoeshared 's/"shared_intermediate_size": 18/"shared_intermediate_size": -1/'
expect "granitemoeshared: no width" 78 "shared_intermediate_size: -1; expected" \
    import relative none
relative solar_open 's/"n_group": 4/"first_k_dense_replace": 1/'
expect "solar_open: dense blocks" 78 "first_k_dense_replace" \
    import relative none
relative glm4_moe_lite 's/"sparse"/"dance"/'
expect "glm4_moe_lite: a block of no kind" 78 \
    "mlp_layer_types: layer 2 is dance; expected dense or sparse" \
    import relative none
relative glm4_moe_lite 's/"mlp_layer_types": \[/&"dense", /'
expect "glm4_moe_lite: a block too many" 78 "not an array of 3 words" \
    import relative none
relative minimax_m2 's/"rotary_dim": 4/"rotary_dim": 12/'
expect "minimax_m2: more turns than there is" 78 \
    "rotary_dim: 12; expected an even number up to head_dim, 10" \
    import relative none
relative minimax_m2 's/"attn_type_list": \[/&0, /'
expect "minimax_m2: linear attention" 78 "attn_type_list: layer 0 has linear" \
    import relative none
relative dots1 's/"max_window_layers": 1/"max_window_layers": -1/'
expect "dots1: no number of blocks" 78 "max_window_layers: -1 is below 0" \
    import relative none

# --- phimoe: settings that transformers ignores, or that cannot be ---
cp -r "$golden/phimoe" phi && chmod -R u+w phi
sed -i 's/"num_experts_per_tok": 2/"num_experts_per_tok": 3/' phi/config.json
expect "phimoe: three experts of a token" 78 "have 2 experts" import phi none
sed 's/"short_mscale": 1.243, //; s/"short_mscale": 1.243,//' \
    "$golden/phimoe/config.json" >phi/config.json
expect "phimoe: one of two scales" 78 "not both above 0" import phi none
sed 's/noise": 0.3/noise": 0/' "$golden/phimoe/config.json" >phi/config.json
expect "phimoe: no logit is near" 78 "router_jitter_noise: 0" import phi none

# --- llama4: what cannot be, and the text part of a model that sees images ---
cp -r "$golden/llama4" four && chmod -R u+w four
four() { sed "$1" "$golden/llama4/config.json" >four/config.json; }
four 's/"num_experts_per_tok": 1/"num_experts_per_tok": 2/'
expect "llama4: two experts of a token" 78 "have 1 expert" import four none
four 's/"attention_chunk_size": 7/"attention_chunk_size": null/'
expect "llama4: chunks of no size" 78 "attention_chunk_size is null" import four none
four 's/"use_qk_norm"/"moe_layers": [1, 4], "use_qk_norm"/'
expect "llama4: experts of no layer" 78 "moe_layers: entry 1" import four none
four 's/"use_qk_norm"/"layer_types": ["chunked_attention", "full_attention", \
    "sliding_attention", "full_attention"], "use_qk_norm"/'
expect "llama4: a window" 78 "full_attention and chunked_attention" \
    import four none
python3 - "$golden/llama4" seeing <<'END'
import json, os, sys
from_, to = sys.argv[1:]
os.mkdir(to)
text = json.load(open(from_ + "/config.json"))
text["attn_temperature_tuning"] = 4  # as some files say it
json.dump({"model_type": "llama4", "text_config": text, "vision_config": {},
           "architectures": ["Llama4ForConditionalGeneration"],
           "boi_token_index": 1, "eoi_token_index": 2, "image_token_index": 3,
           "tie_word_embeddings": False, "torch_dtype": "float32"},
          open(to + "/config.json", "w"))
data = open(from_ + "/model.safetensors", "rb").read()
size = int.from_bytes(data[:8], "little")
head = {k if k == "__metadata__" else "language_model." + k: v
        for k, v in json.loads(data[8:8 + size]).items()}
head = json.dumps(head).encode()
with open(to + "/model.safetensors", "wb") as out:
    out.write(len(head).to_bytes(8, "little") + head + data[8 + size:])
END
must import seeing in-seeing
must export in-seeing out-seeing
if lockstep compare "$golden/llama4" out-seeing >out 2>&1; then
    ok "llama4: the text part of a model that sees images"
else bad "llama4: the text part" "compare says otherwise" out; fi
must train config.yaml --run four-run --set model.family=llama4 \
    --set model.layers=4 --set moe.experts=4 --set model.window=5 \
    --set model.rope_skip=2 --set model.window_skip=2 --set train.steps=3 \
    --set model.temper_floor=3 --set model.init_std=0.4 --set model.qk_norm=true
must generate four-run --prompt "the " --tokens 12 --temperature 0
first=$(tail -n 1 log)
must export four-run four-out
must generate four-out --prompt "the " --tokens 12 --temperature 0
if [ "$(tail -n 1 log)" = "$first" ]; then ok "llama4: the same text"
else bad "llama4" "another text" log; fi
report
