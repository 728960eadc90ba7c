"""A net, with the interface of pycaffe's."""
import os
from collections import OrderedDict

import numpy as np

from . import _shoal
from ._library import Error
from .machine import machine, source_of


class NetLayer:
    """A layer of a net: its type and its params."""

    def __init__(self, name, type_, blobs):
        self.name, self.type, self.blobs = name, type_, blobs

    def __repr__(self):
        return f"<{self.type} '{self.name}'>"


class Net:
    """Net(file, phase, level=0, stages=None, weights=None), or Net(file, weights, phase).

    file: a prototxt, or a NetParameter. weights: a model, or several. gpu, threads and seed: shoal.machine's if not given."""

    def __init__(self, network_file, phase=None, level=0, stages=None, weights=None, *, gpu=None, threads=None, seed=None):
        if isinstance(phase, (str, os.PathLike)):
            phase, weights, level = level, phase, 0
        if phase is None:
            raise Error('Net(file, phase): phase is missing; give TRAIN or TEST')
        source, is_text = source_of(network_file)
        net = _shoal.Net(source, is_text, phase, level, list(stages or []), **machine.arguments(gpu, threads, seed))
        self._take(net)
        for file in [weights] if isinstance(weights, (str, os.PathLike)) else weights or []:
            self.copy_from(file)

    @classmethod
    def _of(cls, net):
        wrapped = cls.__new__(cls)
        wrapped._take(net)
        return wrapped

    def _take(self, net):
        self._net = net
        self._layer_names = net.layer_names()
        self._blob_names = net.blob_names()
        self._blobs = net.blobs()
        self._inputs, self._outputs = net.inputs(), net.outputs()
        self._blob_loss_weights = net.loss_weights()
        self._blobs_dict = OrderedDict(zip(self._blob_names, self._blobs))
        objects = net.layer_objects()
        self.layers = [NetLayer(name, type_, net.params(i)) if objects[i] is None else objects[i]
                       for i, (name, type_) in enumerate(zip(self._layer_names, net.layer_types()))]
        self._params_dict = OrderedDict((name, net.params(i)) for i, name in enumerate(self._layer_names) if net.params(i))

    def _ids(self, of):
        return OrderedDict((name, [self._blob_names[b] for b in of(i)]) for i, name in enumerate(self._layer_names))

    name = property(lambda self: self._net.name)
    blobs = property(lambda self: self._blobs_dict, doc='Blobs by name, in the order in which they are made.')
    params = property(lambda self: self._params_dict, doc='Lists of params (weights, bias ...) by the name of their layer.')
    layer_dict = property(lambda self: OrderedDict(zip(self._layer_names, self.layers)))
    blob_loss_weights = property(lambda self: OrderedDict(zip(self._blob_names, self._blob_loss_weights)))
    inputs = property(lambda self: [self._blob_names[i] for i in self._inputs])
    outputs = property(lambda self: [self._blob_names[i] for i in self._outputs])
    top_names = property(lambda self: self._ids(self._net.top_ids))
    bottom_names = property(lambda self: self._ids(self._net.bottom_ids))

    def _top_ids(self, layer):
        return self._net.top_ids(layer)

    def _bottom_ids(self, layer):
        return self._net.bottom_ids(layer)

    def _forward(self, first, last):
        return self._net.forward(first, last)

    def _backward(self, first, last):
        self._net.backward(first, last)

    def _index(self, layer):
        if layer not in self._layer_names:
            raise Error(f"net '{self.name}' has no layer '{layer}'; it has {', '.join(self._layer_names)}")
        return self._layer_names.index(layer)

    def _blob(self, name):
        if name not in self._blobs_dict:
            raise Error(f"net '{self.name}' has no blob '{name}'; it has {', '.join(self._blob_names)}")
        return self._blobs_dict[name]

    def _fill(self, given, wanted, what, attribute):
        """Puts the given arrays, by name, into the data or diff of the blobs that are wanted."""
        if given and set(given) != set(wanted):
            raise Error(f"{', '.join(sorted(given))}: given by name are not the net's {what}, {', '.join(sorted(wanted))}")
        for name, array in given.items():
            blob, shape = self._blob(name), np.shape(array)
            if not shape or not blob.shape or shape[0] != blob.shape[0]:
                raise Error(f"'{name}' is given with the shape {shape}; the batch of {what} '{name}' is {blob.shape}")
            try:
                getattr(blob, attribute)[...] = array
            except ValueError as error:
                raise Error(f"'{name}' is given with the shape {shape}, and the blob has {blob.shape}: {error}") from None

    def forward(self, blobs=None, start=None, end=None, **kwargs):
        """Computes from layer `start` to layer `end`, both included, or all; kwargs are arrays for the inputs by name. Returns
        the arrays of the outputs, or of `end`'s tops, and of `blobs`, by name."""
        self._fill(kwargs, self.inputs, 'inputs', 'data')
        names = (self.outputs if end is None else self.top_names[self._layer_names[self._index(end)]]) + list(blobs or [])
        wanted = [(name, self._blob(name)) for name in names]
        self._forward(0 if start is None else self._index(start), len(self.layers) - 1 if end is None else self._index(end))
        return {name: blob.data for name, blob in wanted}

    def backward(self, diffs=None, start=None, end=None, **kwargs):
        """Computes gradients from layer `start` down to layer `end`, both included, or all; kwargs are gradients of the outputs
        by name. Returns those of the inputs, or of `end`'s bottoms, and of `diffs`, by name."""
        self._fill(kwargs, self.outputs, 'outputs', 'diff')
        names = (self.inputs if end is None else self.bottom_names[self._layer_names[self._index(end)]]) + list(diffs or [])
        wanted = [(name, self._blob(name)) for name in names]
        self._backward(len(self.layers) - 1 if start is None else self._index(start), 0 if end is None else self._index(end))
        return {name: blob.diff for name, blob in wanted}

    def _batch(self, arrays):
        """Cuts arrays of any length into batches, the last one filled up with zeros."""
        if not arrays:
            return
        size = self._blobs[0].shape[0]
        count = len(next(iter(arrays.values())))
        for at in range(0, count, size):
            batch = {}
            for name, array in arrays.items():
                part = np.asarray(array[at:at + size])
                missing = size - len(part)
                batch[name] = np.concatenate([part, np.zeros((missing,) + part.shape[1:], part.dtype)]) if missing else part
            yield batch

    def forward_all(self, blobs=None, **kwargs):
        """Does forward() on arrays of any length, batch by batch, and returns whole arrays."""
        return self._in_batches(kwargs, {}, blobs, None, backward=False)[0]

    def forward_backward_all(self, blobs=None, diffs=None, **kwargs):
        """Does forward() and backward() on arrays of any length, batch by batch. Returns whole arrays of both."""
        above = {name: kwargs.pop(name) for name in self.outputs if name in kwargs}
        return self._in_batches(kwargs, above, blobs, diffs, backward=True)

    def _in_batches(self, below, above, blobs, diffs, backward):
        lengths = {len(array) for array in {**below, **above}.values()}
        if len(lengths) != 1:
            raise Error('arrays of inputs are needed, all of one length' if not lengths else
                        f'the arrays have different lengths: {sorted(lengths)}')
        length = lengths.pop()
        data, gradients = {}, {}
        gradients_of = iter(self._batch(above))
        for batch in self._batch(below) if below else ({} for _ in self._batch(above)):
            for name, array in self.forward(blobs=blobs, **batch).items():
                data.setdefault(name, []).append(np.array(array))
            if backward:
                for name, array in self.backward(diffs=diffs, **next(gradients_of, {})).items():
                    gradients.setdefault(name, []).append(np.array(array))

        def whole(parts):
            return {name: np.concatenate([np.atleast_1d(part) for part in all_])[:length] for name, all_ in parts.items()}
        return whole(data), whole(gradients)

    def reshape(self):
        """Lets all layers follow the inputs' shapes, as forward() does too."""
        self._net.reshape()

    def save(self, path):
        """Writes a .caffemodel."""
        self._net.save(os.fspath(path), hdf5=False)

    def save_hdf5(self, path):
        self._net.save(os.fspath(path), hdf5=True)

    def copy_from(self, path):
        """Copies params by layer name from a model, in either format."""
        self._net.copy_from(os.fspath(path))

    load_hdf5 = copy_from

    def share_with(self, other):
        """Looks from now on at the params of `other`, by layer name."""
        self._net.share_with(other._net)

    def clear_param_diffs(self):
        self._net.clear_param_diffs()

    def set_input_arrays(self, data, labels):
        """Gives the net's MemoryData layer what it is to read: items x channels x height x width, and a label each."""
        data, labels = np.asarray(data), np.asarray(labels)
        if data.ndim != 4 or labels.size != len(data):
            raise Error(f'data must have 4 axes, and labels one number an item; their shapes are {data.shape} and {labels.shape}')
        self._net.set_input_arrays(data, labels.reshape(-1))

    def before_forward(self, call):
        self._net.before_forward(call)

    def after_forward(self, call):
        self._net.after_forward(call)

    def before_backward(self, call):
        self._net.before_backward(call)

    def after_backward(self, call):
        self._net.after_backward(call)
