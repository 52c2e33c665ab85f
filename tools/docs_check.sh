#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# docs_check.sh - do the commands that the pages show still work?
#
#     BUILD=build tools/docs_check.sh [PAGE...]
#
# A block ```sh after a line <!-- check --> is run, all blocks of a page in one
# shell, in a copy of the tree whose PATH finds the program, two pages for each
# core at a time: many wait. A block ```text
# after <!-- expect --> names lines that the output so far must contain; `...`
# stands for anything. demo/ holds a small stand-in for what `make demo` makes.
# mpirun runs as root with more ranks than cores, or not where Open MPI is absent.
# Port 7077 of the loopback address becomes a drawn one: two checks may run at once.
# A block ```sh that cannot be run here stands after <!-- not run: WHY -->, and is
# listed; one after neither is a fault.
# Files in docs/generated must equal what the program prints; the examples of
# `lockstep COMMAND --help` are run on a smaller model. Ends with
# "N passed, N failed".
set -u
root=$(pwd)
BUILD=$(cd "${BUILD:-build}" && pwd)
passed=0
failed=0
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

# The script of a page: its checked blocks, and its expectations as greps.
script_of() {
    awk '
    /^<!-- check -->/  { next_kind = "check"; next }
    /^<!-- expect -->/ { next_kind = "expect"; next }
    /^<!-- not run: /  { next_kind = ""; next }
    /^```/ && kind     { kind = ""; next }
    /^```/             { kind = next_kind; next_kind = ""; fence = !kind; next }
    kind == "check"    { print }
    kind == "expect" && NF {
        gsub(/[][\\.*^$]/, "\\\\&"); gsub(/\\\.\\\.\\\./, ".*")
        gsub(/\047/, "."); printf "expect_line \047%s\047\n", $0
    }' "$1"
}

# Every ```sh is run, or says why not.
check_marks() {
    local marks
    marks=$(awk '
    FNR == 1            { mark = ""; inside = 0 }
    /^```/ && inside    { inside = 0; next }
    /^<!-- check -->/   { mark = "check"; next }
    /^<!-- not run: /   { mark = $0; next }
    /^```/              { inside = 1 }
    /^```sh/ && mark == ""       { print "UNMARKED " FILENAME ":" FNR }
    /^```sh/ && mark ~ /not run/ { gsub(/<!-- | -->/, "", mark)
                                   print FILENAME ":" FNR ": " mark }
    /^```/              { mark = "" }' "$@")
    [ -z "$marks" ] || echo "$marks"
    case $marks in
    *UNMARKED*)
        failed=$((failed + 1))
        echo "FAILED  after neither <!-- check --> nor <!-- not run: WHY -->" ;;
    *)
        passed=$((passed + 1))
        echo "ok      every command is run, or says why not" ;;
    esac
}

# A paragraph of the licence is a document.
prepare_demo() {
    mkdir -p "$copy/demo/corpus"
    awk -v RS= '{ gsub(/[\\"]/, "\\\\&"); gsub(/\n/, "\\n"); gsub(/\t/, " ")
                  print "{\"text\": \"" $0 "\"}" }' LICENSE >"$copy/all.jsonl"
    awk 'NR % 8' "$copy/all.jsonl" >"$copy/demo/corpus/train.jsonl"
    awk '!(NR % 8)' "$copy/all.jsonl" >"$copy/demo/corpus/valid.jsonl"
    "$BUILD/lockstep" tokenizer train "$copy/all.jsonl" --vocab 300 \
        --out "$copy/demo/tokenizer.json" >"$copy/output" 2>&1 \
        || cat "$copy/output"
}

# The examples of --help stand on these, in the copy of the tree: a model that
# takes seconds instead of minutes, the run of `make demo`, and somebody's model.
# compare says with 1 that two differ.
prepare_examples() {
    sed -i -E 's/^(  layers:) .*/\1 1/; s/^(  width:) .*/\1 48/
        s/^(  feed_forward:) .*/\1 64/; s/^(  sequence:) .*/\1 32/
        s/^(  batch:) .*/\1 4\n  threads: 1/' examples/01_first_run/config.yaml
    cp -r tests/golden/models/smollm2 SmolLM-135M
    lockstep train examples/01_first_run/config.yaml
}
lockstep_or_differs() {
    command lockstep "$@" || [ "$1 $?" = "compare 1" ]
}

# The tree and the program; what was compiled only where a page calls make, and
# then the rest is quick to compile. The first examples are narrower, but for a
# page that expects their bytes.
copy_tree() { # SCRIPT TREE
    mkdir -p "$2/build"
    git ls-files -z | xargs -0 cp -a --parents -t "$2"
    grep -q '^expect_line .* MiB' "$1" ||
        sed -i -E 's/^(  width:) .*/\1 96/; s/^(  feed_forward:) .*/\1 128/' \
            "$2"/examples/0[123]_*/config.yaml
    cp -a "$copy/demo" "$2/demo"
    cp -a "$BUILD"/lockstep "$2/build"
    find "$BUILD" -maxdepth 1 -name '*.so' -exec cp -a {} "$2/build" ';'
    if grep -q '^ *make' "$1"; then
        cp -a "$BUILD/src" "$BUILD/liblockstep.a" "$2/build"
    fi
}

# How long a page took, of the clock and, as `times` said it, of processors.
lasted() {
    awk -v wall=$((SECONDS - start)) 'NR == 2 { split($1 "m" $2, t, /[ms]+/)
        printf "%d s, %.0f s of processors", wall,
            60 * (t[1] + t[3]) + t[2] + t[4] }' "$room/times"
}

# In the background; what it has to say goes to said/ first and is counted by
# check_pages.
check_page() { # PAGE
    local page=$1 room=$copy/rooms/${1//\//_} said=$copy/said/${1//\//_}
    local script=$room/script.sh output=$room/output start=$SECONDS
    local port=$((20000 + RANDOM % 12000)) # none that systems give to clients
    mkdir -p "$room"
    {
        echo 'set -e'
        echo 'expect_line() { grep -q -- "$1" "$OUTPUT" || {'
        echo '    echo "not in the output: $1"; exit 1; }; }'
        echo "$mpirun"
        case $page in
        docs/generated/commands.md)
            declare -f prepare_examples lockstep_or_differs
            echo 'prepare_examples; lockstep() { lockstep_or_differs "$@"; }' ;;
        esac
        script_of "$page" | sed "s/127\.0\.0\.1:7077/127.0.0.1:$port/"
    } >"$script"
    copy_tree "$script" "$room/tree"
    if (cd "$room/tree" && BUILD=build OUTPUT=$output PATH=$room/tree/build:$PATH \
        OPT=-O0 DEBUG=-g0 bash "$script" >"$output" 2>&1); then
        times >"$room/times" # not of a shell below this one
        printf 'ok      %-40s %s\n' "$page" "$(lasted)" >"$said"
    else
        { echo "FAILED  $page"; tail -n 40 "$output" | sed 's/^/    /'; } >"$said"
    fi
    cat "$said"
    rm -rf "$room"
}

# Long scripts first: nothing long is left for the end.
check_pages() { # PAGE...
    local page body
    mkdir -p "$copy/said"
    for page; do
        body=$(script_of "$page" | wc -l)
        [ "$body" -eq 0 ] || echo "$body $page"
    done | sort -rn | cut -d' ' -f2- >"$copy/pages"
    while read -r page; do
        while [ "$(jobs -rp | wc -l)" -ge $((2 * $(nproc))) ]; do wait -n; done
        check_page "$page" </dev/null &
    done <"$copy/pages"
    wait
    while read -r page; do
        if grep -q '^ok ' "$copy/said/${page//\//_}"; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
        fi
    done <"$copy/pages"
}

check_generated() { # FILE COMMAND...
    local file=$1
    shift
    if "$@" | diff -u "$file" - >"$copy/diff" 2>&1; then
        passed=$((passed + 1))
        echo "ok      $file"
    else
        failed=$((failed + 1))
        echo "FAILED  $file differs from: $*"
        head -n 20 "$copy/diff" | sed 's/^/    /'
    fi
}

# Links to files of this tree.
check_links() {
    local bad=0 page target
    while IFS=: read -r page target; do
        target=${target#*](}
        target=${target%)}
        target=${target%%#*}
        case $target in http*|"") continue ;; esac
        [ -e "$(dirname "$page")/$target" ] || {
            echo "$page: no file $target"
            bad=1
        }
    done < <(git ls-files '*.md' | xargs grep -Ho '\](\([^)]*\))')
    if [ $bad -eq 0 ]; then passed=$((passed + 1)); echo "ok      links"
    else failed=$((failed + 1)); echo "FAILED  links"; fi
}

cd "$root" || exit 1
if [ $# -gt 0 ]; then pages=("$@"); else mapfile -t pages < <(git ls-files '*.md'); fi
prepare_demo
if [ -e "$BUILD/comm_openmpi.so" ] && command -v mpirun.openmpi >/dev/null; then
    mpirun='mpirun() { mpirun.openmpi --allow-run-as-root --oversubscribe "$@"; }'
else
    mpirun='mpirun() { echo "left out: mpirun"; }'
    echo "left out: what mpirun starts; no Open MPI on this machine"
fi
check_marks "${pages[@]}"
check_pages "${pages[@]}"
if [ $# -eq 0 ]; then
    check_links
    for page in options metrics commands; do
        check_generated docs/generated/$page.md "$BUILD/lockstep" docs $page
    done
fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
