#!/usr/bin/env python3
"""The seconds in which processes of this machine sum a vector, as workers of `train` do, beside gloo's allreduce (PyTorch) in turns with it.

gloo is left out where the Python that runs this (or --python) has no torch. Ratios are of medians. BUILD=... chooses another build folder."""
import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

from launch import reserve_ports
from machines import main_of

ROOT = Path(__file__).resolve().parent.parent
GLOO = '''
import sys, time, torch, torch.distributed as dist
rank, size, port, kib, repeats, warm_up = map(int, sys.argv[1:])
torch.set_num_threads(1)
dist.init_process_group('gloo', init_method=f'tcp://127.0.0.1:{port}', rank=rank, world_size=size)
numbers = torch.zeros(kib * 256)
for i in range(warm_up + repeats):
    begin = time.perf_counter()
    dist.all_reduce(numbers)
    if i >= warm_up:
        print(time.perf_counter() - begin)
dist.destroy_process_group()
'''


def slowest(outputs):
    """By sum: the seconds of the process that took longest."""
    return [max(column) for column in zip(*([float(line) for line in output.split()] for output in outputs))]


def gloo(python, processes, kib, repeats):
    port = reserve_ports(1)[0]
    running = [subprocess.Popen([python, '-c', GLOO, *map(str, (rank, processes, port, kib, repeats, 3))], stdout=subprocess.PIPE, text=True)
               for rank in range(processes)]
    outputs = [process.communicate(timeout=300)[0] for process in running]
    if any(process.returncode for process in running):
        sys.exit('a process of gloo has failed')
    return slowest(outputs)


def shoal(build, flags, processes, kib, repeats):
    command = [f'{build}/tools/bench_allreduce', f'--processes={processes}', f'--kib={kib}', f'--repeats={repeats}', *flags]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
    if run.returncode:
        sys.exit(f'{" ".join(command)} failed:\n{run.stderr}')
    return [float(line) for line in run.stdout.split()]


def has_gloo(python):
    try:
        return subprocess.run([python, '-c', 'import torch.distributed as d; exit(not d.is_gloo_available())'], stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


def measure(options, ways, processes, kib):
    repeats = options.repeats if kib > 4096 else 40 * options.repeats
    seconds = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, run in ways.items():
            seconds[name] += run(processes, kib, repeats)
    medians = {name: statistics.median(all_of) for name, all_of in seconds.items()}
    print(f'{kib:>7} KiB, {processes} processes: '
          + '  '.join(f'{name} {1e3 * median:.3f} ms' + (f' ({median / medians["gloo"]:.2f} of gloo)' if 'gloo' in medians and name != 'gloo' else '')
                      for name, median in medians.items()), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('build', nargs='?', default=os.environ.get('BUILD', 'build/release'))
    parser.add_argument('--python', default=sys.executable, help='one with torch')
    parser.add_argument('--processes', default='2,4')
    parser.add_argument('--kib', default='64,262144')
    parser.add_argument('--ways', default='ring,direct,halving_doubling,tree')
    parser.add_argument('--transports', default='AUTO,TCP', help='AUTO: through memory')
    parser.add_argument('--rounds', type=int, default=3, help='turns of everything')
    parser.add_argument('--repeats', type=int, default=5, help='sums of a turn, more of short vectors')
    options = parser.parse_args()
    build = ROOT / options.build
    ways = {}
    if has_gloo(options.python):
        ways['gloo'] = lambda *what: gloo(options.python, *what)
    else:
        print(f'gloo: left out, {options.python} has no torch')
    for way in options.ways.split(','):
        for transport in options.transports.split(','):
            flags = [f'--way={way}', f'--local_transport={transport}']
            ways[f'{way} {transport}'] = lambda *what, flags=flags: shoal(build, flags, *what)
    for kib in map(int, options.kib.split(',')):
        for processes in map(int, options.processes.split(',')):
            measure(options, ways, processes, kib)


if __name__ == '__main__':
    main_of(main)
