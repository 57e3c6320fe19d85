# The test of the installed package, run as root inside the throw-away system that test-deb made.
# usage: inside.sh systemd|plain VERSION     with first.deb and next.deb beside it in /run/deb
set -euo pipefail
mode=$1
version=$2
url=http://127.0.0.1:8080
state=/var/lib/reeld
passed=0
server=''

ok() {
    passed=$((passed + 1))
    printf '  ok   %s\n' "$1"
}

fail() {
    printf '  FAIL %s\n' "$1"
    if [ "$mode" = systemd ]; then
        systemctl status reeld --no-pager --lines 0 || true
        journalctl -u reeld --no-pager --lines 40 || true
    else
        tail -n 40 /tmp/serve.log 2>/dev/null || true
    fi
    exit 1
}

# check WHAT COMMAND…
check() {
    local what=$1
    shift
    if "$@" >/tmp/out 2>&1; then
        ok "$what"
    else
        tail -n 20 /tmp/out
        fail "$what"
    fi
}

until_ok() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}

ready() {
    [ "$(curl -s -o /dev/null -w '%{http_code}' $url/readyz)" = 200 ]
}

no_answer() {
    ! curl -s -o /dev/null $url/healthz
}

is_mode() {
    [ "$(stat -c '%a %U' "$1")" = "$2" ]
}

# Without systemd: the command of the unit, as its user, from its folder.
start_by_hand() {
    local command
    read -ra command < <(sed -n 's/^ExecStart=//p' /lib/systemd/system/reeld.service)
    install -d -m 0750 -o reeld -g reeld $state
    (
        cd $state
        umask 077
        exec setpriv --reuid=reeld --regid=reeld --init-groups --no-new-privs --bounding-set=-all \
            "${command[@]}"
    ) >>/tmp/serve.log 2>&1 </dev/null &
    server=$!
}

main_pid() {
    if [ "$mode" = systemd ]; then
        systemctl show --value --property MainPID reeld
    else
        printf '%s\n' "$server"
    fi
}

install_package() {
    DEBIAN_FRONTEND=noninteractive dpkg --force-confdef -i "$1" </dev/null
    if [ "$mode" = plain ]; then
        if [ -n "$server" ]; then
            kill -TERM "$server"
            wait "$server" || true
        fi
        start_by_hand
    fi
}

video_of() {
    reeld submit --state-dir $state --wait --output "/tmp/$1.mp4" -- "$1" && [ -s "/tmp/$1.mp4" ]
}

# as_user COMMAND…: as one who has no rights here, from a folder that is everyone's.
as_user() {
    (cd /tmp && setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs \
        env HOME=/tmp "$@")
}

doctor_of_a_user() {
    # Its exit status is of no interest: 1 where this machine lacks something.
    as_user reeld doctor --state-dir /tmp/nowhere >/tmp/doctor 2>&1 || true
    cat /tmp/doctor
    grep -q '^warn config: /etc/reeld/reeld.conf .* left out$' /tmp/doctor
}

# The package's own script, where the state folder is a file system of its own.
purge_of_a_mount() {
    dpkg-deb --control /run/deb/first.deb /tmp/control &&
        mkdir $state && mount -t tmpfs tmpfs $state && mkdir $state/outputs &&
        touch $state/outputs/left && sh /tmp/control/postrm purge &&
        [ -z "$(ls -A $state)" ] && umount $state && rmdir $state
}

tasks() {
    reeld list --state-dir $state | grep -o '"task_id": *"[0-9]*"' | sort
}

# A file that this test may compare after the purge.
ls -A /etc /usr/bin /lib/systemd/system /var/lib /usr/share/doc /usr/share/man/man1 >/tmp/before

echo "package $version, $mode"
check 'dpkg -i' install_package /run/deb/first.deb
check 'its files are there' ls /usr/bin/reeld /lib/systemd/system/reeld.service \
    /etc/reeld/reeld.conf /usr/share/man/man1/reeld.1.gz /usr/share/doc/reeld/examples/nginx.conf
check 'the user exists, without shell or home' \
    sh -c 'getent passwd reeld | grep -q ":/usr/sbin/nologin$" && ! [ -e /home/reeld ]'
check 'the configuration is for the group only' is_mode /etc/reeld/reeld.conf '640 root'
check 'systemd-analyze verify' systemd-analyze verify /lib/systemd/system/reeld.service
if [ "$mode" = systemd ]; then
    check 'the service is enabled' systemctl is-enabled reeld
    check 'the service started by itself' until_ok 10 systemctl is-active --quiet reeld
fi
check 'it is ready' until_ok 10 ready
check 'healthz' curl -fsS $url/healthz
check 'the page' sh -c "curl -fsS $url/ | grep -qi '<!doctype html'"
check 'the state folder belongs to it' is_mode $state '750 reeld'
check 'the owner key is readable by it alone' is_mode $state/owner.key '600 reeld'
check 'it runs as its user' sh -c "[ \"\$(ps -o user= -p $(main_pid))\" = reeld ]"
check 'a task without a key is refused' \
    sh -c "[ \$(curl -s -o /dev/null -w '%{http_code}' $url/api/v1/tasks) = 401 ]"
check 'a prompt becomes a video' video_of red-circle
check 'doctor finds nothing' reeld doctor --state-dir $state
check 'an ordinary user may ask for the configuration' \
    as_user sh -c 'reeld --print-config | grep -q ^listen'
check 'and for the models' as_user reeld model list --state-dir /tmp/nowhere
check 'doctor says that the file was left out' doctor_of_a_user
check 'a file that is named must be readable' \
    as_user sh -c '! reeld --print-config --config /etc/reeld/reeld.conf'
check 'the manual page' sh -c 'man -P cat reeld | grep -q reeld'

if [ "$mode" = systemd ]; then
    check 'kill -9' kill -KILL "$(main_pid)"
    check 'systemd starts it again' until_ok 10 ready
    check 'restart' systemctl restart reeld
    check 'ready after the restart' until_ok 10 ready
    check 'nothing in the log of lost rights' \
        sh -c '! journalctl -u reeld --no-pager | grep -iE "permission denied|operation not permitted"'
    printf '       exposure: %s\n' \
        "$(systemd-analyze security reeld --no-pager 2>/dev/null | tail -n 1)"
else
    printf '       exposure: %s\n' "$(systemd-analyze security --offline=true \
        /lib/systemd/system/reeld.service --no-pager 2>/dev/null | tail -n 1)"
fi
check 'exposure at most 3.0' sh -c "systemd-analyze security --offline=true --threshold=30 \
    /lib/systemd/system/reeld.service >/dev/null"

# Upgrade: data and an edited configuration stay.
tasks >/tmp/tasks
owner=$(cat $state/owner.key)
echo 'auth.link_minutes = 59' >>/etc/reeld/reeld.conf
old=$(main_pid)
check 'upgrade' install_package /run/deb/next.deb
check 'ready after the upgrade' until_ok 10 ready
check 'the new version is installed' \
    sh -c "dpkg-query -W -f '\${Version}' reeld | grep -qx '$version+next1'"
check 'another process serves' sh -c "[ '$old' != '$(main_pid)' ]"
check 'the tasks are kept' sh -c "[ -s /tmp/tasks ]"
check 'all of them' diff /tmp/tasks <(tasks)
check 'the owner key is kept' sh -c "[ '$owner' = \"\$(cat $state/owner.key)\" ]"
check 'the edited configuration is kept' grep -qx 'auth.link_minutes = 59' /etc/reeld/reeld.conf
check 'it still makes videos' video_of blue-square

# Remove keeps the data, purge takes it.
if [ "$mode" = plain ]; then
    kill -TERM "$server"
    check 'it ends when told to' wait "$server"
fi
check 'remove' dpkg --remove reeld
check 'it no longer runs' until_ok 5 no_answer
check 'the data is still there' test -s $state/owner.key
check 'purge' dpkg --purge reeld
check 'the state folder is gone' test ! -e $state
check 'the configuration is gone' test ! -e /etc/reeld
check 'purge empties a state folder that is a mount point' purge_of_a_mount
check 'the user is gone' sh -c '! getent passwd reeld && ! getent group reeld'
ls -A /etc /usr/bin /lib/systemd/system /var/lib /usr/share/doc /usr/share/man/man1 >/tmp/after
# Backups that the account tools write beside their files are not the package's.
check 'nothing else is left' diff <(grep -vE '^(passwd|group|shadow|gshadow|subuid|subgid)-$' /tmp/before) \
    <(grep -vE '^(passwd|group|shadow|gshadow|subuid|subgid)-$' /tmp/after)
if [ "$mode" = systemd ]; then
    check 'systemd knows it no more' sh -c '! systemctl cat reeld'
fi
printf 'package test (%s): %s passed, 0 failed\n' "$mode" "$passed"
