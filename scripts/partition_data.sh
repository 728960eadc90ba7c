#!/usr/bin/env bash
# Cuts a database, an image list or a window file into parts, one a client: scripts/partition_data.sh [flags] DB_PATH. The flags are those of
# tools/partition_data (--help lists them). BUILD=... chooses another build folder.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BUILD:-build/release}
case $build in /*) ;; *) build=$here/$build ;; esac
[ -x "$build/tools/partition_data" ] || { echo "no $build/tools/partition_data: run make first, or name the build folder in BUILD" >&2; exit 2; }
exec "$build/tools/partition_data" "$@"
