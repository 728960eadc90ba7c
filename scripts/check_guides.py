#!/usr/bin/env python3
"""Types the lines of the guides of Caffe, Poseidon, SpeeDO, MXNet-G and ESync, in this tree's paths, with few iterations on drawn data, and looks
at what they say and leave. The lines of docs/coming-from.md that are commands are among them. Works in a copy, with the tools of $BUILD or
build/release: scripts/check_guides.py [names of tests]."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = (ROOT / os.environ.get('BUILD', 'build/release')).resolve()
TOOLS = BUILD / 'tools'
LIMIT = 300                                                # seconds for a line


def draw(path, number):
    """A picture of 32 x 32 in colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = bytes((number * 40 + (x // 4 + y // 4) * 16 + c * 30) % 256 for y in range(32) for x in range(32) for c in range(3))
    path.write_bytes(b'P6 32 32 255\n' + pixels)


class Guide(unittest.TestCase):
    """One copy of the tree for all lines of a guide."""

    @classmethod
    def setUpClass(cls):
        if not (TOOLS / 'train').exists():
            raise unittest.SkipTest(f'no tools in {BUILD}: run make first, or set BUILD')
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = Path(cls.folder.name) / 'shoal'
        for part in ('data', 'examples', 'models', 'scripts'):
            shutil.copytree(ROOT / part, cls.root / part, symlinks=True,
                            ignore=shutil.ignore_patterns('*_lmdb', '*_leveldb', '*_datumfile', '*.caffemodel', '*.solverstate', '_temp', 'train', 'test'))
        (cls.root / 'build').mkdir()
        (cls.root / 'build/release').symlink_to(BUILD)
        cls.variables = {**{name: value for name, value in os.environ.items() if not name.startswith(('DMLC_', 'SHOAL_', 'BUILD'))},
                         'OMP_NUM_THREADS': '1', 'SHOAL_JOBS': str(cls.root / 'jobs')}

    def type(self, line, code=0, **variables):
        """Runs one line of a guide, as a user's shell does, and returns what it says."""
        done = subprocess.run(['sh', '-c', line], cwd=self.root, env={**self.variables, **variables}, text=True, timeout=LIMIT,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, code, f'$ {line}\n{done.stdout[-3000:]}')
        return done.stdout

    def has(self, said, *words):
        for word in words:
            self.assertIn(word, said, said[-3000:])

    @classmethod
    def make_cifar10(cls, backend='lmdb'):
        """What data/cifar10/get_cifar10.sh leaves, small and drawn, for create_cifar10.sh."""
        data = cls.root / 'data/cifar10'
        for name, count in (('train', 24), ('test', 8)):
            for number in range(count):
                draw(data / name / f'{number}.ppm', number)
            (data / f'{name}.txt').write_text(''.join(f'{name}/{number}.ppm {number % 10}\n' for number in range(count)))
        (data / 'complete').write_text('images\n')

    @classmethod
    def shorten_tests(cls):
        """Tests of one batch, and batches that fit the drawn sets."""
        for path in [*cls.root.glob('models/cifar10_*/*.prototxt'), *cls.root.glob('scripts/*.py'), *cls.root.glob('examples/*/*.py'),
                     *cls.root.glob('models/fashion_*/*.prototxt'), *cls.root.glob('models/lenet/*.prototxt')]:
            text = path.read_text()
            small = re.sub(r"test_iter('|:)?,? 100\b", lambda match: match.group(0).replace('100', '1'), text)
            small = re.sub(r'batch_size: (100|128|64)\b', 'batch_size: 4', small)
            if small != text:
                path.write_text(small)


class Poseidon(Guide):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.make_cifar10()
        cls.shorten_tests()

    def test_1_data_of_cifar10_by_sh(self):
        self.type('sh data/cifar10/get_cifar10.sh')
        self.type('sh examples/cifar10/create_cifar10.sh')
        self.assertTrue((self.root / 'examples/cifar10/mean.binaryproto').exists())
        for backend in ('leveldb', 'datumfile'):
            self.type(f'BACKEND={backend} sh examples/cifar10/create_cifar10.sh')
            self.assertTrue((self.root / f'examples/cifar10/cifar10_train_{backend}').exists())
        self.has(self.type('BACKEND=sqlite sh examples/cifar10/create_cifar10.sh', code=2), 'neither lmdb, leveldb nor datumfile')

    def test_2_parts(self):
        self.type('DB_PATH=examples/cifar10/cifar10_train_lmdb NUM_PARTITIONS=2 sh scripts/partition_data.sh')
        for part in (0, 1):
            self.assertTrue((self.root / f'examples/cifar10/cifar10_train_lmdb_{part}').exists())
        self.has(self.type('DB_PATH=examples/cifar10/cifar10_train_lmdb sh scripts/partition_data.sh', code=2), 'NUM_PARTITIONS says how many parts')

    def test_3_training(self):
        said = self.type('python3 examples/cifar10/run_local.py --max_iter=3 --table_staleness=1 --svb=true')
        self.has(said, 'Optimization Done.', 'launch: job')
        said = self.type('mkdir -p log && build/release/tools/caffe_main train --solver=models/cifar10_quick/solver.prototxt --max_iter=2 '
                         '--init_step_size=1 --log_dir=log')
        self.has(said, 'Optimization Done.')
        written = list((self.root / 'log').glob('*.INFO*'))
        self.assertTrue(written)
        self.assertIn('Optimization Done.', written[0].read_text())
        self.type('mkdir log2 && GLOG_log_dir=log2 build/release/tools/train --solver=models/cifar10_quick/solver.prototxt --max_iter=1')
        self.assertTrue(list((self.root / 'log2').glob('*.INFO*')))
        self.has(self.type('build/release/tools/train --solver=x --log_dir=nowhere', code=2), 'there is no such folder')

    def test_4_an_end_of_what_runs(self):
        (self.root / 'hosts').write_text('0 127.0.0.1 29611\n1 127.0.0.1 29612\n')
        self.has(self.type('python3 scripts/kill_caffe.py hosts'), '127.0.0.1')
        self.type('python3 scripts/kill_feature_extractor.py hosts')

    def test_5_features(self):
        said = self.type('sh examples/feature_extraction/extract_features.sh')
        self.has(said, 'Extracted features of 24 records for feature blob fc7', 'examples/_temp/features')
        (self.root / 'hosts').write_text('0 127.0.0.1 29611\n')
        said = self.type('sh examples/feature_extraction/extract_features.sh "" "" --hostfile=hosts --client_id=0 --num_table_threads=1')
        self.has(said, 'examples/_temp/features_0_0')


class SpeeDO(Guide):
    def test_1_walk_through(self):
        said = self.type('sh examples/speedo/run.sh --movingRate 0.5 --maxIter 6')
        self.has(said, 'scheme elastic', 'local_steps=1', 'Optimization Done.', 'Iteration 0, Testing net', "--maxIter=6 is the job's: 3 for each")
        said = self.type('sh examples/speedo/run.sh --sync --maxIter 3')
        self.has(said, 'local_steps', 'Optimization Done.')

    def test_2_lines_of_master_and_worker_end_with_what_to_copy(self):
        said = self.type('build/release/tools/train --solver=s.prototxt --worker 4 --redis host --movingRate 0.5 --maxIter 1000', code=2)
        self.has(said, "--worker is SpeeDO's", 'without Redis',
                 'scripts/launch.py -n 4 -- build/release/tools/train --solver=s.prototxt --movingRate 0.5 --maxIter 1000')
        said = self.type('build/release/tools/train --solver=s.prototxt --resume --startIter 10 --keyName k --skip 0.1', code=2)
        self.has(said, 'build/release/tools/train --solver=s.prototxt --snapshot=auto')


class MxnetG(Guide):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.make_cifar10()
        cls.shorten_tests()

    def test_1_data(self):
        self.type('sh examples/cifar10/create_cifar10.sh')

    def test_2_the_documented_line(self):
        (self.root / 'hosts').write_text('127.0.0.1\n')
        (self.root / 'groups').write_text('0\n1\n')
        (self.root / 'data_sharding').write_text('0 0.5\n0.5 1\n')
        said = self.type('python3 scripts/launch.py -n 2 -s 1 -i lo --launcher ssh -H hosts python3 examples/cifar10/train_cifar10.py --network resnet '
                         '--data-dir data --batch-size 4 --lr 0.01 --lr-factor 0.94 --num-epoch 1 --num-examples 24 --kv-store dist_gsync '
                         '--data-allocator 1')
        self.has(said, 'Optimization Done.', 'scheme grouped', '--data-dir has no effect')
        said = self.type('python3 scripts/launch.py -n 2 --launcher mpi python3 examples/cifar10/train_cifar10.py', code=2)
        self.has(said, 'mpirun -n 2 python3 examples/cifar10/train_cifar10.py')

    def test_3_schemes_and_nets(self):
        for scheme in ('bsp', 'async', 'ssp', 'grouped'):
            model = 'cifar10_inception_bn' if scheme == 'bsp' else 'cifar10_resnet20'
            said = self.type(f'python3 scripts/launch.py --local={4 if scheme == "grouped" else 2} -- build/release/tools/train '
                             f'--solver=models/{model}/solver_{scheme}.prototxt --max_iter=2')
            self.has(said, f'cheme {scheme}', 'Optimization Done.')
        said = self.type('python3 examples/cifar10/train_cifar10.py --network inception-bn-28-small --batch-size 4 --num-examples 8 --num-epochs 1')
        self.has(said, 'inception-bn-28-small', 'Optimization Done.')
        self.has(self.type('python3 examples/cifar10/train_cifar10.py --network resnet --num-layers 21', code=1), 'a depth is 6n + 2')

    def test_4_flags_that_train_has_not(self):
        said = self.type('build/release/tools/train --solver=s --batch-size 45 --num-epochs 2 --data-allocator 1 --retrain', code=2)
        self.has(said, "--batch_size is MXNet-G's", 'build/release/tools/train --solver=s --batch=45')
        self.assertNotIn('did you mean', said)


class Esync(Guide):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shorten_tests()

    def test_1_data(self):
        self.type('build/release/tools/draw_digits --backend=lmdb --train=64 --test=16 build && mv build/digits_train_lmdb '
                  'examples/fashion_mnist/fashion_mnist_train_lmdb && mv build/digits_test_lmdb examples/fashion_mnist/fashion_mnist_test_lmdb')

    def test_2_modes(self):
        for words, scheme in (('-m esync -gl 1.0', 'scheme esync'), ('-m sync', 'scheme bsp'), ('-m async -dcasgd 1', 'scheme dc_asgd')):
            said = self.type(f'python3 scripts/launch.py --local=2 -- python3 examples/fashion_mnist/esync.py {words} -n mobilenet-v2 -g 0 -b 4 -e 100 '
                             '-ip 10.1.1.34 -port 10010 -ld logs/esync --max_iter=2')
            self.has(said, scheme, 'Optimization Done.', 'there is no state server')
            self.assertNotIn('10010', said.replace('-port 10010', ''))
        self.assertTrue((self.root / 'logs/esync').exists())
        self.has(self.type('build/release/tools/train --solver=s -m esync -port 10010', code=2), 'examples/fashion_mnist/esync.py takes the flags')

    def test_3_summary_and_figures(self):
        for mode, words in (('esync', '-m esync'), ('async', '-m async')):
            self.type(f'python3 scripts/launch.py --local=2 -- python3 examples/fashion_mnist/esync.py {words} -n mobilenet-v2 -b 4 -e 1 '
                      f'-ld logs/mobilenet-v2/{mode} --max_iter=2')
            self.type(f'python3 scripts/summarize.py -b logs -n mobilenet-v2 -m {mode}')
        for name in ('esync/ESync.json', 'async/Async.json'):
            summary = json.loads((self.root / 'logs/mobilenet-v2' / name).read_text())
            workers = next(iter(summary.values()))
            self.assertEqual(sorted(workers), ['worker0', 'worker1'])
            self.assertTrue(all(worker['num_samples_list'] for worker in workers.values()), summary)
        said = self.type('python3 scripts/plot.py esync=logs/mobilenet-v2/esync async=logs/mobilenet-v2/async --baseline=0.926 --out=build/figures')
        self.has(said, 'curves: build/figures/curves.png', 'speed: ', 'shares: ')

    def test_4_time_instead_of_iterations(self):
        said = self.type('python3 examples/fashion_mnist/esync.py -m local -n mobilenet-v2 -b 4 -e 100000 --seconds=1')
        self.has(said, '--seconds=1: the time is over', 'Optimization Done.' if 'Optimization Done.' in said else 'Optimization stopped')


class Caffe(Guide):
    def test_1_walk_through_of_mnist(self):
        self.type('mkdir -p examples/mnist && build/release/tools/draw_digits --backend=lmdb --train=200 --test=100 build && '
                  'mv build/digits_train_lmdb examples/mnist/mnist_train_lmdb && mv build/digits_test_lmdb examples/mnist/mnist_test_lmdb')
        self.type('build/release/tools/caffe train --solver=models/lenet/solver.prototxt --max_iter=2 --set="test_iter: 1 snapshot: 2"')
        self.type('build/release/tools/caffe test --model=models/lenet/train_val.prototxt --weights=examples/mnist/lenet_iter_2.caffemodel --iterations=1')
        self.type('build/release/tools/caffe time --model=models/lenet/train_val.prototxt --stage=dummy --iterations=1')
        said = self.type('build/release/tools/time --model=models/lenet/train_val.prototxt --stage=dummy --summary')
        self.has(said, '|D|', 'params |W|', 'D/W')
        self.type('build/release/tools/deploy_net models/lenet/train_val.prototxt build/deploy.prototxt --shape=1,1,28,28')
        self.type('build/release/tools/draw_net models/lenet/train_val.prototxt build/net.dot --stage=dummy')


class Documents(unittest.TestCase):
    def test_files_that_the_page_names_are_there(self):
        page = (ROOT / 'docs/coming-from.md').read_text()
        named = set(re.findall(r'\b((?:examples|scripts|models|data)/[\w./-]+\.(?:py|sh|prototxt))', page))
        self.assertGreater(len(named), 5)
        for name in sorted(named):
            self.assertTrue((ROOT / name).exists(), f'docs/coming-from.md names {name}')


if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], '-v', *sys.argv[1:]])
