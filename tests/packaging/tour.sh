#!/usr/bin/env bash
# Runs what README.md tells a reader to run, in its order and in one shell: the tour, the ways to watch, the
# program, both callback receivers, the receiver of the command line, an event by hand, the loop of feeds, the end.
# usage: tour.sh REELD_BINARY
set -euo pipefail
reeld=$(realpath "$1")
readme=$(realpath "$(dirname "$0")/../../README.md")
work=$(mktemp -d)
pids=()

clean() {
    local pid
    for pid in "${pids[@]}" $(jobs -p); do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap clean EXIT

fail() {
    trap - ERR
    [ ! -s "$work/out" ] || tail -n 40 "$work/out" "$work/err" >&3
    echo "FAIL: $1" >&3
    exit 1
}
exec 3>&1
trap 'fail "line $LINENO: $BASH_COMMAND"' ERR
set -E

# within SECONDS WHAT COMMAND...: until the command succeeds
within() {
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do
        [ $SECONDS -lt $end ] || fail "$what"
        sleep 0.1
    done
}

free_port() {
    python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}

# blocks NAME: the code blocks that follow a line <!-- NAME -->, on ports and a folder of this test's own; the binary
# is there already.
port=$(free_port)
hearing=$(free_port)
blocks() {
    awk -v mark="<!-- $1 -->" '
        $0 == mark { armed = 1; next }
        armed && /^```/ { if (open) open = armed = 0; else open = 1; next }
        open' "$readme" |
        sed "s#127.0.0.1:8099#127.0.0.1:$port#g; s#9000#$hearing#g; s#/tmp/reeld-tour#$work/tour#g; /^cmake /d" \
            >"$work/block-$1"
    [ -s "$work/block-$1" ] || fail "no block $1 in README.md"
}

# read_on NAME: runs these blocks in this shell, as a reader does
read_on() {
    blocks "$1"
    : >"$work/err" # and appended to: the server of the first block goes on writing here
    # shellcheck disable=SC1090
    source "$work/block-$1" >"$work/out" 2>>"$work/err"
}

said() {
    grep -q "$1" "$work/out" || fail "$2"
}

mkdir "$work/build"
ln -s "$reeld" "$work/build/reeld"
unset REELD_URL REELD_API_KEY REELD_STATE_DIR
cd "$work"

read_on tour
[ "$(wc -l <"$work/block-tour")" -gt 25 ] || fail 'the tour is not what it was'
said '^200$' 'the repeated submit was not answered with 200'
said '"status": *"SUCCEEDED"' 'the task did not succeed'
said '"status": *"CANCELED"\|"cancel_mode": *"hard"' 'nothing was canceled'
said '"from_status"' 'no history was printed'
said '"next"' 'no list was printed'
said '"code": *"INVALID_FIELD"' 'no problem document was printed'
said '^rk_' 'no key was made'
said '/sign-in' 'no link was printed'
[ -s circle.mp4 ] && [ -s circle.jpg ] && [ -s blue.mp4 ] || fail 'a video or poster is missing'
echo 'ok   the tour'

# The stream of everything ends by its time limit, which is an error for curl.
trap - ERR
set +e
read_on watch
set -e
trap 'fail "line $LINENO: $BASH_COMMAND"' ERR
said '^event: snapshot$' 'the stream of a task did not begin with a snapshot'
said '^event: progress$' 'the stream of a task told of no progress'
said '"to_status": *"SUCCEEDED"' 'no stream told of the end'
said '^id: [1-9]$' 'the stream of everything did not begin at the beginning'
[ "$(grep -c '"task_id": *"'"$ID"'"' "$work/out")" -ge 3 ] || fail 'the task was not seen in every way'
[ "$(tail -n 2 "$work/out" | grep -c '"status": *"SUCCEEDED"')" = 2 ] || fail 'the long polls did not wait for the end'
echo 'ok   watching'

blocks app.mjs
cp "$work/block-app.mjs" app.mjs
rm circle.mp4
read_on app
[ -s circle.mp4 ] || fail 'the program saved no video'
echo 'ok   app.mjs'

REELD_SECRET=$(reeld secret)
export REELD_SECRET

# receiver FILE COMMAND: hears of a task, and refuses a forged call.
receiver() {
    local file=$1 answer
    blocks "$file"
    cp "$work/block-$file" "$file"
    PORT=$(free_port)
    export PORT
    "$2" "$file" >"$file.out" 2>&1 &
    pids+=($!)
    within 20 "$file does not listen" bash -c "exec 4<>/dev/tcp/127.0.0.1/$PORT" 2>/dev/null
    answer=$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$PORT/" -d '{}' \
        -H 'webhook-id: evt_1_1' -H "webhook-timestamp: $(date +%s)" -H 'webhook-signature: v1,AAAA')
    [ "$answer" = 401 ] || fail "$file answered a forged call with $answer"
    reeld submit --wait --callback-url "http://127.0.0.1:$PORT/" "for $file" >submitted.json
    within 20 "$file heard nothing of its task" grep -q '^task.succeeded [0-9][0-9]* http' "$file.out"
    echo "ok   $file"
}
receiver receiver.mjs node
receiver receiver.py python3

read_on listen
said '"verdict": *"valid"' 'what listen heard does not verify'
echo 'ok   listen and verify-webhook'

# A signed event by hand; one that is signed by another secret is refused.
read_on hook
read_on hook.sh
said '"repeated":false' 'the signed event was not taken in'
reeld hook events studio | grep -q '"correlation_id":"video_1"' || fail 'the event is not listed'
# shellcheck disable=SC2034
HOOK_SECRET=whsec_$(head -c 32 /dev/urandom | base64)
read_on hook.sh
said UNAUTHORIZED 'an event signed by another secret was taken in'
echo 'ok   hook.sh'

# The consumer loop of feeds, ended from outside as its reader would; it has to acknowledge.
blocks feed
# shellcheck disable=SC1091
(source "$work/block-feed") >feed.out 2>&1 &
pids+=($!)
handled() {
    grep -q '^[0-9]* [0-9]* SUCCEEDED$' feed.out && reeld feed list | grep -q '"name":"billing".*"lag":0'
}
within 20 'the loop of feeds handled nothing' handled
kill "${pids[-1]}"
echo 'ok   the loop of feeds'

read_on end
[ ! -e "$work/tour" ] || fail 'something is left of the tour'
! curl -s -o /dev/null "$REELD_URL/healthz" || fail 'the server goes on'
echo 'ok   the end'
