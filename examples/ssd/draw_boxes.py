#!/usr/bin/env python3
"""Draws a small set of pictures with boxes, in the folders of VOC: coloured rectangles and discs on noise.

Writes FOLDER/JPEGImages/NAME.ppm, FOLDER/Annotations/NAME.xml, FOLDER/train.txt and test.txt with a line "picture annotations" each,
and FOLDER/labelmap.prototxt. The same arguments draw the same set."""
import argparse
import random
from pathlib import Path

CLASSES = ['rectangle', 'disc']
COLOURS = {'rectangle': [(220, 60, 40), (240, 160, 30)], 'disc': [(40, 90, 220), (40, 200, 120)]}
CELL = 4   # pixels of a side of the background's squares


def noisy(rng, levels, spread):
    """The levels with noise of -spread to spread - 1, as bytes."""
    noise = rng.randbytes(len(levels))
    return bytes(min(255, max(0, level + (2 * spread * n >> 8) - spread)) for level, n in zip(levels, noise))


def background(rng, side):
    rows = []
    for y in range(side):
        if y % CELL == 0:
            cells = [[rng.randrange(60, 190) for _ in range(3)] for _ in range(-(-side // CELL))]
            levels = [level for x in range(side) for level in cells[x // CELL]]
        rows.append(bytearray(noisy(rng, levels, 30)))
    return rows


def pick_box(rng, side, kind):
    """A box in pixels: xmin, ymin, xmax, ymax."""
    width, height = (rng.randrange(side // 6, side // 2) for _ in range(2))
    if kind == 'disc':
        height = width
    x, y = rng.randrange(side - width), rng.randrange(side - height)
    return x, y, x + width, y + height


def paint(rng, rows, kind, box):
    xmin, ymin, xmax, ymax = box
    colour = [level + rng.randrange(-20, 20) for level in rng.choice(COLOURS[kind])]
    for y in range(ymin, ymax):
        left = 0
        if kind == 'disc':
            width = xmax - xmin
            while (2 * left + 1 - width) ** 2 + (2 * (y - ymin) + 1 - width) ** 2 > width ** 2:
                left += 1
        rows[y][3 * (xmin + left):3 * (xmax - left)] = noisy(rng, colour * (xmax - xmin - 2 * left), 15)


def overlaps(a, b):
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    return width > 0 and height > 0


def draw_picture(rng, side):
    """The rows of a picture, and its objects: (class, box). Objects do not overlap."""
    rows, objects = background(rng, side), []
    for _ in range(rng.randrange(1, 4)):
        kind = rng.choice(CLASSES)
        for _ in range(20):
            box = pick_box(rng, side, kind)
            if not any(overlaps(box, other) for _, other in objects):
                paint(rng, rows, kind, box)
                objects.append((kind, box))
                break
    return rows, objects


def annotation(name, side, objects):
    text = f'<annotation>\n  <filename>{name}.ppm</filename>\n  <size><width>{side}</width><height>{side}</height><depth>3</depth></size>\n'
    for kind, (xmin, ymin, xmax, ymax) in objects:
        text += (f'  <object>\n    <name>{kind}</name>\n    <difficult>0</difficult>\n    <bndbox><xmin>{xmin}</xmin><ymin>{ymin}</ymin>'
                 f'<xmax>{xmax}</xmax><ymax>{ymax}</ymax></bndbox>\n  </object>\n')
    return text + '</annotation>\n'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folder', type=Path)
    parser.add_argument('--train', type=int, default=1000, help='pictures to train on')
    parser.add_argument('--test', type=int, default=200, help='pictures to test on')
    parser.add_argument('--side', type=int, default=96, help='pixels of a side')
    parser.add_argument('--seed', type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    for part in ('JPEGImages', 'Annotations'):
        (options.folder / part).mkdir(parents=True, exist_ok=True)
    for part, count in (('train', options.train), ('test', options.test)):
        lines = ''
        for i in range(count):
            name = f'{part}_{i:05}'
            rows, objects = draw_picture(rng, options.side)
            header = f'P6\n{options.side} {options.side}\n255\n'.encode()
            (options.folder / f'JPEGImages/{name}.ppm').write_bytes(header + b''.join(rows))
            (options.folder / f'Annotations/{name}.xml').write_text(annotation(name, options.side, objects))
            lines += f'JPEGImages/{name}.ppm Annotations/{name}.xml\n'
        (options.folder / f'{part}.txt').write_text(lines)
    items = ['none_of_the_above'] + CLASSES
    (options.folder / 'labelmap.prototxt').write_text(''.join(
        f'item {{\n  name: "{name}"\n  label: {label}\n  display_name: "{name}"\n}}\n' for label, name in enumerate(items)))


if __name__ == '__main__':
    main()
