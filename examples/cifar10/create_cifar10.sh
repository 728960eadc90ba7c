#!/usr/bin/env bash
# Makes examples/cifar10/cifar10_{train,test}_lmdb and mean.binaryproto from what data/cifar10/get_cifar10.sh put in place:
# image lists, or the original binary batches.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh compute_image_mean convert_cifar convert_imageset

data/cifar10/get_cifar10.sh
rm -rf examples/cifar10/cifar10_train_lmdb examples/cifar10/cifar10_test_lmdb
if [ "$(cat data/cifar10/complete)" = images ]; then
  # The lists are in random order already, and a test set need not be.
  for set in train test; do
    "$tools/convert_imageset" --backend=lmdb data/cifar10/ "data/cifar10/$set.txt" "examples/cifar10/cifar10_${set}_lmdb"
  done
else
  "$tools/convert_cifar" --backend=lmdb data/cifar10/cifar-10-batches-bin examples/cifar10
fi
"$tools/compute_image_mean" --backend=lmdb examples/cifar10/cifar10_train_lmdb examples/cifar10/mean.binaryproto
