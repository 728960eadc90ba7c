#!/usr/bin/env python3
"""Runs a job of four processes, kills or stops one of them now and then or cuts its link, and
prints what each fault cost. chaos.sh says what to run."""
import argparse
import bisect
import contextlib
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / 'scripts'))
from launch_rank import JOINED, LOST, PLACE  # noqa: E402
from machinefile import UsageError  # noqa: E402
from machines import main_of  # noqa: E402
from namespaces import Bridge  # noqa: E402
from plot_runs import LINE_COLOURS, pyplot, save, use_python_with_matplotlib  # noqa: E402

PROCESSES = 4
LASTS = {'kill': 0, 'stop': 30, 'cut': 10}                    # seconds
COLOURS = {'kill': LINE_COLOURS[4], 'stop': LINE_COLOURS[1], 'cut': LINE_COLOURS[3]}
LAST_FAULT = 8       # seconds before the end: time to be lost and to come back
START_WITHIN, END_WITHIN = 60, 90                             # seconds
AFTER = 1            # seconds after a return in which a pause counts as the return's


class Fault:
    def __init__(self, at, kind, rank, known_as):
        self.at, self.kind, self.rank, self.known_as = at, kind, rank, known_as
        self.lost = self.back = None

    def is_open(self, known_as):
        return self.known_as == known_as and self.lost is None

    def went_wrong(self):
        """Whether the job did not see it, or has not had the process back."""
        return self.lost is None or self.kind != 'stop' and self.back is None


def kind_of(number, stop, cut, left):
    """The kind of a fault, `left` seconds before the end. Each of them in turn; a kill where
    another would not be over in time."""
    kinds = ['kill', *(['stop'] if stop else []), *(['cut'] if cut else [])]
    kind = kinds[number % len(kinds)]
    return kind if left >= LASTS[kind] + LAST_FAULT else 'kill'


class Trial:
    """The job, seen through what the launcher prints. Times are those of time.time()."""

    def __init__(self, args, command, bridge=None):
        self.args, self.changed, self.bridge = args, threading.Condition(), bridge
        self.known_as = {rank: rank for rank in range(PROCESSES)}
        self.here, self.faults, self.others_lost, self.restarts = set(), [], [], []
        self.jobs = Path(args.out).resolve() / 'jobs'
        where, environment = f'--local={PROCESSES}', {**os.environ, 'SHOAL_JOBS': str(self.jobs)}
        if bridge:
            where = f'--machinefile={bridge.write_machinefile(args.out)}'
            environment['PATH'] = f'{bridge.write_ssh(args.out)}:{os.environ["PATH"]}'
        line = [sys.executable, str(ROOT / 'scripts/launch.py'), '--job=chaos', '--restart=20',
                where, f'--log_dir={args.out}/logs', '--', *command]
        self.console = open(Path(args.out) / 'console', 'w')
        self.launcher = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, errors='replace',
                                         env=environment)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.launcher.stderr:
            self.console.write(line)
            self.console.flush()
            with self.changed:
                self.hear(line.rstrip('\n'), time.time())
                self.changed.notify_all()

    def hear(self, line, now):
        found = re.match(r'\[(\d+)@', line)
        rank = int(found.group(1)) if found else -1
        if line.startswith('launch: the whole job is started again'):
            self.known_as, self.here = {rank: rank for rank in range(PROCESSES)}, set()
            self.restarts.append(now)
        elif rank == 0 and self.known_as[0] == 0 and 'Starting Optimization' in line:
            self.here = set(range(PROCESSES))
            self.note_back(lambda fault: True, now)
        elif match := LOST.search(line):
            self.note_loss(int(match.group(1)), now)
        elif rank >= 0 and (match := PLACE.search(line)):
            self.known_as[rank] = int(match.group(1))
        elif rank >= 0 and JOINED.search(line):
            self.here.add(rank)
            self.note_back(lambda fault: fault.rank == rank, now)

    def note_back(self, concerned, now):
        for fault in self.faults:
            if fault.back is None and concerned(fault):
                fault.back = now

    def note_loss(self, known_as, now):
        fault = next((f for f in reversed(self.faults) if f.is_open(known_as)), None)
        if fault:
            fault.lost = now
        else:
            self.others_lost.append((now, known_as))
        self.here -= {rank for rank, known in self.known_as.items() if known == known_as}

    def wait(self, what, seconds):
        """Returns whether it became true, while the job ran."""
        with self.changed:
            until = time.time() + seconds
            while not what() and self.launcher.poll() is None and time.time() < until:
                self.changed.wait(0.2)
            return what()

    def pid(self, rank):
        return int((self.jobs / 'chaos' / f'{rank}.pid').read_text().split()[0])

    def strike(self, number, chance, left):
        """Hits a process, `left` seconds before the end."""
        with self.changed:
            ranks = sorted(self.here)
            if not ranks:
                return
            rank = chance.choice(ranks)
            kind = kind_of(number, self.args.stop, self.args.cut, left)
            try:
                pid = self.pid(rank)
                self.begin(kind, rank, pid)
            except (OSError, ValueError, IndexError):
                return
            self.faults.append(Fault(time.time(), kind, rank, self.known_as[rank]))
        if LASTS[kind]:
            timer = threading.Timer(LASTS[kind], self.go_on, [kind, rank, pid])
            timer.daemon = True
            timer.start()

    def begin(self, kind, rank, pid):
        if kind == 'cut':
            self.bridge.set_link(rank, 'down')
        else:
            os.kill(pid, signal.SIGSTOP if kind == 'stop' else signal.SIGKILL)

    def go_on(self, kind, rank, pid):
        try:
            if kind == 'cut':
                self.bridge.set_link(rank, 'up')
            else:
                os.kill(pid, signal.SIGCONT)
        except (OSError, UsageError):
            pass                                              # the launcher, or main(), has ended it

    def run(self):
        """Returns the moment when training began, or None."""
        if not self.wait(lambda: self.here, START_WITHIN):
            return None
        began, chance, number = time.time(), random.Random(self.args.seed), 0
        while (at := (number + 1) * self.args.every) <= self.args.duration - LAST_FAULT:
            self.wait(lambda: False, began + at - time.time())
            self.strike(number, chance, self.args.duration - at)
            number += 1
        self.wait(lambda: False, began + self.args.duration - time.time())
        return began

    def end(self):
        """Ends the job with a snapshot, and returns its code."""
        if self.launcher.poll() is None:
            self.launcher.send_signal(signal.SIGTERM)
        try:
            self.launcher.wait(END_WITHIN)
        except subprocess.TimeoutExpired:
            for _ in range(2):                                # the second one kills
                self.launcher.send_signal(signal.SIGINT)
            self.launcher.wait()
        self.reader.join()
        self.console.close()
        return self.launcher.returncode


def read_iterations(folder):
    """By the rank that the job has for a process, the moments when its worker finished iterations.
    The last change of its file is the moment of the last line."""
    found = {}
    for path in sorted(Path(folder).glob('metrics.*.jsonl')):
        times = []
        for line in path.read_text().splitlines():
            try:
                entry = json.loads(line)
                if entry['kind'] == 'clock':
                    times.append(entry['time'])
                last = entry.get('time', 0)
            except (ValueError, KeyError):
                continue                                      # the process was killed meanwhile
        if times:
            began = path.stat().st_mtime - last
            found[int(path.name.split('.')[1])] = [began + t for t in times]
    return found


def read_account(folder):
    """What the job said of itself: by rank its last words of a loss, and its last line about the
    compute, or None."""
    faults, useful = {}, None
    for path in sorted(Path(folder).glob('metrics.*.jsonl'), key=lambda p: p.stat().st_mtime):
        for line in path.read_text().splitlines():
            try:
                entry = json.loads(line)
                if entry['kind'] == 'fault':
                    faults[entry['rank']] = entry
                elif entry['kind'] == 'useful':
                    useful = entry
            except (ValueError, KeyError):
                continue                                      # the process was killed meanwhile
    return faults, useful


def longest_gap(iterations, begin, end, hit):
    """The longest time between two iterations of one worker that overlaps a span, or None.
    Workers count that had begun before the span and go on after it, unless they were hit, by rank
    when: one that was stopped may end an iteration before it learns that it is lost."""
    longest = None
    for rank, times in iterations.items():
        if times[0] > begin or times[-1] < end or hit.get(rank, end) < end:
            continue
        first, last = bisect.bisect(times, begin), bisect.bisect(times, end)
        around = times[first - 1:last + 1]
        longest = max([longest or 0.0, *(b - a for a, b in zip(around, around[1:]))])
    return longest


def print_account(useful, iterations, seconds):
    """The job's own figures, and what can be seen of them from outside."""
    if not useful:
        print('The job has not said how useful its compute was.')
        return
    made, possible = useful['in_params'], max(1, useful['possible'])
    print(f'The job says: {100 * made / max(1, useful["computed"]):.2f} % of the {useful["computed"]} steps '
          f'computed are in the params, {100 * made / possible:.2f} % of the {possible:.0f} possible; '
          f'{useful["losses"]} losses.')
    seen = sum(map(len, iterations.values()))
    usual = [b - a for times in iterations.values() for a, b in zip(times, times[1:])]
    if usual:
        all_could = PROCESSES * seconds / statistics.median(usual)
        print(f'From outside: the workers wrote {seen} iterations down; {PROCESSES} processes make '
              f'{all_could:.0f} in {seconds:.1f} s at the median time of one.')


def print_table(trial, began, iterations, said):
    usual = [b - a for times in iterations.values() for a, b in zip(times, times[1:])]
    hit = {fault.known_as: fault.at for fault in trial.faults}
    print(f'{"fault":<6}{"at s":>7}{"rank":>6}{"lost after s":>14}{"gap, lost s":>13}'
          f'{"back after s":>14}{"gap, back s":>13}{"job: stop s":>13}{"steps lost":>12}')
    for fault in trial.faults:
        after = [None if t is None else t - fault.at for t in (fault.lost, fault.back)]
        lost, back = ('-' if a is None else f'{a:.2f}' for a in after)
        until = fault.lost or fault.at
        gaps = [longest_gap(iterations, fault.at, until + 0.2, hit), None]
        if fault.back:
            gaps[1] = longest_gap(iterations, fault.back - 0.5, fault.back + AFTER, hit)
        own = said.get(fault.known_as, {})
        gaps.append(own.get('stopped'))
        gap, gap_back, stop = ('-' if g is None else f'{g:.2f}' for g in gaps)
        print(f'{fault.kind:<6}{fault.at - began:>7.1f}{fault.rank:>6}{lost:>14}{gap:>13}'
              f'{back:>14}{gap_back:>13}{stop:>13}{own.get("steps", "-"):>12}')
    if usual:
        print(f'An iteration of a worker takes {statistics.median(usual):.3f} s (median), '
              f'all workers made {sum(map(len, iterations.values()))}.')
    for at in trial.restarts:
        print(f'The whole job was started again at {at - began:.1f} s')
    for at, known_as in trial.others_lost:
        print(f'Lost without a fault of ours: rank {known_as}, at {at - began:.1f} s')


def draw(trial, began, iterations, out):
    done = sorted(t - began for times in iterations.values() for t in times)
    if not done:
        return
    figure, (above, below) = pyplot().subplots(2, 1, figsize=(10, 6), sharex=True)
    above.plot(done, range(1, len(done) + 1), color=LINE_COLOURS[0], linewidth=1.8)
    above.set_ylabel('iterations of all workers')
    seconds = range(int(done[-1]) + 1)
    each = [bisect.bisect(done, s + 1) - bisect.bisect(done, s) for s in seconds]
    below.step([s + 0.5 for s in seconds], each, where='mid', color=LINE_COLOURS[0])
    below.set_ylabel('iterations a second')
    below.set_ylim(bottom=0)
    below.set_xlabel('seconds')
    for axes in (above, below):
        for fault in trial.faults:
            axes.axvline(fault.at - began, color=COLOURS[fault.kind], linewidth=1)
            if fault.back:
                axes.axvline(fault.back - began, color=LINE_COLOURS[2], linewidth=1, linestyle=':')
    for fault in trial.faults:
        above.text(fault.at - began, above.get_ylim()[1], f'{fault.kind} {fault.rank}', fontsize=8,
                   ha='center', va='bottom')
    figure.tight_layout()
    save(figure, str(Path(out) / 'chaos.png'))
    print(f'picture: {out}/chaos.png (dotted: a process is back)')


def accuracy(args):
    models = sorted(Path(args.out).glob('lenet_iter_*.caffemodel'), key=lambda p: p.stat().st_mtime)
    if not models:
        return None
    done = subprocess.run([f'{args.tools}/test', '--model=models/lenet/train_val.prototxt',
                           f'--weights={models[-1]}', f'--source={args.source}',
                           f'--iterations={args.tests}'], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    found = re.findall(r'\] accuracy = ([0-9.e-]+)$', done.stdout, re.MULTILINE)
    return float(found[-1]) if found else None


def read_arguments():
    words = sys.argv[1:]
    split = words.index('--') if '--' in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--tools', required=True)
    parser.add_argument('--out', required=True)
    parser.add_argument('--source', required=True, help='what is tested at the end')
    parser.add_argument('--tests', type=int, default=20, help='batches of 100 of that')
    parser.add_argument('--duration', type=float, default=180)
    parser.add_argument('--every', type=float, default=20)
    parser.add_argument('--stop', type=int, default=0)
    parser.add_argument('--cut', type=int, default=0)
    parser.add_argument('--seed', type=int, default=1)
    return parser.parse_args(words[:split]), words[split + 1:]


def main():
    use_python_with_matplotlib()
    args, command = read_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with Bridge('chaos', PROCESSES) if args.cut else contextlib.nullcontext() as bridge:
        trial = Trial(args, command, bridge)
        try:
            began = trial.run()
        finally:
            code = trial.end()
    if began is None:
        print(f'FAILED: training did not begin; see {args.out}/console', file=sys.stderr)
        return 1
    iterations = read_iterations(f'{args.out}/metrics')
    said, useful = read_account(f'{args.out}/metrics')
    print_table(trial, began, iterations, said)
    print_account(useful, iterations, useful['time'] if useful else 0)
    draw(trial, began, iterations, args.out)
    print(f'accuracy on {100 * args.tests} test images: {accuracy(args)}')
    if trial.others_lost or trial.restarts:
        print('FAILED: more was lost than what was hit', file=sys.stderr)
        return 1
    wrong = [f'{f.kind} of rank {f.rank} at {f.at - began:.1f} s' for f in trial.faults
             if f.went_wrong()]
    if wrong or code != 75 or not trial.faults:
        print(f'FAILED: the launcher ended with {code}, and 75 was expected; not lost or not back: '
              f'{", ".join(wrong) or "none"}; the log is {args.out}/console', file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    main_of(main)
