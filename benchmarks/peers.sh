#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# peers.sh - says what the comparison with other programs lacks, then runs it.
#
#     benchmarks/peers.sh [--quick] [...]       see benchmarks/peers.py --help
#
# It installs nothing. PEERS_PYTHON: the Python that has PyTorch (default
# python3); LOCKSTEP: the program (default build/lockstep); LLM_C: a checkout of
# llm.c with `make train_gpt2` done, if it is to take part.
set -eu
cd "$(dirname "$0")/.."
python=${PEERS_PYTHON:-python3}
program=${LOCKSTEP:-build/lockstep}
missing=0

lack() {
    echo "missing: $1" >&2
    echo "    $2" >&2
    missing=1
}

[ -x "$program" ] || lack "$program" "make build/lockstep"
if ! command -v "$python" >/dev/null; then
    lack "$python" "a Python 3.9 or newer; PEERS_PYTHON=DIR/bin/python"
elif ! "$python" -c 'import torch' 2>/dev/null; then
    lack "PyTorch for $python" "python3 -m venv DIR && DIR/bin/pip install \
torch; then PEERS_PYTHON=DIR/bin/python"
fi
command -v c++ >/dev/null || command -v g++ >/dev/null \
    || lack "a C++ compiler" "torch.compile calls it: apt-get install g++"
if [ -n "${LLM_C:-}" ] && [ ! -x "$LLM_C/train_gpt2" ]; then
    lack "$LLM_C/train_gpt2" "make -C $LLM_C train_gpt2"
fi
[ $missing -eq 0 ] || exit 2
[ -n "${LLM_C:-}" ] || echo "without llm.c: LLM_C is not set" >&2
exec "$python" benchmarks/peers.py "$@"
