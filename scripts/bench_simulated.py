#!/usr/bin/env python3
"""Sets the simulator's prediction beside real processes: bench_simulated.py [BUILD] [--workers 2 4] [--step_ms 60] [--throttle 4e6]

Each real worker computes as long as --emulate_step_ms says and sends no faster than --throttle; the simulated ones likewise. Printed: seconds of
an iteration of both and their ratio, the best of three real runs, since a busy machine makes a run only slower.
"""
import argparse, os, pathlib, re, socket, subprocess, tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NET = '''
layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{ shape {{ dim: 2 dim: 600 }} shape {{ dim: 2 }}
  data_filler {{ type: "constant" value: 0.1 }} data_filler {{ type: "constant" }} }} }}
layer {{ name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" inner_product_param {{ num_output: 100 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" inner_product_param {{ num_output: 100 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "ip3" type: "InnerProduct" bottom: "ip2" top: "ip3" inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip3" bottom: "label" top: "loss" }}
'''
SOLVER = 'net: "{folder}/net.prototxt" base_lr: 0.001 lr_policy: "fixed" random_seed: 1 display: 10 max_iter: {iterations} snapshot_after_train: false\n'


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def real(build, folder, workers, args):
    """Seconds of an iteration between the first display and the last."""
    flags = [f'--num_clients={workers}', f'--master=127.0.0.1:{free_port()}', f'--emulate_step_ms={args.step_ms}', f'--throttle={args.throttle}', f'--scheme={args.scheme}']
    port = flags[1].rsplit(':', 1)[1]
    environment = dict(os.environ, OMP_NUM_THREADS='1', SHOAL_JOB_TOKEN='bench')
    jobs = [subprocess.Popen([build / 'tools/train', f'--solver={folder}/solver.prototxt', f'--client_id={rank}', *flags] + ([f'--port={port}'] if rank == 0 else []),
                             stderr=subprocess.PIPE, text=True, env=environment) for rank in range(workers)]
    outputs = [job.communicate(timeout=300)[1] for job in jobs]
    if any(job.returncode for job in jobs):
        raise SystemExit('a worker failed:\n' + '\n'.join(outputs))
    times = [float(s) for s in re.findall(r'iter/s, ([\d.e+-]+)s/10 iters', outputs[0])][2:]
    return sum(times) / len(times) / 10


def simulated(build, folder, workers, args):
    (folder / 'cluster.prototxt').write_text(f'worker {{ count: {workers} compute {{ ms: {args.step_ms} }} }} card {{ bandwidth: {args.throttle} latency_ms: 0.1 }}')
    def seconds(iterations):
        run = subprocess.run([build / 'tools/simulate', '--dry', f'--solver={folder}/solver.prototxt', f'--cluster={folder}/cluster.prototxt',
                              f'--max_iter={iterations}', f'--scheme={args.scheme}'], capture_output=True, text=True, check=True)
        return float(re.findall(r'\[ *([\d.]+) s\] Iteration', run.stdout)[-1])
    return (seconds(30) - seconds(10)) / 20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('build', nargs='?', default='build/release')
    parser.add_argument('--workers', type=int, nargs='+', default=[2, 4])
    parser.add_argument('--step_ms', type=float, default=60)
    parser.add_argument('--throttle', type=float, default=4e6)
    parser.add_argument('--scheme', default='bsp')
    parser.add_argument('--iterations', type=int, default=61)
    args = parser.parse_args()
    build = (ROOT / args.build).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / 'net.prototxt').write_text(NET.format())
        (folder / 'solver.prototxt').write_text(SOLVER.format(folder=folder, iterations=args.iterations))
        for workers in args.workers:
            predicted = simulated(build, folder, workers, args)
            best = min(real(build, folder, workers, args) for _ in range(3))
            print(f'{workers} workers, {args.scheme}, {args.step_ms:g} ms, {args.throttle:g} bytes/s: simulated {1e3 * predicted:.1f} ms an iteration, '
                  f'real {1e3 * best:.1f} ms, ratio {best / predicted:.3f}')


if __name__ == '__main__':
    main()
