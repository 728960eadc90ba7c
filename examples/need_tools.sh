#!/usr/bin/env bash
# Sourced with the names of tools, after the one `cd` of a script and `tools` was set: ends the script, before it does anything, if a tool is not
# built.
for tool in "$@"; do
  if [ ! -x "$tools/$tool" ]; then
    echo "$0: no $tools/$tool: run make first, or set BUILD to the folder of the build" >&2
    exit 2
  fi
done

# Paths that a user gives are meant from where the script was started.
from_start() { case $1 in '' | /*) echo "$1" ;; *) echo "$OLDPWD/$1" ;; esac }
[ -z "${SHOAL_DATA_DIR:-}" ] || export SHOAL_DATA_DIR=$(from_start "$SHOAL_DATA_DIR")
