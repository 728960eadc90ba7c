#!/usr/bin/env python3
"""Speed and memory of the models on one and two threads, each beside a 1024^3 matrix product of the same run and beside what BVLC
Caffe 1.0 took, scaled by the ratio of the matrix products; then what `train` costs over `time`. Run by `make bench`."""
import argparse
import re
import statistics
import sys
import tempfile
from pathlib import Path

from machines import main_of
from timing import ROOT, number, run, table

# BVLC Caffe 1.0, forward + backward, on two cores of an AMD EPYC (Zen 4): ms on one and two threads (the better mode where it
# had two), peak MB of `caffe time`; and the matrix product there, GFLOP/s on one and two threads.
CAFFE = {
    'lenet': (21, 18, 74), 'cifar10_quick': (207, 156, 118), 'cifar10_full': (227, 185, 156), 'caffenet': (2005, 1325, 828),
    'googlenet': (3014, 2230, 1423), 'resnet18': (2642, 2146, 1386), 'resnet50': (7057, 4760, 5813), 'vgg16': (20875, 13009, 3395),
}
CAFFE_GEMM = {1: 101, 2: 201}
SIX = ('lenet', 'cifar10_quick', 'cifar10_full', 'caffenet', 'googlenet', 'resnet18')


def time_net(build, model, threads, seconds, stage='dummy'):
    """ms of a forward and backward pass, GFLOP/s of the matrix product, peak MB; as many passes as fit in `seconds`."""
    guess = CAFFE.get(Path(model).parent.name, (200,))[0] / 1000
    command = [f'{build}/tools/time', f'--model={model}', '--phase=TRAIN', f'--stage={stage}', f'--threads={threads}',
               f'--iterations={max(3, min(200, round(seconds / guess)))}']
    text = run(command)
    return (number(text, r'Average Forward-Backward: ([\d.e+]+) ms', command), number(text, r'GEMM 1024: ([\d.e+]+) GFLOP/s', command),
            number(text, r'Peak memory: ([\d.e+]+) MB', command))


def median_of(passes):
    return tuple(statistics.median(values) for values in zip(*passes))


def bench_nets(build, nets, passes, seconds):
    seen = {(net, threads): [] for net in nets for threads in (1, 2)}
    for _ in range(passes):                              # interleaved: a machine drifts over minutes
        for (net, threads), results in seen.items():
            results.append(time_net(build, f'models/{net}/train_val.prototxt', threads, seconds))
            print('.', end='', file=sys.stderr, flush=True)
    print(file=sys.stderr)
    middle = {key: median_of(results) for key, results in seen.items()}
    for threads in (1, 2):
        rows = []
        for net in nets:
            ours, gemm, memory = middle[net, threads]
            caffe = CAFFE[net][threads - 1] * CAFFE_GEMM[threads] / gemm
            rows.append([net, f'{ours:.1f}', f'{gemm:.0f}', f'{caffe:.1f}', f'{caffe / ours:.2f}', f'{memory:.0f}', f'{CAFFE[net][2]}',
                         f'{memory / CAFFE[net][2]:.2f}'])
        print(f'{threads} thread{"s" if threads > 1 else ""}, forward + backward')
        table(['net', 'ms', 'GEMM GFLOP/s', 'Caffe ms, scaled', 'times as fast', 'peak MB', 'Caffe MB', 'of Caffe'], rows)
    print('two threads against one')
    table(['net', 'times as fast', 'GEMM times as fast'],
          [[net, f'{middle[net, 1][0] / middle[net, 2][0]:.2f}', f'{middle[net, 2][1] / middle[net, 1][1]:.2f}'] for net in nets])


def train_ms(build, net, iterations, folder, threads):
    """ms an iteration of `train` on the records of `net`, and the percentage of it spent waiting for them, as the log says them."""
    solver = Path(folder) / 'solver.prototxt'
    solver.write_text(f'net: "{net}"\nbase_lr: 0.001\nlr_policy: "fixed"\nmomentum: 0.9\nweight_decay: 0.004\nrandom_seed: 1\n'
                      f'display: {max(1, iterations // 10)}\nmax_iter: {iterations}\nsnapshot_after_train: false\nsolver_mode: CPU\n'
                      f'snapshot_prefix: "{folder}/bench"\n')
    command = [f'{build}/tools/train', f'--solver={solver}', f'--threads={threads}']
    text = run(command)
    rates = [float(r) for r in re.findall(r'Iteration \d+ \(([\d.e+-]+) iter/s', text)][2:]
    if not rates:
        sys.exit(f'no rate in what {" ".join(command)} printed:\n{text[-2000:]}')
    waits = [float(w) for w in re.findall(r'data ([\d.]+)% wait', text)][2:]
    return 1000 / statistics.median(rates), statistics.median(waits)


def bench_train(build, seconds):
    """`train` on real records against `time` on the same net without them."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        run([f'{build}/tools/draw_digits', '--backend=lmdb', folder])
        lenet = Path(folder) / 'lenet.prototxt'
        text = (ROOT / 'models/lenet/train_val.prototxt').read_text()
        lenet.write_text(text.replace('examples/mnist/mnist_', f'{folder}/digits_'))
        nets = [('lenet on drawn digits, LMDB', 'lenet', str(lenet))]
        if (ROOT / 'examples/cifar10/cifar10_train_lmdb').exists() and (ROOT / 'examples/cifar10/mean.binaryproto').exists():
            nets.append(('cifar10_quick on CIFAR-10, LMDB', 'cifar10_quick', 'models/cifar10_quick/train_val.prototxt'))
        else:
            print('cifar10_quick: no examples/cifar10/cifar10_train_lmdb (examples/cifar10/create_cifar10.sh makes it); left out')
        for label, net, path in nets:
            for threads in (1, 2):
                iterations = max(50, round(1000 * seconds / CAFFE[net][0]))
                alone = [time_net(build, f'models/{net}/train_val.prototxt', threads, seconds)[0]]
                train, wait = train_ms(build, path, iterations, folder, threads)
                alone.append(time_net(build, f'models/{net}/train_val.prototxt', threads, seconds)[0])
                base = statistics.mean(alone)
                rows.append([label, str(threads), f'{base:.2f}', f'{train:.2f}', f'{100 * (train / base - 1):+.1f} %', f'{wait:.0f} %'])
    print('what training costs over forward + backward')
    table(['net', 'threads', 'time ms', 'train ms', 'more', 'waiting'], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('build', nargs='?', default='build/release', help='the build folder')
    parser.add_argument('--nets', default=','.join(SIX), help='comma list of folders in models/')
    parser.add_argument('--passes', type=int, default=2, help='passes over all nets; the median counts')
    parser.add_argument('--seconds', type=float, default=8, help='about how long one measurement takes')
    parser.add_argument('--no-train', action='store_true', help='leave out the cost of training')
    arguments = parser.parse_args()
    nets = arguments.nets.split(',')
    unknown = [net for net in nets if net not in CAFFE]
    if unknown:
        parser.error(f'no figure of Caffe for {", ".join(unknown)}; known: {", ".join(CAFFE)}')
    build = arguments.build if Path(arguments.build).is_absolute() else str(ROOT / arguments.build)
    bench_nets(build, nets, arguments.passes, arguments.seconds)
    if not arguments.no_train:
        bench_train(build, arguments.seconds)


if __name__ == '__main__':
    main_of(main)
