#!/usr/bin/env bash
# SpeeDO's walk-through: a datumfile, then a job by SpeeDO's flags. Strategy flags may follow; without any, workers send what they have learned
# as soon as they have it.
#   examples/speedo/run.sh                                             asynchronous
#   examples/speedo/run.sh --movingRate 0.5 --maxIter 400              elastic averaging
#   examples/speedo/run.sh --sync --train 5                            in lockstep, after 5 local steps
# WORKERS (2) on this machine, or MACHINES=FILE, a machinefile. DATA=FOLDER of examples/cifar10 trains cifar10_quick on its datumfiles
# (BACKEND=datumfile examples/cifar10/create_cifar10.sh); without it digits are drawn, and LeNet learns them.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh train draw_digits
out=build/guides/speedo
mkdir -p "$out"
data=$(from_start "${DATA:-}")
if [ -n "$data" ]; then
  model=cifar10_quick train=$data/cifar10_train_datumfile test=$data/cifar10_test_datumfile
else
  model=lenet train=$out/digits_train_datumfile test=$out/digits_test_datumfile
  [ -f "$train" ] || "$tools/draw_digits" --train=3000 --test=500 "$out"
fi
for file in "$train" "$test"; do
  [ -f "$file" ] || { echo "run.sh: no $file: BACKEND=datumfile examples/cifar10/create_cifar10.sh makes it" >&2; exit 2; }
done
sed -e '/backend: LMDB/a\    shared_file_system: true' -e 's/backend: LMDB/backend: DATUMFILE/' \
  -e "s|source: \".*train_lmdb\"|source: \"$train\"|" -e "s|source: \".*test_lmdb\"|source: \"$test\"|" \
  "models/$model/train_val.prototxt" > "$out/net.prototxt"
sed -e "s|^net: .*|net: \"$out/net.prototxt\"|" -e "s|^snapshot_prefix: .*|snapshot_prefix: \"$out/$model\"|" -e 's/^test_iter: .*/test_iter: 5/' \
  "models/$model/solver.prototxt" > "$out/solver.prototxt"
[ $# -gt 0 ] || set -- --scheme=async --payload=delta --maxIter 400
where=--local=${WORKERS:-2}
[ -z "${MACHINES:-}" ] || where=--machinefile=$(from_start "$MACHINES")
exec scripts/launch.py "$where" -- "$tools/train" --solver="$out/solver.prototxt" --test 0 "$@"
