#!/usr/bin/env bash
# Puts the four MNIST files, unpacked, into data/mnist. Takes them from $SHOAL_DATA_DIR/mnist/*.gz if that variable is set,
# else downloads them (11 MB). Every file is checked.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
[ -z "${SHOAL_DATA_DIR:-}" ] || SHOAL_DATA_DIR=$(realpath -m "$SHOAL_DATA_DIR")
cd "$(dirname "${BASH_SOURCE[0]}")"

mirrors=(https://ossci-datasets.s3.amazonaws.com/mnist https://storage.googleapis.com/cvdf-datasets/mnist)
# Of the unpacked files: how they were compressed does not matter.
sums='ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db  train-images-idx3-ubyte
65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5  train-labels-idx1-ubyte
0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7  t10k-images-idx3-ubyte
ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2  t10k-labels-idx1-ubyte'

is_right() { [ -f "$2" ] && echo "$1  $2" | sha256sum --check --status; }

download() {   # NAME: NAME.gz into NAME.part, unpacked
  local mirror
  for mirror in "${mirrors[@]}"; do
    echo "mnist: $mirror/$1.gz"
    if curl -fsSL --retry 3 --connect-timeout 20 "$mirror/$1.gz" | gzip -dc > "$1.part"; then return 0; fi
  done
  echo "mnist: no mirror gave $1.gz. Fetch it by hand and set SHOAL_DATA_DIR to the folder that holds mnist/$1.gz." >&2
  return 1
}

trap 'rm -f ./*.part' EXIT
while read -r sum name; do
  if is_right "$sum" "$name"; then continue; fi
  if [ -n "${SHOAL_DATA_DIR:-}" ]; then
    if [ ! -f "$SHOAL_DATA_DIR/mnist/$name.gz" ]; then
      echo "mnist: no $SHOAL_DATA_DIR/mnist/$name.gz: SHOAL_DATA_DIR names the folder that holds mnist/*.gz" >&2
      exit 2
    fi
    gzip -dc "$SHOAL_DATA_DIR/mnist/$name.gz" > "$name.part"
  else
    download "$name"
  fi
  is_right "$sum" "$name.part" || { echo "mnist: $name has the wrong checksum; it was not kept" >&2; exit 1; }
  mv "$name.part" "$name"
done <<<"$sums"
echo "mnist: 60000 training and 10000 test images are in $(pwd)"
