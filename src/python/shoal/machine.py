"""What new nets and solvers compute on."""
import os

from . import _shoal
from ._library import Error


class Machine:
    """gpu: the number of a GPU, or -1, the CPU. threads: of the CPU. seed: of random numbers, or None, which draws one."""

    def __init__(self):
        variable = os.environ.get('OMP_NUM_THREADS', '')
        self.gpu = -1
        self.threads = int(variable) if variable.isdigit() and int(variable) > 0 else len(os.sched_getaffinity(0))
        self.seed = None

    def use_gpu(self, number=0):
        if _shoal.gpu_count() == 0:
            raise Error('no GPU can be used: ' + _shoal.why_no_gpu())
        self.gpu = number

    def arguments(self, gpu=None, threads=None, seed=None):
        seed = self.seed if seed is None else seed
        return {'gpu': self.gpu if gpu is None else gpu, 'threads': threads or self.threads, 'seed': -1 if seed is None else seed}


machine = Machine()


def source_of(net):
    """(source, is_text) of a path, or of a message of caffe_pb2."""
    if hasattr(net, 'SerializeToString'):
        return str(net), True
    return os.fspath(net), False
