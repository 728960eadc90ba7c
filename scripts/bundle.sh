#!/usr/bin/env bash
# Puts the tools, the test program and every library they need but the C library and the driver's into one folder, which then
# runs on a machine without Shoal's packages (glibc as new as this machine's).
# usage: scripts/bundle.sh [BUILD [FOLDER]]      default: build/release, BUILD/bundle; an earlier bundle there is replaced
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build/release}
folder=${2:-$build/bundle}

fail() { echo "bundle: $*" >&2; exit 2; }
[ -x "$build/tests/all" ] || fail "no $build/tests/all: run make BUILD=$build all $build/tests/all first"
[ ! -e "$folder" ] || [ -f "$folder/tools/shoal_tests" ] || fail "$folder is there already, and is no bundle: name another folder, or remove it"
programs=("$build"/tests/all)
while IFS= read -r program; do programs+=("$program"); done < <(find "$build/tools" -maxdepth 1 -type f -executable | sort)
rm -rf "$folder"
mkdir -p "$folder/tools" "$folder/lib"
for program in "${programs[@]}"; do
  strip -o "$folder/tools/$(basename "$program")" "$program"
done
mv "$folder/tools/all" "$folder/tools/shoal_tests"
find "$build/tools" -maxdepth 1 -type l -exec cp -P {} "$folder/tools" \;

# The C library's own parts belong to the machine; libcuda does too, and cuBLAS and cuDNN are looked for there when a GPU is used.
ldd "$folder"/tools/* | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  grep -v -E '/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*)\.so' |
  while IFS= read -r library; do cp -L "$library" "$folder/lib/"; done
cat > "$folder/run" <<'END'
#!/bin/sh
# Runs one of tools/ with the libraries of lib/: run train --solver=..., or run shoal_tests --gtest_filter=...
here=$(cd "$(dirname "$0")" && pwd)
program=$1
shift
LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" TOOLS_DIR="${TOOLS_DIR:-$here/tools}" exec "$here/tools/$program" "$@"
END
chmod +x "$folder/run"
echo "$folder: $(find "$folder/tools" -type f | wc -l) programs, $(find "$folder/lib" -type f | wc -l) libraries, $(du -sh "$folder" | cut -f1)"
