#!/usr/bin/env bash
# The accuracy of examples/mnist/lenet_iter_10000.caffemodel, or of the model named, on the 10000 test images of MNIST.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh test
weights=$(from_start "${1:-}")
weights=${weights:-examples/mnist/lenet_iter_10000.caffemodel}
[ -f "$weights" ] || { echo "test_lenet: no $weights: run examples/mnist/train_lenet.sh first, or name a model" >&2; exit 2; }
"$tools/test" --model=models/lenet/train_val.prototxt \
  --weights="$weights" --iterations=100
