#!/usr/bin/env python3
"""Runs a job on this machine as on several with slow links: slow_links.py --machines=4 --mbit=10 --delay_ms=20 -- TRAIN ...

Each process gets a network namespace, and this program carries the frames between them: each way at most --mbit a second of a machine, and
--delay_ms later. It needs root (or CAP_NET_ADMIN), `ip`, and about a core for 100 Mbit/s. The command is train's, without flags of the
machines; the output of process k goes to --out/rank.k, and the code is the first that is not 0."""
import argparse
import array
import collections
import fcntl
import os
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

from machines import main_of
from namespaces import Namespaces, ip

FRAME, QUEUE = 65536, 400                  # bytes; frames that a link holds before it drops some
SIOCETHTOOL, ETHTOOL_STXCSUM = 0x8946, 0x17


def write_all_checksums(interface):
    """Has the kernel write the checksum of each frame that it sends there: the other end is no part of it."""
    setting = array.array('B', struct.pack('II', ETHTOOL_STXCSUM, 0))
    request = struct.pack('16sP', interface.encode(), setting.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCETHTOOL, request)


class Link:
    """What one machine sends, on its way."""

    def __init__(self, rate, delay):
        self.rate, self.delay, self.frames, self.free = rate, delay, collections.deque(), 0.0
        self.bytes = self.dropped = 0

    def take(self, frame, now):
        if len(self.frames) >= QUEUE:
            self.dropped += 1
            return
        self.free = max(self.free, now) + len(frame) / self.rate
        self.bytes += len(frame)
        self.frames.append((self.free + self.delay, frame))


class Network(threading.Thread):
    """Namespaces whose cards end in sockets of this process."""

    def __init__(self, spaces, rate, delay):
        super().__init__(daemon=True)
        self.links = [Link(rate, delay) for _ in range(spaces.machines)]
        self.sockets, self.at, self.over = [], {}, False
        for k in range(spaces.machines):
            name = spaces.name + str(k)
            spaces.add_machine(k, port=name)
            subprocess.run([*spaces.starter(k), sys.executable, __file__, '--card'], check=True)
            ip('-n', name, 'link', 'set', 'eth0', 'gso_max_size', '1500', 'gso_max_segs', '1')
            ip('link', 'set', name, 'up')
            end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            end.bind((name, 0))
            end.setblocking(False)
            self.sockets.append(end)

    def run(self):
        while not self.over:
            now = time.monotonic()
            due = [link.frames[0][0] for link in self.links if link.frames]
            wait = max(0.0, min(due) - now) if due else 1.0
            for end in select.select(self.sockets, [], [], wait)[0]:
                self.receive(self.sockets.index(end), end)
            now = time.monotonic()
            for link in self.links:
                while link.frames and link.frames[0][0] <= now:
                    self.deliver(link.frames.popleft()[1])

    def receive(self, k, end):
        while True:
            try:
                frame, address = end.recvfrom(FRAME)
            except BlockingIOError:
                return
            if address[2] == socket.PACKET_OUTGOING:          # this process's own
                continue
            self.at[frame[6:12]] = k
            self.links[k].take(frame, time.monotonic())

    def deliver(self, frame):
        to = self.at.get(frame[:6])
        for k, end in enumerate(self.sockets):
            if (to is None and self.at.get(frame[6:12]) != k) or to == k:
                try:
                    end.send(frame)
                except (BlockingIOError, OSError):
                    self.links[k].dropped += 1

    def end(self):
        self.over = True
        self.join()


def run_job(spaces, network, out, command):
    """Returns the codes of the processes."""
    machines = spaces.write_machinefile(out)
    os.environ.setdefault('SHOAL_JOB_TOKEN', secrets.token_hex(32))
    running = []
    try:
        for k in range(spaces.machines):
            with open(out / f'rank.{k}', 'w') as log:
                running.append(subprocess.Popen([*spaces.starter(k), *command, f'--machinefile={machines}', f'--client_id={k}'],
                                                stdout=log, stderr=log))
        return [process.wait() for process in running]
    except KeyboardInterrupt:
        for process in running:
            process.send_signal(signal.SIGINT)
        return [process.wait() for process in running]
    finally:
        network.end()


def main():
    if sys.argv[1:] == ['--card']:                            # within a namespace
        write_all_checksums('eth0')
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--machines', type=int, default=4)
    parser.add_argument('--mbit', type=float, default=10)
    parser.add_argument('--delay_ms', type=float, default=20)
    parser.add_argument('--out', default='build/slow_links')
    parser.add_argument('command', nargs='+')
    args = parser.parse_args()
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    with Namespaces('slow', args.machines) as spaces:
        network = Network(spaces, args.mbit * 125000, args.delay_ms / 1000)
        network.start()
        begin = time.monotonic()
        codes = run_job(spaces, network, out, args.command)
    seconds = time.monotonic() - begin
    for k, link in enumerate(network.links):
        print(f'machine {k}: {link.bytes / 1e6:.1f} MB sent, {link.bytes * 8e-6 / seconds:.2f} Mbit/s, {link.dropped} frames dropped')
    print(f'{seconds:.1f} s, codes {codes}')
    return next((code for code in codes if code), 0)


if __name__ == '__main__':
    main_of(main)
