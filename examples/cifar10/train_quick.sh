#!/usr/bin/env bash
# cifar10_quick: 4000 iterations at a rate of 0.001 (about 70 %), then 1000 at 0.0001 (about 74 %).
# Further flags of `train` may follow, for all parts; after Ctrl-C, --snapshot=auto goes on.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
net=quick parts=(solver_lr1:4000)
. examples/cifar10/train_parts.sh
