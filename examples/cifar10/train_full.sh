#!/usr/bin/env bash
# cifar10_full: 60000, 5000 and 5000 iterations at rates of 0.001, 0.0001 and 0.00001 (about 81 % on the original images).
# Further flags of `train` may follow, for all parts; after Ctrl-C, --snapshot=auto goes on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh train

[ -f examples/cifar10/mean.binaryproto ] || examples/cifar10/create_cifar10.sh
log=examples/cifar10/full.log
: > "$log"
train() { "$tools/train" "$@" 2>&1 | tee -ia "$log"; }
train --solver=models/cifar10_full/solver.prototxt "$@"
for part in solver_lr1:60000 solver_lr2:65000; do
  # Of a part that was stopped there is no snapshot of its end, or one of an earlier run.
  [[ $(grep -o 'Optimization [A-Za-z]*' "$log" | tail -n 1) = *Done ]] || break
  snapshot=examples/cifar10/cifar10_full_iter_${part#*:}.solverstate
  [ -f "$snapshot" ] || break
  train --solver="models/cifar10_full/${part%:*}.prototxt" --snapshot="$snapshot" "$@"
done
scripts/plot.py "$log" examples/cifar10/full.png
