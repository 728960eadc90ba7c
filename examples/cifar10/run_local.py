#!/usr/bin/env python3
"""Poseidon's examples/cifar10/run_local.py: trains cifar10_quick with several workers on this machine, or on the machines of HOSTFILE.

  examples/cifar10/run_local.py [--workers=2] [HOSTFILE] [flags of train, such as --table_staleness=1 --svb=true]

Run examples/cifar10/create_cifar10.sh first. Where Poseidon's script has variables to edit, this one has flags."""
import argparse
import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / 'scripts'))
from seed_train import ROOT, shared_net, tools, write_solver  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument('--workers', type=int, default=2, help='without HOSTFILE; default: %(default)s')
    parser.add_argument('--solver', default='models/cifar10_quick/solver.prototxt')
    parser.add_argument('hostfile', nargs='?')
    args, rest = parser.parse_known_args()
    hostfile = args.hostfile and os.path.abspath(args.hostfile)
    os.chdir(ROOT)
    solver = Path(args.solver).read_text()
    for net in re.findall(r'^net: "(.*)"', solver, re.MULTILINE):   # all workers read one database
        solver = solver.replace(net, shared_net(net))
    path = write_solver('run_local', [])
    path.write_text(solver)
    where = [f'--machinefile={hostfile}'] if hostfile else [f'--local={args.workers}']
    words = ['scripts/launch.py', *where, '--', str((tools() / 'train').relative_to(ROOT)), f'--solver={path.relative_to(ROOT)}',
             '--table_staleness=0' if not any('staleness' in word for word in rest) else '', *rest]
    words = [word for word in words if word]
    print('+', *words, file=sys.stderr, flush=True)
    os.execv(sys.executable, [sys.executable, *words])


if __name__ == '__main__':
    main()
