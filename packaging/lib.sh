# shellcheck shell=bash
# Shared by the scripts of packaging/: messages, and installing what is missing by apt.
# Source it with `set -euo pipefail`; it sets TOP, the root of the tree.

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() {
    printf '%s\n' "$*" >&2
}

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# git ls-files of the tree, also when it belongs to another user (a checkout mounted for root).
tree_files() {
    git -C "$TOP" -c safe.directory="$TOP" ls-files "$@"
}

# Node 18 or newer with npm, wherever it came from.
node_is_recent() {
    command -v npm >/dev/null &&
        node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 18 ? 0 : 1)' 2>/dev/null
}

# package_list SECTION: the names in that section of apt-packages that are wanted on this machine.
package_list() {
    local section='' name unless condition
    while read -r name unless condition; do
        case $name in
        '' | '#'*) ;;
        '['*) section=$name ;;
        *)
            [ "$section" = "[$1]" ] || continue
            if [ "$unless" = unless ] && "$condition"; then continue; fi
            printf '%s\n' "$name"
            ;;
        esac
    done <"$TOP/packaging/apt-packages"
}

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ] ||
        # a package that another one provides (npm inside some builds of nodejs)
        { [ "$1" = npm ] && command -v npm >/dev/null; }
}

# As root, or through sudo.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo -- "$@"
    fi
}

# need SECTION…: installs the missing packages of these sections; asks nothing, and does nothing
# (no root, no network) when all are there.
need() {
    local section name missing=()
    command -v dpkg-query >/dev/null || die "this is not Debian (no dpkg): install by hand what packaging/apt-packages lists"
    for section; do
        while read -r name; do
            is_installed "$name" || missing+=("$name")
        done < <(package_list "$section")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
        die "these packages are missing, and there is neither root nor sudo to install them: ${missing[*]}
       as root: apt-get install --no-install-recommends ${missing[*]}"
    fi
    say "installing ${#missing[@]} packages and what they need: ${missing[*]}"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update >/dev/null ||
        say 'apt-get update failed; trying with the lists that are there'
    local log
    log=$(mktemp)
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends \
        -o Dpkg::Use-Pty=0 install "${missing[@]}" </dev/null >"$log" 2>&1 || {
        tail -n 30 "$log" >&2
        die "apt-get could not install: ${missing[*]} (all of its output: $log)"
    }
    rm -f "$log"
}

# wait_for SECONDS COMMAND…: until it succeeds; fails when the time is over.
wait_for() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}

# free_port FIRST: the first port from FIRST on where nothing listens on loopback.
free_port() {
    local port=$1
    while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
        port=$((port + 1))
        [ "$port" -lt $(($1 + 100)) ] || die "no free port between $1 and $port"
    done
    printf '%s\n' "$port"
}
