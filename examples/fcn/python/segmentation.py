"""What the layers of FCN's nets share: they read a picture and a label for each of its pixels, of any size, one a pass."""
import ast
from pathlib import Path

import numpy as np
import shoal.caffe as caffe


def voc_palette():
    """The colours, in red, green, blue, that VOC's files show the labels 0 to 255 in: each of three bits of a colour in turn."""
    labels, colours = np.arange(256), np.zeros((256, 3), int)
    for level in range(8):
        for channel in range(3):
            colours[:, channel] |= (labels >> (3 * level + channel) & 1) << 7 - level
    return colours


def read_picture(path, mean):
    """Pixels as FCN's nets want them: channels x height x width, blue, green, red, less the mean."""
    pixels = np.round(caffe.io.load_image(str(path)) * 255)[:, :, ::-1]
    return (pixels - np.asarray(mean, np.float32)).transpose(2, 0, 1)


def read_palette_labels(path):
    """The labels, 1 x height x width, in a PNG file that shows them in the colours of VOC's palette."""
    code = np.round(caffe.io.load_image(str(path)) * 255).astype(int) @ [65536, 256, 1]
    palette = voc_palette() @ [65536, 256, 1]
    order = np.argsort(palette)
    at = np.searchsorted(palette[order], code).clip(0, 255)
    if (palette[order][at] != code).any():
        raise ValueError(f'{path} has colours that are not of VOC\'s palette')
    return order[at][np.newaxis]


def read_mat(path, name):
    """An array of a MATLAB file."""
    import scipy.io
    return scipy.io.loadmat(str(path))[name]


class SegDataLayer(caffe.Layer):
    """A class names its tops (`tops`), where the list of a split is (`split_file`), and how each top is read: read_data(index),
    read_label(index). param_str: a dict with the folders, `split`, and `randomize` and `seed`, by which train splits are drawn.
    Nothing is read before the first pass; until then blobs have the option `shape`, (height, width)."""

    tops = ('data', 'label')
    channels = {'depth': 1, 'label': 1, 'sem': 1, 'geo': 1}   # of other tops 3

    def setup(self, bottom, top):
        self.options = {'randomize': True, 'seed': None, 'shape': (64, 64), **ast.literal_eval(self.param_str)}
        self.names = list(self.options.get('tops', self.tops))
        if len(top) != len(self.names) or bottom:
            raise ValueError(f"this layer has no bottom, and the tops {', '.join(self.names)}; the net gives it {len(bottom)} and {len(top)}")
        self.indices, self.at = None, -1
        self.random = np.random.default_rng(self.options['seed'])
        for name, blob in zip(self.names, top):
            blob.reshape(1, self.channels.get(name, 3), *self.options['shape'])

    def reshape(self, bottom, top):
        pass

    def folder(self, option):
        return Path(self.options[option])

    def next_index(self):
        if self.indices is None:
            self.indices = self.split_file().read_text().split()
        if self.options['randomize'] and 'train' in self.options['split']:
            self.at = int(self.random.integers(len(self.indices)))
        else:
            self.at = (self.at + 1) % len(self.indices)
        return self.indices[self.at]

    def forward(self, bottom, top):
        index = self.next_index()
        for name, blob in zip(self.names, top):
            values = getattr(self, 'read_' + name)(index)
            blob.reshape(1, *values.shape)
            blob.data[0] = values

    def backward(self, top, propagate_down, bottom):
        pass
