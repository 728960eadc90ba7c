#!/usr/bin/env python3
"""Tests check_gpu.py on programs that only say what Shoal's would say."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / 'check_gpu.py'
GPUS = 'echo "GPU 0: one"; echo "GPU 1: another"'
# The model holds how it was trained, but for its precision's repetition.
TRAIN = '''solver=${1#--solver=}
prefix=$(sed -n 's/.*snapshot_prefix: "\\([^"]*\\)".*/\\1/p' "$solver")
echo $3 $4 | sed 's/ --nocuda_graphs//' > "${prefix}_iter_1000.caffemodel"
echo "I0101     Test net output #0: accuracy = 0.97"'''
TESTS = '''[ "$1" = "--gtest_filter=*_on_gpu:*/gpu*:-*fake_gpu*" ] || exit 3
echo "7 passed, 0 failed, 1 skipped"'''


class CheckGpu(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        self.build = Path(self.place.name) / 'a build'
        for name, text in {'tools/time': '', 'tools/device_query': GPUS, 'tools/draw_digits': '', 'tools/train': TRAIN, 'tests/all': TESTS}.items():
            self.put(name, text)

    def put(self, name, text):
        path = self.build / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\n{text}\n')
        path.chmod(0o755)

    def check(self, *flags):
        """The code, and the lines of what was printed."""
        (self.build / 'torch.py').write_text('raise ImportError')     # as on a machine without PyTorch
        ran = subprocess.run([sys.executable, SCRIPT, self.build, *(flags or ('--only=tests,training,several',))], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, 'PYTHONPATH': str(self.build)})
        return ran.returncode, ran.stdout

    def test_all_is_well(self):
        code, said = self.check()
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r'(?m)^tests: passed: \d+ passed, 0 failed, \d+ skipped \(\d+ s\)$')
        self.assertRegex(said, r'(?m)^training: passed: FLOAT32: accuracy 0.97, .*FLOAT16: accuracy 0.97')
        self.assertRegex(said, r'(?m)^several: passed: 2 GPUs: accuracy 0.97')

    def test_no_gpu(self):
        self.put('tools/device_query', 'echo "no GPU: no driver"')
        self.assertEqual(self.check(), (5, 'no GPU: no driver\n'))

    def test_a_test_that_fails(self):
        self.put('tests/all', 'echo "failed: Suite.Test at x.cpp:1: words"; echo "6 passed, 1 failed, 0 skipped"; exit 1')
        code, said = self.check('--only=tests')
        self.assertEqual(code, 1)
        self.assertRegex(said, r'(?s)tests: FAILED: \d+ passed, [1-9]\d* failed, 0 skipped\n    failed: Suite.Test at x.cpp:1: words')

    def test_tests_that_die_or_take_too_long(self):
        self.put('tests/all', 'echo "[ RUN      ] Suite.Test"; echo "Fatal error"; exit 134')
        self.assertRegex(self.check('--only=tests')[1], 'FAILED: 0 passed, 0 failed, 0 skipped\n    ended with 134: Fatal error')
        self.put('tests/all', 'echo "[ RUN      ] Suite.Test"; exec sleep 60')
        self.assertRegex(self.check('--only=tests', '--timeout=1')[1], 'stopped after 1.0 s in .*Suite.Test')

    def test_runs_that_differ_or_learn_nothing(self):
        self.put('tools/train', TRAIN.replace(" | sed 's/ --nocuda_graphs//'", ''))
        self.assertRegex(self.check('--only=training')[1], 'training: FAILED: the three runs in FLOAT32 ended in different models')
        self.put('tools/train', TRAIN.replace('0.97', '0.1'))
        self.assertRegex(self.check('--only=training')[1], 'training: FAILED: --gpu=0 --precision=FLOAT32: the accuracy is 0.1; at least 0.9')

    def test_speed(self):
        self.put('tools/time', 'echo "Median Forward-Backward: 2 ms"')
        code, said = self.check('--only=bench', '--nets=lenet')
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r'(?m)^lenet +TF32 +64 +2.00 +32000 ')
        self.assertRegex(said, r'(?m)^bench: passed: Shoal alone')
        self.put('tools/time', 'echo "E0101 no memory"; exit 5')
        code, said = self.check('--only=bench', '--nets=lenet')
        self.assertEqual(code, 1, said)
        self.assertRegex(said, r'lenet TF32 Shoal: ended with 5: E0101 no memory')
        self.assertRegex(said, r'(?m)^bench: FAILED: bench_gpu.py failed')

    def test_what_is_not_there_is_skipped_by_name(self):
        self.put('tools/device_query', 'echo "GPU 0: one"')
        self.assertEqual(self.check('--only=several'), (0, 'GPU 0: one\nseveral: skipped: there is one GPU (0 s)\n'))


if __name__ == '__main__':
    unittest.main()
