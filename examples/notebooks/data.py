"""The small data of these notebooks: handwritten digits that the repository has, and drawn pictures."""
from pathlib import Path

import numpy as np

import shoal
import shoal.caffe as caffe

GOLDEN = Path(__file__).resolve().parents[2] / 'tests/golden'


def read_idx(name):
    """The array in an IDX file, the format of MNIST's files."""
    raw = (GOLDEN / name).read_bytes()
    axes = raw[3]
    shape = np.frombuffer(raw, '>i4', axes, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


def digits():
    """(images, labels) of 320 digits of MNIST: 320 x 28 x 28, from 0 to 255, and 320."""
    return read_idx('mnist_320_images.idx'), read_idx('mnist_320_labels.idx')


def shifted(images, labels, most=2):
    """The images moved by up to `most` pixels up, down, left and right, and the labels of all of these."""
    moves = [(0, 0)] + [(step * down, step * along) for step in range(1, most + 1) for down, along in ((1, 0), (-1, 0), (0, 1), (0, -1))]
    moved = [np.roll(images, move, axis=(1, 2)) for move in moves]
    return np.concatenate(moved), np.tile(labels, len(moves))


def write_lmdb(path, images, labels, seed=1):
    """Writes images (N x 28 x 28, or N x C x H x W) and labels as an LMDB, in a random order. Returns its path as a str."""
    order = np.random.default_rng(seed).permutation(len(images))
    with shoal.RecordWriter(path) as writer:
        for number, index in enumerate(order):
            image = images[index]
            writer.put(f'{number:08}', caffe.io.array_to_datum(image[np.newaxis] if image.ndim == 2 else image, int(labels[index])))
    return str(path)


SHAPES = ('disc', 'square', 'cross')
COLOURS = ('red', 'green', 'blue')
NAMES = [f'{colour} {shape}' for shape in SHAPES for colour in COLOURS]


def draw_shape(number, random, size=32):
    """A picture, size x size x 3 from 0 to 1 in red, green, blue, of NAMES[number], somewhere on a grey ground with noise."""
    row, column = random.uniform(0.35, 0.65, 2) * size
    radius = random.uniform(0.2, 0.3) * size
    down, along = np.abs(np.arange(size)[:, np.newaxis] - row), np.abs(np.arange(size) - column)
    inside = {'disc': down ** 2 + along ** 2 < radius ** 2, 'square': np.maximum(down, along) < radius * 0.85,
              'cross': (np.minimum(down, along) < radius * 0.3) & (np.maximum(down, along) < radius)}[SHAPES[number // 3]]
    picture = random.uniform(0.3, 0.6) + random.normal(0, 0.05, (size, size, 3))
    picture[inside, number % 3] += 0.4
    return np.clip(picture, 0, 1).astype(np.float32)


def draw_shapes(count, seed):
    """(pictures, classes): so many pictures of random classes."""
    random = np.random.default_rng(seed)
    classes = random.integers(0, len(NAMES), count)
    return np.array([draw_shape(number, random) for number in classes]), classes
