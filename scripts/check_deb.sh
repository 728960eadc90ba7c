#!/usr/bin/env bash
# Installs the package of make deb in a Debian 12 with nothing else, and runs the quickstart's training from there: make check_deb.
# As root, with debootstrap; packages come from where this machine has its own.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build/release}
package=$(find "$build" -maxdepth 1 -name 'shoal_*.deb' | sort | tail -n 1)
[ -n "$package" ] || { echo "check_deb: no $build/shoal_*.deb: run make BUILD=$build deb first" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "check_deb: no debootstrap: apt-get install debootstrap" >&2; exit 2; }
mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 2>/dev/null | sed -n 's/ bookworm$//p' | head -n 1)
[ -n "$mirror" ] || { echo "check_deb: this machine's sources name no bookworm" >&2; exit 2; }
root=$(mktemp -d /tmp/check_deb.XXXXXX)
finish() {
  umount "$root/proc" 2>/dev/null || true
  rm -rf --one-file-system "$root"
}
trap finish EXIT

debootstrap --variant=minbase bookworm "$root" "$mirror" > "$root.log" 2>&1 || { tail "$root.log" >&2; exit 1; }
rm -f "$root.log"
# The settings that reach the packages from here reach them from there.
cp -r /etc/apt/apt.conf.d /etc/apt/sources.list* "$root/etc/apt/" 2>/dev/null || true
[ ! -d /etc/ssl/certs ] || cp -rL /etc/ssl/certs "$root/etc/ssl/" 2>/dev/null || true
cp /etc/resolv.conf /etc/hosts "$root/etc/"
mount -t proc proc "$root/proc"
cp "$package" "$root/tmp/shoal.deb"
chroot "$root" sh -ec '
  export DEBIAN_FRONTEND=noninteractive
  apt-get -q -o APT::Sandbox::User=root update
  apt-get -q -y -o APT::Sandbox::User=root install --no-install-recommends /tmp/shoal.deb
' > "$root/install.log" 2>&1 || { tail -n 20 "$root/install.log" >&2; exit 1; }
chroot "$root" sh -ec '
  shoal train --version
  mkdir /job && cd /job
  cp -r /usr/share/shoal/models /usr/share/shoal/examples .
  mkdir -p build/quickstart
  shoal draw_digits build/quickstart > /dev/null
  shoal launch --local=2 -- shoal train --solver=examples/quickstart/solver.prototxt --threads=1 > log 2>&1 || { tail log; exit 1; }
  grep "accuracy = " log | tail -n 1
'
accuracy=$(sed -n 's/.*accuracy = \([0-9.e-]*\).*/\1/p' "$root/job/log" | tail -n 1)
awk -v a="${accuracy:-0}" 'BEGIN { exit !(a >= 0.98) }' || { echo "check_deb: accuracy ${accuracy:-unknown}, at least 0.98 was expected" >&2; exit 1; }
echo "check_deb: $(basename "$package") in a bare Debian $(cat "$root/etc/debian_version") reached $accuracy"
