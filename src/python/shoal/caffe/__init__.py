"""What pycaffe's users call: import shoal.caffe as caffe."""
from .. import TEST, TRAIN, Error, Layer, __version__
from .. import _shoal
from ..machine import machine
from ..net import Net
from . import io
from .classifier import Classifier
from .detector import Detector
from .net_spec import NetSpec, layers, params, to_proto
from .solvers import (AdaDeltaSolver, AdaGradSolver, AdamSolver, NesterovSolver, RMSPropSolver, SGDSolver, get_solver)

__all__ = ['AdaDeltaSolver', 'AdaGradSolver', 'AdamSolver', 'Classifier', 'Detector', 'Error', 'Layer', 'Net', 'NetSpec',
           'NesterovSolver', 'RMSPropSolver', 'SGDSolver', 'TEST', 'TRAIN', '__version__', 'get_solver', 'init_log', 'io',
           'layer_type_list', 'layers', 'log', 'params', 'set_device', 'set_mode_cpu', 'set_mode_gpu', 'set_random_seed',
           'to_proto']

_device = 0


def set_mode_cpu():
    """Nets and solvers made from now on compute on the CPU, as they do at first."""
    machine.gpu = -1


def set_mode_gpu():
    """Nets and solvers made from now on compute on the GPU of set_device, or the first one."""
    machine.use_gpu(_device)


def set_device(number):
    global _device
    _device = number
    if machine.gpu >= 0:
        machine.use_gpu(number)


def set_random_seed(seed):
    """Nets and solvers made from now on draw their random numbers from this seed."""
    machine.seed = seed


def layer_type_list():
    return _shoal.layer_types()


def init_log(level=0, stderr=True):
    """Shows lines of the log from this level on: 0 all, 1 warnings, 2 errors."""
    _shoal.set_log(level, stderr)


def log(line):
    _shoal.log(line)


# One process trains here; the program train makes jobs.
def solver_count():
    return 1


def solver_rank():
    return 0


def has_nccl():
    return False
