#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# terminal.sh - names, values, pieces and texts that hold escape sequences,
# C1, marks that turn writing around, and bytes that are no UTF-8: a terminal
# is shown them as text, and printed JSON keeps its content.
. "${0%/*}/common.sh"
prepare
LIMIT=60
evil=$'\e[31m\e]0;x\a\xc2\x9b\xe2\x80\xaez'

# Bytes that control a terminal, in what was printed.
controls() { # FILE
    LC_ALL=C grep -nP \
        '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]' \
        "$1" | head -n 1 | cat -v
}

# shown NAME CODE WORDS ARGUMENT...: as expect, and nothing controls.
shown() {
    expect "$@"
    local found
    found=$(controls out)
    [ -z "$found" ] || bad "$1" "it printed $found"
}

printf 'ok\e' >plant # the check itself can fail
[ -n "$(controls plant)" ] || bad "the check" "does not see an escape"

# --- names of files, and values ---
shown "a file that is missing" 66 '\u001b[31m' train "no$evil.yaml"
shown "a run that is missing" 66 '\u001b[31m' resume "no$evil"
shown "a model that is missing" 66 '\u202ez' generate "no$evil" --prompt ba
printf '%s: 1\n' "x$evil" >"evil$evil.yaml"
shown "a key of a configuration" 78 '' train "evil$evil.yaml" --run r
shown "a value of an option" 78 '' plan config.yaml --set "model.family=$evil"
shown "a command" 2 '\u001b[31m' "$evil"
shown "bytes that are no UTF-8" 66 'no\xff' resume $'no\xff'
mkdir corpus
mv text.jsonl "corpus/text$evil.jsonl"
shown "a corpus with such a name" 0 '\u001b[31m' train config.yaml \
    --run "run$evil" --set data.train=[corpus] \
    --set train.steps=4 --set checkpoint.every=2
[ -s "run$evil/metrics.jsonl" ] || bad "a run with such a name" "is not there"
found=$(controls "run$evil/log.txt")
[ -z "$found" ] || bad "log.txt" "it holds $found"

# --- texts ---
shown "a prompt" 0 '\u001b[31m' generate "run$evil" --prompt "ba$evil" \
    --tokens 4
sed 's/"text": "/&\\u001b[2J\\u009b\\u202e/' "corpus/text$evil.jsonl" >both.jsonl
shown "a corpus that is shown" 0 '\u202e' data show config.yaml --set \
    'data.train=[both.jsonl]' --set data.cache=cache2 --samples 40
shown "metrics" 0 '' metrics "run$evil"
shown "a comparison" 0 '' compare "run$evil" "run$evil"
shown "an export" 0 '' export "run$evil" "hf$evil"

# --- JSON is the same content ---
lockstep generate "run$evil" --prompt "ba$evil" --tokens 4 --json >json 2>log
if grep -qF '"prompt": "ba\u001b[31m\u001b]0;x\u0007\u009b\u202ez"' json
then ok "JSON keeps its content"
else bad "JSON keeps its content" "$(head -c 300 json | cat -v)" log; fi
found=$(controls json)
[ -z "$found" ] || bad "JSON" "it printed $found"

# --- colours of our own still come through on a terminal ---
if ! script -qec true tty.out >/dev/null 2>&1 </dev/null; then
    echo "left out: the live line; script(1) finds no terminal here"
else
    TERM=xterm script -qec "$program train config.yaml --run tty \
        --set 'data.train=[\"both.jsonl\"]' --set train.steps=4" tty.out \
        >/dev/null 2>&1 </dev/null
    if grep -q $'\r\e\\[36mstep' tty.out; then ok "the live line on a terminal"
    else bad "the live line on a terminal" "it is not there" tty.out; fi
fi
report
