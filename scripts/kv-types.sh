#!/bin/sh
# What each type of KV cache costs: perplexity of SmolLM2 and of the embedded models, the same text and weights, and how
# far logits of random checkpoints are from the reference library's. Writes docs/kv-types.md, which says how to choose.
#
# SmolLM2's text is Python's own help topics; the embedded models' are answers of their own. KV_EVAL (default 16000)
# characters are evaluated in windows of 1,024 tokens.
set -eu
cd "$(dirname "$0")/.."
cache=$(cd "${OPENINFER_CACHE:-.cache}" && pwd)
chars=${KV_EVAL:-16000}
oi=${OPENINFER:-$PWD/openinfer}
work=$(mktemp -d "$cache/kv.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 - "$work" "$chars" <<'PY'
import sys, pydoc_data.topics as t
open(sys.argv[1] + "/SmolLM2.txt", "w").write("\n\n".join(t.topics[k] for k in sorted(t.topics))[: int(sys.argv[2])])
PY
for seed in $(seq 1 20); do
    "$oi" run demo-bard "Write a verse about love and night." --seed "$seed" --temperature 1 >>"$work/demo-bard.txt"
    "$oi" run demo-tales "Tell me a story about a fox and a king" --seed "$seed" --temperature 1 >>"$work/demo-tales.txt"
done

perplexity() { # model, text, flags...
    model=$1 text=$2
    shift 2
    "$oi" perplexity "$model" --text "$work/$text.txt" --context 1024 "$@" | sed 's/^perplexity \([0-9.]*\) .*/\1/'
}
row() { # what, flags...
    what=$1
    shift
    echo "| $what | $(perplexity "$cache/gguf/SmolLM2-135M-Instruct.Q4_1.gguf" SmolLM2 "$@") | $(perplexity demo-bard demo-bard "$@") | $(perplexity demo-tales demo-tales "$@") |" | tee -a "$work/table"
}
for type in float32 fp16 bf16 int8 fp8-e4m3; do
    row "$type" --exact --kv-cache-dtype "$type"
done
for type in fp16 int8 fp8-e4m3; do
    row "$type, activations int8 (the default)" --kv-cache-dtype "$type"
done

OPENINFER_CACHE=$cache go test -count=1 -run '^TestCacheTypes$' -v ./models/registry >"$work/log" || { tail -n 20 "$work/log"; exit 1; }
sed -n 's/.*: \([a-z0-9_/]*\) \([a-z0-9-]*\): logits differ by \([^ ]*\) at most, \([^ ]*\) on average; divergence \([^ ]*\) nats; greedy \([0-9]* of [0-9]*\) equal$/| \1 | \2 | \3 | \4 | \5 | \6 |/p' \
    "$work/log" >"$work/logits"

cat >docs/kv-types.md - "$work/table" <<TEXT
# Types of KV cache

\`--kv-cache-dtype TYPE\`, or \`NAME=TYPE\` for one of the models, says how keys and values are kept. **Take \`int8\` when context is short of
memory or of bandwidth**: half the bytes of fp16, and no loss that the texts below can show. \`fp8-e4m3\` takes the same bytes and errs four times as
much; it is there for what was tuned for it. On the CPU a token's attention over a long context takes 60 to 75 % of the time it takes with fp16
(kernels/KERNELS.md). Made by \`scripts/kv-types.sh\` on $(date -u +%Y-%m-%d) at commit $(git rev-parse --short HEAD).

| type | bytes of a value | scales | also written |
|---|---|---|---|
| float32 | 4 | - | |
| fp16 | 2 | - | float16 |
| bf16 | 2 | - | bfloat16 |
| fp8-e4m3 | 1 | one for each key and value of a head | fp8, fp8_e4m3 |
| int8 | 1 | one for each key and value of a head | |

\`auto\` is fp16, and float32 with \`--exact\`.

**Scales.** A key and a value of each token and head has its own, two bytes each: 0.8 % beside heads of 256 values, 1.6 % beside 128, 3.1 % beside
64 (Qwen3.5-27B in fp8: 32.25 KiB a token). So nothing needs to be calibrated, one token's outlier costs no other token anything, no value is clipped at 448, and
a block can be filled, cut (a draft that was refused), shared and found again at any token. A scale is a bfloat16 because fp16 would not
hold those of very large and very small heads, and it is rounded up, so that the largest value still has a code; that makes steps larger by 0.3 %
on average. A NaN or an infinity makes NaN of its whole head, so that it shows.

\`fp8-e4m3\` is OCP's E4M3 (bias 7, 448 at most, no infinities), rounded to nearest, to even between two, as torch does. vLLM's \`fp8\` has one scale for a layer, from the
checkpoint or 1; ours are never read from the checkpoint.

## Measured

Perplexity, with float32 activations but for the last rows; $chars characters for SmolLM2-135M-Instruct (Q4_1), answers of their own for the embedded models.

| KV cache | SmolLM2 | demo-bard | demo-tales |
|---|---|---|---|
TEXT
cat >>docs/kv-types.md - "$work/logits" <<TEXT

Logits against those that the reference library computed in float32, over small random checkpoints, everything but the cache in float32; a random model's are further off than
a trained one's, and gemma4's most, where values are the keys. \`go test -run TestCacheTypes ./models/registry\` holds them to half as much again.

| checkpoint | KV cache | largest difference | mean | divergence in nats | greedy choices equal |
|---|---|---|---|---|---|
TEXT
