#!/usr/bin/env bash
# Puts CIFAR-10 into data/cifar10, in one of two forms that examples/cifar10/create_cifar10.sh both takes:
#   images   train/ and test/ with one JPEG an image, and the lists train.txt and test.txt ("path label"): from
#            $SHOAL_DATA_DIR/cifar10/{images.tar.gz,train.txt,test.txt}, checked against the SHA256SUMS there
#   binary   cifar-10-batches-bin/: from $SHOAL_DATA_DIR/cifar10/cifar-10-binary.tar.gz, else downloaded (170 MB), checked
# JPEG loses a little: compare accuracies only within one form.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
[ -z "${SHOAL_DATA_DIR:-}" ] || SHOAL_DATA_DIR=$(realpath "$SHOAL_DATA_DIR")
cd "$(dirname "${BASH_SOURCE[0]}")"

url=https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz
binary_sum=c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd
from=${SHOAL_DATA_DIR:+$SHOAL_DATA_DIR/cifar10}
part=unpacking
trap 'rm -rf "$part"' EXIT
rm -rf "$part"

# A mark, written last, tells a finished unpacking from an interrupted one.
if [ -f complete ]; then
  echo "cifar10: already in $(pwd), as $(cat complete)"
  exit 0
fi

if [ -n "$from" ] && [ -f "$from/images.tar.gz" ]; then
  for sums in "$from/SHA256SUMS" "$SHOAL_DATA_DIR/SHA256SUMS"; do
    [ -f "$sums" ] || continue
    echo "cifar10: checking against $sums"
    (cd "$(dirname "$sums")" && grep -E '(images\.tar\.gz|train\.txt|test\.txt)$' "$sums" | sha256sum --check --strict --quiet)
    break
  done
  mkdir "$part"
  tar -xzf "$from/images.tar.gz" -C "$part"
  cp "$from/train.txt" "$from/test.txt" "$part"
  form=images
else
  archive=${from:+$from/cifar-10-binary.tar.gz}
  mkdir "$part"
  if [ -z "$archive" ]; then
    archive=$part/cifar-10-binary.tar.gz
    echo "cifar10: $url"
    curl -fL --retry 3 --connect-timeout 20 -o "$archive" "$url" || {
      echo "cifar10: no download. Fetch it by hand and set SHOAL_DATA_DIR to the folder that holds cifar10/cifar-10-binary.tar.gz." >&2
      exit 1
    }
  fi
  echo "$binary_sum  $archive" | sha256sum --check --status || { echo "cifar10: $archive is missing or has the wrong checksum" >&2; exit 1; }
  tar -xzf "$archive" -C "$part"
  rm -f "$part/cifar-10-binary.tar.gz"
  form=binary
fi
rm -rf train test cifar-10-batches-bin
mv "$part"/* .
echo "$form" > complete
echo "cifar10: 50000 training and 10000 test images are in $(pwd), as $form"
