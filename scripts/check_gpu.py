#!/usr/bin/env python3
"""Checks Shoal on this machine's GPUs: the tests that need one, compute-sanitizer over those of kernels, LeNet in each precision, several
GPUs together, and the speed beside PyTorch, as far as each is there. BUILD is a build folder with its test program, or what
scripts/bundle.sh made. One line says how each check ended; the exit code is 0 if none failed, 5 if there is no GPU."""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_gpu import ROOT, run, time_command, why

COUNTS = re.compile(r'^(\d+) passed, (\d+) failed, (\d+) skipped$', re.MULTILINE)
ON_GPU = '*_on_gpu:*/gpu*:-*fake_gpu*'
KERNELS = '*CudaOps.*/gpu:*CudaFunctions.*/gpu:*CudaKernels.*/gpu:*CudaLibraries.*/gpu:*ShortFloats.*/gpu'
ACCURACY = re.compile(r'Test net output #\d+: accuracy = ([\d.e+-]+)')
SOLVER = '''net: "{root}/models/lenet/train_val.prototxt"
train_source: "{folder}/digits_train_datumfile" test_source: "{folder}/digits_test_datumfile" shared_file_system: true
test_iter: 20 test_interval: {iterations} test_initialization: false base_lr: 0.02 momentum: 0.9 weight_decay: 0.0005 lr_policy: "poly" power: 1
display: 200 max_iter: {iterations} snapshot_prefix: "{folder}/lenet" random_seed: 1 deterministic: true
'''


class Failed(Exception):
    """Why a check failed."""


class Skipped(Exception):
    """What this machine lacks for a check."""


class Checks:
    def __init__(self, arguments, folder):
        self.arguments, self.folder, self.gpus = arguments, folder, 0

    def program(self, name):
        *bundle, place = time_command(self.arguments.build)
        if bundle:
            return [*bundle, name]
        tools = Path(place).parent
        return [str(tools.parent / 'tests' / 'all' if name == 'shoal_tests' else tools / name)]

    def output_of(self, command):
        """Of a command that ends well."""
        text, code = run(command, self.arguments.timeout)
        if code != 0:
            raise Failed(why(text, code, self.arguments.timeout))
        return text

    def find_gpus(self):
        text = self.output_of(self.program('device_query'))
        self.gpus = len(re.findall(r'^GPU \d+: ', text, re.MULTILINE))
        return text.strip()

    def tests(self):
        """In as many processes as there are cores, but no more than 8."""
        lanes = max(1, min(8, os.cpu_count() or 1))
        processes = [subprocess.Popen([*self.program('shoal_tests'), f'--gtest_filter={ON_GPU}'], cwd=ROOT, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, encoding='utf-8', errors='replace',
                                      env={**os.environ, 'GTEST_TOTAL_SHARDS': str(lanes), 'GTEST_SHARD_INDEX': str(lane)})
                     for lane in range(lanes)]
        end, total, words = time.monotonic() + self.arguments.timeout, [0, 0, 0], []
        for process in processes:
            try:
                text, _ = process.communicate(timeout=max(1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                text, _ = process.communicate()
                words.append(f'stopped after {self.arguments.timeout} s in {re.findall("^.* RUN .*", text, re.MULTILINE)[-1:]}')
            counts = COUNTS.findall(text)
            total = [a + int(b) for a, b in zip(total, counts[-1])] if counts else total
            words += re.findall(r'^failed: .*', text, re.MULTILINE)
            if not counts:
                words.append(why(text, process.returncode, self.arguments.timeout))
        sentence = '{} passed, {} failed, {} skipped'.format(*total)
        if words or total[1] or not total[0]:
            raise Failed('\n    '.join([sentence, *words]))
        return sentence

    def sanitizer(self):
        tool = shutil.which('compute-sanitizer') or shutil.which('compute-sanitizer', path='/usr/local/cuda/bin')
        if not tool:
            raise Skipped('compute-sanitizer is not installed')
        words = []
        for kind in ('memcheck', 'racecheck'):
            text = self.output_of([tool, f'--tool={kind}', '--error-exitcode=9', '--target-processes=all', *self.program('shoal_tests'),
                                   f'--gtest_filter={KERNELS}'])
            words += [f'{kind}: {line}' for line in re.findall(r'= ((?:ERROR|RACECHECK) SUMMARY: .*)', text)]
        return '; '.join(words)

    def train(self, *flags, iterations=1000):
        """Seconds, the accuracy at the end, and the bytes of the model."""
        solver = self.folder / 'solver.prototxt'
        solver.write_text(SOLVER.format(root=ROOT, folder=self.folder, iterations=iterations))
        begin = time.monotonic()
        text = self.output_of([*self.program('train'), f'--solver={solver}', *flags])
        seconds, accuracy = time.monotonic() - begin, ACCURACY.findall(text)
        if not accuracy or not float(accuracy[-1]) >= 0.9:
            raise Failed(f'{" ".join(flags)}: the accuracy is {accuracy[-1] if accuracy else "unknown"}; at least 0.9 was expected')
        return seconds, float(accuracy[-1]), (self.folder / f'lenet_iter_{iterations}.caffemodel').read_bytes()

    def draw_digits(self):
        if not (self.folder / 'digits_train_datumfile').exists():
            self.output_of([*self.program('draw_digits'), '--train=20000', str(self.folder)])

    def training(self):
        self.draw_digits()
        words, models = [], {}
        for flags in ('FLOAT32', 'FLOAT32 again', 'FLOAT32 --nocuda_graphs', 'TF32', 'BFLOAT16', 'FLOAT16'):
            precision, *more = flags.replace(' again', '').split()
            seconds, accuracy, models[flags] = self.train('--gpu=0', f'--precision={precision}', *more)
            words.append(f'{flags}: accuracy {accuracy}, {seconds:.1f} s')
        if len({models[flags] for flags in models if flags.startswith('FLOAT32')}) > 1:
            raise Failed('the three runs in FLOAT32 ended in different models; ' + '; '.join(words))
        return '; '.join(words)

    def several(self):
        if self.gpus < 2:
            raise Skipped('there is one GPU')
        self.draw_digits()
        seconds, accuracy, model = self.train('--gpu=all')
        if self.train('--gpu=all')[2] != model:
            raise Failed('two runs ended in different models')
        return f'{self.gpus} GPUs: accuracy {accuracy}, {seconds:.1f} s'

    def bench(self):
        """Prints its own rows."""
        command = [sys.executable, str(ROOT / 'scripts' / 'bench_gpu.py'), self.arguments.build, '--precisions=TF32,BFLOAT16',
                   f'--timeout={self.arguments.timeout}', f'--nets={self.arguments.nets}']
        if subprocess.run([sys.executable, '-c', 'import torch'], capture_output=True).returncode != 0:
            command.append('--no_pytorch')
        elif self.arguments.compile:
            command.append('--compile')
        if subprocess.run(command).returncode != 0:
            raise Failed('bench_gpu.py failed')
        return 'Shoal alone: this Python has no torch' if '--no_pytorch' in command else 'the rows above'


def main():
    names = ('tests', 'sanitizer', 'training', 'several', 'bench')
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('build', nargs='?', default='build/release', help='a build folder, or a bundle')
    parser.add_argument('--only', default=','.join(names), help='comma list of checks')
    parser.add_argument('--nets', default='alexnet,googlenet,vgg16,resnet18,resnet50,cifar10_quick,lenet', help='of bench')
    parser.add_argument('--compile', action='store_true', help='bench: also torch.compile')
    parser.add_argument('--timeout', type=float, default=300, help='seconds for one process')
    arguments = parser.parse_args()
    chosen = arguments.only.split(',')
    if unknown := [name for name in chosen if name not in names]:
        parser.error(f'no check {", ".join(unknown)}; known: {", ".join(names)}')
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        checks = Checks(arguments, Path(folder))
        try:
            print(checks.find_gpus(), flush=True)
        except Failed as error:
            sys.exit(f'device_query: {error}')
        if checks.gpus == 0:
            return 5
        for name in chosen:
            begin = time.monotonic()
            try:
                outcome = f'passed: {getattr(checks, name)()}'
            except Skipped as lack:
                outcome = f'skipped: {lack}'
            except Failed as error:
                outcome, failed = f'FAILED: {error}', True
            print(f'{name}: {outcome} ({time.monotonic() - begin:.0f} s)', flush=True)
    return int(failed)


if __name__ == '__main__':
    sys.exit(main())
