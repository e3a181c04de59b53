#!/bin/sh
# Perplexity of SmolLM2 and of the embedded models after `openinfer quantize` and after llm-compressor, on the same text,
# and with the same calibration text; writes docs/quantize-quality.md.
#
# SmolLM2's texts are Python's own help topics, every other one: nothing of one is in the other. The embedded models know
# no such text: theirs are answers of their own, by seeds of their own. QUANT_TOKENS (default 4096) are calibrated with,
# QUANT_EVAL (default 16000) characters evaluated.
set -eu
cd "$(dirname "$0")/.."
cache=$(cd "${OPENINFER_CACHE:-.cache}" && pwd)
OPENINFER_CACHE=$cache sh scripts/deps-quant.sh
tokens=${QUANT_TOKENS:-4096}
chars=${QUANT_EVAL:-16000}
oi=$PWD/openinfer
work=$(mktemp -d "$cache/quant.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 - "$work" "$chars" <<'PY'
import sys, pydoc_data.topics as t
texts = [t.topics[k] for k in sorted(t.topics)]
open(sys.argv[1] + "/SmolLM2-calibration.txt", "w").write("\n\n".join(texts[0::2]))
open(sys.argv[1] + "/SmolLM2-eval.txt", "w").write("\n\n".join(texts[1::2])[: int(sys.argv[2])])
PY
for seed in $(seq 1 40); do
    part=$([ $((seed % 2)) = 0 ] && echo eval || echo calibration)
    "$oi" run demo-bard "Write a verse about love and night." --seed "$seed" --temperature 1 >>"$work/demo-bard-$part.txt"
    "$oi" run demo-tales "Tell me a story about a fox and a king" --seed "$seed" --temperature 1 >>"$work/demo-tales-$part.txt"
done
# One thread: torch's wait for each other in GPTQ's many small steps, which took 50 times as long on busy cores.
export OMP_NUM_THREADS=1 PYTHONPATH=$cache/py-quant HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1
table=$work/table
row() { # model, how, folder
    value=$("$oi" perplexity "$3" --text "$work/$1-eval.txt" --exact | sed 's/^perplexity \([0-9.]*\) .*/\1/')
    echo "| $1 | $2 | $value |" | tee -a "$table"
}
compare() { # model, source, group
    "$oi" quantize "$2" "$work/$1" --bf16 >"$work/log"
    row "$1" "bfloat16" "$work/$1"
    "$oi" quantize "$work/$1" "$work/$1-search" --group "$3" >"$work/log"
    row "$1" "openinfer, g$3, scale search" "$work/$1-search"
    "$oi" quantize "$work/$1" "$work/$1-gptq" --group "$3" --calibration "$work/$1-calibration.txt" --calibration-tokens "$tokens" >"$work/log"
    row "$1" "openinfer, g$3, calibrated" "$work/$1-gptq"
    python3 test/quality/rival.py "$work/$1" "$work/$1-rtn" rtn "$3" >"$work/log" 2>&1 || { tail -n 20 "$work/log"; exit 1; }
    row "$1" "llm-compressor, g$3, round to nearest" "$work/$1-rtn"
    python3 test/quality/rival.py "$work/$1" "$work/$1-theirs" gptq "$3" "$work/$1-calibration.txt" "$tokens" 512 >"$work/log" 2>&1 || { tail -n 20 "$work/log"; exit 1; }
    row "$1" "llm-compressor, g$3, GPTQ" "$work/$1-theirs"
}
compare SmolLM2 "$cache/gguf/SmolLM2-135M-Instruct.Q4_1.gguf" 64
compare demo-tales demo-tales 32
compare demo-bard demo-bard 32
{
    echo "# Quality of quantisation"
    echo
    echo "Made by \`scripts/quant-quality.sh\` on $(date -u +%Y-%m-%d) at commit $(git rev-parse --short HEAD): $tokens calibration tokens in sequences of 512,"
    echo "at most $chars characters evaluated in windows of 512 tokens with float32 activations; symmetric INT4; llm-compressor 0.14.0.1, activation order"
    echo "\"weight\". SmolLM2-135M-Instruct and the embedded models, dequantised to bfloat16 first."
    echo
    echo "| model | weights | perplexity |"
    echo "|---|---|---|"
    cat "$table"
} >docs/quantize-quality.md
