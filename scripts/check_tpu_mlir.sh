#!/usr/bin/env bash
# check_tpu_mlir.sh [BUILD]: reads nets of ours through the Caffe converter of Sophgo's tpu-mlir, which then has shoal.caffe as its caffe,
# and compares what its compiler's form of each net computes with what the net does. tpu-mlir needs CPython 3.10: PYTHON310 names it,
# python3.10 if not given. The environment, build/tpu_mlir/venv, is kept; making it fetches 1.5 GB of packages. PyTorch is 1.12.1, the
# last that brings all it needs along.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build/release}
home=$PWD/build/tpu_mlir
python=${PYTHON310:-python3.10}
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 10))' 2>/dev/null || {
  echo "check_tpu_mlir: $python is no CPython 3.10, which tpu-mlir needs; PYTHON310=PATH names one" >&2
  exit 2
}
pip() { "$home/venv/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
if ! [ -e "$home/complete" ]; then
  rm -rf "$home"
  "$python" -m venv "$home/venv"
  pip install tpu_mlir==1.30.2 torch==1.12.1 onnx==1.14.1 protobuf==3.20.3 flatbuffers psutil 'setuptools<70' wheel pybind11
  # It brings the C library of Ubuntu 22.04 along, with which a newer system's shell does not start.
  (cd "$home"/venv/lib/python3.10/site-packages/tpu_mlir/lib/third_party && rm -f libc.so.6 libm.so.6 libpthread.so.0 libstdc++.so.6 libgcc_s.so.1)
  touch "$home/complete"
fi
rm -rf "$home/wheels"
BUILD=$build pip wheel --no-deps --no-build-isolation -w "$home/wheels" . src/python/caffe_alias
pip install --no-deps --force-reinstall "$home"/wheels/*.whl
PATH=$home/venv/bin:$PATH "$home/venv/bin/python" scripts/tpu_mlir_nets.py "$home/nets"
