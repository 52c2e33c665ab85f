#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# corpus.sh DIR [TEXT...] - makes DIR/train.jsonl and DIR/valid.jsonl.
#
# One line is one document: {"text": "..."}. Sources, the first that exists:
#   TEXT        .txt files (one document each) or directories of them
#   bible       the King James Bible of Debian's bible-kjv, a document a chapter
#   otherwise   licences and copyright notes of this system, and our own pages:
#               needs no network, but depends on what is installed
# Every 20th document goes to valid.jsonl. The same source gives the same bytes;
# sizes and hashes are printed.
set -eu
export LC_ALL=C

[ $# -ge 1 ] || { sed -n '3,13p' "$0"; exit 2; }
out=$1
shift
mkdir -p "$out"

# Reads documents, each after a line of one record separator; writes lines of JSON.
# Bytes that are not UTF-8 are dropped, as are control characters.
to_jsonl() {
    iconv -c -f UTF-8 -t UTF-8 | awk -v out="$out" '
    function emit() {
        sub(/^\n+/, "", text)
        sub(/\n+$/, "", text)
        if (text == "") return
        file = out (count % 20 == 19 ? "/valid.jsonl" : "/train.jsonl")
        gsub(/\\/, "\\\\&", text)
        gsub(/"/, "\\\\&", text)
        gsub(/\t/, "\\t", text)
        gsub(/[\001-\011\013-\037]/, "", text)
        gsub(/\n/, "\\n", text)
        printf "{\"text\": \"%s\"}\n", text > file
        count++
    }
    BEGIN { printf "" > (out "/train.jsonl"); printf "" > (out "/valid.jsonl") }
    $0 == "\036" { emit(); text = ""; next }
    { text = text $0 "\n" }
    END { emit() }'
}

# A chapter begins with a line like "2 Kings 3"; verses are numbered lines.
bible_documents() {
    bible -l100000 gen1:1-rev22:21 | awk '
    /^[1-3]?[A-Za-z][A-Za-z ]* [0-9]+$/ || /^[1-3] [A-Z][a-z]+ [0-9]+$/ {
        print "\036"; print; print ""; next
    }
    { sub(/^ +[0-9]+ /, "") }
    NF { print }'
}

# Texts of a few known places, in a fixed order, equal ones once.
system_documents() {
    {
        ls -1 README.md docs/*.md 2>/dev/null || true
        find /usr/share/common-licenses -type f 2>/dev/null | sort
        find /usr/share/doc -name copyright -type f 2>/dev/null | sort
    } | while read -r file; do
        printf '%s %s\n' "$(cksum < "$file" | tr ' ' '_')" "$file"
    done | awk '!seen[$1]++ { print $2 }' | while read -r file; do
        printf '\036\n'
        cat "$file"
        echo
    done
}

text_documents() {
    for path; do
        find "$path" -type f -name '*.txt' | sort | while read -r file; do
            printf '\036\n'
            cat "$file"
            echo
        done
    done
}

if [ $# -gt 0 ]; then
    echo "corpus: $*"
    text_documents "$@" | to_jsonl
elif command -v bible >/dev/null; then
    echo "corpus: the King James Bible, from Debian's bible-kjv"
    bible_documents | to_jsonl
else
    echo "corpus: bible-kjv is not installed: licences and copyright notes" \
        "of this system instead, which teach a model little but legal English"
    system_documents | to_jsonl
fi
[ -s "$out/valid.jsonl" ] || {
    echo "corpus: fewer than 20 documents were found, too few to hold some" \
        "out" >&2
    exit 66
}
for name in train valid; do
    file=$out/$name.jsonl
    echo "corpus: $file: $(wc -l < "$file") documents," \
        "$(wc -c < "$file") bytes, sha256 $(sha256sum < "$file" | cut -c1-16)"
done
