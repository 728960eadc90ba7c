#!/usr/bin/env bash
# Trains the autoencoder of examples/autoencoder on MNIST. Further flags of `train` may follow.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh train

[ -d examples/mnist/mnist_train_lmdb ] || examples/mnist/create_mnist.sh
"$tools/train" --solver=examples/autoencoder/solver.prototxt "$@"
