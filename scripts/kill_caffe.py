#!/usr/bin/env python3
"""Poseidon's kill_caffe.py: stops the processes of a job on the machines of HOSTFILE. It is scripts/stop.py --machinefile=HOSTFILE."""
import os
import sys
from pathlib import Path

if __name__ == '__main__':
    if len(sys.argv) < 2 or sys.argv[1].startswith('-'):
        sys.exit(f'usage: {Path(sys.argv[0]).name} HOSTFILE [flags of scripts/stop.py]')
    stop = str(Path(__file__).resolve().with_name('stop.py'))
    os.execv(sys.executable, [sys.executable, stop, f'--machinefile={sys.argv[1]}', *sys.argv[2:]])
