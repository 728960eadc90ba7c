"""What the tests of the Python package share."""
import os
import shutil
import signal
import tempfile
import unittest
from pathlib import Path

import numpy as np

import shoal
import shoal.caffe as caffe
from shoal.caffe.proto import caffe_pb2

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(os.environ.get('TOOLS_DIR', ROOT / 'build/release/tools'))
SHARED = Path(os.environ.get('SHOAL_SHARED', '/nowhere'))
GOLDEN = ROOT / 'tests/golden'

# Three classes of points; what computes it is worked out beside it by NumPy in the tests.
SMALL = '''
name: "small" force_backward: true
layer { name: "data" type: "Input" top: "data" top: "label"
        input_param { shape { dim: 6 dim: 2 dim: 5 dim: 4 } shape { dim: 6 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 3 kernel_size: 3 pad: 1 weight_filler { type: "gaussian" std: 0.5 } bias_filler { value: 0.1 } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
        inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
'''
SMALL_SOLVER = 'base_lr: 0.1 momentum: 0.9 lr_policy: "fixed" max_iter: 20 display: 0 snapshot_after_train: false random_seed: 3'


class Case(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        # Python handles no Ctrl-C in a process that was started to ignore it, as shells start what runs in the background.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def net(self, text=SMALL, phase=caffe.TRAIN, **kwargs):
        return caffe.Net(self.file('net.prototxt', text), phase, **kwargs)

    def refused(self, words, call, *args, **kwargs):
        """The call raises shoal.Error, whose words contain these."""
        with self.assertRaises(shoal.Error) as raised:
            call(*args, **kwargs)
        self.assertIn(words, str(raised.exception))
        return raised.exception


def close(actual, wanted, rel=1e-5, abs_=1e-6):
    np.testing.assert_allclose(actual, wanted, rtol=rel, atol=abs_)


def fill(net, seed=0):
    """Puts random numbers into the small net's inputs, and returns them."""
    random = np.random.default_rng(seed)
    data = random.normal(size=net.blobs['data'].shape).astype(np.float32)
    labels = random.integers(0, 3, net.blobs['label'].shape)
    net.blobs['data'].data[...] = data
    net.blobs['label'].data[...] = labels
    return data, labels


def idx(name):
    """The array of an IDX file."""
    raw = (GOLDEN / name).read_bytes()
    dims = [int.from_bytes(raw[4 + 4 * i:8 + 4 * i], 'big') for i in range(raw[3])]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * len(dims)).reshape(dims)


def write_digits(path, backend='lmdb'):
    """Writes the 320 digits of tests/golden as records."""
    images, labels = idx('mnist_320_images.idx'), idx('mnist_320_labels.idx')
    with shoal.RecordWriter(path, backend) as writer:
        for number, (image, label) in enumerate(zip(images, labels)):
            writer.put(f'{number:08}', caffe.io.array_to_datum(image[np.newaxis], int(label)))
    return images, labels


__all__ = ['Case', 'GOLDEN', 'ROOT', 'SHARED', 'SMALL', 'SMALL_SOLVER', 'TOOLS', 'caffe', 'caffe_pb2', 'close', 'fill', 'idx',
           'np', 'shoal', 'unittest', 'write_digits']
