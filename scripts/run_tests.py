#!/usr/bin/env python3
"""Runs every test of the test program in two lanes side by side: tests of real processes, which mostly wait, and all others. Each
lane's output is printed when it ends, and last of all one line: "N passed, N failed, N skipped".
usage: run_tests.py PROGRAM [--slowest=N] [the program's other flags]"""
import re
import subprocess
import sys
import tempfile

WAITING = 'Process*:*/Process*'
COUNTS = re.compile(r'^(\d+) passed, (\d+) failed, (\d+) skipped$', re.MULTILINE)
SLOW = re.compile(r'^slow: +([\d.]+) s +(\S+)$', re.MULTILINE)


def lanes(program, flags):
    """The command of each lane; one lane where the caller has a filter of its own."""
    if any(flag.startswith('--gtest_filter') for flag in flags):
        return [[program, *flags]]
    return [[program, f'--gtest_filter={which}{WAITING}', *flags] for which in ('-', '')]


def main(program, flags):
    wanted = [flag for flag in flags if flag.startswith('--slowest=')]
    outputs = [tempfile.TemporaryFile('w+', errors='replace') for _ in lanes(program, flags)]
    running = [subprocess.Popen(line, stdout=out, stderr=subprocess.STDOUT)
               for line, out in zip(lanes(program, flags), outputs)]
    total, slow, died = [0, 0, 0], [], []
    for number, (process, output) in enumerate(zip(running, outputs), 1):
        status = process.wait()
        output.seek(0)
        said = output.read()
        print(COUNTS.sub(lambda found: f'lane {number}: {found.group()}', SLOW.sub('', said)).rstrip('\n'))
        counts = COUNTS.findall(said)
        slow += [(float(seconds), name) for seconds, name in SLOW.findall(said)]
        if counts:
            total = [sum(pair) for pair in zip(total, map(int, counts[-1]))]
        if not counts or (status != 0 and counts[-1][1] == '0'):
            died.append(f'lane {number} ended with {status}' + ('' if counts else ' before it counted its tests'))
    for seconds, name in sorted(slow, reverse=True)[:int(wanted[-1].partition('=')[2]) if wanted else 0]:
        print(f'slow: {seconds:8.2f} s {name}')
    for words in died:
        print(f'failed: {words}')
    print('%d passed, %d failed, %d skipped' % (total[0], total[1] + len(died), total[2]), flush=True)
    return 1 if total[1] or died else 0


if __name__ == '__main__':
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
