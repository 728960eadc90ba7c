#!/usr/bin/env python3
"""Wraps the prose of Markdown files at 120 columns: paragraphs and items of lists. Headings, tables and code stay as they are.

  scripts/wrap_docs.py FILE...
"""
import re
import sys
import textwrap
from pathlib import Path

WIDTH = 120
NO_BREAK = '\1'   # stands for a blank within code, and before what would begin an item
ITEM = re.compile(r'(\s*)([*-]|\d+\.)\s+(?=\S)')
AS_IT_IS = re.compile(r'\s*\||#|\s*$|<|!\[')   # a table, a heading, a blank line, HTML, a picture


def wrapped(text):
    lines, block, first, rest, code = [], [], '', '', False

    def end():
        if block:
            whole = re.sub(r'`[^`]*`| (?=([*-]|\d+\.)( |$))', lambda kept: kept.group().replace(' ', NO_BREAK), ' '.join(block))
            lines.extend(line.replace(NO_BREAK, ' ') for line in textwrap.wrap(
                whole, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False))
            block.clear()

    for line in text.splitlines():
        if line.lstrip().startswith('```'):
            end()
            code = not code
            lines.append(line)
        elif code or AS_IT_IS.match(line) or (line.startswith('    ') and not block):
            end()
            lines.append(line)
        elif item := ITEM.match(line):
            end()
            first, rest = item.group(), ' ' * len(item.group())
            block.append(line[item.end():].strip())
        else:
            if not block:
                first = rest = re.match(r'\s*', line).group()
            block.append(line.strip())
    end()
    return '\n'.join(lines) + '\n'


if __name__ == '__main__':
    if len(sys.argv) < 2 or sys.argv[1].startswith('-'):
        sys.exit(__doc__.strip())
    for name in sys.argv[1:]:
        Path(name).write_text(wrapped(Path(name).read_text()))
