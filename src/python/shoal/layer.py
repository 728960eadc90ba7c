"""The base class of layers that are written in Python."""


class Layer:
    """A net makes an object of the class that `python_param { module: layer: }` names. It sets param_str, phase, type and blobs,
    then calls setup, reshape, forward and backward as pycaffe does. Blobs are the layer's for the time of a call."""

    def __init__(self, *_):
        pass

    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        pass

    def forward(self, bottom, top):
        raise NotImplementedError(f'{type(self).__name__} has no forward(bottom, top)')

    def backward(self, top, propagate_down, bottom):
        if any(propagate_down):
            raise NotImplementedError(f'{type(self).__name__} has no backward(top, propagate_down, bottom), and a layer below '
                                      'needs its gradient; say propagate_down: false if that is meant')
