#!/usr/bin/env bash
# Caffe's and Poseidon's walk-through of feature extraction: the values of a layer for each of some pictures.
#   examples/feature_extraction/extract_features.sh [PICTURES [WEIGHTS [flags of extract_features]]]
# PICTURES: a folder; without one, pictures are drawn. WEIGHTS: a caffemodel of CaffeNet, whose fc7 is taken (imagenet_val.prototxt); without one,
# a small net of random weights shows the steps (small_val.prototxt). With --hostfile=MACHINES and --client_id=K each machine does its share.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh extract_features train
out=examples/_temp
mkdir -p "$out"

pictures=$(from_start "${1:-}")
weights=$(from_start "${2:-}")
shift $(($# < 2 ? $# : 2))
[ -n "$pictures" ] || { pictures=$PWD/$out/images; python3 examples/feature_extraction/draw_images.py "$pictures"; }
find "$pictures" -type f | sort | sed 's/$/ 0/' > "$out/file_list.txt"
net=imagenet_val
if [ -z "$weights" ]; then
  net=small_val weights=$out/small_iter_1.caffemodel
  cp examples/feature_extraction/small_val.prototxt "$out"
  echo "net: \"$out/small_val.prototxt\" base_lr: 0 lr_policy: \"fixed\" max_iter: 1 snapshot_prefix: \"$out/small\" random_seed: 1" > "$out/small_solver.prototxt"
  [ -f "$weights" ] || "$tools/train" --solver="$out/small_solver.prototxt" --stage=make_weights > "$out/small.log" 2>&1
fi
cp "examples/feature_extraction/$net.prototxt" "$out"
rm -rf "$out"/features "$out"/features_*
"$tools/extract_features" --model="$out/$net.prototxt" --weights="$weights" --extract_feature_blob_names=fc7 \
  --save_feature_leveldb_names="$out/features" --backend=leveldb "$@"
ls -d "$out"/features*
