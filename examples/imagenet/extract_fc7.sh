#!/usr/bin/env bash
# The 4096 values of CaffeNet's layer fc7 for each of the first validation images, as examples/imagenet/fc7_lmdb, from the newest
# models/caffenet/caffenet_train_iter_*.caffemodel or the model named.
#   extract_fc7.sh [WEIGHTS.caffemodel]
#   BATCHES   how many batches of 50 images (10); 0: all images
#   BACKEND   lmdb, leveldb, datumfile or text (lmdb); the output is called fc7_<BACKEND>
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh extract_features
backend=${BACKEND:-lmdb} out=examples/imagenet/fc7_${BACKEND:-lmdb}

fail() { echo "extract_fc7: $*" >&2; exit 2; }
[ $# -le 1 ] || fail "one model at most: extract_fc7.sh [WEIGHTS.caffemodel]"
case $backend in lmdb | leveldb | datumfile | text) ;; *) fail "BACKEND=$backend is none of lmdb, leveldb, datumfile, text" ;; esac
db=examples/imagenet/ilsvrc12_val_lmdb
[ -d "$db" ] || fail "no $db: run examples/imagenet/create_imagenet.sh first"
if [ $# -eq 1 ]; then
  weights=$1
  [[ $weights = /* ]] || weights=$here/$weights
  [ -f "$weights" ] || fail "no model $weights"
else
  weights=$(find models/caffenet -name 'caffenet_train_iter_*.caffemodel' | sort -V | tail -n 1)
  [ -n "$weights" ] || fail "no models/caffenet/caffenet_train_iter_*.caffemodel: run examples/imagenet/train_caffenet.sh, or name a model"
fi
rm -rf "$out"
"$tools/extract_features" "$weights" models/caffenet/train_val.prototxt fc7 "$out" "${BATCHES:-10}" "$backend"
echo "extract_fc7: the values of fc7 by $weights are in $out"
