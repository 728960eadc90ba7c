#!/usr/bin/env bash
# Draws digits and trains an LSTM that remembers them. Further flags of `train` may follow.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${BUILD:-build/release}/tools
. examples/need_tools.sh draw_digits train

mkdir -p build/recurrent
[ -f build/recurrent/digits_test_datumfile ] || "$tools/draw_digits" build/recurrent
"$tools/train" --solver=examples/recurrent/solver.prototxt "$@"
