"""Reads what a run wrote of itself: metrics.*.jsonl (docs/reference/metrics.md), or ESync's iter-N.txt. For the scripts that draw and sum up."""
import bisect
import json
import math
import re
from pathlib import Path

PARTS = ('compute', 'data_wait', 'row_wait', 'update', 'other')   # of a clock's seconds
SUMS = (*PARTS, 'send', 'receive', 'bytes_sent', 'bytes_received', 'samples', 'local_steps', 'drops')
KINDS = ('run', 'phase', 'clock', 'display', 'test', 'fault', 'useful')
NO_LINE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)   # what reading a line of another form raises


class MetricsError(Exception):
    """A folder or file that holds no metrics; says what was looked for."""


class Run:
    """clocks: by worker, its lines in order; displays and tests: lines in order. Times in seconds, bytes in bytes."""

    def __init__(self, path, label=''):
        self.path, self.label, self.scheme, self.name, self.simulated = Path(path), label, '', '', False
        self.clocks, self.displays, self.tests, self.bad_lines = {}, [], [], 0
        self.phases = []                                              # schemes after the first, where a run has several
        self.faults, self.useful = {}, None                           # losses of processes by number; the last line about the compute

    def add(self, line):
        kind = line.get('kind', 'clock')
        if kind == 'run':
            self.scheme, self.name = self.scheme or line.get('scheme', ''), line.get('name', '')   # the second part's is a later one
            self.simulated = bool(line.get('simulated'))
        elif kind == 'phase':
            self.phases.append(line)
        elif kind == 'fault':
            self.faults[line['number']] = line                        # each chief writes those that it knows of
        elif kind == 'useful':
            self.useful = line
        elif kind == 'clock':
            self.clocks.setdefault(line.get('worker', 0), []).append(line)
        elif kind in ('display', 'test'):
            (self.displays if kind == 'display' else self.tests).append(line)

    def finish(self):
        self.label = self.label or ', then '.join(self.schemes()) or self.path.name
        for lines in [*self.clocks.values(), self.displays, self.tests]:
            lines.sort(key=lambda line: (line['time'], line['clock']))
        self.clocks = dict(sorted(self.clocks.items()))
        done = sorted((line['time'], line['samples'] or 0) for lines in self.clocks.values() for line in lines)
        self.times, self.samples, total = [], [], 0
        for time, samples in done:
            total += samples
            self.times.append(time)
            self.samples.append(total)
        return self

    # ---- the whole run ----

    def schemes(self):
        """One after the other; each worker says them, and a run that goes on says again where it is."""
        changes = sorted({(line['clock'], line.get('scheme', '')) for line in self.phases})
        names = [name for name in [self.scheme, *(scheme for _, scheme in changes)] if name]
        return [name for i, name in enumerate(names) if i == 0 or name != names[i - 1]]

    def seconds(self):
        return self.times[-1] if self.times else 0.0

    def samples_by(self, time):
        """Samples that all workers together had gone through by then."""
        at = bisect.bisect_right(self.times, time + 1e-9)
        return self.samples[at - 1] if at else 0

    def total(self, field, worker=None):
        chosen = self.clocks.values() if worker is None else [self.clocks[worker]]
        return sum(line.get(field) or 0 for lines in chosen for line in lines)

    def throughput(self):
        """Samples a second, of all workers, from the common start to the common end."""
        return self.total('samples') / self.seconds() if self.seconds() else 0.0

    def traffic(self):
        """Bytes sent a second, by all workers. What one sends another receives, so received bytes are not added."""
        return self.total('bytes_sent') / self.seconds() if self.seconds() else 0.0

    def shares(self, worker):
        """Each part of the worker's seconds as a fraction of them."""
        parts = {part: self.total(part, worker) for part in PARTS}
        whole = sum(parts.values()) or 1.0
        return {part: seconds / whole for part, seconds in parts.items()}

    def mean_shares(self):
        each = [self.shares(worker) for worker in self.clocks]
        return {part: sum(shares[part] for shares in each) / max(1, len(each)) for part in PARTS}

    def staleness(self, of):
        """{staleness: how often}, of 'reads' or 'pushes'."""
        histogram = {}
        for lines in self.clocks.values():
            for line in lines:
                for value, count in line.get('staleness', {}).get(of, {}).items():
                    histogram[int(value)] = histogram.get(int(value), 0) + count
        return dict(sorted(histogram.items()))

    # ---- losses of processes ----

    def presence(self):
        """The displays of a job that say how many processes are alive and take part."""
        return [line for line in self.displays if 'alive' in line]

    def useful_words(self):
        """How useful the compute of a job that has ended was; '' if nothing says it."""
        line = self.useful
        if not line:
            return ''
        share = {whole: f'{100 * line["in_params"] / (line[whole] or 1):.2f} %' for whole in ('computed', 'possible')}
        return (f'{share["computed"]} of the {line["computed"]} steps computed are in the params, {share["possible"]} of the '
                f'{line["possible"]:.0f} that all processes could have computed')

    # ---- curves ----

    def accuracy_name(self):
        names = [name for line in self.tests for name in line['outputs']]
        for name in names:
            if 'acc' in name.lower():
                return name
        return next((name for name in names if 'loss' not in name.lower()), None)

    def accuracies(self):
        """(line, accuracy) of the first test net, where there is one."""
        name = self.accuracy_name()
        found = [(line, line['outputs'].get(name)) for line in self.tests if not line.get('net')]
        return [(line, value) for line, value in found if value is not None and math.isfinite(value)]

    def losses(self):
        return [(line, line['loss']) for line in self.displays if line.get('loss') is not None]

    def test_losses(self):
        return [(line, line['loss']) for line in self.tests if not line.get('net') and line.get('loss')]

    def final_accuracy(self):
        values = [value for _, value in self.accuracies()]
        return values[-1] if values else None

    def time_to(self, accuracy):
        """Seconds until a test reached it; None if none did."""
        return next((line['time'] for line, value in self.accuracies() if value >= accuracy), None)

    def time_to_loss(self, loss):
        return next((line['time'] for line, value in self.losses() if value <= loss), None)


def mean_of(histogram):
    count = sum(histogram.values())
    return sum(value * times for value, times in histogram.items()) / count if count else None


def finite(value):
    """The number; None for null and for what is not finite. TypeError for what is no number."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise TypeError
    return value if value is not None and math.isfinite(value) else None


def checked(line):
    """The line with all that is added up or drawn later; raises one of NO_LINE for what is none."""
    kind = line.get('kind', 'clock')
    if kind not in KINDS:
        raise ValueError
    if kind == 'run':
        return line
    line['time'], line['clock'] = finite(line['time']) + 0.0, int(line['clock'])
    if kind == 'clock':
        line['worker'] = int(line.get('worker', 0))
        line.update({name: finite(line.get(name)) or 0 for name in SUMS})
        line['staleness'] = {of: {int(value): int(count) for value, count in counts.items()} for of, counts in (line.get('staleness') or {}).items()}
    elif kind == 'fault':
        line.update({name: int(line[name]) for name in ('number', 'rank', 'steps')})
        line.update({name: finite(line.get(name)) for name in ('stopped', 'back')})
    elif kind == 'useful':
        line.update({name: int(line[name]) for name in ('in_params', 'computed', 'losses')}, possible=finite(line['possible']) or 0)
    elif kind != 'phase':
        line['loss'] = finite(line.get('loss'))
        line['outputs'] = {name: finite(value) for name, value in (line.get('outputs') or {}).items()}
    return line


def read_lines(run, path):
    with open(path, encoding='utf-8', errors='replace') as lines:
        for number, text in enumerate(lines, 1):
            if not text.strip():
                continue
            try:
                run.add(checked(json.loads(text)))
            except NO_LINE:
                if text.endswith('\n'):                  # else it is being written just now
                    raise MetricsError(f'{path}:{number}: not a line of metrics: {text.strip()[:60]}') from None


# ---- ESync's logs ----

def esync_files(folder):
    """iter-1.txt, iter-2.txt ... up to the first that is missing, or not whole."""
    rounds, number = [], 1
    while (path := folder / f'iter-{number}.txt').is_file():
        try:
            rounds.append(json.loads(path.read_text()))
        except ValueError:
            break                                         # is being written just now
        number += 1
    return rounds


def esync_folders(path):
    return sorted({file.parent for file in Path(path).rglob('iter-1.txt')}, key=natural)


def natural(path):
    """For sorting: worker2 before worker10."""
    return [int(part) if part.isdigit() else part for part in re.split(r'(\d+)', str(path))]


def exchange_seconds(round_):
    """Of the exchange with others: ESync's aggregate time."""
    return sum(phases.get('global update', 0) + phases.get('global aggregate', 0) for phases in round_['time'].values())


def read_esync(run, folders):
    for worker, folder in enumerate(folders):
        try:
            read_rounds(run, worker, esync_files(folder))
        except NO_LINE as error:
            raise MetricsError(f'{folder}: a file of a round is not in ESync\'s format: {error!r}') from None


def read_rounds(run, worker, rounds):
    for round_ in rounds:
        def spent(*names, phases=round_['time'].values()):
            return sum(phase.get(name, 0) for phase in phases for name in names)
        local = [phase for phase in round_['time'].values() if 'forward and backward' in phase]
        line = {'kind': 'clock', 'worker': worker, 'clock': round_['num_iters'] - 1, 'time': round_['total_time'],
                'compute': spent('forward and backward'), 'data_wait': spent('get_batch'), 'update': spent('local update'),
                'row_wait': spent('check ready', 'global update', 'global aggregate'), 'other': spent('evaluation'),
                'samples': round_['num_samples'], 'local_steps': len(local), 'drops': 0, 'staleness': {},
                'bytes_sent': round_.get('bytes_sent', 0), 'bytes_received': round_.get('bytes_received', 0)}
        run.add(line)
        if round_.get('accuracy') and worker == 0:
            run.add({'kind': 'test', 'clock': round_['num_iters'], 'time': round_['total_time'], 'net': 0, 'loss': None,
                     'outputs': {'accuracy': round_['accuracy']}})


def metrics_files(path):
    """Each worker's metrics.K.jsonl, after its metrics.K.jsonl.1 where there is one (--metrics_limit_mb)."""
    path = Path(path)
    if path.is_file():
        return [part for part in (Path(f'{path}.1'), path) if part.is_file()]
    parts = [*path.glob('metrics*.jsonl.1'), *path.glob('metrics*.jsonl')]
    return sorted(parts, key=lambda part: natural(str(part).removesuffix('.1')))          # a stable sort: part .1 first


def read_run(path, label=''):
    """A folder of metrics.*.jsonl, one such file, or a folder of ESync's logs."""
    run = Run(path, label)
    files = metrics_files(path)
    for file in files:
        read_lines(run, file)
    if not files:
        read_esync(run, esync_folders(path))
    if not run.clocks and not run.displays and not run.tests:
        what = 'is not there' if not Path(path).exists() else 'holds neither metrics*.jsonl with lines nor iter-1.txt of ESync'
        raise MetricsError(f'{path}: {what}')
    return run.finish()


def read_named(word):
    """"label=path", or a path alone."""
    label, equals, path = word.partition('=')
    return read_run(path, label) if equals and not Path(word).exists() else read_run(word)
