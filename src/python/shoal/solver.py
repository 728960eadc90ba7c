"""A solver, with the interface of pycaffe's."""
import os

from . import _shoal
from .machine import machine, source_of
from .net import Net


class Solver:
    """Solver(file): a prototxt, or a SolverParameter. gpu, threads and seed: shoal.machine's if not given; a random_seed in the
    file counts before `seed`. Log lines are those of `train`."""

    type_ = ''   # what the file says

    def __init__(self, solver_file, *, gpu=None, threads=None, seed=None):
        source, is_text = source_of(solver_file)
        self._solver = _shoal.Solver(source, is_text, self.type_, **machine.arguments(gpu, threads, seed))
        self.net = Net._of(self._solver.net())
        self.test_nets = [Net._of(net) for net in self._solver.test_nets()]

    iter = property(lambda self: self._solver.iter, doc='Iterations done.')
    lr = property(lambda self: self._solver.lr, doc='The rate of the last iteration.')
    loss = property(lambda self: self._solver.loss, doc='The loss of the last iteration.')
    smoothed_loss = property(lambda self: self._solver.smoothed_loss, doc='The mean of the last average_loss losses.')

    @property
    def param(self):
        """A copy of the SolverParameter."""
        from .caffe.proto.caffe_pb2 import SolverParameter
        return SolverParameter.FromString(self._solver.param())

    def step(self, iterations):
        """Trains, with the tests and snapshots that fall on these iterations."""
        self._solver.step(iterations)

    def add_callback(self, on_start, on_gradients_ready):
        """Calls on_start() before each iteration, and on_gradients_ready() when its gradients are there, before the update."""
        self._solver.add_callback(on_start, on_gradients_ready)

    def solve(self, resume_file=None):
        """Trains to max_iter, from a .solverstate if one is given."""
        if resume_file is not None:
            self.restore(resume_file)
        self._solver.solve()

    def test(self, index=0):
        """Runs test_iter batches of a test net. Returns a list of (output, mean)."""
        return self._solver.test(index)

    def snapshot(self):
        self._solver.snapshot()

    def restore(self, path):
        self._solver.restore(os.fspath(path))

    def copy_from(self, path):
        """Copies params by layer name from a model."""
        self._solver.copy_from(os.fspath(path))

    def share_weights(self, net):
        net.share_with(self.net)
