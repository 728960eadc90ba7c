#!/usr/bin/env bash
# cifar10_quick: 4000 iterations at a rate of 0.001 (about 70 %), then 1000 at 0.0001 (about 74 %).
# Further flags of `train` may follow, for all parts; after Ctrl-C, --snapshot=auto goes on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh train

[ -f examples/cifar10/mean.binaryproto ] || examples/cifar10/create_cifar10.sh
log=examples/cifar10/quick.log
: > "$log"
train() { "$tools/train" "$@" 2>&1 | tee -ia "$log"; }
train --solver=models/cifar10_quick/solver.prototxt "$@"
for part in solver_lr1:4000; do
  # Of a part that was stopped there is no snapshot of its end, or one of an earlier run.
  [[ $(grep -o 'Optimization [A-Za-z]*' "$log" | tail -n 1) = *Done ]] || break
  snapshot=examples/cifar10/cifar10_quick_iter_${part#*:}.solverstate
  [ -f "$snapshot" ] || break
  train --solver="models/cifar10_quick/${part%:*}.prototxt" --snapshot="$snapshot" "$@"
done
scripts/plot.py "$log" examples/cifar10/quick.png
