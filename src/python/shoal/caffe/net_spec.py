"""Nets written in Python: NetSpec, and the pseudo-modules layers and params.

    n = NetSpec()
    n.data, n.label = layers.Data(source='train_lmdb', batch_size=64, backend=params.Data.LMDB, ntop=2)
    n.conv = layers.Convolution(n.data, kernel_size=5, num_output=20)
    net = Net(n.to_proto(), TRAIN)
"""
from collections import Counter, OrderedDict

from .. import Error
from .proto import caffe_pb2

_FIELDS = caffe_pb2.LayerParameter.DESCRIPTOR.fields_by_name
# The field of a layer type's own parameters: Convolution to convolution_param. Caffe's fields have lower numbers than those of forks.
_PARAMS = {field.message_type.name[:-len('Parameter')]: field.name
           for field in sorted(_FIELDS.values(), key=lambda field: -field.number)
           if field.name.endswith('_param') and field.message_type is not None}


def assign_proto(message, name, value):
    """Sets a field: a dict is a message, a list a repeated field; a repeated field takes a single value too."""
    field = message.DESCRIPTOR.fields_by_name.get(name)
    if field is None:
        raise AttributeError(f'{message.DESCRIPTOR.name} has no field {name}')
    repeated = hasattr(getattr(message, name), 'extend')
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if repeated and values and isinstance(values[0], dict):
        for each in values:
            _assign_all(getattr(message, name).add(), each)
    elif repeated:
        getattr(message, name).extend(values)
    elif isinstance(value, dict):
        getattr(message, name).SetInParent()
        _assign_all(getattr(message, name), value)
    elif hasattr(value, 'SerializeToString'):
        getattr(message, name).CopyFrom(value)
    else:
        setattr(message, name, value)


def _assign_all(message, values):
    for name, value in values.items():
        assign_proto(message, name, value)


class Top:
    """A blob that a layer makes: its n-th top."""

    def __init__(self, fn, n):
        self.fn, self.n = fn, n

    def to_proto(self):
        return to_proto(self)

    def _to_proto(self, layers_, names, autonames):
        return self.fn._to_proto(layers_, names, autonames)


class Function:
    """A layer: its type, its bottoms (Tops) and its fields."""

    def __init__(self, type_name, inputs, params_):
        for number, bottom in enumerate(inputs):
            if not isinstance(bottom, Top):
                raise TypeError(f'{type_name} input {number} is not a Top (type is {type(bottom)})')
        self.type_name, self.inputs, self.params = type_name, inputs, dict(params_)
        self.ntop = self.params.pop('ntop', 1)
        self.in_place = self.params.pop('in_place', False)
        self.tops = tuple(Top(self, n) for n in range(self.ntop))

    def _name_of(self, thing, names, autonames):
        if thing not in names:
            autonames[self.type_name] += 1
            names[thing] = f'{self.type_name}{autonames[self.type_name]}'
        return names[thing]

    def _to_proto(self, layers_, names, autonames):
        """Adds this layer's message, and those of the layers below it, to layers_."""
        if self in layers_:
            return
        bottoms = []
        for bottom in self.inputs:
            bottom._to_proto(layers_, names, autonames)
            bottoms.append(layers_[bottom.fn].top[bottom.n])
        layer = caffe_pb2.LayerParameter(type=self.type_name, bottom=bottoms)
        layer.top.extend(bottoms if self.in_place else [self._name_of(top, names, autonames) for top in self.tops])
        layer.name = self._name_of(self.tops[0] if self.tops else self, names, autonames)
        for name, value in self.params.items():
            self._set(layer, name, value)
        layers_[self] = layer

    def _set(self, layer, name, value):
        own = _PARAMS.get(self.type_name)
        is_own = own is not None and name in getattr(layer, own).DESCRIPTOR.fields_by_name
        if name.endswith('param') or not is_own:
            try:
                assign_proto(layer, name, value)
            except AttributeError:
                raise Error(f"a {self.type_name} layer has no field '{name}'"
                            + (f', nor has its {own}' if own else '')) from None
        else:
            assign_proto(getattr(layer, own), name, value)


def _net_of(tops, names):
    layers_, autonames = OrderedDict(), Counter()
    for top in tops:
        top._to_proto(layers_, names, autonames)
    return caffe_pb2.NetParameter(layer=layers_.values())


def to_proto(*tops):
    """The NetParameter of all layers that these tops need, with names made of their types."""
    return _net_of(tops, {})


class NetSpec:
    """Its attributes are tops, whose names become those of blobs and layers."""

    def __init__(self):
        super().__setattr__('tops', OrderedDict())

    def __setattr__(self, name, top):
        self.tops[name] = top

    def __getattr__(self, name):
        if name not in self.tops:
            raise AttributeError(f'no top {name}')
        return self.tops[name]

    def __delattr__(self, name):
        del self.tops[name]

    __setitem__ = __setattr__
    __getitem__ = __getattr__
    __delitem__ = __delattr__

    def to_proto(self):
        """The NetParameter of all layers that the tops need."""
        return _net_of(self.tops.values(), {top: name for name, top in self.tops.items()})


class _Layers:
    """layers.Convolution(bottom, num_output=20) is the top of a Convolution layer; ntop=2 are two, ntop=0 is the layer."""

    def __getattr__(self, type_name):
        def layer(*bottoms, **fields):
            made = Function(type_name, bottoms, fields)
            return made if made.ntop == 0 else made.tops[0] if made.ntop == 1 else made.tops
        return layer


class _Params:
    """params.Pooling.MAX is that value of PoolingParameter."""

    def __getattr__(self, name):
        message = getattr(caffe_pb2, name + 'Parameter', None)
        if message is None:
            raise AttributeError(f'there is no {name}Parameter')
        return message


layers = _Layers()
params = _Params()
