"""How coordinates of one blob of a NetSpec relate to those of another, and the Crop layer that this asks for.

A map is (axis, scale, shift): a place x of the lower blob is scale * y + shift, y that of the upper one, on the axes from `axis`
on. axis None is a layer that leaves places as they are."""
import numpy as np

from .net_spec import layers

PASS_THROUGH_LAYERS = ['AbsVal', 'BatchNorm', 'Bias', 'BNLL', 'Clip', 'Dropout', 'ELU', 'Eltwise', 'Exp', 'LRN', 'Log', 'MVN',
                       'PReLU', 'Power', 'ReLU', 'ReLU6', 'Scale', 'Sigmoid', 'Split', 'Swish', 'TanH', 'Threshold']
_IDENTITY = (None, 1, 0)


class UndefinedMapException(Exception):
    """A layer that has no map."""


class AxisMismatchException(Exception):
    """Maps that begin at different axes."""


def conv_params(fn):
    """(axis, stride, extent of the kernel, pad) of a layer with a window."""
    given = fn.params.get('convolution_param', fn.params.get('pooling_param', fn.params))
    old = {'pad_h', 'pad_w', 'kernel_h', 'kernel_w', 'stride_h', 'stride_w'} & set(given)
    if old:
        raise ValueError(f"{', '.join(sorted(old))} of a {fn.type_name} layer: maps are made of kernel_size, stride and pad")

    def numbers(name, default):
        return np.array(given.get(name, default), ndmin=1)
    extent = (np.array(given['kernel_size'], ndmin=1) - 1) * numbers('dilation', 1) + 1
    return given.get('axis', 1), numbers('stride', 1), extent, numbers('pad', 0)


def crop_params(fn):
    """(axis, offset) of a Crop layer."""
    given = fn.params.get('crop_param', fn.params)
    return given.get('axis', 2), np.array(given.get('offset', 0), ndmin=1)


def coord_map(fn):
    """The map of a layer."""
    if fn.type_name in PASS_THROUGH_LAYERS:
        return _IDENTITY
    if fn.type_name in ('Convolution', 'Pooling', 'Im2col'):
        axis, stride, extent, pad = conv_params(fn)
        return axis, 1 / stride, (pad - (extent - 1) / 2) / stride
    if fn.type_name == 'Deconvolution':
        axis, stride, extent, pad = conv_params(fn)
        return axis, stride, (extent - 1) / 2 - pad
    if fn.type_name == 'Crop':
        axis, offset = crop_params(fn)
        return axis - 1, 1, -offset
    raise UndefinedMapException(f'a {fn.type_name} layer has no map of coordinates')


def compose(base_map, next_map):
    """The map of one layer behind another."""
    (axis, scale, shift), (next_axis, next_scale, next_shift) = base_map, next_map
    if None not in (axis, next_axis) and axis != next_axis:
        raise AxisMismatchException(f'maps from axis {axis} on and from axis {next_axis} on')
    return next_axis if axis is None else axis, scale * next_scale, scale * next_shift + shift


def inverse(map_):
    axis, scale, shift = map_
    return axis, 1 / scale, -shift / scale


def _maps_below(top):
    """Goes down from a top, nearest layers first: (blob, the map from the blob to the top) of each blob on the way."""
    found, waiting = {top}, [(top, _IDENTITY)]
    for blob, map_ in waiting:
        yield blob, map_
        try:
            own = coord_map(blob.fn)
        except UndefinedMapException:
            continue
        # A Crop follows its first bottom; the second gives the size.
        for bottom in blob.fn.inputs[:1] if blob.fn.type_name == 'Crop' else blob.fn.inputs:
            if bottom not in found:
                found.add(bottom)
                waiting.append((bottom, compose(map_, own)))


def coord_map_from_to(top_from, top_to):
    """The map from one top to another, over a blob that both come from."""
    maps = dict(_maps_below(top_from))
    for blob, map_ in _maps_below(top_to):
        if blob in maps:
            return compose(map_, inverse(maps[blob]))
    raise RuntimeError('the tops come from no common blob by layers that have maps of coordinates')


def crop(top_from, top_to):
    """A Crop layer that cuts top_from to the places of top_to."""
    axis, scale, shift = coord_map_from_to(top_from, top_to)
    shift = np.array(shift, ndmin=1)
    for wrong, what in (((np.array(scale) != 1).any(), f'the scales differ by {scale}'),
                        ((shift > 0).any(), f'the offset is below 0: {-shift}'),
                        ((np.round(shift) != shift).any(), f'the offset is not whole: {-shift}')):
        if wrong:
            raise AssertionError(f'a crop cannot bring these tops together: {what}')
    return layers.Crop(top_from, top_to,
                       crop_param={'axis': (1 if axis is None else axis) + 1, 'offset': [int(-s) for s in np.round(shift)]})
