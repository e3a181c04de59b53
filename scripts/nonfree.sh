#!/bin/sh
# Unpacks packages of Debian's non-free component into a folder, without installing anything:
# sh scripts/nonfree.sh FOLDER PACKAGE...
set -eu
dir=$(cd "$1" && pwd)
shift
tmp=$(mktemp -d "$dir/dl.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
# From the address the existing Debian entry uses, read into lists of our own so that the system's package sources stay
# as they are.
uri=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[.*\] \)\?\([^ ]*\) bookworm main.*/\2/p' \
    /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null | head -n 1)
[ -n "$uri" ] || { echo "nonfree: no Debian bookworm entry among the package sources" >&2; exit 1; }
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri bookworm non-free" >"$tmp/list"
mkdir -p "$tmp/lists/partial" "$tmp/archives/partial"
apt-get -q -o Dir::Etc::SourceList="$tmp/list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$tmp/lists" \
    -o Dir::Cache="$tmp" -o APT::Sandbox::User=root update >"$tmp/log" 2>&1 || { cat "$tmp/log" >&2; exit 1; }
(cd "$tmp" && apt-get -q -o Dir::Etc::SourceList="$tmp/list" -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::State::Lists="$tmp/lists" -o Dir::Cache="$tmp" -o APT::Sandbox::User=root download "$@" >>"$tmp/log" 2>&1) ||
    { cat "$tmp/log" >&2; exit 1; }
for deb in "$tmp"/*.deb; do dpkg -x "$deb" "$dir"; done
