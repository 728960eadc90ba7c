"""import caffe is import shoal.caffe: this module takes its place, and its modules have Caffe's names."""
import importlib
import sys

import shoal.caffe

sys.modules[__name__] = shoal.caffe
for _name in ('classifier', 'coord_map', 'detector', 'draw', 'io', 'net_spec', 'proto', 'proto.caffe_pb2'):
    sys.modules[f'{__name__}.{_name}'] = importlib.import_module(f'shoal.caffe.{_name}')
