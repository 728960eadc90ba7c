#!/usr/bin/env python3
"""Writes pairs of MNIST's images as a datumfile: two channels an image pair, label 1 if both show the same digit, else 0.

usage: pair_mnist.py IMAGES LABELS PAIRS OUTPUT. Half of the pairs are of the same digit. The same arguments give the same pairs."""
import random
import struct
import sys


def read_idx(path, dims):
    with open(path, 'rb') as file:
        data = file.read()
    shape = struct.unpack_from(f'>{dims}I', data, 4)
    if data[:4] != bytes((0, 0, 8, dims)) or len(data) != 4 + 4 * dims + size_of(shape):
        sys.exit(f'{path}: this is no IDX file of bytes with {dims} dimensions')
    return shape, data[4 + 4 * dims:]


def size_of(shape):
    size = 1
    for number in shape:
        size *= number
    return size


def varint(number):
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes(parts) + bytes((number,))


def datum(channels, height, width, pixels, label):
    """A serialised Datum: channels, height, width, data and label are its fields 1 to 5."""
    return (b'\x08' + varint(channels) + b'\x10' + varint(height) + b'\x18' + varint(width) + b'\x22' + varint(len(pixels)) + pixels +
            b'\x28' + varint(label))


def write_record(file, number, value):
    """Adds a record to a datumfile (docs/reference/formats.md)."""
    key = b'%08d' % number
    file.write(struct.pack('<II', len(key) + len(value) + 8, len(key)) + key + struct.pack('<I', len(value)) + value)


def main(images, labels, pairs, output):
    (count, height, width), pixels = read_idx(images, 3)
    (labelled,), digits = read_idx(labels, 1)
    if labelled != count:
        sys.exit(f'{images} has {count} images, {labels} {labelled} labels')
    size, choice = height * width, random.Random(1)
    by_digit = [[i for i in range(count) if digits[i] == digit] for digit in range(10)]
    with open(output, 'wb') as file:
        for pair in range(pairs):
            first = choice.randrange(count)
            same = pair % 2 == 0
            others = by_digit[digits[first] if same else choice.choice([d for d in range(10) if d != digits[first] and by_digit[d]])]
            both = b''.join(pixels[size * i:size * (i + 1)] for i in (first, choice.choice(others)))
            write_record(file, pair, datum(2, height, width, both, int(same)))


if __name__ == '__main__':
    if len(sys.argv) != 5 or not sys.argv[3].isdigit():
        sys.exit(__doc__)
    try:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
    except OSError as error:
        sys.exit(f'{error.filename}: {error.strerror}')
