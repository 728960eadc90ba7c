#!/usr/bin/env bash
# Sourced with the names of tools, after `tools` was set: ends the script that sources it, before it does anything, if one is not built.
for tool in "$@"; do
  if [ ! -x "$tools/$tool" ]; then
    echo "$0: no $tools/$tool: run make first, or set BUILD to the folder of the build" >&2
    exit 2
  fi
done
