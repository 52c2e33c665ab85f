#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hardened.sh - the program and its plug-ins are built with what stops a mistake
# with a foreign file from becoming more: an image at a drawn address, tables
# that are read-only from the start, canaries on stacks, checked copies.
. "${0%/*}/common.sh"

command -v readelf >/dev/null || {
    echo "not run: there is no readelf"
    exit 77
}

has() { # FILE WHAT PATTERN OPTION
    if LC_ALL=C readelf -W "$4" "$1" | grep -Eq "$3"; then ok
    else bad "${1##*/} has no $2"; fi
}

sanitized=
LC_ALL=C readelf -W --dyn-syms "$program" | grep -Eq '__(asan|tsan)_init' &&
    sanitized=yes
for file in "$program" "${program%/*}"/comm_*.so; do
    [ -e "$file" ] || continue
    has "$file" "address of its own choice (PIE)" 'Type: +DYN' -h
    has "$file" "RELRO" 'GNU_RELRO' -l
    has "$file" "full RELRO (BIND_NOW)" 'BIND_NOW|FLAGS_1.*NOW' -d
done
has "$program" "stack protector" '__stack_chk_fail' --syms
[ -n "$sanitized" ] ||
    has "$program" "_FORTIFY_SOURCE" '__[a-z]+_chk(@| |$)' --dyn-syms
report
