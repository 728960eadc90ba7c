#!/usr/bin/env python3
"""Shoal beside PyTorch on whole trainings: wall seconds to the end of a model's schedule, with its tests, and the accuracy there.
Both read the same records in the same order from the databases that examples/*/create_*.sh make, with the same number of threads.

Shoal's seconds are those of the processes `train`, from start to end; PyTorch's begin when its net and the images are in memory."""
import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

from bench_peers import environment_of, json_of, print_processor, processor_of, program
from machinefile import UsageError
from machines import main_of
from timing import ROOT, number, run_measured, table
from torch_net import parse

SOLVERS = {'lenet': ['solver'], 'cifar10_quick': ['solver', 'solver_lr1']}


def data_of(net):
    """The databases of the train and test nets, and the mean image or None."""
    layers = [layer for layer in parse((ROOT / f'models/{net}/train_val.prototxt').read_text()).all('layer')
              if layer.get('type') == 'Data']
    sources = [layer.block('data_param').get('source') for layer in layers]
    for source in sources:
        if not (ROOT / source).exists():
            raise UsageError(f'no {source}: make it with the create_*.sh in {Path(source).parent}')
    return sources, layers[0].block('transform_param').get('mean_file')


def solver_files(net, folder):
    """Copies of a model's solvers that write their snapshots into a folder."""
    files = []
    for name in SOLVERS[net]:
        text = (ROOT / f'models/{net}/{name}.prototxt').read_text()
        files.append(Path(folder) / f'{name}.prototxt')
        files[-1].write_text(re.sub(r'snapshot_prefix: ".*"', f'snapshot_prefix: "{folder}/net"', text))
    return files


def train_shoal(tools, files, threads, flags):
    seconds, restore = 0, []
    for file in files:
        command = [str(tools / 'train'), f'--solver={file}', f'--threads={threads}', *restore, *flags]
        started = time.perf_counter()
        text, _ = run_measured(command, environment_of())
        seconds += time.perf_counter() - started
        last = parse(file.read_text()).get('max_iter')
        restore = [f'--snapshot={file.parent}/net_iter_{last}.solverstate']
        accuracies = re.findall(r'accuracy = ([\d.]+)', text)
    return {'seconds': seconds, 'accuracy': float(accuracies[-1])}


def train_torch(arguments, tools, net, files, folder):
    sources, mean = data_of(net)
    datumfiles = []
    for source in sources:
        datumfiles.append(f'{folder}/{Path(source).name}.datumfile')
        run_measured([str(tools / 'convert_format'), 'lmdb', source, 'datumfile', datumfiles[-1]])
    command = [arguments.python, str(ROOT / 'scripts/torch_train.py'), *map(str, files), f'--train={datumfiles[0]}',
               f'--test={datumfiles[1]}', f'--threads={arguments.threads}', *([f'--mean={mean}'] if mean else [])]
    return json_of(run_measured(command, environment_of())[0], command)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('nets', nargs='*', default=list(SOLVERS), metavar='NET', help=' or '.join(SOLVERS))
    parser.add_argument('--build', default='build/release', help='the build folder')
    parser.add_argument('--python', default=sys.executable, help='one with torch')
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--train_flags', default='', help="more flags of Shoal's train, for example --precision=BFLOAT16")
    arguments = parser.parse_args()
    for net in arguments.nets:
        if net not in SOLVERS:
            raise UsageError(f"there is no schedule for '{net}' here: {' or '.join(SOLVERS)}")
        data_of(net)
    arguments.python = program(arguments.python, '--python')
    tools, rows = ROOT / arguments.build / 'tools', []
    print_processor(processor_of(Path('/proc/cpuinfo').read_text()))
    for net in arguments.nets:
        with tempfile.TemporaryDirectory() as folder:
            files = solver_files(net, folder)
            ours = train_shoal(tools, files, arguments.threads, arguments.train_flags.split())
            theirs = train_torch(arguments, tools, net, files, folder)
        rows.append([net, f'{ours["seconds"]:.1f}', f'{theirs["seconds"]:.1f}', f'{theirs["seconds"] / ours["seconds"]:.2f}',
                     f'{100 * ours["accuracy"]:.2f}', f'{100 * theirs["accuracy"]:.2f}'])
    table(['net', 'Shoal s', 'PyTorch s', 'PyTorch/Shoal', 'Shoal %', 'PyTorch %'], rows)


if __name__ == '__main__':
    main_of(main)
