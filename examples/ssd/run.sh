#!/usr/bin/env bash
# Trains a small MobileNet-SSD on drawn boxes, and lets a Python program compute the mean average precision that the solver printed.
# run.sh [FOLDER]: all that it makes goes there, examples/ssd/run if it is not given. About two minutes on one core.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh convert_annoset get_image_size train
[ $# -le 1 ] || { echo "run.sh: one folder at most: run.sh [FOLDER]" >&2; exit 2; }
out=${1:-examples/ssd/run}
[ $# -eq 0 ] || [[ $out = /* ]] || out=$here/$out
test_images=${TEST_IMAGES:-200}

examples/ssd/draw_boxes.py "$out/set" --train="${TRAIN_IMAGES:-1000}" --test="$test_images"
for part in train test; do
  rm -rf "$out/${part}_lmdb"
  "$tools/convert_annoset" --anno_type=detection --label_type=xml --label_map_file="$out/set/labelmap.prototxt" --encoded --encode_type=png \
    "$out/set/" "$out/set/$part.txt" "$out/${part}_lmdb"
done
"$tools/get_image_size" "$out/set/" "$out/set/test.txt" "$out/set/test_name_size.txt"
examples/ssd/make_nets.py "$out" --input=96 --fine --width=0.5 --classes=3 --train="$out/train_lmdb" --test="$out/test_lmdb" \
  --label-map="$out/set/labelmap.prototxt" --name-size="$out/set/test_name_size.txt" --batch=16 --test-images="$test_images" \
  --iterations="${ITERATIONS:-1500}" --rate=0.004
"$tools/train" --solver="$out/solver.prototxt" 2>&1 | tee "$out/train.log"
grep 'detection_eval = ' "$out/train.log" | tail -1
examples/ssd/evaluate.py "$out/found/found_" "$out/set" "$out/set/test.txt"
