#!/usr/bin/env bash
# Sourced by train_quick.sh and train_full.sh, which set `net` and `parts`: trains the solver of cifar10_$net with the flags of "$@", then
# each part, named as its solver and the iteration from whose snapshot it goes on, and draws the curve of all.
set -euo pipefail
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh train

[ -f examples/cifar10/mean.binaryproto ] || examples/cifar10/create_cifar10.sh
log=examples/cifar10/$net.log
: > "$log"
train() { "$tools/train" "$@" 2>&1 | tee -ia "$log"; }
train --solver="models/cifar10_$net/solver.prototxt" "$@"
for part in "${parts[@]}"; do
  # A part that was stopped has no snapshot of its end, or one of an earlier run.
  [[ $(grep -o 'Optimization [A-Za-z]*' "$log" | tail -n 1) = *Done ]] || break
  snapshot=examples/cifar10/cifar10_${net}_iter_${part#*:}.solverstate
  [ -f "$snapshot" ] || break
  train --solver="models/cifar10_$net/${part%:*}.prototxt" --snapshot="$snapshot" "$@"
done
scripts/plot.py "$log" "examples/cifar10/$net.png"
