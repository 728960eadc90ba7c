#!/usr/bin/env bash
# Groups the sources of each folder, so that the compiler reads what they include once: writes DIR/<folder>/group_N.cpp, which
# includes neighbours of about LINES lines together, and prints the groups' names. The groups of a folder are of nearly one size. A
# source belongs to the group that its middle line falls in, so that a few lines more or less move at most the sources at the edges
# of groups. A group whose list did not change is not written again, and one that is no longer there is removed.
# usage: unity.sh DIR LINES SOURCE...
set -euo pipefail
dir=$1 size=$2
shift 2
declare -A lines total before text
order=() folders=()
while read -r count source; do
  [ "$source" = total ] && continue
  folder=${source%/*}
  [ -n "${total[$folder]:-}" ] || folders+=("$folder")
  lines[$source]=$count
  total[$folder]=$((${total[$folder]:-0} + count))
done < <(wc -l /dev/null "$@" | sed 1d)
for source in "$@"; do
  folder=${source%/*}
  groups=$(((total[$folder] + size / 2) / size)) start=${before[$folder]:-0}
  [ "$groups" -gt 0 ] || groups=1
  group=$dir/$folder/group_$(((2 * start + lines[$source]) * groups / (2 * total[$folder] + 1))).cpp
  before[$folder]=$((start + lines[$source]))
  [ -n "${text[$group]:-}" ] || order+=("$group")
  text[$group]+="#include \"$source\""$'\n'
done
for folder in "${folders[@]}"; do
  mkdir -p "$dir/$folder"
  for old in "$dir/$folder"/group_*.cpp; do
    [ ! -e "$old" ] || [ -n "${text[$old]:-}" ] || rm -f "$old" "${old%.cpp}".[od]
  done
done
for group in "${order[@]}"; do
  [ "$(cat "$group" 2>/dev/null)" = "${text[$group]%$'\n'}" ] || printf '%s' "${text[$group]}" >"$group"
  echo "$group"
done
