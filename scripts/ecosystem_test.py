#!/usr/bin/env python3
"""Runs what Shoal writes in the programs that read it: onnxruntime, NumPy and TensorBoard from a clean virtual environment, and Chromium.

    scripts/ecosystem_test.py [BUILD] [--only=WORD] [--keep]

BUILD holds the tools and tests/all (build/release). Each step is independent; --only runs those whose name has the word. The
environment is build/ecosystem/venv, which is kept; --keep keeps the files that the steps wrote, too. The last line
counts; the exit code is 0 only if nothing failed.
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
HOME = ROOT / 'build/ecosystem'
PACKAGES = ('numpy', 'onnx', 'onnxruntime', 'safetensors', 'tensorboard')
STEPS = []  # (name, function of a Bench)


def step(name):
    """Puts a function among the steps."""
    def add(function):
        STEPS.append((name, function))
        return function
    return add


class Skipped(Exception):
    """Says what a step lacks."""


class Bench:
    """Where the programs are, and a folder for a step's files."""

    def __init__(self, build, folder):
        self.build, self.folder = build, folder
        self.python = HOME / 'venv/bin/python3'

    def run(self, *words, env=None, seconds=300, code=0):
        """Runs a program with the environment's python3 in front; returns what it said."""
        path = f'{self.python.parent}:{os.environ["PATH"]}'
        done = subprocess.run([str(word) for word in words], cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False,
                              env={**os.environ, 'PATH': path, **(env or {})})
        if done.returncode != code:
            raise AssertionError(f'{" ".join(map(str, words))}\nended with {done.returncode}, not {code}:\n{done.stdout}{done.stderr}')
        return done.stdout + done.stderr

    def tool(self, name, *flags, **options):
        return self.run(self.build / 'tools' / name, *flags, **options)

    def script(self, name, *words, file='ecosystem_onnx.py', **options):
        """Runs a function of a script in the environment."""
        return self.run(self.python, ROOT / 'scripts' / file, name, *words, **options)

    def quickstart(self, **fields):
        """Draws digits, and returns a solver of the quickstart's net on them with these fields."""
        self.tool('draw_digits', '--train=640', '--test=200', self.folder)
        text = (ROOT / 'examples/quickstart/solver.prototxt').read_text().replace('build/quickstart', str(self.folder))
        for field, value in {'test_iter': 2, **fields}.items():
            text = re.sub(rf'(?m)^{field}: .*$', f'{field}: {value}', text)
        solver = self.folder / 'solver.prototxt'
        solver.write_text(text)
        return solver

    def launch(self, solver, *flags):
        """The command of a job of two processes."""
        return [ROOT / 'scripts/launch.py', '--local=2', '--', self.build / 'tools/train', f'--solver={solver}', '--threads=1', *flags]


def make_environment():
    """Makes the virtual environment, or finds it complete."""
    python = HOME / 'venv/bin/python3'
    wanted = f'import importlib.metadata as m; print(*(p + " " + m.version(p) for p in {PACKAGES}), sep=", ")'
    if python.exists():
        done = subprocess.run([python, '-c', wanted], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    HOME.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(HOME / 'venv', ignore_errors=True)
    subprocess.run([sys.executable, '-m', 'venv', HOME / 'venv'], check=True)
    subprocess.run([python, '-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', *PACKAGES], check=True)
    return subprocess.run([python, '-c', wanted], capture_output=True, text=True, check=True).stdout.strip()


# ---- ONNX

# The nets of models/ and examples/, and what is to be said of them: a stage, or the size of the input. Left out are one of a gigabyte
# (vgg19_22k) and Faster R-CNN's, whose data layer has tops that only training wants.
DUMMY = ('--stage=dummy',)
NETS = {
    **{f'models/{path.parent.name}/train_val.prototxt': DUMMY for path in sorted(ROOT.glob('models/*/train_val.prototxt'))},
    'models/cifar10_quick/deploy.prototxt': (),
    'models/lenet/deploy.prototxt': (),
    'examples/autoencoder/train_val.prototxt': ('--shape=1,1,28,28',),
    'examples/cifar10/batch_norm_net.prototxt': ('--shape=1,3,32,32',),
    'examples/cluster/fc_heavy.prototxt': ('--shape=1,1,28,28',),
    'examples/compare/train_val.prototxt': ('--shape=1,1,28,28',),
    'examples/exchanges/inception_v3.prototxt': (),
    'examples/finetuning/train_val.prototxt': ('--shape=1,1,28,28',),
    'examples/recurrent/train_val.prototxt': ('--shape=160,1,28,28',),
    'examples/siamese/train_val.prototxt': ('--shape=1,2,28,28',),
}


@step('layers in onnxruntime')
def layers(bench):
    """Every layer that can be exported, as drawn nets with their numbers."""
    bench.run(bench.build / 'tests/all', '--gtest_filter=*OnnxCases*', env={'SHOAL_ONNX_CASES': str(bench.folder)})
    return bench.script('compare', bench.folder)


def checked(bench, net, *flags):
    """Exports a net, with params drawn at random; returns the largest difference of an output, of its largest number."""
    said = bench.tool('export_onnx', f'--model={net}', *flags, f'--out={bench.folder}/net.onnx', '--check=2')
    return max(float(line.rsplit('relative ', 1)[1]) for line in said.splitlines() if 'largest difference' in line)


@step('nets in onnxruntime')
def nets(bench):
    failures = []
    for net, flags in NETS.items():
        begin = time.monotonic()
        try:
            worst = checked(bench, net, *flags)
        except AssertionError as error:
            failures.append(str(error))
            continue
        print(f'{net}: {worst:.1e}, {time.monotonic() - begin:.1f} s', flush=True)
    assert not failures, '\n'.join(failures)


@step('preprocessing, a fixed batch and external data in onnxruntime')
def options(bench):
    net = 'models/cifar10_quick/deploy.prototxt'
    worst = checked(bench, net, '--mean_value=104,117,123', '--scale=0.0078125', '--swap_channels')
    other = checked(bench, net, '--batch=3', '--external_data')
    return f'{worst:.1e} and {other:.1e}\n' + bench.script('external', bench.folder / 'net.onnx')


@step('SSD in onnxruntime')
def ssd(bench):
    bench.run(sys.executable, 'examples/ssd/make_nets.py', bench.folder, '--input=96', '--fine', '--width=0.25', '--classes=3')
    return f'{checked(bench, bench.folder / "deploy.prototxt"):.1e}\n'


FASTER_RCNN = """
layer { name: 'inputs' type: 'Input' top: 'data' top: 'im_info'
  input_param { shape { dim: 1 dim: 3 dim: 64 dim: 96 } shape { dim: 1 dim: 3 } } }
layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv' convolution_param { num_output: 8 kernel_size: 3 stride: 8 pad: 1 } }
layer { name: 'relu' type: 'ReLU' bottom: 'conv' top: 'conv' }
layer { name: 'rpn_cls_score' type: 'Convolution' bottom: 'conv' top: 'rpn_cls_score' convolution_param { num_output: 18 kernel_size: 1 } }
layer { name: 'two' type: 'Reshape' bottom: 'rpn_cls_score' top: 'two' reshape_param { shape { dim: 0 dim: 2 dim: -1 dim: 0 } } }
layer { name: 'prob' type: 'Softmax' bottom: 'two' top: 'prob' }
layer { name: 'back' type: 'Reshape' bottom: 'prob' top: 'rpn_cls_prob' reshape_param { shape { dim: 0 dim: 18 dim: -1 dim: 0 } } }
layer { name: 'rpn_bbox_pred' type: 'Convolution' bottom: 'conv' top: 'rpn_bbox_pred' convolution_param { num_output: 36 kernel_size: 1 } }
layer { name: 'proposal' type: 'Proposal' bottom: 'rpn_cls_prob' bottom: 'rpn_bbox_pred' bottom: 'im_info' top: 'rois'
  proposal_param { base_size: 8 feat_stride: 8 scale: 1 scale: 2 scale: 4 min_size: 4 pre_nms_topn: 200 post_nms_topn: 20 nms_thresh: 0.7 } }
layer { name: 'pool' type: 'ROIPooling' bottom: 'conv' bottom: 'rois' top: 'pool' roi_pooling_param { pooled_w: 3 pooled_h: 3 spatial_scale: 0.125 } }
layer { name: 'fc' type: 'InnerProduct' bottom: 'pool' top: 'fc' inner_product_param { num_output: 16 } }
layer { name: 'fc_relu' type: 'ReLU' bottom: 'fc' top: 'fc' }
layer { name: 'cls_score' type: 'InnerProduct' bottom: 'fc' top: 'cls_score' inner_product_param { num_output: 4 } }
layer { name: 'cls_prob' type: 'Softmax' bottom: 'cls_score' top: 'cls_prob' }
"""


@step('Faster R-CNN in onnxruntime')
def faster_rcnn(bench):
    (bench.folder / 'net.prototxt').write_text(FASTER_RCNN)
    return f'{checked(bench, bench.folder / "net.prototxt"):.1e}\n'


@step('a quantised net in onnxruntime')
def quantised(bench):
    bench.tool('draw_digits', '--backend=lmdb', '--train=64', '--test=64', bench.folder)
    said = bench.tool('export_onnx', '--model=models/lenet/deploy.prototxt', '--batch=0', f'--out={bench.folder}/net.onnx', '--scale=0.00390625',
                      f'--calibrate={bench.folder}/digits_test_lmdb')
    assert 'over 64 records' in said, said
    return bench.script('quantise', bench.folder / 'net.onnx')


@step('params in NumPy and safetensors')
def arrays(bench):
    files = bench.folder / 'x.npz', bench.folder / 'x.safetensors'
    bench.tool('export_onnx', '--model=models/cifar10_resnet20/train_val.prototxt', *DUMMY, f'--npz={files[0]}', f'--safetensors={files[1]}')
    return bench.script('arrays', *files)


# ---- a run that is watched

@step('curves in TensorBoard')
def tensorboard(bench):
    """Event files that two workers wrote, and those that export_tensorboard makes of their metrics."""
    solver = bench.quickstart(max_iter=60, display=10, test_interval=20)
    events, metrics, later = (bench.folder / name for name in ('events', 'metrics', 'later'))
    bench.run(*bench.launch(solver, f'--tensorboard={events}', '--tensorboard_histograms=30', f'--metrics={metrics}'))
    said = bench.script('tensorboard', events, metrics, file='ecosystem_watch.py')
    bench.tool('export_tensorboard', f'--metrics={metrics}', f'--out={later}')
    return said + bench.script('curves', later, metrics, file='ecosystem_watch.py')


@step('the page of a job in Chromium')
def page(bench):
    if not shutil.which('chromium'):
        raise Skipped('there is no chromium; scripts/install_packages.sh --tests installs it')
    solver = bench.quickstart(max_iter=100000000, display=5, test_interval=20)
    log = bench.folder / 'log'
    with log.open('w') as file:
        job = subprocess.Popen(bench.launch(solver, '--status_port=0'), cwd=ROOT, stderr=file, stdout=file)
    try:
        deadline = time.monotonic() + 120
        while not (found := re.search(r'\[0@.*The run is shown at (http://\S+/)', log.read_text())) or 'Iteration 40, Testing' not in log.read_text():
            assert job.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.2)
        return bench.script('page', found[1], HOME / 'page.png', file='ecosystem_watch.py')
    finally:
        job.send_signal(signal.SIGINT)
        job.wait(60)


# ---- Python

@step('the Python package')
def package(bench):
    return bench.run(ROOT / 'scripts/python_test.sh', env={'BUILD': str(bench.build), 'TOOLS_DIR': str(bench.build / 'tools')}, seconds=1500)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('build', nargs='?', default=ROOT / 'build/release', type=pathlib.Path)
    parser.add_argument('--only', default='')
    parser.add_argument('--keep', action='store_true')
    arguments = parser.parse_args()
    print('environment:', make_environment(), flush=True)
    passed = failed = skipped = 0
    for name, function in STEPS:
        if arguments.only not in name:
            continue
        folder = pathlib.Path(tempfile.mkdtemp(prefix='ecosystem.'))
        begin = time.monotonic()
        try:
            said = function(Bench(arguments.build.resolve(), folder))
            passed += 1
            print(f'== {name}: passed in {time.monotonic() - begin:.1f} s\n{said or ""}', end='', flush=True)
        except Skipped as lack:
            skipped += 1
            print(f'== {name}: skipped, {lack}', flush=True)
        except (AssertionError, subprocess.SubprocessError) as error:
            failed += 1
            print(f'== {name}: FAILED\n{error}', flush=True)
        if arguments.keep:
            print(f'files: {folder}')
        else:
            shutil.rmtree(folder)
    print(f'ecosystem: {passed} steps passed, {failed} failed, {skipped} skipped')
    return 1 if failed or not passed else 0


if __name__ == '__main__':
    sys.exit(main())
