# Sourced in fresh mount, pid and network namespaces: a throw-away copy of this machine's file
# system at $root, with its own /proc, /sys (both read-only where they reach the kernel), /dev, /tmp.
# What is written goes to memory: it is gone with the namespaces, and works where / is an overlay too.
root=$BOX/root
mount -t tmpfs tmpfs "$BOX/layer"
mkdir "$BOX/layer/upper" "$BOX/layer/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$BOX/layer/upper,workdir=$BOX/layer/work" "$root"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
# Small images tell maintainer scripts to start nothing, and dpkg to leave manual pages out.
rm -f "$root/usr/sbin/policy-rc.d"
grep -l '^path-exclude' "$root"/etc/dpkg/dpkg.cfg.d/* 2>/dev/null | xargs -r rm
ip link set lo up
# Whatever this machine has of reeld does not take part in the test.
rm -rf "$root/var/lib/reeld" "$root/etc/reeld"
