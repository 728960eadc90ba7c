"""Boxes, a row each: x and y of the first and of the last pixel, which belongs to the box."""
import ast
import re

import numpy as np


def options(param_str, **defaults):
    """What a layer's param_str says, as lines of name: value (with quotes or without, tuples as YAML marks them) or as a dict, beside
    what holds without it."""
    text = re.sub(r'!!python/\w+', '', param_str).strip().strip('{}').strip()
    lines = ','.join(line.strip().rstrip(' ,') for line in text.splitlines() if line.strip())
    try:
        given = dict(ast.literal_eval('{' + re.sub(r'(^|,)\s*([A-Za-z_]\w*)\s*:', r'\1"\2":', lines) + '}'))
    except (SyntaxError, TypeError, ValueError):
        raise ValueError(f'param_str cannot be read as lines of name: value; it is {param_str!r}') from None
    unknown = set(given) - set(defaults)
    if unknown:
        raise ValueError(f"param_str has {', '.join(sorted(unknown))}; this layer knows {', '.join(sorted(defaults))}")
    return {**defaults, **given}


def sizes(boxes):
    """Widths and heights, and the middles' x and y."""
    width, height = boxes[:, 2] - boxes[:, 0] + 1, boxes[:, 3] - boxes[:, 1] + 1
    return width, height, boxes[:, 0] + width / 2, boxes[:, 1] + height / 2


def base_anchors(base_size, ratios, scales):
    """The anchors around the first place: of each ratio, height to width, all scales of a square of base_size pixels."""
    middle = (base_size - 1) / 2
    boxes = []
    for ratio in ratios:
        width = np.round(np.sqrt(base_size ** 2 / ratio))
        half = np.array([width, np.round(width * ratio)])[np.newaxis] * np.array(scales, float)[:, np.newaxis] / 2 - 0.5
        boxes.append(np.hstack([middle - half, middle + half]))
    return np.concatenate(boxes)


def all_anchors(base, height, width, stride):
    """The anchors of each place of a map, row by row, those of a place together."""
    x, y = np.meshgrid(np.arange(width) * stride, np.arange(height) * stride)
    shifts = np.stack([x, y, x, y], -1).reshape(-1, 1, 4)
    return (shifts + base).reshape(-1, 4)


def overlaps(a, b):
    """The quotient of intersection and union of each box of a with each of b."""
    low, high = np.maximum(a[:, np.newaxis, :2], b[:, :2]), np.minimum(a[:, np.newaxis, 2:4], b[:, 2:4])
    common = np.prod(np.clip(high - low + 1, 0, None), -1)

    def area(boxes):
        width, height, _, _ = sizes(boxes)
        return width * height
    return common / (area(a)[:, np.newaxis] + area(b) - common)


def moves(boxes, to):
    """What moves boxes to others: of the middle, in sizes of the box, and the logarithms of the quotients of sizes."""
    width, height, x, y = sizes(boxes)
    to_width, to_height, to_x, to_y = sizes(to)
    return np.stack([(to_x - x) / width, (to_y - y) / height, np.log(to_width / width), np.log(to_height / height)], 1)


def moved(boxes, by):
    """The boxes where these moves bring them; of several moves in a row of `by`, the boxes of each."""
    width, height, x, y = (of[:, np.newaxis] for of in sizes(boxes))
    new_x, new_y = by[:, 0::4] * width + x, by[:, 1::4] * height + y
    half_width, half_height = np.exp(by[:, 2::4]) * width / 2, np.exp(by[:, 3::4]) * height / 2
    made = np.zeros_like(by)
    made[:, 0::4], made[:, 1::4] = new_x - half_width, new_y - half_height
    made[:, 2::4], made[:, 3::4] = new_x + half_width - 1, new_y + half_height - 1
    return made


def clipped(boxes, height, width):
    """The parts of boxes that lie in a picture."""
    return np.clip(boxes, 0, np.tile([width - 1, height - 1], boxes.shape[1] // 2))


def suppressed(boxes, scores, threshold):
    """Indices, best first, of the boxes that overlap none that is better by more than the threshold."""
    order, kept = np.argsort(-scores, kind='stable'), []
    while len(order):
        best, order = order[0], order[1:]
        kept.append(best)
        order = order[overlaps(boxes[best:best + 1], boxes[order])[0] <= threshold]
    return np.array(kept, int)


def columns(label, num_classes):
    """The four columns of a class's moves, where two classes stand for the background and all others."""
    first = 4 * min(int(label), num_classes - 1)
    return slice(first, first + 4)


def some(random, indices, count):
    """At most so many of the indices, drawn at random."""
    return indices if len(indices) <= count else random.choice(indices, count, replace=False)
