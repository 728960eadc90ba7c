#!/usr/bin/env python3
"""Sets the simulator's prediction beside real processes: bench_simulated.py [BUILD] [--workers 2 4] [--step_ms 60] [--throttle 4e6]

Each real worker computes as long as --emulate_step_ms says and sends no faster than --throttle; the simulated ones likewise. Printed: milliseconds of
an iteration of the best of --runs real runs, and of the fastest five in a row of it: on a busy machine a throttled process wakes late now and then, and loses what it
might have sent. Then what the simulator says for workers that compute as long as they were told to, and as long as these did by their own metrics. Ratios are
real / simulated.
"""
import argparse, json, os, pathlib, re, socket, subprocess, tempfile

from machines import main_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
NET = '''
layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{ shape {{ dim: 2 dim: 600 }} shape {{ dim: 2 }}
  data_filler {{ type: "constant" value: 0.1 }} data_filler {{ type: "constant" }} }} }}
layer {{ name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" inner_product_param {{ num_output: 100 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" inner_product_param {{ num_output: 100 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "ip3" type: "InnerProduct" bottom: "ip2" top: "ip3" inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip3" bottom: "label" top: "loss" }}
'''
WARM, ROW = 10, 5                                                 # iterations that do not count: connections begin slowly
SOLVER = 'net: "{folder}/net.prototxt" base_lr: 0.001 lr_policy: "fixed" random_seed: 1 max_iter: {iterations} snapshot_after_train: false\n'


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def real(build, folder, workers, args):
    """Seconds of an iteration after the first WARM, of ROW in a row, and those that each worker computed in each."""
    metrics = pathlib.Path(tempfile.mkdtemp(dir=folder))
    flags = [f'--num_clients={workers}', f'--master=127.0.0.1:{free_port()}', f'--emulate_step_ms={args.step_ms}', f'--throttle={args.throttle}', f'--scheme={args.scheme}', f'--metrics={metrics}']
    port = flags[1].rsplit(':', 1)[1]
    environment = dict(os.environ, OMP_NUM_THREADS='1', SHOAL_JOB_TOKEN='the token of the bench')
    jobs = [subprocess.Popen([build / 'tools/train', f'--solver={folder}/solver.prototxt', f'--client_id={rank}', *flags] + ([f'--port={port}'] if rank == 0 else []),
                             stderr=subprocess.PIPE, text=True, env=environment) for rank in range(workers)]
    outputs = [job.communicate(timeout=300)[1] for job in jobs]
    if any(job.returncode for job in jobs):
        raise SystemExit('a worker failed:\n' + '\n'.join(outputs))
    clocks = [[json.loads(line) for line in (metrics / f'metrics.{rank}.jsonl').read_text().splitlines()] for rank in range(workers)]
    clocks = [[line for line in lines if line['kind'] == 'clock'][WARM:] for lines in clocks]
    ends = [line['time'] for line in clocks[0]]
    return {'mean': (ends[-1] - ends[0]) / (len(ends) - 1), 'best': min(later - sooner for sooner, later in zip(ends, ends[ROW:])) / ROW,
            'computed': [[line['compute'] for line in lines] for lines in clocks]}


def simulated(build, folder, computes, iterations, args):
    """Seconds of an iteration of workers that compute so: each a line of the cluster's prototxt."""
    cluster = ' '.join(f'worker {{ compute {{ {compute} }} }}' for compute in computes)
    (folder / 'cluster.prototxt').write_text(f'{cluster} card {{ bandwidth: {args.throttle} latency_ms: 0.1 }}')

    def seconds(count):
        run = subprocess.run([build / 'tools/simulate', '--dry', f'--solver={folder}/solver.prototxt', f'--cluster={folder}/cluster.prototxt',
                              f'--max_iter={count}', f'--scheme={args.scheme}'], capture_output=True, text=True, check=True)
        return float(re.findall(r'\[ *([\d.]+) s\] Iteration', run.stdout)[-1])
    return (seconds(iterations) - seconds(1)) / (iterations - 1)


def traces(folder, computed):
    for rank, seconds in enumerate(computed):
        (folder / f'trace{rank}').write_text(''.join(f'{1e3 * each:.4f}\n' for each in seconds))
    return [f'trace: "{folder}/trace{rank}"' for rank in range(len(computed))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('build', nargs='?', default='build/release')
    parser.add_argument('--workers', type=int, nargs='+', default=[2, 4])
    parser.add_argument('--step_ms', type=float, default=60)
    parser.add_argument('--throttle', type=float, default=4e6)
    parser.add_argument('--scheme', default='bsp')
    parser.add_argument('--iterations', type=int, default=61)
    parser.add_argument('--runs', type=int, default=3)
    args = parser.parse_args()
    build = (ROOT / args.build).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / 'net.prototxt').write_text(NET.format())
        (folder / 'solver.prototxt').write_text(SOLVER.format(folder=folder, iterations=args.iterations))
        for workers in args.workers:
            run = min((real(build, folder, workers, args) for _ in range(args.runs)), key=lambda run: run['mean'])
            computed = run['computed']
            told = simulated(build, folder, [f'ms: {args.step_ms}'] * workers, 20, args)
            measured = simulated(build, folder, traces(folder, computed), len(computed[0]), args)
            mean = sum(map(sum, computed)) / sum(map(len, computed))
            print(f'{workers} workers, {args.scheme}, {args.throttle:g} bytes/s: real {1e3 * run["mean"]:.1f} ms an iteration, {1e3 * run["best"]:.1f} in the fastest '
                  f'{ROW}; told to compute {args.step_ms:g} ms: simulated {1e3 * told:.1f} ms, ratios {run["mean"] / told:.3f} and {run["best"] / told:.3f}; as they computed, '
                  f'{1e3 * mean:.1f} ms: simulated {1e3 * measured:.1f} ms, ratio {run["mean"] / measured:.3f}', flush=True)


if __name__ == '__main__':
    main_of(main)
