#!/usr/bin/env python3
"""Tests metrics.py, summarize.py, plot.py with runs, and compare_schemes.py with a simulator that only writes down what it was told."""
import contextlib
import io
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import compare_schemes
import metrics
import plot
import plot_runs
import summarize

HERE = Path(__file__).resolve().parent
CLOCK = {'kind': 'clock', 'worker': 0, 'clock': 0, 'time': 1.0, 'compute': 0.5, 'data_wait': 0.1, 'row_wait': 0.3, 'update': 0.05, 'other': 0.05, 'send': 0.2,
         'receive': 0.1, 'bytes_sent': 1000, 'bytes_received': 900, 'samples': 32, 'local_steps': 1, 'drops': 0,
         'staleness': {'reads': {'0': 3, '1': 1}, 'pushes': {'0': 2, '12': 2}}}

# What tools/simulate would leave; the scheme's name says how well it goes. Its last line is what it was called with.
SIMULATOR = '''#!{python}
import json, os, sys
flags = dict(word[2:].split('=', 1) for word in sys.argv[1:])
flags['scheme'] = flags['scheme'].split(' ')[0]
if flags['scheme'] == '?':
    sys.exit("scheme '?': no scheme is named '?'; known: async, bsp, broken, ssp")
if flags['scheme'] == 'broken':
    print('it is broken')
    sys.exit(3)
os.makedirs(flags['out'], exist_ok=True)
step, final = {{'bsp': (1.0, 0.95), 'ssp': (0.5, 0.95), 'async': (0.25, 0.90)}}[flags['scheme']]
if flags['scheme'] == 'async' and flags.get('set') == 'base_lr: 0.03':
    final = 0.99
print(' '.join(sys.argv[1:]))
for worker in range(2):
    with open(flags['out'] + '/metrics.%d.jsonl' % worker, 'w') as out:
        def say(**line):
            out.write(json.dumps(line) + '\\n')
        say(kind='run', name='Net', scheme=flags['scheme'], worker=worker, workers=2, simulated=True)
        for clock in range(20):
            say(kind='clock', worker=worker, clock=clock, time=step * (clock + 1), compute=0.2, data_wait=0, row_wait=step - 0.2, update=0, other=0,
                send=0.1, receive=0.1, bytes_sent=1000, bytes_received=1000, samples=10, local_steps=1, drops=0, staleness={{'pushes': {{'1': 1}}, 'reads': {{}}}})
            if worker == 0:
                say(kind='display', clock=clock + 1, time=step * (clock + 1), loss=2 / (clock + 1), outputs={{}})
                say(kind='test', clock=clock + 1, time=step * (clock + 1), net=0, loss=1 / (clock + 1), outputs={{'accuracy': final * (clock + 1) / 20, 'loss': 1}})
'''


def lines(path, *items):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(''.join(json.dumps(item) + '\n' for item in items))
    return path


def size_of(path):
    data = path.read_bytes()
    assert data[:8] == b'\x89PNG\r\n\x1a\n', path
    return struct.unpack('>II', data[16:24])


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix='metrics_test.'))
        self.addCleanup(shutil.rmtree, self.folder)

    def script(self, name, *words):
        return subprocess.run([sys.executable, HERE / name, *map(str, words)], capture_output=True, text=True, timeout=240, cwd=self.folder)


class ReaderTest(Case):
    def run_of(self, *items, name='run'):
        lines(self.folder / name / 'metrics.0.jsonl', *items)
        return metrics.read_run(self.folder / name)

    def test_sums_and_shares(self):
        lines(self.folder / 'run/metrics.1.jsonl', {**CLOCK, 'worker': 1, 'time': 4.0, 'samples': 64, 'compute': 1.0, 'row_wait': None})
        run = self.run_of({'kind': 'run', 'name': 'LeNet', 'scheme': 'ssp 2', 'simulated': True}, CLOCK, {**CLOCK, 'clock': 1, 'time': 2.0})
        self.assertEqual((run.label, run.name, run.simulated, list(run.clocks)), ('ssp 2', 'LeNet', True, [0, 1]))
        self.assertEqual(run.throughput(), (32 + 32 + 64) / 4.0)          # from the common start to the common end
        self.assertEqual(run.traffic(), 3000 / 4.0)
        self.assertEqual([run.samples_by(t) for t in (0.5, 1.0, 2.0, 9)], [0, 32, 64, 128])
        self.assertAlmostEqual(run.shares(0)['row_wait'], 0.3)
        self.assertAlmostEqual(run.shares(1)['compute'], 1.0 / 1.2)
        self.assertEqual(run.staleness('pushes'), {0: 6, 12: 6})
        self.assertEqual(metrics.mean_of(run.staleness('reads')), 0.25)

    def test_a_run_of_phases_is_named_by_all_its_schemes(self):
        def phase(clock, scheme):
            return {'kind': 'phase', 'clock': clock, 'time': 1.0, 'scheme': scheme}
        lines(self.folder / 'run/metrics.1.jsonl', {'kind': 'run', 'scheme': 'bsp'}, {**CLOCK, 'worker': 1}, phase(2, 'async'))
        run = self.run_of({'kind': 'run', 'scheme': 'bsp'}, CLOCK, phase(1, 'bsp'), phase(2, 'async'), {**CLOCK, 'clock': 2}, phase(3, 'bsp'))
        self.assertEqual((run.schemes(), run.label), (['bsp', 'async', 'bsp'], 'bsp, then async, then bsp'))

    def test_accuracy_and_targets(self):
        def tested(clock, value, net=0):
            return {'kind': 'test', 'clock': clock, 'time': 2.0 * clock, 'net': net, 'loss': 0.5, 'outputs': {'loss': 0.5, 'accuracy': value}}
        run = self.run_of(tested(1, 0.5), tested(2, None), tested(3, 0.9), tested(4, 0.8), tested(1, 0.99, net=1))
        self.assertEqual([value for _, value in run.accuracies()], [0.5, 0.9, 0.8])
        self.assertEqual((run.time_to(0.85), run.time_to(0.95), run.final_accuracy()), (6.0, None, 0.8))

    def test_losses_and_what_was_useful(self):
        shown = {'kind': 'display', 'time': 1.0, 'loss': 2.0, 'outputs': {}}
        run = self.run_of({**shown, 'clock': 1}, {**shown, 'clock': 2, 'alive': 3, 'taking_part': 2, 'committed': 7},
                          {'kind': 'fault', 'clock': 3, 'time': 0.5, 'number': 1, 'rank': 2, 'host': 'b', 'why': 'killed', 'stopped': 0.25,
                           'back': None, 'steps': 1},
                          {'kind': 'useful', 'clock': 9, 'time': 3.0, 'in_params': 99, 'computed': 100, 'possible': 110.2, 'losses': 1})
        self.assertEqual([line['committed'] for line in run.presence()], [7])
        self.assertEqual([(fault['rank'], fault['stopped'], fault['back']) for fault in run.faults.values()], [(2, 0.25, None)])
        self.assertEqual(run.useful_words(), '99.00 % of the 100 steps computed are in the params, 89.84 % of the 110 that all processes '
                                             'could have computed')
        self.assertEqual(self.run_of({**shown, 'clock': 1}, name='other').useful_words(), '')

    def test_a_line_that_is_being_written_is_passed_over_and_a_bad_one_is_named(self):
        path = lines(self.folder / 'run/metrics.0.jsonl', CLOCK)
        path.write_text(path.read_text() + '{"kind":"clock","wor')
        self.assertEqual(len(metrics.read_run(self.folder / 'run').clocks[0]), 1)
        path.write_text('{"kind":"clock","wor\n' + json.dumps(CLOCK) + '\n')
        with self.assertRaisesRegex(metrics.MetricsError, r'metrics\.0\.jsonl:1: not a line of metrics'):
            metrics.read_run(self.folder / 'run')

    def test_members_of_another_form_are_named_by_file_and_line(self):
        tested = {'kind': 'test', 'clock': 1, 'time': 1.0, 'outputs': {'accuracy': 0.5}}
        for line in ({**CLOCK, 'samples': 'many'}, {**CLOCK, 'worker': 'a'}, {**CLOCK, 'time': math.inf}, {**CLOCK, 'staleness': {'pushes': {'x': 1}}},
                     {**CLOCK, 'clock': math.inf}, {**tested, 'outputs': {'accuracy': [1]}}, {**tested, 'outputs': [1]}):
            with self.subTest(line), self.assertRaisesRegex(metrics.MetricsError, r'metrics\.0\.jsonl:2: not a line of metrics: '):
                self.run_of(CLOCK, line)

    def test_what_is_missing_or_not_finite_counts_as_nothing(self):
        run = self.run_of({**CLOCK, 'staleness': None, 'compute': math.nan, 'send': None}, {'kind': 'test', 'clock': 1, 'time': 1.0, 'loss': math.nan},
                          {'kind': 'display', 'clock': 1, 'time': 1.0, 'outputs': None})
        self.assertEqual((run.staleness('pushes'), run.total('compute'), run.total('send'), run.accuracies(), run.losses()), ({}, 0, 0, [], []))

    def test_a_line_ends_where_json_lines_end(self):
        path = lines(self.folder / 'run/metrics.0.jsonl', CLOCK)
        path.write_text(json.dumps({'kind': 'run', 'name': 'a\u2028b'}, ensure_ascii=False) + '\n' + path.read_text(), encoding='utf-8')
        self.assertEqual(metrics.read_run(path).name, 'a\u2028b')

    def test_what_holds_nothing_is_named(self):
        for path, words in ((self.folder / 'none', 'is not there'), (self.folder, 'holds neither')):
            with self.assertRaisesRegex(metrics.MetricsError, words):
                metrics.read_run(path)


class SummaryTest(Case):
    # As ESync's documented format has it: phases of local steps, an entry for the exchange, accuracy where one was measured.
    LOCAL = {'num_iters': 1, 'time': {'0': {'check ready': 0.0021, 'get_batch': 0.1, 'forward and backward': 1.5, 'local update': 0.01},
                                      '1': {'check ready': 0.002, 'get_batch': 0.1, 'forward and backward': 1.4, 'local update': 0.01},
                                      '2': {'check ready': 0.003, 'global update': 2.25, 'evaluation': 3.0}},
             'num_samples': 128, 'total_time': 8.6, 'accuracy': 0.12345}
    SYNC = {'num_iters': 1, 'time': {'0': {'get_batch': 0.1, 'forward and backward': 1.5, 'global aggregate': 4.0}}, 'num_samples': 64, 'total_time': 5.6}

    def rounds(self, folder, *rounds):
        (self.folder / folder).mkdir(parents=True)
        for number, round_ in enumerate(rounds, 1):
            (self.folder / folder / f'iter-{number}.txt').write_text(json.dumps({**round_, 'num_iters': number}))

    def test_esyncs_folders(self):
        untested = {k: v for k, v in self.LOCAL.items() if k != 'accuracy'}
        self.rounds('cloud1/cpu', self.LOCAL, untested, {**self.LOCAL, 'total_time': 17.4, 'accuracy': 0.5})
        self.rounds('cloud1/gpu0', self.SYNC)
        self.rounds('cloud3/cpu', self.SYNC, self.SYNC, self.SYNC)
        (self.folder / 'cloud3/cpu/iter-2.txt').unlink()                  # ESync's summary stops at the first gap
        done = self.script('summarize.py', self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout), {
            'cloud1': {'cpu': {'accuracy_list': [0.123, 0.5], 'num_samples_list': [128] * 3, 'self_iters_list': [3] * 3, 'elapsed_time_list': [9, 9, 17],
                               'aggregate_time_list': [2.25] * 3},
                       'gpu0': {'accuracy_list': [], 'num_samples_list': [64], 'self_iters_list': [1], 'elapsed_time_list': [6], 'aggregate_time_list': [4.0]}},
            'cloud3': {'cpu': {'accuracy_list': [], 'num_samples_list': [64], 'self_iters_list': [1], 'elapsed_time_list': [6],
                               'aggregate_time_list': [4.0]}}})

    def test_esyncs_flags_name_the_folder_and_the_summary(self):
        self.rounds('logs/resnet18-v1/async-niid/cloud1/cpu', self.SYNC)
        done = self.script('summarize.py', '-b', self.folder / 'logs', '-m', 'async-niid')
        self.assertEqual(done.returncode, 0, done.stderr)
        made = json.loads((self.folder / 'logs/resnet18-v1/async-niid/Async-Non-IID.json').read_text())
        self.assertEqual(made['cloud1']['cpu']['num_samples_list'], [64])
        self.rounds('logs/alexnet/esync/gpu0', self.LOCAL)
        done = self.script('summarize.py', '--base-dir', self.folder / 'logs', '--network', 'alexnet', '--mode', 'esync')
        self.assertEqual(json.loads((self.folder / 'logs/alexnet/esync/ESync.json').read_text())['esync']['gpu0']['accuracy_list'], [0.123])
        self.assertIn("-m bsp: ESync's modes are esync, sync, async, dcasgd", self.script('summarize.py', '-b', self.folder, '-m', 'bsp').stderr)
        for words in ((), (self.folder, '-m', 'esync')):
            done = self.script('summarize.py', *words)
            self.assertEqual(done.returncode, 2)
            self.assertIn('give a folder, or -b, -n and -m', done.stderr)

    def test_metrics(self):
        lines(self.folder / 'job/metrics.0.jsonl', CLOCK, {'kind': 'test', 'clock': 1, 'time': 1.5, 'net': 0, 'loss': 1, 'outputs': {'accuracy': 0.75}},
              {**CLOCK, 'clock': 1, 'time': 2.75, 'local_steps': 4, 'samples': 128})
        lines(self.folder / 'job/metrics.1.jsonl', {**CLOCK, 'worker': 1})
        self.assertEqual(summarize.summary_of(self.folder / 'job'), {'job': {
            'worker0': {'accuracy_list': [0.75], 'num_samples_list': [32, 128], 'self_iters_list': [1, 5], 'elapsed_time_list': [1, 3],
                        'aggregate_time_list': [0.3, 0.3]},
            'worker1': {'accuracy_list': [], 'num_samples_list': [32], 'self_iters_list': [1], 'elapsed_time_list': [1], 'aggregate_time_list': [0.3]}}})

    def test_a_run_in_two_parts_is_one_run(self):
        lines(self.folder / 'job/metrics.0.jsonl.1', {'kind': 'run', 'scheme': 'bsp'}, CLOCK)
        second = lines(self.folder / 'job/metrics.0.jsonl', {'kind': 'run', 'scheme': 'ssp 2'}, {'kind': 'phase', 'clock': 1, 'time': 1.0, 'scheme': 'ssp 2'},
                       {**CLOCK, 'clock': 1, 'time': 2.75})
        for path in (self.folder / 'job', second):
            self.assertEqual(summarize.summary_of(path)['job']['worker0']['elapsed_time_list'], [1, 3])
            self.assertEqual(metrics.read_run(path).schemes(), ['bsp', 'ssp 2'])

    def test_esyncs_logs_can_be_drawn(self):
        self.rounds('cpu', self.LOCAL, self.LOCAL)
        run = metrics.read_run(self.folder)
        self.assertEqual((run.total('local_steps'), run.total('samples'), run.final_accuracy()), (4, 256, 0.12345))
        self.assertAlmostEqual(run.total('compute'), 5.8)
        self.assertAlmostEqual(run.total('row_wait'), 2 * (2.25 + 0.0071))

    def test_mistakes_are_named(self):
        done = self.script('summarize.py', self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertIn('holds neither', done.stderr)
        self.rounds('cpu', {'num_iters': 1})
        self.assertIn("not in ESync's format", self.script('summarize.py', self.folder).stderr)
        with self.assertRaisesRegex(metrics.MetricsError, "cpu: a file of a round is not in ESync's format"):
            metrics.read_run(self.folder)


def has_matplotlib():
    return any(subprocess.run([python, '-c', 'import matplotlib'], capture_output=True).returncode == 0
               for python in (sys.executable, '/usr/bin/python3') if os.path.exists(python))


class WithoutMatplotlibTest(Case):
    def test_it_is_said_what_to_install(self):
        with mock.patch.dict(sys.modules, {'matplotlib': None}), self.assertRaisesRegex(SystemExit, 'apt-get install python3-matplotlib'):
            plot_runs.pyplot()

    def test_logs_and_runs_are_told_apart(self):
        for word, expected in (('a.log', False), ('-', False), (str(self.folder), True), ('x.jsonl', True), (f'name={self.folder}', True),
                               ('name=no_folder', False)):
            self.assertEqual(plot.is_run(word), expected, word)

    def test_two_of_a_scheme_look_different_and_a_scheme_always_the_same(self):
        def run(label, scheme):
            made = metrics.Run('x', label)
            made.scheme = scheme
            return made
        first, second, other = run('a', 'ssp 2'), run('b', 'ssp 4'), run('c', 'bsp')
        style = plot_runs.Style([first, second, other])
        self.assertEqual(style.line(first)['color'], style.line(second)['color'])
        self.assertNotEqual(style.line(first)['linestyle'], style.line(second)['linestyle'])
        self.assertNotEqual(style.bar(first)['hatch'], style.bar(second)['hatch'])
        twelve = [run(label, label) for label in plot_runs.MARKS]
        style = plot_runs.Style([first, second, other, *twelve])
        for look in ('color', 'marker'):
            self.assertEqual(len({style.marked(one, 60)[look] for one in twelve}), len(twelve), look)
        self.assertEqual(len({style.bar(one)['hatch'] for one in twelve}), len(twelve))
        self.assertEqual(style.line(other), plot_runs.Style([other]).line(other))
        same = run('d', 'ssp 0')
        self.assertEqual(style.line(other), plot_runs.Style([same]).line(same))


@unittest.skipUnless(has_matplotlib(), 'no matplotlib here')
class PlotTest(Case):
    def test_a_tiny_file_becomes_pictures(self):
        path = lines(self.folder / 'one/metrics.0.jsonl', {'kind': 'run', 'name': 'N', 'scheme': 'bsp'}, CLOCK,
                     {'kind': 'display', 'clock': 1, 'time': 1.0, 'loss': 2.0, 'outputs': {}})
        for words, names in (((path,), ('curves', 'speed', 'shares', 'staleness')), ((self.folder / 'one', f'twice={path}', f'--out={self.folder}/two'), ())):
            done = self.script('plot.py', *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            for name in names:
                width, height = size_of(self.folder / 'one' / f'{name}.png')
                self.assertTrue(300 < width < 3000 and 150 < height < 3000, (name, width, height))
        self.assertEqual(sorted(p.name for p in (self.folder / 'two').iterdir()), ['curves.png', 'shares.png', 'speed.png', 'staleness.png'])

    def test_a_baseline_is_a_number_or_the_end_of_a_run(self):
        test = {'kind': 'test', 'net': 0, 'loss': 2.0}
        path = lines(self.folder / 'one/metrics.0.jsonl', {'kind': 'run', 'name': 'N', 'scheme': 'bsp'}, CLOCK,
                     {**test, 'clock': 0, 'time': 0.5, 'outputs': {'accuracy': 0.1}}, {**test, 'clock': 1, 'time': 1.0, 'outputs': {'accuracy': 0.6}})
        alone = lines(self.folder / 'alone/metrics.0.jsonl', {'kind': 'run', 'name': 'N', 'scheme': 'local'}, CLOCK,
                      {**test, 'clock': 1, 'time': 1.0, 'outputs': {'accuracy': 0.926}})
        drawn = []
        for words in ((), ('--baseline=0.926',), (f'--baseline={alone}',)):
            done = self.script('plot.py', path, *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            drawn.append((self.folder / 'one/curves.png').read_bytes())
        self.assertNotEqual(drawn[0], drawn[1])
        self.assertEqual(drawn[1], drawn[2])
        lines(self.folder / 'none/metrics.0.jsonl', CLOCK)
        self.assertIn('no test of this run says an accuracy', self.script('plot.py', path, f'--baseline={self.folder}/none').stderr)
        (self.folder / 'a.log').write_text('')
        self.assertIn('--baseline is for runs', self.script('plot.py', self.folder / 'a.log', '--baseline=1').stderr)

    def test_losses_are_drawn(self):
        shown = {'kind': 'display', 'loss': 2.0, 'outputs': {}, 'committed': 5}
        fault = {'kind': 'fault', 'clock': 3, 'host': 'b', 'why': 'killed', 'stopped': 0.25, 'back': None, 'steps': 1}
        path = lines(self.folder / 'run/metrics.0.jsonl', {'kind': 'run', 'scheme': 'bsp', 'name': 'Net'}, CLOCK,
                     {**shown, 'clock': 1, 'time': 1.0, 'alive': 3, 'taking_part': 3}, {**fault, 'time': 1.2, 'number': 1, 'rank': 2},
                     {**shown, 'clock': 2, 'time': 2.0, 'alive': 2, 'taking_part': 2})
        done = self.script('plot.py', path.parent)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('losses: ', done.stdout)
        self.assertGreater(size_of(path.parent / 'losses.png')[0], 500)

    def test_a_run_that_has_only_been_tested_is_drawn(self):
        lines(self.folder / 'one/metrics.0.jsonl', {'kind': 'run', 'name': 'N', 'scheme': 'bsp'},
              {'kind': 'test', 'clock': 0, 'time': 0.1, 'net': 0, 'loss': 2.0, 'outputs': {'accuracy': 0.1}})
        done = self.script('plot.py', self.folder / 'one')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(p.name for p in (self.folder / 'one').glob('*.png')), ['curves.png', 'speed.png'])

    def test_an_empty_run_is_named(self):
        done = self.script('plot.py', self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertIn('holds neither', done.stderr)


@unittest.skipUnless(has_matplotlib(), 'no matplotlib here')
class CompareTest(Case):
    def setUp(self):
        super().setUp()
        self.simulate = self.folder / 'simulate'
        self.simulate.write_text(SIMULATOR.format(python=sys.executable))
        self.simulate.chmod(0o755)
        for name in ('cluster', 'solver'):
            (self.folder / f'{name}.prototxt').write_text('')
        self.flags = [f'--simulate={self.simulate}', f'--cluster={self.folder}/cluster.prototxt', f'--solver={self.folder}/solver.prototxt',
                      f'--out={self.folder}/out']

    def test_the_report(self):
        done = self.script('compare_schemes.py', *self.flags, '--seconds=20', '--seed=7')
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        text = (self.folder / 'out/report.md').read_text()
        for expected in ('Soonest at 0.931: ssp 2**, after 10.0 s', '**bsp** (all workers take each step together',
                         'All are measured by bsp, and by when they reached 0.931: it did after 20.0 s.',
                         '**Use here:**\n\n* **ssp 2** (workers may be a few steps apart', 'now and then): 2 times sooner.',
                         '**Not here: 0.931 was not reached:**\n\n* **async** (nobody', '), **async 1/Y** (as async): 4 times the samples a second',
                         '| bsp | 20.0 s | 0.9500 | 20 | 0.00 MB/s | 0.10 kB | 20 % | 80 % | 1.00 | 0 |',
                         '* broken: ended with 3: it is broken', '--seed=7', '--staleness=2', '--seconds=20', '![overview](overview.png)'):
            self.assertIn(expected, text)
        said = [part for line in text.split('## Numbers')[0].splitlines() for part in re.split('[:.;] |, ', line) if len(part) > 40]
        self.assertEqual(sorted(set(said)), sorted(said), 'nothing is said twice')
        for name in ('overview', 'curves', 'speed', 'shares', 'staleness'):
            size_of(self.folder / f'out/{name}.png')
            self.assertIn(f'({name}.png)', text)

    def test_each_scheme_gets_the_rate_that_is_best_for_it(self):
        (self.folder / 'solver.prototxt').write_text('base_lr: 0.1\n')
        done = self.script('compare_schemes.py', *self.flags, '--seconds=20', '--schemes=bsp,async', '--rates=0.3,1')
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        text = (self.folder / 'out/report.md').read_text()
        for expected in ('| bsp | 1 | 0.9500 | 0.9500 |', '| async | 0.3 | 0.9900 | 0.9000 |', 'In the order in which they reached 0.970: async (5.0 s), async 1/Y (5.0 s).', 'All at base_lr itself: none reached it.',
                         "'--set=base_lr: 0.03'", 'Best in the end: async'):
            self.assertIn(expected, text)
        self.assertIn('--seconds=5 ', (self.folder / 'out/runs/async_short_0.3/log.txt').read_text())
        self.assertIn('--seconds=20 ', (self.folder / 'out/runs/async_0.3/log.txt').read_text())
        for flags, words in ((['--rates=0,1', '--seconds=5'], 'above 0'), (['--rates=1'], 'need --seconds'), (['--rates=x', '--seconds=5'], 'a list of numbers')):
            done = self.script('compare_schemes.py', *self.flags, *flags)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)

    def test_own_schemes_and_failures(self):
        done = self.script('compare_schemes.py', *self.flags, '--schemes=bsp,mine=--scheme=async --x=1', '--target=0.5', '--jobs=1')
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn('--x=1', (self.folder / 'out/runs/mine/log.txt').read_text())
        self.assertIn('**Use to come near soon, and finish with a stricter one:**', (self.folder / 'out/report.md').read_text())
        done = self.script('compare_schemes.py', *self.flags, '--schemes=broken')
        self.assertEqual(done.returncode, 1)
        self.assertIn('broken: ended with 3: it is broken', done.stderr)

    def test_flags_with_commas_and_several_sets(self):
        (self.folder / 'solver.prototxt').write_text('base_lr: 0.1\n')
        done = self.script('compare_schemes.py', *self.flags, '--seconds=20', '--rates=0.3', "--more=--set='iter_size: 2'",
                           "--schemes=bsp, my-own=--scheme=async --groups=0,1|2,3 --set='momentum: 0.5',ssp")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        log = (self.folder / 'out/runs/my_own_0.3/log.txt').read_text()
        self.assertIn(' --groups=0,1|2,3 --set=momentum: 0.5 base_lr: 0.03 iter_size: 2 ', log)
        self.assertEqual(log.count('--set='), 1)
        self.assertIn('| ssp 2 | 0.3 |', (self.folder / 'out/report.md').read_text())
        done = self.script('compare_schemes.py', *self.flags, '--schemes=bsp,a b=--scheme=ssp,a_b=--scheme=async')
        self.assertEqual(done.returncode, 2)
        self.assertIn("'a b' and 'a_b' would write to one folder", done.stderr)

    def test_runs_of_unequal_length_are_named(self):
        text = self.simulate.read_text().replace('samples=10', "samples=10 if flags['scheme'] == 'bsp' else 40")
        for flags, ending, words in (([], '', '**Not all did as much:** without --seconds each ends after the solver\'s max_iter on every worker, which counts exchanges, '
                                               'not local steps: 400 samples of bsp, 1600 of async.'),
                                     (['--seconds=20'], 'all workers have done their iterations', '**Not all lasted 20.0 s:** the solver\'s max_iter, or a flag, ended bsp after'),
                                     (['--seconds=20'], '20 virtual seconds are over', None)):
            self.simulate.write_text(text + f"print('Ended since {ending}; it took 1 real seconds.')\n")
            done = self.script('compare_schemes.py', *self.flags, *flags, '--schemes=bsp,async')
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            report = (self.folder / 'out/report.md').read_text()
            if words:
                self.assertIn(words, report)
            else:
                self.assertNotIn('Not all', report)

    def test_what_is_missing_is_named_before_anything_runs(self):
        for flags, words in (([*self.flags, '--simulate=/nowhere/simulate'], 'build it with make'), ([*self.flags, '--solver=/nowhere'], 'no such file')):
            done = self.script('compare_schemes.py', *flags)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)


class WordsTest(unittest.TestCase):
    def test_seconds(self):
        self.assertEqual([compare_schemes.seconds_words(v) for v in (None, 3.14159, 599, 900)], ['–', '3.1 s', '599.0 s', '15.0 min'])

    def test_kinds_of_workers(self):
        self.assertEqual(compare_schemes.kinds_of('# worker { }\nworker { count: 3 compute { ms: 20 } } worker: { slowdown { count: 9 } }\nserver { count: 7 }'), [3, 1])

    def test_help_names_both_kinds_of_input(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), mock.patch.object(sys, 'argv', ['plot.py', '--help']), self.assertRaises(SystemExit):
            plot.main()
        self.assertIn('LOG|RUN', out.getvalue())


if __name__ == '__main__':
    unittest.main()
