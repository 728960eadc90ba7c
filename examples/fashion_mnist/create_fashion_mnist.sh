#!/usr/bin/env bash
# Makes examples/fashion_mnist/fashion_mnist_{train,test}_lmdb from the files of data/fashion_mnist/get_fashion_mnist.sh, or
# from files of the same names and shape in the folder named (MNIST's own, for example), gzipped or not.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh convert_mnist
out=examples/fashion_mnist

fail() { echo "create_fashion_mnist: $*" >&2; exit 2; }
[ $# -le 1 ] || fail "one folder at most: create_fashion_mnist.sh [FOLDER]"
if [ $# -eq 1 ]; then
  folder=$1
  [[ $folder = /* ]] || folder=$here/$folder
else
  folder=data/fashion_mnist
  data/fashion_mnist/get_fashion_mnist.sh
fi
file() {   # NAME: where it is, packed or not
  local path
  for path in "$folder/$1" "$folder/$1.gz"; do
    if [ -f "$path" ]; then echo "$path"; return; fi
  done
  fail "no $folder/$1 or $1.gz"
}
for part in train:train t10k:test; do
  images=$(file "${part%:*}-images-idx3-ubyte")
  labels=$(file "${part%:*}-labels-idx1-ubyte")
  rm -rf "$out/fashion_mnist_${part#*:}_lmdb"
  "$tools/convert_mnist" --backend=lmdb "$images" "$labels" "$out/fashion_mnist_${part#*:}_lmdb"
done
