#!/usr/bin/env python3
"""Shoal beside PyTorch, and if asked BVLC Caffe and OpenCV, on this machine's CPU: the same prototxts, forward + backward, in
turns and each in a process of its own, so that a machine that drifts serves all alike. Run by `make bench_peers`.

A time is the mean over the passes of a process, and of these the median over --passes turns. PyTorch has channels_last and the
settings of malloc that suit it best. MB are 10^6 bytes, the most that a process had, its matrix product included; an idle one
loads its libraries and ends. "In a turn" stand the least and the greatest ratio of a single turn."""
import argparse
import json
import math
import os
import re
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from machinefile import UsageError, known_words
from machines import main_of
from timing import ROOT, number, run_measured, run_to_end, table
from torch_net import Failure, batch_of, layers_of, parse

# Passes of one process.
ITERATIONS = {'lenet': 200, 'cifar10_quick': 40, 'cifar10_full': 40, 'caffenet': 8, 'googlenet': 6, 'resnet18': 6, 'resnet50': 4,
              'vgg16': 3}
OTHERS_ITERATIONS = 5
BF16_NETS = ('googlenet', 'resnet18', 'resnet50', 'vgg16')
INFERENCE_ITERATIONS = {'resnet50': 20, 'googlenet': 40, 'fashion_mobilenet': 300}
FLOAT, BF16 = 'FLOAT32', 'BFLOAT16'
IDLE_RUNS = 3
# With them glibc keeps the memory of big blocks, which PyTorch frees and asks for again in each pass.
TORCH_MALLOC = {'MALLOC_MMAP_THRESHOLD_': '4294967296', 'MALLOC_TRIM_THRESHOLD_': '17179869184'}
NOT_FOR_CHILDREN = ('OPENBLAS_CORETYPE', 'OPENBLAS_L2_SIZE')      # they make OpenBLAS choose other kernels than it would
SOLVER = '''net: "{folder}/train.prototxt" train_state {{ stage: "dummy" }} base_lr: 0 lr_policy: "fixed" max_iter: 1
snapshot_prefix: "{folder}/net" random_seed: 1 solver_mode: CPU
'''


def processor_of(cpuinfo):
    """What /proc/cpuinfo says of its first processor."""
    first = dict(re.findall(r'^(\w[\w ]*?)\s*: (.*)$', cpuinfo.split('\n\n')[0], re.MULTILINE))
    flags = first.get('flags', '').split()
    return {'vendor': first.get('vendor_id', '?'), 'name': first.get('model name', '?'), 'family': first.get('cpu family', '?'),
            'model': first.get('model', '?'), 'avx512f': 'avx512f' in flags, 'avx512_bf16': 'avx512_bf16' in flags,
            'amx': any(flag.startswith('amx') for flag in flags)}


def environment_of(**more):
    kept = {name: value for name, value in os.environ.items() if name not in NOT_FOR_CHILDREN}
    return {**kept, **{name: str(value) for name, value in more.items()}}


def program(word, what):
    """The full name of a program that the user names. A link stays one: a virtual environment's python is known by its place."""
    found = shutil.which(word)
    if not found:
        raise UsageError(f'{what}: there is no program {word}')
    return os.path.abspath(found)


def json_of(text, command):
    lines = [line for line in text.splitlines() if line.startswith('{')]
    if not lines:
        sys.exit(f'no line of JSON in what {" ".join(command)} printed:\n{text[-2000:]}')
    return json.loads(lines[-1])


class Programs:
    """Starts each program once and reads its figures: a dictionary with ms, MB and more of what the program says."""

    def __init__(self, arguments):
        self.threads = arguments.threads
        self.tools = (Path(arguments.build) if Path(arguments.build).is_absolute() else ROOT / arguments.build) / 'tools'
        for tool in ('time',) + (('deploy_net', 'train') if arguments.opencv else ()):
            if not (self.tools / tool).is_file():
                raise UsageError(f'no {self.tools / tool}: build it with make')
        self.python = program(arguments.python, '--python')
        self.caffe_binary = program(arguments.caffe, '--caffe') if arguments.caffe else None
        self.cv_python = program(arguments.opencv, '--opencv') if arguments.opencv else None

    def shoal_command(self, model, *flags, threads=None):
        return [str(self.tools / 'time'), f'--model={model}', f'--threads={threads or self.threads}', *flags]

    def shoal(self, net, precision):
        command = self.shoal_command(model_of(net), '--stage=dummy', '--phase=TRAIN', f'--iterations={iterations_of(net)}',
                                     *([f'--precision={precision}'] if precision != FLOAT else []))
        text, peak = run_measured(command, environment_of())
        return {'ms': number(text, r'Average Forward-Backward: ([\d.e+-]+) ms', command),
                'median_ms': number(text, r'Median Forward-Backward: ([\d.e+-]+) ms', command),
                'gflops': number(text, r'GEMM 1024: ([\d.e+-]+) GFLOP/s', command),
                'MB_before_product': number(text, r'Peak memory: ([\d.e+-]+) MB', command), 'MB': peak,
                'params': sum(int(count) for count in re.findall(r'\tparams: (\d+)', text))}

    def pytorch(self, net, precision):
        command = [self.python, str(ROOT / 'scripts/torch_net.py'), model_of(net), f'--threads={self.threads}',
                   f'--iterations={iterations_of(net)}', *(['--bf16'] if precision == BF16 else [])]
        text, peak = run_measured(command, environment_of(**TORCH_MALLOC))
        return {**json_of(text, command), 'MB': peak}

    def caffe(self, net, _):
        command = [self.caffe_binary, 'time', f'--model={model_of(net)}', '--stage=dummy', '--phase=TRAIN',
                   f'--iterations={iterations_of(net)}']
        text, peak = run_measured(command, environment_of(OPENBLAS_NUM_THREADS=self.threads, OMP_NUM_THREADS=self.threads))
        return {'ms': number(text, r'Average Forward-Backward: ([\d.e+-]+) ms', command), 'MB': peak}

    def shoal_forward(self, net, threads):
        command = self.shoal_command(net.model, f'--weights={net.weights}', '--phase=TEST', '--forward_only',
                                     f'--iterations={INFERENCE_ITERATIONS[net.name]}', threads=threads)
        text, peak = run_measured(command, environment_of())
        return {'ms': number(text, r'Average Forward pass: ([\d.e+-]+) ms', command), 'MB': peak}

    def opencv_forward(self, net, threads):
        command = [self.cv_python, str(ROOT / 'scripts/opencv_net.py'), net.model, net.weights, f'--shape={net.shape}',
                   f'--threads={threads}', f'--iterations={INFERENCE_ITERATIONS[net.name]}']
        text, peak = run_measured(command, environment_of())
        return {**json_of(text, command), 'MB': peak}

    def idle_shoal(self):
        """What the program says of itself, and what it takes in MB."""
        runs = [run_measured([str(self.tools / 'time'), '--version'], environment_of()) for _ in range(IDLE_RUNS)]
        return runs[0][0].strip(), statistics.median(peak for _, peak in runs)

    def idle_peer(self, python, script):
        """Likewise of a script that only imports its module."""
        command, peaks = [python, str(ROOT / 'scripts' / script)], []
        for _ in range(IDLE_RUNS):
            code, text, peak = run_to_end(command, environment_of(**(TORCH_MALLOC if script == 'torch_net.py' else {})))
            if missing := re.search(r'^no (torch|cv2)\b.*', text, re.MULTILINE):
                raise UsageError(f'{python} has {missing.group()}')
            if code:
                sys.exit(f'{" ".join(command)} ended with {code}:\n{text[-2000:]}')
            peaks.append(peak)
        return next(iter(json_of(text, command).values())), statistics.median(peaks)


def model_of(net):
    return f'models/{net}/train_val.prototxt'


def iterations_of(net):
    return ITERATIONS.get(net, OTHERS_ITERATIONS)


def batches_of(nets):
    """The batch of each net."""
    known = sorted(path.parent.name for path in ROOT.glob('models/*/train_val.prototxt'))
    batches = {}
    for net in nets:
        if net not in known:
            raise UsageError(f"there is no net '{net}' in models/{known_words(net, known)}")
        try:
            batches[net] = batch_of(layers_of((ROOT / model_of(net)).read_text()))
        except Failure as error:
            raise UsageError(f'{model_of(net)}: {error}') from error
    return batches


class DeployNet:
    """A net of batch 1 as both sides read it, with random weights that one step of train has left, so that the statistics of its
    BatchNorm are those of a real image's size."""

    def __init__(self, programs, name, folder):
        self.name, folder = name, Path(folder) / name
        folder.mkdir()
        self.model, self.weights = str(folder / 'deploy.prototxt'), str(folder / 'net_iter_1.caffemodel')
        run_measured([str(programs.tools / 'deploy_net'), '--stage=dummy', '--batch=1', str(ROOT / model_of(name)), self.model],
                     environment_of())
        dims = parse(Path(self.model).read_text()).all('layer')[0].block('input_param').block('shape').all('dim')
        self.shape = ','.join(map(str, dims))
        text, count = re.subn(r'(data_filler\s*\{\s*type:\s*)"constant"(\s*value:\s*\S+)?', r'\1"gaussian" std: 1',
                              (ROOT / model_of(name)).read_text(), count=1)
        if not count:
            raise UsageError(f'{model_of(name)}: its DummyData has no filler "constant"')
        (folder / 'train.prototxt').write_text(text)
        (folder / 'solver.prototxt').write_text(SOLVER.format(folder=folder))
        run_measured([str(programs.tools / 'train'), f'--solver={folder}/solver.prototxt'], environment_of())


def quotient(a, b):
    return a / b if a > 0 and b > 0 else None


def geometric_mean(values):
    known = [value for value in values if value is not None]
    return math.exp(statistics.mean(map(math.log, known))) if known else None


def summary_of(passes, peer, idle):
    """Of one net's passes, each a dictionary of what each program said: medians, and ratios of them."""
    medians = {name: {key: statistics.median(turn[name][key] for turn in passes) for key in said if key not in ('params', 'loss')}
               for name, said in passes[0].items()}
    ratios = [turn[peer]['ms'] / turn['Shoal']['ms'] for turn in passes]
    summary = {'passes': passes, 'medians': medians, 'ratio': medians[peer]['ms'] / medians['Shoal']['ms'],
               'least_ratio': min(ratios), 'greatest_ratio': max(ratios)}
    if idle:
        summary['MB_above_idle'] = {name: medians[name]['MB'] - idle[name] for name in ('Shoal', peer)}
        summary['memory_ratio'] = quotient(summary['MB_above_idle']['Shoal'], summary['MB_above_idle'][peer])
    if 'Caffe' in medians:
        summary['caffe_ratio'] = medians['Caffe']['ms'] / medians['Shoal']['ms']
    return summary


def section_of(passes, peer, idle=None):
    """By net, with the means over all nets."""
    nets = {net: summary_of(turns, peer, idle) for net, turns in passes.items() if turns}
    kinds = [kind for kind in ('ratio', 'memory_ratio', 'caffe_ratio') if any(kind in summary for summary in nets.values())]
    means = {kind: geometric_mean(summary.get(kind) for summary in nets.values()) for kind in kinds}
    return {'nets': nets, 'geometric_means': means}


def check_params(net, turn):
    """Ends the run if the two sides do not compute the same net."""
    ours, theirs = turn['Shoal']['params'], turn['PyTorch']['params']
    if ours != theirs:
        sys.exit(f'{net}: Shoal has {ours} params and PyTorch {theirs}: these are not the same net')


def dot():
    print('.', end='', file=sys.stderr, flush=True)


class Bench:
    def __init__(self, arguments, folder):
        self.arguments, self.programs = arguments, Programs(arguments)
        self.nets, load = arguments.nets.split(','), os.getloadavg()[0]
        self.batches = batches_of(self.nets)
        shoal, idle_shoal = self.programs.idle_shoal()
        torch, idle_torch = self.programs.idle_peer(self.programs.python, 'torch_net.py')
        self.idle = {'Shoal': idle_shoal, 'PyTorch': idle_torch}
        self.about = {'processor': processor_of(Path('/proc/cpuinfo').read_text()), 'cores': len(os.sched_getaffinity(0)),
                      'load': load, 'threads': arguments.threads, 'torch': torch, 'shoal': shoal, 'idle_MB': self.idle}
        self.training = {FLOAT: {net: [] for net in self.nets}}
        if arguments.bf16:
            self.training[BF16] = {net: [] for net in self.nets if net in BF16_NETS}
        self.inference, self.deployed = {}, []
        if arguments.opencv:
            self.about['opencv'], _ = self.programs.idle_peer(self.programs.cv_python, 'opencv_net.py')
            batches_of(INFERENCE_ITERATIONS)
            self.deployed = [DeployNet(self.programs, name, folder) for name in INFERENCE_ITERATIONS]
            self.inference = {threads: {net.name: [] for net in self.deployed} for threads in (1, 2)}

    def turn(self, net, precision):
        """Each program once."""
        sides = {'Shoal': self.programs.shoal, 'PyTorch': self.programs.pytorch}
        if self.arguments.caffe and precision == FLOAT:
            sides['Caffe'] = self.programs.caffe
        turn = {}
        for name, side in sides.items():
            turn[name] = side(net, precision)
            dot()
        check_params(net, turn)
        self.training[precision][net].append(turn)

    def forward_turn(self, net, threads):
        turn = {'Shoal': self.programs.shoal_forward(net, threads), 'OpenCV': self.programs.opencv_forward(net, threads)}
        dot()
        self.inference[threads][net.name].append(turn)

    def run(self):
        for _ in range(self.arguments.passes):
            for net in self.nets:
                for precision in self.training:
                    if net in self.training[precision]:
                        self.turn(net, precision)
            for net in self.deployed:
                for threads in self.inference:
                    self.forward_turn(net, threads)
            if self.arguments.json:                      # after each pass, so that a later failure loses none of them
                Path(self.arguments.json).write_text(json.dumps(self.report(), indent=1) + '\n')
        print(file=sys.stderr)

    def report(self):
        training = {precision: section_of(passes, 'PyTorch', self.idle) for precision, passes in self.training.items()}
        report = {**self.about, 'batches': self.batches, 'training': training}
        if self.inference:
            report['inference'] = {str(threads): section_of(passes, 'OpenCV') for threads, passes in self.inference.items()}
        return report


def words_of(ratio):
    return '-' if ratio is None else f'{ratio:.2f}'


def ms_words(ms):
    return f'{ms:.0f}' if ms >= 100 else f'{ms:.1f}' if ms >= 10 else f'{ms:.2f}'


def times_words(ours, theirs, summary):
    return [ms_words(ours['ms']), ms_words(theirs['ms']), words_of(summary['ratio']),
            f'{summary["least_ratio"]:.2f}-{summary["greatest_ratio"]:.2f}']


def print_processor(processor):
    has = ', '.join(f'{flag} {"yes" if processor[flag] else "no"}' for flag in ('avx512f', 'avx512_bf16', 'amx'))
    print(f'{processor["vendor"]} {processor["name"]}, family {processor["family"]}, model {processor["model"]}; {has}')


def print_about(about):
    print_processor(about['processor'])
    opencv = f'; OpenCV {about["opencv"]}' if 'opencv' in about else ''
    print(f'{about["cores"]} cores, {about["threads"]} threads, load {about["load"]:.1f} before; '
          f'PyTorch {about["torch"]}{opencv}; {about["shoal"]}')
    print(f'idle: Shoal {about["idle_MB"]["Shoal"]:.0f} MB, PyTorch {about["idle_MB"]["PyTorch"]:.0f} MB\n')


def print_training(title, section, batches):
    caffe = 'caffe_ratio' in section['geometric_means']
    header = ['net (batch)', 'Shoal ms', 'PyTorch ms', 'PyTorch/Shoal', 'in a turn', 'Shoal GFLOP/s', 'PyTorch GFLOP/s',
              'Shoal MB', 'PyTorch MB', 'Shoal - idle', 'PyTorch - idle', 'Shoal/PyTorch']
    header += ['Caffe ms', 'Caffe/Shoal', 'Caffe MB'] if caffe else []
    rows = []
    for net, summary in section['nets'].items():
        ours, theirs, above = summary['medians']['Shoal'], summary['medians']['PyTorch'], summary['MB_above_idle']
        rows.append([f'{net} ({batches[net]})', *times_words(ours, theirs, summary),
                     *[f'{side[key]:.0f}' for key in ('gflops', 'MB') for side in (ours, theirs)],
                     f'{above["Shoal"]:.0f}', f'{above["PyTorch"]:.0f}', words_of(summary['memory_ratio'])])
        if caffe:
            seen = summary['medians']['Caffe']
            rows[-1] += [ms_words(seen['ms']), words_of(summary['caffe_ratio']), f'{seen["MB"]:.0f}']
    means = section['geometric_means']
    print(title)
    last = ['geometric mean', '', '', words_of(means['ratio']), *[''] * 7, words_of(means['memory_ratio'])]
    table(header, rows + [last + (['', words_of(means['caffe_ratio']), ''] if caffe else [])])


def print_inference(threads, section):
    rows = []
    for net, summary in section['nets'].items():
        ours, theirs = summary['medians']['Shoal'], summary['medians']['OpenCV']
        rows.append([net, *times_words(ours, theirs, summary), f'{ours["MB"]:.0f}', f'{theirs["MB"]:.0f}'])
    print(f'forward alone, TEST, batch 1, {threads} thread{"s" if threads != "1" else ""}')
    table(['net', 'Shoal ms', 'OpenCV ms', 'OpenCV/Shoal', 'in a turn', 'Shoal MB', 'OpenCV MB'],
          rows + [['geometric mean', '', '', words_of(section['geometric_means']['ratio']), '', '', '']])


def print_report(report):
    print_about(report)
    for precision, section in report['training'].items():
        if section['nets']:
            print_training(f'forward + backward, {precision}', section, report['batches'])
    for threads, section in report.get('inference', {}).items():
        print_inference(threads, section)


def arguments_of():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('build', nargs='?', default='build/release', help='the build folder')
    parser.add_argument('--python', default=sys.executable, help='one with torch')
    parser.add_argument('--caffe', metavar='BINARY', help="BVLC Caffe's program, to time it too")
    parser.add_argument('--opencv', metavar='PYTHON', help="one with cv2: also time single images forward beside OpenCV's dnn")
    parser.add_argument('--nets', default=','.join(ITERATIONS), help='comma list of folders in models/')
    parser.add_argument('--passes', type=int, default=5, help='turns of all programs; the median counts')
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--bf16', action='store_true', help=f'also in BFLOAT16: {", ".join(BF16_NETS)}')
    parser.add_argument('--json', metavar='FILE', help='write all figures there, those of each pass too')
    arguments = parser.parse_args()
    if min(arguments.passes, arguments.threads) < 1:
        parser.error('--passes and --threads must be 1 or more')
    return arguments


def main():
    arguments = arguments_of()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments, folder)
        bench.run()
        print_report(bench.report())


if __name__ == '__main__':
    main_of(main)
