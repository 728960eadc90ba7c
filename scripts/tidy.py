#!/usr/bin/env python3
"""Runs clang-tidy (.clang-tidy) and clang's check of locks (-Wthread-safety) over the library's sources. Run by `make tidy`.

Without arguments all of src/. Sources of a folder are looked at together, as the build compiles them. --since=REV looks at the
sources that were changed since a commit, and at those beside a changed header of the same name."""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLAGS = ['-std=c++20', '-Wthread-safety', '-Wno-deprecated-declarations', '-I.', '-Iinclude', '-Isrc', '-isystem', '/usr/include/opencv4']
NOT_WITH_CLANG = ('/cuda/', 'src/python/', 'src/shoal/ops/cpu/')   # CUDA's and Python's headers may be absent; g++'s vectors and omp.h
LINES_TOGETHER = 1500
# The oldest that understands the library's C++20.
CLANG_TIDY = 'clang-tidy-19'
FINDING = re.compile(r'^(\S+?):(\d+):\d+: (?:warning|error): (.*)$', re.MULTILINE)


def changed_since(revision):
    listed = subprocess.run(['git', 'diff', '--name-only', '--diff-filter=d', revision, '--', 'src', 'include'], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.split()
    return {str(Path(name.replace('include/', 'src/', 1)).with_suffix('.cpp')) for name in listed}


def groups_of(sources):
    """Neighbours of one folder, LINES_TOGETHER lines at most unless a single one is longer."""
    for _, folder in groupby(sorted(sources), key=os.path.dirname):
        group, lines = [], 0
        for source in folder:
            size = (ROOT / source).read_text().count('\n')
            if group and lines + size > LINES_TOGETHER:
                yield group
                group, lines = [], 0
            group.append(source)
            lines += size
        yield group


def findings_of(group, gen, folder):
    """What clang-tidy says of the group's sources and their headers: (place, words), each once."""
    unit = Path(folder) / (re.sub(r'\W', '_', group[0]) + '.cpp')
    unit.write_text(''.join(f'#include "{source}"\n' for source in group))
    ran = subprocess.run([CLANG_TIDY, '--quiet', '--config-file=.clang-tidy', str(unit), '--', *FLAGS, f'-I{gen}'],
                         cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    found = [(f'{os.path.relpath(path, ROOT)}:{line}', words) for path, line, words in FINDING.findall(ran.stdout)]
    if ran.returncode and not found:
        found = [(group[0], f'clang-tidy ended with {ran.returncode}: {ran.stdout[-500:]}')]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('sources', nargs='*', help='.cpp files of src/')
    parser.add_argument('--since', metavar='REV')
    parser.add_argument('--gen', default='build/release/gen', help="where the schemas' headers are")
    parser.add_argument('--jobs', type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    if not shutil.which(CLANG_TIDY):
        sys.exit(f'no {CLANG_TIDY}: scripts/install_packages.sh --tests installs it')
    if not (ROOT / arguments.gen).is_dir():
        sys.exit(f'no {arguments.gen}: build the library first, or name its folder of generated headers with --gen')
    every = {str(path.relative_to(ROOT)) for path in (ROOT / 'src').rglob('*.cpp')}
    every = {name for name in every if not any(part in name for part in NOT_WITH_CLANG)}
    sources = set(arguments.sources) or (changed_since(arguments.since) & every if arguments.since else every)
    if unknown := sources - every:
        sys.exit(f'not a source that clang looks at: {" ".join(sorted(unknown))}')
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        groups = list(groups_of(sources))
        found = {finding for findings in pool.map(lambda group: findings_of(group, arguments.gen, folder), groups) for finding in findings}
    for place, words in sorted(found):
        print(f'{place}: {words}')
    print(f'{len(found)} findings in {len(sources)} sources')
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
