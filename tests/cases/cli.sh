#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cli.sh - answers of the program: help, exit codes, sentences.
#
#     BUILD=build tests/cases/cli.sh
#
# Each line of `expect` runs the program and checks its exit code and a piece
# of what it printed (standard output and error together).
set -u
program=${BUILD:-build}/lockstep
tree=$(pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# expect CODE WORDS ARGUMENT...
expect() {
    code=$1
    words=$2
    shift 2
    "$program" "$@" >"$work/out" 2>&1
    found=$?
    if [ $found -ne "$code" ]; then
        echo "lockstep $*: exit $found, expected $code"
        sed 's/^/    /' "$work/out"
        failed=$((failed + 1))
    elif ! grep -qF -- "$words" "$work/out"; then
        echo "lockstep $*: no \"$words\" in"
        sed 's/^/    /' "$work/out"
        failed=$((failed + 1))
    fi
}

# The last line names the exit code.
last_line() {
    tail -n 1 "$work/out" | grep -qF -- "$1" || {
        echo "last line: $(tail -n 1 "$work/out"), expected $1"
        failed=$((failed + 1))
    }
}

# --- help ---
expect 0 "usage: lockstep COMMAND"
expect 0 "usage: lockstep COMMAND" --help
expect 0 "usage: lockstep COMMAND" help
expect 0 "lockstep 0.1.0" --version
expect 0 "train.steps" help options
expect 0 "bench kernels" bench --help
expect 0 "bench step" help bench
expect 0 "tokenizer train" tokenizer -h
expect 2 "is not a command; expected bench" bench
"$program" --help | sed -n 's/^  \([a-z][a-z ]*[a-z]\)  .*/\1/p' >"$work/names"
[ "$(wc -l <"$work/names")" -ge 4 ] || {
    echo "the overview lists $(wc -l <"$work/names") commands"
    failed=$((failed + 1))
}
while read -r name; do
    # shellcheck disable=SC2086  # a name may be two words
    expect 0 "example:" $name --help
    # shellcheck disable=SC2086
    expect 0 "example:" help $name
done <"$work/names"

# --- mistakes on the command line ---
expect 2 "the nearest is version" vresion
last_line "exit 2 (usage)"
expect 2 "no command" frobnicate
# Guards help that is read on a terminal of 80 columns.
while read -r name; do
    # shellcheck disable=SC2086
    "$program" help $name | awk -v name="$name" \
        'length > 80 { print name ": " $0 }'
done <"$work/names" >"$work/long"
[ ! -s "$work/long" ] || {
    echo "FAILED: help has lines of more than 80 columns"
    cat "$work/long"
    failed=$((failed + 1))
}
expect 2 "lockstep --help lists" frobnicate
expect 2 "the nearest is --json" version --jsno
expect 2 "takes no operand" version extra
expect 2 "65 is outside 1 to 64" bench step --steps 65
expect 2 "outside 2 to" bench step --length 1
expect 2 "outside 0 to 1024" bench step --threads 2000
expect 2 "choose one of them" bench step --csv --json
# Guards flags that were passed over without a word.
# Guards /dev/null, in whose place a file was put: a pipe stands for it here.
mkfifo "$work/pipe.tokens"
expect 74 "is a pipe or a device" score none --tokens x --logits "$work/pipe.tokens"
expect 74 "is a pipe or a device" bench step --trace "$work/pipe.tokens"
expect 2 "choose one of them" metrics none --csv --json
expect 2 "is of the table" metrics none --lines 3 --json
expect 2 "goes with --text" schedule 1f1b --ranks 2 --microbatches 2 --lower
expect 2 "no picture of summary" plan none --draw "$work/x.svg"
expect 2 "does not go with --time" plan none --time --step 2
expect 2 "float8" bench step --dtype float8
expect 2 "--dtype is float32" bench step --product tiles
expect 78 "nearest: llama-1m" bench step --model llama-2m
expect 66 "no/such" bench step --trace no/such/trace.json
expect 78 "no kernel has convolution" bench kernels --only convolution
expect 2 "none of some, all, nothing" bench kernels --check most
expect 2 "takes no value" version --json=1
expect 2 "flags have two dashes" version -j
expect 2 "expected options, metrics or commands" docs nonsense

# --- output for programs ---
expect 0 '"numerics_version": 3' version --json
expect 0 '"capability": "rounding"' doctor --json
expect 0 '"capability": "recipes"' doctor --json
expect 78 "no recipe has mxfp9 in its name" bench recipes --only mxfp9

# --- a pipe that is full ---
if [ -w /dev/full ]; then
    "$program" version >/dev/full 2>"$work/out"
    [ $? -eq 74 ] || {
        echo "a full disk behind standard output is not exit 74"
        failed=$((failed + 1))
    }
fi

# --- models ---
mkdir "$work/empty"
models=$tree/tests/golden/models
if [ -d "$models/gpt2" ]; then
    echo '[[1,2,3,4],[4,3,2,1]]' >"$work/ids.json"
    expect 0 '"targets": 6' score "$models/gpt2" --tokens "$work/ids.json" \
        --json
    expect 2 "score needs --tokens" score "$models/gpt2"
    expect 66 "no such file" score "$models/gpt2" --tokens "$work/none.json"
    last_line "exit 66 (missing)"
    echo '[[1,2,3],[4]]' >"$work/bad.json"
    expect 65 "bad.json" score "$models/gpt2" --tokens "$work/bad.json"
    echo '[[1,2,999999999]]' >"$work/bad.json"
    expect 78 "999999999" score "$models/gpt2" --tokens "$work/bad.json"
    expect 66 "" score "$work/none" --tokens "$work/ids.json"
    expect 0 "equal" compare "$models/gpt2" "$models/gpt2"
    expect 1 '"equal": false' compare "$models/gpt2" "$models/llama_untied" \
        --json
    expect 0 "each used exactly once" import "$models/gpt2" "$work/imported"
    expect 78 "" import "$models/gpt2" "$work/imported"
    expect 0 "equal in every bit" export "$work/imported" "$work/exported"
    expect 78 "not empty" export "$work/imported" "$work/exported"
    expect 0 "every bit" compare "$work/exported" "$work/imported"
    expect 78 "was imported and names no data" resume "$work/imported"
    expect 66 "has no tokenizer" generate "$work/imported" --prompt x
    expect 2 "generate needs --prompt" generate "$work/imported"
    expect 2 "--top-p" generate "$work/imported" --prompt x --top-p 2
    expect 2 "--min-p" generate "$work/imported" --prompt x --min-p -1
    expect 2 "would end each text" generate "$work/imported" --prompt x --stop ""
    expect 2 "choose one" generate "$work/imported" --prompt x --prompts y
    expect 66 "no such file" generate "$work/imported" --prompts "$work/none"
    printf '{"prompt": "a"}\n\n{"text": "b"}\n' >"$work/p.jsonl"
    expect 65 "p.jsonl, line 3" generate "$work/imported" --prompts "$work/p.jsonl"
    expect 65 "neither a run" compare "$work/empty" "$models/gpt2"
fi

# --- tokenizers ---
text=$work/text.txt
i=0
while [ $i -lt 300 ]; do
    echo "the river $i runs to the sea and the sea runs to the river"
    i=$((i + 1))
done >"$text"
tokenizer=$work/tokenizer.json
expect 0 "300 tokens" tokenizer train "$text" --vocab 300 --out "$tokenizer"
expect 0 '"vocab": 300' tokenizer train "$text" --vocab 300 \
    --out "$work/again.json" --threads 1 --json
cmp -s "$tokenizer" "$work/again.json" || {
    echo "one thread learns another tokenizer"
    failed=$((failed + 1))
}
expect 2 "needs --vocab N" tokenizer train "$text"
expect 2 "outside 257" tokenizer train "$text" --vocab 10 --out "$work/x"
expect 2 "expected tokenizer train" tokenizer learn "$text"
expect 66 "$work/none.txt" tokenizer train "$work/none.txt" --vocab 300 \
    --out "$work/x"
expect 66 "no/such" tokenizer train "$text" --vocab 300 --out "$work/no/such/x"
expect 0 "tokens for" tokenize "$tokenizer" "$text"
expect 0 '"bytes_per_token"' tokenize "$tokenizer" "$text" --json
# Guards --json that was not looked at, and flags of documents where none are.
expect 0 '"shards_found": 0' tokenize "$tokenizer" "$text" --json \
    --out "$work/json.tokens"
expect 2 "without --out the file is one text" tokenize "$tokenizer" "$text" \
    --chat chatml
expect 0 "[" tokenize "$tokenizer" "$text" --ids --no-special
: >"$work/empty.txt"
expect 0 "[]" tokenize "$tokenizer" "$work/empty.txt" --ids
expect 0 "tokens in" tokenize "$tokenizer" "$text" --out "$work/t.tokens"
awk '{ print "{\"text\": \"" $0 "\"}" }' "$text" >"$work/t.jsonl"
expect 0 " shards" tokenize "$tokenizer" "$text" "$work/t.jsonl" \
    --out "$work/shards" --shard-tokens 2000
expect 0 "of them found" tokenize "$tokenizer" "$text" "$work/t.jsonl" \
    --out "$work/shards" --shard-tokens 2000
expect 78 "other sources or settings" tokenize "$tokenizer" "$text" \
    --out "$work/shards" --shard-tokens 2000
expect 2 "needs a directory" tokenize "$tokenizer" "$text" \
    --out "$work/u.tokens" --shard-tokens 2000
expect 78 "token files are trained on" tokenize "$tokenizer" \
    "$work/t.tokens" --out "$work/u.tokens"
expect 0 "whole" data verify "$work/shards" "$text" "$work/t.jsonl"
cp "$work/t.tokens" "$work/v.tokens"
printf '\001' | dd of="$work/v.tokens" bs=1 seek=300 conv=notrunc 2>/dev/null
expect 65 "checksum of the tokens is wrong" data verify "$work/v.tokens"
expect 65 "1 of 1 files" data verify "$work/v.tokens"
cp "$tree/tests/golden/data/numpy_u2.npy" "$work/n.npy"
expect 0 "whole" data verify "$work/n.npy"
printf '\001' | dd of="$work/n.npy" bs=1 seek=130 conv=notrunc 2>/dev/null
expect 65 "when the file was sealed" data verify "$work/n.npy"
expect 0 "whole" data verify "$work/n.npy" --accept
# Guards the checksums of pages beside the seal, by which `resume` finds bits
# that flip later: data verify left the seal alone.
[ -n "$(find "$work" -name 'n.npy*.pages')" ] || {
    echo "FAILED: data verify --accept leaves no .pages"
    failed=$((failed + 1))
}
expect 0 "whole" data verify "$work/n.npy"
expect 2 "give one of them" tokenize "$tokenizer" "$text" --ids --out x
printf 'a\377' >"$work/bad.txt"
expect 65 "not UTF-8" tokenize "$tokenizer" "$work/bad.txt"
expect 65 "text.txt" tokenize "$text" "$text"
expect 66 "$work/none.txt" tokenize "$tokenizer" "$work/none.txt"

# --- plans ---
cat >"$work/config.yaml" <<END
version: 1
model: {family: llama, vocab: 300, layers: 2, width: 32, heads: 4}
tokenizer: {from: $tokenizer}
data: {train: [$text], sequence: 16}
train: {steps: 5, batch: 4, micro_batch: 2}
run: {dir: $work/run}
END
for view in summary parameters program memory schedule numerics ramp step; do
    expect 0 "" plan "$work/config.yaml" --explain $view
    expect 0 "\"view\": \"$view\"" plan "$work/config.yaml" \
        --explain $view --json
done
expect 2 "the nearest is memory" plan "$work/config.yaml" --explain memry
expect 78 "optimizer.lr" plan "$work/config.yaml" --set optmizer.lr=1
while read -r theirs ours; do # names of other trainers
    expect 78 "did you mean $ours?" plan "$work/config.yaml" --set "$theirs=2"
done <<'END'
model.hidden_size model.width
num_hidden_layers model.layers
train.learning_rate optimizer.lr
gradient_accumulation_steps train.micro_batch
mesh.tp mesh.tensor
fsdp.dp mesh.data
END
for type in bf16 fp16 fp32 fp64; do
    expect 0 "" plan "$work/config.yaml" --set train.dtype=$type
done
expect 78 "model.width" plan "$work/config.yaml" --set model.heads=3
expect 78 "is above the peak" plan "$work/config.yaml" --set optimizer.min_lr=1
expect 78 "is not of the form NAME=VALUE" plan "$work/config.yaml" --set =1
expect 78 "model.vocab: 300, but the config.json of model.from has 127" plan \
    "$work/config.yaml" --set model.from="$tree/tests/golden/models/gpt2"
expect 66 "none.yaml" plan "$work/none.yaml"
expect 66 "config.yaml" plan "$work/empty"
[ ! -e "$work/run" ] || {
    echo "plan made the run directory"
    failed=$((failed + 1))
}

# --- schedules ---
expect 0 "breadth-first" schedule
expect 0 "bubble rate  0.2727" schedule 1f1b --ranks 4 --microbatches 8
expect 0 "idle share   0.0588" schedule zb-v --ranks 4 --microbatches 8
expect 0 "breadth-first" schedule --list
expect 0 " 0-99  " schedule gpipe --ranks 100 --microbatches 20
expect 0 "16 of 99 lines" schedule 1f1b --ranks 99 --microbatches 99
expect 2 "at most 50000 are drawn" schedule gpipe --ranks 1024 \
    --microbatches 512 --draw "$work/huge.svg"
expect 0 '"bubble_rate": 0.0433' schedule zb-2p --ranks 8 --microbatches 24 \
    --forward 18.522 --backward-input 18.086 --backward-weight 9.337 \
    --transfer 0.601 --weight-memory 0.36641 --memory-limit 16 --json
expect 0 "rank 3" schedule dualpipe --ranks 4 --microbatches 8 \
    --draw "$work/picture.svg" --text "$work/schedule.txt"
grep -q "</svg>" "$work/picture.svg" || {
    echo "the picture of a schedule is not whole"
    failed=$((failed + 1))
}
expect 0 "4 ranks, 4 stages, 8 micro" schedule "$work/schedule.txt"
expect 78 "has 4 ranks" schedule "$work/schedule.txt" --ranks 2
expect 78 "nearest: 1f1b" schedule 1f1c --ranks 2 --microbatches 2
expect 2 "needs --ranks" schedule 1f1b
expect 78 "memory limit is 3" schedule 1f1b --ranks 4 --microbatches 8 \
    --memory-limit 3
expect 66 "none.txt" schedule "$work/none.txt"
echo "F0.0 B0.0" >"$work/short.txt"
expect 78 "W0.0 is missing on rank 0" schedule "$work/short.txt"
echo "F0.0 b0.0" >"$work/small.txt"
expect 65 "line 1: b0.0 is not an action" schedule "$work/small.txt"

if [ $failed -ne 0 ]; then
    echo "$failed failed"
    exit 1
fi
