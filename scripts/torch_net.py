#!/usr/bin/env python3
"""A prototxt's net as PyTorch's users write it, and how its training steps are timed: bench_gpu.py and bench_peers.py share this.

As a program it times forward + backward of one net on the CPU, in channels_last, and prints a line of JSON: the mean and the
median ms of a pass, the peak in MB, GFLOP/s of a 1024^3 product after that, the number of params and the first loss."""
import argparse
import json
import math
import os
import re
import resource
import statistics
import sys
import time
import warnings
from pathlib import Path

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


def layers_of(text, stage='dummy'):
    """The layers of a prototxt that a net of phase TRAIN and this stage has."""
    return [layer for layer in parse(text).all('layer') if used(layer, stage)]


def batch_of(layers):
    """Of the first DummyData layer."""
    dims = [layer.block('dummy_data_param').block('shape').all('dim') for layer in layers if layer.get('type') == 'DummyData']
    if not dims or not dims[0]:
        raise Failure('the net has no DummyData layer in its stage "dummy"')
    return dims[0][0]


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

    def outputs(self, data, label):
        """All blobs by name, and as 'loss' the weighted sum of the losses."""
        blobs, loss = {'data': data, 'label': label}, 0
        for call, bottoms, top, weight in self.steps:
            y = call(*[blobs[b] for b in bottoms])
            if weight is None:
                blobs[top] = y
            else:
                loss = loss + weight * y
        return {**blobs, 'loss': loss}

    def forward(self, data, label):
        return self.outputs(data, label)['loss']

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
        return self.add(self.torch.nn.LazyConv2d(p.get('num_output'), sizes(p, 'kernel_size', 1), sizes(p, 'stride', 1),
                                                 sizes(p, 'pad', 0), sizes(p, 'dilation', 1), p.get('group', 1),
                                                 p.get('bias_term', True)), p)

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


def training_step(torch, net, data, bf16, call):
    """A function that runs forward and backward once, by autocast where `bf16` says so, and returns the loss."""
    def step():
        for param in net.modules.parameters():
            param.grad = None
        with torch.autocast(net.device, dtype=torch.bfloat16, enabled=bf16):
            loss = call(data, net.inputs['label'])
        loss.backward()
        return loss.detach()
    return step


def torch_times(torch, device, work, iterations, warm_ups=WARM_UPS):
    """ms of each of `iterations` calls, after warm-ups."""
    for _ in range(warm_ups):
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


def time_on_cpu(torch, arguments):
    torch.set_num_threads(arguments.threads)
    net = TorchNet(torch, layers_of(Path(arguments.model).read_text()), 'cpu')
    net.modules.to(memory_format=torch.channels_last)
    data = net.inputs['data'].to(memory_format=torch.channels_last)
    step = training_step(torch, net, data, arguments.bf16, net.forward)
    loss = step().item()
    times = torch_times(torch, 'cpu', step, arguments.iterations, warm_ups=2)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    size = 1024
    a, b = (torch.randn(size, size, dtype=torch.bfloat16 if arguments.bf16 else torch.float) for _ in range(2))
    product = statistics.median(torch_times(torch, 'cpu', lambda: a @ b, 9))
    return {'ms': statistics.mean(times), 'median_ms': statistics.median(times), 'gflops': 2 * size ** 3 / product / 1e6,
            'MB_before_product': peak, 'params': net.param_count(), 'loss': loss}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('model', nargs='?', help='a train_val.prototxt with DummyData in its stage "dummy"; '
                                                 'without one: import PyTorch, print its version and end')
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--iterations', type=int, default=5)
    parser.add_argument('--bf16', action='store_true', help='autocast to bfloat16')
    arguments = parser.parse_args()
    os.environ['OMP_NUM_THREADS'] = str(arguments.threads)     # which PyTorch reads when it is imported
    warnings.filterwarnings('ignore')
    try:
        import torch
    except ImportError as error:
        sys.exit(f'no torch: {error}')
    try:
        print(json.dumps(time_on_cpu(torch, arguments) if arguments.model else {'torch': torch.__version__}))
    except Failure as error:
        sys.exit(f'{arguments.model}: {error}')


if __name__ == '__main__':
    main()
