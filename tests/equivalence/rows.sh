# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# rows.sh - the results of `lockstep verify --json` as checks of a drill.
rows=0
found=0   # of the last call

# One check for each row of table.json but the first, which is one rank.
count_legal() { # NAME
    local layout verdict reason
    found=0
    while IFS='|' read -r layout verdict reason; do
        found=$((found + 1))
        [ "$found" -eq 1 ] && continue
        case $verdict in
        EXACT | holds) passed=$((passed + 1)) ;;
        failed) bad "$1: $layout" "$reason" ;;
        *) bad "$1: $layout" "$verdict" ;;
        esac
    done < <(sed -n 's/^ *"layout": "\(.*\)",$/L\1/p
                     s/^ *"verdict": "\(.*\)",$/V\1/p
                     s/^ *"reason": \(.*\)$/R\1/p' table.json | awk '
        /^L/ { l = substr($0, 2) }
        /^V/ { v = substr($0, 2) }
        /^R/ { print l "|" v "|" substr($0, 2) }')
    found=$((found > 0 ? found - 1 : 0))
    rows=$((rows + found))
}

# The same, and there must be as many as layouts.txt has lines.
count() { # NAME
    count_legal "$1"
    if [ $found -ne "$(grep -c . layouts.txt)" ]; then
        bad "$1" "$found rows of $(grep -c . layouts.txt)" log
    else
        echo "$1: $found rows, $SECONDS s"
    fi
}

always=() # settings of every table

# The layouts that it reads, each held against one rank.
table() { # NAME SETTING...
    local name=$1 sets=() word
    shift
    cat >layouts.txt
    for word in "${always[@]}" "$@"; do sets+=(--set "$word"); done
    lockstep verify config.yaml --layouts layouts.txt --json --steps 3 \
        --set train.steps=3 "${sets[@]}" >table.json 2>log
    count "$name"
}
