#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# selftest.sh TIDY - tidy must find each kind of fault, and nothing else.
#
# Every case is a small tree with one fault, made here in a temporary folder.
set -eu
tidy=$1
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
passed=0
failed=0

# A tree with no fault: two folders, one function, one test.
tree() {
    rm -rf "$root/t"
    mkdir -p "$root/t/src/base" "$root/t/src/nn" "$root/t/tests/unit/base"
    printf 'base\nnn base\n' > "$root/t/src/layers.txt"
    head="/* SPDX-License-Identifier: Apache-2.0 */"
    printf '%s\n/* a.h - one. */\nint a_get(int x);\n' "$head" \
        > "$root/t/src/base/a.h"
    printf '%s\n/* a.c - one. */\n#include "base/a.h"\n\n' "$head" \
        > "$root/t/src/base/a.c"
    printf 'int a_get(int x)\n{\n    return x;\n}\n' >> "$root/t/src/base/a.c"
    printf '%s\n/* test_a.c - one. */\n#include "base/a.h"\n' "$head" \
        > "$root/t/tests/unit/base/test_a.c"
    printf 'static void works(void **state)\n{\n    a_get(!state);\n}\n' \
        >> "$root/t/tests/unit/base/test_a.c"
    printf 'void (*const tests[])(void **) = {works};\n' \
        >> "$root/t/tests/unit/base/test_a.c"
}

# add FILE TEXT...: appends lines to a file of the tree
add() {
    file=$root/t/$1
    shift
    mkdir -p "$(dirname "$file")"
    printf '%s\n' "$@" >> "$file"
}

# expect RULE [OBJECTS]
expect() {
    if "$tidy" --expect "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "selftest: $1: not found, or more than it"
    fi
}

many() { # many COUNT TEXT
    i=0
    while [ $i -lt "$1" ]; do echo "$2"; i=$((i + 1)); done
}

tree; expect clean "$root/t"

long=$(printf '%081d' 0)
tree; add src/base/a.c "/* $long */"; expect columns "$root/t"
tree; add src/base/a.c 'int x; '; expect space "$root/t"
tree; add src/base/a.c "$(printf 'int\tx;')"; expect space "$root/t"
tree; many 700 '/* line */' >> "$root/t/src/base/a.c"; expect file "$root/t"

tree
add src/base/a.h 'int a_long(void);'
add src/base/a.c 'int a_long(void)' '{'
many 70 '    ;' >> "$root/t/src/base/a.c"
add src/base/a.c '    return 0;' '}'
expect function "$root/t"

tree
add src/base/a.c 'int b(int a, int b, int c, int d, int e, int f, int g)' \
    '{' '    return a + b + c + d + e + f + g;' '}'
expect parameters "$root/t"
tree
add src/base/a.h 'int b(int a, int b, int c, int (*d)(int, int), int e, int f);'
expect clean "$root/t"

# Braces or not, else if is one level, do ... while ends.
tree
add src/base/a.c 'int b(int x)' '{' '    for (;;)' '        while (x) {' \
    '            if (x) {' '                do' \
    '                    for (;;) x--;' '                while (x);' \
    '            }' '        }' '    return x;' '}'
expect nesting "$root/t"
tree
add src/base/a.c 'int b(int x)' '{' '    for (;;) {' '        if (x) x--;' \
    '        else if (x > 1) x = 2;' '        else if (x > 2) x = 3;' \
    '        else if (x > 3) x = 3;' '        else x = 4;' \
    '        do { x++; } while (x);' '        do { x++; } while (x);' \
    '        if (x) { if (x) { if (x) x++; } else { x--; } }' \
    '        for (;;) if (x) while (x) x--;' '    }' '}'
expect clean "$root/t"

tree
add src/nn/b.h '/* SPDX-License-Identifier: Apache-2.0 */' '/* b.h - two. */'
add src/nn/b.c '/* SPDX-License-Identifier: Apache-2.0 */' '/* b.c - two. */' \
    '#include "nn/b.h"'
add src/base/a.c '#include "nn/b.h"'
expect layers "$root/t"

tree
add src/base/b.h '/* SPDX-License-Identifier: Apache-2.0 */' \
    '/* b.h - two. */' '#include "base/a.h"'
add src/base/a.h '#include "base/b.h"'
expect cycle "$root/t"

tree; add src/base/a.sh 'true'; expect licence "$root/t"
tree
add src/base/b.c '/* SPDX-License-Identifier: Apache-2.0 */' 'int b;'
expect opening "$root/t"
tree; add tests/run.sh '#!/bin/sh' '# SPDX-License-Identifier: Apache-2.0'
expect mode "$root/t"
chmod +x "$root/t/tests/run.sh"; expect clean "$root/t"
tree; add src/base/a.c '/* TO''DO: later */'; expect debt "$root/t"
tree; add src/base/a.c '/* TO''DO(ann, #12): later */'; expect clean "$root/t"
tree; add src/base/a.c '/* What is left of it. */'; expect english "$root/t"
tree; add src/base/a.c '/* The rest.' ' * Of two, the first. */'
expect english "$root/t"
tree; add src/base/a.c 'int b; /* Whoever reads. */'; expect english "$root/t"
tree; add tests/unit/base/test_a.c '/* What is left of it. */'; expect english "$root/t"
tree; add src/base/a.c '/* The same of a gather. */'; expect english "$root/t"
tree
add tools/a.sh '#!/bin/bash' '# SPDX-License-Identifier: Apache-2.0' \
    '# a.sh - does it.' '# What is left of it.'
chmod +x "$root/t/tools/a.sh"
expect english "$root/t"
tree
sed 's/a.h - one/a.h - what one is/' "$root/t/src/base/a.h" > "$root/a.h"
mv "$root/a.h" "$root/t/src/base/a.h"; expect english "$root/t"
tree; add src/base/a.c '/* Offsets of x,' ' * of which one is 0. */'
add src/base/a.c 'int b; /* of a */'; expect clean "$root/t"
tree; add src/base/a.c '/* see /wo''rk/x */'; expect path "$root/t"
tree
add tests/unit/base/test_a.c 'static void lost(void **state)' '{' \
    '    a_get(!state);' '}'
expect unlisted "$root/t"
tree
add tests/unit/base/test_a.c 'TEST(lost)' '{' '    a_get(0);' '}'
expect unlisted "$root/t"
tree
add src/base/b.h '/* SPDX-License-Identifier: Apache-2.0 */' '/* b.h - two. */'
expect dead "$root/t"
tree
add src/base/deep/b.c '/* SPDX-License-Identifier: Apache-2.0 */' \
    '/* b.c - two. */'
expect dead "$root/t"
tree; add docs/lonely.md 'Nobody links here.'; expect dead "$root/t"
tree
add src/base/a.c 'void *b(void)' '{' '    return malloc(3);' '}'
expect banned "$root/t"
tree
add src/base/a.c 'int b(struct timespec *t)' '{' \
    '    return clock_gettime(0, t);' '}'
expect banned "$root/t"
tree
add src/base/a.c '#include <pthread.h>' \
    'pthread_cond_t b = PTHREAD_COND_INITIALIZER;'
expect banned "$root/t"
tree
add src/base/a.c 'float b(struct a *a)' '{' '    return a->log(3);' '}'
expect clean "$root/t"
tree; add src/base/a.c '#ifdef HAVE_''ACCELERATOR' '#endif'; expect have "$root/t"
tree; add tests/tidy/exceptions.txt 'dead src/base/a.c once'
expect exception "$root/t"

# Objects: a function that nothing else names.
tree
mkdir -p "$root/o/src/base"
cc -I"$root/t/src" -c "$root/t/src/base/a.c" -o "$root/o/src/base/a.o"
expect clean "$root/t" "$root/o"
add src/base/a.c 'int a_lost(void)' '{' '    return 0;' '}'
cc -I"$root/t/src" -c "$root/t/src/base/a.c" -o "$root/o/src/base/a.o"
expect unused "$root/t" "$root/o"
# An object whose source is gone, in a build that goes on.
tree
mv "$root/o/src/base/a.o" "$root/o/src/base/old.o"
cc -I"$root/t/src" -c "$root/t/src/base/a.c" -o "$root/o/src/base/a.o"
expect clean "$root/t" "$root/o"

echo "tidy self-test: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
