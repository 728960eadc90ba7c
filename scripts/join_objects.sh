#!/usr/bin/env bash
# Joins objects that are compiled for newer processors than the rest of a program. Inline functions, instances of templates and all else of which
# the linker takes one copy from any object become the joined object's own: its copies have instructions that the rest must not run into.
# usage: join_objects.sh OUT [--only SYMBOL NAME] OBJECT...     OUT may be the one OBJECT
#   --only: of the joined object SYMBOL alone can be seen from outside, as NAME; and none of it may run before main, on any processor.
set -euo pipefail
out=$1
shift
joined=$out.joined names=$out.names
fail() { rm -f "$out"; echo "join_objects.sh: $out: $*" >&2; exit 1; }
trap 'rm -f "$joined" "$names"' EXIT
trap 'rm -f "$out"' ERR
if [ "$1" = --only ]; then
  symbol=$2 name=$3
  shift 3
else
  symbol=
fi
ld -r --force-group-allocation -o "$joined" "$@"
# Weak ones, and unique ones: objcopy makes those local that are weak.
nm --defined-only "$joined" | awk '$2 ~ /^[VWuvw]$/ { print $3 }' >"$names"
if [ -s "$names" ]; then
  objcopy --weaken-symbols="$names" "$joined"
  objcopy --localize-symbols="$names" "$joined"
fi
if [ -n "$symbol" ]; then
  early=$(nm --defined-only "$joined" | awk '$3 ~ /^_GLOBAL__sub_I_/ { print $3 }')
  [ -z "$early" ] || fail "has initializers that would run before main on any processor:" $early
  nm --defined-only "$joined" | grep " T $symbol\$" >/dev/null || fail "has no function $symbol"
  objcopy --redefine-sym "$symbol=$name" "$joined"
  objcopy --keep-global-symbol="$name" "$joined"
fi
mv "$joined" "$out"
