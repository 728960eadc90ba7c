"""Trains as the program train does, with its flags, in a job of several processes too."""
import json
import os
import tempfile
import threading
from pathlib import Path

from . import _shoal
from ._library import Error
from .machine import source_of

_at_work = threading.Lock()   # the flags are those of the whole process


def _word(name, value):
    """The word of the command line that gives a flag this value."""
    if isinstance(value, bool):
        text = 'true' if value else 'false'
    elif isinstance(value, (list, tuple)):
        text = ','.join(str(os.fspath(one) if isinstance(one, os.PathLike) else one) for one in value)
    else:
        text = str(os.fspath(value) if isinstance(value, os.PathLike) else value)
    return f'--{name}={text}'


def train(solver, *, before=None, after=None, metrics=None, **flags):
    """Trains to the end of the solver's iterations, alone or as one process of a job, as `train --solver=FILE` does.

    solver: a prototxt, or a SolverParameter. flags: those of the program by name, num_clients=2, client_id=0, scheme='ssp',
    staleness=1; a list is written with commas. before(iteration, rate) is called before each iteration of this worker, and
    after(iteration, rate, loss) after each. metrics: a folder, as --metrics, or a function that is called with each record, a
    dict with the members that docs/reference/metrics.md names. Returns the code with which the program would end: 0, or 75 if
    this process left the job. An exception of before or after ends the job with an error; one of metrics, and Ctrl-C, end it in
    order after an iteration."""
    call = getattr(_shoal, 'train', None)
    if call is None:
        raise Error('train() is not there within a tool; call it from a program of Python')
    words = [_word(name, value) for name, value in {'progress': 'log', **flags}.items() if value is not None]
    record = None
    if callable(metrics):
        def record(line):
            metrics(json.loads(line))
    elif metrics is not None:
        words.append(_word('metrics', metrics))
    if not _at_work.acquire(blocking=False):
        raise Error('train() is at work in this process, which trains once at a time')
    try:
        source, is_text = source_of(solver)
        if not is_text:
            return call([_word('solver', source), *words], before, after, record)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / 'solver.prototxt'
            path.write_text(source if solver.HasField('snapshot_prefix') else f'{source}snapshot_prefix: "solver"\n')
            return call([_word('solver', path), *words], before, after, record)
    finally:
        _at_work.release()
