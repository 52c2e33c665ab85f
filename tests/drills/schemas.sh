#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# schemas.sh - what the planner prints for programs is what docs/planner_json.md
# says: each key is there, with its type, asked for or not; nothing else is.
. "${0%/*}/common.sh"
prepare
page=$tree/docs/planner_json.md

# schema SECTION: its rows as "key|type", keys as in `flat`.
schema() {
    awk -F' *[|] *' -v section="## $1" '
        /^## / { on = $0 == section }
        on && $2 ~ /^`/ { gsub(/`/, "", $2); print $2 "|" $3 }' "$page"
}

# flat FILE: "key|type" of all values of a printed object, with what they are in.
# An empty list or object is "none".
flat() {
    awk '
    function path(   i, p) {
        p = ""
        for (i = 1; i <= depth; i++)
            if (inside[i] != "") p = p (p == "" ? "" : ".") inside[i]
        return p
    }
    function add(key,   p) { # to the path
        p = path()
        return p (p == "" || key == "" ? "" : ".") key
    }
    { line = $0; sub(/^ */, "", line); sub(/,$/, "", line); key = "" }
    match(line, /^"[^"]*": /) {
        key = substr(line, 2, RLENGTH - 4); line = substr(line, RLENGTH + 1) }
    line == "{" || line == "[" {
        if (key != "") print add(key) "|" (line == "{" ? "object" : "list")
        inside[++depth] = key (line == "[" ? "[]" : "")
        next }
    line == "}" || line == "]" { depth--; next }
    { type = line == "{}" || line == "[]" ? "none" : \
          line == "null" ? "null" : line == "true" || line == "false" ? "bool" : \
          line ~ /^"/ ? "text" : line ~ /^-?[0-9]+$/ ? "integer" : \
          line ~ /^-?[0-9.]+(e[-+]?[0-9]+)?$/ ? "number" : "UNKNOWN"
      print add(key) "|" type }' "$1" | sort -u
}

# agrees SECTION FILE...: each of the objects has all keys of the section and no
# others; together they show each key, and what may be null as null and as not.
agrees() {
    local section=$1 file
    shift
    schema "$section" >schema.txt
    for file in "$@"; do flat "$file" | sed "s/^/$file|/"; done >flat.txt
    awk -F'|' -v files="$*" '
    function pattern(key) {
        gsub(/[][.]/, "\\\\&", key)
        gsub(/[A-Z]+/, "[a-z0-9_ -]+", key)
        return "^" key "$"
    }
    # Objects and lists in which the key lies.
    function note_above(key,   at) {
        for (at = 2; at < length(key); at++)
            if (substr(key, at, 1) ~ /[.[]/) above[pattern(substr(key, 1, at - 1))] = 1
    }
    FNR == NR { key[++rows] = $1; type[rows] = $2; like[rows] = pattern($1)
                note_above($1); next }
    { value[++values] = $2; of[values] = $1; kind[values] = $3
      if ($3 == "null" || $3 == "none") ends[$1, $2] = 1 }
    # Whether the row lies in something that is null or empty.
    function is_left_out(object, row,   at) {
        for (at = 2; at <= length(key[row]); at++)
            if (substr(key[row], at, 1) ~ /[.[]/ &&
                (object, substr(key[row], 1, at - 1)) in ends)
                return 1
        return 0
    }
    function wrong(sentence) { print sentence; bad = 1 }
    END {
        count = split(files, file, " ")
        for (v = 1; v <= values; v++) {
            found = 0
            for (r = 1; r <= rows; r++) {
                if (value[v] ~ like[r]) {
                    found = r; shown[of[v], r] = 1
                    if (kind[v] == "null") nothing[r] = 1; else something[r] = 1
                    break
                }
            }
            if (!found && kind[v] ~ /object|list|none/)
                for (p in above) if (value[v] ~ p) found = -1
            if (found < 0) continue
            if (!found) { wrong(of[v] ": " value[v] " is not in the table"); continue }
            if (kind[v] == "none" || index(type[found], kind[v]) ||
                kind[v] == "integer" && type[found] ~ /number/) continue
            wrong(of[v] ": " value[v] " is " kind[v] ", not " type[found])
        }
        for (r = 1; r <= rows; r++) {
            for (f = 1; f <= count; f++)
                if (!((file[f], r) in shown) && !is_left_out(file[f], r))
                    wrong(file[f] ": " key[r] " is absent")
            if (!(r in something)) wrong(key[r] ": no value was seen")
            if (type[r] ~ /null/ && !(r in nothing)) wrong(key[r] ": never null")
        }
        exit bad }' schema.txt flat.txt >said
    if [ $? = 0 ] && [ -s schema.txt ] && [ -s flat.txt ]; then
        ok "$section: $(wc -l <schema.txt) rows, $# objects"
    else bad "$section" "differs from docs/planner_json.md" said; fi
}

# prints FILE CODE ARGUMENT...: JSON, and that exit code; nothing after errors of
# another kind.
prints() {
    local file=$1 want=$2 code
    shift 2
    lockstep "$@" >"$file" 2>err
    code=$?
    case $code in 0 | 79) [ -s "$file" ] ;; *) [ ! -s "$file" ] ;; esac &&
        [ $code = "$want" ] || bad "$*" "exit $code, not $want, or no object" err
}

cat >gpt.yaml <<'END'
model: {family: gpt2, vocab: 51200, layers: 24, width: 4096, heads: 32}
data: {sequence: 2048}
train: {batch: 64, steps: 10, dtype: bfloat16, micro_batch: 1, recompute: [none]}
mesh: {tensor: 8, pipe: 2, data: 2}
numerics: {grid_tensor: 8}
END
echo '{"version": 1, "name": "a", "key": "", "from": "cpu", "constants": {},
"sentinel": {"before_s": 1, "after_s": 1, "memory_before_s": 1, "memory_after_s": 1,
"product_s": 1, "products_follow": 1, "works_follow": 1}}' >paced.json
sed 's/"product_s": 1/"product_s": 0/' paced.json >unpaced.json

plan="plan gpt.yaml --ranks 32 --time --json --machine"
all="--explain time --tokens 1e12 --watts 500 --price 2 --offload states --copies auto"
prints plan.1 0 $plan a100-80
prints plan.2 0 $plan a100-80 $all
prints plan.3 79 $plan a100-80,nics=1 $all --max-memory 3e9
prints plan.4 79 $plan h100 --as megatron --max-memory 3e9
prints plan.5 79 $plan paced.json --explain time
prints plan.6 0 plan config.yaml --time --json --machine cpu --explain time
agrees "plan --time" plan.[1-6]

prints search.1 0 search config.yaml --machine cpu --ranks 1 --json --top 1
prints search.2 0 search gpt.yaml --machine a100-80 --nodes 4 --json --top 2 --objective cost
prints search.3 79 search gpt.yaml --machine a100-80 --nodes 1 --json --max-memory 1e9
prints search.4 0 search gpt.yaml --machine h100 --nodes 2 --json --as torchtitan --top 2
agrees search search.[1-4]

echo '{"slow": [{"rank": 1, "factor": 2}]}' >slow.json
echo '{"failures": {"per_node_day": 0.01, "restart_s": 60, "stall_s": 5}}' >fails.json
simulate="simulate gpt.yaml --ranks 32 --machine a100-80 --json --perturb"
prints simulate.1 0 $simulate slow.json
prints simulate.2 0 $simulate fails.json --tokens 1e12 --as megatron
agrees "simulate --perturb" simulate.[12]

must train config.yaml --run traced --trace trace.json
prints replay.1 0 simulate config.yaml --machine cpu --replay trace.json --json
agrees "simulate --replay" replay.1
# As many traces as a step of lists may have pipe ranks.
deep="config.yaml --ranks 32 --set mesh.pipe=32 --set model.layers=32
    --set train.micro_batch=1"
# shellcheck disable=SC2086 # words
{
must train $deep --run deep --trace deep.json --set train.steps=6
prints replay.2 0 simulate $deep --machine cpu --replay deep.rank-0.json --json
}
agrees "simulate --replay" replay.[12]

prints budget.1 0 budget --days 30 --machine h100 --json
prints budget.2 0 budget --tokens 1e13 --machine h100 --json --watts 700 --price 2 \
    --context 131072 --unique 1e11 --batch 1e9 --nodes 2
agrees budget budget.[12]

prints machines.1 0 machines --json
prints machines.2 0 machines --explain h100,gemm=0.5 --json
agrees machines machines.[12]

prints now.1 0 calibrate --against paced.json
prints now.2 0 calibrate --against unpaced.json
agrees "calibrate --against" now.[12]

# The file that calibrate writes.
must calibrate config.yaml --seconds 0.1 --out machine.json
comm -23 <(sed -n 's/^ "\([a-z_]*\)":.*/\1/p' machine.json | sort) \
    <(sed -n '/^### The profile file/,/^## /s/^| \(`[a-z_`, ]*`\) |.*/\1/p' "$tree/docs/planner.md" |
        tr -d '`,' | tr ' ' '\n' | sort) >unknown
if [ -s unknown ]; then bad "docs/planner.md has the keys of a profile" "not all" unknown
else ok "docs/planner.md has the keys of a profile"; fi

# A table that says something else is found.
sed '/^| `hfu`/d; s/^| `fits` | bool/| `fits` | text/
    s/^| `cost` | number or null/| `cost` | number/; s/^| `mfu` |/| `share` |/' \
    "$page" >other.md
page=other.md
(agrees "plan --time" plan.[1-6]) >lines
if grep -q 'hfu is not in the table' said && grep -q 'fits is bool, not text' said &&
    grep -q 'cost is null, not number' said && grep -q 'share is absent' said; then
    ok "another table is found"
else bad "another table is found" "not" said; fi

# Errors leave standard output empty.
for words in "78 plan gpt.yaml --ranks 31 --time --json --machine h100" \
    "2 plan gpt.yaml --ranks 32 --time --json" \
    "78 search gpt.yaml --json --machine h1000" \
    "65 simulate gpt.yaml --ranks 32 --machine h100 --json --perturb gpt.yaml" \
    "2 budget --json --machine h100"; do
    # shellcheck disable=SC2086 # words
    prints nothing $words && ok "$words: one sentence alone"
done
expect "an unknown machine to explain" 78 "error (config): --explain: h10 is neither" machines \
    --explain h10
expect "a negative price, before anything is planned" 2 "--price: -2 is outside" plan gone.yaml \
    --time --machine h100 --price -2
report
