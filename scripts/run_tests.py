#!/usr/bin/env python3
"""Runs every test of the test program in lanes side by side: one lane a core for the tests that compute, and two more for those that
mostly wait: tests of real processes, and of services and links over TCP. A lane takes the next suites when it has run its last
ones. What the suites printed is shown when they have ended; the end is the slowest tests, the skipped ones, why the failed ones
failed, and one line: "N passed, N failed, N skipped".
usage: run_tests.py PROGRAM [--slowest=N] [the program's other flags]"""
import os
import re
import subprocess
import sys
import threading

WAITING = re.compile(r'(.*/)?(Process|Service|Link)')     # names of suites that mostly wait
WAITING_LANES = 2
COUNTS = re.compile(r'^(\d+) passed, (\d+) failed, (\d+) skipped$', re.MULTILINE)
SUMMARY = re.compile(r'^(slow|skipped|failed): ', re.MULTILINE)
SLOW = re.compile(r'^slow: +([\d.]+) s +(\S+)$', re.MULTILINE)
STARTED = re.compile(r'^\[ RUN      \] (\S+)$', re.MULTILINE)


def suites(program):
    """The names of the program's suites, each with the number of its tests, in the order in which they run."""
    listed = subprocess.run([program, '--gtest_list_tests'], check=True, stdout=subprocess.PIPE, text=True).stdout
    found = {}
    for line in listed.splitlines():
        if match := re.match(r'(\S+)\.(\s|$)', line):
            name = match.group(1)
            found[name] = 0
        elif line.startswith('  ') and found:
            found[name] += 1
    return list(found.items())


class Queue:
    """Suites for lanes that work on them together: many at first, few at the end, so that all lanes end at nearly one time."""

    def __init__(self, work, lanes):
        self.work, self.lanes, self.lock = list(work), lanes, threading.Lock()

    def take(self):
        """The flags that run the next suites, or None."""
        with self.lock:
            share = sum(tests for _, tests in self.work) / (12 * self.lanes)
            names, tests = [], 0
            while self.work and (not names or tests + self.work[0][1] <= share):
                name, more = self.work.pop(0)
                names.append(f'{name}.*')
                tests += more
        return [f'--gtest_filter={":".join(names)}'] if names else None


class OnlyOnce:
    """One piece of work: the whole of a filter that the caller gave."""
    lanes = 1

    def __init__(self):
        self.flags = [[]]

    def take(self):
        return self.flags.pop() if self.flags else None


class Report:
    def __init__(self, program, flags):
        self.program, self.flags, self.lock = program, flags, threading.Lock()
        self.total, self.slow, self.said, self.died = [0, 0, 0], [], {'skipped': [], 'failed': []}, []

    def work(self, queue):
        """A lane: runs what the queue gives until it is empty."""
        while (which := queue.take()) is not None:
            ran = subprocess.run([self.program, *which, *self.flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 encoding='utf-8', errors='replace')
            with self.lock:
                self.add(ran.stdout, ran.returncode)

    def add(self, said, status):
        said = re.sub(r'^Note: Google Test filter = .*\n', '', said)
        body, mark, end = said.rpartition('[==========]')  # after it the program sums up
        counts = COUNTS.findall(end)
        first = SUMMARY.search(end) if counts else None
        summary = COUNTS.sub('', end[first.start():] if first else '')
        print((body + mark + (end[:first.start()] if first else COUNTS.sub('', end))).rstrip('\n'), flush=True)
        self.slow += [(float(seconds), name) for seconds, name in SLOW.findall(summary)]
        for _, kind, words in re.findall(r'^((skipped|failed): (.*(?:\n(?!(?:slow|skipped|failed): ).*)*))', summary, re.MULTILINE):
            self.said[kind].append(words.rstrip('\n'))
        if counts:
            self.total = [sum(pair) for pair in zip(self.total, map(int, counts[-1]))]
        if not counts or (status != 0 and counts[-1][1] == '0'):
            started = STARTED.findall(said)
            self.died.append(f'the test program ended with {status}' + ('' if counts else ' before it counted its tests')
                             + (f'; its last test was {started[-1]}' if started else ''))

    def finish(self, slowest):
        for seconds, name in sorted(self.slow, reverse=True)[:slowest]:
            print(f'slow: {seconds:8.2f} s {name}')
        for kind, words in [*self.said.items(), ('failed', self.died)]:
            for line in words:
                print(f'{kind}: {line}')
        print('%d passed, %d failed, %d skipped' % (self.total[0], self.total[1] + len(self.died), self.total[2]), flush=True)
        return 1 if self.total[1] or self.died else 0


def main(program, flags):
    report = Report(program, flags)
    if any(flag.startswith('--gtest_filter') for flag in flags):
        queues = [OnlyOnce()]
    else:
        work = suites(program)
        queues = [Queue([one for one in work if not WAITING.match(one[0])], len(os.sched_getaffinity(0))),
                  Queue([one for one in work if WAITING.match(one[0])], WAITING_LANES)]
    lanes = [threading.Thread(target=report.work, args=(queue,)) for queue in queues for _ in range(queue.lanes)]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    wanted = [flag.partition('=')[2] for flag in flags if flag.startswith('--slowest=')]
    return report.finish(int(wanted[-1]) if wanted else 0)


if __name__ == '__main__':
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
