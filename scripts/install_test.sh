#!/usr/bin/env bash
# Installs what was built into a scratch folder, and builds examples/embed and examples/cpp_classification with that alone: headers, library and
# pkg-config file must suffice. Runs the former. usage: install_test.sh [BUILD]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
make --no-print-directory install BUILD="${1:-build/release}" PREFIX="$prefix" >/dev/null
cp examples/embed/classify.cpp examples/cpp_classification/classification.cpp models/lenet/deploy.prototxt "$prefix"
cd "$prefix"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
# Each public header stands alone, and so do the schemas' headers.
(cd include && find shoal -name '*.h' | sort | sed 's/.*/#include "&"/') >every.cpp
read -ra flags <<<"$(pkg-config --cflags shoal)"
read -ra libraries <<<"$(pkg-config --libs shoal)"
g++ -std=c++20 -fsyntax-only "${flags[@]}" every.cpp
g++ -std=c++20 "${flags[@]}" classify.cpp "${libraries[@]}" -o classify
g++ -std=c++20 "${flags[@]}" -isystem /usr/include/opencv4 classification.cpp "${libraries[@]}" -lopencv_imgcodecs -lopencv_imgproc -lopencv_core \
  -o classification
scores=$(./classify deploy.prototxt 2>/dev/null)
if ! awk '{ sum += $1 } END { exit !(NR == 10 && sum > 0.999 && sum < 1.001) }' <<<"$scores"; then
  echo "FAILED: classify should print ten probabilities, and printed: $scores" >&2
  exit 1
fi
echo "installed tree: $(wc -l <every.cpp) headers compile, and a program that links libshoal.a classifies"
