#!/bin/sh
# The configuration table of README.md is the one that the program prints, and a test runs every block of code.
# usage: readme.sh REELD_BINARY [--write]     --write puts it there
set -eu
tests=$(dirname "$0")/..
readme=$tests/../README.md
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

# A block of code has a name before it, by which a test takes it out.
awk '/^```[a-z]/ && before !~ /^<!-- [^ ]+ -->$/ { print "README.md:" NR ": a block without a name"; bad = 1 }
    { before = $0 } END { exit bad }' "$readme"
sed -n 's/^<!-- \([a-z][^ ]*\) -->$/\1/p' "$readme" | sort -u | while read -r name; do
    [ "$name" = config ] ||
        grep -rqE "(read_on|blocks|receiver|readmeBlock\(['\"]) ?$name" --exclude-dir=node_modules \
            "$tests" "$tests/../web/test" || {
        echo "README.md: no test runs the block $name"
        exit 1
    }
done
