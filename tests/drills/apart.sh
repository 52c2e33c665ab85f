# SPDX-License-Identifier: Apache-2.0
# apart.sh - sourced before common.sh: the drill begins again in network and mount
# namespaces of its own.
# shellcheck shell=bash
if [ -z "${LOCKSTEP_NETWORKS:-}" ]; then
    if ! unshare -rnm true 2>/dev/null || ! command -v ip >/dev/null; then
        echo "not run: no network namespaces here"
        exit 77
    fi
    LOCKSTEP_NETWORKS=1 exec unshare -rnm "$0" "$@"
fi
unset LOCKSTEP_NETWORKS
