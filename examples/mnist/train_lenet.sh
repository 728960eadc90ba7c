#!/usr/bin/env bash
# LeNet on MNIST by models/lenet/solver.prototxt: 10000 iterations, about 99 % of the test images right at the end.
# Further flags of `train` may follow, for example --snapshot=auto after an interruption.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh train

[ -d examples/mnist/mnist_train_lmdb ] || examples/mnist/create_mnist.sh
"$tools/train" --solver=models/lenet/solver.prototxt "$@" 2>&1 | tee -i examples/mnist/lenet.log
scripts/plot.py examples/mnist/lenet.log examples/mnist/lenet.png
