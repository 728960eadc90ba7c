#!/usr/bin/env python3
"""Tests the shell scripts: each can be parsed and run, and says in words which data it lacks.

Those of data/ and examples/ are run in a copy, with the tools of $BUILD or of build/release."""
import gzip
import os
import re
import shutil
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / os.environ.get('BUILD', 'build/release')

NET = '''layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { crop_size: 227 } data_param { batch_size: 4 backend: LMDB
  source: "examples/imagenet/ilsvrc12_train_lmdb" } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST }
  transform_param { crop_size: 227 } data_param { batch_size: 2 backend: LMDB
  source: "examples/imagenet/ilsvrc12_val_lmdb" } }
layer { name: "pool" type: "Pooling" bottom: "data" top: "pool"
  pooling_param { pool: AVE kernel_size: 227 } }
layer { name: "fc7" type: "InnerProduct" bottom: "pool" top: "fc7"
  param { lr_mult: 0.001 } inner_product_param { num_output: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc7" bottom: "label" top: "loss" }
'''


def shell_scripts():
    return sorted(path for folder in ('data', 'examples', 'scripts')
                  for path in (ROOT / folder).rglob('*.sh'))


def write_image(path, width, height, level):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'P6 %d %d 255\n' % (width, height) + bytes([level, 10, 20]) * width * height)


def write_idx(path, shape, data):
    """MNIST's format: two zeros, the type of a byte, the dimensions, the data."""
    head = struct.pack('>HBB', 0, 8, len(shape)) + struct.pack(f'>{len(shape)}I', *shape)
    path.write_bytes(gzip.compress(head + data))


class EveryScript(unittest.TestCase):
    def test_is_bash_and_can_be_started(self):
        self.assertGreater(len(shell_scripts()), 10)
        for path in shell_scripts():
            with self.subTest(path.relative_to(ROOT)):
                self.assertEqual(path.read_text().split('\n', 1)[0], '#!/usr/bin/env bash')
                self.assertTrue(os.access(path, os.X_OK), 'not executable')
                parsed = subprocess.run(['bash', '-n', path], capture_output=True, text=True)
                self.assertEqual((parsed.returncode, parsed.stderr), (0, ''))


    def test_starts_itself_again_where_sh_runs_it(self):
        sourced = {'need_tools.sh', 'train_parts.sh', 'unity.sh', 'join_objects.sh'}   # and two that make alone runs
        for path in shell_scripts():
            if path.name in sourced:
                continue
            with self.subTest(path.relative_to(ROOT)):
                first = next(line for line in path.read_text().split('\n') if not line.startswith('#'))
                self.assertEqual(first.partition('   #')[0], '[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"')
        with tempfile.TemporaryDirectory() as name:
            script = Path(name) / 'one.sh'
            script.write_text(f'#!/usr/bin/env bash\n{first}\nset -o pipefail\nwords=("$@")\necho "${{words[1]}}"\n')
            said = subprocess.run(['sh', script, 'a', 'b c'], check=True, capture_output=True, text=True).stdout
            self.assertEqual(said, 'b c\n')


class Scripts(unittest.TestCase):
    """Those of scripts/ that change more than their own files."""

    def refused(self, script, *args):
        done = subprocess.run([ROOT / 'scripts' / script, *args], text=True, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr

    def test_a_bundle_replaces_nothing_but_a_bundle(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            self.assertIn(f'no {folder}/tests/all: run make', self.refused('bundle.sh', folder))
            (folder / 'tests').mkdir()
            shutil.copy(shutil.which('true'), folder / 'tests/all')
            (folder / 'mine').mkdir()
            self.assertIn('mine is there already', self.refused('bundle.sh', folder, folder / 'mine'))
            self.assertTrue((folder / 'mine').exists())

    def test_packages_are_not_installed_at_an_unknown_word(self):
        self.assertIn('was given: --help', self.refused('install_packages.sh', '--help'))


class Container(unittest.TestCase):
    """The entry of the container, with a shoal that says what it was told."""

    def run_entry(self, *words, **variables):
        with tempfile.TemporaryDirectory() as folder:
            shoal = Path(folder) / 'shoal'
            shoal.write_text('#!/bin/sh\necho "$@"\n')
            shoal.chmod(0o755)
            return subprocess.run(['sh', ROOT / 'scripts/container', *words], capture_output=True, text=True, timeout=60, check=False,
                                  env={'PATH': f'{folder}:{os.environ["PATH"]}', **variables})

    def test_speedos_roles_are_jobs_and_joins(self):
        self.assertEqual(self.run_entry('master', '10.0.0.1', '3', '--scheme=async').stdout,
                         'train --solver=solver.prototxt --client_id=0 --num_clients=1 --master=10.0.0.1:29600 --port=29600 --scheme=async\n')
        self.assertEqual(self.run_entry('worker', '10.0.0.1', '10.0.0.2', '-v', SOLVER='s', PORT='5').stdout,
                         'train --solver=s --join=10.0.0.1:5 --port=5 --advertise=10.0.0.2 -v\n')

    def test_other_words_are_tools(self):
        self.assertEqual(self.run_entry('time', '--model=a b').stdout, 'time --model=a b\n')

    def test_a_role_without_its_addresses_is_refused(self):
        for words in (('master', '10.0.0.1'), ('worker', '10.0.0.1')):
            done = self.run_entry(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ''))
            self.assertIn('usage: master ADDRESS N', done.stderr)


class Copy(unittest.TestCase):
    """A test of scripts that write beside themselves, in a copy of the repository's part."""

    def setUp(self):
        if not (BUILD / 'tools/convert_imageset').exists():
            self.skipTest(f'no tools in {BUILD}: run make first, or set BUILD')
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for part in ('examples/imagenet', 'examples/fashion_mnist', 'examples/mnist',
                     'examples/cifar10', 'data/fashion_mnist', 'data/mnist'):
            (self.root / part).mkdir(parents=True)
            for script in (ROOT / part).glob('*.sh'):
                shutil.copy(script, self.root / part)
        shutil.copy(ROOT / 'examples/need_tools.sh', self.root / 'examples')
        (self.root / 'models/caffenet').mkdir(parents=True)
        shutil.copy(ROOT / 'models/caffenet/solver.prototxt', self.root / 'models/caffenet')
        (self.root / 'models/caffenet/train_val.prototxt').write_text(NET)

    def go(self, script, *args, start='.', timeout=60, **variables):
        """The exit code of a script, and all that it said."""
        done = subprocess.run([self.root / script, *args], cwd=self.root / start, timeout=timeout, text=True,
                              env={**os.environ, 'BUILD': str(BUILD), **variables},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def refuses(self, words, script, *args, **variables):
        code, said = self.go(script, *args, **variables)
        self.assertIn(words, said)
        self.assertEqual(code, 2, said)

    def succeeds(self, script, *args, **variables):
        code, said = self.go(script, *args, **variables)
        self.assertEqual(code, 0, said)
        return said


class Labels(Copy):
    """The scripts that write MNIST's images with labels of their own."""

    def setUp(self):
        super().setUp()
        self.images, self.labels = self.root / 'images', self.root / 'labels'
        for path, shape, data in ((self.images, (20, 2, 3), bytes(range(120))), (self.labels, (20,), bytes(i % 4 for i in range(20)))):
            write_idx(path, shape, data)
            path.write_bytes(gzip.decompress(path.read_bytes()))

    def records(self, script, count):
        """(pixels, label) of each record that a script wrote."""
        out = self.root / 'out'
        subprocess.run([ROOT / script, self.images, self.labels, str(count), out], check=True)
        data, records = out.read_bytes(), []
        while data:
            size, key = struct.unpack_from('<II', data)
            record, data = data[12 + key:4 + size], data[4 + size:]
            length = record[7]
            self.assertEqual(record[:7], bytes((8, record[1], 16, 2, 24, 3, 34)))
            records.append((record[8:8 + length], record[-1]))
        return records

    def test_pairs_are_labelled_by_whether_their_digits_are_the_same(self):
        records = self.records('examples/siamese/pair_mnist.py', 30)
        self.assertEqual([same for _, same in records], [1, 0] * 15)
        for pixels, same in records:
            digits = [pixels[at] // 6 % 4 for at in (0, 6)]
            self.assertEqual(int(digits[0] == digits[1]), same)

    def test_odd_digits_are_labelled(self):
        records = self.records('examples/finetuning/odd_mnist.py', 7)
        self.assertEqual([odd for _, odd in records], [0, 1, 0, 1, 0, 1, 0])
        self.assertEqual(records[3][0], bytes(range(18, 24)))

    def test_what_is_missing_is_named(self):
        for script in ('examples/siamese/pair_mnist.py', 'examples/finetuning/odd_mnist.py'):
            done = subprocess.run([ROOT / script, 'nowhere', self.labels, '3', self.root / 'out'], text=True, stderr=subprocess.PIPE)
            self.assertEqual((done.returncode, done.stderr), (1, 'nowhere: No such file or directory\n'))
            done = subprocess.run([ROOT / script, self.labels, self.labels, '3', self.root / 'out'], text=True, stderr=subprocess.PIPE)
            self.assertIn('this is no IDX file of bytes with 3 dimensions', done.stderr)
        done = subprocess.run([ROOT / 'examples/finetuning/finetune_odd.sh', 'nowhere'], text=True, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 2)
        self.assertIn('/nowhere: run examples/mnist/train_lenet.sh', done.stderr)


class Recurrent(Copy):
    def test_remembers_digits(self):
        shutil.copytree(ROOT / 'examples/recurrent', self.root / 'examples/recurrent')
        code, said = self.go('examples/recurrent/run.sh', '--max_iter=500', '--threads=1')
        self.assertEqual(code, 0, said)
        scores = re.findall(r'accuracy = ([0-9.]+)', said)
        self.assertGreater(float(scores[-1]), 0.6, said)


class FasterRCNN(Copy):
    def test_learns_drawn_boxes(self):
        shutil.copytree(ROOT / 'examples/faster_rcnn', self.root / 'examples/faster_rcnn')
        drawn = self.root / 'build/faster_rcnn'
        subprocess.run([self.root / 'examples/faster_rcnn/draw_boxes.py', drawn.relative_to(self.root), '60', '20'],
                       cwd=self.root, check=True, stdout=subprocess.PIPE)
        code, said = self.go('examples/faster_rcnn/train.sh', '--max_iter=300', '--set=test_iter: 20 test_interval: 300', '--threads=1')
        self.assertEqual(code, 0, said)
        for score, least in (('rpn_accuracy', 0.8), ('accuracy', 0.5)):
            scores = re.findall(rf' {score} = ([0-9.]+)', said)
            self.assertGreater(float(scores[-1]), least, said)

    def test_draws_the_same_each_time(self):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            for folder in (one, two):
                subprocess.run([ROOT / 'examples/faster_rcnn/draw_boxes.py', folder, '3', '2'], check=True, stdout=subprocess.PIPE)
            self.assertEqual((Path(one) / 'train.h5').read_bytes(), (Path(two) / 'train.h5').read_bytes())
            self.assertNotEqual((Path(one) / 'train.h5').read_bytes(), (Path(one) / 'test.h5').read_bytes())


class Ssd(Copy):
    def test_learns_drawn_boxes_and_a_second_program_computes_the_same_precision(self):
        shutil.copytree(ROOT / 'examples/ssd', self.root / 'examples/ssd')
        code, said = self.go('examples/ssd/run.sh', 'made', timeout=300, ITERATIONS='500', TRAIN_IMAGES='200', TEST_IMAGES='40', OMP_NUM_THREADS='1')
        self.assertEqual(code, 0, said)
        solver = float(re.findall(r'detection_eval = ([0-9.]+)', said)[-1])
        self.assertGreater(solver, 0.3, said)
        self.assertAlmostEqual(float(re.findall(r'^mAP: ([0-9.]+)', said, re.MULTILINE)[-1]), solver, delta=0.03, msg=said)

    def test_draws_the_same_each_time(self):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            for folder in (one, two):
                subprocess.run([ROOT / 'examples/ssd/draw_boxes.py', folder, '--train=3', '--test=2'], check=True)
            name = 'JPEGImages/{}_00001.ppm'
            self.assertEqual((Path(one) / name.format('train')).read_bytes(), (Path(two) / name.format('train')).read_bytes())
            self.assertNotEqual((Path(one) / name.format('train')).read_bytes(), (Path(one) / name.format('test')).read_bytes())

    def test_boxes_are_where_objects_were_painted(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([ROOT / 'examples/ssd/draw_boxes.py', folder, '--train=20', '--test=0'], check=True)
            for annotation in Path(folder).glob('Annotations/*.xml'):
                header, _, pixels = (Path(folder) / f'JPEGImages/{annotation.stem}.ppm').read_bytes().partition(b'\n255\n')
                self.assertEqual((header, len(pixels)), (b'P6\n96 96', 3 * 96 * 96))
                text = annotation.read_text()
                for name, box in re.findall(r'<name>(\w+)</name>.*?<bndbox>(.*?)</bndbox>', text, re.DOTALL):
                    xmin, ymin, xmax, ymax = (int(side) for side in re.findall(r'>(\d+)<', box))
                    self.assertTrue(0 <= xmin < xmax <= 96 and 0 <= ymin < ymax <= 96, text)
                    middle = pixels[3 * ((ymin + ymax) // 2 * 96 + (xmin + xmax) // 2):][:3]
                    # Rectangles are red or orange, discs blue or green.
                    self.assertEqual(name, 'rectangle' if middle[0] > max(middle[1:]) else 'disc', (text, tuple(middle)))


class Chaos(unittest.TestCase):
    def go(self, **settings):
        if not (BUILD / 'tools/train').exists():
            self.skipTest(f'no tools in {BUILD}: run make first, or set BUILD')
        with tempfile.TemporaryDirectory() as out:
            done = subprocess.run([ROOT / 'examples/cluster/chaos.sh', BUILD / 'tools'], text=True,
                                  env={**os.environ, 'OUT': out, **settings}, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=180)
        self.assertEqual(done.returncode, 0, done.stdout)
        accuracy = re.search(r'accuracy on 2000 test images: (0\.\d+)', done.stdout)
        self.assertGreater(float(accuracy.group(1)), 0.85, done.stdout)
        return done.stdout

    def test_a_killed_process_is_lost_and_comes_back(self):
        said = self.go(DURATION='13', EVERY='5')
        self.assertRegex(said, r'\nkill +5\.\d +[123] +\d+\.\d\d +\d+\.\d\d +\d')

    def test_a_cut_process_is_lost_and_comes_back(self):
        made = shutil.which('ip') and subprocess.run(['ip', 'netns', 'add', 'examples_test'],
                                                     stderr=subprocess.DEVNULL).returncode == 0
        if not made:
            self.skipTest('no network namespaces here: they need root and the program ip')
        subprocess.run(['ip', 'netns', 'del', 'examples_test'], check=True)
        said = self.go(CUT='1', DURATION='40', EVERY='11', SEED='5', FLAGS='--lost_after=2')
        lost, back = re.search(r'\ncut +22\.\d +\d +(\S+) +\S+ +(\S+)', said).groups()
        self.assertGreater(float(lost), 0.9, said)            # nothing was heard
        self.assertGreater(float(back), 9.9, said)            # nothing came through


class ImageNet(Copy):
    def make_images(self):
        for name, count in (('train', 8), ('val', 4)):
            lines = []
            for i in range(count):
                path = f'class{i % 2}/{i}.ppm'
                write_image(self.root / 'images' / name / path, 20 + i, 30, 200 * (i % 2))
                lines.append(f'{path} {i % 2}\n')
            (self.root / f'images/{name}.txt').write_text(''.join(lines))
        # Relative paths are meant from where the script is started.
        return {'TRAIN_ROOT': 'images/train', 'TRAIN_LIST': 'images/train.txt',
                'VAL_ROOT': 'images/val', 'VAL_LIST': 'images/val.txt'}

    def test_without_its_data_each_script_names_what_is_missing(self):
        at = 'examples/imagenet/'
        self.refuses('no folder data/ilsvrc12/train with the train images: set TRAIN_ROOT',
                     at + 'create_imagenet.sh')
        for script in ('make_imagenet_mean', 'train_caffenet', 'resume_training'):
            self.refuses('ilsvrc12_train_lmdb: run examples/imagenet/create_imagenet.sh first',
                         at + script + '.sh')
        self.refuses('ilsvrc12_val_lmdb: run examples/imagenet/create_imagenet.sh first',
                     at + 'extract_fc7.sh')
        self.refuses('run make first', at + 'train_caffenet.sh', BUILD='nowhere')

    def test_a_list_and_a_folder_that_do_not_fit_are_refused_before_anything_is_written(self):
        script, images = 'examples/imagenet/create_imagenet.sh', self.make_images()
        self.refuses('is VAL_ROOT the folder its paths start from?', script,
                     **{**images, 'VAL_ROOT': 'images'})
        self.refuses('no list', script, **{**images, 'VAL_LIST': 'images/none.txt'})
        (self.root / 'images/none.txt').touch()
        self.refuses('is empty', script, **{**images, 'VAL_LIST': 'images/none.txt'})
        (self.root / 'images/none.txt').write_text('class0/0.ppm\n')
        self.refuses("is not 'path label'", script, **{**images, 'VAL_LIST': 'images/none.txt'})
        self.refuses('neither train nor val', script, 'test', **images)
        self.assertFalse((self.root / 'examples/imagenet/ilsvrc12_train_lmdb').exists())

    def test_from_images_to_features(self):
        at, images = 'examples/imagenet/', self.make_images()
        self.succeeds(at + 'create_imagenet.sh', **images)
        self.refuses('is there already', at + 'create_imagenet.sh', 'val', **images)
        self.assertIn('mean_value channel [2]', self.succeeds(at + 'make_imagenet_mean.sh'))
        self.assertTrue((self.root / 'data/ilsvrc12/imagenet_mean.binaryproto').exists())
        self.refuses('run examples/imagenet/train_caffenet.sh first', at + 'resume_training.sh')
        self.refuses('behind --', at + 'train_caffenet.sh', '--batch=2')
        few = ['--', '--threads=1', '--set=max_iter: 2 test_iter: 1 base_lr: 0.0001']
        self.succeeds(at + 'train_caffenet.sh', *few)
        few[-1] = '--set=max_iter: 3 test_iter: 1 base_lr: 0.0001'
        self.assertIn('iter_2.solverstate', self.succeeds(at + 'resume_training.sh', *few))
        self.succeeds(at + 'extract_fc7.sh', BACKEND='text', BATCHES='0')
        self.assertIn('caffenet_train_iter_3', self.succeeds(at + 'extract_fc7.sh', BACKEND='text'))
        self.assertEqual(len((self.root / at / 'fc7_text').read_text().splitlines()), 4)


class MnistAndCifar(Copy):
    def test_without_data_or_a_model_each_script_names_what_is_missing(self):
        for script in ('examples/mnist/create_mnist.sh', 'data/mnist/get_mnist.sh'):
            self.refuses('SHOAL_DATA_DIR names the folder', script, SHOAL_DATA_DIR='nowhere')
        self.refuses('run examples/mnist/train_lenet.sh first', 'examples/mnist/test_lenet.sh')
        self.refuses('run examples/cifar10/train_quick.sh first', 'examples/cifar10/test_quick.sh')


    def test_paths_are_meant_from_where_a_script_was_started(self):
        there, tool = self.root / 'there', self.root / 'fake/tools/test'
        for folder in (there, tool.parent):
            folder.mkdir(parents=True)
        tool.write_text('#!/bin/sh\necho "$*"\n')
        tool.chmod(0o755)
        (there / 'm.caffemodel').touch()
        for script in ('mnist/test_lenet', 'cifar10/test_quick'):
            code, said = self.go(f'examples/{script}.sh', 'm.caffemodel', start='there', BUILD='fake')
            self.assertIn(f'--weights={there}/m.caffemodel ', said)
        code, said = self.go('examples/mnist/create_mnist.sh', start='there', SHOAL_DATA_DIR='given')
        self.assertIn(f'mnist: no {there}/given/mnist/train-images-idx3-ubyte.gz', said)

    def test_a_part_that_was_stopped_is_not_followed_by_the_next_part_of_an_earlier_run(self):
        (self.root / 'fake/tools').mkdir(parents=True)
        tool = self.root / 'fake/tools/train'
        (self.root / 'examples/cifar10/mean.binaryproto').touch()
        for script, ends in (('quick', ['cifar10_quick_iter_4000']),
                             ('full', ['cifar10_full_iter_60000', 'cifar10_full_iter_65000'])):
            for end in ends:
                (self.root / f'examples/cifar10/{end}.solverstate').touch()
            for last, expected in (('stopped early.', []), ('Done.', ends)):
                calls = self.root / 'calls'
                calls.unlink(missing_ok=True)
                tool.write_text(f'#!/bin/sh\necho "$*" >> "{calls}"\n'
                                f'echo "Starting Optimization"; echo "Optimization {last}"\n')
                tool.chmod(0o755)
                self.go(f'examples/cifar10/train_{script}.sh', '--threads=1', BUILD='fake')
                called = calls.read_text().splitlines()
                self.assertTrue(all(call.endswith(' --threads=1') for call in called), called)
                self.assertEqual(re.findall('cifar10/([a-z0-9_]+).solverstate', '\n'.join(called)), expected)


class FashionMnist(Copy):
    def test_files_are_checked_and_missing_ones_named(self):
        script = 'data/fashion_mnist/get_fashion_mnist.sh'
        self.refuses('SHOAL_DATA_DIR names the folder', script, SHOAL_DATA_DIR='nowhere')
        (self.root / 'given/fashion_mnist').mkdir(parents=True)
        self.refuses('train-images-idx3-ubyte.gz', script, SHOAL_DATA_DIR='given')
        write_idx(self.root / 'given/fashion_mnist/train-images-idx3-ubyte.gz', [0, 28, 28], b'')
        self.refuses('has the wrong checksum', script, SHOAL_DATA_DIR='given')
        self.assertEqual(len(list((self.root / 'data/fashion_mnist').iterdir())), 1)

    def test_databases_are_made_of_the_files_of_a_folder(self):
        script = 'examples/fashion_mnist/create_fashion_mnist.sh'
        self.refuses('train-images-idx3-ubyte', script, 'here')
        (self.root / 'here').mkdir()
        for part in ('train', 't10k'):
            write_idx(self.root / f'here/{part}-images-idx3-ubyte.gz', [3, 28, 28], bytes(3 * 784))
            write_idx(self.root / f'here/{part}-labels-idx1-ubyte.gz', [3], bytes([7, 8, 9]))
        self.assertEqual(self.succeeds(script, 'here').count('Wrote 3 records'), 2)
        for part in ('train', 'test'):
            database = f'examples/fashion_mnist/fashion_mnist_{part}_lmdb/data.mdb'
            self.assertTrue((self.root / database).exists())


if __name__ == '__main__':
    unittest.main()
