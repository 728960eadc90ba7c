#!/usr/bin/env python3
"""Draws pictures to try feature extraction on: draw_images.py FOLDER [COUNT] writes COUNT (24) files FOLDER/000.ppm ..., 320 x 240 in colour."""
import sys
from pathlib import Path


def picture(number, width=320, height=240):
    """Bars, rings and checks, in colours that the number gives."""
    kind, step = number % 3, 8 + number % 5 * 8
    first, second = ((number * 53 + 40) % 256, (number * 97) % 256, 200), (30, (number * 31 + 90) % 256, (number * 71) % 256)
    pixels = bytearray()
    for y in range(height):
        for x in range(width):
            place = (x, ((x - width // 2) ** 2 + (y - height // 2) ** 2) // (4 * step), x // step * step + y // step * step)[kind]
            pixels += bytes(first if place // step % 2 else second)
    return b'P6\n%d %d\n255\n' % (width, height) + pixels


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) == 3 else 24
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f'{number:03}.ppm').write_bytes(picture(number))


if __name__ == '__main__':
    main()
