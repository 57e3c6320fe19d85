#!/usr/bin/env bash
# What can be told of packaging/ without building or installing anything.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    printf 'FAIL %s\n' "$1"
    exit 1
}

# quickstart in a tree where nothing has to be installed, with a CMake that only says how it was called.
mkdir -p "$work/tree/packaging" "$work/bin"
cp "$top/packaging/quickstart" "$work/tree/packaging"
cp "$top/packaging/lib.sh" "$work/tree/packaging"
echo 'need() { :; }' >>"$work/tree/packaging/lib.sh"
cat >"$work/bin/cmake" <<STUB
#!/bin/sh
printf '%s\n' "\$*" >'$work/called'
exit 1
STUB
chmod +x "$work/bin/cmake"

configured_with() {
    PATH=$work/bin:$PATH "$work/tree/packaging/quickstart" prompt 2>/dev/null && return 1
    cat "$work/called"
}

case $(configured_with) in
*' -G Ninja '*) ;;
*) fail 'quickstart chooses Ninja for a new build folder' ;;
esac
touch "$work/tree/build/CMakeCache.txt"
case $(configured_with) in
*' -G '*) fail 'quickstart leaves a build folder its generator' ;;
esac

# A proxy that gives up when the server's longest wait ends answers 504 in its place.
longest=$(sed -n 's/^#define WAIT_MOST_S *//p' "$top/appliance/http/stream.c")
patience=$(awk '/location \/ {/ { inside = 1 } inside && /proxy_read_timeout/ { print $2 + 0 } /}/ { inside = 0 }' \
    "$top/packaging/nginx.conf")
[ "${patience:-60}" -gt "$longest" ] || fail 'nginx.conf waits longer than the longest poll'
