"""pycaffe's classes of solvers, one a type."""
from ..solver import Solver


class SGDSolver(Solver):
    type_ = 'SGD'


class NesterovSolver(SGDSolver):
    type_ = 'Nesterov'


class AdaGradSolver(SGDSolver):
    type_ = 'AdaGrad'


class RMSPropSolver(SGDSolver):
    type_ = 'RMSProp'


class AdaDeltaSolver(SGDSolver):
    type_ = 'AdaDelta'


class AdamSolver(SGDSolver):
    type_ = 'Adam'


class _SolverOfFile(SGDSolver):
    type_ = ''


def get_solver(solver_file, **kwargs):
    """A solver of the type that the file names."""
    return _SolverOfFile(solver_file, **kwargs)
