#!/usr/bin/env python3
"""train.py [ITERATIONS]: draws images of squares, disks and crosses, trains a Faster R-CNN on them whose targets layers in Python make, and
says how many objects of other images it finds. Needs the package shoal (docs/python.md). Run at the top of the project."""
import random
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import draw_boxes  # noqa: E402
import shoal.caffe as caffe  # noqa: E402
from rpn.boxes import clipped, moved, overlaps, suppressed  # noqa: E402

STDS = np.tile([0.1, 0.1, 0.2, 0.2], draw_boxes.CLASSES)


def draw(images, seed):
    """Entries as RoIDataLayer takes them."""
    rng, side, entries = random.Random(seed), draw_boxes.SIDE, []
    for _ in range(images):
        objects = draw_boxes.draw_objects(rng)
        image = np.array(draw_boxes.draw_image(rng, objects), np.float32).reshape(1, side, side)
        entries.append({'image': image, 'boxes': np.array([box for _, box in objects]), 'classes': np.array([kind for kind, _ in objects])})
    return entries


def detect(net, image):
    """Boxes of an image, with class and score, that are more likely an object than not."""
    net.blobs['im_info'].data[...] = [*image.shape[1:], 1]
    net.blobs['data'].data[0] = image
    out = net.forward(blobs=['rois', 'bbox_pred'])
    rois, scores = out['rois'][:, 1:], out['cls_prob'].reshape(-1, draw_boxes.CLASSES)
    boxes = clipped(moved(rois, out['bbox_pred'].reshape(len(rois), -1) * STDS), *image.shape[1:])
    found = []
    for kind in range(1, draw_boxes.CLASSES):
        likely = np.flatnonzero(scores[:, kind] > 0.5)
        own = boxes[likely, 4 * kind:4 * kind + 4]
        found += [(kind, own[i], scores[likely[i], kind]) for i in suppressed(own, scores[likely, kind], 0.3)]
    return found


def count(net, entries):
    """Objects, those that were found, and detections."""
    objects = found = detections = 0
    for entry in entries:
        seen = detect(net, entry['image'])
        detections += len(seen)
        objects += len(entry['boxes'])
        for box, kind in zip(entry['boxes'], entry['classes']):
            own = np.array([where for what, where, _ in seen if what == kind])
            found += bool(len(own)) and overlaps(box[np.newaxis], own).max() >= 0.5
    return objects, found, detections


def main():
    iterations = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    solver = caffe.SGDSolver('examples/faster_rcnn/python/solver.prototxt')
    solver.net.layer_dict['input'].set_roidb(draw(400, seed=1))
    solver.step(iterations)
    Path('build/faster_rcnn').mkdir(parents=True, exist_ok=True)
    solver.net.save('build/faster_rcnn/python.caffemodel')
    net = caffe.Net('examples/faster_rcnn/python/train_val.prototxt', caffe.TEST, weights='build/faster_rcnn/python.caffemodel')
    objects, found, detections = count(net, draw(100, seed=2))
    print(f'loss {solver.smoothed_loss:.3f}; found {found} of {objects} objects in 100 new images, with {detections} detections')


if __name__ == '__main__':
    main()
