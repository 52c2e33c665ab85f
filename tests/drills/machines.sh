# SPDX-License-Identifier: Apache-2.0
# machines.sh - sourced after common.sh and prepare: agents as on machines of
# their own, each in a mount namespace. RUN, the shards of checkpoint.local and
# the cache are other directories there, disks/NAME/..., than in the next one.
# shellcheck shell=bash
# shellcheck disable=SC2154 # of common.sh
unshare -rm true 2>/dev/null || unshare -m true 2>/dev/null || {
    echo "not run: no mount namespaces on this machine"
    exit 77
}
spaces="unshare -m"
$spaces true 2>/dev/null || spaces="unshare -rm"

head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >token
chmod 600 token
mkdir -p run shards cache

agent_on() { # NAME SLOTS [-: another may be there first]
    mkdir -p "disks/$1/run" "disks/$1/shards" "disks/$1/cache"
    cp -n cache/* "disks/$1/cache/" 2>/dev/null
    # shellcheck disable=SC2016
    $spaces sh -c 'mount --bind "disks/$2/run" run &&
        if [ -n "$5" ]; then mount -t tmpfs -o size=$5 none shards
        else mount --bind "disks/$2/shards" shards; fi && mount --bind "disks/$2/cache" cache && cd "$PWD" &&
        exec "$1" agent --join "127.0.0.1:$4" --token token --slots "$3" \
            --name "$2"' sh "$program" "$1" "$2" "$port" "${full:-}" >"log.$1" 2>&1 &
    agent=$!
    children="$children $agent"
    [ -n "${3:-}" ] || await log "node *$1 joined"
}

# gather DISKS...: the shards of all these disks into the run `got`.
gather() {
    local disk
    rm -rf got all
    mkdir all
    for disk in "$@"; do cp -a "disks/$disk/shards/$disk" all/; done
    lockstep gather got --local all >out 2>&1
}
