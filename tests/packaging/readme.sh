#!/bin/sh
# The configuration table of README.md is the one that the program prints.
# usage: readme.sh REELD_BINARY
set -eu
readme=$(dirname "$0")/../../README.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" --print-config=markdown >"$work/printed"
sed -n '/^<!-- config -->$/,/^<!-- \/config -->$/{/^<!-- /d;p}' "$readme" >"$work/written"
[ -s "$work/printed" ] && diff -u "$work/written" "$work/printed" ||
    { echo 'README.md: put the output of `reeld --print-config=markdown` between the config marks'; exit 1; }
