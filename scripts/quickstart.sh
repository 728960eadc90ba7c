#!/usr/bin/env bash
# From a fresh machine to a trained net: installs what that needs, builds, draws digits, trains LeNet on them to at least 98 % with two
# workers and a table service; then installs the other packages and draws the curve. Everything it makes lies in build/. BUILD=... chooses
# another build folder.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools=${BUILD:-build/release}/tools
out=build/quickstart
log=$out/train.log
goal=0.98

step() { printf '\n== %s\n' "$*"; }

step "1 of 6: the packages that training needs"
scripts/install_packages.sh --least

step "2 of 6: build (some minutes the first time)"
# Kernels for AVX-512 are left to make where the processor does not run them.
without=()
grep -q avx512f /proc/cpuinfo || without=(ARCH_V4=)
make -j"$(nproc)" BUILD="${BUILD:-build/release}" "${without[@]}" "$tools/train" "$tools/draw_digits"

step "3 of 6: draw 32000 digits"
rm -rf "$out"
mkdir -p "$out"
"$tools/draw_digits" --sheet="$out/digits.pgm" "$out"

step "4 of 6: train LeNet with two workers, each with its half of every batch; their params live in a table service"
started=$SECONDS
threads=$(($(nproc) > 3 ? $(nproc) / 2 : 1))
scripts/launch.py --local=2 --log_dir="$out/logs" -- "$tools/train" --solver=examples/quickstart/solver.prototxt --threads="$threads" 2>&1 |
  (trap '' INT && sed -u 's/^\[0@127.0.0.1\] //') | tee -i "$log"
seconds=$((SECONDS - started))

step "5 of 6: result"
accuracy=$(sed -n 's/.*Test net output #[0-9]*: accuracy = \([0-9.e-]*\).*/\1/p' "$log" | tail -n 1)
if ! awk -v a="${accuracy:-0}" -v g="$goal" 'BEGIN { exit !(a >= g) }'; then
  echo "FAILED: accuracy ${accuracy:-unknown} on the test digits, at least $goal was expected; the log is $log" >&2
  exit 1
fi
cat <<END

LeNet reads $accuracy of the 2000 test digits rightly, after $seconds seconds of training by two workers and a table service (bsp).
All of it took $SECONDS seconds.
END

step "6 of 6: the other packages, and the curve"
scripts/install_packages.sh
scripts/plot.py "$log" "$out/curve.png" --title="LeNet on drawn digits"
cat <<END

  the model    $out/lenet_iter_2000.caffemodel (as BVLC Caffe reads and writes it)
  the curve    $out/curve.png
  the digits   $out/digits.pgm (the first 400), $out/digits_{train,test}_datumfile
  the log      $log

What to try next:
  make                                  the other tools, then
  $tools/test --model=models/lenet/train_val.prototxt --source=$out/digits_test_datumfile --weights=$out/lenet_iter_2000.caffemodel --iterations=20
  examples/mnist/train_lenet.sh         real digits, 99 % (downloads MNIST, or set SHOAL_DATA_DIR)
  examples/cifar10/train_quick.sh       small colour images, 10 classes
  examples/cluster/run.sh               the same by four processes, with three degrees of patience; docs/training-on-a-cluster.md is about machines
  your own net                          write train_val.prototxt and solver.prototxt as for Caffe, then $tools/train --solver=...
END
