#!/usr/bin/env bash
# Makes data/ilsvrc12/imagenet_mean.binaryproto, or the file named, of examples/imagenet/ilsvrc12_train_lmdb, and logs the mean of
# each channel. The nets of models/ have those in mean_value; nets of others often name the file in mean_file.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh compute_image_mean
db=examples/imagenet/ilsvrc12_train_lmdb

fail() { echo "make_imagenet_mean: $*" >&2; exit 2; }
[ $# -le 1 ] || fail "one file at most: make_imagenet_mean.sh [OUT.binaryproto]"
out=${1:-data/ilsvrc12/imagenet_mean.binaryproto}
[ $# -eq 0 ] || [[ $out = /* ]] || out=$here/$out
[ -d "$db" ] || fail "no $db: run examples/imagenet/create_imagenet.sh first"
mkdir -p "$(dirname "$out")"
"$tools/compute_image_mean" --backend=lmdb "$db" "$out"
