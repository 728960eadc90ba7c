#!/usr/bin/env bash
# Makes examples/imagenet/ilsvrc12_{train,val}_lmdb, which the ImageNet nets of models/ read, of folders and lists of images:
# 256 x 256 pixels, the training images in random order.
#   create_imagenet.sh [train] [val] [-- FLAGS of convert_imageset, for example --encoded]
#   TRAIN_ROOT, VAL_ROOT   the folders of the images (data/ilsvrc12/train, data/ilsvrc12/val)
#   TRAIN_LIST, VAL_LIST   one "path label" a line, paths below the folder (data/ilsvrc12/train.txt, data/ilsvrc12/val.txt)
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh convert_imageset

fail() { echo "create_imagenet: $*" >&2; exit 2; }
# A path given in a variable is meant from where the script was started.
place() { case ${1:-$2} in /*) echo "${1:-$2}" ;; *) if [ -n "$1" ]; then echo "$here/$1"; else echo "$2"; fi ;; esac; }

sets=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
    train | val) sets+=("$1") ;;
    *) fail "'$1' is neither train nor val; flags of convert_imageset stand behind --" ;;
  esac
  shift
done
[ $# -eq 0 ] || shift
[ ${#sets[@]} -gt 0 ] || sets=(train val)

train_root=$(place "${TRAIN_ROOT:-}" data/ilsvrc12/train) train_list=$(place "${TRAIN_LIST:-}" data/ilsvrc12/train.txt)
val_root=$(place "${VAL_ROOT:-}" data/ilsvrc12/val) val_list=$(place "${VAL_LIST:-}" data/ilsvrc12/val.txt)

# Everything is looked at before the first image is converted.
for set in "${sets[@]}"; do
  root=${set}_root list=${set}_list db=examples/imagenet/ilsvrc12_${set}_lmdb
  [ -d "${!root}" ] || fail "no folder ${!root} with the $set images: set ${set^^}_ROOT"
  [ -f "${!list}" ] || fail "no list ${!list} of the $set images, one 'path label' a line: set ${set^^}_LIST"
  line=$(grep -m 1 . "${!list}") || fail "the list ${!list} is empty"
  image=${line% *}
  [ "$image" != "$line" ] || fail "${!list}: the first line, '$line', is not 'path label'"
  [ -f "${!root}/$image" ] || fail "no ${!root}/$image, the first image of ${!list}: is ${set^^}_ROOT the folder its paths start from?"
  [ ! -e "$db" ] || fail "$db is there already: remove it to make it anew"
done

for set in "${sets[@]}"; do
  root=${set}_root list=${set}_list order=()
  [ "$set" = val ] || order=(--shuffle)
  "$tools/convert_imageset" --backend=lmdb --resize_height=256 --resize_width=256 "${order[@]}" "$@" \
    "${!root}/" "${!list}" "examples/imagenet/ilsvrc12_${set}_lmdb"
done
