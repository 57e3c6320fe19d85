# The test of the package without systemd: in a chroot over an overlay of /.
set -eu
# shellcheck source=tests/packaging/overlay.sh
. "$(dirname "$0")/overlay.sh" # sets root
: "${root:?}"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mkdir "$root/run/deb"
mount --bind "$BOX/deb" "$root/run/deb"
exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/root \
    bash /run/deb/inside.sh plain "$1"
