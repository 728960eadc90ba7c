#!/usr/bin/env python3
"""Turns a training log (Caffe's spelling; BVLC's own logs read as well) into two tables, LOG.train and LOG.test:
NumIters,Seconds,LearningRate and one column for each output of the net. Several test nets give LOG.test, LOG.test1 ..."""
import argparse
import csv
import datetime
import re
import sys
from pathlib import Path

from machines import main_of

DAY = 86400
NUMBER = r'([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf))'
STAMP = re.compile(r'^(?:\[\d+@[^]]*\] )?[IWEF](\d{4})?(\d\d)(\d\d) (\d\d):(\d\d):(\d\d(?:\.\d+)?)')   # launch.py's prefix before it
# BVLC's line until 2016, and since; ' (' may be followed by anything that stands in brackets, -nan iter/s among it.
TRAINED = re.compile(r'Iteration (\d+)( \(.*\))?, loss = ' + NUMBER)
OTHER = re.compile(r'\] (?:\[\d+\] )?Iteration \d+\b.*, loss = ')            # of a fork: NVIDIA's has epochs before the loss
TESTING = re.compile(r'Iteration (\d+), Testing net(?: \(#(\d+)\))?')          # the number since 2014
RATE = re.compile(r'Iteration (\d+), lr = ' + NUMBER)
OUTPUT = re.compile(r'(Train|Test) net output #\d+: (\S+) = ' + NUMBER)
SCORE = re.compile(r'Test (score #\d+|loss): ' + NUMBER)                       # BVLC's of 2013 and 2014


class Refused(Exception):
    pass


class Log:
    """train: rows {NumIters, Seconds, LearningRate, <output>: value, ...}, one per display; test: such rows for each test net.
    losses: (iteration, smoothed loss). A name that comes several times in a row (a per-class output) gets [1], [2] ... added.
    Raises Refused for a training line of a form that BVLC's log never had."""

    def __init__(self, lines):
        self.name, self.train, self.test, self.losses = '', [], {}, []
        self.start = self.now = None
        self.year, self.turned = 2001, 0.0                # if the stamps say none; seconds of the years before it
        self.counts = {}                                  # of names in the row that is filled
        row = rate = rated = None                         # rated: the iteration of the last rate
        maybe, alone = None, []                           # an old line is a row if outputs or a rate follow it; those that had none
        for line in lines:
            self.clock(line)
            if 'Solving ' in line:
                self.name = self.name or line.split('Solving ', 1)[1].strip()
                self.start = self.start if self.start is not None else self.now
            elif match := TESTING.search(line):
                row, maybe = self.add(self.test.setdefault(int(match.group(2) or 0), []), match.group(1), rate), None
            elif match := RATE.search(line):
                rate, rated = float(match.group(2)), match.group(1)
                if maybe and maybe[0] == rated:
                    row, maybe = self.add_old(maybe, rate), None
                # The rate's line follows the outputs of the iteration that it is about, or of the test before it.
                for rows in [self.train, *self.test.values()]:
                    if rows and rows[-1]['NumIters'] == int(rated):
                        rows[-1]['LearningRate'] = rate
            elif match := TRAINED.search(line):
                self.losses.append((int(match.group(1)), float(match.group(3))))
                maybe = None
                if match.group(2):                        # the last iteration's line has no rate and no outputs after it
                    row = self.add(self.train, match.group(1), rate)
                else:
                    row, maybe = None, (match.group(1), float(match.group(3)), self.now)
                    alone.append(maybe)
                    if rated == match.group(1):           # in 2013 the rate came first
                        row, maybe = self.add_old(maybe, rate), None
            elif match := OUTPUT.search(line):
                if maybe and match.group(1) == 'Train':
                    row, maybe = self.add_old(maybe, rate, None), None
                if row is not None:
                    self.put(row, match.group(2), match.group(3))
            elif (match := SCORE.search(line)) and row is not None:
                self.put(row, match.group(1).replace(' #', ''), match.group(2))
            elif OTHER.search(line):
                raise Refused(f'{line.strip()[:160]}\nis no line of BVLC\'s log or of Shoal\'s: "Iteration N, loss = X" or '
                              '"Iteration N (... iter/s, ...s/... iters), loss = X". NVIDIA\'s and Intel\'s forks write others, '
                              'which their own parse_log.py reads')
        if not self.train:                                # a log of these lines alone
            for line in alone:
                self.add_old(line, rate)

    def put(self, row, name, value):
        """Puts an output into the row, under its name, or that with [1], [2] ..., in a time that does not grow with the row."""
        count = self.counts.get(name, 0)
        own = f'{name}[{count}]' if count else name
        while own in row:
            count += 1
            own = f'{name}[{count}]'
        self.counts[name] = count + 1
        row[own] = float(value)

    def add_old(self, line, rate, loss=True):
        """Adds a row of an old line (iteration, loss, time), without outputs with the loss of the line alone."""
        now, self.now = self.now, line[2]
        row = self.add(self.train, line[0], rate)
        self.now = now
        if loss:
            row['loss'] = line[1]
        return row

    def clock(self, line):
        """Seconds since a beginning of a year. A stamp without a year is of one without a 29th of February, unless there is one, and a stamp
        that is more than a day before the last is of the next."""
        if not (match := STAMP.match(line)):
            return
        year, month, day, hour, minute = (int(group or 0) for group in match.groups()[:5])
        if (month, day) == (2, 29):
            self.year = 2000
        try:
            first = datetime.datetime(2000 if year else self.year, 1, 1)
            now = (datetime.datetime(year or self.year, month, day, hour, minute) - first).total_seconds() + float(match.group(6)) + self.turned
        except ValueError:                                # no time
            return
        if not year and self.now is not None and now < self.now - DAY:
            of_year = (366 if self.year == 2000 else 365) * DAY
            self.year, self.turned, now = 2001, self.turned + of_year, now + of_year
        self.now = now

    def add(self, rows, iteration, rate):
        seconds = self.now - self.start if self.start is not None and self.now is not None else float('nan')
        self.counts = {}
        rows.append({'NumIters': int(iteration), 'Seconds': round(seconds, 6), 'LearningRate': float('nan') if rate is None else rate})
        return rows[-1]


def read_log(path):
    with (sys.stdin if path == '-' else open(path, errors='replace')) as lines:
        try:
            return Log(lines)
        except Refused as refused:
            sys.exit(f'{path}: {refused}')


def columns(rows):
    names = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    return list(names)


def write_table(path, rows, delimiter):
    with open(path, 'w', newline='') as out:
        writer = csv.DictWriter(out, fieldnames=columns(rows), delimiter=delimiter, lineterminator='\n')
        writer.writeheader()
        writer.writerows(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('logfile_path')
    parser.add_argument('output_dir', nargs='?', default='.')
    parser.add_argument('--delimiter', default=',')
    parser.add_argument('--verbose', action='store_true', help='say what was written')
    arguments = parser.parse_args()
    if len(arguments.delimiter) != 1 or arguments.delimiter in '"\r\n':
        parser.error(f'--delimiter={arguments.delimiter}: it must be one character, and no quote or line break; a tab is --delimiter=$\'\\t\'')
    log = read_log(arguments.logfile_path)
    if not log.train and not log.test:
        sys.exit(f'{arguments.logfile_path}: no "Iteration N ..., loss = ..." line; is this a training log?')
    stem = Path(arguments.output_dir) / Path(arguments.logfile_path).name
    tables = [('.train', log.train)] + [(f'.test{net or ""}', rows) for net, rows in sorted(log.test.items())]
    for suffix, rows in tables:
        write_table(f'{stem}{suffix}', rows, arguments.delimiter)
        if arguments.verbose:
            print(f'{stem}{suffix}: {len(rows)} rows')


if __name__ == '__main__':
    main_of(main)
