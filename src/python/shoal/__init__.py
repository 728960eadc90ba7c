"""Shoal trains and runs Caffe nets.

Net, Solver and Blob are those of shoal.caffe, which has what pycaffe's users know. Records and RecordWriter read and write
databases, read_metrics what `train --metrics` wrote. train trains as the program of this name does, in a job too. Errors are shoal.Error, which is a ValueError and a RuntimeError.
"""
from ._library import Blob, Error, __version__, describe, layer_types
from .data import RecordWriter, Records, read_image
from .layer import Layer
from .machine import machine
from .metrics import read_metrics
from .net import Net
from .solver import Solver
from .train import train

TRAIN, TEST = 0, 1

__all__ = ['Blob', 'Error', 'Layer', 'Net', 'RecordWriter', 'Records', 'Solver', 'TEST', 'TRAIN', '__version__', 'describe',
           'layer_types', 'machine', 'read_image', 'read_metrics', 'train']
