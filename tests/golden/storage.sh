#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# storage.sh - tests/drills/storage.sh with moto, a server of S3 that checks
# signatures with Amazon's own botocore.
#
#     BUILD=build tests/golden/storage.sh
#
# Packages go into a virtual environment in a scratch directory that is removed
# at the end (320 MB). Exit 77 after a line "not run: WHY" where there is no
# Python or the package index does not answer. STORAGE_PYTHON: a Python that has
# moto, instead of all that.
set -u
package="moto[server,s3,iam]==5.2.5"
[ -z "${STORAGE_PYTHON:-}" ] || exec tests/drills/storage.sh
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

not_run() { # WHY
    echo "not run: $1; no checkpoint was sent to a storage"
    exit 77
}

pip=("$room/venv/bin/python" -m pip -q --disable-pip-version-check
    --no-cache-dir install)
command -v python3 >/dev/null || not_run "there is no python3"
python3 -m venv "$room/venv" >"$room/log" 2>&1 ||
    not_run "python3 -m venv fails: $(tail -n 1 "$room/log")"
# The smallest package first: who cannot get it has no index.
"${pip[@]}" --retries 1 --timeout 20 jmespath >"$room/log" 2>&1 ||
    not_run "no package index: $(grep . "$room/log" | tail -n 1)"
if ! "${pip[@]}" "$package" >"$room/log" 2>&1; then
    tail -n 8 "$room/log"
    echo "FAILED packages: the index answers, but pip fails"
    exit 1
fi
STORAGE_PYTHON=$room/venv/bin/python tests/drills/storage.sh
