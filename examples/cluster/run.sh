#!/usr/bin/env bash
# LeNet on MNIST by four processes of this machine, each with a quarter of every batch: run.sh [STALENESS ...], each 0 (everybody waits for
# everybody), a number of iterations, or "unbounded"; default: 0 2 unbounded. On a cluster: put its machines into the machinefile.
# MACHINEFILE=... takes another one; further settings of `train` go into FLAGS.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh train
machinefile=$(from_start "${MACHINEFILE:-}")
machinefile=${machinefile:-examples/cluster/machinefile}
goal=0.989

[ -d examples/mnist/mnist_train_lmdb ] || examples/mnist/create_mnist.sh
mkdir -p build/cluster
[ $# -gt 0 ] || set -- 0 2 unbounded
for staleness in "$@"; do
  log=build/cluster/staleness_$staleness.log
  started=$SECONDS
  # One thread each: four processes share this machine.
  scripts/launch.py --machinefile="$machinefile" --log_dir=build/cluster/logs -- "$tools/train" --solver=examples/cluster/solver.prototxt \
    --staleness="$staleness" --net_outputs="build/cluster/staleness_$staleness" --threads=1 ${FLAGS:-} 2>&1 | tee -i "$log"
  accuracy=$(sed -n 's/.*Test net output #[0-9]*: accuracy = \([0-9.e-]*\).*/\1/p' "$log" | tail -n 1)
  echo "staleness $staleness: accuracy ${accuracy:-unknown} after $((SECONDS - started)) seconds"
  if ! awk -v a="${accuracy:-0}" -v g="$goal" 'BEGIN { exit !(a >= g) }'; then
    echo "FAILED: at least $goal was expected; the log is $log" >&2
    exit 1
  fi
done
