#!/usr/bin/env python3
"""Computes tests/golden/forks/*.json: single layers of forks of Caffe, by their formulas in double precision.

Each forward pass is written out place by place, as the forks' documents and sources describe it, and shares nothing with Shoal.
Gradients are differences of the forward passes, but for those that no loss has (the centres of CenterLoss).

usage: make_fork_layers_small.py [FOLDER]
"""
import json
import pathlib
import sys
import zlib

import numpy as np

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


class Layer:
    """One case: its prototxt, its inputs, and `forward`, a function of bottoms and params that returns the tops."""

    def __init__(self, kind, param, bottoms, forward, params=(), phase='TRAIN', no_gradient=(), forwards=1, after=None, loss=None,
                 fixed_params=(), param_diffs=None, backward=True):
        self.kind, self.param, self.forward, self.phase = kind, param, forward, phase
        self.bottoms = [np.asarray(b, np.float32).astype(np.float64) for b in bottoms]
        self.params = [np.asarray(p, np.float32).astype(np.float64) for p in params]
        self.no_gradient, self.fixed_params = set(no_gradient), set(fixed_params)
        self.forwards, self.after, self.loss, self.param_diffs, self.backward = forwards, after, loss, param_diffs, backward


def numbers(array):
    return [float('%.9g' % x) for x in np.asarray(array).reshape(-1)]


def blob(array):
    return {'shape': list(np.shape(array)), 'data': numbers(array)}


def slope(function, array, step=1e-5):
    """The gradient of function(), a number, with respect to an array that it reads."""
    gradient = np.zeros_like(array)
    flat, out = array.reshape(-1), gradient.reshape(-1)
    for i in range(flat.size):
        kept = flat[i]
        flat[i] = kept + step
        above = function()
        flat[i] = kept - step
        out[i] = (above - function()) / (2 * step)
        flat[i] = kept
    return gradient


def write(folder, name, layer, random):
    tops = layer.forward(layer.bottoms, layer.params)
    weights = [np.full(np.shape(t), layer.loss) if layer.loss is not None else random.normal(size=np.shape(t)).astype(np.float32) for t in tops]
    scalar = lambda: sum(float(np.sum(w * t)) for w, t in zip(weights, layer.forward(layer.bottoms, layer.params)))
    text = 'layer {\n  name: "%s"\n  type: "%s"\n' % (name, layer.kind)
    text += ''.join('  bottom: "b%d"\n' % i for i in range(len(layer.bottoms))) + ''.join('  top: "t%d"\n' % i for i in range(len(tops)))
    text += '  %s\n}\n' % layer.param
    out = {'name': name, 'type': layer.kind, 'layer': text, 'phase': layer.phase, 'forwards': layer.forwards, 'backward': layer.backward,
           'bottoms': [blob(b) for b in layer.bottoms], 'params': [blob(p) for p in layer.params], 'tops': [blob(t) for t in tops]}
    if layer.loss is not None:
        out['loss'] = layer.loss * float(tops[0])
    if layer.after is not None:
        out['params_after'] = [blob(p) for p in layer.after()]
    if layer.backward:
        out['top_diffs'] = [numbers(w) for w in weights]
        out['bottom_diffs'] = [None if i in layer.no_gradient else numbers(slope(scalar, b)) for i, b in enumerate(layer.bottoms)]
        out['param_diffs'] = [numbers(np.zeros_like(p) if i in layer.fixed_params else slope(scalar, p)) for i, p in enumerate(layer.params)]
        if layer.param_diffs is not None:
            out['param_diffs'] = [numbers(p) for p in layer.param_diffs()]
    (folder / (name + '.json')).write_text(json.dumps(out, separators=(',', ':')) + '\n')


def softmax(scores):
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


# ---- numbers that move

@case
def permute_channels_last(r):
    def forward(b, _):
        n, c, h, w = b[0].shape
        y = np.zeros((n, h, w, c))
        for i in np.ndindex(n, c, h, w):
            y[i[0], i[2], i[3], i[1]] = b[0][i]
        return [y]
    return Layer('Permute', 'permute_param { order: 0 order: 2 order: 3 order: 1 }', [r.normal(size=(2, 3, 2, 3))], forward)


@case
def permute_the_rest_follows(r):
    return Layer('Permute', 'permute_param { order: 2 }', [r.normal(size=(2, 3, 4))], lambda b, _: [np.moveaxis(b[0], 2, 0).copy()])


@case
def shuffle_channel_3(r):
    def forward(b, _):
        n, c, h, w = b[0].shape
        y = np.zeros_like(b[0])
        for k in range(c):
            y[:, k % (c // 3) * 3 + k // (c // 3)] = b[0][:, k]
        return [y]
    return Layer('ShuffleChannel', 'shuffle_channel_param { group: 3 }', [r.normal(size=(2, 6, 2, 2))], forward)


def darknet(flat, out, w, h, c, n, s, reverse):
    small = c // (s * s)
    for b in range(n):
        for k in range(c):
            for j in range(h):
                for i in range(w):
                    at = i + w * (j + h * (k + c * b))
                    o = k // small
                    other = i * s + o % s + w * s * (j * s + o // s + h * s * (k % small + small * b))
                    if reverse:
                        out[other] = flat[at]
                    else:
                        out[at] = flat[other]


@case
def reorg_stride_2(r):
    def forward(b, _):
        n, c, h, w = b[0].shape
        y = np.zeros(b[0].size)
        darknet(b[0].reshape(-1), y, w, h, c, n, 2, False)
        return [y.reshape(n, c * 4, h // 2, w // 2)]
    return Layer('Reorg', 'reorg_param { stride: 2 }', [r.normal(size=(2, 4, 2, 6))], forward)


@case
def reorg_reverse(r):
    def forward(b, _):
        n, c, h, w = b[0].shape
        y = np.zeros(b[0].size)
        darknet(b[0].reshape(-1), y, w, h, c, n, 2, True)
        return [y.reshape(n, c // 4, h * 2, w * 2)]
    return Layer('Reorg', 'reorg_param { stride: 2 reverse: true }', [r.normal(size=(2, 8, 2, 3))], forward)


@case
def upsample_repeats(r):
    def forward(b, _):
        n, c, h, w = b[0].shape
        y = np.zeros((n, c, h * 3, w * 3))
        for i in np.ndindex(*y.shape):
            y[i] = b[0][i[0], i[1], i[2] // 3, i[3] // 3]
        return [y]
    return Layer('Upsample', 'upsample_param { scale: 3 }', [r.normal(size=(1, 2, 2, 3))], forward)


def unpool(x, mask, h, w):
    y = np.zeros(x.shape[:2] + (h, w))
    for i in np.ndindex(*x.shape):
        place = int(mask[i])
        y[i[0], i[1], place // w, place % w] = x[i]
    return y


@case
def upsample_by_mask(r):
    mask = np.zeros((2, 2, 2, 3))
    for plane in np.ndindex(2, 2):
        mask[plane] = r.permutation(4 * 5)[:6].reshape(2, 3)
    return Layer('Upsample', 'upsample_param { scale: 2 pad_out_w: true }', [r.normal(size=(2, 2, 2, 3)), mask],
                 lambda b, _: [unpool(b[0], b[1], 4, 5)], no_gradient=[1])


@case
def upsample_to_size(r):
    mask = np.array([0, 4, 12, 13]).reshape(1, 1, 2, 2)
    return Layer('Upsample', 'upsample_param { upsample_h: 5 upsample_w: 3 }', [r.normal(size=(1, 1, 2, 2)), mask],
                 lambda b, _: [unpool(b[0], b[1], 5, 3)], no_gradient=[1])


# ---- interpolation

def interp(x, out_h, out_w, beg=0, end=0):
    n, c, h, w = x.shape
    inner = x[:, :, beg:h - end, beg:w - end]
    h, w = inner.shape[2:]
    y = np.zeros((n, c, out_h, out_w))
    for i in range(out_h):
        for j in range(out_w):
            a = i * (h - 1) / (out_h - 1) if out_h > 1 else 0.0
            b = j * (w - 1) / (out_w - 1) if out_w > 1 else 0.0
            a0, b0 = min(int(a + 1e-9), h - 1), min(int(b + 1e-9), w - 1)
            a1, b1 = min(a0 + 1, h - 1), min(b0 + 1, w - 1)
            top = inner[:, :, a0, b0] * (1 - (b - b0)) + inner[:, :, a0, b1] * (b - b0)
            below = inner[:, :, a1, b0] * (1 - (b - b0)) + inner[:, :, a1, b1] * (b - b0)
            y[:, :, i, j] = top * (1 - (a - a0)) + below * (a - a0)
    return y


@case
def interp_size(r):
    return Layer('Interp', 'interp_param { height: 7 width: 5 }', [r.normal(size=(1, 2, 4, 3))], lambda b, _: [interp(b[0], 7, 5)])


@case
def interp_zoom_cut(r):
    return Layer('Interp', 'interp_param { zoom_factor: 2 pad_beg: -1 pad_end: -1 }', [r.normal(size=(2, 1, 5, 6))],
                 lambda b, _: [interp(b[0], 5, 7, 1, 1)])


@case
def interp_shrink_then_zoom(r):
    return Layer('Interp', 'interp_param { shrink_factor: 2 zoom_factor: 3 }', [r.normal(size=(1, 2, 5, 6))],
                 lambda b, _: [interp(b[0], 7, 7)])


# ---- arithmetic

@case
def relu6_leaky(r):
    x = np.array([-8, -0.5, 0.25, 3, 5.75, 6.5, 40, -1, 1, 2, 7, 4.0]).reshape(1, 3, 4)
    return Layer('ReLU6', 'relu6_param { negative_slope: 0.25 }', [x],
                 lambda b, _: [np.minimum(np.maximum(b[0], 0) + 0.25 * np.minimum(b[0], 0), 6)])


@case
def axpy_channels(r):
    def forward(b, _):
        y = b[2].copy()
        for n in range(2):
            for c in range(3):
                y[n, c] += b[0][n, c, 0, 0] * b[1][n, c]
        return [y]
    return Layer('Axpy', '', [r.normal(size=(2, 3, 1, 1)), r.normal(size=(2, 3, 2, 2)), r.normal(size=(2, 3, 2, 2))], forward)


@case
def normalize_channels(r):
    def forward(b, p):
        y = np.zeros_like(b[0])
        for n, h, w in np.ndindex(2, 2, 3):
            v = b[0][n, :, h, w]
            y[n, :, h, w] = p[0] * v / np.sqrt(np.sum(v * v) + 1e-10)
        return [y]
    return Layer('Normalize', 'norm_param { across_spatial: false channel_shared: false }', [r.normal(size=(2, 4, 2, 3))], forward,
                 params=[r.uniform(5, 20, size=4)])


@case
def normalize_items(r):
    def forward(b, p):
        return [np.stack([p[0] * item / np.sqrt(np.sum(item ** 2) + 0.5) for item in b[0]])]
    return Layer('Normalize', 'norm_param { eps: 0.5 }', [r.normal(size=(3, 2, 2, 2))], forward, params=[np.array(3.0)])


def depthwise(x, w, bias, stride, pad):
    n, c, h, wide = x.shape
    k = w.shape[2]
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    oh, ow = (h + 2 * pad - k) // stride + 1, (wide + 2 * pad - k) // stride + 1
    y = np.zeros((n, c, oh, ow))
    for i, j in np.ndindex(oh, ow):
        part = padded[:, :, i * stride:i * stride + k, j * stride:j * stride + k]
        y[:, :, i, j] = np.sum(part * w[None, :, 0], axis=(2, 3)) + (0 if bias is None else bias)
    return y


@case
def depthwise_convolution(r):
    return Layer('DepthwiseConvolution', 'convolution_param { num_output: 3 kernel_size: 3 stride: 2 pad: 1 }', [r.normal(size=(2, 3, 4, 5))],
                 lambda b, p: [depthwise(b[0], p[0], p[1], 2, 1)], params=[r.normal(size=(3, 1, 3, 3)), r.normal(size=3)])


@case
def convolution_depthwise(r):
    return Layer('ConvolutionDepthwise', 'convolution_param { kernel_size: 2 bias_term: false }', [r.normal(size=(1, 2, 4, 3))],
                 lambda b, p: [depthwise(b[0], p[0], None, 1, 0)], params=[r.normal(size=(2, 1, 2, 2))])


@case
def dropout_scales_in_test(r):
    return Layer('Dropout', 'dropout_param { scale_train: false dropout_ratio: 0.3 }', [r.normal(size=(2, 5))], lambda b, _: [b[0] * 0.7],
                 phase='TEST')


# ---- normalization

def by_channel(v, like):
    return np.reshape(v, (1, -1) + (1,) * (like.ndim - 2))


def batch_norm(x, mean, variance, eps):
    return (x - by_channel(mean, x)) / np.sqrt(by_channel(variance, x) + eps)


def statistics(x):
    rows = np.moveaxis(x, 1, 0).reshape(x.shape[1], -1)
    return rows.mean(axis=1), ((rows - rows.mean(axis=1, keepdims=True)) ** 2).mean(axis=1)


def one_by_channel(array):
    return np.reshape(array, (1, -1, 1, 1))


@case
def bn_psp_train(r):
    x, params = r.normal(1, 2, size=(3, 2, 2, 2)), [one_by_channel(r.uniform(0.5, 2, size=2)) for _ in range(4)]

    def forward(b, p):
        return [by_channel(p[0], b[0]) * batch_norm(b[0], *statistics(b[0]), 1e-3) + by_channel(p[1], b[0])]

    layer = Layer('BN', 'bn_param { momentum: 0.75 eps: 0.001 }', [x], forward, params=params, forwards=2, fixed_params=[2, 3])

    def after():
        mean, variance = statistics(layer.bottoms[0])
        kept = [p.copy() for p in layer.params]
        for _ in range(2):
            kept[2] = 0.75 * kept[2] + 0.25 * one_by_channel(mean)
            kept[3] = 0.75 * kept[3] + 0.25 * one_by_channel(variance)
        return kept
    layer.after = after
    return layer


def psp_kept(name_param, phase):
    def make(r):
        def forward(b, p):
            return [by_channel(p[0], b[0]) * batch_norm(b[0], p[2], p[3], 1e-5) + by_channel(p[1], b[0])]
        return Layer('BN', name_param, [r.normal(size=(2, 3, 2, 1))], forward, phase=phase,
                     params=[one_by_channel(r.uniform(0.5, 2, size=3)) for _ in range(4)], fixed_params=[0, 1, 2, 3])
    return make


CASES['bn_psp_test'] = psp_kept('bn_param { slope_filler { value: 1 } }', 'TEST')
CASES['bn_psp_frozen'] = psp_kept('bn_param { frozen: true }', 'TRAIN')


def segnet_learn(phase):
    def make(r):
        def forward(b, p):
            return [by_channel(p[0], b[0]) * batch_norm(b[0], *statistics(b[0]), 1e-9) + by_channel(p[1], b[0])]
        return Layer('BN', 'bn_param { scale_filler { value: 1 } shift_filler { value: 0.001 } }', [r.normal(size=(3, 2, 2, 2))], forward,
                     phase=phase, params=[one_by_channel(r.uniform(0.5, 2, size=2)) for _ in range(2)])
    return make


CASES['bn_segnet_learn'] = segnet_learn('TRAIN')
CASES['bn_segnet_learn_test'] = segnet_learn('TEST')


@case
def bn_segnet_inference(r):
    return Layer('BN', 'bn_param { bn_mode: INFERENCE }', [r.normal(size=(2, 3, 2, 2))],
                 lambda b, p: [by_channel(p[0], b[0]) * b[0] + by_channel(p[1], b[0])], phase='TEST',
                 params=[one_by_channel(r.normal(size=3)) for _ in range(2)])


@case
def batch_norm_scale_bias_train(r):
    x = r.normal(size=(3, 2, 2, 2))
    params = [r.normal(size=2), r.uniform(1, 2, size=2), np.array([2.0]), r.uniform(0.5, 2, size=2), r.normal(size=2)]

    def forward(b, p):
        return [by_channel(p[3], b[0]) * batch_norm(b[0], *statistics(b[0]), 1e-5) + by_channel(p[4], b[0])]

    layer = Layer('BatchNorm', 'batch_norm_param { scale_bias: true moving_average_fraction: 0.5 }', [x], forward, params=params,
                  fixed_params=[0, 1, 2])

    def after():
        mean, variance = statistics(layer.bottoms[0])
        p = layer.params
        return [p[0] * 0.5 + mean, p[1] * 0.5 + variance * 12 / 11, p[2] * 0.5 + 1, p[3], p[4]]
    layer.after = after
    return layer


def kept_scale(param, count, phase):
    def make(r):
        def forward(b, p):
            y = by_channel(p[3], b[0]) * batch_norm(b[0], p[0] / p[2][0], p[1] / p[2][0], 1e-5)
            return [y + by_channel(p[4], b[0]) if count == 5 else y]
        params = [r.normal(size=2), r.uniform(1, 2, size=2), np.array([1.5]), r.uniform(0.5, 2, size=2), r.normal(size=2)][:count]
        return Layer('BatchNorm', param, [r.normal(size=(3, 2, 2, 2))], forward, phase=phase, params=params, fixed_params=[0, 1, 2],
                     backward=phase == 'TRAIN')
    return make


CASES['batch_norm_scale_bias_test'] = kept_scale('batch_norm_param { scale_bias: true }', 5, 'TEST')
CASES['batch_norm_scale_bias_global'] = kept_scale('batch_norm_param { scale_bias: true use_global_stats: true }', 5, 'TRAIN')
CASES['batch_norm_intel_scale'] = kept_scale('batch_norm_param { use_weight_bias: true bias_term: false use_global_stats: true }', 4, 'TRAIN')


# ---- losses

def labels(r, classes, shape):
    return r.integers(0, classes, size=shape).astype(float)


def class_loss(term, divide):
    def forward(b, _):
        p, total, counted = softmax(b[0]), 0.0, 0
        for i in np.ndindex(*b[1].shape):
            label = int(b[1][i])
            value = term(p[(i[0], label) + i[1:]], label, b[1])
            if value is not None:
                total, counted = total + value, counted + 1
        return [np.array(total / divide(counted))]
    return forward


@case
def softmax_loss_pre_fixed(r):
    return Layer('SoftmaxWithLoss', 'loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 2.5 }',
                 [r.normal(size=(4, 3)), labels(r, 3, (4,))], class_loss(lambda p, l, _: -np.log(p), lambda n: 2.5), no_gradient=[1], loss=1.0)


@case
def softmax_loss_class_weighting(r):
    weights = [0.25, 2.0, 1.5]
    return Layer('SoftmaxWithLoss',
                 'loss_param { weight_by_label_freqs: true ignore_label: 2 class_weighting: 0.25 class_weighting: 2 class_weighting: 1.5 }',
                 [r.normal(size=(2, 3, 2, 2)), np.array([0, 1, 2, 1, 0, 0, 2, 1.0]).reshape(2, 2, 2)],
                 class_loss(lambda p, l, _: None if l == 2 else -weights[l] * np.log(p), lambda n: n), no_gradient=[1], loss=1.0)


@case
def softmax_loss_label_freqs(r):
    return Layer('SoftmaxWithLoss', 'loss_param { weight_by_label_freqs: true } loss_weight: 2',
                 [r.normal(size=(2, 3, 2, 2)), np.array([0, 1, 2, 1, 0, 0, 0, 1.0]).reshape(2, 2, 2)],
                 class_loss(lambda p, l, all_labels: -np.log(p) / np.sum(all_labels == l), lambda n: n), no_gradient=[1], loss=2.0)


@case
def sigmoid_loss_pre_fixed(r):
    def forward(b, _):
        s = 1 / (1 + np.exp(-b[0]))
        return [np.array(-np.sum(b[1] * np.log(s) + (1 - b[1]) * np.log(1 - s)) / 8)]
    return Layer('SigmoidCrossEntropyLoss', 'loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 8 }',
                 [r.normal(size=(3, 2)), r.uniform(size=(3, 2))], forward, no_gradient=[1], loss=1.0)


def focal(alpha, gamma):
    return lambda p, l, _: -alpha * (1 - p) ** gamma * np.log(p)


@case
def focal_loss(r):
    return Layer('FocalLoss', '', [r.normal(size=(5, 3)), labels(r, 3, (5,))], class_loss(focal(0.25, 2.0), lambda n: n), no_gradient=[1],
                 loss=1.0)


@case
def focal_loss_spatial(r):
    return Layer('SoftmaxFocalLoss', 'focal_loss_param { alpha: 2 gamma: 0.5 } loss_param { normalization: BATCH_SIZE } loss_weight: 0.5',
                 [r.normal(size=(2, 3, 2, 2)), labels(r, 3, (2, 2, 2))], class_loss(focal(2.0, 0.5), lambda n: 2), no_gradient=[1], loss=0.5)


@case
def center_loss(r):
    layer = Layer('CenterLoss', 'center_loss_param { num_output: 3 } loss_weight: 0.5', [r.normal(size=(4, 3)), np.array([2, 0, 2, 2.0])],
                  lambda b, p: [np.array(sum(np.sum((x - p[0][int(l)]) ** 2) for x, l in zip(*b)) / 2 / len(b[0]))],
                  params=[r.normal(size=(3, 3))], no_gradient=[1], loss=0.5)

    def pulls():
        features, of = layer.bottoms
        out = np.zeros((3, 3))
        for j in range(3):
            members = [x for x, l in zip(features, of) if l == j]
            out[j] = sum((layer.params[0][j] - x for x in members), np.zeros(3)) / (1 + len(members))
        return [out]
    layer.param_diffs = pulls
    return layer


@case
def focal_loss_linear(r):
    return Layer('FocalLoss', 'focal_loss_param { type: LINEAR beta: 3 }', [r.normal(size=(4, 3)), labels(r, 3, (4,))],
                 class_loss(focal(0.25, 2.0), lambda n: n), no_gradient=[1], loss=1.0)


# ---- three axes

def pooled3d(x, depth, side, depth_stride, side_stride, pad, reduce):
    """Each window on its own: its numbers, and its size where it is clipped to the padded frames."""
    out = lambda size, kernel, stride, p: -(-(size + 2 * p - kernel) // stride) + 1
    n, c, length, h, w = x.shape
    y = np.zeros((n, c, out(length, depth, depth_stride, 0), out(h, side, side_stride, pad), out(w, side, side_stride, pad)))
    for at in np.ndindex(y.shape):
        begins = [at[2] * depth_stride, at[3] * side_stride - pad, at[4] * side_stride - pad]
        ends = [min(begins[0] + depth, length), min(begins[1] + side, h + pad), min(begins[2] + side, w + pad)]
        area = np.prod([e - b for b, e in zip(begins, ends)])
        window = x[at[0], at[1]][tuple(slice(max(b, 0), max(e, 0)) for b, e in zip(begins, ends))]
        y[at] = reduce(window, area)
    return y


def pooling3d(r, shape, fields, sizes, method):
    reduce = (lambda window, _: window.max()) if method == 'MAX' else (lambda window, area: window.sum() / area)
    return Layer('Pooling3D', 'pooling_param { pool: %s %s }' % (method, fields), [r.normal(size=shape)],
                 lambda b, _: [pooled3d(b[0], *sizes, reduce)])


@case
def pooling3d_max(r):
    return pooling3d(r, (2, 2, 5, 4, 6), 'kernel_size: 2 kernel_depth: 3 stride: 2 temporal_stride: 2', (3, 2, 2, 2, 0), 'MAX')


@case
def pooling3d_max_frames(r):
    return pooling3d(r, (1, 3, 3, 5, 4), 'kernel_size: 3 kernel_depth: 1 stride: 2', (1, 3, 1, 2, 0), 'MAX')


@case
def pooling3d_mean_padded(r):
    return pooling3d(r, (2, 2, 4, 4, 5), 'kernel_size: 3 kernel_depth: 3 stride: 2 temporal_stride: 2 pad: 1', (3, 3, 2, 2, 1), 'AVE')


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / 'forks')
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in CASES.items():
        random = np.random.default_rng(zlib.crc32(name.encode()))
        write(folder, name, make(random), random)


main()
