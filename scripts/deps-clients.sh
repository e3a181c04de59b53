#!/bin/sh
# Installs the official OpenAI clients for Python and JavaScript, of pinned versions, into the
# ignored cache folder, for the tests in test/clients. A second run does nothing.
#
# OPENINFER_CACHE is the cache folder, .cache in the repository when unset.
set -eu
python_openai=3.57.0
npm_openai=6.49.0

cd "$(dirname "$0")/.."
cache=${OPENINFER_CACHE:-.cache}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

# a stamp is written last, so an install that was cut short is done again
done_already() { [ "$(cat "$1/.openai-version" 2>/dev/null)" = "$2" ]; }

py=$cache/py
if ! done_already "$py" "$python_openai"; then
  rm -rf "$py"
  mkdir -p "$py"
  # a folder of packages, reached by PYTHONPATH: unlike a virtual environment it needs no
  # Debian package beside python3, and it may be moved
  if ! python3 -m pip --version >/dev/null 2>&1; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-pip
  fi
  python3 -m pip install --quiet --no-warn-conflicts --disable-pip-version-check --no-input --root-user-action ignore \
    --target "$py" "openai==$python_openai"
  echo "$python_openai" > "$py/.openai-version"
fi

js=$cache/js
if ! done_already "$js" "$npm_openai"; then
  rm -rf "$js"
  mkdir -p "$js"
  if ! command -v npm >/dev/null; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends nodejs npm
  fi
  (cd "$js" && echo '{"private":true,"type":"module"}' > package.json \
    && npm install --silent --no-audit --no-fund --no-update-notifier --ignore-scripts --save-exact "openai@$npm_openai")
  echo "$npm_openai" > "$js/.openai-version"
fi
echo "clients: Python openai $python_openai in $py, JavaScript openai $npm_openai in $js"

# The clients of the other APIs lie apart: they share packages with the ones above, of versions of their own.
py_shapes() {
  want="anthropic==2.14.0 ollama==0.6.3"
  dir=$cache/py-shapes
  [ "$(cat "$dir/.version" 2>/dev/null)" = "$want" ] && return
  rm -rf "$dir"
  # shellcheck disable=SC2086 # two words
  python3 -m pip install --quiet --no-warn-conflicts --disable-pip-version-check --no-input --root-user-action ignore --target "$dir" $want
  echo "$want" > "$dir/.version"
}

js_shapes() {
  want="@anthropic-ai/sdk@1.14.0 ollama@0.6.4 openai@$npm_openai"
  dir=$cache/js-shapes
  [ "$(cat "$dir/.version" 2>/dev/null)" = "$want" ] && return
  rm -rf "$dir"
  mkdir -p "$dir"
  # shellcheck disable=SC2086 # three words
  (cd "$dir" && echo '{"private":true,"type":"module"}' > package.json \
    && npm install --silent --no-audit --no-fund --no-update-notifier --ignore-scripts --save-exact $want)
  echo "$want" > "$dir/.version"
}

# Schemathesis makes requests of what /openapi.json says, and compares the answers with it.
schemathesis() {
  want="schemathesis==4.32.5"
  dir=$cache/schemathesis
  [ "$(cat "$dir/.version" 2>/dev/null)" = "$want" ] && return
  rm -rf "$dir"
  python3 -m pip install --quiet --no-warn-conflicts --disable-pip-version-check --no-input --root-user-action ignore --target "$dir" $want
  echo "$want" > "$dir/.version"
}

# The AI SDK, and what stands on the Python clients and brings versions of theirs that it can do with.
js_ai() {
  want="ai@6.0.326 @ai-sdk/openai-compatible@2.0.92 zod@4.6.7"
  dir=$cache/js-ai
  [ "$(cat "$dir/.version" 2>/dev/null)" = "$want" ] && return
  rm -rf "$dir"
  mkdir -p "$dir"
  # shellcheck disable=SC2086 # three words
  (cd "$dir" && echo '{"private":true,"type":"module"}' > package.json \
    && npm install --silent --no-audit --no-fund --no-update-notifier --ignore-scripts --save-exact $want)
  echo "$want" > "$dir/.version"
}

py_frameworks() {
  want="instructor==1.17.0 litellm==1.110.2 openai-agents==0.24.0 openai==3.3.0"
  dir=$cache/py-frameworks
  [ "$(cat "$dir/.version" 2>/dev/null)" = "$want" ] && return
  rm -rf "$dir"
  # shellcheck disable=SC2086 # four words
  python3 -m pip install --quiet --no-warn-conflicts --disable-pip-version-check --no-input --root-user-action ignore --no-compile --target "$dir" $want
  echo "$want" > "$dir/.version"
}

py_shapes
js_shapes
schemathesis
js_ai
py_frameworks
echo "clients of other APIs: $cache/py-shapes, $cache/js-shapes; frameworks: $cache/js-ai, $cache/py-frameworks; $cache/schemathesis"
