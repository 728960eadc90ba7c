#!/usr/bin/env bash
# The accuracy of examples/cifar10/cifar10_quick_iter_5000.caffemodel, or of the model named, on the 10000 test images.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh test
weights=$(from_start "${1:-}")
weights=${weights:-examples/cifar10/cifar10_quick_iter_5000.caffemodel}
[ -f "$weights" ] || { echo "test_quick: no $weights: run examples/cifar10/train_quick.sh first, or name a model" >&2; exit 2; }
"$tools/test" --model=models/cifar10_quick/train_val.prototxt \
  --weights="$weights" --iterations=100
