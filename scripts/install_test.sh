#!/usr/bin/env bash
# Installs what was built into a scratch folder, and builds examples/embed and examples/cpp_classification with that alone: headers,
# library and pkg-config file must suffice. Runs classify. Then a CMake project links the library, a staged install goes to DESTDIR,
# and uninstall leaves nothing. usage: install_test.sh [BUILD]
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD build=${1:-build/release}
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
# MAKE_TARGET [VARIABLE...]
installed() { make --no-print-directory -C "$root" "$1" BUILD="$build" PREFIX="$prefix" "${@:2}" >/dev/null; }
fail() { echo "FAILED: $*" >&2; exit 1; }
installed install
cp examples/embed/classify.cpp examples/embed/train.cpp examples/cpp_classification/classification.cpp models/lenet/deploy.prototxt "$prefix"
cd "$prefix"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
# Each public header stands alone, and so do the schemas' headers.
(cd include && find shoal -name '*.h' | sort | sed 's/.*/#include "&"/') >every.cpp
read -ra flags <<<"$(pkg-config --cflags shoal)"
read -ra libraries <<<"$(pkg-config --libs shoal)"
g++ -std=c++20 -fsyntax-only "${flags[@]}" every.cpp
g++ -std=c++20 "${flags[@]}" classify.cpp "${libraries[@]}" -o classify
g++ -std=c++20 "${flags[@]}" train.cpp "${libraries[@]}" -o train
g++ -std=c++20 "${flags[@]}" -isystem /usr/include/opencv4 classification.cpp "${libraries[@]}" -lopencv_imgcodecs -lopencv_imgproc -lopencv_core \
  -o classification
scores=$(./classify deploy.prototxt 2>/dev/null)
awk '{ sum += $1 } END { exit !(NR == 10 && sum > 0.999 && sum < 1.001) }' <<<"$scores" ||
  fail "classify should print ten probabilities, and printed: $scores"
echo "installed tree: $(wc -l <every.cpp) headers compile, and a program that links libshoal.a classifies"

version=$(pkg-config --modversion shoal)
if command -v cmake >/dev/null; then
  cat >CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.20)
project(user CXX)
find_package(shoal $version REQUIRED)
add_executable(cmake_classify classify.cpp)
target_link_libraries(cmake_classify shoal::shoal)
END
  { cmake -S . -B cmake -DCMAKE_PREFIX_PATH="$prefix" && cmake --build cmake; } >cmake.log 2>&1 || fail "cmake: $(tail -20 cmake.log)"
  [ "$(cmake/cmake_classify deploy.prototxt 2>/dev/null)" = "$scores" ] || fail "the program that CMake made classifies otherwise"
  sed -i "s/shoal $version/shoal 99/" CMakeLists.txt
  ! cmake -S . -B newer -DCMAKE_PREFIX_PATH="$prefix" >/dev/null 2>&1 || fail "CMake took version $version for version 99"
  echo "installed tree: CMake finds version $version, and no version 99"
else
  echo "installed tree: no cmake, so its package file was not tried"
fi

installed install DESTDIR="$prefix/stage"
[ -x "$prefix/stage$prefix/bin/train" ] || fail "DESTDIR has no bin/train"
for destdir in "" "$prefix/stage"; do
  installed uninstall DESTDIR="$destdir"
  left=$(find "$destdir$prefix/bin" "$destdir$prefix/lib" "$destdir$prefix/include" -not -type d)
  [ -z "$left" ] || fail "uninstall left $left"
done
echo "installed tree: uninstall leaves nothing"
