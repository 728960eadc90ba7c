"""Trains a net once with each codec over slow links, and compares. Started by slow_links.sh, which says what the settings are."""
import argparse
import json
import re
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / 'scripts'))
from plot_runs import LINE_COLOURS, pyplot, save, use_python_with_matplotlib  # noqa: E402

CODECS = ('float32 AUTO+float32 push=fp16,pull=bf16 push=int8:feedback,pull=int8:feedback push=topk:0.05:8,pull=topk:0.05:8 '
          'push=topk:0.01:2,pull=topk:0.02:2 AUTO:sparse')
TESTS = 5  # of a run


class Run:
    """One training: its table's line, and its accuracy by bytes."""

    def __init__(self, codec, settings):
        self.codec = codec
        name = re.sub(r'[^\w.]+', '_', codec)
        self.log, metrics = settings.out / f'{name}.log', settings.out / name
        exchange = 'AUTO' if codec.startswith('AUTO+') else settings.exchange
        flags = [] if codec.endswith('float32') else [f'--codec={codec}']
        with self.log.open('w') as log:
            code = subprocess.run(
                ['scripts/launch.py', f'--local={settings.processes}', f'--log_dir={settings.out}/logs', '--', f'{settings.tools}/train',
                 f'--solver={settings.solver}', '--threads=1', f'--throttle={settings.mbit * 125000}', '--local_transport=TCP',
                 f'--exchange={exchange}', f'--metrics={metrics}', f'--maxIter={settings.iterations}',
                 *self.data(settings), *shlex.split(settings.flags), *flags],
                stdout=log, stderr=subprocess.STDOUT, check=False).returncode
        if code != 0:
            raise SystemExit(self.log.read_text()[-2000:] + f'FAILED: the log is {self.log}')
        lines = [json.loads(line) for line in (metrics / 'metrics.0.jsonl').read_text().splitlines()]
        clocks = [line for line in lines if line['kind'] == 'clock']
        self.seconds = statistics.median(b['time'] - a['time'] for a, b in zip(clocks[2:], clocks[3:]))
        self.samples = settings.processes * statistics.median(line['samples'] for line in clocks)
        self.speed = self.samples / self.seconds
        self.bytes = statistics.mean(line['bytes_sent'] + line['bytes_received'] for line in clocks[3:])
        found = re.findall(r'Iteration (\d+), Testing net.*?accuracy = ([0-9.e-]+)', self.log.read_text(), re.DOTALL)
        self.accuracy = [(int(at), float(value)) for at, value in found]
        losses = [line['loss'] for line in lines if line['kind'] == 'display']
        self.end = f'{self.accuracy[-1][1]:9.4f}' if self.accuracy else f'loss {statistics.mean(losses[-10:]):.4f}'

    @staticmethod
    def data(settings):
        settings_of_all = 'snapshot: 0 snapshot_after_train: false display: 1'
        data = []
        if 'test_iter' in Path(settings.solver).read_text():
            settings_of_all += ' test_iter: 20'
            data.append(f'--test={max(1, settings.iterations // TESTS)}')
        for name in ('batch', 'train_source', 'test_source'):
            if getattr(settings, name):
                data.append(f'--{name}={getattr(settings, name)}')
        return [*data, f'--set={settings_of_all}']


def draw(runs, path):
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(8, 5))
    for run, colour in zip(runs, LINE_COLOURS):
        axes.plot([at * run.bytes / 1e6 for at, _ in run.accuracy], [value for _, value in run.accuracy], 'o-', color=colour, label=run.codec)
    axes.set_xscale('log')
    axes.set_xlabel('MB sent and received by process 0')
    axes.set_ylabel('accuracy')
    axes.legend()
    save(figure, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--tools', type=Path, required=True)
    parser.add_argument('--out', type=Path, required=True)
    for name in ('mbit', 'processes', 'iterations'):
        parser.add_argument('--' + name, type=int, required=True)
    for name in ('solver', 'exchange', 'codecs', 'flags'):
        parser.add_argument('--' + name, required=True)
    for name in ('batch', 'train_source', 'test_source'):
        parser.add_argument('--' + name)
    settings = parser.parse_args()
    print(next(line for line in Path('/proc/cpuinfo').read_text().splitlines() if line.startswith('model name')))
    print(f'{settings.solver}: {settings.processes} processes, links of {settings.mbit} Mbit/s')
    print(f'{"codec":42} {"samples/s":>10} {"times":>6} {"bytes/iter":>11} {"fewer":>6} {"accuracy":>9}', flush=True)
    runs = []
    for codec in (settings.codecs or CODECS).split():
        run = Run(codec, settings)
        runs.append(run)
        first = runs[0]
        print(f'{codec:42} {run.speed:10.1f} {run.speed / first.speed:6.2f} {run.bytes:11.0f} {first.bytes / run.bytes:6.1f} '
              f'{run.end}', flush=True)
    if runs[0].accuracy:
        draw(runs, settings.out / 'accuracy.png')
        print(f'{settings.out}/accuracy.png: accuracy over bytes')


if __name__ == '__main__':
    use_python_with_matplotlib()
    main()
