#!/usr/bin/env python3
"""Writes tests/golden/forks/{roi,loss,proposal,yolo}_*.json: layers of Faster R-CNN, R-FCN and YOLO, computed by numpy in double
precision from the formulas of the papers and of the forks. No number comes from Shoal. Run it in the repository's root."""
import json
import math
from pathlib import Path

import numpy as np

FOLDER = Path('tests/golden/forks')
rng = np.random.default_rng(43)


def nine(array):
    return [float(f'{x:.9g}') for x in np.asarray(array, np.float64).ravel()]


def shaped(array):
    return {'shape': list(np.shape(array)), 'data': nine(array)}


def single(array):
    """The same numbers as float32 holds them."""
    return np.asarray(array, np.float32).astype(np.float64)


def normal(*shape):
    return single(rng.normal(size=shape))


def write(name, kind, param, bottoms, tops, top_grads=None, grads=None, loss=None, phase='TRAIN'):
    blobs = ''.join(f' bottom: "b{i}"' for i in range(len(bottoms))) + ''.join(f' top: "t{i}"' for i in range(len(tops)))
    case = {'name': name, 'type': kind, 'layer': f'layer {{ name: "{name}" type: "{kind}"{blobs} {param} }}', 'phase': phase,
            'backward': grads is not None, 'bottoms': [shaped(b) for b in bottoms], 'params': [], 'tops': [shaped(t) for t in tops]}
    if loss is not None:
        case['loss'] = float(loss)
    if grads is not None:
        case.update(top_diffs=[nine(g) for g in top_grads], param_diffs=[], bottom_diffs=[None if g is None else nine(g) for g in grads])
    (FOLDER / f'{name}.json').write_text(json.dumps(case) + '\n')


def half_away(x):
    """C's round."""
    return math.floor(abs(x) + 0.5) * (1 if x >= 0 else -1)


# ---- pooling of boxes: each bin is a matrix of weights over the plane (for the largest number, over one place)

def max_weights(plane, roi, p, q, bins, scale, pad):
    high, wide = plane.shape
    pw, ph = (roi[3] - roi[1] + 1) * pad, (roi[4] - roi[2] + 1) * pad
    x1, x2 = half_away((roi[1] - pw) * scale), half_away((roi[3] + pw) * scale)
    y1, y2 = half_away((roi[2] - ph) * scale), half_away((roi[4] + ph) * scale)
    bin_h, bin_w = max(y2 - y1 + 1, 1) / bins[0], max(x2 - x1 + 1, 1) / bins[1]
    weights, best = np.zeros_like(plane), None
    for h in range(high):
        for w in range(wide):
            if math.floor(p * bin_h) + y1 <= h < math.ceil((p + 1) * bin_h) + y1 and \
                    math.floor(q * bin_w) + x1 <= w < math.ceil((q + 1) * bin_w) + x1 and (best is None or plane[h, w] > plane[best]):
                best = (h, w)
    if best is not None:
        weights[best] = 1
    return weights


def group_weights(plane, roi, p, q, bins, scale, _):
    x1, y1 = half_away(roi[1]) * scale, half_away(roi[2]) * scale
    x2, y2 = (half_away(roi[3]) + 1) * scale, (half_away(roi[4]) + 1) * scale
    bin_h, bin_w = max(y2 - y1, 0.1) / bins[0], max(x2 - x1, 0.1) / bins[1]
    weights = np.zeros_like(plane)
    for h in range(plane.shape[0]):
        for w in range(plane.shape[1]):
            weights[h, w] = math.floor(p * bin_h + y1) <= h < math.ceil((p + 1) * bin_h + y1) and \
                math.floor(q * bin_w + x1) <= w < math.ceil((q + 1) * bin_w + x1)
    return weights / max(weights.sum(), 1)


def bilinear(shape, y, x):
    """Hats around the point, once it is moved into the plane."""
    high, wide = shape
    y, x = min(max(y, 0), high - 1), min(max(x, 0), wide - 1)
    return np.outer(np.clip(1 - np.abs(np.arange(high) - y), 0, None), np.clip(1 - np.abs(np.arange(wide) - x), 0, None))


def align_weights(plane, roi, p, q, bins, scale, samples):
    x1, y1 = roi[1] * scale, roi[2] * scale
    bin_w, bin_h = max(roi[3] * scale - x1, 1) / bins[1], max(roi[4] * scale - y1, 1) / bins[0]
    ny, nx = (samples, samples) if samples > 0 else (math.ceil(bin_h), math.ceil(bin_w))
    weights = np.zeros_like(plane)
    for i in range(ny):
        for j in range(nx):
            y, x = y1 + p * bin_h + (i + 0.5) * bin_h / ny, x1 + q * bin_w + (j + 0.5) * bin_w / nx
            if -1 <= y <= plane.shape[0] and -1 <= x <= plane.shape[1]:
                weights += bilinear(plane.shape, y, x)
    return weights / (ny * nx)


def corner_weights(plane, roi, p, q, bins, scale, pad):
    pw, ph = (roi[3] - roi[1] + 1) * pad, (roi[4] - roi[2] + 1) * pad
    x1, y1 = (roi[1] - pw) * scale - 0.5, (roi[2] - ph) * scale - 0.5
    wide, high = (roi[3] + pw) * scale - 0.5 - x1, (roi[4] + ph) * scale - 0.5 - y1
    weights = np.zeros_like(plane)
    if wide <= 0 or high <= 0:
        return weights
    y, x = y1 + p * high / (bins[0] - 1), x1 + q * wide / (bins[1] - 1)
    if -0.5 <= y <= plane.shape[0] - 0.5 and -0.5 <= x <= plane.shape[1] - 0.5:
        weights = bilinear(plane.shape, y, x)
    return weights


def pool(name, kind, param, weights_of, features, rois, bins, scale, extra, grouped=False):
    channels = features.shape[1] // (bins[0] * bins[1]) if grouped else features.shape[1]
    top = np.zeros((len(rois), channels, *bins))
    top_grad, grad = normal(*top.shape), np.zeros_like(features)
    for r, roi in enumerate(rois):
        for c in range(channels):
            for p in range(bins[0]):
                for q in range(bins[1]):
                    plane = (int(roi[0]), (c * bins[0] + p) * bins[1] + q if grouped else c)
                    weights = weights_of(features[plane], roi, p, q, bins, scale, extra)
                    top[r, c, p, q] = (weights * features[plane]).sum()
                    grad[plane] += weights * top_grad[r, c, p, q]
    write(f'roi_{name}', kind, param, [features, rois], [top], [top_grad], [grad, None])


def pools():
    rois = single([[0, 1, 2, 17, 13], [1, 6.3, -3.2, 21.4, 9.7], [1, 12, 8, 12, 8], [0, 30, 30, 40, 45], [0, -6, 4.4, 3.1, 25]])
    sizes = 'pooled_h: 2 pooled_w: 3 spatial_scale: 0.25'
    ties = np.round(normal(2, 2, 6, 5))  # of equal numbers the first wins
    pool('max', 'ROIPooling', f'roi_pooling_param {{ {sizes} }}', max_weights, normal(2, 2, 6, 5), rois, (2, 3), 0.25, 0)
    pool('max_ties', 'ROIPooling', f'roi_pooling_param {{ {sizes} }}', max_weights, ties, rois, (2, 3), 0.25, 0)
    pool('max_padded', 'ROIPooling', f'roi_pooling_param {{ {sizes} pad_ratio: 0.25 }}', max_weights, normal(2, 2, 6, 5), rois, (2, 3), 0.25, 0.25)
    pool('grouped', 'PSROIPooling', 'psroi_pooling_param { spatial_scale: 0.25 output_dim: 2 group_size: 2 }', group_weights,
         normal(2, 8, 6, 5), rois, (2, 2), 0.25, 0, True)
    pool('align', 'ROIAlign', f'roi_align_param {{ {sizes} }}', align_weights, normal(2, 2, 6, 5), rois, (2, 3), 0.25, 0)
    pool('align_samples', 'ROIAlign', f'roi_align_param {{ {sizes} sampling_ratio: 2 }}', align_weights, normal(2, 2, 6, 5), rois, (2, 3), 0.25, 2)
    pool('align_corners', 'ROIAlign', f'roi_pooling_param {{ {sizes} pad_ratio: 0.1 }}', corner_weights, normal(2, 2, 6, 5), rois, (3, 4), 0.25, 0.1)


# ---- losses of boxes

def smooth(name, kind, param, shape, inside, outside, sigma, divisor, instances=False):
    a, b = normal(*shape) * 2, normal(*shape) * 2
    w_in, w_out = (np.ones(shape) if w is None else w for w in (inside, outside))
    d = w_in * (a - b)
    near = np.abs(d) < 1 / sigma ** 2
    errors = w_out * np.where(near, 0.5 * (sigma * d) ** 2, np.abs(d) - 0.5 / sigma ** 2)
    slope = w_out * w_in * np.where(near, sigma ** 2 * d, np.sign(d)) / divisor
    bottoms = [a, b] + [w for w in (inside, outside) if w is not None]
    tops, top_grads = [np.array(errors.sum() / divisor)], [np.array(1.0)]
    if instances:
        places = shape[2:] if len(shape) == 4 else (1, 1)
        tops.append(errors.sum(axis=1).reshape(shape[0], 1, *places))
        top_grads.append(np.zeros(tops[1].shape))
    grads = [slope, -slope] + [None] * (len(bottoms) - 2)
    write(f'loss_{name}', kind, param, bottoms, tops, top_grads, grads, tops[0])


def losses():
    weights = lambda shape: np.round(rng.random(shape))
    s, flat = (3, 4, 2, 2), (5, 8)
    smooth('smooth_l1', 'SmoothL1Loss', '', flat, None, None, 1, 5)
    smooth('smooth_l1_sigma', 'SmoothL1Loss', 'smooth_l1_loss_param { sigma: 3 }', s, weights(s), single(rng.random(s)), 3, 3)
    smooth('smooth_l1_valid', 'SmoothL1Loss', 'loss_param { normalization: VALID }', s, None, None, 1, 12)
    smooth('smooth_l1_none', 'SmoothL1Loss', 'loss_param { normalization: NONE }', s, weights(s), weights(s), 1, 1)
    smooth('smooth_l1_inside', 'SmoothL1Loss', '', s, weights(s), None, 1, 12, True)
    smooth('smooth_l1_ohem', 'SmoothL1LossOHEM', '', flat, weights(flat), None, 1, 5, True)
    smooth('smooth_l1_ohem_fixed', 'SmoothL1LossOHEM', 'loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 128 }',
           flat, weights(flat), None, 1, 128, True)
    scores, labels = normal(6, 4), np.array([0, 3, -1, 2, 1, -1.0])
    e = np.exp(scores)
    probs = e / e.sum(axis=1, keepdims=True)
    counts = labels >= 0
    each = np.array([-math.log(probs[n, int(labels[n])]) if counts[n] else 0 for n in range(6)])
    grad = (probs - np.eye(4)[labels.astype(int) % 4]) * counts[:, None] / counts.sum()
    loss = np.array(each.sum() / counts.sum())
    write('loss_softmax_ohem', 'SoftmaxWithLossOHEM', 'loss_param { ignore_label: -1 }', [scores, labels], [loss, probs, each],
          [np.array(1.0), np.zeros((6, 4)), np.zeros(6)], [grad, None], loss)
    rois, lost, marks, boxes = normal(7, 5), normal(7, 1, 1, 1), np.arange(7.0).reshape(7, 1, 1, 1) + 1, normal(7, 8, 1, 1)
    rois[:, 0] = [0, 1, 0, 0, 1, 0, 1]
    lost[3], lost[5] = lost[0], lost[0]  # of equal losses the first is kept
    keep, seen = np.zeros(7, bool), {0: 0, 1: 0}
    for n in sorted(range(7), key=lambda n: (-lost[n, 0, 0, 0], n)):
        seen[int(rois[n, 0])] += 1
        keep[n] = seen[int(rois[n, 0])] <= 2
    chosen = keep.reshape(7, 1, 1, 1)
    write('loss_box_annotator', 'BoxAnnotatorOHEM', 'box_annotator_ohem_param { roi_per_img: 2 ignore_label: -9 }',
          [rois, lost, marks, boxes], [np.where(chosen, marks, -9).reshape(7, 1, 1, 1), boxes * chosen])


# ---- proposals

def pixel_overlap(a, b):
    w, h = min(a[2], b[2]) - max(a[0], b[0]) + 1, min(a[3], b[3]) - max(a[1], b[1]) + 1
    if w <= 0 or h <= 0:
        return 0
    size = lambda r: (r[2] - r[0] + 1) * (r[3] - r[1] + 1)
    return w * h / (size(a) + size(b) - w * h)


def proposal(name, shape, ratios, scales, base, stride, least, before, after, threshold, info):
    anchors = []
    for ratio in ratios:
        w = half_away(math.sqrt(base * base / ratio))
        h = half_away(w * ratio)
        for scale in scales:
            sides = np.array([w * scale, h * scale])
            middle = (base - 1) / 2
            anchors.append(np.concatenate([middle - (sides - 1) / 2, middle + (sides - 1) / 2]))
    count, (images, high, wide) = len(anchors), shape
    scores, deltas = normal(images, 2 * count, high, wide), normal(images, 4 * count, high, wide) * 0.5
    rows = []
    for n in range(images):
        height, width, scale_h, scale_w = info[n] if len(info[n]) == 4 else [*info[n], info[n][2]]
        found = []
        for h in range(high):
            for w in range(wide):
                for a in range(count):
                    box = anchors[a] + stride * np.array([w, h, w, h])
                    size = box[2:] - box[:2] + 1
                    d = deltas[n, 4 * a:4 * a + 4, h, w]
                    centre = box[:2] + size / 2 + d[:2] * size
                    half = np.exp(d[2:]) * size / 2
                    moved = np.concatenate([centre - half, centre + half])
                    moved = np.clip(moved, 0, np.array([width, height, width, height]) - 1)
                    if moved[2] - moved[0] + 1 >= least * scale_w and moved[3] - moved[1] + 1 >= least * scale_h:
                        found.append((scores[n, count + a, h, w], moved))
        found = sorted(found, key=lambda f: -f[0])[:before]
        kept = []
        for score, box in found:
            if all(pixel_overlap(box, other) <= threshold for _, other in kept):
                kept.append((score, box))
        rows += [(n, score, box) for score, box in kept[:after]]
    lists = ' '.join([f'ratio: {r}' for r in ratios] + [f'scale: {s}' for s in scales])
    param = f'proposal_param {{ {lists} base_size: {base} feat_stride: {stride} min_size: {least} ' \
            f'pre_nms_topn: {before} post_nms_topn: {after} nms_thresh: {threshold} }}'
    write(f'proposal_{name}', 'Proposal', param, [scores, deltas, np.array(info, float)],
          [np.array([[n, *box] for n, _, box in rows]), np.array([score for _, score, _ in rows])], phase='TEST')


def proposals():
    proposal('one_image', (1, 4, 5), (0.5, 1, 2), (1, 2), 16, 16, 8, 60, 12, 0.5, [[64, 80, 1.0]])
    proposal('two_images', (2, 3, 3), (1,), (0.5, 1, 2), 16, 16, 12, 15, 6, 0.7, [[48, 40, 1.5, 0.75], [40, 48, 0.5, 1]])


# ---- YOLO

def sig(x):
    return 1 / (1 + np.exp(-x))


def edges(b):
    return np.array([b[0] - b[2] / 2, b[1] - b[3] / 2, b[0] + b[2] / 2, b[1] + b[3] / 2])


def common(a, b):
    sides = np.minimum(edges(a)[2:], edges(b)[2:]) - np.maximum(edges(a)[:2], edges(b)[:2])
    return sides


def iou(a, b):
    w, h = common(a, b)
    both = 0 if w < 0 or h < 0 else w * h
    return both / (a[2] * a[3] + b[2] * b[3] - both)


def around(a, b):
    return np.maximum(edges(a)[2:], edges(b)[2:]) - np.minimum(edges(a)[:2], edges(b)[:2])


def aspects(a, b):
    return 4 / math.pi ** 2 * (math.atan(b[2] / b[3]) - math.atan(a[2] / a[3])) ** 2


def agreement(a, b, kind):
    plain = iou(a, b)
    if kind in ('MSE', 'IOU'):
        return plain
    w, h = around(a, b)
    if kind == 'GIOU':
        inter = max(common(a, b)[0], 0) * max(common(a, b)[1], 0)
        union = a[2] * a[3] + b[2] * b[3] - inter
        return plain - (w * h - union) / (w * h)
    far = ((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2) / (w * w + h * h)
    if kind == 'DIOU':
        return plain - far ** 0.6
    v = aspects(a, b)
    return plain - far - v * v / (1 - plain + v + 1e-6)


def numeric(f, x, eps=1e-6):
    return np.array([(f(x + eps * e) - f(x - eps * e)) / (2 * eps) for e in np.eye(len(x))])


def box_of(e):
    return np.array([(e[0] + e[2]) / 2, (e[1] + e[3]) / 2, e[2] - e[0], e[3] - e[1]])


def slope(a, b, kind):
    """The fork's slope, of numeric slopes with respect to edges (x1, y1, x2, y2) where its own is one; x and y are the sums of those of
    the edges, w and h their differences, not halved. Where boxes are apart its 'union' has the product of two negative sides."""
    sides = common(a, b)
    apart = sides[0] <= 0 or sides[1] <= 0

    def parts(e):
        box = box_of(e)
        s = np.minimum(e[2:], edges(b)[2:]) - np.maximum(e[:2], edges(b)[:2])
        inter = s[0] * s[1]
        return inter, box[2] * box[3] + b[2] * b[3] - inter, np.prod(around(box, b))

    def fold(d):
        return np.array([d[0] + d[2], d[1] + d[3], d[2] - d[0], d[3] - d[1]])

    inter_union = lambda e: parts(e)[0] / parts(e)[1]
    plain = fold(numeric(inter_union, edges(a)))
    if kind == 'IOU':
        return plain
    if kind == 'GIOU':
        # The fork's slope of the box around both has the other sign at each edge that is outermost: C grows where the edge moves out.
        _, union, area = parts(edges(a))
        d_union = numeric(lambda e: parts(e)[1], edges(a))
        w, h = around(a, b)
        (l1, t1, r1, b1), (l2, t2, r2, b2) = edges(a), edges(b)
        d_area = np.array([-h if l1 < l2 else 0, -w if t1 < t2 else 0, h if r1 > r2 else 0, w if b1 > b2 else 0])
        term = fold((area * d_union - union * d_area) / area ** 2)
        return term if apart else plain + term
    w, h = around(a, b)
    (l1, t1, r1, b1), (l2, t2, r2, b2) = edges(a), edges(b)
    left, top, right, bottom = float(l1 < l2), float(t1 < t2), float(r1 > r2), float(b1 > b2)
    diagonal, far = w * w + h * h, (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2
    more = np.array([(2 * (b[0] - a[0]) * diagonal - 2 * w * (right - left) * far), (2 * (b[1] - a[1]) * diagonal - 2 * h * (bottom - top) * far),
                     2 * w * 0.5 * (right + left) * far, 2 * h * 0.5 * (bottom + top) * far]) / diagonal ** 2
    if kind == 'CIOU':
        inter, union, _ = parts(edges(a))
        v = aspects(a, b)
        alpha = v / (1 - inter / union + v + 1e-6)
        turn = 8 / math.pi ** 2 * (math.atan(b[2] / b[3]) - math.atan(a[2] / a[3]))
        more += alpha * np.array([0, 0, turn * a[3], -turn * a[2]])
    return more if apart else plain + more


def labels_of(images, truths, rows):
    out = np.zeros((images, 1, rows, 5))
    for n, items in enumerate(truths):
        for t, item in enumerate(items):
            out[n, 0, t] = item
    return single(out)


TRUTHS = [[[1, .31, .42, .3, .25], [0, .72, .66, .4, .5], [2, .33, .45, .5, .2]], [[2, .9, .15, .15, .2]]]


def region(name, side, biases, classes, thresh, extra, rescore=1, match=1, scales=(1, 1, .5, 5)):
    """scales: object, class, noobject, coord."""
    num, images = len(biases) // 2, 2
    x = normal(images, num, 5 + classes, side, side)
    labels = labels_of(images, TRUTHS, 6)
    size = lambda n: np.array(biases[2 * n:2 * n + 2]) / side
    step = np.zeros_like(x)

    def box(b, n, j, i):
        v = x[b, n, :, j, i]
        return np.array([(i + sig(v[0])) / side, (j + sig(v[1])) / side, *(np.exp(v[2:4]) * size(n))])

    for b in range(images):
        there = [t for t in labels[b, 0] if t[3] > 0]
        for n, j, i in np.ndindex(num, side, side):
            p = sig(x[b, n, 4, j, i])
            if max([iou(box(b, n, j, i), t[1:]) for t in there]) <= thresh:
                step[b, n, 4, j, i] = -scales[2] * (0 - p) * p * (1 - p)
        for t in there:
            i, j = int(t[1] * side), int(t[2] * side)
            fits = [iou(np.array([0, 0, *(size(n) if match else box(b, n, j, i)[2:])]), np.array([0, 0, *t[3:]])) for n in range(num)]
            n = int(np.argmax(fits))
            v = x[b, n, :, j, i]
            factor = scales[3] * (1 if rescore else 2 - t[3] * t[4])
            for k, target in enumerate([t[1] * side - i, t[2] * side - j]):
                p = sig(v[k])
                step[b, n, k, j, i] = -factor * (target - p) * p * (1 - p)
            step[b, n, 2:4, j, i] = -factor * (np.log(t[3:] / size(n)) - v[2:4])
            p = sig(v[4])
            step[b, n, 4, j, i] = -scales[0] * ((iou(box(b, n, j, i), t[1:]) if rescore else 1) - p) * p * (1 - p)
            e = np.exp(v[5:])
            step[b, n, 5:, j, i] = -scales[1] * (np.eye(classes)[int(t[0])] - e / e.sum())
    loss = np.array((step ** 2).sum() / images)
    lists = ' '.join(f'biases: {v}' for v in biases)
    param = f'region_loss_param {{ num_class: {classes} num: {num} thresh: {thresh} {lists} {extra} }}'
    flat = x.reshape(images, -1, side, side)
    write(f'yolo_{name}', 'RegionLoss', param, [flat, labels.reshape(images, -1)], [loss], [np.array(1.0)], [step.reshape(flat.shape) / images, None], loss)


def yolov3(name, high, wide, anchors_scale, biases, mask, classes, thresh, kind='MSE', extra='', logic=False, focal=False, accumulate=True,
           normalizer=.25, iou_thresh=.5, most=10, eps=.1, scales=(1, 1, 5)):
    """scales: object, class, coord."""
    num, images = len(mask), 2
    x = normal(images, num, 5 + classes, high, wide)
    labels = labels_of(images, TRUTHS, 5)
    net = np.array([wide, high]) * anchors_scale
    size = lambda n: np.array(biases[2 * n:2 * n + 2]) / net
    step = np.zeros_like(x)
    apart = []

    def box(b, m, j, i):
        v = x[b, m, :, j, i]
        return np.array([(i + sig(v[0])) / wide, (j + sig(v[1])) / high, *(np.exp(v[2:4]) * size(mask[m]))])

    def take(b, m, j, i, t):
        v, out = x[b, m, :, j, i], step[b, m, :, j, i]
        if kind == 'MSE':
            targets = np.array([t[1] * wide - i, t[2] * high - j, *np.log(t[3:] / size(mask[m]))])
            out[:4] = -scales[2] * (2 - t[3] * t[4]) * (targets - np.array([sig(v[0]), sig(v[1]), v[2], v[3]]))
        else:
            a = box(b, m, j, i)
            apart.append(1 - agreement(a, t[1:], 'DIOU' if kind == 'IOU' else kind))
            d = slope(a, t[1:], kind) * np.array([1, 1, np.exp(v[2]), np.exp(v[3])]) * normalizer
            out[:4] = (out[:4] if accumulate else 0) - np.clip(d, -most, most)
        out[4] = -(1 - sig(v[4])) * (scales[0] if logic else 1)
        p, own = sig(v[5:]), int(t[0])
        if out[5 + own] != 0:
            out[5 + own] = -scales[1] * (1 - eps + .5 * eps - p[own])
            return
        wanted = np.eye(classes)[own]
        if focal:
            pt = p[own]
            out[5:] = -scales[1] * (wanted - p) * .5 * -(1 - pt) * (2 * pt * np.log(pt) + pt - 1)
        else:
            out[5:] = -scales[1] * (wanted * (1 - eps) + .5 * eps - p)

    for b in range(images):
        there = [t for t in labels[b, 0] if t[3] > 0]
        for m, j, i in np.ndindex(num, high, wide):
            if max(0, *[agreement(box(b, m, j, i), t[1:], kind) for t in there], 0) <= thresh:
                step[b, m, 4, j, i] = sig(x[b, m, 4, j, i])
        for t in there:
            i, j = int(t[1] * wide), int(t[2] * high)
            fits = [agreement(np.array([0, 0, *size(n)]), np.array([0, 0, *t[3:]]), kind) for n in range(len(biases) // 2)]
            best = int(np.argmax(fits)) if max(fits) > 0 else -1
            if best in mask:
                best = mask.index(best)  # from here on the fork compares this with numbers of biases
                take(b, best, j, i, t)
            for n in range(len(fits)):
                if n in mask and n != best and fits[n] > iou_thresh:
                    take(b, mask.index(n), j, i, t)
    squares = (step ** 2).sum() if kind == 'MSE' else (step[:, :, 4:] ** 2).sum() + (normalizer * np.mean(apart) if apart else 0)
    loss = np.array(squares / images)
    if logic:
        p = sig(x)
        bent = p * (1 - p)
        bent[:, :, 2:4] = 1
        step = step * bent
    lists = ' '.join([f'biases: {v}' for v in biases] + [f'mask: {v}' for v in mask])
    param = f'yolov3_param {{ num_class: {classes} num: {num} thresh: {thresh} anchors_scale: {anchors_scale} iou_loss: {kind} {lists} {extra} }}'
    flat = x.reshape(images, -1, high, wide)
    write(f'yolo_{name}', 'Yolov3', param, [flat, labels.reshape(images, -1)], [loss], [np.array(1.0)], [step.reshape(flat.shape) / images, None], loss)


def rows_of(found, images, threshold):
    """found: (image, label, score, box by its centre), in the order that decides among equals."""
    rows = []
    for image in range(images):
        kept = []
        for f in sorted([f for f in found if f[0] == image], key=lambda f: -f[2]):
            if all(iou(f[3], other[3]) < threshold for other in kept):
                kept.append(f)
        rows += [[image, f[1] + 1, f[2], *edges(f[3])] for f in kept]
    return np.array(rows or [[n] + [-1] * 6 for n in range(images)], float).reshape(1, 1, -1, 7)


def outputs():
    classes, biases = 3, [10, 9, 14, 7, 8, 12]
    for name, gauss, confidence in (('v3', False, .35), ('v3_nothing', False, .999), ('v3_gaussian', True, .15)):
        first = 9 if gauss else 5
        bottoms = [normal(2, 2, first + classes, 2, 3), normal(2, 2, first + classes, 4, 6)]
        mask, scales, found = [1, 2, 0, 1], [8, 4], []
        for t, x in enumerate(bottoms):
            high, wide = x.shape[3:]
            for b in range(2):
                for j, i, n in np.ndindex(high, wide, 2):
                    v = x[b, n, :, j, i]
                    at = v[0:8:2] if gauss else v[0:4]
                    bias = biases[2 * mask[2 * t + n]:2 * mask[2 * t + n] + 2]
                    box = np.array([(i + sig(at[0])) / wide, (j + sig(at[1])) / high,
                                    np.exp(at[2]) * bias[0] / (wide * scales[t]), np.exp(at[3]) * bias[1] / (high * scales[t])])
                    score = sig(v[first - 1]) * (1 - np.mean(sig(v[1:8:2])) if gauss else 1)
                    found += [(b, c, score * sig(v[first + c]), box) for c in range(classes) if score * sig(v[first + c]) > confidence]
        lists = ' '.join([f'biases: {v}' for v in biases] + [f'mask: {v}' for v in mask] + [f'anchors_scale: {v}' for v in scales])
        param = f'yolov3_detection_output_param {{ num_classes: 3 num_box: 2 confidence_threshold: {confidence} nms_threshold: 0.4 {lists}' \
                f'{" gaussian_box: true" if gauss else ""} }}'
        write(f'yolo_output_{name}', 'Yolov3DetectionOutput', param, [x.reshape(2, -1, *x.shape[3:]) for x in bottoms], [rows_of(found, 2, .4)], phase='TEST')
    x, found = normal(2, 2, 8, 3, 3), []
    sizes = [1.2, .8, .6, 1.5]
    for b in range(2):
        for j, i, n in np.ndindex(3, 3, 2):
            v = x[b, n, :, j, i]
            e = np.exp(v[5:])
            c = int(np.argmax(e))
            score = sig(v[4]) * e[c] / e.sum()
            box = np.array([(i + sig(v[0])) / 3, (j + sig(v[1])) / 3, np.exp(v[2]) * sizes[2 * n] / 3, np.exp(v[3]) * sizes[2 * n + 1] / 3])
            if score >= .25:
                found.append((b, c, score, box))
    param = 'yolo_detection_output_param { num_classes: 3 num_box: 2 confidence_threshold: 0.25 nms_threshold: 0.4 ' + \
            ' '.join(f'biases: {v}' for v in sizes) + ' }'
    write('yolo_output_v2', 'YoloDetectionOutput', param, [x.reshape(2, 16, 3, 3)], [rows_of(found, 2, .4)], phase='TEST')


def yolos():
    region('region', 4, [1.2, .8, .6, 1.5], 3, .3, '')
    region('region_scales', 3, [1.2, .8, .6, 1.5, 2, 2], 3, .4, 'rescore: 0 bias_match: 0 object_scale: 5 class_scale: 2 noobject_scale: 1 coord_scale: 1',
           0, 0, (5, 2, 1, 1))
    biases = [10, 9, 14, 7, 8, 12, 5, 6]
    yolov3('loss', 4, 4, 8, biases, [0, 2], 3, .4)
    yolov3('loss_logic', 3, 5, 8, biases, [1, 3], 3, .4, extra='use_logic_gradient: true object_scale: 5 class_scale: 2 coord_scale: 1 label_smooth_eps: 0',
           logic=True, eps=0, scales=(5, 2, 1))
    yolov3('loss_focal', 4, 4, 8, biases, [0, 1, 2], 3, .4, extra='use_focal_loss: true iou_thresh: 0.3', focal=True, iou_thresh=.3)
    for kind in ('IOU', 'GIOU', 'DIOU', 'CIOU'):
        yolov3(f'loss_{kind.lower()}', 4, 4, 8, biases, [0, 1, 2], 3, .4, kind, 'iou_thresh: 0.2', iou_thresh=.2)
    yolov3('loss_ciou_clipped', 4, 4, 8, biases, [1, 2], 3, .4, 'CIOU', 'iou_normalizer: 2 max_delta: 0.5 accumulate: false iou_thresh: 0.2',
           accumulate=False, normalizer=2, most=.5, iou_thresh=.2)
    outputs()


if __name__ == '__main__':
    FOLDER.mkdir(exist_ok=True)
    pools()
    losses()
    proposals()
    yolos()
