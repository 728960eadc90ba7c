#!/usr/bin/env python3
"""Writes tests/golden/forks/ssd_*.json: single layers of the SSD fork, computed by numpy in double precision from the formulas that
the fork's pages and sources state. No number comes from Shoal. Run it in the repository's root."""
import json
import math
from pathlib import Path

import numpy as np

FOLDER = Path('tests/golden/forks')
CENTER, CORNER, SIZED = 'CENTER_SIZE', 'CORNER', 'CORNER_SIZE'


def nine(array):
    return [float(f'{x:.9g}') for x in np.asarray(array, np.float64).ravel()]


def shaped(array):
    array = np.asarray(array)
    return {'shape': list(array.shape), 'data': nine(array)}


def write(name, kind, param, bottoms, tops, grads=None, top_grad=None, phase='TRAIN'):
    """grads: one for each bottom, or None where there is none."""
    lines = ''.join(f' bottom: "b{i}"' for i in range(len(bottoms)))
    layer = f'layer {{ name: "{name}" type: "{kind}"{lines} top: "t0" {param} }}'
    case = {'name': name, 'type': kind, 'layer': layer, 'phase': phase, 'backward': grads is not None,
            'bottoms': [shaped(b) for b in bottoms], 'params': [], 'tops': [shaped(t) for t in tops]}
    if grads is not None:
        case.update(loss=float(tops[0]), top_diffs=[nine(top_grad)], param_diffs=[],
                    bottom_diffs=[None if g is None else nine(g) for g in grads])
    (FOLDER / f'ssd_{name}.json').write_text(json.dumps(case) + '\n')


# ---- boxes: rows of xmin, ymin, xmax, ymax

def area(b):
    return np.clip(b[..., 2] - b[..., 0], 0, None) * np.clip(b[..., 3] - b[..., 1], 0, None)


def jaccard(a, b):
    """The matrix of all pairs."""
    low, high = np.maximum(a[:, None, :2], b[None, :, :2]), np.minimum(a[:, None, 2:], b[None, :, 2:])
    common = np.prod(np.clip(high - low, 0, None), axis=2)
    return np.where(common > 0, common / np.maximum(area(a)[:, None] + area(b)[None] - common, 1e-30), 0)


def centres(b):
    return np.stack([(b[..., 0] + b[..., 2]) / 2, (b[..., 1] + b[..., 3]) / 2, b[..., 2] - b[..., 0], b[..., 3] - b[..., 1]], -1)


def corners(c):
    return np.stack([c[..., 0] - c[..., 2] / 2, c[..., 1] - c[..., 3] / 2, c[..., 0] + c[..., 2] / 2, c[..., 1] + c[..., 3] / 2], -1)


def encoded(boxes, priors, variances, kind):
    if kind == CORNER:
        return (boxes - priors) / variances
    p, b = centres(priors), centres(boxes)
    if kind == SIZED:
        return (boxes - priors) / np.concatenate([p[..., 2:], p[..., 2:]], -1) / variances
    return np.concatenate([(b[..., :2] - p[..., :2]) / p[..., 2:], np.log(b[..., 2:] / p[..., 2:])], -1) / variances


def decoded(codes, priors, variances, kind):
    codes = codes * variances
    p = centres(priors)
    if kind == CORNER:
        return priors + codes
    if kind == SIZED:
        return priors + codes * np.concatenate([p[..., 2:], p[..., 2:]], -1)
    return corners(np.concatenate([codes[..., :2] * p[..., 2:] + p[..., :2], np.exp(codes[..., 2:]) * p[..., 2:]], -1))


def best_first(scores):
    return np.argsort(-np.asarray(scores), kind='stable')


def survivors(boxes, order, threshold, eta=1.0):
    pairs, kept = jaccard(boxes, boxes), []
    for i in order:
        if all(pairs[i, k] <= threshold for k in kept):
            kept.append(i)
            if eta < 1 and threshold > 0.5:
                threshold *= eta
    return kept


# ---- PriorBox

def prior_boxes(map_h, map_w, img_h, img_w, mins, maxs, ratios, flip, clip, variances, step=None, offset=0.5):
    shapes = []
    all_ratios = [1.0]
    for r in ratios:
        if not any(abs(r - other) < 1e-6 for other in all_ratios):
            all_ratios += [r, 1 / r] if flip else [r]
    for i, small in enumerate(mins):
        small = int(small)
        shapes.append((small, small))
        if maxs:
            shapes.append((math.sqrt(small * int(maxs[i])),) * 2)
        shapes += [(small * math.sqrt(r), small / math.sqrt(r)) for r in all_ratios if abs(r - 1) >= 1e-6]
    step_h, step_w = step or (img_h / map_h, img_w / map_w)
    rows = []
    for y in range(map_h):
        for x in range(map_w):
            for w, h in shapes:
                cx, cy = (x + offset) * step_w, (y + offset) * step_h
                rows.append([(cx - w / 2) / img_w, (cy - h / 2) / img_h, (cx + w / 2) / img_w, (cy + h / 2) / img_h])
    rows = np.array(rows)
    if clip:
        rows = np.clip(rows, 0, 1)
    return np.stack([rows.ravel(), np.resize(variances, rows.size)])[None]


def short(array):
    """Inputs of few digits, which the files hold exactly."""
    return np.round(array, 3)


def make_prior_boxes():
    feature, image = np.zeros((2, 1, 3, 4)), np.zeros((2, 1, 12, 20))
    write('prior_box_flipped', 'PriorBox',
          'prior_box_param { min_size: 4.7 max_size: 9 aspect_ratio: 2 aspect_ratio: 3 variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 }',
          [feature, image], [prior_boxes(3, 4, 12, 20, [4.7], [9], [2, 3], True, False, [.1, .1, .2, .2])], phase='TEST')
    write('prior_box_clipped', 'PriorBox',
          'prior_box_param { min_size: 30 min_size: 55 aspect_ratio: 1 aspect_ratio: 2 flip: false clip: true step: 16 offset: 0.25 '
          'img_h: 64 img_w: 96 }',
          [feature, image], [prior_boxes(3, 4, 64, 96, [30, 55], [], [1, 2], False, True, [.1], (16, 16), .25)], phase='TEST')


# ---- DetectionOutput

def detection_output(loc, conf, prior, classes, kind, share, background, threshold, nms, top_k, keep, eta=1.0):
    p, v = prior[0, 0].reshape(-1, 4), prior[0, 1].reshape(-1, 4)
    rows = []
    for n in range(len(loc)):
        codes = loc[n].reshape(len(p), -1, 4)
        found = []
        for c in range(classes):
            if c == background:
                continue
            boxes = decoded(codes[:, 0 if share else c], p, v, kind)
            scores = conf[n].reshape(len(p), classes)[:, c]
            order = [i for i in best_first(scores) if scores[i] > threshold][:top_k]
            found += [(c, scores[i], *boxes[i]) for i in survivors(boxes, order, nms, eta)]
        if keep is not None and len(found) > keep:
            best = best_first([f[1] for f in found])[:keep]
            found = sorted((found[i] for i in best), key=lambda f: (f[0], -f[1]))
        rows += [(n, *f) for f in found]
    if not rows:
        rows = [(n,) + (-1,) * 6 for n in range(len(loc))]
    return np.array(rows)[None, None]


def make_detections(rng):
    prior = short(prior_boxes(3, 3, 60, 60, [20], [40], [2], True, False, [.1, .1, .2, .2]))
    count, classes = prior.shape[2] // 4, 4
    scores = rng.permutation(short(np.linspace(0.02, 0.98, 2 * count * classes))).reshape(2, -1)
    for name, kind, share, fields, numbers in [
            ('center', CENTER, True, 'confidence_threshold: 0.3 keep_top_k: 14 nms_param { nms_threshold: 0.45 top_k: 20 }', (0, .3, .45, 20, 14)),
            ('corner', CORNER, False, 'background_label_id: 2 confidence_threshold: 0.4 nms_param { nms_threshold: 0.6 eta: 0.8 }',
             (2, .4, .6, None, None)),
            ('sized', SIZED, True, 'keep_top_k: 30 nms_param { nms_threshold: 0.3 top_k: 9 }', (0, -1, .3, 9, 30)),
            ('nothing', CENTER, True, 'confidence_threshold: 0.99', (0, .99, .3, None, None))]:
        loc = short(rng.normal(0, 1, (2, count * 4 * (1 if share else classes))))
        background, threshold, nms, top_k, keep = numbers
        top = detection_output(loc, scores, prior, classes, kind, share, background, threshold, nms, top_k, keep,
                               .8 if 'eta' in fields else 1.0)
        sharing = '' if share else 'share_location: false '
        write(f'detection_output_{name}', 'DetectionOutput',
              f'detection_output_param {{ num_classes: {classes} code_type: {kind} {sharing}{fields} }}', [loc, scores, prior], [top],
              phase='TEST')


# ---- DetectionEvaluate

def detection_evaluate(found, truth, classes, threshold, difficult_too):
    found, truth = found[0, 0], truth[0, 0]
    top = [(-1, c, sum(1 for t in truth if t[1] == c and (difficult_too or not t[7])), -1, -1) for c in range(1, classes)]
    for n in sorted({f[0] for f in found}):
        for c in sorted({f[1] for f in found if f[0] == n and f[1] != -1}):
            mine = [f for f in found if f[0] == n and f[1] == c]
            theirs = [t for t in truth if t[0] == n and t[1] == c]
            seen = set()
            for f in [mine[i] for i in best_first([m[2] for m in mine])] if theirs else mine:
                right = wrong = 0
                overlaps = jaccard(np.array([f[3:7]]), np.array([t[3:7] for t in theirs]))[0] if theirs else [-1]
                j = int(np.argmax(overlaps))
                if overlaps[j] < threshold or (j in seen and (difficult_too or not theirs[j][7])):
                    wrong = 1
                elif difficult_too or not theirs[j][7]:
                    right = 1
                    seen.add(j)
                top.append((n, c, f[2], right, wrong))
    return np.array(top)[None, None]


def make_evaluations(rng):
    truth = []
    for n in range(3):
        for k in range(4):
            x, y = rng.uniform(0, .6, 2)
            truth.append([n, rng.integers(1, 4), k, x, y, x + rng.uniform(.1, .4), y + rng.uniform(.1, .4), k == 3])
    truth = short(np.array(truth, np.float64))
    found = []
    for t in truth:
        for _ in range(2):
            label = t[1] if rng.uniform() < .8 else rng.integers(1, 4)
            found.append([t[0], label, rng.uniform(), *(t[3:7] + rng.normal(0, .03, 4))])
    found = short([f for f in found if f[0] != 1] + [[1] + [-1] * 6])
    for name, threshold, difficult in [('all', .5, True), ('without_difficult', .6, False)]:
        write(f'detection_evaluate_{name}', 'DetectionEvaluate',
              f'detection_evaluate_param {{ num_classes: 4 overlap_threshold: {threshold} evaluate_difficult_gt: {str(difficult).lower()} }}',
              [found[None, None], truth[None, None]],
              [detection_evaluate(found[None, None], truth[None, None], 4, threshold, difficult)], phase='TEST')


# ---- MultiBoxLoss

def pairs_of(boxes, truth, threshold, per_prediction, skip_crossing):
    """For each box the number of its true box, -1, or -2; and its overlap."""
    table = jaccard(boxes, truth)
    table[table <= 1e-6] = 0
    to = np.full(len(boxes), -1)
    if skip_crossing:
        out = ((boxes < 0) | (boxes > 1)).any(1)
        to[out] = -2
        table[out] = 0
    best = table.max(1)
    open_pairs = table.copy()
    while open_pairs.max() > 0:
        i, j = np.unravel_index(np.argmax(open_pairs), table.shape)
        to[i], best[i] = j, table[i, j]
        open_pairs[i, :] = 0
        open_pairs[:, j] = 0
    if per_prediction:
        for i in np.flatnonzero(to == -1):
            if table[i].max() >= max(threshold, 1e-6):
                to[i] = np.argmax(table[i])
    return to, best


def class_losses(scores, labels, logistic):
    """labels: -1 is none of them. Returns the loss of each row, and its slopes."""
    want = (np.arange(scores.shape[1])[None] == labels[:, None]).astype(float)
    if logistic:
        p = 1 / (1 + np.exp(-scores))
        return -(want * np.log(p) + (1 - want) * np.log(1 - p)).sum(1), p - want
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    return -np.log((p * want).sum(1)), p - want


def multibox(loc, conf, prior, truth, classes, o):
    p, v = prior[0, 0].reshape(-1, 4), prior[0, 1].reshape(-1, 4)
    batch, count = len(loc), len(p)
    logistic, share = o.get('logistic', False), o.get('share', True)
    in_target = o.get('variance_in_target', False)
    units = np.ones_like(v) if in_target else v
    d_loc, d_conf = np.zeros((batch, count, 1 if share else classes, 4)), np.zeros((batch, count, classes))
    loss_loc = loss_conf = 0.0
    matches = 0
    for n in range(batch):
        own = truth[0, 0][truth[0, 0][:, 0] == n]
        if not o.get('difficult', True):
            own = own[own[:, 7] == 0]
        if len(own) == 0 and o['mining'] != 'NONE':
            continue
        codes, scores = loc[n].reshape(count, -1, 4), conf[n].reshape(count, classes)
        labels = own[:, 1].astype(int)
        out = decoded(codes[:, 0], p, units, o['code'])
        matched_by = out if o.get('match_by_prediction', False) else p
        if len(own):
            to, best = pairs_of(matched_by, own[:, 3:7], o.get('overlap', .5), o.get('per_prediction', True), o.get('skip_crossing', False))
        else:
            to, best = np.full(count, -1), np.zeros(count)
        classes_of = np.array([labels[t] if t >= 0 else (-1 if logistic and o['mining'] == 'NONE' else 0) for t in to])
        errors = np.zeros((count, 4))
        for i in np.flatnonzero(to >= 0):
            slot = 0 if share else labels[to[i]]
            errors[i] = codes[i, slot] - encoded(own[to[i], 3:7], p[i], units[i], o['code'])
            if in_target:
                errors[i] /= v[i]
            if o.get('inside', False):
                errors[i][(matched_by[i] < 0) | (matched_by[i] > 1)] = 0
        flat = np.abs(errors)
        each_loc = (errors ** 2 / 2 if o.get('l2', False) else np.where(flat < 1, errors ** 2 / 2, flat - .5)).sum(1)
        slopes = errors if o.get('l2', False) else np.clip(errors, -1, 1)
        each_conf, d_scores = class_losses(scores, classes_of, logistic)
        keep = np.ones(count, bool)
        if o['mining'] == 'MAX_NEGATIVE':
            can = (to == -1) & (best < o.get('neg_overlap', .5))
            order = [i for i in best_first(each_conf) if can[i]]
            if 'nms' in o:
                order = survivors(out, order, o['nms'])
            keep = to >= 0
            keep[order[:int(o.get('ratio', 3) * (to >= 0).sum())]] = True
        elif o['mining'] == 'HARD_EXAMPLE':
            order = list(best_first(each_conf + np.where(to >= 0, each_loc, 0)))
            if 'nms' in o:
                order = survivors(p, order, o['nms'])
            keep = np.zeros(count, bool)
            keep[order[:o['sample']]] = True
            keep &= to != -2
            to = np.where(keep, to, np.minimum(to, -1))
        for i in np.flatnonzero(to >= 0):
            matches += 1
            loss_loc += each_loc[i]
            d_loc[n, i, 0 if share else labels[to[i]]] = slopes[i] / (v[i] if in_target else 1)
        loss_conf += each_conf[keep].sum()
        d_conf[n][keep] = d_scores[keep]
    divisor = {'VALID': max(matches, 1), 'FULL': batch * count, 'BATCH_SIZE': batch, 'NONE': 1}[o.get('by', 'VALID')]
    weight = o.get('weight', 1)
    return ((weight * loss_loc + loss_conf) / divisor, (weight * d_loc / divisor).reshape(loc.shape), (d_conf / divisor).reshape(conf.shape))


def make_losses(rng):
    prior = short(prior_boxes(3, 3, 60, 60, [18], [34], [2], True, False, [.1, .1, .2, .2]))
    count, classes = prior.shape[2] // 4, 4
    truth = np.array([[0, 1, 0, .05, .1, .38, .4, 0], [0, 3, 0, .5, .45, .95, .97, 0], [0, 1, 1, .3, .6, .6, .8, 1],
                      [2, 2, 0, .2, .2, .7, .75, 0], [2, 2, 1, .6, .1, .9, .35, 0], [-1] * 8], np.float64)[None, None]
    cases = [
        ('max_negative', 'code_type: CENTER_SIZE', '', dict(code=CENTER, mining='MAX_NEGATIVE')),
        ('ratio_by_batch', 'code_type: CENTER_SIZE neg_pos_ratio: 1.5 neg_overlap: 0.3 loc_weight: 0.5 overlap_threshold: 0.35 use_difficult_gt: false',
         'loss_param { normalization: BATCH_SIZE }',
         dict(code=CENTER, mining='MAX_NEGATIVE', ratio=1.5, neg_overlap=.3, weight=.5, overlap=.35, difficult=False, by='BATCH_SIZE')),
        ('bipartite_l2', 'code_type: CORNER loc_loss_type: L2 match_type: BIPARTITE', 'loss_param { normalization: FULL }',
         dict(code=CORNER, mining='MAX_NEGATIVE', l2=True, per_prediction=False, by='FULL')),
        ('logistic_apart', 'code_type: CORNER_SIZE conf_loss_type: LOGISTIC mining_type: NONE share_location: false',
         'loss_param { normalization: NONE }', dict(code=SIZED, mining='NONE', logistic=True, share=False, by='NONE')),
        ('all', 'code_type: CENTER_SIZE mining_type: NONE overlap_threshold: 0.4', '', dict(code=CENTER, mining='NONE', overlap=.4)),
        ('hard_example', 'code_type: CENTER_SIZE mining_type: HARD_EXAMPLE sample_size: 12', '',
         dict(code=CENTER, mining='HARD_EXAMPLE', sample=12)),
        ('hard_apart', 'code_type: CENTER_SIZE mining_type: HARD_EXAMPLE sample_size: 10 use_prior_for_nms: true nms_param { nms_threshold: 0.6 }', '',
         dict(code=CENTER, mining='HARD_EXAMPLE', sample=10, nms=.6)),
        ('mined_apart', 'code_type: CENTER_SIZE nms_param { nms_threshold: 0.4 } ignore_cross_boundary_bbox: true neg_overlap: 0.4', '',
         dict(code=CENTER, mining='MAX_NEGATIVE', nms=.4, skip_crossing=True, neg_overlap=.4)),
        ('inside', 'code_type: CENTER_SIZE use_prior_for_matching: false bp_inside: true encode_variance_in_target: true overlap_threshold: 0.3', '',
         dict(code=CENTER, mining='MAX_NEGATIVE', match_by_prediction=True, inside=True, variance_in_target=True, overlap=.3)),
        ('logistic_mined', 'code_type: CENTER_SIZE conf_loss_type: LOGISTIC', '', dict(code=CENTER, mining='MAX_NEGATIVE', logistic=True)),
    ]
    for name, fields, loss_param, options in cases:
        slots = 1 if options.get('share', True) else classes
        loc = short(rng.normal(0, .6, (3, count * 4 * slots)))
        conf = short(rng.normal(0, 1.5, (3, count * classes)))
        loss, d_loc, d_conf = multibox(loc, conf, prior, truth, classes, options)
        write(f'multibox_loss_{name}', 'MultiBoxLoss', f'multibox_loss_param {{ num_classes: {classes} {fields} }} {loss_param}',
              [loc, conf, prior, truth], [np.float64(loss)], [d_loc, d_conf, None, None], [1.0])


def main():
    FOLDER.mkdir(exist_ok=True)
    make_prior_boxes()
    make_detections(np.random.default_rng(43))
    make_evaluations(np.random.default_rng(44))
    make_losses(np.random.default_rng(45))


if __name__ == '__main__':
    main()
