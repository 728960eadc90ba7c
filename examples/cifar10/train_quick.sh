#!/usr/bin/env bash
# cifar10_quick: 4000 iterations at a rate of 0.001 (about 70 %), then 1000 at 0.0001 (about 74 %).
# Further flags of `train` may follow, for all parts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools

[ -f examples/cifar10/mean.binaryproto ] || examples/cifar10/create_cifar10.sh
{
  "$tools/train" --solver=models/cifar10_quick/solver.prototxt "$@"
  "$tools/train" --solver=models/cifar10_quick/solver_lr1.prototxt --snapshot=examples/cifar10/cifar10_quick_iter_4000.solverstate "$@"
} 2>&1 | tee -i examples/cifar10/quick.log
scripts/plot.py examples/cifar10/quick.log examples/cifar10/quick.png
