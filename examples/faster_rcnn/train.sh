#!/usr/bin/env bash
# Draws images of squares, disks and crosses and trains a small Faster R-CNN on them. Further flags of `train` may follow.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh train

[ -f build/faster_rcnn/test.txt ] || examples/faster_rcnn/draw_boxes.py build/faster_rcnn
"$tools/train" --solver=examples/faster_rcnn/solver.prototxt "$@"
