#!/usr/bin/env python3
"""Writes the nets of MXNet-G's documented example for CIFAR-10, 28 x 28 cut out of 32 x 32, to the standard output.

  scripts/cifar10_nets.py inception-bn-28-small    as in models/cifar10_inception_bn
  scripts/cifar10_nets.py resnet-20                as in models/cifar10_resnet20; any depth 6n + 2, and from 164 on 9n + 2 with bottlenecks

Sources: Ioffe and Szegedy, "Batch normalization", 2015, in the small form of MXNet's examples; He et al., "Identity mappings in deep
residual networks", 2016."""
import argparse
import sys

DATA = '''layer {{
  name: "data"
  type: "Data"
  top: "data"
  top: "label"
  include {{
    phase: {phase}
    not_stage: "dummy"
  }}
  transform_param {{
    mirror: {mirror}
    crop_size: 28
    mean_value: 113.9
    mean_value: 123
    mean_value: 125.3
    scale: 0.016
  }}
  data_param {{
    source: "examples/cifar10/cifar10_{set}_lmdb"
    batch_size: {batch}
    backend: LMDB
    shared_file_system: true
  }}
}}
'''
DUMMY = '''layer {
  name: "data"
  type: "DummyData"
  top: "data"
  top: "label"
  include {
    stage: "dummy"
  }
  dummy_data_param {
    shape {
      dim: 128
      dim: 3
      dim: 28
      dim: 28
    }
    shape {
      dim: 128
    }
    data_filler {
      type: "gaussian"
      std: 1
    }
    data_filler {
      type: "constant"
    }
  }
}
'''


def fields(items, indent):
    """(name, value) pairs as lines; a list is a block."""
    text = ''
    for name, value in items:
        if isinstance(value, list):
            text += f'{indent}{name} {{\n{fields(value, indent + "  ")}{indent}}}\n'
        else:
            text += f'{indent}{name}: {value}\n'
    return text


class Net:
    def __init__(self, name):
        self.text = f'name: "{name}"\n' + DATA.format(phase='TRAIN', mirror='true', set='train', batch=128) \
            + DATA.format(phase='TEST', mirror='false', set='test', batch=100) + DUMMY

    def layer(self, name, kind, bottoms, top, *more):
        items = [('name', f'"{name}"'), ('type', f'"{kind}"'), *(('bottom', f'"{bottom}"') for bottom in bottoms), ('top', f'"{top}"'), *more]
        self.text += f'layer {{\n{fields(items, "  ")}}}\n'
        return top

    def conv(self, name, bottom, outputs, kernel, stride=1, bias=False):
        return self.layer(name, 'Convolution', [bottom], name, ('convolution_param', [
            ('num_output', outputs), *([] if bias else [('bias_term', 'false')]), ('kernel_size', kernel),
            *([('stride', stride)] if stride > 1 else []), *([('pad', kernel // 2)] if kernel > 1 else []),
            ('weight_filler', [('type', '"msra"')])]))

    def norm(self, name, bottom, top, scale=True):
        """BatchNorm with Scale. Without `scale` the factors stay 1, as MXNet's fix_gamma has them."""
        self.layer(name, 'BatchNorm', [bottom], top, ('batch_norm_param', [('moving_average_fraction', 0.9), ('eps', '2e-05')]))
        fixed = [] if scale else [('param', [('lr_mult', 0), ('decay_mult', 0)]), ('param', [('decay_mult', 0)])]
        self.layer(f'{name}_scale', 'Scale', [top], top, *fixed, ('scale_param', [('bias_term', 'true')]))
        return top

    def relu(self, blob):
        return self.layer(f'{blob}_relu', 'ReLU', [blob], blob)

    def pool(self, name, bottom, *window):
        return self.layer(name, 'Pooling', [bottom], name, ('pooling_param', list(window)))

    def end(self, bottom):
        top = self.pool('global_pool', bottom, ('pool', 'AVE'), ('global_pooling', 'true'))
        self.layer('fc1', 'InnerProduct', [top], 'fc1', ('inner_product_param', [('num_output', 10), ('weight_filler', [('type', '"xavier"')])]))
        self.layer('accuracy', 'Accuracy', ['fc1', 'label'], 'accuracy', ('include', [('phase', 'TEST')]))
        self.layer('loss', 'SoftmaxWithLoss', ['fc1', 'label'], 'loss')
        return self.text


def inception():
    net = Net('inception-bn-28-small')

    def unit(name, bottom, outputs, kernel, stride=1):
        return net.relu(net.norm(f'{name}_bn', net.conv(name, bottom, outputs, kernel, stride), name))

    top = unit('conv1', 'data', 96, 3)
    for name, shape in (('3a', (32, 32)), ('3b', (32, 48)), ('3c', 80), ('4a', (112, 48)), ('4b', (96, 64)), ('4c', (80, 80)), ('4d', (48, 96)),
                        ('4e', 96), ('5a', (176, 160)), ('5b', (176, 160))):
        if isinstance(shape, int):                        # halves the image
            parts = [unit(f'in{name}_3x3', top, shape, 3, 2),
                     net.pool(f'in{name}_pool', top, ('pool', 'MAX'), ('kernel_size', 3), ('stride', 2), ('pad', 1), ('round_mode', 'FLOOR'))]
        else:
            parts = [unit(f'in{name}_1x1', top, shape[0], 1), unit(f'in{name}_3x3', top, shape[1], 3)]
        top = net.layer(f'in{name}', 'Concat', parts, f'in{name}')
    return net.end(top)


def resnet(depth):
    deep = depth >= 164 and (depth - 2) % 9 == 0
    if not deep and (depth < 8 or (depth - 2) % 6 != 0):
        sys.exit(f'resnet-{depth}: a depth is 6n + 2, or from 164 on 9n + 2')
    units = (depth - 2) // (9 if deep else 6)
    net = Net(f'resnet-{depth}')
    top = net.conv('conv0', net.norm('bn_data', 'data', 'bn_data', scale=False), 16, 3)
    for stage, outputs in enumerate((64, 128, 256) if deep else (16, 32, 64), 1):
        for unit in range(1, units + 1):
            name, stride = f'stage{stage}_unit{unit}', 2 if stage > 1 and unit == 1 else 1
            first = net.relu(net.norm(f'{name}_bn1', top, f'{name}_bn1'))
            shapes = ((outputs // 4, 1, 1), (outputs // 4, 3, stride), (outputs, 1, 1)) if deep else ((outputs, 3, stride), (outputs, 3, 1))
            branch = first
            for place, (width, kernel, step) in enumerate(shapes, 1):
                if place > 1:
                    branch = net.relu(net.norm(f'{name}_bn{place}', branch, f'{name}_bn{place}'))
                branch = net.conv(f'{name}_conv{place}', branch, width, kernel, step)
            shortcut = net.conv(f'{name}_sc', first, outputs, 1, stride) if unit == 1 else top
            top = net.layer(f'{name}_sum', 'Eltwise', [branch, shortcut], f'{name}_sum')
    return net.end(net.relu(net.norm('bn1', top, 'bn1')))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('net', help='inception-bn-28-small or resnet-N')
    name = parser.parse_args().net
    if name == 'inception-bn-28-small':
        text = inception()
    elif name.startswith('resnet-') and name[7:].isdigit():
        text = resnet(int(name[7:]))
    else:
        parser.error(f'{name}: it is inception-bn-28-small or resnet-N')
    print('# Made by scripts/cifar10_nets.py. Stage "dummy" replaces the data layers by random input, for timing: tools/time --stage=dummy.')
    print(text, end='')


if __name__ == '__main__':
    main()
