#!/usr/bin/env bash
# Makes examples/cifar10/cifar10_{train,test}_lmdb (or _leveldb, _datumfile with BACKEND=...) and mean.binaryproto from what data/cifar10/get_cifar10.sh put in place:
# image lists, or the original binary batches.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
backend=${BACKEND:-lmdb}
case $backend in lmdb | leveldb | datumfile) ;; *) echo "create_cifar10: BACKEND=$backend is neither lmdb, leveldb nor datumfile" >&2; exit 2 ;; esac
. examples/need_tools.sh compute_image_mean convert_cifar convert_imageset

data/cifar10/get_cifar10.sh
rm -rf "examples/cifar10/cifar10_train_$backend" "examples/cifar10/cifar10_test_$backend"
if [ "$(cat data/cifar10/complete)" = images ]; then
  # The lists are in random order already, and a test set need not be.
  for set in train test; do
    "$tools/convert_imageset" --backend="$backend" data/cifar10/ "data/cifar10/$set.txt" "examples/cifar10/cifar10_${set}_$backend"
  done
else
  "$tools/convert_cifar" --backend="$backend" data/cifar10/cifar-10-batches-bin examples/cifar10
fi
"$tools/compute_image_mean" --backend="$backend" "examples/cifar10/cifar10_train_$backend" examples/cifar10/mean.binaryproto
