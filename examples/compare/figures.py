#!/usr/bin/env python3
"""The figures of examples/compare/README.md: figures.py 1 2 3 4 5 6 runs the simulations of each and prints its commands and its table.

What they need is made first: MNIST (or drawn digits) by examples/compare/run.sh, CIFAR-10 by examples/cifar10/create_cifar10.sh. Seconds are virtual
and the same on every machine. What a command printed is kept in build/figures, and is not run again while it is there."""
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TOOLS = os.environ.get('BUILD', 'build/release') + '/tools'
KEPT = Path('build/figures')
HERE = 'examples/compare'


def simulate(flags):
    command = f'{TOOLS}/simulate {flags}'
    kept = KEPT / (hashlib.sha256(flags.encode()).hexdigest()[:16] + '.txt')
    if not kept.exists():
        run = subprocess.run(shlex.split(command), capture_output=True, text=True)
        if run.returncode:
            sys.exit(f'{command}\nended with {run.returncode}:\n{run.stderr}')
        kept.write_text(f'$ {command}\n{run.stdout}')
    print(f'    {command}', flush=True)
    return kept.read_text()


def curve(text, output):
    """(seconds, mean of three tests in a row) of a test's output."""
    points, seconds = [], 0.0
    for line in text.splitlines():
        if found := re.match(r'\[ *([\d.]+) s\] Iteration', line):
            seconds = float(found[1])
        elif (found := re.match(r'\[ *[\d.]+ s\] +Test net output #\d+: (\w+) = (\S+)', line)) and found[1] == output:
            points.append((seconds, float(found[2])))
    values = [value for _, value in points]
    return [(seconds, sum(values[max(0, i - 1):i + 2]) / len(values[max(0, i - 1):i + 2])) for i, (seconds, _) in enumerate(points)]


def time_to(points, value):
    """When the curve first comes to the value, from either side; None if it does not."""
    rises = points[0][1] < value
    for (t0, v0), (t1, v1) in zip(points, points[1:]):
        if (v1 >= value) if rises else (v1 <= value):
            return t0 + (t1 - t0) * (value - v0) / (v1 - v0)
    return None


def last(points):
    return points[-2][1]                     # the last that is a mean of three


def column(text, name):
    head, values = [line for line in text.splitlines() if line.startswith('|')][-3::2]
    return dict(zip(head.split(' | '), values.split(' | ')))[name]


def solver(source, **fields):
    """A copy of a solver with other numbers."""
    text = (ROOT / HERE / source).read_text()
    for name, value in fields.items():
        text = re.sub(rf'(?m)^{name}: \S+', f'{name}: {value}', text)
    path = KEPT / f'{Path(source).stem}_{"_".join(f"{name}_{value}" for name, value in fields.items())}.prototxt'
    path.write_text(text)
    return f'--solver={path}'


def table(head, rows):
    print('\n| ' + ' | '.join(head) + ' |\n|' + '---|' * len(head))
    for row in rows:
        print('| ' + ' | '.join('never' if cell is None else f'{cell:.3g}' if isinstance(cell, float) else str(cell) for cell in row) + ' |')
    print(flush=True)


def ratio(one, other):
    return None if one is None or other is None else one / other


def speedo():
    common = f'--solver={HERE}/speedo_solver.prototxt --samples=150000'
    one = curve(simulate(f'{common} --cluster={HERE}/one_machine.prototxt --test_every=27.6'), 'loss')
    levels, rows = (1.6, 1.4, 1.2), []
    for label, flags in (('bsp', ''), ('elastic', ' --scheme=elastic --local_steps=1'), ('async', ' --scheme=async'),
                         ('drift_barrier', ' --scheme=drift_barrier --max_advance=4'), ('weed_out', ' --scheme=weed_out --weedout=4')):
        own = curve(simulate(f'{common} --cluster={HERE}/speedo.prototxt --test_every=13.8{flags}'), 'loss')
        needs = time_to(one, last(own))
        more, needs = ('' if needs else 'more than '), needs or one[-1][0]
        rows.append([label, f'{own[-1][0]:.0f} s', f'{last(own):.3f}', f'{more}{needs:.0f} s', f'{more}{needs / own[-1][0]:.2f}', *[ratio(time_to(one, level), time_to(own, level)) for level in levels]])
    table(['scheme', '150,000 samples take', 'loss then', 'one machine needs for that', 'times', *[f'to {level}' for level in levels]], rows)


def esync():
    cut = Path('build/compare/by_class')
    if not (cut / 'train_datumfile_5').exists():
        cut.mkdir(parents=True, exist_ok=True)
        shutil.copy('build/compare/data/train_datumfile', cut)
        subprocess.run([f'{TOOLS}/partition_data', '--backend=datumfile', '--mode=by_class', '--num_partitions=6', str(cut / 'train_datumfile')], check=True,
                       capture_output=True)
    for words, stage in (('Data shared by all', ''), ('Data split by class', ' --stage=by_class')):
        print(f'{words}:\n')
        rows = []
        for rate in (0.01, 0.032, 0.1, 0.3):
            common = f'{solver("solver.prototxt", base_lr=rate, momentum=0, weight_decay=0)} --cluster={HERE}/esync.prototxt --seconds=750 --test_every=5{stage}'
            texts = [simulate(common)] + [simulate(f'{common} --scheme=esync --epsilon=0.005{more}') for more in ('', ' --global_momentum=0.9')]
            curves = [curve(text, 'accuracy') for text in texts]
            target = 0.8 * last(curves[0])
            times = [time_to(each, target) for each in curves]
            speeds, sent = [[float(column(text, name)) for text in texts] for name in ('samples/s', 'sent B/s a worker')]
            rows.append([rate, f'{speeds[0]:.1f}, {speeds[1]:.1f}', speeds[1] / speeds[0], sent[1] / sent[0], target, *times, *[ratio(times[0], time) for time in times[1:]],
                         *[last(each) for each in curves]])
        table(['rate', 'samples/s', 'times', 'traffic, times', '80 % of bsp\'s', 'bsp, s', 'esync, s', 'with momentum, s', 'times', 'times', 'bsp ends at', 'esync', 'with momentum'],
              rows)


GROUPS = " --scheme=grouped --groups='0,1,2,3|4,5,6,7|8,9,10,11'"


def mxnetg():
    common = f'--cluster={HERE}/three_groups.prototxt --test_every=2'
    schemes = (('bsp', ''), ('grouped', GROUPS), ('async', ' --scheme=async --factor=1'))
    for rate in (0.05, 0.012):
        print(f'One rate for all, {rate}, as there:\n')
        rows = []
        for seed in (1, 2, 3):
            runs = {name: curve(simulate(f'{solver("solver.prototxt", base_lr=rate, random_seed=seed)} {common} --seconds=300 --seed={seed}{flags}'), 'accuracy')
                    for name, flags in schemes}
            target = last(runs['bsp']) - 0.005
            times = {name: time_to(points, target) for name, points in runs.items()}
            rows.append([seed, target, *times.values(), ratio(times['bsp'], times['grouped']), ratio(times['async'], times['grouped']), *[last(points) for points in runs.values()]])
        table(['seed', 'to', 'bsp, s', 'grouped, s', 'async, s', 'of bsp', 'of async', 'bsp ends at', 'grouped', 'async'], rows)
    print('Each at rates of its own, four tries each:\n')
    rows = []
    for (name, flags), rates in zip(schemes, ((0.1, 0.2, 0.3, 0.4), (0.05, 0.07, 0.1, 0.14), (0.003, 0.005, 0.007, 0.01))):
        for rate in rates:
            points = curve(simulate(f'{solver("solver.prototxt", base_lr=rate)} {common} --seconds=120{flags}'), 'accuracy')
            rows.append([name, rate, *[time_to(points, level) for level in (0.93, 0.95, 0.96)], last(points)])
    table(['scheme', 'rate', 'to 0.93, s', '0.95', '0.96', 'ends at'], rows)


def poseidon():
    rows, first = [], None
    for staleness in (0, 1, 2, 3):
        text = simulate(f'--solver={HERE}/solver.prototxt --cluster={HERE}/jitter.prototxt --scheme=ssp --staleness={staleness} --seconds=80 --test_every=1')
        points = curve(text, 'accuracy')
        first = first or time_to(points, 0.93)
        rows.append([staleness, float(column(text, 'samples/s')), time_to(points, 0.93), ratio(first, time_to(points, 0.93)), last(points)])
    table(['staleness', 'samples/s', 'to 0.93, s', 'times', 'ends at'], rows)


def firecaffe():
    print(simulate(f'--dry --solver={HERE}/cifar10_solver.prototxt --cluster={HERE}/four_equal.prototxt --batch_semantics=PER_WORKER '
                   '--scaling=2,4,8,16,32,64,128 --max_iter=3').split('\n', 1)[1])


def many():
    print(simulate(f'--dry --solver=models/googlenet/solver.prototxt --stage=dummy --cluster={HERE}/many.prototxt --max_iter=20').split('\n', 1)[1])


FIGURES = {'1': speedo, '2': esync, '3': mxnetg, '4': poseidon, '5': firecaffe, '6': many}


def main():
    wrong = [word for word in sys.argv[1:] if word not in FIGURES]
    if wrong or len(sys.argv) < 2:
        sys.exit(f'{__doc__}\n\n{wrong[0] if wrong else "nothing"} is no figure; known are {", ".join(FIGURES)}')
    os.chdir(ROOT)
    KEPT.mkdir(parents=True, exist_ok=True)
    for word in sys.argv[1:]:
        print(f'Figure {word}\n')
        FIGURES[word]()


if __name__ == '__main__':
    main()
