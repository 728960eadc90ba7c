#!/usr/bin/env bash
# cifar10_full: 60000, 5000 and 5000 iterations at rates of 0.001, 0.0001 and 0.00001 (about 81 % on the original images).
# Further flags of `train` may follow, for all parts; after Ctrl-C, --snapshot=auto goes on.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
net=full parts=(solver_lr1:60000 solver_lr2:65000)
. examples/cifar10/train_parts.sh
