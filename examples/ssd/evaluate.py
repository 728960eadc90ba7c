#!/usr/bin/env python3
"""The mean average precision of saved detections, computed without Shoal: from the files "PREFIX<class>.txt" that DetectionOutput writes
in the form of VOC, and the annotations that a list names. It follows the definition of VOC 2007 (11 recalls) and of VOC 2010 (area
under the curve); boxes of both sides are in pixels."""
import argparse
import xml.etree.ElementTree as xml
from pathlib import Path


def true_boxes(root, listing):
    """{class: {picture: [box, ...]}}"""
    found = {}
    for line in Path(listing).read_text().splitlines():
        picture, annotations = line.split()
        for item in xml.parse(Path(root) / annotations).getroot().iter('object'):
            box = [float(item.find('bndbox').find(side).text) for side in ('xmin', 'ymin', 'xmax', 'ymax')]
            found.setdefault(item.find('name').text, {}).setdefault(Path(picture).stem, []).append(box)
    return found


def overlap(a, b):
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0
    both = width * height
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def curve(path, boxes, threshold):
    """Points (recall, precision), one a detection."""
    count = sum(len(some) for some in boxes.values())
    rows = [line.split() for line in Path(path).read_text().splitlines()]
    rows.sort(key=lambda row: -float(row[1]))
    taken, right, points = set(), 0, []
    for number, (picture, _, *corners) in enumerate(rows, 1):
        box = [float(c) for c in corners]
        best = max(((overlap(box, other), i) for i, other in enumerate(boxes.get(picture, []))), default=(0, -1))
        if best[0] >= threshold and (picture, best[1]) not in taken:
            taken.add((picture, best[1]))
            right += 1
        points.append((right / count, right / number))
    return points


def average_precision(points, version):
    if version == '11point':
        return sum(max((p for r, p in points if r >= i / 10), default=0) for i in range(11)) / 11
    area, before = 0, 0
    for i, (recall, precision) in enumerate(points):
        best = max(p for _, p in points[i:]) if version == 'MaxIntegral' else precision
        area += best * (recall - before)
        before = recall
    return area


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('prefix', help='folder and beginning of the files: ssd/found/found_')
    parser.add_argument('root', help='folder that the list is meant from')
    parser.add_argument('list', help='list of "picture annotations" lines')
    parser.add_argument('--ap', default='11point', choices=['11point', 'MaxIntegral', 'Integral'])
    parser.add_argument('--threshold', type=float, default=0.5)
    options = parser.parse_args()
    precisions = []
    for name, boxes in sorted(true_boxes(options.root, options.list).items()):
        precisions.append(average_precision(curve(f'{options.prefix}{name}.txt', boxes, options.threshold), options.ap))
        print(f'{name}: {precisions[-1]:.4f}')
    print(f'mAP: {sum(precisions) / len(precisions):.4f}')


if __name__ == '__main__':
    main()
