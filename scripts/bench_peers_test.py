#!/usr/bin/env python3
"""Tests bench_peers.py on programs that only say what Shoal, PyTorch, Caffe and OpenCV would say."""
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import bench_peers
import torch_net
import torch_train

ROOT = Path(__file__).resolve().parent.parent
CLEARED = ('OPENBLAS_CORETYPE', 'OPENBLAS_L2_SIZE')
# Each program writes down what it was called with. Its figures, one after another, are those of the file NAME.json.
FAKE = '''#!{python}
import json, os, re, sys
from pathlib import Path
here, name, words = Path({here!r}), {name!r}, sys.argv[1:]
keep = re.compile('MALLOC_|OMP_NUM|OPENBLAS_')
with open(here / 'calls.jsonl', 'a') as calls:
    calls.write(json.dumps([name, words, {{k: v for k, v in os.environ.items() if keep.match(k)}}]) + '\\n')
def figures(key):
    """The next one for this key, ms and MB that it takes."""
    path = here / (name + '.json')
    all_of = json.loads(path.read_text())
    found = all_of[key].pop(0)
    path.write_text(json.dumps(all_of))
    return found
def take(mb):
    return os.urandom(1000) * (1000 * mb)
flags = dict(word[2:].partition('=')[::2] for word in words if word.startswith('--'))
plain = [word for word in words if not word.startswith('--')]
{body}
'''
TIME = '''
if '--version' in words:
    print('shoal 9.8')
    sys.exit()
net = Path(flags['model']).parent.name
if flags.get('phase') == 'TEST':
    print('Average Forward pass: %g ms.' % figures(net + ' ' + flags['threads'])[0])
    sys.exit()
ms, mb = figures(net + flags.get('precision', ''))
held = take(mb)
print('I0101 time.cpp:1]      ip1\\tparams: 40.')
print('I0101 time.cpp:1]      ip2\\tparams: 2.')
print('I0101 time.cpp:1] Average Forward-Backward: %g ms.' % ms)
print('I0101 time.cpp:1] Median Forward-Backward: %g ms; fastest: 1 ms.' % (ms - 1))
print('I0101 time.cpp:1] Peak memory: 68.5 MB')
print('I0101 time.cpp:1] GEMM 1024: 200.5 GFLOP/s (threads 2)')
'''
TORCH = '''
if len(plain) == 1:
    print(json.dumps({'torch': '2.99'}))
    sys.exit()
ms, mb = figures(Path(plain[1]).parent.name + ('BFLOAT16' if 'bf16' in flags else ''))
held = take(mb)
print('a warning')
print(json.dumps({'ms': ms, 'median_ms': ms - 1, 'gflops': 190, 'MB_before_product': 500, 'params': 42, 'loss': 2.3}))
'''
OPENCV = '''
if len(plain) == 1:
    print(json.dumps({'cv2': '4.99'}))
    sys.exit()
print(json.dumps({'ms': figures(Path(plain[1]).parent.name + ' ' + flags['threads'])[0]}))
'''
CAFFE = '''
print('Average Forward-Backward: %g ms.' % figures(Path(flags['model']).parent.name)[0])
'''
DEPLOY = '''
Path(plain[1]).write_text('layer { type: "Input" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }')
'''
CPUINFO = '''processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Some Xeon @ 2.00GHz
flags\t\t: fpu avx2 avx512f amx_tile amx_bf16
bugs\t\t:

processor\t: 1
vendor_id\t: Another
'''
INFERENCE = ('resnet50', 'googlenet', 'fashion_mobilenet')


class Case(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = Path(place.name) / 'a place'
        (self.folder / 'tools').mkdir(parents=True)
        for name, body in {'tools/time': TIME, 'python': TORCH, 'cv_python': OPENCV, 'caffe': CAFFE, 'tools/deploy_net': DEPLOY,
                           'tools/train': ''}.items():
            self.put(name, body)
        self.say('time', lenet=[(10, 60), (40, 70), (20, 80)], nin=[(100, 30), (100, 30), (100, 30)])
        self.say('python', lenet=[(12, 120), (30, 130), (60, 140)], nin=[(50, 90), (50, 90), (50, 90)])

    def put(self, name, body):
        path = self.folder / name
        path.write_text(FAKE.format(python=sys.executable, here=str(self.folder), name=path.name, body=body))
        path.chmod(0o755)

    def say(self, name, **figures):
        """By net, or net and precision or threads: what the program says in its first run, its second ..., as (ms, MB)."""
        (self.folder / f'{name}.json').write_text(json.dumps(figures))

    def bench(self, *flags, code=0):
        """What is printed, on the standard output or, of a failure, on the other stream."""
        command = [sys.executable, ROOT / 'scripts/bench_peers.py', self.folder, f'--python={self.folder}/python',
                   '--nets=lenet,nin', *flags]
        ran = subprocess.run(command, capture_output=True, text=True,
                             env={**os.environ, **dict.fromkeys(CLEARED, 'Haswell')})
        self.assertEqual(ran.returncode, code, ran.stdout + ran.stderr)
        return ran.stderr if code else ran.stdout

    def calls(self):
        return [json.loads(line) for line in (self.folder / 'calls.jsonl').read_text().splitlines()]


class Figures(Case):
    def row(self, said, name):
        return re.search(rf'(?m)^{re.escape(name)}  +(.*)$', said).group(1).split()

    def test_medians_ratios_and_means(self):
        said = self.bench('--passes=3', f'--json={self.folder}/all.json')
        self.assertRegex(said, r'(?s)^.*family .*, model .*avx512f (yes|no), avx512_bf16 (yes|no), amx (yes|no)\n'
                               r'\d+ cores, 2 threads, load [\d.]+ before; PyTorch 2\.99; shoal 9\.8\n'
                               r'idle: Shoal \d+ MB, PyTorch \d+ MB\n')
        row = self.row(said, 'lenet (64)')
        self.assertEqual(row[:6], ['20.0', '30.0', '1.50', '0.75-3.00', '200', '190'])     # 200.5 to even
        self.assertEqual(self.row(said, 'nin (32)')[:4], ['100', '50.0', '0.50', '0.50-0.50'])
        for cell, expected in zip(row[8:10] + self.row(said, 'nin (32)')[8:10], (70, 130, 30, 90)):
            self.assertAlmostEqual(float(cell), expected, delta=12)     # what bench_peers.py itself has counts as an idle one's
        ratios = [float(self.row(said, name)[10]) for name in ('lenet (64)', 'nin (32)')]
        self.assertAlmostEqual(ratios[0], 70 / 130, delta=0.05)
        means = [float(cell) for cell in self.row(said, 'geometric mean')]
        self.assertEqual(means[0], round(math.sqrt(1.5 * 0.5), 2))
        self.assertAlmostEqual(means[1], math.sqrt(ratios[0] * ratios[1]), delta=0.02)

        report = json.loads((self.folder / 'all.json').read_text())
        self.assertEqual([report[key] for key in ('torch', 'shoal', 'threads', 'batches')],
                         ['2.99', 'shoal 9.8', 2, {'lenet': 64, 'nin': 32}])
        lenet = report['training']['FLOAT32']['nets']['lenet']
        self.assertEqual([[turn[name]['ms'] for name in ('Shoal', 'PyTorch')] for turn in lenet['passes']],
                         [[10, 12], [40, 30], [20, 60]])
        self.assertEqual((lenet['ratio'], lenet['least_ratio'], lenet['greatest_ratio']), (1.5, 0.75, 3))
        self.assertEqual([lenet['medians'][name]['median_ms'] for name in ('Shoal', 'PyTorch')], [19, 29])
        self.assertEqual([lenet['medians'][name]['MB_before_product'] for name in ('Shoal', 'PyTorch')], [68.5, 500])
        for name in ('Shoal', 'PyTorch'):
            self.assertAlmostEqual(lenet['MB_above_idle'][name], lenet['medians'][name]['MB'] - report['idle_MB'][name])
        self.assertAlmostEqual(report['training']['FLOAT32']['geometric_means']['ratio'], math.sqrt(0.75))
        self.assertEqual(list(report['training']), ['FLOAT32'])

    def test_turns_and_what_each_program_is_given(self):
        self.say('caffe', lenet=[(40, 0), (50, 0)], nin=[(300, 0), (300, 0)])
        said = self.bench('--passes=2', '--threads=3', f'--caffe={self.folder}/caffe')
        calls = [call for call in self.calls() if call[1][1:]]                     # without those of idle processes
        self.assertEqual([name for name, _, _ in calls], ['time', 'python', 'caffe'] * 4)
        nets = [re.search(r'models/(\w+)/', ' '.join(words)).group(1) for _, words, _ in calls]
        self.assertEqual(nets, (['lenet'] * 3 + ['nin'] * 3) * 2)
        (_, shoal, alone), (_, torch, malloc), (_, caffe, threads) = calls[:3]
        model = 'models/lenet/train_val.prototxt'
        self.assertEqual(shoal, [f'--model={model}', '--threads=3', '--stage=dummy', '--phase=TRAIN', '--iterations=200'])
        self.assertEqual(torch[1:], [model, '--threads=3', '--iterations=200'])
        self.assertEqual(caffe, ['time', f'--model={model}', '--stage=dummy', '--phase=TRAIN', '--iterations=200'])
        self.assertEqual(malloc, {**alone, 'MALLOC_MMAP_THRESHOLD_': '4294967296', 'MALLOC_TRIM_THRESHOLD_': '17179869184'})
        self.assertEqual((threads['OPENBLAS_NUM_THREADS'], threads['OMP_NUM_THREADS']), ('3', '3'))
        for name, words, environment in self.calls():
            self.assertFalse(environment.keys() & set(CLEARED), (name, words))
        self.assertEqual(self.row(said, 'lenet (64)')[11:13], ['45.0', '1.80'])
        self.assertEqual(float(self.row(said, 'geometric mean')[2]), round(math.sqrt(1.8 * 3), 2))

    def test_bf16(self):
        self.say('time', lenet=[(10, 1)], resnet18=[(20, 1)], resnet18BFLOAT16=[(16, 1)])
        self.say('python', lenet=[(10, 1)], resnet18=[(20, 1)], resnet18BFLOAT16=[(8, 1)])
        said = self.bench('--passes=1', '--nets=lenet,resnet18', '--bf16')
        head, tail = said.split('forward + backward, BFLOAT16')
        self.assertEqual(self.row(head, 'geometric mean')[0], '1.00')
        self.assertEqual(self.row(tail, 'resnet18 (16)')[:3], ['16.0', '8.00', '0.50'])
        self.assertNotIn('lenet', tail)

    def test_forward_beside_opencv(self):
        self.say('time', lenet=[(10, 1)], **{f'{net} {threads}': [(4 / threads, 0)] for net in INFERENCE for threads in (1, 2)})
        self.say('python', lenet=[(10, 1)])
        self.say('cv_python', **{f'{net} {threads}': [(6, 0)] for net in INFERENCE for threads in (1, 2)})
        said = self.bench('--passes=1', '--nets=lenet', f'--opencv={self.folder}/cv_python', f'--json={self.folder}/all.json')
        self.assertIn('OpenCV 4.99', said)
        one, two = said.split('batch 1, 1 thread\n')[1].split('batch 1, 2 threads\n')
        self.assertEqual(self.row(one, 'resnet50')[:3], ['4.00', '6.00', '1.50'])
        self.assertEqual(self.row(two, 'geometric mean'), ['3.00'])
        inference = json.loads((self.folder / 'all.json').read_text())['inference']
        self.assertEqual(inference['2']['nets']['googlenet']['ratio'], 3)
        of_resnet = {name: words for name, words, _ in reversed(self.calls()) if any('resnet50' in word for word in words)}
        shoal, opencv = of_resnet['time'], of_resnet['cv_python']
        self.assertIn('--forward_only', shoal)
        model, weights, *flags = opencv[1:]
        self.assertEqual(flags, ['--shape=1,3,8,8', '--threads=1', '--iterations=20'])
        self.assertEqual(shoal[0], f'--model={model}')
        self.assertIn(f'--weights={weights}', shoal)

    def test_a_later_failure_loses_no_pass(self):
        self.say('time', lenet=[(10, 1)], nin=[(10, 1)])
        self.assertIn('time ', self.bench(f'--json={self.folder}/all.json', code=1))
        report = json.loads((self.folder / 'all.json').read_text())
        self.assertEqual(len(report['training']['FLOAT32']['nets']['nin']['passes']), 1)


class Mistakes(Case):
    def test_what_is_missing_is_named_before_anything_is_timed(self):
        self.assertIn("no net 'lent' in models/; did you mean 'lenet'? Known: alexnet, ", self.bench('--nets=nin,lent', code=2))
        self.assertRegex(self.bench('--python=/no/python', code=2), '--python: there is no program /no/python')
        self.assertRegex(self.bench('--caffe=/no/caffe', code=2), '--caffe: there is no program /no/caffe')
        self.assertRegex(self.bench(f'--opencv={self.folder}/no', code=2), '--opencv: there is no program ')
        self.put('python', 'sys.exit("no torch: No module named torch")')
        self.assertRegex(self.bench(code=2), r'bench_peers.py: .*/python has no torch: No module named torch\n$')
        self.put('python', TORCH)
        self.put('cv_python', 'sys.exit("no cv2: No module named cv2")')
        self.assertRegex(self.bench(f'--opencv={self.folder}/cv_python', code=2), r'cv_python has no cv2: No module named cv2\n$')
        self.assertFalse([words for name, words, _ in self.calls() if name == 'time' and '--version' not in words])
        (self.folder / 'tools/time').unlink()
        self.assertRegex(self.bench(code=2), r'no .*/a place/tools/time: build it with make')

    def test_a_program_that_fails_says_its_last_words(self):
        self.put('python', TORCH.replace("print('a warning')", "print('early ' + 3000 * '.' + ' out of memory'); sys.exit(7)"))
        said = self.bench(code=1)
        self.assertRegex(said, r'/scripts/torch_net.py models/lenet/.* ended with 7:\n\.{1900,2000} out of memory\n')
        self.assertNotIn('early', said)
        self.put('python', TORCH.replace("print('a warning')", "print('words'); sys.exit()"))
        self.assertRegex(self.bench(code=1), r'no line of JSON in what .* printed:\nwords\n')
        self.put('tools/time', TIME.replace('GEMM 1024', 'Gemm'))
        self.assertRegex(self.bench(code=1), r'no "GEMM 1024.*in what .*/tools/time .* printed:\n')

    def test_nets_that_differ_are_not_compared(self):
        self.put('python', TORCH.replace("'params': 42", "'params': 43"))
        self.assertIn('lenet: Shoal has 42 params and PyTorch 43: these are not the same net', self.bench(code=1))


class Parts(unittest.TestCase):
    def test_the_processor(self):
        self.assertEqual(bench_peers.processor_of(CPUINFO),
                         {'vendor': 'GenuineIntel', 'name': 'Some Xeon @ 2.00GHz', 'family': '6', 'model': '143', 'avx512f': True,
                          'avx512_bf16': False, 'amx': True})

    def test_means_pass_over_what_has_no_ratio(self):
        self.assertAlmostEqual(bench_peers.geometric_mean([1, None, 1, 8]), 2)
        self.assertIsNone(bench_peers.geometric_mean([bench_peers.quotient(3, 0), bench_peers.quotient(-1, 3)]))

    def test_every_net_can_be_read(self):
        batches = {path.parent.name: torch_net.batch_of(torch_net.layers_of(path.read_text()))
                   for path in ROOT.glob('models/*/train_val.prototxt')}
        self.assertEqual({net: batches[net] for net in bench_peers.ITERATIONS},
                         {'lenet': 64, 'cifar10_quick': 100, 'cifar10_full': 100, 'caffenet': 32, 'googlenet': 16, 'resnet18': 16,
                          'resnet50': 16, 'vgg16': 16})

    def test_records_of_a_datumfile(self):
        # the example of the page of formats, twice: 1 x 1 x 2 pixels 01 ff with label 7
        record = bytes.fromhex('1900000005000000' '3030303030' '0c000000' '080110011802220201ff2807')
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / 'set'
            path.write_bytes(2 * record)
            datums = [torch_train.fields_of(value) for value in torch_train.records_of(path)]
        self.assertEqual(datums, 2 * [{1: 1, 2: 1, 3: 2, 4: b'\x01\xff', 5: 7}])
        self.assertEqual(torch_train.varint(b'\xac\x02', 0), (300, 2))

    def test_learning_rates(self):
        inv = torch_net.parse('base_lr: 0.01 lr_policy: "inv" gamma: 0.0001 power: 0.75')
        self.assertAlmostEqual(torch_train.rate_of(inv, 5000), 0.01 * 1.5 ** -0.75)
        self.assertEqual(torch_train.rate_of(torch_net.parse('base_lr: 2 lr_policy: "fixed"'), 9), 2)
        with self.assertRaisesRegex(torch_net.Failure, 'lr_policy "step" is not known here'):
            torch_train.rate_of(torch_net.parse('base_lr: 2 lr_policy: "step"'), 9)

    def test_text_format(self):
        top = torch_net.parse('a: 1 # words\nb { c: "x # y", d: [1, 2.5] } b: { c: WORD }\ne: true')
        first, second = top.all('b')
        self.assertEqual((top.get('a'), top.get('e'), second.get('c')), (1, True, 'WORD'))
        self.assertEqual((first.get('c'), first.all('d')), ('x # y', [1, 2.5]))
        for text, words in (('a {', 'braces do not match'), ('a: 1\n\\', r"line 2: '\\\\' is not text format")):
            with self.assertRaisesRegex(torch_net.Failure, words):
                torch_net.parse(text)

    def test_scripts_of_peers_say_which_module_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            for script, module in (('torch_net.py', 'torch'), ('opencv_net.py', 'cv2')):
                (Path(folder) / f'{module}.py').write_text('raise ImportError("it is not here")')
                ran = subprocess.run([sys.executable, ROOT / 'scripts' / script], capture_output=True, text=True,
                                     env={**os.environ, 'PYTHONPATH': folder})
                self.assertEqual((ran.returncode, ran.stderr), (1, f'no {module}: it is not here\n'))

    @unittest.skipUnless(importlib.util.find_spec('torch'), 'no torch here')
    def test_pytorch_times_a_net(self):
        command = [sys.executable, ROOT / 'scripts/torch_net.py', ROOT / 'models/lenet/train_val.prototxt', '--iterations=1']
        for flags in ([], ['--bf16']):
            ran = subprocess.run(command + flags, capture_output=True, text=True)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            said = json.loads(ran.stdout)
            self.assertEqual(said['params'], 431080)
            self.assertTrue(0 < said['ms'] < 1e5 and 1 < said['loss'] < 5, said)


if __name__ == '__main__':
    unittest.main()
