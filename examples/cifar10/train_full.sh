#!/usr/bin/env bash
# cifar10_full: 60000, 5000 and 5000 iterations at rates of 0.001, 0.0001 and 0.00001 (about 81 % on the original images).
# Further flags of `train` may follow, for all parts; after Ctrl-C, --snapshot=auto goes on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh train

[ -f examples/cifar10/mean.binaryproto ] || examples/cifar10/create_cifar10.sh
{
  "$tools/train" --solver=models/cifar10_full/solver.prototxt "$@"
  # a part that was stopped has left no snapshot of its end
  for part in solver_lr1:60000 solver_lr2:65000; do
    snapshot=examples/cifar10/cifar10_full_iter_${part#*:}.solverstate
    [ -f "$snapshot" ] || break
    "$tools/train" --solver="models/cifar10_full/${part%:*}.prototxt" --snapshot="$snapshot" "$@"
  done
} 2>&1 | tee -i examples/cifar10/full.log
scripts/plot.py examples/cifar10/full.log examples/cifar10/full.png
