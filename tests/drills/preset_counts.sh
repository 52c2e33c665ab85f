#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# preset_counts.sh - presets have as many parameters as their authors say, to the digits that they
# print, rounded (PaLM's are cut off); none is without a row.
. "${0%/*}/common.sh"

# preset, billions of parameters as published, and where
counts='deepseek_moe_16b 16.4 arXiv:2401.06066, abstract
deepseek_v2_236b 236 arXiv:2405.04434, abstract
deepseek_v3_671b 671 arXiv:2412.19437, abstract, without the module for later tokens
gemma3_27b 27.0 arXiv:2503.19786, table 1: 25,600M and 1,416M, without the part that sees
gpt_neox_20b 20.6 arXiv:2204.06745, 2: 20,554,567,680
llama3_405b 406 huggingface.co/meta-llama/Llama-3.1-405B; arXiv:2407.21783 says 405
llama3_70b 70.6 huggingface.co/meta-llama/Llama-3.1-70B
llama3_8b 8.03 huggingface.co/meta-llama/Llama-3.1-8B
megascale_175b 175 arXiv:2402.15627, table 1
megatron_8b 8.3 arXiv:1909.08053, abstract
mixtral_8x22b 141 mistral.ai/news/mixtral-8x22b
mixtral_8x7b 46.7 mistral.ai/news/mixtral-of-experts
mt_nlg_530b 530 arXiv:2201.11990, abstract
palm_540b 540.35 arXiv:2204.02311, table 1
phi3_5_moe 41.9 huggingface.co/microsoft/Phi-3.5-MoE-instruct
qwen3_235b_a22b 235 arXiv:2505.09388, table 2
qwen3_30b_a3b 30.5 huggingface.co/Qwen/Qwen3-30B-A3B'

# One rank has all of it; nothing but the sizes of parameters is asked for.
while read -r name published source; do
    lockstep plan "$tree/examples/presets/$name.yaml" --ranks 1 --set mesh.layout=given \
        --set mesh.tensor=1 --set mesh.pipe=1 --set mesh.data=1 --set mesh.shard=1 \
        --set mesh.expert=1 --set 'mesh.layers=[]' --set zero=ddp --set schedule.name=1f1b --set schedule.chunks=0 \
        >plan.txt 2>err
    found=$(awk '$1 == "parameters" && $2 ~ /^[0-9,]+$/ { gsub(",", ""); print $2; exit }' plan.txt)
    if awk -v n="$found" -v said="$published" 'BEGIN {
            digits = index(said, ".") ? length(said) - index(said, ".") : 0
            n /= 1e9
            exit !(n > 0 && (sprintf("%.*f", digits, n) == said ||
                             sprintf("%.*f", digits, n - 0.5 / 10 ^ digits) == said)) }'
    then ok "$name: $published billions"
    else bad "$name: $published billions ($source)" "$found" err; fi
done <<<"$counts"
missing=$(for preset in "$tree"/examples/presets/*.yaml; do
    grep -q "^$(basename "$preset" .yaml) " <<<"$counts" || basename "$preset"
done)
if [ -z "$missing" ]; then ok "every preset has a row"
else bad "every preset has a row" "$missing"; fi
report
