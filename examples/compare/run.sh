#!/usr/bin/env bash
# Which scheme for a cluster with a slow machine in it? Trains a small net once with each scheme on an imagined cluster of six workers, and writes
# build/compare/report.md with its pictures: a few minutes on two cores. Takes the flags of scripts/compare_schemes.py.
# On MNIST if it is in data/mnist (data/mnist/get_mnist.sh) or SHOAL_DATA_DIR says where; else on drawn digits.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh convert_mnist draw_digits
data=build/compare/data

if [ ! -e "$data/test_datumfile" ]; then
  rm -rf "$data"
  mkdir -p "$data"
  [ -z "${SHOAL_DATA_DIR:-}" ] || data/mnist/get_mnist.sh
  if [ -f data/mnist/t10k-labels-idx1-ubyte ]; then
    "$tools/convert_mnist" --backend=datumfile data/mnist/train-images-idx3-ubyte data/mnist/train-labels-idx1-ubyte "$data/train_datumfile"
    "$tools/convert_mnist" --backend=datumfile data/mnist/t10k-images-idx3-ubyte data/mnist/t10k-labels-idx1-ubyte "$data/test_datumfile"
  else
    "$tools/draw_digits" "$data"
    mv "$data/digits_train_datumfile" "$data/train_datumfile"
    mv "$data/digits_test_datumfile" "$data/test_datumfile"
  fi
fi
scripts/compare_schemes.py --cluster=examples/compare/cluster.prototxt --solver=examples/compare/solver.prototxt --seconds=60 --out=build/compare "$@"
