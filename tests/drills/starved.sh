#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# starved.sh - the control group of a supervised run has too little memory for a
# moment: the system kills a rank, the incident says why, and the run ends in
# the bytes of one that was left alone. Where it happens again, the run ends and
# says what was planned and what the group may take. Where the group has no room
# for copies, there are none.
#
#     BUILD=build tests/drills/starved.sh
#
# Exit 77 where no control group with a limit of memory can be made.
. "${0%/*}/common.sh"
LIMIT=240
control_group memory memory memory.limit_in_bytes memory.max
if [ -e "$group/memory.usage_in_bytes" ]; then used=memory.usage_in_bytes
else used=memory.current; fi

prepare
wide="--set model.feed_forward=12000 --set validate.every=0 --set
    checkpoint.every=20 --set train.steps=40"
# shellcheck disable=SC2086
must train config.yaml --run whole $wide --ranks 2 --threads 1

# inside RUN ARGUMENT...: a run in the group, until its 8th step
inside() {
    local run=$1
    shift
    # shellcheck disable=SC2016,SC2086
    start_until "$run" 8 "$@" || {
        bad "inside $run" "no step 8" log
        report
    }
}
# The program is started by a shell that is in the group.
real=$program
cat >inside.sh <<'END'
#!/bin/bash
echo $$ >"$GROUP/cgroup.procs"
exec "$REAL" "$@"
END
chmod +x inside.sh
export GROUP=$group REAL=$real
program=$room/inside.sh

# Takes so many bytes in the group, fewer than a rank.
hog() { # BYTES
    # shellcheck disable=SC2016
    bash -c 'echo $$ >"$GROUP/cgroup.procs"
        exec dd if=/dev/zero of=/dev/null bs="$0" count=10000000' "$1" \
        2>/dev/null &
    hog=$!
    disown
}
mib=1048576
lift() {
    kill -9 "$hog"
    echo -1 >"$group/$limit" 2>/dev/null || echo max >"$group/$limit"
}
restrict() { # the group may take 32 MiB more than now
    echo $(($(cat "$group/$used") + 32 * mib)) >"$group/$limit"
}

# shellcheck disable=SC2086
inside once train config.yaml --run once $wide --ranks 2 --threads 1 \
    --supervised
restrict
hog $((64 * mib))
# The moment ends with the first incident.
until grep -q '^incident' log || ! kill -0 $child 2>/dev/null; do
    sleep 0.01
done
lift
ends "a moment without memory" once $child
program=$real
lockstep incidents once >out 2>&1
if grep -q "killed by the system for want of memory (OOM kill)" out
then ok "the incident says why"
else bad "the incident says why" "not said" out; fi

program=$room/inside.sh
# shellcheck disable=SC2086
inside twice train config.yaml --run twice $wide --ranks 2 --threads 1 \
    --supervised
restrict
hog $((64 * mib))
ended $child
code=$?
check_said "no memory again" 71 "for the second time within an hour" $code log
if grep -q "the plan of a rank is .* the control group of all may take" log
then ok "what was planned, and what there is"
else bad "what was planned, and what there is" "not said" log; fi
# --- a group that has room for the ranks, but not for copies beside them: they
# were made, and the ranks were killed ---
echo -1 >"$group/$limit" 2>/dev/null || echo max >"$group/$limit"
large="--set model.feed_forward=40000 --set validate.every=0 --set train.steps=20"
# shellcheck disable=SC2086
planned=$($real train config.yaml --run tight $large --ranks 2 --threads 1 \
    --supervised --dry-run 2>&1 |
    sed -n 's/^memory  *\([0-9]*\)[.0-9]* MiB planned for rank 0.*/\1/p')
echo $(((2 * ${planned:-0} + 140) * mib)) >"$group/$limit"
# shellcheck disable=SC2086
start_until tight 1 train config.yaml --run tight $large --ranks 2 --threads 1 \
    --supervised
check_said "no room for copies" 0 "left in the control group beside the plans" \
    $? log
kill -9 "$child"
report
