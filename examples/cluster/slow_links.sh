#!/usr/bin/env bash
# Trains LeNet on MNIST by four processes of this machine whose links are held to 100 Mbit/s, once with each codec: a table of samples a second,
# bytes and accuracy, and build/slow_links/accuracy.png, accuracy over bytes. Under five minutes. Without MNIST's LMDBs the digits are drawn.
# Settings: SOLVER=examples/cluster/solver.prototxt (another one reads its net's own data, in the net's own batches; one without test_iter has
# no test, so its loss is shown), MBIT=100, PROCESSES=4, ITERATIONS=250, BATCH=64 (images of an update of LeNet), EXCHANGE=TABLE,
# CODECS="float32 AUTO:half ..." (as --codec has them; AUTO+float32 is AUTO's exchange in float32), FLAGS (more flags of train),
# OUT=build/slow_links, BUILD=build/release.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh train draw_digits
out=${OUT:-build/slow_links}
mkdir -p "$out"
lenet=examples/cluster/solver.prototxt
solver=${SOLVER:-$lenet}
data=()
if [ "$solver" = "$lenet" ]; then
  test_source=examples/mnist/mnist_test_lmdb
  train_source=examples/mnist/mnist_train_lmdb
  if [ ! -d "$train_source" ] || [ ! -d "$test_source" ]; then
    train_source=$out/digits_train_datumfile test_source=$out/digits_test_datumfile
    [ -e "$test_source" ] || "$tools/draw_digits" "$out"
  fi
  data=(--batch="${BATCH:-64}" --train_source="$train_source" --test_source="$test_source")
fi
exec python3 examples/cluster/slow_links.py --tools="$tools" --out="$out" --solver="$solver" --mbit="${MBIT:-100}" --processes="${PROCESSES:-4}" \
  --iterations="${ITERATIONS:-250}" --exchange="${EXCHANGE:-TABLE}" --codecs="${CODECS:-}" --flags="${FLAGS:-}" ${data[@]+"${data[@]}"}
