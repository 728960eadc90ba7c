#!/usr/bin/env bash
# The 500 values of LeNet's layer ip1 for the first 1000 test images of MNIST, as text and as an LMDB, from
# examples/mnist/lenet_iter_10000.caffemodel or the model named.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh extract_features
weights=$(from_start "${1:-}")
weights=${weights:-examples/mnist/lenet_iter_10000.caffemodel}
out=examples/feature_extraction

[ -f "$weights" ] || { echo "no $weights: run examples/mnist/train_lenet.sh first, or name a model" >&2; exit 3; }
rm -rf "$out/ip1_lmdb" "$out/ip1.txt"
# model, net, blobs, where to, batches of the net's TEST data layer, kind of file
"$tools/extract_features" "$weights" models/lenet/train_val.prototxt ip1 "$out/ip1_lmdb" 10 lmdb
"$tools/extract_features" "$weights" models/lenet/train_val.prototxt ip1 "$out/ip1.txt" 10 text
head -n 3 "$out/ip1.txt" | cut -c 1-100
