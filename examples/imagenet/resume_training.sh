#!/usr/bin/env bash
# Goes on with train_caffenet.sh's training from its newest snapshot, or from the one named; the log is continued.
#   resume_training.sh [FILE.solverstate] [-- FLAGS of train, the same as before]
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh train

fail() { echo "resume_training: $*" >&2; exit 2; }
snapshot=auto
if [ $# -gt 0 ] && [ "$1" != -- ]; then
  [[ $1 = *.solverstate ]] || fail "'$1' is no .solverstate; flags of train stand behind --"
  snapshot=$1
  [[ $snapshot = /* ]] || snapshot=$here/$snapshot
  [ -f "$snapshot" ] || fail "no snapshot $snapshot"
  shift
fi
if [ $# -gt 0 ]; then
  [ "$1" = -- ] || fail "one snapshot at most; flags of train stand behind --"
  shift
fi
for db in examples/imagenet/ilsvrc12_{train,val}_lmdb; do
  [ -d "$db" ] || fail "no $db: run examples/imagenet/create_imagenet.sh first"
done
if [ "$snapshot" = auto ] && [[ "$*" != *snapshot_prefix* ]]; then
  compgen -G 'models/caffenet/caffenet_train_iter_*.solverstate' >/dev/null ||
    fail "no models/caffenet/caffenet_train_iter_*.solverstate to go on from: run examples/imagenet/train_caffenet.sh first"
fi
"$tools/train" --solver=models/caffenet/solver.prototxt --snapshot="$snapshot" "$@" 2>&1 | tee -ia examples/imagenet/caffenet.log
