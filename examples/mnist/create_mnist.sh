#!/usr/bin/env bash
# Makes examples/mnist/mnist_{train,test}_lmdb from the files of data/mnist/get_mnist.sh.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh convert_mnist

data/mnist/get_mnist.sh
rm -rf examples/mnist/mnist_train_lmdb examples/mnist/mnist_test_lmdb
"$tools/convert_mnist" --backend=lmdb data/mnist/train-images-idx3-ubyte data/mnist/train-labels-idx1-ubyte examples/mnist/mnist_train_lmdb
"$tools/convert_mnist" --backend=lmdb data/mnist/t10k-images-idx3-ubyte data/mnist/t10k-labels-idx1-ubyte examples/mnist/mnist_test_lmdb
