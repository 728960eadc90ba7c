#!/usr/bin/env bash
# Installs what Shoal is built from and is not there yet. Debian or Ubuntu, as root or with sudo; asks nothing.
# --least: only what a build that trains needs. Without it also what HDF5 and ONNX files, sums by MPI, /metrics, plots, make check and
# the tests need.
# --tests: also what some tests are skipped without: an ssh server (which Debian then starts), ip, cmake, qemu, which shows programs
# another processor, clang for make tidy, what the Python package is built with, and Chromium, which looks at the status page.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail

packages=(
  g++ make pkg-config python3 protobuf-compiler
  libprotobuf-dev libgoogle-glog-dev libgflags-dev
  liblmdb-dev libleveldb-dev libopenblas-dev
  libdnnl-dev         # oneDNN: convolutions on the CPU
  libopencv-core-dev libopencv-imgproc-dev libopencv-imgcodecs-dev
  libboost-dev        # Asio, headers alone
  libssl-dev          # OpenSSL: digests, proofs, encrypted connections
  nlohmann-json3-dev
  ca-certificates
)
more=(
  libopencv-dnn-dev   # for the tests alone: OpenCV's Caffe importer reads our models
  libopenmpi-dev openmpi-bin   # sums by MPI, and mpirun for their tests
  libhdf5-dev         # HDF5 files
  libonnx-dev         # the schema of ONNX files
  prometheus-cpp-dev  # /metrics of the status page
  libgtest-dev
  clang-format-14     # make check
  python3-matplotlib  # for the pictures of scripts/plot.py; belongs to /usr/bin/python3
  curl git
)
case "$*" in
  --least) ;;
  '') packages+=("${more[@]}") ;;
  --tests) packages+=("${more[@]}" openssh-server openssh-client iproute2 qemu-user cmake clang-tidy-19 python3-dev python3-venv chromium) ;;
  *) echo "install_packages.sh takes --least, --tests or nothing, and was given: $*" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install_packages.sh knows Debian and Ubuntu only. Install what your system calls these, then run make:" >&2
  echo "  ${packages[*]}" >&2
  exit 2
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "packages: all ${#packages[@]} are installed"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
    echo "These packages are missing, and installing them needs root or sudo without a password:" >&2
    echo "  ${missing[*]}" >&2
    echo "Run: sudo $0" >&2
    exit 2
  fi
  as_root=(sudo -n)
fi

apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)

# Three tries: mirrors drop connections, and an index may change between the update and the download.
for try in 1 2 3; do
  echo "packages: installing ${missing[*]} (try $try of 3)"
  if "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends -o Dpkg::Options::=--force-confold "${missing[@]}"; then
    echo "packages: installed ${#missing[@]}"
    exit 0
  fi
done
echo "apt-get could not install: ${missing[*]}. Its own words are above; is the network there, and does" >&2
echo "/etc/apt/sources.list name a mirror (on Ubuntu with 'universe')?" >&2
exit 1
