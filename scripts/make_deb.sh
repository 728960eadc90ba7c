#!/usr/bin/env bash
# Packs the tools, the scripts, the models and the quickstart for the Debian that this is, as BUILD/shoal_VERSION_ARCH.deb.
# usage: scripts/make_deb.sh [BUILD]      default: build/release, built with make all
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build/release}
root=$build/deb
[ -x "$build/tools/train" ] || { echo "make_deb: no $build/tools/train: run make BUILD=$build all first" >&2; exit 2; }
command -v dpkg-shlibdeps >/dev/null || { echo "make_deb: no dpkg-shlibdeps: apt-get install dpkg-dev" >&2; exit 2; }
version=$(sed -n 's/.*kVersion = "\(.*\)".*/\1/p' include/shoal/base/version.h)
architecture=$(dpkg --print-architecture)

rm -rf "$root"
install -d "$root/usr/lib/shoal/bin" "$root/usr/share/shoal/examples" "$root/usr/bin" "$root/usr/share/doc/shoal" "$root/DEBIAN"
# Names such as test and time belong to other packages, so one command, shoal, finds the tools.
find "$build/tools" -maxdepth 1 -type f -executable | while IFS= read -r program; do
  strip -o "$root/usr/lib/shoal/bin/$(basename "$program")" "$program"
done
find "$build/tools" -maxdepth 1 -type l -exec cp -P {} "$root/usr/lib/shoal/bin" \;
cp -r scripts models "$root/usr/share/shoal"
cp -r examples/quickstart examples/cluster examples/compare "$root/usr/share/shoal/examples"
find "$root/usr/share/shoal" -name __pycache__ -prune -exec rm -rf {} +
cp -r docs README.md CHANGELOG.md "$root/usr/share/doc/shoal"
cp LICENSE "$root/usr/share/doc/shoal/copyright"
install -m 755 scripts/shoal "$root/usr/bin/shoal"

# dpkg-shlibdeps asks for a source package around it.
mkdir -p "$root/debian"
printf 'Source: shoal\n\nPackage: shoal\nArchitecture: any\n' > "$root/debian/control"
depends=$(cd "$root" && dpkg-shlibdeps -O --ignore-missing-info usr/lib/shoal/bin/* 2>/dev/null | sed 's/^shlibs:Depends=//')
rm -r "$root/debian"
[ -n "$depends" ] || { echo "make_deb: dpkg-shlibdeps named no library" >&2; exit 1; }
cat > "$root/DEBIAN/control" <<END
Package: shoal
Version: $version
Architecture: $architecture
Maintainer: The Shoal developers <shoal@localhost>
Section: science
Priority: optional
Depends: $depends, python3
Recommends: openssh-client, python3-matplotlib
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Description: trains Caffe-style neural nets on one machine or on a cluster
 Reads Caffe's prototxts and models, and trains them with one process or many, of unequal speed, under a choice of consistency schemes.
END
dpkg-deb -Zxz -z1 --root-owner-group --build "$root" "$build/shoal_${version}_$architecture.deb"
