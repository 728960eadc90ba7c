#!/usr/bin/env bash
# Teaches a trained LeNet to tell odd digits from even ones with the first 500 images of MNIST: finetune_odd.sh [WEIGHTS], default the model that
# examples/mnist/train_lenet.sh leaves; "" begins from nothing, for comparison.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh train
weights=examples/mnist/lenet_iter_10000.caffemodel
[ $# -eq 0 ] || weights=$(from_start "$1")

if [ -n "$weights" ] && [ ! -f "$weights" ]; then
  echo "no $weights: run examples/mnist/train_lenet.sh, or name another model of LeNet" >&2
  exit 2
fi
data/mnist/get_mnist.sh
for set in train:train:500 test:t10k:10000; do
  IFS=: read -r name file count <<<"$set"
  [ -f "examples/finetuning/odd_${name}_datumfile" ] || examples/finetuning/odd_mnist.py "data/mnist/$file-images-idx3-ubyte" \
    "data/mnist/$file-labels-idx1-ubyte" "$count" "examples/finetuning/odd_${name}_datumfile"
done
"$tools/train" --solver=examples/finetuning/solver.prototxt ${weights:+--weights="$weights"}
