#!/bin/sh
# The speed test on a simulated RTX 3090, and on this machine's CPU beside llama-server; writes docs/matrix*.
# MATRIX_PARTS picks from "sim unique cpu"; MATRIX_CELL_TIME (default 10s) is how long a cell measures.
# On a machine that others use, too, give all of it the cores first, servers and speed test alike: in a session of its own, as niceness
# counts within one, `setsid -w sh -c 'echo -20 >/proc/self/autogroup; nice -n -20 sh scripts/matrix.sh'`. Real-time priority would
# not do: a server's threads could not interrupt each other, and llama-server's tokens come in bursts.
set -eu
cd "$(dirname "$0")/.."
cache=${OPENINFER_CACHE:-$PWD/.cache}
parts=${MATRIX_PARTS:-sim unique cpu}
time=${MATRIX_CELL_TIME:-10s}
bin=${OPENINFER_BIN:-./openinfer}
[ -x "$bin" ] || go build -trimpath -o "$bin" ./cmd/openinfer
tmp=$(mktemp -d)
pid=
stop() {
    [ -z "$pid" ] || { kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true; }
    pid=
}
trap 'stop; rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM

# start_server PORT COMMAND...: starts it and waits until it is healthy.
start_server() {
    port=$1
    shift
    "$@" >"$tmp/server.log" 2>&1 &
    pid=$!
    for _ in $(seq 300); do
        if curl -fs "http://127.0.0.1:$port/health" >/dev/null 2>&1; then return 0; fi
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.2
    done
    tail "$tmp/server.log" >&2
    echo "matrix: $1 did not start" >&2
    exit 1
}

text() { # FILES of --compare
    printf '```\n'
    "$bin" bench matrix --compare "$1"
    printf '```\n'
}

for part in $parts; do
    case $part in
    sim | unique)
        if [ "$part" = sim ]; then
            port=18931
            file=docs/matrix-rtx3090-simulated
            set -- --name "ours, one prompt" --html "$file.html"
        else
            port=18932
            file=docs/matrix-rtx3090-simulated-unique
            set -- --name "ours, a prompt each" --unique-prompts
        fi
        serve="serve --device sim:rtx3090 --models qwen3.8-27b --kv-cache-dtype fp8-e4m3 --listen 127.0.0.1:$port"
        # shellcheck disable=SC2086
        start_server $port "$bin" $serve
        "$bin" bench matrix --base-url "http://127.0.0.1:$port" --cell-time "$time" --launch-command "openinfer $serve" --json "$tmp/$part.json" "$@"
        mv "$tmp/$part.json" "$file.json"
        stop
        ;;
    cpu)
        sh scripts/llama.sh
        smol=$cache/gguf/SmolLM2-135M-Instruct.Q4_1.gguf
        cpu="CPU: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores"
        for who in ours llama; do
            if [ $who = ours ]; then
                name=OpenInfer
                launch="openinfer serve --models m=SmolLM2-135M-Instruct.Q4_1.gguf --listen 127.0.0.1:18933"
                start_server 18933 "$bin" serve --models "m=$smol" --listen 127.0.0.1:18933
            else
                name=llama-server
                launch="llama-server -m SmolLM2-135M-Instruct.Q4_1.gguf -a m --host 127.0.0.1 --port 18933 -t $(nproc) -tb $(nproc) -np 16 -c 32768"
                start_server 18933 "$cache/llama-0.3.36/bin/llama-server" -m "$smol" -a m --host 127.0.0.1 --port 18933 -t "$(nproc)" -tb "$(nproc)" -np 16 -c 32768
            fi
            "$bin" bench matrix --base-url http://127.0.0.1:18933 --cell-time "$time" --contexts 256,1K --decode-contexts 0,1K --concurrency 1,2,4,8,16 \
                --max-tokens 512 --name $name --hardware "$cpu" --launch-command "$launch" --json "$tmp/$who.json"
            stop
        done
        "$bin" bench matrix --compare "$tmp/ours.json,$tmp/llama.json" --html docs/matrix-cpu.html >/dev/null
        mv "$tmp/ours.json" docs/matrix-cpu-openinfer.json
        mv "$tmp/llama.json" docs/matrix-cpu-llama.json
        ;;
    *)
        echo "matrix: unknown part $part" >&2
        exit 2
        ;;
    esac
done

{
    cat scripts/matrix.md
    printf '\n## Simulated RTX 3090 beside the published run\n\n'
    text docs/matrix-rtx3090-simulated.json,docs/matrix-rtx3090-simulated-unique.json,scripts/matrix-published.json
    printf '\n## CPU beside llama-server\n\n'
    text docs/matrix-cpu-openinfer.json,docs/matrix-cpu-llama.json
} >docs/matrix.md
