#!/usr/bin/env python3
"""Trains the net of a solver prototxt in PyTorch as its users would, on the records of two datumfiles, and prints a line of JSON:
wall seconds of the training with its tests, and the accuracy and loss of the last test. bench_training.py runs this.

Each further solver goes on from the last iteration of the one before. The net is in channels_last; the images lie in memory as
bytes, and a batch is the next ones in the order of the file."""
import argparse
import json
import os
import struct
import sys
import time
import warnings
from pathlib import Path

from torch_net import Block, Failure, TorchNet, layers_of, parse

LENGTH_DELIMITED, VARINT = 2, 0


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields_of(message):
    """The fields of a serialised message by number: an int, or bytes."""
    at, fields = 0, {}
    while at < len(message):
        tag, at = varint(message, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == LENGTH_DELIMITED:
            size, at = varint(message, at)
            fields[number] = message[at:at + size]
            at += size
        elif wire_type == VARINT:
            fields[number], at = varint(message, at)
        else:
            raise Failure(f'a Datum with wire type {wire_type} is not known here')
    return fields


def records_of(path):
    """The values of a datumfile (docs: formats)."""
    data, at = Path(path).read_bytes(), 0
    while at < len(data):
        record_size, key_size = struct.unpack_from('<II', data, at)
        yield data[at + 12 + key_size:at + 4 + record_size]
        at += 4 + record_size


def images_of(torch, path):
    """All images, (N, C, H, W) of bytes, and their labels."""
    datums = [fields_of(value) for value in records_of(path)]
    shape = [datums[0][number] for number in (1, 2, 3)]
    pixels = torch.frombuffer(bytearray(b''.join(datum[4] for datum in datums)), dtype=torch.uint8)
    labels = torch.tensor([datum.get(5, 0) for datum in datums])
    return pixels.reshape(len(datums), *shape), labels


class Batches:
    """Successive batches of a data layer, transformed; the first image follows the last."""

    def __init__(self, torch, layer, path, mean):
        self.torch, self.size, self.at = torch, layer.block('data_param').get('batch_size'), 0
        self.images, self.labels = images_of(torch, path)
        self.scale, self.mean = layer.block('transform_param').get('scale', 1), mean

    def next(self):
        chosen = [(self.at + k) % len(self.labels) for k in range(self.size)]
        self.at = (self.at + self.size) % len(self.labels)
        whole = chosen[-1] == chosen[0] + self.size - 1
        pick = slice(chosen[0], chosen[-1] + 1) if whole else chosen
        images = self.images[pick].to(self.torch.float32)
        if self.mean is not None:
            images -= self.mean
        if self.scale != 1:
            images *= self.scale
        return images.contiguous(memory_format=self.torch.channels_last), self.labels[pick]


def rate_of(solver, iteration):
    base, policy = solver.get('base_lr'), solver.get('lr_policy')
    if policy == 'fixed':
        return base
    if policy == 'inv':
        return base * (1 + solver.get('gamma') * iteration) ** -solver.get('power')
    raise Failure(f'lr_policy "{policy}" is not known here')


def groups_of(net, layers, solver):
    """Params with the multipliers of rate and decay that their layers give, in the order of layers."""
    layers = [layer for layer in layers if layer.get('type') in ('Convolution', 'InnerProduct')]
    groups = []
    for (module, _), layer in zip(net.fillers, layers, strict=True):
        rules = layer.all('param') + [Block()] * 2
        for param, rule in zip((module.weight, module.bias), rules):
            groups.append({'params': [param], 'multiplier': rule.get('lr_mult', 1),
                           'weight_decay': solver.get('weight_decay', 0) * rule.get('decay_mult', 1)})
    return groups


class Training:
    def __init__(self, torch, arguments):
        self.torch = torch
        self.solvers = [parse(Path(path).read_text()) for path in arguments.solvers]
        text = Path(self.solvers[0].get('net')).read_text()
        layers = layers_of(text)
        self.net = TorchNet(torch, layers, 'cpu')
        if any(layer.get('type') in ('Dropout', 'BatchNorm') for layer in layers):
            raise Failure('Dropout and BatchNorm, which tests compute otherwise, are not known here')
        self.net.modules.to(memory_format=torch.channels_last)
        data = [layer for layer in parse(text).all('layer') if layer.get('type') == 'Data']
        mean = self.mean_of(arguments.mean)
        self.train, self.test = (Batches(torch, layer, path, mean)
                                 for layer, path in zip(data, (arguments.train, arguments.test), strict=True))
        self.optimizer = torch.optim.SGD(groups_of(self.net, layers, self.solvers[0]), lr=1,
                                         momentum=self.solvers[0].get('momentum', 0))
        self.logits = next(bottoms[0] for _, bottoms, _, weight in self.net.steps if weight is not None)

    def mean_of(self, path):
        if not path:
            return None
        blob = fields_of(Path(path).read_bytes())          # BlobProto: data = 5, packed floats; height and width follow channels
        shape = [blob[number] for number in (2, 3, 4)]
        return self.torch.frombuffer(bytearray(blob[5]), dtype=self.torch.float32).reshape(shape)

    def step(self, rate):
        for group in self.optimizer.param_groups:
            group['lr'] = rate * group['multiplier']
        self.optimizer.zero_grad()
        loss = self.net.forward(*self.train.next())
        loss.backward()
        self.optimizer.step()

    def run_test(self, count):
        right = seen = 0
        with self.torch.no_grad():
            for _ in range(count):
                images, labels = self.test.next()
                right += (self.net.outputs(images, labels)[self.logits].argmax(1) == labels).sum().item()
                seen += len(labels)
        return right / seen

    def run(self):
        iteration, started, accuracy = 0, time.perf_counter(), 0
        for solver in self.solvers:
            while iteration < solver.get('max_iter'):
                if iteration % solver.get('test_interval') == 0:
                    accuracy = self.run_test(solver.get('test_iter'))
                self.step(rate_of(solver, iteration))
                iteration += 1
            accuracy = self.run_test(solver.get('test_iter'))
        return {'seconds': time.perf_counter() - started, 'accuracy': accuracy, 'iterations': iteration}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('solvers', nargs='+')
    parser.add_argument('--train', required=True, help='a datumfile')
    parser.add_argument('--test', required=True, help='a datumfile')
    parser.add_argument('--mean', help='a mean image, binaryproto')
    parser.add_argument('--threads', type=int, default=2)
    arguments = parser.parse_args()
    os.environ['OMP_NUM_THREADS'] = str(arguments.threads)     # which PyTorch reads when it is imported
    warnings.filterwarnings('ignore')
    import torch
    torch.set_num_threads(arguments.threads)
    try:
        print(json.dumps(Training(torch, arguments).run()))
    except Failure as error:
        sys.exit(f'{arguments.solvers[0]}: {error}')


if __name__ == '__main__':
    main()
