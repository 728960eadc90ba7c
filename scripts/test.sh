#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test. The last line says "N passed, N failed, N skipped";
# the exit code is 0 only if nothing failed. Works from any folder. BUILD=... chooses another build folder; TEST_PACKAGES=1 also
# installs an ssh server, ip and qemu-user, without which some tests are skipped.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"   # started as sh SCRIPT
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
build=${BUILD:-build/release}
# With nvcc the code for GPUs is compiled and tested too: on a GPU if there is one, and on a fake one in any case.
export CUDA=${CUDA:-$([ -n "$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)" ] && echo 1 || echo 0)}
jobs=$(nproc 2>/dev/null || echo 2)
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
log=$work/log results=$work/results
touch "$results"

finish() {
  local passed failed skipped
  passed=$(awk '/^passed/ { sum += $2 } END { print sum + 0 }' "$results")
  failed=$(awk '/^failed/ { sum += $2 } END { print sum + 0 }' "$results")
  skipped=$(awk '/^skipped/ { sum += $2 } END { print sum + 0 }' "$results")
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ]
  exit
}
# One test that is a command: step NAME COMMAND...
step() {
  local from=$SECONDS
  echo "== $1"
  if "${@:2}"; then
    echo "passed 1" >>"$results"
    echo "== $1: $((SECONDS - from)) s"
  else
    echo "failed 1" >>"$results"
    echo "FAILED: $1, after $((SECONDS - from)) s"
    return 1
  fi
}
# Waits for the steps that run beside others under this process number, and prints what they printed.
beside_ended() {
  wait "$1"
  cat "$2"
}

step "packages" scripts/install_packages.sh ${TEST_PACKAGES:+--tests} || finish
step "build" make -j"$jobs" BUILD="$build" all "$build/tests/all" || finish
# Two rows of steps beside each other: most keep one core busy.
(
  step "Makefile" python3 scripts/makefile_test.py
  step "shell scripts" env BUILD="$build" python3 scripts/examples_test.py
  step "guides of other systems" env BUILD="$build" python3 scripts/check_guides.py
  step "installed tree" scripts/install_test.sh "$build"
) >"$work/beside" 2>&1 &
beside=$!
step "style (make check)" make --no-print-directory check
step "documents (scripts/make_reference.py --check)" python3 scripts/make_reference.py --check "$build"
step "scripts of documents" python3 scripts/make_reference_test.py
step "style checker's own test" python3 scripts/check_style.py --self-test
# Over what the last commit touches; make tidy looks at all.
if command -v clang-tidy-19 >/dev/null && git rev-parse -q --verify HEAD~1 >/dev/null 2>&1; then
  step "clang-tidy and locks" scripts/tidy.py --since=HEAD~1 --gen="$build/gen"
fi
step "test runner" python3 scripts/run_tests_test.py
step "log scripts" python3 scripts/log_test.py
step "metrics scripts" python3 scripts/metrics_test.py
step "network namespaces" python3 scripts/namespaces_test.py
step "GPU check" python3 scripts/check_gpu_test.py
step "speed beside peers" python3 scripts/bench_peers_test.py
step "files for other programs" scripts/ecosystem_test.py "$build"
beside_ended $beside "$work/beside"

# The launcher's tests mostly wait, as do those of real processes: all of them run side by side.
(
  step "launcher" python3 scripts/launch_test.py
  step "launcher and losses" python3 scripts/launch_losses_test.py
) >"$work/beside" 2>&1 &
beside=$!
echo "== tests"
make --no-print-directory test BUILD="$build" TEST_ARGS=--slowest=20 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
# The test program's own count: its last line, unless it died before it could say one.
if counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1) && [ -n "$counts" ]; then
  read -r p _ f _ s _ <<<"$counts"
  printf 'passed %s\nfailed %s\nskipped %s\n' "$p" "$f" "$s" >>"$results"
  [ "$status" -eq 0 ] || [ "$f" -gt 0 ] || { echo "FAILED: the test program counted no failure but ended with $status"; echo "failed 1" >>"$results"; }
else
  echo "FAILED: the test program ended with $status before it counted its tests"
  echo "failed 1" >>"$results"
fi
beside_ended $beside "$work/beside"
finish
