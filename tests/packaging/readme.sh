#!/bin/sh
# The configuration table of README.md is the one that the program prints.
# usage: readme.sh REELD_BINARY [--write]     --write puts it there
set -eu
readme=$(dirname "$0")/../../README.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" --print-config=markdown >"$work/table"
[ -s "$work/table" ]
awk -v table="$work/table" '
    $0 == "<!-- /config -->" { inside = 0 }
    !inside
    $0 == "<!-- config -->" { inside = 1; while ((getline line < table) > 0) print line }' \
    "$readme" >"$work/README.md"
if [ "${2:-}" = --write ]; then
    cat "$work/README.md" >"$readme"
elif ! diff -u "$readme" "$work/README.md"; then
    echo "README.md is not up to date: sh tests/packaging/readme.sh build/reeld --write"
    exit 1
fi
