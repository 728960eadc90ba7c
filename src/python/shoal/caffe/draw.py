"""Pictures of nets, by Graphviz: the program dot, or the package pydot for get_pydot_graph."""
import subprocess

from .. import Error

_LAYER, _IN_PLACE, _BLOB = '#6495ED', '#90EE90', '#E0E0E0'
_COLOURS = {'Convolution': '#FF5050', 'Deconvolution': '#FF5050', 'Pooling': '#FF9900', 'InnerProduct': '#CC33FF'}


def _quoted(text):
    return '"' + text.replace('\\', '\\\\').replace('"', '\\"').replace('\n', '\\n') + '"'


def get_layer_lr_mult(layer):
    """The rates of a layer's weight and bias."""
    return tuple(layer.param[i].lr_mult if i < len(layer.param) else 1.0 for i in range(2))


def _window_of(layer):
    if layer.type == 'Pooling':
        window = layer.pooling_param
        return window.kernel_size, window.stride, window.pad
    window = layer.convolution_param
    return tuple(values[0] if len(values) else default
                 for values, default in ((window.kernel_size, 1), (window.stride, 1), (window.pad, 0)))


def get_layer_label(layer, rankdir='LR', display_lrm=False):
    """The words on a layer: name and type, its window, its rates."""
    parts = [layer.name, f'({layer.type})']
    if layer.type in ('Convolution', 'Deconvolution', 'Pooling'):
        parts.append('kernel size: %d stride: %d pad: %d' % _window_of(layer))
    if display_lrm and layer.type in ('Convolution', 'Deconvolution', 'InnerProduct'):
        parts.append('lr mult: %.1f, %.1f' % get_layer_lr_mult(layer))
    return (' ' if rankdir in ('TB', 'BT') else '\n').join(parts)


def get_edge_label(layer):
    """The words on the way to a layer's tops."""
    if layer.type == 'Data':
        return f'Batch {layer.data_param.batch_size}'
    if layer.type in ('Convolution', 'Deconvolution'):
        return str(layer.convolution_param.num_output)
    return str(layer.inner_product_param.num_output) if layer.type == 'InnerProduct' else ''


def _is_in(layer, phase):
    if phase is None:
        return True
    if layer.include and layer.exclude:
        raise Error(f"layer '{layer.name}' has both include and exclude")
    if layer.include:
        return any(not rule.HasField('phase') or rule.phase == phase for rule in layer.include)
    return not any(rule.HasField('phase') and rule.phase == phase for rule in layer.exclude)


def dot_text(caffe_net, rankdir='LR', label_edges=True, phase=None, display_lrm=False):
    """The net in Graphviz's language."""
    lines, blobs = [], set()
    for number, layer in enumerate(layer for layer in caffe_net.layer if _is_in(layer, phase)):
        in_place = len(layer.bottom) == len(layer.top) == 1 and layer.bottom[0] == layer.top[0]
        colour = _IN_PLACE if in_place else _COLOURS.get(layer.type, _LAYER)
        lines.append(f'l{number} [label={_quoted(get_layer_label(layer, rankdir, display_lrm))}, shape=box, style=filled, '
                     f'fillcolor="{colour}"];')
        blobs.update([*layer.bottom, *layer.top])
        label = get_edge_label(layer) if label_edges else ''
        lines += [f'{_quoted("blob " + bottom)} -> l{number};' for bottom in layer.bottom]
        lines += [f'l{number} -> {_quoted("blob " + top)} [label={_quoted(label)}];' for top in layer.top]
    lines += [f'{_quoted("blob " + blob)} [label={_quoted(blob)}, shape=octagon, style=filled, fillcolor="{_BLOB}"];'
              for blob in sorted(blobs)]
    return 'digraph %s {\nrankdir=%s;\n%s\n}\n' % (_quoted(caffe_net.name or 'Net'), rankdir, '\n'.join(lines))


def get_pydot_graph(caffe_net, rankdir='LR', label_edges=True, phase=None, display_lrm=False):
    """The net as a graph of the package pydot."""
    import pydot
    return pydot.graph_from_dot_data(dot_text(caffe_net, rankdir, label_edges, phase, display_lrm))[0]


def draw_net(caffe_net, rankdir='LR', ext='png', phase=None, display_lrm=False):
    """The bytes of a picture of the net; ext 'raw' or 'dot': its text."""
    text = dot_text(caffe_net, rankdir, True, phase, display_lrm).encode()
    if ext in ('raw', 'dot'):
        return text
    try:
        return subprocess.run(['dot', '-T' + ext], input=text, stdout=subprocess.PIPE, check=True).stdout
    except FileNotFoundError:
        raise Error('pictures need the program dot (apt install graphviz); .dot files do not') from None


def draw_net_to_file(caffe_net, filename, rankdir='LR', phase=None, display_lrm=False):
    """Writes a picture of the net, of the kind that the file's ending names."""
    picture = draw_net(caffe_net, rankdir, filename.rsplit('.', 1)[-1], phase, display_lrm)
    with open(filename, 'wb') as file:
        file.write(picture)
