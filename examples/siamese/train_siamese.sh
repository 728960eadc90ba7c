#!/usr/bin/env bash
# Trains examples/siamese: makes 60,000 pairs of MNIST's training images and 10,000 of its test images, then a net whose two branches share
# their params. Further flags of `train` may follow.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh train

data/mnist/get_mnist.sh
for set in train:train:60000 test:t10k:10000; do
  IFS=: read -r name file pairs <<<"$set"
  [ -f "examples/siamese/pairs_${name}_datumfile" ] || examples/siamese/pair_mnist.py "data/mnist/$file-images-idx3-ubyte" \
    "data/mnist/$file-labels-idx1-ubyte" "$pairs" "examples/siamese/pairs_${name}_datumfile"
done
"$tools/train" --solver=examples/siamese/solver.prototxt "$@"
