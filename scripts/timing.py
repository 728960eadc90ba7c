"""What the scripts that time programs on a CPU share: to run one, to read a number off what it printed, and to print a table."""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run_to_end(command, environment=None):
    """The exit code, what was printed on both streams, and the most memory that the program had, in MB of 10^6 bytes; at the
    least what this process had when it started the program, since the system counts that too."""
    with tempfile.TemporaryFile('w+', errors='replace') as out:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        return process.returncode, out.read(), usage.ru_maxrss * 1024 / 1e6


def run_measured(command, environment=None):
    """What the program printed, and its peak in MB; ends this script if the program fails."""
    code, text, peak = run_to_end(command, environment)
    if code:
        sys.exit(f'{" ".join(command)} ended with {code}:\n{text[-2000:]}')
    return text, peak


def run(command):
    return run_measured(command)[0]


def number(text, pattern, command):
    match = re.search(pattern, text)
    if not match:
        sys.exit(f'no "{pattern}" in what {" ".join(command)} printed:\n{text[-2000:]}')
    return float(match.group(1))


def table(header, rows):
    widths = [max(len(row[i]) for row in [header] + rows) for i in range(len(header))]
    for row in [header] + rows:
        print('  '.join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))))
    print()
