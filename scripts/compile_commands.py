#!/usr/bin/env python3
"""Prints a compile database in JSON: how each source would be compiled alone. usage: compile_commands.py FLAGS SOURCE...
Run by `make compile_commands.json`. FLAGS are the compiler's name and what every source is compiled with; definitions that the
Makefile gives to single sources are given to all, since no other source asks for them."""
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOR_SINGLE_SOURCES = '-I. -Itests -isystem /usr/include/opencv4 -DSHOAL_CPU_V4=1'


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    flags = f'{sys.argv[1]} {FOR_SINGLE_SOURCES}'
    entries = [{'directory': str(ROOT), 'file': source, 'command': f'{flags} -c {source}'} for source in sys.argv[2:]]
    print(json.dumps(entries, indent=0))


if __name__ == '__main__':
    main()
