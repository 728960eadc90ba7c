#!/usr/bin/env python3
"""What distribution costs, on this machine: every figure beside one measured in the same run.

  1. One worker with a server in its process against the local solver.
  2. Two workers with links of a given rate against the larger of compute (the same two processes, each alone in its training) and
     transfer (the bytes they counted, both ways at once over one bare TCP connection of that link), and the part of the transfer that was
     hidden. A layer's transfer cannot begin before its
     backward ends, nor its next forward before its transfer does: the bound is the iteration if nothing else costs time (timeline() below).
     Moving costs processor time, too: where workers and servers have all cores busy, the iteration cannot be shorter than that time over the cores.
  3. Sending by priority against sending in the order of arrival, at the rate where transfer takes as long as compute, beside what the
     timeline says that priority gains; then the same of workers that wait instead of computing, which have the cores to themselves for moving.

Part of `make bench`. BUILD=... chooses another build folder."""
import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from machines import main_of

sys.path.insert(0, str(Path(__file__).resolve().parent))
from launch import reserve_ports  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
GIGABIT = 125e6           # bytes a second
FC_HEAVY = '''name: "three layers of 1024"
layer { name: "data" type: "DummyData" top: "data" top: "label" include { stage: "dummy" }
        dummy_data_param { shape { dim: 64 dim: 1024 } shape { dim: 64 } } }
''' + ''.join(f'''layer {{ name: "ip{i}" type: "InnerProduct" bottom: "{below}" top: "ip{i}"
        inner_product_param {{ num_output: {width} weight_filler {{ type: "xavier" }} }} }}
''' + (f'layer {{ name: "relu{i}" type: "ReLU" bottom: "ip{i}" top: "ip{i}" }}\n' if i < 4 else '')
              for i, (below, width) in enumerate((('data', 1024), ('ip1', 1024), ('ip2', 1024), ('ip3', 10)), 1)) + \
    'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip4" bottom: "label" top: "loss" }\n'


FC_DEEP = '''name: "twelve layers of 512"
layer { name: "data" type: "DummyData" top: "data" top: "label" include { stage: "dummy" }
        dummy_data_param { shape { dim: 256 dim: 512 } shape { dim: 256 } } }
''' + ''.join(f'''layer {{ name: "ip{i}" type: "InnerProduct" bottom: "{'data' if i == 1 else f'ip{i - 1}'}" top: "ip{i}"
        inner_product_param {{ num_output: 512 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "relu{i}" type: "ReLU" bottom: "ip{i}" top: "ip{i}" }}
''' for i in range(1, 13)) + 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip12" bottom: "label" top: "loss" }\n'
MADE = {'fc_heavy': FC_HEAVY, 'fc_deep': FC_DEEP}


class Layer(NamedTuple):
    forward: float        # ms
    backward: float
    bytes: int            # of its params


def timeline(layers, rate, order):
    """ms from one backward pass to the next, with one worker and server in each of two processes, and links whose only cost is their rate:
    half of a layer's gradient leaves, half of its weights comes back, and the other half's go the other way for the other process, so that
    each direction carries the layer's bytes once. `order` of what is ready: 'arrival', or 'priority', the next forward's first."""
    ready, now = {}, 0.0
    for k, layer in reversed(list(enumerate(layers))):
        now += layer.backward
        ready[k] = now
    left = {k: 1000 * layer.bytes / rate for k, layer in enumerate(layers) if layer.bytes}
    arrived, at = {}, 0.0
    while left:
        waiting = [k for k in left if ready[k] <= at]
        if not waiting:
            at = min(ready[k] for k in left)
            continue
        k = min(waiting) if order == 'priority' else min(waiting, key=ready.get)
        later = [ready[j] for j in left if ready[j] > at]
        step = min([left[k], *(t - at for t in later)])
        at, left[k] = at + step, left[k] - step
        if left[k] <= 1e-9:
            del left[k]
            arrived[k] = at
    for k, layer in enumerate(layers):
        now = max(now, arrived.get(k, 0.0)) + layer.forward
    return now


# Sends so many bytes over a TCP connection, takes as many, and says how many seconds that took: `listen` or `call`, host, port, bytes.
MOVE = '''
import socket, sys, threading, time
role, host, port, left = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if role == 'listen':
    peer = socket.create_server((host, port)).accept()[0]
else:
    until = time.monotonic() + 20
    while True:
        try:
            peer = socket.create_connection((host, port), timeout=20)
            break
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
peer.settimeout(60)
start = time.monotonic()
sender = threading.Thread(target=peer.sendall, args=(bytes(left),))
sender.start()
room = bytearray(1 << 20)
while left > 0:
    got = peer.recv_into(room)
    if got == 0:
        sys.exit('the other end has gone')
    left -= got
sender.join()
print(time.monotonic() - start)
'''


class Wire:
    """Two network namespaces with a link between them on which the kernel lets so many bytes a second pass each way; needs root, ip and tc. Where that
    is not to be had, processes hold themselves to the rate (--throttle), which costs them more time."""
    HOSTS = ('10.213.0.1', '10.213.0.2')

    def __init__(self, rate):
        self.rate = rate
        self.names = [f'shoal{os.getpid()}{end}' for end in 'ab']

    def __enter__(self):
        if not (shutil.which('ip') and shutil.which('tc')):
            return None
        try:
            for name in self.names:
                self.tell('ip', 'netns', 'add', name)
            self.tell('ip', 'link', 'add', 'wire', 'netns', self.names[0], 'type', 'veth', 'peer', 'name', 'wire', 'netns', self.names[1])
            for name, host in zip(self.names, self.HOSTS):
                for words in (f'addr add {host}/24 dev wire', 'link set lo up', 'link set wire up'):
                    self.tell('ip', '-n', name, *words.split())
                self.tell('tc', '-n', name, 'qdisc', 'add', 'dev', 'wire', 'root', 'tbf', 'rate', f'{self.rate:.0f}bps', 'burst', '256kb', 'latency', '50ms')
        except subprocess.CalledProcessError:
            self.__exit__()
            return None
        return self

    def __exit__(self, *_):
        for name in self.names if shutil.which('ip') else ():
            subprocess.run(['ip', 'netns', 'del', name], stderr=subprocess.DEVNULL, check=False)

    def starter(self, k):
        return ['ip', 'netns', 'exec', self.names[k]]

    @staticmethod
    def tell(*words):
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Bench:
    def __init__(self, build, folder, seconds, by_kernel=True):
        self.build, self.folder, self.seconds, self.by_kernel = build, Path(folder), seconds, by_kernel

    def net(self, name):
        if name not in MADE:
            return f'models/{name}/train_val.prototxt'
        path = self.folder / f'{name}.prototxt'
        path.write_text(MADE[name])
        return str(path)

    def solver(self, name, iterations):
        path = self.folder / f'{name}_{iterations}.prototxt'
        # Only the train net: a tenth of the run a display, of which the first ones are left out.
        path.write_text(f'train_net: "{self.net(name)}"\nbase_lr: 0.0001\nmomentum: 0.9\nlr_policy: "fixed"\ndisplay: {max(1, iterations // 10)}\n'
                        f'max_iter: {iterations}\nsnapshot_after_train: false\nrandom_seed: 1\nsolver_mode: CPU\n')
        return str(path)

    def run(self, name, iterations, processes, threads, *flags, together=True, rate=None):
        """ms an iteration, the text of rank 0's log, and seconds of processor time of all; `together`: one job, or as many jobs alone at the same time;
        `rate`: of the link between two, bytes a second each way."""
        if rate is not None and self.by_kernel:
            with Wire(rate) as wire:
                if wire:
                    return self.train(name, iterations, processes, threads, *flags, wire=wire)
        if rate is not None:
            flags = (*flags, f'--throttle={rate:.0f}')
        return self.train(name, iterations, processes, threads, *flags, together=together)

    def train(self, name, iterations, processes, threads, *flags, together=True, wire=None):
        machines = self.folder / 'machines'
        hosts = wire.HOSTS if wire else ['127.0.0.1'] * processes
        machines.write_text(''.join(f'{k} {host} {port}\n' for k, (host, port) in enumerate(zip(hosts, reserve_ports(processes)))))
        command = [f'{self.build}/tools/train', f'--solver={self.solver(name, iterations)}', '--stage=dummy', f'--threads={threads}']
        logs = [open(self.folder / f'log.{k}', 'w') for k in range(processes)]
        started = []
        for k, log in enumerate(logs):
            more = [f'--machinefile={machines}', f'--client_id={k}', *flags] if together else []
            started.append(subprocess.Popen((wire.starter(k) if wire else []) + command + more, cwd=ROOT, stdout=log, stderr=log))
        spent = 0.0
        for process in started:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            spent += usage.ru_utime + usage.ru_stime
        codes = [process.returncode for process in started]
        text = (self.folder / 'log.0').read_text()
        if any(codes):
            sys.exit(f'{" ".join(command)} {" ".join(flags)}: exit codes {codes}\n{text[-3000:]}')
        speeds = [float(x) for x in re.findall(r'Iteration \d+ \(([\d.e+]+) iter/s', text)][2:]
        return 1000 / statistics.median(speeds), text, spent

    def busy(self, name, iterations, *run, **options):
        """ms an iteration, and of all cores together for one: without what starting costs."""
        ms, _, seconds = self.run(name, iterations, *run, **options)
        start = self.run(name, 20, *run, **options)[2]
        return ms, 1000 * (seconds - start) / (iterations - 20) / (os.cpu_count() or 1)

    def transfer(self, size, rate):
        """ms for so many bytes each way at once and nothing else, over a link of that rate; by the rate alone where the processes hold themselves to it."""
        count = max(1, round(self.seconds * rate / size))
        with Wire(rate) as wire:
            if not (self.by_kernel and wire):
                return 1000 * size / rate
            port, = reserve_ports(1)
            both = [subprocess.Popen(wire.starter(k) + [sys.executable, '-c', MOVE, role, wire.HOSTS[0], str(port), str(round(count * size))], stdout=subprocess.PIPE, text=True)
                    for k, role in enumerate(('listen', 'call'))]
            said = [process.communicate()[0] for process in both]
            if any(process.returncode for process in both):
                sys.exit('the bare connection broke')
            return 1000 * max(map(float, said)) / count

    def layers(self, name):
        """Layers as the tool `time` measures them, in two processes with a thread each, as there are in a measurement."""
        command = [f'{self.build}/tools/time', f'--model={self.net(name)}', '--stage=dummy', '--threads=1', '--iterations=50']
        both = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
        text = [process.communicate()[0] for process in both][0]
        if any(process.returncode for process in both):
            sys.exit(f'{" ".join(command)}:\n{text[-3000:]}')
        found = {}
        for layer, what, number in re.findall(r'\] *(\S+)\t(forward|backward|params): ([\d.e+-]+?)(?: ms)?\.$', text, re.M):
            found.setdefault(layer, {})[what] = float(number)
        return [Layer(x['forward'], x.get('backward', 0.0), int(4 * x.get('params', 0))) for x in found.values()]

    def waiting(self, layers, floats, ms, rate, order):
        """ms an iteration of two workers and two servers that wait instead of computing, with so many layers of 4 rows of so many numbers."""
        command = [f'{self.build}/tools/bench_cluster', '--lenet=false', '--least=2', '--workers=2', f'--layers={layers}', f'--rows={4 * layers}', f'--floats={floats}',
                   f'--compute_ms={ms}', f'--throttle={rate:.0f}', f'--send_order={order}', f'--iterations={self.iterations_for(ms)}']
        text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return float(re.search(r'^ +2 +([\d.]+)', text, re.M).group(1))

    def iterations_for(self, ms):
        return max(40, min(2000, int(1000 * self.seconds / ms)))


def bytes_an_iteration(text):
    """The largest of sent and received, by a process and iteration, as the trainer counted them."""
    found = re.search(r'Traffic: ([\d.e+]+) bytes sent and ([\d.e+]+) received an iteration', text)
    if not found:
        sys.exit('the trainer said nothing of its traffic:\n' + text[-3000:])
    return float(found.group(1)), float(found.group(2))


def ratio(above, below):
    """Of what was measured in turns: a machine drifts, and what it does to one of a pair it does to both."""
    return statistics.median(a / b for a, b in zip(above, below))


def one_worker(bench, nets, passes):
    print('one worker with a server in its process, against the local solver; two threads')
    for name in nets:
        guess = bench.run(name, 20, 1, 2, together=False)[0]
        n = bench.iterations_for(guess)
        local, table = [], []
        for _ in range(passes):
            local.append(bench.run(name, n, 1, 2, together=False)[0])
            table.append(bench.run(name, n, 1, 2)[0])
        print(f'  {name:14} local {statistics.median(local):8.2f} ms  table {statistics.median(table):8.2f} ms  ratio {ratio(table, local):.3f}', flush=True)


def overlap(bench, nets, passes, rate):
    print(f'two workers, one thread each, links of {8 * rate / 1e9:g} Gbit/s each way')
    for name in nets:
        guess = bench.run(name, 20, 2, 1, together=False)[0]
        moved = bytes_an_iteration(bench.run(name, 20, 2, 1)[1])
        n = bench.iterations_for(max(guess, 1000 * max(moved) / rate))
        transfer = bench.transfer(max(moved), rate)
        alone, shared = [], []
        for _ in range(passes):
            alone.append(bench.busy(name, n, 2, 1, together=False))
            shared.append(bench.busy(name, n, 2, 1, rate=rate))
        costs = ratio([each[0] for each in shared], [max(each[0], transfer) for each in alone])
        (compute, computing), (spent, cores) = ([statistics.median(column) for column in zip(*runs)] for runs in (alone, shared))
        bound = timeline(bench.layers(name), 1000 * max(moved) / transfer, 'priority')
        hidden = max(0.0, min(1.0, (compute + transfer - spent) / min(compute, transfer)))
        print(f'  {name:14} compute {compute:7.2f} ms  transfer {transfer:7.2f} ms ({moved[0] / 1e6:.2f} MB out, {moved[1] / 1e6:.2f} in)  '
              f'iteration {spent:7.2f} ms  ratio {costs:.3f}  hidden {100 * hidden:.0f} %  bound {bound:7.2f} ms  ratio to it {spent / bound:.3f}  '
              f'cores busy {cores:.2f} ms ({100 * cores / spent:.0f} %), without moving {computing:.2f}', flush=True)


def priorities(bench, nets, passes):
    print('priority against order of arrival, two workers, where transfer takes as long as compute')
    for name in nets:
        compute = bench.run(name, 20, 2, 1, together=False)[0]
        moved = max(bytes_an_iteration(bench.run(name, 20, 2, 1)[1]))
        rate = moved / (compute / 1000)
        layers = bench.layers(name)
        predicted = timeline(layers, rate, 'arrival') / timeline(layers, rate, 'priority')
        n = bench.iterations_for(compute)
        times = {'priority': [], 'arrival': []}
        for _ in range(passes):
            for order, results in times.items():
                results.append(bench.run(name, n, 2, 1, f'--send_order={order}', rate=rate)[0])
        a, b = (statistics.median(times[order]) for order in ('priority', 'arrival'))
        gained = ratio(times['arrival'], times['priority'])
        print(f'  {name:14} {8 * rate / 1e9:5.2f} Gbit/s  priority {a:7.2f} ms  arrival {b:7.2f} ms  ratio {gained:.3f}  predicted {predicted:.3f}',
              flush=True)
    count, floats, ms = 12, 64 * 1024, 100
    layers = [Layer(ms / 3 / count, 2 * ms / 3 / count, 4 * 4 * floats)] * count
    rate = sum(layer.bytes for layer in layers) / (ms / 1000)
    times = {order: [] for order in ('priority', 'arrival')}
    for _ in range(passes):
        for order, results in times.items():
            results.append(bench.waiting(count, floats, ms, rate, order))
    bounds = {order: timeline(layers, rate, order) for order in times}
    print(f'  {"waiting":14} {8 * rate / 1e9:5.2f} Gbit/s  ' + '  '.join(f'{order} {statistics.median(times[order]):7.2f} ms (bound {bounds[order]:.2f})' for order in times) +
          f'  ratio {ratio(times["arrival"], times["priority"]):.3f}  predicted {bounds["arrival"] / bounds["priority"]:.3f}', flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('build', nargs='?', default=os.environ.get('BUILD', 'build/release'))
    parser.add_argument('--nets', default='lenet,cifar10_quick,fc_heavy,fc_deep')
    parser.add_argument('--passes', type=int, default=9)
    parser.add_argument('--seconds', type=float, default=1, help='of one measurement')
    parser.add_argument('--rate', type=float, default=GIGABIT, help='bytes a second each way; default: 1 Gbit/s')
    parser.add_argument('--parts', default='123')
    parser.add_argument('--throttle', action='store_true', help='the processes hold themselves to the rate, also where the kernel could')
    args = parser.parse_args()
    nets = args.nets.split(',')
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args.build, folder, args.seconds, not args.throttle)
        if '1' in args.parts:
            one_worker(bench, nets, args.passes)
        if '2' in args.parts:
            overlap(bench, nets, args.passes, args.rate)
        if '3' in args.parts:
            priorities(bench, nets, args.passes)


if __name__ == '__main__':
    main_of(main)
