#!/usr/bin/env python3
"""tpu_mlir_nets.py FOLDER: gives nets of this project, with drawn weights, to tpu-mlir's model_transform, with shoal.caffe as its caffe.

model_transform reads a net through its Caffe converter, runs it both by caffe and by the form that its compiler makes of it, and compares
all blobs. Here the outputs are compared once more, with those of shoal.Net. check_tpu_mlir.sh runs this where both packages are.
"""
import os
import runpy
import shutil
import sys
from pathlib import Path

import caffe   # before tpu_mlir, which brings a caffe of its own behind this one
import numpy as np
from caffe import layers as L, params as P

ROOT = Path(__file__).resolve().parent.parent
NETS = {'lenet': 'models/lenet/deploy.prototxt', 'blocks': None}
GIVEN = []   # nets that tpu-mlir asked caffe for


class Noted(caffe.Net):
    """The class that tpu-mlir finds as caffe.Net."""

    def __init__(self, *arguments, **options):
        GIVEN.append(str(arguments[0]))
        super().__init__(*arguments, **options)


def blocks():
    """A net of what newer nets are made of. Its average pooling has no window that leaves the blob: tpu-mlir divides those by other
    numbers than Caffe does."""
    n = caffe.NetSpec()
    n.data = L.Input(shape={'dim': [1, 3, 32, 32]})
    n.conv1 = L.Convolution(n.data, kernel_size=3, pad=1, num_output=16)
    n.bn1 = L.BatchNorm(n.conv1, in_place=True)
    n.scale1 = L.Scale(n.bn1, bias_term=True, in_place=True)
    n.relu1 = L.ReLU(n.scale1, in_place=True)
    n.norm1 = L.LRN(n.relu1, local_size=5, alpha=1e-2)
    n.conv2 = L.Convolution(n.norm1, kernel_size=3, pad=1, num_output=16, group=16)
    n.sum = L.Eltwise(n.norm1, n.conv2)
    n.prelu = L.PReLU(n.sum)
    n.up = L.Deconvolution(n.prelu, convolution_param={'kernel_size': [4], 'stride': [2], 'pad': [1], 'num_output': 8})
    n.down = L.Pooling(n.up, pool=P.Pooling.AVE, kernel_size=2, stride=2)
    n.both = L.Concat(n.down, n.sum)
    n.pool = L.Pooling(n.both, pool=P.Pooling.MAX, kernel_size=3, stride=2)
    n.ip = L.InnerProduct(n.pool, num_output=10)
    n.drop = L.Dropout(n.ip, in_place=True)
    n.prob = L.Softmax(n.drop)
    return n.to_proto()


def draw(name, path):
    """Writes a net, weights and an input for it. Returns the input and the output."""
    if path:
        shutil.copy(ROOT / path, f'{name}.prototxt')
    else:
        Path(f'{name}.prototxt').write_text(str(blocks()))
    net = caffe.Net(f'{name}.prototxt', caffe.TEST)
    random = np.random.default_rng(1)
    for layer, params in net.params.items():
        kind = net.layer_dict[layer].type
        for number, param in enumerate(params):
            drawn = random.normal(size=param.shape)
            if kind == 'BatchNorm':
                drawn = (drawn, np.abs(drawn) + 0.5, 1)[number]
            elif len(param.shape) > 1:
                drawn = drawn / np.sqrt(np.prod(param.shape[1:]))
            param.data[...] = drawn
    net.save(f'{name}.caffemodel')
    data = random.normal(size=tuple(net.blobs['data'].shape)).astype(np.float32)
    np.savez(f'{name}_in.npz', data=data)
    return data, net.forward(data=data)['prob'].copy()


def transform(name, shape):
    """Calls model_transform in this process. Its words go where ours go."""
    import tpu_mlir
    words = ['model_transform.py', '--model_name', name, '--model_def', f'{name}.prototxt', '--model_data', f'{name}.caffemodel',
             '--input_shapes', str([list(shape)]), '--test_input', f'{name}_in.npz', '--test_result', f'{name}_out.npz', '--mlir', f'{name}.mlir',
             '--tolerance', '0.999,0.999']
    before, sys.argv = sys.argv, words
    try:
        runpy.run_path(f'{tpu_mlir.package_path}/python/tools/model_transform.py', run_name='__main__')
    finally:
        sys.argv = before


def main():
    os.makedirs(sys.argv[1], exist_ok=True)
    os.chdir(sys.argv[1])
    assert caffe.__name__ == 'shoal.caffe', f'the name caffe is {caffe.__name__}, of {caffe.__file__}'
    failed = 0
    drawn = {name: draw(name, path) for name, path in NETS.items()}
    caffe.Net = Noted
    for name, (data, wanted) in drawn.items():
        try:
            transform(name, data.shape)
            out = np.load(f'{name}_out.npz')
            found = out[[key for key in out.files if key.startswith('prob')][0]].reshape(wanted.shape)
            assert any(given.endswith(f'{name}.prototxt') for given in GIVEN), 'the converter did not ask shoal.caffe for the net'
            off = float(np.abs(found - wanted).max())
            assert off < 1e-4, f'the outputs differ by up to {off:.2g}'
            print(f'check_tpu_mlir: {name}: {len(out.files)} blobs; the largest difference of the output is {off:.2g}')
        except (Exception, SystemExit) as error:   # what a converter raises is its own affair
            failed += 1
            print(f'check_tpu_mlir: {name} FAILED: {type(error).__name__}: {error}')
    print(f'{len(drawn) - failed} passed, {failed} failed')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
