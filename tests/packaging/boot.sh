# Becomes `unshare`, whose child is a systemd (PID 1 of its own namespaces) over an overlay of /.
# BOX: a folder with layer, root and deb; GROUP: a cgroup2 folder for all of it.
set -eu
echo $$ >"$GROUP/cgroup.procs"
exec unshare --mount --pid --fork --kill-child --cgroup --net --uts --ipc --propagation private \
    bash -c '
set -eu
. "$1/overlay.sh"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mkdir "$root/run/deb"
mount --bind "$BOX/deb" "$root/run/deb"
rm -f "$root/etc/machine-id"
: >"$root/etc/machine-id"
hostname reeld-test
cd "$root"
mkdir -p .old
pivot_root . .old
umount -l /.old
rmdir /.old
exec env -i container=reeld-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --unit=basic.target --log-target=console
' boot "$(dirname "$0")"
