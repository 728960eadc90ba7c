#!/usr/bin/env python3
"""Writes tests/golden/codecs/*.hex: payloads of codecs, made from docs/reference/protocol.md.

Shares nothing with Shoal. Every step is written out with NumPy, place by place; the greatest of a chunk are found by sorting.

usage: make_codec_payloads.py [FOLDER]
"""
import pathlib
import struct
import sys

import numpy as np

CHUNK, BLOCK = 4096, 256
F32 = np.float32


def draw(count, seed):
    """Numbers of very different sizes that float32 holds exactly: whole numbers of 20 bits over powers of two."""
    x, numbers = seed, []
    for _ in range(count):
        x = (x * 1664525 + 1013904223) % 2**32
        numbers.append(((x >> 12) - 2**19) * 2.0**-(x >> 8 & 15))
    return np.array(numbers, F32)


def eight_bits(numbers):
    scale = F32(np.max(np.abs(numbers))) / F32(127)
    codes = np.rint(numbers / scale) if scale > 0 else np.zeros(len(numbers))
    return scale, codes.astype(np.int8)


def int8(numbers):
    blocks = [eight_bits(numbers[i:i + BLOCK]) for i in range(0, len(numbers), BLOCK)]
    codes = b''.join(codes.tobytes() for _, codes in blocks)
    return b''.join(struct.pack('<f', scale) for scale, _ in blocks) + codes + bytes(-len(codes) % 4)


def two_levels(sizes):
    """The two levels and the edge between them: the better of two starts, each moved twice as Lloyd's method does."""
    def means(edge):
        low, high = sizes[sizes < edge].astype(float), sizes[sizes >= edge].astype(float)
        if not len(low) or not len(high):
            total = np.sum(sizes.astype(float))
            return total / len(sizes), total / len(sizes), total * total / len(sizes)
        low_sum, high_sum = np.sum(low), np.sum(high)
        return low_sum / len(low), high_sum / len(high), low_sum**2 / len(low) + high_sum**2 / len(high)

    tried = []
    for start in ((float(sizes.min()) + float(sizes.max())) / 2, np.sum(sizes.astype(float)) / len(sizes)):
        edge = F32(start)
        for _ in range(2):
            low, high, _ = means(edge)
            edge = F32((low + high) / 2)
        tried.append((*means(edge), edge))
    low, high, _, edge = tried[1] if tried[1][2] > tried[0][2] else tried[0]
    return low, high, edge


def pack(codes, width):
    """Whole numbers of `width` bits each, the first in the lowest bits; zero bits up to a whole byte."""
    whole = sum(int(code) << width * i for i, code in enumerate(codes))
    return whole.to_bytes((width * len(codes) + 7) // 8, 'little')


def values(numbers, bits):
    if bits == 32:
        return numbers.tobytes()
    if bits == 8:
        scale, codes = eight_bits(numbers)
        return struct.pack('<f', scale) + codes.tobytes()
    low, high, edge = two_levels(np.abs(numbers))
    return struct.pack('<ff', low, high) + pack([(v < 0) + 2 * (abs(v) >= edge) for v in numbers], 2)


def topk(numbers, share, bits):
    k = max(1, int(np.floor(float(F32(share)) * CHUNK + 0.5)))
    payload = struct.pack('<BBH', bits, 0, k)
    for begin in range(0, len(numbers), CHUNK):
        chunk = numbers[begin:begin + CHUNK]
        count = max(1, (2 * k * len(chunk) + CHUNK) // (2 * CHUNK))
        greatest = sorted(range(len(chunk)), key=lambda i: (-abs(float(chunk[i])), i))[:count]
        places = sorted(greatest)
        payload += pack(places, 12) + values(chunk[places], bits)
    return payload


def sparse(numbers):
    """Zeros but for a few numbers, fewer than are sent."""
    few = np.zeros_like(numbers)
    few[::500] = numbers[::500]
    return few


CASES = {
    'int8_600': (600, 1, int8),
    'int8_7': (7, 2, int8),
    'topk_32': (10000, 3, lambda numbers: topk(numbers, 0.01, 32)),
    'topk_8': (10000, 4, lambda numbers: topk(numbers, 0.01, 8)),
    'topk_2': (10000, 5, lambda numbers: topk(numbers, 0.01, 2)),
    'topk_2_quarter': (5000, 6, lambda numbers: topk(numbers, 0.25, 2)),
    'topk_8_half': (33, 7, lambda numbers: topk(numbers, 0.5, 8)),
    'topk_2_sparse': (9000, 8, lambda numbers: topk(sparse(numbers), 0.02, 2)),
}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / 'codecs')
    folder.mkdir(exist_ok=True)
    for name, (count, seed, encode) in CASES.items():
        hexadecimal = encode(draw(count, seed)).hex()
        lines = [hexadecimal[i:i + 96] for i in range(0, len(hexadecimal), 96)]
        (folder / f'{name}.hex').write_text(f'# {count} numbers of seed {seed}\n' + '\n'.join(lines) + '\n')


if __name__ == '__main__':
    main()
