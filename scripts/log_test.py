#!/usr/bin/env python3
"""Tests parse_log.py and plot.py on a short log with everything a log may hold."""
import math
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import parse_log
import plot
from plot_runs import use_python_with_matplotlib

LOG = '''I1231 23:59:50.000000 7 solver.cpp:1] Solving LeNet
I1231 23:59:50.000000 7 solver.cpp:2] Iteration 0, Testing net (#0)
I1231 23:59:51.000000 7 solver.cpp:3]     Test net output #0: accuracy = 0.1
I1231 23:59:51.000000 7 solver.cpp:3]     Test net output #1: loss = 2.3 (* 1 = 2.3 loss)
I1231 23:59:52.000000 7 solver.cpp:4] Iteration 0 (-1.28e-41 iter/s, 0.02s/100 iters), loss = 2.4
I1231 23:59:52.000000 7 solver.cpp:5]     Train net output #0: loss = 2.5 (* 1 = 2.5 loss)
I1231 23:59:52.000000 7 sgd_solver.cpp:6] Iteration 0, lr = 0.01
I0101 00:00:10.500000 7 solver.cpp:4] Iteration 100 (50 iter/s, 2s/100 iters), loss = nan
I0101 00:00:10.500000 7 solver.cpp:5]     Train net output #0: loss = nan (* 1 = nan loss)
I0101 00:00:10.500000 7 sgd_solver.cpp:6] Iteration 100, lr = 1e-05
I0101 00:00:11.000000 7 solver.cpp:7] 3200 images/s, 00:00:20 left
I0101 00:00:12.000000 7 solver.cpp:2] Iteration 200, Testing net (#0)
I0101 00:00:13.000000 7 solver.cpp:3]     Test net output #0: accuracy = 0.9
I0101 00:00:13.000000 7 solver.cpp:3]     Test net output #1: accuracy = 0.8
I0101 00:00:13.000000 7 solver.cpp:3]     Test net output #2: loss = 0.3 (* 1 = 0.3 loss)
I0101 00:00:14.000000 7 solver.cpp:4] Iteration 200 (50 iter/s, 2s/100 iters), loss = 0.25
I0101 00:00:14.000000 7 solver.cpp:5]     Train net output #0: loss = 0.26 (* 1 = 0.26 loss)
I0101 00:00:15.000000 7 solver.cpp:8] Iteration 300, loss = 0.2
'''


class LogTest(unittest.TestCase):
    def setUp(self):
        self.log = parse_log.Log(LOG.splitlines())

    def test_rows(self):
        self.assertEqual(self.log.name, 'LeNet')
        self.assertEqual([self.log.losses[i] for i in (0, 2, 3)], [(0, 2.4), (200, 0.25), (300, 0.2)])
        self.assertEqual([row['NumIters'] for row in self.log.train], [0, 100, 200])
        self.assertEqual(self.log.train[0], {'NumIters': 0, 'Seconds': 2.0, 'LearningRate': 0.01, 'loss': 2.5})
        self.assertTrue(math.isnan(self.log.train[1]['loss']))
        self.assertEqual(self.log.train[1]['Seconds'], 20.5)          # over the end of the year
        self.assertEqual(self.log.train[1]['LearningRate'], 1e-5)
        self.assertEqual(self.log.test[0][0], {'NumIters': 0, 'Seconds': 0.0, 'LearningRate': 0.01, 'accuracy': 0.1, 'loss': 2.3})
        self.assertEqual(self.log.test[0][1]['accuracy[1]'], 0.8)

    def seconds(self, *stamps):
        lines = [f'{stamp} 7 solver.cpp:4] Iteration {i} (1 iter/s, 2s/100 iters), loss = 1' for i, stamp in enumerate(stamps)]
        return [row['Seconds'] for row in parse_log.Log([f'{stamps[0]} 7 solver.cpp:1] Solving N', *lines]).train]

    def lines(self, *lines):
        return parse_log.Log(['I0402 10:00:00 7 solver.cpp:1] Solving N', *(f'I0402 10:00:{i:02} 7 solver.cpp:2] {line}' for i, line in enumerate(lines, 1))])

    def test_lines_of_caffe_before_2017(self):
        log = self.lines('Iteration 0, Testing net (#0)', '    Test net output #0: loss = 2.31 (* 1 = 2.31 loss)', 'Iteration 0, loss = 2.35',
                         '    Train net output #0: loss = 2.36 (* 1 = 2.36 loss)', '    Train net output #1: loss = 7', 'Iteration 0, lr = 0.01',
                         'Iteration 100, loss = 0.75', '    Train net output #0: loss = 0.71 (* 1 = 0.71 loss)', 'Iteration 100, lr = 0.001',
                         'Iteration 200, loss = 0.4')                    # the last line is no display
        self.assertEqual(log.train, [{'NumIters': 0, 'Seconds': 3.0, 'LearningRate': 0.01, 'loss': 2.36, 'loss[1]': 7.0},
                                     {'NumIters': 100, 'Seconds': 7.0, 'LearningRate': 0.001, 'loss': 0.71}])
        self.assertEqual(log.test[0], [{'NumIters': 0, 'Seconds': 1.0, 'LearningRate': 0.01, 'loss': 2.31}])
        self.assertEqual([loss for _, loss in log.losses], [2.35, 0.75, 0.4])

    def test_lines_of_caffe_of_2013(self):
        log = self.lines('Iteration 0, Testing net', 'Test score #0: 0.125', 'Test loss: 2.25', 'Iteration 20, lr = 0.01', 'Iteration 20, loss = 2.5',
                         'Iteration 40, loss = 1.5', 'Iteration 40, lr = 0.02')
        self.assertEqual(log.train, [{'NumIters': 20, 'Seconds': 5.0, 'LearningRate': 0.01, 'loss': 2.5},
                                     {'NumIters': 40, 'Seconds': 6.0, 'LearningRate': 0.02, 'loss': 1.5}])
        self.assertEqual({name: log.test[0][0][name] for name in ('score0', 'loss')}, {'score0': 0.125, 'loss': 2.25})
        self.assertEqual([row['loss'] for row in self.lines('Iteration 5, loss = 3', 'Iteration 6, loss = 2').train], [3, 2])

    def test_lines_of_forks_are_refused(self):
        with self.assertRaisesRegex(parse_log.Refused, '(?s)Iteration 100 .*is no line of BVLC'):
            self.lines('Iteration 100 (12 iter/s, 8s/100 iter), 5.2/16.2ep, loss = 0.5')

    def test_the_time_does_not_grow_with_the_square_of_the_outputs(self):
        count = 20000
        log = self.lines('Iteration 0 (1 iter/s, 1s/1 iters), loss = 1', *[f'Train net output #{i}: map = {i}' for i in range(count)])
        self.assertEqual((len(log.train[0]), log.train[0][f'map[{count - 1}]']), (count + 3, count - 1))
        looked_at = max(log.counts.values())
        self.assertEqual(looked_at, count)                           # each name was counted on, not sought from the first

    def test_seconds_over_the_ends_of_months_and_years(self):
        for stamps, expected in ((('I0228 23:59:50', 'I0301 00:00:10'), 20),                     # of 2026, which has no 29th of February
                                 (('I0228 23:59:50', 'I0229 00:00:10', 'I0301 00:00:10'), 86420),
                                 (('I20240228 23:59:50', 'I20240301 00:00:10'), 86420),
                                 (('I20251231 23:59:50', 'I20270101 00:00:10'), 365 * 86400 + 20),
                                 (('I1231 23:59:50', 'I0101 00:00:10'), 20),
                                 (('I0305 00:00:00', 'I0303 00:00:00'), 363 * 86400),           # a second run in the same file, a year later
                                 (('I0305 00:00:01', 'I0305 00:00:00.5'), -0.5),                # a clock that was set back
                                 (('[0@127.0.0.1] I0305 00:00:01', '[0@127.0.0.1] I0305 00:00:03'), 2)):
            self.assertEqual(self.seconds(*stamps)[-1], expected, stamps)

    def test_what_is_no_time_is_none(self):
        self.assertTrue(math.isnan(self.seconds('I1399 99:99:99')[0]))

    def test_words_of_scripts(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / 'a.log').write_text(LOG)
            for script, words, code, said in (('parse_log', ['--delimiter=\\t', 'a.log'], 2, '--delimiter=\\t: it must be one character'),
                                              ('plot', ['a.log', 'a.xyz'], 1, 'a.xyz: the name of a picture ends with .png'),
                                              ('plot', ['a.log', 'a'], 1, 'a: the name of a picture ends with'),
                                              ('plot', ['a.log', 'a.svg'], 0, '')):
                done = subprocess.run([sys.executable, Path(__file__).with_name(f'{script}.py'), *words], cwd=folder, capture_output=True, text=True)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(said, done.stderr)
            self.assertIn('<svg', (Path(folder) / 'a.svg').read_text())

    def test_picture(self):
        figure = plot.draw(self.log, 'LeNet')
        above, below = figure.axes
        self.assertEqual(figure._suptitle.get_text(), 'LeNet')
        self.assertEqual([list(line.get_xdata()) for line in above.lines][:2], [[0], [200, 300]])   # 100: not finite
        self.assertEqual([text.get_text() for text in above.get_legend().get_texts()], ['training loss 0.2', 'test loss 0.3'])
        self.assertEqual([text.get_text() for text in below.get_legend().get_texts()], ['test accuracy 0.9', 'test accuracy[1] 0.8'])
        self.assertEqual(below.get_xlabel(), 'iteration')
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / 'curve.png'
            plot.save(figure, out)
            self.assertEqual(out.read_bytes()[:8], b'\x89PNG\r\n\x1a\n')

    def test_a_curve_has_gaps_where_a_value_is_not_finite_or_a_run_resumed(self):
        points = [(0, 3.0), (1, math.nan), (2, 2.0), (3, 1.0), (2, 1.5)]
        self.assertEqual(plot.pieces(points), [[(0, 3.0)], [(2, 2.0), (3, 1.0)], [(2, 1.5)]])

    def test_an_axis_leaves_out_a_steep_start_only(self):
        self.assertEqual(plot.worth_showing([('accuracy', [(0, 0.1), (1, 0.95), (2, 0.96)])]), [0.95, 0.96])
        self.assertEqual(plot.worth_showing([('accuracy', [(0, 0.1), (1, 0.4), (2, 0.6)])]), [0.1, 0.4, 0.6])


if __name__ == '__main__':
    use_python_with_matplotlib()
    unittest.main()
