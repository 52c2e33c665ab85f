#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# runner.sh - a test that needs a program which this machine lacks is "not run":
# it says so, ends with 77, and tests/run.sh counts it neither as passed nor
# failed.
#
#     BUILD=build tests/cases/runner.sh
. "${0%/*}/common.sh"

# A build without plug-ins is a machine without MPI.
bare=$work/bare
mkdir "$bare"
ln -s "$program" "$bare/lockstep"
cd "$tree" || exit 1

# (mpi.sh and launched.sh have processes of lockstep's own to run on.)
script=tests/drills/mpi_signals.sh
BUILD=$bare $script >"$work/out" 2>&1
code=$?
if [ $code -ne 77 ]; then
    bad "$script without MPI: exit $code, expected 77"
elif ! tail -n 1 "$work/out" | grep -q '^not run: .*MPI'; then
    bad "$script without MPI does not say that it was not run"
else ok; fi

BUILD=$bare ONLY="mpi_signals" tests/run.sh drills >"$work/out" 2>&1
code=$?
[ $code -eq 0 ] || bad "run.sh: exit $code where nothing failed"
[ "$(grep -c '^not run ' "$work/out")" -eq 1 ] && ok ||
    bad "run.sh does not name what was not run"
[ "$(tail -n 1 "$work/out")" = "0 passed, 0 failed" ] && ok ||
    bad "run.sh counts what was not run: $(tail -n 1 "$work/out")"

# A test that passes prints what it left out, and nothing else of it is printed.
mkdir -p "$work/small/tests/cases"
cp tests/run.sh "$work/small/tests"
cat >"$work/small/tests/cases/moon.sh" <<'END'
#!/bin/sh
echo "what it says else"
echo "left out: the other side, nobody is there"
echo "[  SKIPPED ] craters"
END
chmod +x "$work/small/tests/cases/moon.sh"
(cd "$work/small" && THIRD= BUILD=build ONLY=moon tests/run.sh scripts) >"$work/out" 2>&1
for line in '    left out: the other side, nobody is there' '    left out: craters' \
    '1 passed, 0 failed'; do
    grep -qx "$line" "$work/out" && ok ||
        { bad "run.sh does not print \"$line\""; tell; }
done
grep -q "says else" "$work/out" && bad "run.sh prints all that a test says"

# Headers that the compiler does not find are named with their packages, before
# anything is compiled.
cat >"$work/cc" <<'END'
#!/bin/sh
source=$(cat)
case $source in *yaml.h*|*pcre2.h*) exit 1 ;; esac
echo "$source" | exec gcc "$@"
END
chmod +x "$work/cc"
make CC="$work/cc" BUILD="$work/none" all >"$work/out" 2>&1 &&
    bad "make succeeds without yaml.h"
for word in "does not find yaml.h pcre2.h and" \
    "install libyaml-dev libpcre2-dev$" "install libyaml-devel pcre2-devel$" \
    "pacman -S libyaml pcre2$" "tools/prefix.sh"; do
    grep -q -- "$word" "$work/out" && ok ||
        { bad "make without yaml.h does not say \"$word\""; tell; }
done
grep -q "fatal error" "$work/out" && bad "make goes on without yaml.h"
report
