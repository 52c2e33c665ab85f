#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# agents_apart.sh - all ranks are on one machine, and nobody hears it any more:
# its agent stands still, or its link is down. Its ranks lose their lease and
# end; the run goes on elsewhere and ends in the same bytes. The agent that goes on
# is a spare, to which the run comes back. A run of which two
# generations wrote would not.
#
#     BUILD=build [STEPS=150] tests/drills/agents_apart.sh
#
# Without network namespaces the second half is left out.
if [ -z "${LOCKSTEP_APART:-}" ] && command -v ip >/dev/null &&
    unshare -rnm sh -c 'ip link set lo up && mount -t tmpfs none /run &&
        mkdir /run/netns && ip link add bridge type bridge' 2>/dev/null; then
    LOCKSTEP_APART=1 exec unshare -rnm "$0" "$@"
fi
apart=${LOCKSTEP_APART:-}
unset LOCKSTEP_APART
. "${0%/*}/common.sh"
steps=${STEPS:-150}
address=127.0.0.1:$(free_port)
if [ -n "$apart" ]; then
    mount -t tmpfs none /run
    mkdir /run/netns
    ip link add bridge type bridge
    bridge_nodes 2 10.78.0
    address=10.78.0.254:7077
fi
prepare
base="--set train.steps=$steps --set checkpoint.every=100
    --set validate.every=100"
# shellcheck disable=SC2086
must train config.yaml --run whole $base
journal=kept/control/journal.jsonl

# shellcheck disable=SC2086
"$program" supervise config.yaml --run kept $base --ranks 2 --set mesh.data=2 \
    --set train.threads=1 --set comm.limit=60 --copies 1 --token token \
    --listen "$address" >log 2>&1 &
child=$!
children="$children $child"
await log listens
# Steps in which a rank waits for 2 s: it is not through before its lease ends,
# however fast the machine is.
waits() { # FIRST
    local step
    for ((step = $1; step < $1 + 7; step++)); do
        printf ',train.step:%d:slow' "$step"
    done
}
join() { # NAME NUMBER [FAULTS]
    local within=
    [ -z "$apart" ] || within="ip netns exec n$2"
    # shellcheck disable=SC2086
    LOCKSTEP_FAULT=${3:-} $within "$program" agent --join "$address" --token token --slots 2 \
        --name "$1" >"log.$1" 2>&1 &
    agent=$!
    children="$children $agent"
    await log "node *$1 joined"
}
# The first one tells the supervisor that steps may take so long.
join a 1 "train.step:1:slow$(waits 15)"
a=$agent
join b 2 "$(waits 10 | cut -c 2-)"
await kept/metrics.jsonl '"step": 10,'

# --- the agent of all ranks stands still; its ranks do not, nor its machine ---
kill -STOP "$a"
await log 'node *a is gone (its agent is silent'
await $journal '"event": "recovered"'
ok "the agent stands still: the run goes on elsewhere"
if [ "$(tail -n 1 kept/control/generation)" -ge 2 ]; then
    ok "the newest generation is announced"
else
    bad "the newest generation is announced" \
        "$(cat kept/control/generation 2>&1)" log
fi
# Both of its ranks ended by themselves: it cannot have ended them.
if [ "$(cat /proc/[0-9]*/stat 2>/dev/null | grep -c "(lockstep:[01]) . $a ")" = 0 ]
then ok "ranks without a lease end"
else bad "ranks without a lease end" "they live" log.a; fi
# It goes on, finds itself without a supervisor, and lends its machine again.
kill -CONT "$a"
joined_again() {
    local tries
    for ((tries = 0; tries < 1800; tries++)); do
        [ "$(grep -c 'node *a joined' log)" -lt 2 ] || return 0
        sleep 0.1
    done
    return 1
}
if joined_again; then ok "the agent is back, as a spare"
else bad "the agent is back, as a spare" "it did not join again" log.a; fi

# --- the link of all ranks is down ---
if [ -n "$apart" ]; then
    ip link set v2 down
    await log 'node *b is gone (its machine is silent'
    await log.b 'its ranks end'
    ok "a partition: ranks end with their lease"
    if until_line $journal '"generation": [3-9],.*"node": "a"'
    then ok "the run goes on where the agent stood still"
    else bad "the run goes on where the agent stood still" "not so" $journal; fi
fi
ends "ranks apart: the same bytes" kept "$child"
if ! grep -q '"event": "end", .*"result": "ok"' $journal; then
    bad "the end" "not ok" $journal
elif [ -n "$apart" ] && [ "$(grep -c '"recovered"' $journal)" -lt 2 ]; then
    bad "recoveries" "fewer than two" $journal
else
    ok "each loss was recovered from"
fi
ip link set v2 up 2>/dev/null
[ -n "$apart" ] || echo "left out: a link that breaks (no network namespaces)"
report
