#!/usr/bin/env python3
"""draw_boxes.py FOLDER [TRAIN TEST]: draws images of squares, disks and crosses, and all that a Faster R-CNN without Python layers needs
to learn them: FOLDER/train.h5 and FOLDER/test.h5, with a list of each, train.txt and test.txt.

Arrays, N images: data (N, 1, 64, 64); im_info (N, 3); rpn_labels (N, A * H, W), -1 where an anchor counts nothing; rpn_targets, rpn_inside and
rpn_outside (N, 4A, H, W); rois (N, R, 5); labels (N, R); targets and weights (N, R, 16). Needs nothing but Python."""
import array
import math
import random
import struct
import sys
from pathlib import Path

SIDE, STRIDE, PLACES = 64, 4, 16
ANCHORS = [12, 20]  # sides: base_size 4 times the scales 3 and 5 of the net
ROIS, CLASSES = 16, 4  # class 0 is the background
SPREAD = (0.1, 0.1, 0.2, 0.2)  # by which the targets of the second stage are divided


# ---- a file of arrays in HDF5's format, version 0 of its superblock: one group, float32 arrays in one piece

def message(kind, body):
    body += bytes(-len(body) % 8)
    return struct.pack('<HHB3x', kind, len(body), 0) + body


def header(messages):
    return struct.pack('<BxHII4x', 1, len(messages), 1, sum(map(len, messages))) + b''.join(messages)


def dataset(dims, at):
    space = struct.pack('<BBB5x', 1, len(dims), 0) + struct.pack(f'<{len(dims)}Q', *dims)
    float32 = struct.pack('<BBBBIHHBBBBI', 0x11, 0x20, 31, 0, 4, 0, 32, 23, 8, 0, 23, 127)
    size = 4 * math.prod(dims)
    return header([message(1, space), message(3, float32), message(5, bytes([2, 1, 0, 0])), message(8, struct.pack('<BBQQ', 3, 1, at, size))])


def write_hdf5(path, arrays):
    """arrays: {name: (dims, array of floats)}."""
    names = sorted(arrays)
    heap, offsets = bytearray(8), {}
    for name in names:
        offsets[name] = len(heap)
        heap += name.encode() + bytes(8 - len(name) % 8)
    root = 96
    tree = root + 16 + 24  # behind the header with its one message
    node = tree + 24 + 33 * 8 + 32 * 8  # a node has room for 2 * 16 children
    heap_at = node + 8 + 40 * 32
    headers = heap_at + 32 + len(heap)
    places, at = {}, headers
    for name in names:
        places[name] = at
        at += len(dataset(arrays[name][0], 0))
    data = {}
    for name in names:
        data[name] = at
        at += 4 * len(arrays[name][1])
    with open(path, 'wb') as out:
        entry = struct.pack('<QQI4xQQ', 0, root, 1, tree, heap_at)
        out.write(b'\x89HDF\r\n\x1a\n' + struct.pack('<BBBxBBBxHHI', 0, 0, 0, 0, 8, 8, 16, 16, 0)
                  + struct.pack('<QQQQ', 0, 2**64 - 1, at, 2**64 - 1) + entry)
        out.write(header([message(0x11, struct.pack('<QQ', tree, heap_at))]))
        keys = struct.pack('<QQQ', 0, node, offsets[names[-1]])
        out.write(b'TREE' + struct.pack('<BBHQQ', 0, 0, 1, 2**64 - 1, 2**64 - 1) + keys.ljust(node - tree - 24, b'\0'))
        entries = b''.join(struct.pack('<QQI4x16x', offsets[name], places[name], 0) for name in names)
        out.write(b'SNOD' + struct.pack('<BxH', 1, len(names)) + entries.ljust(40 * 32, b'\0'))
        out.write(b'HEAP' + struct.pack('<B3xQQQ', 0, len(heap), 1, heap_at + 32) + heap)
        for name in names:
            out.write(dataset(arrays[name][0], data[name]))
        for name in names:
            array.array('f', arrays[name][1]).tofile(out)


# ---- boxes: xmin, ymin, xmax, ymax of the pixels at their corners

def overlap(a, b):
    w, h = min(a[2], b[2]) - max(a[0], b[0]) + 1, min(a[3], b[3]) - max(a[1], b[1]) + 1
    if w <= 0 or h <= 0:
        return 0
    area = lambda c: (c[2] - c[0] + 1) * (c[3] - c[1] + 1)
    return w * h / (area(a) + area(b) - w * h)


def moves(box, to):
    """What moves one box to another: of the centre, in sizes of the box, and the logarithms of the sizes' quotients."""
    w, h, tw, th = box[2] - box[0] + 1, box[3] - box[1] + 1, to[2] - to[0] + 1, to[3] - to[1] + 1
    return ((to[0] + tw / 2 - box[0] - w / 2) / w, (to[1] + th / 2 - box[1] - h / 2) / h, math.log(tw / w), math.log(th / h))


def draw_objects(rng):
    objects = []
    for _ in range(rng.randint(1, 3)):
        size = rng.randint(10, 22)
        x, y = rng.randint(1, SIDE - size - 2), rng.randint(1, SIDE - size - 2)
        box = (x, y, x + size - 1, y + size - 1)
        if all(overlap(box, other) < 0.05 for _, other in objects):
            objects.append((rng.randint(1, CLASSES - 1), box))
    return objects


def draw_image(rng, objects):
    pixels = array.array('f', [rng.gauss(0, 0.1) for _ in range(SIDE * SIDE)])
    for kind, (x1, y1, x2, y2) in objects:
        level, radius = rng.uniform(0.6, 1), (x2 - x1) / 2
        for y in range(y1, y2 + 1):
            for x in range(x1, x2 + 1):
                dx, dy = abs(x - x1 - radius), abs(y - y1 - radius)
                inside = kind == 1 or (math.hypot(dx, dy) <= radius + 0.3 if kind == 2 else min(dx, dy) <= radius / 3)
                pixels[y * SIDE + x] += level * inside
    return pixels


def anchor_at(a, h, w):
    middle, half = (4 - 1) / 2, (ANCHORS[a] - 1) / 2
    x, y = w * STRIDE + middle, h * STRIDE + middle
    return (x - half, y - half, x + half, y + half)


def first_stage(rng, objects):
    """Labels and targets of the anchors: 1 for those that cover an object best, or by half; 0 for three times as many that cover none."""
    count, plane = len(ANCHORS), PLACES * PLACES
    labels, numbers = [-1.0] * (count * plane), [array.array('f', [0] * (4 * count * plane)) for _ in range(3)]
    boxes = [(a, h, w, anchor_at(a, h, w)) for a in range(count) for h in range(PLACES) for w in range(PLACES)]
    best = [max(overlap(box, of) for _, _, _, box in boxes) for _, of in objects]
    nothing, chosen = [], []
    for at, (a, h, w, box) in enumerate(boxes):
        covers = [overlap(box, of) for _, of in objects]
        o = covers.index(max(covers))
        if covers[o] >= 0.5 or any(c == b for c, b in zip(covers, best)):
            labels[at] = 1.0
            chosen.append(at)
            for i, move in enumerate(moves(box, objects[o][1])):
                to = (4 * a + i) * plane + h * PLACES + w
                numbers[0][to], numbers[1][to] = move, 1.0
        elif covers[o] < 0.3:
            nothing.append(at)
    for at in rng.sample(nothing, min(len(nothing), max(3 * len(chosen), 16))):
        labels[at] = 0.0
    for i, inside in enumerate(numbers[1]):
        numbers[2][i] = inside / len(chosen)
    return labels, numbers


def second_stage(rng, objects):
    """Rois that were moved away from objects, or drawn anywhere, with labels, targets and weights."""
    rois, labels, targets, weights = [], [], [], []
    while len(labels) < ROIS:
        kind, of = rng.choice(objects)
        spread = 5 if rng.random() < 0.6 else 30
        box = [of[i] + rng.uniform(-spread, spread) for i in range(4)]
        box = [min(max(c, 0), SIDE - 1) for c in box]
        if box[2] - box[0] < 6 or box[3] - box[1] < 6:
            continue
        covers = [overlap(box, other) for _, other in objects]
        kind, of = objects[covers.index(max(covers))]
        if 0.3 <= max(covers) < 0.5:
            continue
        label = kind if max(covers) >= 0.5 else 0
        rois += [0.0, *box]
        labels.append(float(label))
        row, weight = [0.0] * (4 * CLASSES), [0.0] * (4 * CLASSES)
        if label:
            row[4 * label:4 * label + 4] = [m / s for m, s in zip(moves(box, of), SPREAD)]
            weight[4 * label:4 * label + 4] = [1.0] * 4
        targets += row
        weights += weight
    return rois, labels, targets, weights


def draw(path, images, seed):
    rng = random.Random(seed)
    names = ('data', 'im_info', 'rpn_labels', 'rpn_targets', 'rpn_inside', 'rpn_outside', 'rois', 'labels', 'targets', 'weights')
    arrays = {name: array.array('f') for name in names}
    for _ in range(images):
        objects = draw_objects(rng)
        labels, numbers = first_stage(rng, objects)
        for name, values in zip(names, (draw_image(rng, objects), (SIDE, SIDE, 1), labels, *numbers, *second_stage(rng, objects))):
            arrays[name].extend(values)
    a = len(ANCHORS)
    maps, rows = (images, 4 * a, PLACES, PLACES), (images, ROIS, 4 * CLASSES)
    dims = ((images, 1, SIDE, SIDE), (images, 3), (images, a * PLACES, PLACES), maps, maps, maps, (images, ROIS, 5), (images, ROIS), rows, rows)
    write_hdf5(path, {name: (dim, arrays[name]) for name, dim in zip(names, dims)})


def main():
    folder, train, test = Path(sys.argv[1]), *(map(int, sys.argv[2:4]) if len(sys.argv) > 3 else (400, 100))
    folder.mkdir(parents=True, exist_ok=True)
    for name, images, seed in (('train', train, 1), ('test', test, 2)):
        draw(folder / f'{name}.h5', images, seed)
        (folder / f'{name}.txt').write_text(f'{folder / name}.h5\n')
        print(f'{folder / name}.h5: {images} images')


if __name__ == '__main__':
    if len(sys.argv) not in (2, 4):
        sys.exit(__doc__)
    main()
