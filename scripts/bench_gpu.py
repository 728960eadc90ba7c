#!/usr/bin/env python3
"""Speed and memory of forward + backward on a GPU, Shoal beside PyTorch (eager, channels_last and contiguous) on the same nets in
the same run, in turns and each in processes of its own. BUILD is a build folder, its tools, or what scripts/bundle.sh made. Without
--batch a net has the batch of its stage "dummy". PyTorch is timed by CUDA events with its passes queued ahead, Shoal by
`time`, which waits for each pass; cuDNN chooses PyTorch's algorithms by measuring them (cudnn.benchmark). MB are 10^6 bytes: the most that
either had in use on the GPU at one time after its first pass, so without the search for algorithms, and without what CUDA and its libraries hold.
The exit code is 1 if a net has no time of Shoal's."""
import argparse
import json
import math
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NETS = 'alexnet,googlenet,vgg16,resnet18,resnet50,cifar10_quick,lenet'
PRECISIONS = ('FLOAT32', 'TF32', 'BFLOAT16')
WARM_UPS = 5
TOKEN = re.compile(r'\s+|#[^\n]*|(?P<string>"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|(?P<word>[\w.+-]+)|(?P<mark>[{}\[\]:,;])')


class Failure(Exception):
    """Why a net has no figure."""


class Block:
    """A message in protobuf's text format: a list of values for each field."""

    def __init__(self):
        self.fields = {}

    def all(self, name):
        return self.fields.get(name, [])

    def get(self, name, default=None):
        return self.fields[name][-1] if name in self.fields else default

    def block(self, name):
        return self.get(name, Block())


def tokens(text):
    at = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            raise Failure(f'line {text.count(chr(10), 0, at) + 1}: {text[at:at + 20]!r} is not text format')
        at = match.end()
        if match.lastgroup:
            yield match.lastgroup, match.group()


def value_of(kind, text):
    if kind == 'string':
        return text[1:-1]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return {'true': True, 'false': False}.get(text, text)


def parse(text):
    """The message that `text` holds. Enums stay words."""
    top = Block()
    stack, field, in_list = [top], None, False
    for kind, token in tokens(text):
        if token == '{':
            stack.append(Block())
            stack[-2].fields.setdefault(field, []).append(stack[-1])
            field = field if in_list else None
        elif token == '}':
            stack.pop()
        elif token in '[]' and kind == 'mark':
            in_list = token == '['
        elif kind == 'mark':
            continue
        elif field is None:
            field = token
        else:
            stack[-1].fields.setdefault(field, []).append(value_of(kind, token))
            field = field if in_list else None
            continue
        if token == ']':
            field = None
    if len(stack) != 1:
        raise Failure('the braces do not match')
    return top


def used(layer, stage):
    """Whether the rules of `layer` let it into the phase TRAIN, level 0."""
    def holds(rule):
        return (rule.get('phase', 'TRAIN') == 'TRAIN' and rule.get('min_level', 0) <= 0 <= rule.get('max_level', 0)
                and all(s == stage for s in rule.all('stage')) and stage not in rule.all('not_stage'))
    if layer.all('include'):
        return any(holds(rule) for rule in layer.all('include'))
    return not any(holds(rule) for rule in layer.all('exclude'))


def sizes(param, name, default):
    """Height and width of kernel_size, stride or pad."""
    short = name.split('_')[0]
    if f'{short}_h' in param.fields:
        return param.get(f'{short}_h'), param.get(f'{short}_w')
    values = param.all(name) or [default]
    return values[0], values[-1]


def fill(weight, filler):
    """Draws a parameter as Shoal's filler does, so that both compute with numbers alike."""
    fan_in, kind = weight[0].numel() if weight.dim() > 1 else weight.numel(), filler.get('type', 'constant')
    if kind == 'gaussian':
        weight.normal_(filler.get('mean', 0), filler.get('std', 1))
    elif kind == 'xavier':
        weight.uniform_(-math.sqrt(3 / fan_in), math.sqrt(3 / fan_in))
    elif kind == 'msra':
        weight.normal_(0, math.sqrt(2 / fan_in))
    elif kind == 'constant':
        weight.fill_(filler.get('value', 0))
    else:
        raise Failure(f'the filler {kind} is not known here')


class TorchNet:
    """The layers of a prototxt in their order as PyTorch's users write them; BatchNorm with its Scale is one BatchNorm2d."""

    def __init__(self, torch, layers, device):
        self.torch, self.device = torch, device
        self.modules = torch.nn.ModuleList()
        self.inputs, self.steps, self.fillers, self.skip = {}, [], [], None
        for i, layer in enumerate(layers):
            if layer is self.skip or layer.get('type') == 'Accuracy':
                continue
            make = getattr(self, f'make_{layer.get("type")}', None)
            if not make:
                raise Failure(f'the layer type {layer.get("type")} ({layer.get("name")}) is not known here')
            following = layers[i + 1] if i + 1 < len(layers) else Block()
            call = make(layer, following)
            if call:
                top = (self.skip if self.skip is following else layer).get('top')
                self.steps.append((call, tuple(layer.all('bottom')), top, layer.get('loss_weight', 1)
                                   if layer.get('type') == 'SoftmaxWithLoss' else None))
        if 'data' not in self.inputs or 'label' not in self.inputs:
            raise Failure('the net has no DummyData layer with data and label')
        self.modules.to(device)
        with torch.no_grad():
            self.forward(**self.inputs)                  # gives the lazy modules their sizes
            for module, param in self.fillers:
                fill(module.weight, param.block('weight_filler'))
                if module.bias is not None:
                    fill(module.bias, param.block('bias_filler'))

    def forward(self, data, label):
        blobs, loss = {'data': data, 'label': label}, 0
        for call, bottoms, top, weight in self.steps:
            y = call(*[blobs[b] for b in bottoms])
            if weight is None:
                blobs[top] = y
            else:
                loss = loss + weight * y
        return loss

    def param_count(self):
        """With the statistics of BatchNorm, which Caffe's nets count as params."""
        return sum(t.numel() for t in list(self.modules.parameters()) + list(self.modules.buffers()))

    def add(self, module, param=None):
        self.modules.append(module)
        if param:
            self.fillers.append((module, param))
        return module

    def make_DummyData(self, layer, _):
        param = layer.block('dummy_data_param')
        shapes, fillers = param.all('shape'), param.all('data_filler') or [Block()]
        for n, top in enumerate(layer.all('top')):
            shape, value = shapes[min(n, len(shapes) - 1)].all('dim'), fillers[min(n, len(fillers) - 1)].get('value', 0)
            kind = self.torch.long if top == 'label' else self.torch.float
            self.inputs[top] = self.torch.full(shape, value, dtype=kind, device=self.device)

    def make_Convolution(self, layer, _):
        p = layer.block('convolution_param')
        return self.add(self.torch.nn.LazyConv2d(p.get('num_output'), sizes(p, 'kernel_size', 1), sizes(p, 'stride', 1), sizes(p, 'pad', 0),
                                                 sizes(p, 'dilation', 1), p.get('group', 1), p.get('bias_term', True)), p)

    def make_InnerProduct(self, layer, _):
        p = layer.block('inner_product_param')
        module = self.add(self.torch.nn.LazyLinear(p.get('num_output'), p.get('bias_term', True)), p)
        return lambda x: module(self.torch.flatten(x, 1))

    def make_BatchNorm(self, layer, following):
        scaled = following.get('type') == 'Scale' and following.get('bottom') == layer.get('top')
        if scaled:
            if not following.block('scale_param').get('bias_term', False):
                raise Failure(f'a Scale without bias_term ({following.get("name")}) is not known here')
            self.skip = following
        return self.add(self.torch.nn.LazyBatchNorm2d(layer.block('batch_norm_param').get('eps', 1e-5), affine=scaled))

    def make_Pooling(self, layer, _):
        p, f = layer.block('pooling_param'), self.torch.nn.functional
        kind = p.get('pool', 'MAX')
        if kind not in ('MAX', 'AVE'):
            raise Failure(f'pooling by {kind} ({layer.get("name")}) is not known here')
        if p.get('global_pooling', False):
            pool = f.adaptive_max_pool2d if kind == 'MAX' else f.adaptive_avg_pool2d
            return lambda x: pool(x, 1)
        pool = f.max_pool2d if kind == 'MAX' else f.avg_pool2d
        kernel, stride, pad = sizes(p, 'kernel_size', 1), sizes(p, 'stride', 1), sizes(p, 'pad', 0)
        ceil = p.get('round_mode', 'CEIL') == 'CEIL'
        return lambda x: pool(x, kernel, stride, pad, ceil_mode=ceil)

    def make_LRN(self, layer, _):
        p, f, torch = layer.block('lrn_param'), self.torch.nn.functional, self.torch
        size, alpha, beta, k = p.get('local_size', 5), p.get('alpha', 1), p.get('beta', 0.75), p.get('k', 1)
        if p.get('norm_region', 'ACROSS_CHANNELS') == 'ACROSS_CHANNELS':
            return lambda x: f.local_response_norm(x, size, alpha, beta, k)
        return lambda x: x * torch.pow(1 + alpha * f.avg_pool2d(x * x, size, 1, (size - 1) // 2), -beta)

    def make_ReLU(self, layer, _):
        in_place = layer.get('bottom') == layer.get('top')
        return lambda x: self.torch.nn.functional.relu(x, inplace=in_place)

    def make_Dropout(self, layer, _):
        ratio = layer.block('dropout_param').get('dropout_ratio', 0.5)
        return lambda x: self.torch.nn.functional.dropout(x, ratio, True)

    def make_Eltwise(self, layer, _):
        p = layer.block('eltwise_param')
        if p.get('operation', 'SUM') != 'SUM' or p.all('coeff'):
            raise Failure(f'an Eltwise that is no plain sum ({layer.get("name")}) is not known here')
        return lambda first, *others: sum(others, first)

    def make_Concat(self, layer, _):
        axis = layer.block('concat_param').get('axis', 1)
        return lambda *xs: self.torch.cat(xs, axis)

    def make_Flatten(self, layer, _):
        return lambda x: self.torch.flatten(x, 1)

    def make_SoftmaxWithLoss(self, layer, _):
        return self.torch.nn.functional.cross_entropy


def set_precision(torch, precision):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != 'FLOAT32'


def torch_times(torch, device, work, iterations):
    """ms of each of `iterations` calls, after warm-ups."""
    for _ in range(WARM_UPS):
        work()
    if device == 'cpu':
        stamps = [time.perf_counter()]
        for _ in range(iterations):
            work()
            stamps.append(time.perf_counter())
        return [1000 * (b - a) for a, b in zip(stamps, stamps[1:])]
    events = [torch.cuda.Event(enable_timing=True) for _ in range(iterations + 1)]
    torch.cuda.synchronize()
    events[0].record()
    for event in events[1:]:
        work()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(events, events[1:])]


def torch_variant(torch, arguments, layers, precision, variant):
    """One timing of PyTorch: a dictionary for the parent."""
    set_precision(torch, precision)
    cuda = arguments.device != 'cpu'
    if cuda:
        torch.cuda.empty_cache()
    net = TorchNet(torch, layers, arguments.device)
    data, label = net.inputs['data'], net.inputs['label']
    if variant != 'contiguous':
        net.modules.to(memory_format=torch.channels_last)
        data = data.to(memory_format=torch.channels_last)
    call = torch.compile(net.forward) if variant == 'compiled' else net.forward
    losses = []

    def step():
        for param in net.modules.parameters():
            param.grad = None
        with torch.autocast(arguments.device, dtype=torch.bfloat16, enabled=precision == 'BFLOAT16'):
            loss = call(data, label)
        loss.backward()
        losses[:] = [loss.detach()]

    step()
    first_loss = losses[0].item()
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
                layers = [layer for layer in parse(Path(model).read_text()).all('layer') if used(layer, 'dummy')]
                result = torch_variant(torch, arguments, layers, precision, variant)
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
        layers = [layer for layer in parse(text).all('layer') if used(layer, 'dummy') and layer.get('type') == 'DummyData']
        batch = layers[0].block('dummy_data_param').block('shape').all('dim')[0]
    except (OSError, Failure, IndexError) as error:
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
