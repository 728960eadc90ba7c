#!/usr/bin/env bash
# The accuracy of examples/cifar10/cifar10_quick_iter_5000.caffemodel, or of the model named, on the 10000 test images.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
"${BUILD:-build/release}/tools/test" --model=models/cifar10_quick/train_val.prototxt \
  --weights="${1:-examples/cifar10/cifar10_quick_iter_5000.caffemodel}" --iterations=100
