"""Loads the library, and starts its log."""
import os


def _blas_kernels():
    """The kernels that OpenBLAS is to take, which does not know processors newer than itself; None: its own choice."""
    try:
        with open('/proc/cpuinfo') as file:
            flags = set(next((line for line in file if line.startswith('flags')), '').split())
    except OSError:
        return None
    if {'avx512f', 'avx512bw', 'avx512cd', 'avx512dq', 'avx512vl'} <= flags:
        return 'SkylakeX'
    return 'Haswell' if {'avx2', 'fma'} <= flags else None


class _Environment:
    """Variables that libraries read when they are loaded, and that nothing else is to see."""

    def __init__(self, **variables):
        self.added = {name: value for name, value in variables.items() if value and name not in os.environ}

    def __enter__(self):
        os.environ.update(self.added)

    def __exit__(self, *_):
        for name in self.added:
            del os.environ[name]


with _Environment(OPENBLAS_CORETYPE=_blas_kernels(), GOMP_SPINCOUNT='' if 'OMP_WAIT_POLICY' in os.environ else '2000'):
    from . import _shoal
    from ._shoal import Blob, Error, __version__, describe, layer_types

Error.code = 2   # of errors that this package raises itself: wrong calls
_shoal.start_log()
