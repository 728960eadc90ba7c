#!/usr/bin/env python3
"""Starts a job: the same command on every machine of a machinefile, over ssh, or several times on this one.

  scripts/launch.py --machinefile=FILE -- build/release/tools/train --solver=S.prototxt
  scripts/launch.py --local=4          -- build/release/tools/train --solver=S.prototxt
  scripts/launch.py -n 12 -s 4 -H HOSTS -- build/release/tools/train --solver=S.prototxt
  scripts/launch.py check --machinefile=FILE -- build/release/tools/train --solver=S.prototxt

-n and -s are dmlc's: so many workers, and so many servers beside them, on the addresses of HOSTS in turn; without -s each worker holds
params too, without -H all run here. --sync=PATHS copies files and folders from here to the same place on each other host first.

Every process gets --machinefile and --client_id behind the command's own words, and the job's token in its environment. One log a
process lies in logs/<job>/; the console shows all of them with the prefix [rank@host]. The first process that fails is named with its
last words, the rest is stopped, and its exit code is the launcher's. Ctrl-C stops every process of the job and no other: with SIGINT
(the trainer ends after its iteration), or with --interrupt=snapshot by SIGUSR1 (a snapshot first, exit code 75). What still runs after
--grace seconds is killed, and a second Ctrl-C kills at once. SIGTERM to the launcher means a snapshot, and ends with 75 if there is
one, else with 143. A process that ends with 75 by itself has left the job, which goes on: scripts/stop.py --job=NAME --rank=K makes one
leave. What was left behind, scripts/stop.py stops.

A process that was killed, or ends with 6 or 8, is no failure if another's log says within --settle
seconds that the job goes on without it. --restart=N starts it again on its machine, where it joins
the job, after 1, 2, 4 ... 60 seconds (less again after minutes of a good life), and at most N
times. If the whole job is lost because it cannot go on, all its processes start again with
--snapshot=auto. What ends with 2, 3, 4, 5, 7 or 9 is for its user to
mend, and is not started again. The last lines list what was lost, and when it was back."""
import argparse
import json
import os
import queue
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import launch_check
from launch_check import values_of
from launch_losses import PEER_LOST, Loss, Losses
from launch_rank import KILLED, Rank
from launch_sync import paths_of, sync
from machinefile import MOST_PROCESSES, UsageError, hosts_text, machinefile_text, read_machinefile
from machines import JOB, Hosts, add_ssh_flags, jobs_folder, main_of

DISK_FULL, REQUEUE = 9, 75
UNREADY = KILLED + signal.SIGUSR1  # a trainer that was told to stop before it takes signals; its peers may lose it
# Lines of a trainer's log.
SNAPSHOT, FINISHED = 'Snapshotting solver state', 'Optimization Done.'
ENDED = re.compile(r'\brank (\d+)\b[^:]* has ended: ')


class Job:
    def __init__(self, args, processes, command):
        self.args, self.processes, self.command = args, processes, command
        self.name = args.job or time.strftime('%Y%m%d-%H%M%S-') + secrets.token_hex(2)
        self.hosts = Hosts(args.ssh_port, args.ssh_identity, args.ssh_args, args.force_ssh)
        self.logs = Path(args.log_dir) / self.name
        self.logs.mkdir(parents=True, exist_ok=True)
        self.token = os.environ.get('SHOAL_JOB_TOKEN') or secrets.token_hex(32)
        self.machinefile = machinefile_text(processes)
        self.events, self.console = queue.SimpleQueue(), threading.Lock()   # a signal's handler puts too, whatever the main thread is at
        self.ranks, self.interrupts, self.handled, self.failed = [], 0, 0, []
        self.kill_at = self.timer = self.signal = None
        self.killed = self.logs_cut = False
        self.losses = Losses(self)

    def show(self, line):
        with self.console:
            try:
                sys.stderr.write(line)
                sys.stderr.flush()
            except OSError:                                   # nothing reads it any more, or its disk is full; the job goes on
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())

    def record(self):
        """Where stop.py finds what this launcher started."""
        folder = jobs_folder()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f'{self.name}.json'
        content = {'job': self.name, 'launcher': os.getpid(), 'command': self.command, 'ssh': self.hosts.options(),
                   'machinefile': self.machinefile}
        if path.exists() and launcher_runs(path):
            raise UsageError(f'--job={self.name}: a job of this name runs already; give another name, or stop it: scripts/stop.py --job={self.name}')
        path.write_text(json.dumps(content, indent=1) + '\n')
        return path

    def signal_all(self, name):
        for rank in self.ranks:
            if rank.code is None:
                rank.say(name + '\n')

    def on_interrupt(self, number, _):
        self.interrupts += 1
        self.signal = self.signal or number
        self.events.put(None)                                 # wakes the loop, where the rest happens

    def run(self):
        record = self.record()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.on_interrupt)
        self.show(f'launch: job {self.name}, {len(self.processes)} processes, logs in {self.logs}\n')
        try:
            for process in self.processes:
                self.ranks.append(Rank(process, self))
            self.supervise()
            while self.begin_again():
                self.supervise()
        finally:
            if self.stop_rest():
                record.unlink(missing_ok=True)
        self.losses.report()
        return self.verdict()

    def is_over(self):
        """Whether the job has failed, or has ended for those that take part in it."""
        takes_part = [rank for rank in self.ranks if not self.losses.no_part(rank)]
        return bool(self.failed) or any(rank.ended and rank.code == 0 for rank in takes_part) or all(rank.ended for rank in takes_part)

    def trains(self):
        """Whether nothing stops the job, as far as is known here."""
        return not self.interrupts and not self.is_over()

    def supervise(self):
        """Until the end of each rank has been looked at and none waits for its next start, or some
        do not end although they were killed."""
        while not all(rank.ended for rank in self.ranks) or self.losses.next_time() is not None:
            event = self.next_event()
            if event is None and self.kill_at is not None and time.monotonic() >= self.kill_at:
                if self.killed:
                    return
                self.show('launch: not all have ended; killing the rest\n')
                self.kill()
            while self.handled < self.interrupts:
                self.handled += 1
                self.interrupt(self.handled)
            if isinstance(event, tuple):                      # from Rank.hear()
                what, who = event
                {'lost': self.losses.lost, 'rejoins': self.losses.rejoins, 'joined': self.losses.joined}[what](who)
            elif event is not None:
                self.on_end(event)
            failed, due = self.losses.on_time()
            for rank in failed:
                self.on_failure(rank)
            for process in due:
                self.ranks[process.rank] = Rank(process, self, joins=True)
            self.release_lost()

    def next_event(self):
        """A process that has ended, or what a log said; None after an interrupt, or if it is time
        to do something."""
        times = [t for t in (self.kill_at, self.losses.next_time()) if t is not None]
        try:
            return self.events.get(timeout=max(0.05, min(times) - time.monotonic()) if times else None)
        except queue.Empty:
            return None

    def on_end(self, rank):
        rank.ended = True
        self.losses.ended(rank)
        cut_off = rank.code == REQUEUE and self.losses.is_out(rank)
        if rank.code == REQUEUE and not self.interrupts and not cut_off:
            self.show(f'launch: {rank.process.name} has ended with code {REQUEUE}: it left the job, or the job stops after a snapshot\n')
        elif (cut_off or rank.code not in (0, REQUEUE)) and not (self.interrupts and rank.code == UNREADY) and not self.losses.takes(rank):
            self.on_failure(rank)

    def release_lost(self):
        """Ends what does not take part in the job once the job is over."""
        left = [rank for rank in self.ranks if not rank.ended]
        if self.kill_at is None and left and self.is_over() and all(map(self.losses.no_part, left)):
            for rank in left:
                rank.say('INT\n')
            self.kill_at = time.monotonic() + self.args.settle

    def begin_again(self):
        """Starts all processes once more if the job was lost and may be; otherwise returns False."""
        if not self.losses.may_begin_again() or not self.stop_rest():
            return False
        for rank in self.ranks:
            rank.threads[-1].join()
        entry = Loss(self.culprit(), time.time(), whole=True)
        self.losses.history.append(entry)
        self.show(f'launch: the job was lost: {entry.rank.process.name} ended with code {entry.rank.code}\n')
        if not self.wait_until(self.losses.next_start(self.ranks[0], whole=True)):
            self.show('launch: interrupted; the job is not started again\n')
            return False
        self.losses.all_back()
        self.command = self.command_to_go_on()
        self.failed, self.kill_at, self.timer, self.killed = [], None, None, False
        self.losses.begin()
        while not self.events.empty():
            self.events.get()
        self.ranks = [Rank(process, self, again=True) for process in self.processes]
        return True

    def wait_until(self, moment):
        """Returns whether nothing interrupted the wait."""
        while not self.interrupts and (left := moment - time.monotonic()) > 0:
            try:
                self.events.get(timeout=left)
            except queue.Empty:
                break
        return not self.interrupts

    def command_to_go_on(self):
        """The command that goes on from the newest snapshot. One that was given stays as long as
        the job wrote none."""
        given = values_of(self.command, 'snapshot')
        wrote = any(SNAPSHOT in rank.words() for rank in self.ranks)
        return self.command if given and (given[-1] == 'auto' or not wrote) else [*self.command, '--snapshot=auto']

    def interrupt(self, count):
        if count == 1:
            # SIGTERM is a scheduler's: what was trained is to be kept, as train keeps it when it gets one
            name = 'USR1' if self.args.interrupt == 'snapshot' or self.signal == signal.SIGTERM else 'INT'
            self.show(f'launch: interrupted; sending SIG{name} to all processes of the job; those that still run in {self.args.grace} s '
                      '(--grace) are killed, and once more kills them at once\n')
            self.signal_all(name)
            grace_ends = time.monotonic() + self.args.grace
            self.kill_at = grace_ends if self.kill_at is None else min(self.kill_at, grace_ends)
        elif not self.killed:
            self.kill()

    def kill(self):
        self.signal_all('KILL')
        self.kill_at, self.killed = time.monotonic() + self.args.grace, True

    def on_failure(self, rank):
        self.failed.append(rank)
        if len(self.failed) > 1 or self.interrupts:
            return
        self.show(f'launch: {rank.process.name} ended with code {rank.code}; stopping the others\n')
        self.kill_at = time.monotonic() + self.args.settle    # they learn it from each other first, and say more than a killed one could
        self.timer = threading.Timer(self.args.settle / 2, self.signal_all, ['INT'])
        self.timer.start()

    def stop_rest(self):
        """Whatever way run() ends, nothing of the job goes on. Whether all processes have ended."""
        if self.timer:
            self.timer.cancel()
        self.signal_all('KILL')
        for rank in self.ranks:
            if rank.code is None:
                rank.hang_up()
        deadline, all_ended = time.monotonic() + (1 if self.killed else self.args.grace + 10), True
        for rank in self.ranks:
            try:
                rank.popen.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                all_ended = False
                self.show(f'launch: {rank.process.name} does not end; scripts/stop.py --job={self.name} tries again\n')
                rank.popen.kill()                             # the ssh, or the shell here
        return all_ended

    def verdict(self):
        unready = self.interrupts and any(rank.code == UNREADY for rank in self.ranks)
        if unready:
            self.failed = [rank for rank in self.failed if rank.code != PEER_LOST]
        codes = {rank.code for rank in self.ranks if not self.losses.no_part(rank)}
        if not self.failed and REQUEUE in codes and 0 not in codes:
            self.show('launch: stopped after a snapshot; the same command with --snapshot=auto goes on\n')
            return REQUEUE
        if not self.failed and any(rank.code is None and not self.losses.no_part(rank) for rank in self.ranks):
            return KILLED + signal.SIGKILL
        if not self.failed:
            cut_off = unready or self.signal in (signal.SIGTERM, signal.SIGHUP) and self.cut_off()
            return KILLED + self.signal if cut_off else DISK_FULL if self.logs_cut else 0
        first = self.culprit()
        self.show(f'launch: the first to fail was {first.process.name}, with code {first.code}; its last lines ({first.error_log}):\n')
        for line in first.last_words():
            self.show(f'    {line}\n')
        if any(SNAPSHOT in rank.words() for rank in self.ranks):
            self.show('launch: snapshots were written; the same command with --snapshot=auto goes on from the newest\n')
        return first.code

    def cut_off(self):
        """Whether the trainer ended before its last iteration; of another command that is not known, and it did."""
        return not any(FINISHED in rank.words() for rank in self.ranks)

    def culprit(self):
        """The process that failed by itself. One that lost a peer, or heard from the coordinator that another had ended, is not it,
        unless no other failed."""
        named = {int(rank) for failed in self.failed for line in failed.last_words() for rank in ENDED.findall(line)}
        own = [rank for rank in self.failed if rank.process.rank in named]
        return next(iter(own), next((rank for rank in self.failed if rank.code != PEER_LOST), self.failed[0]))


def launcher_runs(record):
    """Whether the launcher that wrote a job's record still runs on this machine."""
    try:
        return b'launch.py' in Path('/proc', str(json.loads(record.read_text())['launcher']), 'cmdline').read_bytes()
    except (OSError, ValueError, KeyError, TypeError):
        return False


RESERVED = []  # sockets


def reserve_ports(count):
    """Ports that no other program gets until this one ends: sockets that do not listen are bound to them. They do not keep a
    process from listening there, as long as its socket has SO_REUSEADDR, as train's have."""
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(('127.0.0.1', 0))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    RESERVED.extend(sockets)
    return [s.getsockname()[1] for s in sockets]


def read_text(path, flag):
    try:
        return Path(path).read_bytes().decode('utf-8', 'surrogateescape')
    except OSError as error:
        raise UsageError(f'{flag}: {error.filename}: {error.strerror}') from None


def local_processes(workers, servers=0):
    roles = [' role=worker'] * workers + [' role=server'] * servers if servers else [''] * workers
    lines = (f'{k} 127.0.0.1 {port}{role}\n' for k, (port, role) in enumerate(zip(reserve_ports(len(roles)), roles)))
    return read_machinefile(''.join(lines), 'this machine')


def processes_of(args):
    ways = (bool(args.machinefile), args.local is not None, args.num_workers is not None)
    if sum(ways) != 1:
        raise UsageError('exactly one of --machinefile=FILE and --local=N is needed, or -n WORKERS [-s SERVERS] [-H HOSTS]')
    if args.num_workers is None and (args.num_servers is not None or args.hosts):
        raise UsageError('-s and -H go with -n WORKERS')
    workers, servers = args.local if args.local is not None else args.num_workers, args.num_servers or 0
    if args.machinefile:
        return read_machinefile(read_text(args.machinefile, '--machinefile'), args.machinefile)
    given = f'--local={workers}' if args.local is not None else f'-n {workers}'
    if workers < 1:
        raise UsageError(f'{given}: at least 1')
    if servers < 0:
        raise UsageError(f'-s {servers}: from 0 servers up')
    if workers + servers > MOST_PROCESSES:
        raise UsageError(f'{given}{f" -s {servers}" if servers else ""}: at most {MOST_PROCESSES} processes')
    if not args.hosts:
        return local_processes(workers, servers)
    return read_machinefile(hosts_text(read_text(args.hosts, '-H'), args.hosts, workers, servers), args.hosts)


def read_arguments(words):
    bare = '--' not in words                                  # dmlc's way: the command begins at the first word that is no flag
    split = len(words) if bare else words.index('--')
    words, command = words[:split], words[split + 1:]
    checking = words[:1] == ['check']
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument('--machinefile', '--hostfile', metavar='FILE', help='the processes of the job, one a line')
    parser.add_argument('--local', type=int, metavar='N', help='N processes on this machine, on free ports')
    parser.add_argument('-n', '--num_workers', '--num-workers', type=int, metavar='WORKERS', help='number of workers')
    parser.add_argument('-s', '--num_servers', '--num-servers', type=int, metavar='SERVERS', help='with -n: number of servers beside the workers')
    parser.add_argument('-H', '--hosts', metavar='FILE', help='with -n: file with one address a line; processes take them in turn; default: this machine')
    parser.add_argument('-i', '--interface', metavar='NAME', help='with -H: the network interface that processes listen on, as iface= in a machinefile')
    parser.add_argument('--launcher', '--cluster', default='ssh', metavar='WAY',
                        help="dmlc's: ssh, or local for this machine; of others that start processes by themselves, mpi and slurm, see the docs")
    parser.add_argument('--sync', metavar='PATHS', help='copy these files and folders (a,b,c) to each other host first; "." is the current folder')
    parser.add_argument('--sync_timeout', type=float, default=1800, metavar='SECONDS', help='limit for the copies to one host; default: %(default)s')
    parser.add_argument('--log_dir', default='logs', help='folder of the logs; default: %(default)s')
    parser.add_argument('--job', default='', help='name of the job; default: the time and a random number')
    parser.add_argument('--remote_dir', default='', metavar='FOLDER', help="folder where the command runs on other hosts; default: this folder's path")
    parser.add_argument('--interrupt', choices=('stop', 'snapshot'), default='stop', help='what Ctrl-C means; default: %(default)s')
    parser.add_argument('--settle', type=float, default=10, metavar='SECONDS', help='after a failure, time for the other processes to end by themselves; default: %(default)s')
    parser.add_argument('--grace', type=int, default=60, metavar='SECONDS',
                        help='after an interrupt, or when the launcher is gone, time until processes that still run are killed; default: %(default)s')
    parser.add_argument('--check', action='store_true', help='check first, and start only if nothing is wrong')
    parser.add_argument('--restart', type=int, default=0, metavar='N',
                        help='start a process that was killed or lost again, or the whole job if it is lost, at most N times each; default: %(default)s')
    add_ssh_flags(parser)
    if bare:
        parser.add_argument('command', nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    args = parser.parse_args(words[1:] if checking else words)
    command = args.command if bare else command
    if not command:
        raise UsageError('the command to run is missing: ... -- build/release/tools/train --solver=FILE')
    if '\n' in os.environ.get('SHOAL_JOB_TOKEN', ''):        # the agents read it as one line
        raise UsageError('SHOAL_JOB_TOKEN has several lines; a token is one')
    if args.launcher not in ('ssh', 'local'):
        started = {'mpi': 'mpirun', 'slurm': 'srun'}.get(args.launcher)
        instead = f': start the command itself with {started} -n {args.num_workers or "N"} {" ".join(command)}; it reads the variables of {started}' \
            if started else '; it is ssh or local, and YARN and SGE are not followed here'
        raise UsageError(f'--launcher {args.launcher}{instead}')
    if args.restart < 0:
        raise UsageError(f'--restart={args.restart}: from 0 up')
    if args.job and not JOB.fullmatch(args.job):
        raise UsageError(f'--job={args.job}: a name has letters, digits, "_", "-" and ".", and does not begin with "." or "-"')
    return args, command, checking


def main():
    args, command, checking = read_arguments(sys.argv[1:])
    if args.launcher == 'local':
        args.hosts = None
    processes = processes_of(args)
    if args.interface and args.hosts:
        for process in processes:
            process.keys.setdefault('iface', args.interface)
    elif args.interface:
        print(f'-i {args.interface} has no effect on processes of this machine alone', file=sys.stderr)
    hosts = Hosts(args.ssh_port, args.ssh_identity, args.ssh_args, args.force_ssh)
    if not all(map(hosts.is_local, processes)) and not shutil.which('ssh'):
        raise UsageError('the machinefile names other hosts, and there is no ssh here')
    folder = args.remote_dir or os.getcwd()
    if args.sync is not None and not checking and not sync(hosts, processes, folder, paths_of(args.sync, args.log_dir), args.sync_timeout,
                                                           sys.stderr.write):
        return 1
    if checking or args.check:
        wrong = launch_check.check(hosts, processes, command, folder)
        if checking or wrong:
            return 1 if wrong else 0
    return Job(args, processes, command).run()


if __name__ == '__main__':
    main_of(main)
