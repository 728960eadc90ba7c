"""What the examples that take another system's command lines have in common: a solver of their own, and `train` in their place."""
import os
import re
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def tools():
    folder = ROOT / os.environ.get('BUILD', 'build/release') / 'tools'
    if not (folder / 'train').exists():
        sys.exit(f'{Path(sys.argv[0]).name}: no {folder}/train: run make first, or set BUILD to the folder of the build')
    return folder


def workers_of(rest):
    """How many workers the job has, as the words for `train`, or the launcher's variables, say; 1 without any."""
    for word in rest:
        if match := re.fullmatch(r'--?(?:machinefile|hostfile)=(.+)', word):
            lines = [line.partition('#')[0] for line in Path(match.group(1)).read_text().splitlines()]
            return max(1, sum(1 for line in lines if line.split() and 'role=server' not in line))
        if match := re.fullmatch(r'--?num_clients=(\d+)', word):
            return int(match.group(1))
    return int(os.environ.get('DMLC_NUM_WORKER') or os.environ.get('WORLD_SIZE') or 1)


def write_solver(name, fields):
    """Writes (field, value) pairs as a solver and returns its path."""
    folder = ROOT / 'build' / 'guides'
    folder.mkdir(parents=True, exist_ok=True)
    path, own = folder / f'{name}.prototxt', folder / f'{name}.{os.getpid()}'
    own.write_text(''.join(f'{field}: {value}\n' for field, value in fields if value is not None))
    own.replace(path)                                     # several processes of one machine write the same
    return path


def shared_net(net):
    """Writes the net with data that all workers read, instead of a part each. Returns the path."""
    text = (ROOT / net).read_text()
    if 'shared_file_system' in text:
        return net
    path = ROOT / 'build' / 'guides' / f'{Path(net).parent.name}_shared.prototxt'
    path.parent.mkdir(parents=True, exist_ok=True)
    own = path.with_suffix(f'.{os.getpid()}')
    own.write_text(text.replace('    backend: LMDB\n', '    backend: LMDB\n    shared_file_system: true\n'))
    own.replace(path)
    return str(path.relative_to(ROOT))


def note(words):
    print(f'{Path(sys.argv[0]).name}: {words}', file=sys.stderr)


def train(words):
    """Becomes `train` with these words, which it prints, to be copied."""
    program = str(tools() / 'train')
    os.chdir(ROOT)
    print('+', shlex.join([os.path.relpath(program, ROOT), *words]), file=sys.stderr, flush=True)
    os.execv(program, [program, *words])
