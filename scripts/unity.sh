#!/usr/bin/env bash
# Groups the sources of each folder, so that the compiler reads what they include once: writes DIR/<folder>/group_N.cpp, which
# includes COUNT of them, and prints the groups' names. A group whose list did not change is not written again.
# usage: unity.sh DIR COUNT SOURCE...
set -euo pipefail
dir=$1 count=$2
shift 2
declare -A number lines
order=()
for source in "$@"; do
  folder=${source%/*}
  n=${number[$folder]:-0}
  number[$folder]=$((n + 1))
  group=$dir/$folder/group_$((n / count)).cpp
  [ -n "${lines[$group]:-}" ] || order+=("$group")
  lines[$group]+="#include \"$source\""$'\n'
done
for group in "${order[@]}"; do
  [ -d "${group%/*}" ] || mkdir -p "${group%/*}"
  [ "$(cat "$group" 2>/dev/null)" = "${lines[$group]%$'\n'}" ] || printf '%s' "${lines[$group]}" >"$group"
  echo "$group"
done
