#!/usr/bin/env python3
"""Measures what encryption costs a job on links of 1 and 10 Gbit/s: the same job in clear and encrypted, in turns.

    scripts/bench_encryption.py [BUILD] [--turns=3]

A worker pushes and reads 64 MiB of params an iteration, to and from a server in another network namespace; its net computes next to nothing.
The links are veth pairs with a token bucket (tbf) at each end. It needs root, `ip` and `tc`, and an idle machine of two cores."""
import argparse
import json
import os
import secrets
import statistics
import subprocess
import tempfile
from pathlib import Path

from namespaces import PORT, Bridge

NET = '''name: "fc"
layer { name: "data" type: "DummyData" top: "x" top: "y" dummy_data_param { shape { dim: 1 dim: 4096 }
  data_filler { type: "gaussian" std: 0.01 } data_filler { value: 0 } } }
layer { name: "fc" type: "InnerProduct" bottom: "x" top: "fc"
  inner_product_param { num_output: 4096 bias_term: false weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "fc" bottom: "y" top: "loss" }
'''


def seconds_of_iteration(train, folder, rate, encrypt, iterations):
    with Bridge('encrypt', 2) as bridge:
        for k in (0, 1):
            subprocess.run([*bridge.starter(k), 'tc', 'qdisc', 'add', 'dev', 'eth0', 'root', 'tbf', 'rate', rate, 'burst', '1mb', 'latency', '20ms'],
                           check=True)
        (folder / 'machines').write_text(f'0 {bridge.address(0)} {PORT} role=server\n1 {bridge.address(1)} {PORT} role=worker\n')
        (folder / 'net.prototxt').write_text(NET)
        (folder / 'solver.prototxt').write_text(f'net: "{folder}/net.prototxt" base_lr: 0.0001 lr_policy: "fixed" max_iter: {iterations} '
                                                f'snapshot_prefix: "{folder}/net" snapshot_after_train: false')
        flags = [f'--solver={folder}/solver.prototxt', f'--machinefile={folder}/machines', '--threads=1', '--exchange=TABLE',
                 f'--encrypt={encrypt}', f'--metrics={folder}/metrics']
        environment = {**os.environ, 'SHOAL_JOB_TOKEN': TOKEN}
        logs = [(folder / f'log{k}').open('w') for k in (0, 1)]
        processes = [subprocess.Popen([*bridge.starter(k), train, *flags, f'--client_id={k}'], env=environment, stderr=logs[k]) for k in (0, 1)]
        for k, process in enumerate(processes):
            if process.wait(300) != 0:
                raise SystemExit((folder / f'log{k}').read_text()[-2000:])
    lines = map(json.loads, (folder / 'metrics/metrics.0.jsonl').read_text().splitlines())
    times = [line['time'] for line in lines if line['kind'] == 'clock']
    return (times[-1] - times[1]) / (len(times) - 2)


TOKEN = secrets.token_hex(32)

if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('build', nargs='?', default='build/release', type=Path)
    parser.add_argument('--turns', default=3, type=int)
    arguments = parser.parse_args()
    train = str((arguments.build / 'tools/train').resolve())
    print(next(line for line in Path('/proc/cpuinfo').read_text().splitlines() if line.startswith('model name')))
    with tempfile.TemporaryDirectory() as name:
        for rate, iterations in (('1gbit', 12), ('10gbit', 40)):
            ratios = []
            for turn in range(arguments.turns):
                clear, encrypted = (seconds_of_iteration(train, Path(name), rate, encrypt, iterations) for encrypt in ('never', 'always'))
                ratios.append(clear / encrypted)
                print(f'{rate}: {1000 * clear:.0f} ms an iteration in clear, {1000 * encrypted:.0f} ms encrypted, {ratios[-1]:.3f} of the speed',
                      flush=True)
            print(f'{rate}: median {statistics.median(ratios):.3f}')
