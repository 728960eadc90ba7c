#!/usr/bin/env bash
# Builds the Python package as pip does, installs it in a virtual environment of its own, and runs tests/python there. PYTHON=... names
# the interpreter, python3 if not given; WHEELS=DIR keeps the wheel. With arguments, these tests alone: python_test.sh test_net.Views
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
export TOOLS_DIR=${TOOLS_DIR:-$root/build/release/tools}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
wheels=${WHEELS:-$scratch/wheels}
"${PYTHON:-python3}" -m venv "$scratch/venv"
python=$scratch/venv/bin/python
"$python" -m pip -q --disable-pip-version-check wheel --no-deps -w "$wheels" . src/python/caffe_alias
"$python" -m pip -q --disable-pip-version-check install "$wheels"/shoal*.whl
cd tests/python
# Nothing of the source tree is in the way.
"$python" -c 'import shoal; print("package", shoal.__version__, "in", shoal.__file__, "with", shoal.describe())'
GLOG_minloglevel=2 "$python" -m unittest "${@:-discover}"
