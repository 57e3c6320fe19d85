#!/usr/bin/env bash
# Runs what README.md tells a reader to run: the tour with curl, both callback receivers, the loop of feeds.
# usage: tour.sh REELD_BINARY
set -euo pipefail
reeld=$(realpath "$1")
readme=$(realpath "$(dirname "$0")/../../README.md")
work=$(mktemp -d)
pids=()

clean() {
    local pid
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap clean EXIT

fail() {
    echo "FAIL: $1"
    exit 1
}

# blocks NAME: the code blocks that follow a line <!-- NAME -->
blocks() {
    awk -v mark="<!-- $1 -->" '
        $0 == mark { armed = 1; next }
        armed && /^```/ { if (open) open = armed = 0; else open = 1; next }
        open' "$readme"
}

port() {
    python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}

mkdir "$work/build"
ln -s "$reeld" "$work/build/reeld"
cd "$work"

# The tour, on a port and a folder of its own; the binary is there already.
port=$(port)
blocks tour | sed "s#127.0.0.1:8099#127.0.0.1:$port#g; s#/tmp/reeld-tour#$work/state#g; /^cmake /d" >tour
[ "$(wc -l <tour)" -gt 20 ] || fail 'the tour was not found in README.md'
bash -euo pipefail tour >out 2>err || {
    cat out err
    fail 'a command of the tour failed'
}
grep -qx 200 out || fail 'the repeated submit was not answered with 200'
grep -q '"status": *"SUCCEEDED"' task.json || fail 'the task did not succeed'
[ -s circle.mp4 ] && [ -s circle.jpg ] && [ -s blue.mp4 ] || fail 'a video or poster is missing'
grep -q '"status": *"CANCELED"\|"cancel_mode": *"hard"' out || fail 'nothing was canceled'
grep -q '"from_status"' out || fail 'no history was printed'
grep -q '"next"' out || fail 'no list was printed'
grep -q '"code": *"INVALID_FIELD"' out || fail 'no problem document was printed'
grep -q '/sign-in' out || fail 'no link was printed'
echo 'ok   the tour'

"$reeld" serve --state-dir "$work/state" --listen "127.0.0.1:$port" >serve.log 2>&1 &
pids+=($!)
until "$reeld" list --state-dir "$work/state" >/dev/null 2>&1; do sleep 0.1; done
REELD_SECRET=$("$reeld" secret --state-dir "$work/state")
export REELD_SECRET

# receiver FILE COMMAND: hears of a task, and refuses a forged call.
receiver() {
    local file=$1 answer
    blocks "$file" >"$file"
    [ -s "$file" ] || fail "$file was not found in README.md"
    PORT=$(port)
    export PORT
    "$2" "$file" >"$file.out" 2>&1 &
    pids+=($!)
    local end=$((SECONDS + 20))
    until (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null; do
        [ $SECONDS -lt $end ] || fail "$file does not listen"
        sleep 0.1
    done
    answer=$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$PORT/" -d '{}' \
        -H 'webhook-id: evt_1_1' -H "webhook-timestamp: $(date +%s)" -H 'webhook-signature: v1,AAAA')
    [ "$answer" = 401 ] || fail "$file answered a forged call with $answer"
    "$reeld" submit --state-dir "$work/state" --wait --callback-url "http://127.0.0.1:$PORT/" \
        "for $file" >submitted.json
    end=$((SECONDS + 20))
    until grep -q "^task.succeeded [0-9][0-9]* http" "$file.out"; do
        [ $SECONDS -lt $end ] || {
            cat "$file.out"
            fail "$file heard nothing of its task"
        }
        sleep 0.1
    done
    echo "ok   $file"
}
receiver receiver.mjs node
receiver receiver.py python3

# The consumer loop of feeds, ended from outside as its reader would; it has to acknowledge.
blocks feed >feed.sh
[ -s feed.sh ] || fail 'the loop of feeds was not found in README.md'
URL=http://127.0.0.1:$port AUTH="Authorization: Bearer $(cat "$work/state/owner.key")" \
    bash -euo pipefail feed.sh >feed.out 2>&1 &
pids+=($!)
: >>feed.out
end=$((SECONDS + 20))
until grep -q '^[0-9]* [0-9]* SUCCEEDED$' feed.out &&
    "$reeld" feed list --state-dir "$work/state" | grep -q '"name":"billing".*"lag":0'; do
    [ $SECONDS -lt $end ] || {
        cat feed.out
        fail 'the loop of feeds handled nothing'
    }
    sleep 0.1
done
echo 'ok   the loop of feeds'

# A signed event by hand; one that is signed by another secret is refused.
blocks hook.sh >hook.sh
[ -s hook.sh ] || fail 'hook.sh was not found in README.md'
"$reeld" hook add outside --state-dir "$work/state" --json >source.json
HOOK_URL=$(sed 's/.*"url":"\([^"]*\)".*/\1/' source.json)
HOOK_SECRET=$(sed 's/.*"secret":"\([^"]*\)".*/\1/' source.json)
export HOOK_URL HOOK_SECRET
bash -euo pipefail hook.sh >hook.out
grep -q '"repeated":false' hook.out || {
    cat hook.out
    fail 'the signed event was not taken in'
}
"$reeld" hook events outside --state-dir "$work/state" | grep -q '"correlation_id":"video_1"' ||
    fail 'the event is not listed'
HOOK_SECRET=whsec_$(head -c 32 /dev/urandom | base64) bash -euo pipefail hook.sh >hook.out
grep -q UNAUTHORIZED hook.out || fail 'an event signed by another secret was taken in'
echo 'ok   hook.sh'
