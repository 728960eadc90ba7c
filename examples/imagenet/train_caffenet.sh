#!/usr/bin/env bash
# CaffeNet on ImageNet by models/caffenet/solver.prototxt: 450000 iterations of 256 images.
#   train_caffenet.sh [-- FLAGS of train, for example --batch=64 --set='max_iter: 1000']
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh train

fail() { echo "train_caffenet: $*" >&2; exit 2; }
if [ $# -gt 0 ]; then
  [ "$1" = -- ] || fail "flags of train stand behind --: train_caffenet.sh -- $*"
  shift
fi
for db in examples/imagenet/ilsvrc12_{train,val}_lmdb; do
  [ -d "$db" ] || fail "no $db: run examples/imagenet/create_imagenet.sh first"
done
"$tools/train" --solver=models/caffenet/solver.prototxt "$@" 2>&1 | tee -i examples/imagenet/caffenet.log
