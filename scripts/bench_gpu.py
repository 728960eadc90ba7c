#!/usr/bin/env python3
"""Speed and memory of forward + backward on a GPU, Shoal beside PyTorch (eager, channels_last and contiguous) on the same nets in
the same run, in turns and each in processes of its own. BUILD is a build folder, its tools, or what scripts/bundle.sh made. Without
--batch a net has the batch of its stage "dummy". PyTorch is timed by CUDA events with its passes queued ahead, Shoal by
`time`, which waits for each pass; cuDNN chooses PyTorch's algorithms by measuring them (cudnn.benchmark). MB are 10^6 bytes: the most that
either had in use on the GPU at one time after its first pass, so without the search for algorithms, and without what CUDA and its libraries hold.
The exit code is 1 if a net has no time of Shoal's."""
import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

from torch_net import Failure, TorchNet, batch_of, layers_of, torch_times, training_step

ROOT = Path(__file__).resolve().parent.parent
NETS = 'alexnet,googlenet,vgg16,resnet18,resnet50,cifar10_quick,lenet'
PRECISIONS = ('FLOAT32', 'TF32', 'BFLOAT16')


def set_precision(torch, precision):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != 'FLOAT32'


def torch_variant(torch, arguments, layers, precision, variant):
    """One timing of PyTorch: a dictionary for the parent."""
    set_precision(torch, precision)
    cuda = arguments.device != 'cpu'
    if cuda:
        torch.cuda.empty_cache()
    net = TorchNet(torch, layers, arguments.device)
    data = net.inputs['data']
    if variant != 'contiguous':
        net.modules.to(memory_format=torch.channels_last)
        data = data.to(memory_format=torch.channels_last)
    step = training_step(torch, net, data, precision == 'BFLOAT16', torch.compile(net.forward) if variant == 'compiled' else net.forward)
    first_loss = step().item()
    if cuda:
        torch.cuda.reset_peak_memory_stats()             # as `time` does: without what the search for algorithms took
    times = torch_times(torch, arguments.device, step, arguments.iterations)
    peak = torch.cuda.max_memory_allocated() / 1e6 if cuda else None
    return {'ms': statistics.median(times), 'batch': data.shape[0], 'MB': peak, 'loss': first_loss, 'params': net.param_count()}


def torch_child(arguments, model):
    """Prints one line of JSON for each precision and variant of one net."""
    warnings.filterwarnings('ignore')
    import torch
    torch.backends.cudnn.benchmark = True
    for precision in arguments.precisions.split(','):
        for variant in variants_of(arguments):
            try:
                result = torch_variant(torch, arguments, layers_of(Path(model).read_text()), precision, variant)
            except Exception as error:                   # of this variant: out of memory, no compiler for torch.compile
                words = str(error).strip().splitlines() or ['']
                result = {'error': words[0] if isinstance(error, Failure) else f'{type(error).__name__}: {words[0]}'[:200]}
            print(json.dumps({'precision': precision, 'variant': variant, **result}), flush=True)


def machine_child(arguments):
    """What the machine can do at most, and the names of its parts."""
    warnings.filterwarnings('ignore')
    import torch
    cuda = arguments.device != 'cpu'
    if cuda:
        print(f'{torch.cuda.get_device_name()}, {torch.cuda.get_device_properties(0).total_memory / 1e9:.0f} GB; ', end='')
    cudnn = torch.backends.cudnn.version() if cuda else None
    print(f'PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {cudnn}, Python {sys.version.split()[0]}', flush=True)
    size = 8192 if cuda else 512
    for precision in PRECISIONS:
        set_precision(torch, precision)
        a, b = (torch.randn(size, size, device=arguments.device, dtype=torch.bfloat16 if precision == 'BFLOAT16' else torch.float)
                for _ in range(2))
        out = torch.empty_like(a)
        ms = statistics.median(torch_times(torch, arguments.device, lambda: torch.mm(a, b, out=out), 20))
        print(f'{size}^3 matrix product, {precision}: {2 * size ** 3 / ms / 1e9:.3g} TFLOP/s', flush=True)
    source = torch.empty(2 ** 30 if cuda else 2 ** 24, dtype=torch.uint8, device=arguments.device)
    target = torch.empty_like(source)
    ms = statistics.median(torch_times(torch, arguments.device, lambda: target.copy_(source), 20))
    print(f'copy on the device: {2 * source.numel() / ms / 1e6:.0f} GB/s (read and written)', flush=True)


def variants_of(arguments):
    return ['channels_last', 'contiguous'] + (['compiled'] if arguments.compile else [])


def run(command, timeout):
    """What `command` printed on both streams, its code, or None if it had to be stopped."""
    environment = {**os.environ, 'PYTHONUNBUFFERED': '1'}
    with tempfile.TemporaryFile('w+', errors='replace') as out:
        try:
            code = subprocess.run(command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT, timeout=timeout).returncode
        except subprocess.TimeoutExpired:
            code = None
        except OSError as error:
            return str(error), 1
        out.seek(0)
        return out.read(), code


def why(text, code, timeout):
    """In one line."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r'[EF]\d{4,} |.*[Ee]rror', line)]
    return f'stopped after {timeout} s' if code is None else f'ended with {code}: {((errors or lines or ["no output"])[-1])[:200]}'


def time_command(folder):
    folder = Path(folder).resolve()
    for place in (folder, folder.parent):
        if (place / 'run').is_file() and os.access(place / 'run', os.X_OK):
            return [str(place / 'run'), 'time']
    places = [place / 'time' for place in (folder, folder / 'tools') if (place / 'time').is_file()]
    return [str(places[0] if places else folder / 'time')]


def time_shoal(arguments, model, precision):
    command = time_command(arguments.build) + [f'--model={model}', '--phase=TRAIN', '--stage=dummy', f'--iterations={arguments.iterations}']
    flags = shlex.split(arguments.shoal_flags)
    text, code = run(command + [flag.replace('PRECISION', precision) for flag in flags], arguments.timeout)
    median = re.search(r'Median Forward-Backward: ([\d.e+-]+) ms', text)
    if code != 0 or not median:
        return {'error': why(text, code, arguments.timeout)}
    peak = re.search(r'Peak device memory: ([\d.e+]+) MB', text)
    return {'ms': float(median.group(1)), 'MB': float(peak.group(1)) if peak else None,
            'params': sum(int(n) for n in re.findall(r'\tparams: (\d+)', text))}


def own_command(arguments, *more):
    return [sys.executable, str(Path(__file__).resolve()), arguments.build, f'--iterations={arguments.iterations}',
            f'--device={arguments.device}', f'--precisions={arguments.precisions}'] + (['--compile'] if arguments.compile else []) + list(more)


def time_torch(arguments, model):
    """The children's results by precision and variant."""
    text, code = run(own_command(arguments, f'--child={model}'), arguments.timeout)
    results = {}
    for line in text.splitlines():
        if line.startswith('{"precision"'):
            result = json.loads(line)
            results[result['precision'], result['variant']] = result
    lost = {'error': why(text, code, arguments.timeout)}
    return {(p, v): results.get((p, v), lost) for p in arguments.precisions.split(',') for v in variants_of(arguments)}


def middle_of(results):
    """The median ms of one program's passes, or its first failure."""
    failed = [result for result in results if 'error' in result]
    return failed[0] if failed else {**results[-1], 'ms': statistics.median(r['ms'] for r in results)} if results else {}


def cells_of(result, batch):
    if 'ms' not in result:
        return ['failed' if result else '-', '-', '-']
    return [f'{result["ms"]:.2f}', f'{1000 * batch / result["ms"]:.0f}', f'{result["MB"]:.0f}' if result.get('MB') else '-']


def print_cells(cells):
    programs = (len(cells) - 3 + 1) // 4                 # each has three columns, all but Shoal a ratio
    widths = [-13, -8, 5] + [10, 8, 7] * programs + [8] * (programs - 1)
    print('  '.join(cell.ljust(-w) if w < 0 else cell.rjust(w) for cell, w in zip(cells, widths)).rstrip(), flush=True)


def print_result(net, precision, batch, ours, theirs):
    """One row, and a line for each thing that went wrong."""
    cells = [net, precision, str(batch)] + cells_of(ours, batch)
    for result in theirs.values():
        cells += cells_of(result, batch)
    for result in theirs.values():
        cells.append(f'{result["ms"] / ours["ms"]:.2f}' if 'ms' in result and 'ms' in ours else '-')
    print_cells(cells)
    for name, result in {'Shoal': ours, **theirs}.items():
        if 'error' in result:
            print(f'    {net} {precision} {name}: {result["error"]}', flush=True)
    counts = {result['params'] for result in [ours, *theirs.values()] if 'params' in result}
    losses = [f'{result["loss"]:.3f}' for result in theirs.values() if 'loss' in result]
    alike = len(counts) < 2
    print(f'    {"" if alike else "WARNING: "}params {"" if alike else "differ: "}{", ".join(f"{n:,}" for n in sorted(counts)) or "-"}'
          + (f'; first loss of PyTorch {losses[0]}' if losses else ''), flush=True)


def bench_net(arguments, net, folder):
    """Whether Shoal could be timed in each precision."""
    model = ROOT / 'models' / net / 'train_val.prototxt'
    try:
        text = model.read_text()
        if arguments.batch:
            text = re.sub(r'(\bshape\s*\{\s*dim:\s*)\d+', rf'\g<1>{arguments.batch}', text)
            model = Path(folder) / f'{net}.prototxt'
            model.write_text(text)
        batch = batch_of(layers_of(text))
    except (OSError, Failure) as error:
        print(f'{net}: {error}', flush=True)
        return False
    precisions = arguments.precisions.split(',')
    shoal, pytorch = {p: [] for p in precisions}, {(p, v): [] for p in precisions for v in variants_of(arguments)}
    for _ in range(arguments.passes):
        for precision in precisions:
            shoal[precision].append(time_shoal(arguments, model, precision))
        if not arguments.no_pytorch:
            for key, result in time_torch(arguments, model).items():
                pytorch[key].append(result)
    for precision in precisions:
        theirs = {} if arguments.no_pytorch else {f'PyTorch {v}': middle_of(pytorch[precision, v]) for v in variants_of(arguments)}
        print_result(net, precision, batch, middle_of(shoal[precision]), theirs)
    return all('ms' in result for results in shoal.values() for result in results)


def print_machine(arguments):
    text, code = run(time_command(arguments.build) + ['--version'], arguments.timeout)
    print(f'Shoal: {text.strip().splitlines()[0] if code == 0 and text.strip() else why(text, code, arguments.timeout)}')
    text, code = run(['nvidia-smi', '--query-gpu=name,driver_version,memory.total,clocks.max.sm', '--format=csv,noheader'], 60)
    print(f'nvidia-smi: {text.strip() if code == 0 else why(text, code, 60)}')
    if not arguments.no_pytorch:
        text, code = run(own_command(arguments, '--child=machine'), arguments.timeout)
        print(text.strip() if code == 0 else f'{text.strip()}\nthe matrix products: {why(text, code, arguments.timeout)}')
    print(flush=True)


def arguments_of():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('build', nargs='?', default='build/release', help='a build folder, its tools, or a bundle')
    parser.add_argument('--nets', default=NETS, help='comma list of folders in models/')
    parser.add_argument('--precisions', default='FLOAT32,TF32', help=f'comma list of {", ".join(PRECISIONS)}')
    parser.add_argument('--iterations', type=int, default=30, help='passes of a timing; the median counts')
    parser.add_argument('--passes', type=int, default=1, help='turns of Shoal and PyTorch; the median counts')
    parser.add_argument('--batch', type=int, help='instead of the batch that the net has')
    parser.add_argument('--no_pytorch', action='store_true', help='Shoal alone')
    parser.add_argument('--compile', action='store_true', help='also torch.compile, channels_last')
    parser.add_argument('--timeout', type=float, default=300, help='seconds for one process')
    parser.add_argument('--device', default='cuda', choices=('cuda', 'cpu'), help="PyTorch's device")
    parser.add_argument('--shoal_flags', default='--gpu=0 --precision=PRECISION', help='flags for `time`; PRECISION stands for the row\'s')
    parser.add_argument('--child', help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = [p for p in arguments.precisions.split(',') if p not in PRECISIONS]
    if unknown:
        parser.error(f'no precision {", ".join(unknown)}; known: {", ".join(PRECISIONS)}')
    if min(arguments.iterations, arguments.passes) < 1:
        parser.error('--iterations and --passes must be 1 or more')
    return arguments


def main():
    arguments = arguments_of()
    if arguments.child:
        return machine_child(arguments) if arguments.child == 'machine' else torch_child(arguments, arguments.child)
    print_machine(arguments)
    names = ['Shoal'] + ([] if arguments.no_pytorch else variants_of(arguments))
    header = ['net', 'prec.', 'batch'] + [cell for name in names for cell in (f'{name[:7]} ms', 'images/s', 'MB')]
    print('PyTorch: channels_last, contiguous' + (', compiled' if arguments.compile else '') + '; x: how many times as fast Shoal is')
    print_cells(header + [f'x {name[:6]}' for name in names[1:]])
    with tempfile.TemporaryDirectory() as folder:
        return 0 if all([bench_net(arguments, net, folder) for net in arguments.nets.split(',')]) else 1


if __name__ == '__main__':
    sys.exit(main())
