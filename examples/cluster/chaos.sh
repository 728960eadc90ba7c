#!/usr/bin/env bash
# LeNet on MNIST by four processes of this machine, of which one is killed every 20 seconds and
# started again: chaos.sh [TOOLS], the folder of the tools. At the end a table of what each fault
# cost, the accuracy, and a picture of the progress; all of it lies in build/chaos. Three minutes.
# Settings: DURATION=180 and EVERY=20 (seconds), SCHEME=async (or bsp and others), EXCHANGE=TABLE (or
# RING, TREE, FACTORS and others, with SCHEME=bsp), STOP=1 (every second process is stopped for 30 s
# instead of killed), CUT=1 (every second one has its link cut for 10 s instead, with STOP=1 every
# third: each has a network namespace of its own, which needs root and the program ip), SEED=1 (which
# ranks are hit), FLAGS (more words for `train`), OUT=build/chaos. Without MNIST's LMDBs the digits
# are drawn.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
case ${1:-} in '') ;; /*) tools=$1 ;; *) tools=$OLDPWD/$1 ;; esac
. examples/need_tools.sh train test draw_digits
out=$(from_start "${OUT:-}")
out=${out:-build/chaos}

rm -rf "$out/logs" "$out/metrics" "$out"/lenet_iter_*
mkdir -p "$out"
test_source=examples/mnist/mnist_test_lmdb
train_source=examples/mnist/mnist_train_lmdb
if [ ! -d "$train_source" ] || [ ! -d "$test_source" ]; then
  train_source=$out/digits_train_datumfile test_source=$out/digits_test_datumfile
  [ -e "$test_source" ] || "$tools/draw_digits" "$out"
fi
# One thread each: four processes share this machine.
exec python3 examples/cluster/chaos.py --tools="$tools" --out="$out" \
  --duration="${DURATION:-180}" --every="${EVERY:-20}" --stop="${STOP:-0}" --cut="${CUT:-0}" \
  --seed="${SEED:-1}" --source="$test_source" -- "$tools/train" --solver=examples/cluster/solver.prototxt \
  --train_source="$train_source" --test_source="$test_source" --threads=1 --exchange="${EXCHANGE:-TABLE}" \
  --scheme="${SCHEME:-async}" --metrics="$out/metrics" \
  --set="max_iter: 10000000 test_interval: 1000000 snapshot: 0 snapshot_prefix: \"$out/lenet\"" \
  ${FLAGS:-}
