#!/usr/bin/env bash
# Cuts a database, an image list or a window file into parts, one a client: scripts/partition_data.sh [flags] DB_PATH. The flags are those of
# tools/partition_data (--help lists them). Or: DB_PATH=... NUM_PARTITIONS=N [BACKEND=lmdb] scripts/partition_data.sh. BUILD=... chooses another build folder.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BUILD:-build/release}
case $build in /*) ;; *) build=$here/$build ;; esac
[ -x "$build/tools/partition_data" ] || { echo "no $build/tools/partition_data: run make first, or name the build folder in BUILD" >&2; exit 2; }
# Poseidon's script has variables to edit; here they may come from the environment.
if [ -n "${DB_PATH:-}" ]; then
  [ -n "${NUM_PARTITIONS:-}" ] || { echo "NUM_PARTITIONS says how many parts DB_PATH=$DB_PATH is cut into" >&2; exit 2; }
  set -- --num_partitions="$NUM_PARTITIONS" ${BACKEND:+"--backend=$BACKEND"} "$@" "$DB_PATH"
fi
exec "$build/tools/partition_data" "$@"
