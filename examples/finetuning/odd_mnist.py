#!/usr/bin/env python3
"""Writes MNIST's images as a datumfile with other labels: 1 if the digit is odd, else 0.

usage: odd_mnist.py IMAGES LABELS COUNT OUTPUT. Takes the first COUNT images."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'siamese'))
from pair_mnist import datum, read_idx, write_record  # noqa: E402


def main(images, labels, count, output):
    (_, height, width), pixels = read_idx(images, 3)
    _, digits = read_idx(labels, 1)
    size = height * width
    with open(output, 'wb') as file:
        for i in range(min(count, len(digits))):
            write_record(file, i, datum(1, height, width, pixels[size * i:size * (i + 1)], digits[i] % 2))


if __name__ == '__main__':
    if len(sys.argv) != 5 or not sys.argv[3].isdigit():
        sys.exit(__doc__)
    try:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
    except OSError as error:
        sys.exit(f'{error.filename}: {error.strerror}')
