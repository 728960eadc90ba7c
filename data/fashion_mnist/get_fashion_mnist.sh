#!/usr/bin/env bash
# Puts the four files of Fashion-MNIST, as they are published (.gz, 31 MB), into data/fashion_mnist. Takes them from
# $SHOAL_DATA_DIR/fashion_mnist if that variable is set, else downloads them. Every file is checked.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
fail() { echo "fashion_mnist: $*" >&2; exit 2; }
from=
if [ -n "${SHOAL_DATA_DIR:-}" ]; then
  from=$(realpath -m "$SHOAL_DATA_DIR")/fashion_mnist
  [ -d "$from" ] || fail "no folder $from: SHOAL_DATA_DIR names the folder that holds fashion_mnist/*.gz"
fi
cd "$(dirname "${BASH_SOURCE[0]}")"

mirrors=(http://fashion-mnist.s3-website.eu-central-1.amazonaws.com
         https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion)
# MD5, as published with the files.
sums='8d4fb7e6c68d591d4c3dfef9ec88bf0d  train-images-idx3-ubyte.gz
25c81989df183df01b3e8a0aad5dffbe  train-labels-idx1-ubyte.gz
bef4ecab320f06d8554ea6380940ec79  t10k-images-idx3-ubyte.gz
bb300cfdad3c16e7a12a480ee83cd310  t10k-labels-idx1-ubyte.gz'

is_right() { [ -f "$2" ] && echo "$1  $2" | md5sum --check --status; }

download() {   # NAME into NAME.part
  local mirror
  for mirror in "${mirrors[@]}"; do
    echo "fashion_mnist: $mirror/$1"
    if curl -fsSL --retry 3 --connect-timeout 20 -o "$1.part" "$mirror/$1"; then return 0; fi
  done
  fail "no mirror gave $1. Fetch it by hand and set SHOAL_DATA_DIR to the folder that holds fashion_mnist/$1."
}

trap 'rm -f ./*.part' EXIT
while read -r sum name; do
  if is_right "$sum" "$name"; then continue; fi
  if [ -n "$from" ]; then
    [ -f "$from/$name" ] || fail "no $from/$name"
    cp "$from/$name" "$name.part"
  else
    download "$name"
  fi
  is_right "$sum" "$name.part" || fail "${from:+$from/}$name has the wrong checksum (is it MNIST's file of the same name?); it was not kept"
  mv "$name.part" "$name"
done <<<"$sums"
echo "fashion_mnist: 60000 training and 10000 test images are in $(pwd)"
