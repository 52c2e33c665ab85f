#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# spills.sh LOG - fails if a kernel does not fit in registers, by what ptxas says
# under -v, or if one of attention on tensor cores has arrays in memory (a stack):
# nvcc then does not know how far a loop goes. Prints those; an empty log fails, too.
exec awk '
    /Function properties for/ { kernel = $NF; next }
    /Compiling entry function/ { split($0, words, "\x27"); target = words[4] }
    /bytes spill stores/ {
        seen++
        if ($0 !~ / 0 bytes spill stores, 0 bytes spill loads/ ||
            (kernel ~ /^flash_/ && $0 !~ / 0 bytes stack frame/)) {
            print "spills: " kernel " on " target ":" $0
            spilled++
        }
    }
    END {
        if (!seen) print "spills: no kernel in the log"
        exit !seen || spilled
    }' "$1"
