#!/usr/bin/env python3
"""Tests the Makefile on a small tree of its own, and how unity.sh groups sources."""
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = {
    'include/shoal/base/number.h': '#pragma once\ninline int number() { return 1; }\n',
    'src/precompiled.h': '#pragma once\n#include "shoal/base/number.h"\n',
    'src/shoal/base/twice.cpp': '#include "shoal/base/number.h"\nint twice() { return 2 * number(); }\n',
    'tools/common/words.cpp': 'const char* words() { return "twice is"; }\n',
    'tools/caffe.cpp': '#include <cstdio>\nint twice();\nconst char* words();\nint main() { std::printf("%s %d\\n", words(), twice()); }\n',
    'tests/precompiled.h': '#pragma once\n#include "src/precompiled.h"\n',
    'tests/main.cpp': '#include <cstdio>\nint first();\nint main() { std::printf("first is %d\\n", first()); }\n' + '// more\n' * 40,
    'tests/middle_test.cpp': '#include "shoal/base/number.h"\nint first() { return number(); }\n' + '// more\n' * 40,
}


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name, text in TREE.items():
            self.write(name, text)
        (self.root / 'scripts').mkdir()
        for script in ('unity.sh', 'join_objects.sh'):
            shutil.copy(ROOT / 'scripts' / script, self.root / 'scripts')
        shutil.copy(ROOT / 'Makefile', self.root)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def change(self, name, old, new):
        """Changes a file that make has seen: its time must be a later one."""
        text = (self.root / name).read_text()
        self.assertIn(old, text)
        time.sleep(0.02)
        self.write(name, text.replace(old, new))

    def make(self, *words, code=0):
        """What the compiler was asked for: the lines that make prints, by their first word. Of a failure, all that make prints."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(('MAKE', 'MFLAGS', 'BUILD'))}
        made = subprocess.run(['make', 'CUDA=0', *words, 'OPT=-O0', 'UNITY=40', 'OPENMP=0', 'OPENCV=', 'DNN=', 'LDLIBS='],
                              cwd=self.root, env=clean, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(made.returncode, code, made.stdout)
        if code:
            return made.stdout
        return re.findall(r'^  (CXX|PCH|AR|LD|JOIN) +(\S+)', made.stdout, re.MULTILINE)

    def says(self, program):
        return subprocess.run([self.root / 'build/release' / program], check=True, capture_output=True, text=True).stdout.strip()


class Make(Tree):
    def test_names_the_programs_that_are_missing(self):
        self.write('src/shoal/proto/small.proto', 'syntax = "proto2";\n')
        self.assertIn('make needs nosuch: scripts/install_packages.sh installs what is missing', self.make('PROTOC=nosuch', code=2))
        self.assertIn('CUDA=1 needs nvcc, and there is none in /nosuch/bin or PATH: set CUDA_HOME or NVCC',
                      self.make('CUDA=1', 'CUDA_HOME=/nosuch', 'NVCC=', code=2))

    def test_names_settings_of_caffes_makefile_config(self):
        self.write('Makefile.config', 'CPU_ONLY := 1\nBLAS := atlas\nCXX := g++\n')
        said = self.make('no_such_target', code=2)
        self.assertIn('Makefile.config: CPU_ONLY is of Caffe and has no effect here; instead: CUDA := 0', said)
        self.assertIn('Makefile.config: BLAS is of Caffe and has no effect here; instead: OpenBLAS is used', said)
        self.assertNotIn('USE_CUDNN', said)
        self.assertNotIn('CXX is', said)

    def test_alone_builds_the_tools(self):
        self.make()
        self.assertEqual(self.says('tools/caffe'), 'twice is 2')
        self.assertEqual(self.says('tools/caffe_main'), 'twice is 2')
        self.assertEqual(self.make(), [], 'nothing has changed')

    def test_bench_peers_hands_its_variables_on(self):
        self.write('scripts/bench_peers.py', '#!/bin/sh\necho "$@" > words\n')
        (self.root / 'scripts/bench_peers.py').chmod(0o755)
        for words, expected in ((('PYTHON=', 'CAFFE=', 'BENCH_ARGS='), ''),
                                (('PYTHON=some/python', 'CAFFE=caffe', 'BENCH_ARGS=--passes=1 --bf16'),
                                 ' --python=some/python --caffe=caffe --passes=1 --bf16')):
            self.make('bench_peers', *words)
            self.assertEqual((self.root / 'words').read_text(), f'build/release{expected}\n')

    def test_a_changed_header_reaches_all_that_read_it_precompiled(self):
        self.make('all', 'build/release/tests/all')
        self.change('include/shoal/base/number.h', '1', '3')
        made = self.make('all', 'build/release/tests/all')
        self.assertEqual([what for how, what in made if how == 'PCH'], ['src/precompiled.h', 'tests/precompiled.h'])
        self.assertEqual(self.says('tools/caffe'), 'twice is 6')
        self.assertEqual(self.says('tests/all'), 'first is 3')

    def test_what_is_precompiled_reaches_those_that_name_no_header(self):
        self.make()
        self.change('src/precompiled.h', '#pragma once', '#pragma once\n#define twice thrice')
        made = self.make()
        self.assertIn(('CXX', 'tools/caffe.cpp'), made)
        self.assertIn(('CXX', 'src/shoal/base/group_0'), made)

    def test_an_object_alone_is_compiled_by_the_rules_of_the_makefile(self):
        self.write('src/shoal/proto/some.proto', 'syntax = "proto2"; package shoal; message Some {}')
        self.assertIn(('CXX', 'tests/group_0'), self.make('build/release/unity/tests/group_0.o'))

    def test_a_changed_test_compiles_its_group_alone(self):
        self.make('build/release/tests/all')
        self.change('tests/middle_test.cpp', 'return', 'return 4 +')
        self.assertEqual(self.make('build/release/tests/all'), [('CXX', 'tests/group_1'), ('LD', 'build/release/tests/all')])
        self.assertEqual(self.says('tests/all'), 'first is 5')

    def test_a_test_that_is_gone_leaves_nothing(self):
        self.make('build/release/tests/all')
        (self.root / 'tests/middle_test.cpp').unlink()
        self.change('tests/main.cpp', 'int first();', 'int first() { return 9; }')
        self.make('build/release/tests/all')
        self.assertEqual(self.says('tests/all'), 'first is 9')
        self.assertEqual([path.name for path in (self.root / 'build/release/unity/tests').glob('*.o')], ['group_0.o'])


# Each function says for which level of x86-64 its copy of an inline function was compiled.
KERNELS = {
    'include/shoal/base/level.h': """#pragma once
__attribute__((noinline)) inline int level() {
#if defined(__AVX512F__)
  return 4;
#elif defined(__AVX2__)
  return 3;
#else
  return 1;
#endif
}
""",
    'src/shoal/ops/cpu/precompiled.h': '#pragma once\n#include "shoal/base/level.h"\n',
    'src/shoal/ops/cpu/kernel.cpp': '#include "shoal/base/level.h"\nint kernel() { return level(); }\n',
    'src/shoal/ops/impls.cpp': 'int kernel();\nnamespace shoal::ops { int listed_backend() { return kernel(); } }\n',
    'src/shoal/ops/cpu_kernels.cpp': """namespace shoal::ops {
int listed_backend(), listed_backend_v4();
int highest() {
#if SHOAL_CPU_V4
  return listed_backend_v4();
#else
  return listed_backend();
#endif
}
}
""",
    'tools/caffe.cpp': """#include <cstdio>
#include "shoal/base/level.h"
namespace shoal::ops { int listed_backend(), highest(); }
int main() { std::printf("%d %d %d\\n", level(), shoal::ops::listed_backend(), shoal::ops::highest()); }
""",
}


@unittest.skipUnless(platform.machine() == 'x86_64', 'kernels are compiled for several levels on x86-64 alone')
class Kernels(Tree):
    def setUp(self):
        super().setUp()
        for name, text in KERNELS.items():
            self.write(name, text)

    def test_of_two_levels_share_no_copy_of_an_inline_function(self):
        self.make()
        self.assertEqual(self.says('tools/caffe'), '1 3 4')
        self.change('src/shoal/ops/cpu/kernel.cpp', 'level()', '10 * level()')
        self.assertEqual([what for how, what in self.make() if how in ('CXX', 'JOIN')],
                         ['src/shoal/ops/cpu/kernel.cpp', 'v4/src/shoal/ops/cpu/kernel.cpp', 'build/release/v4/kernels.o'])
        self.assertEqual(self.says('tools/caffe'), '1 30 40')

    def test_are_of_one_level_where_the_user_names_it(self):
        self.make('ARCH=')
        self.assertEqual(self.says('tools/caffe'), '1 1 1')
        self.make('ARCH=-march=x86-64-v4')
        self.assertEqual(self.says('tools/caffe'), '1 4 4')
        self.make('ARCH_V4=')
        self.assertEqual(self.says('tools/caffe'), '1 3 3')
        self.assertEqual(sorted(what for how, what in self.make() if how == 'CXX'),
                         ['src/shoal/ops/cpu_kernels.cpp', 'v4/src/shoal/ops/cpu/kernel.cpp', 'v4/src/shoal/ops/impls.cpp'])
        self.assertEqual(self.says('tools/caffe'), '1 3 4')

    def test_of_the_higher_level_have_nothing_that_runs_before_main(self):
        self.change('src/shoal/ops/cpu/kernel.cpp', 'int kernel()', 'int early();\ninline const int value = early();\nint kernel()')
        self.write('src/shoal/base/early.cpp', 'int early() { return 0; }\n')
        self.assertRegex(self.make(code=2), 'v4/kernels.o: has initializers that would run before main on any processor: .*kernel')
        self.assertFalse((self.root / 'build/release/v4/kernels.o').exists())


class Groups(Tree):
    def groups(self, lines, sizes):
        for name, size in sizes.items():
            self.write(f'some/{name}.cpp', '// line\n' * size)
        ran = subprocess.run(['scripts/unity.sh', 'out', str(lines), *(f'some/{name}.cpp' for name in sizes)], cwd=self.root,
                             check=True, capture_output=True, text=True)
        return [re.findall(r'"some/(\w+)\.cpp"', (self.root / group).read_text()) for group in ran.stdout.split()]

    def test_are_neighbours_of_about_one_size(self):
        self.assertEqual(self.groups(300, dict.fromkeys('abcdefghij', 100)), [['a', 'b', 'c'], ['d', 'e', 'f', 'g'], ['h', 'i', 'j']])
        self.assertEqual(self.groups(250, {'a': 10, 'b': 20}), [['a', 'b']])
        self.assertEqual(self.groups(250, {'a': 900, 'b': 10, 'c': 10}), [['a'], ['b', 'c']])
        self.assertEqual(self.groups(250, {'a': 0, 'b': 0}), [['a', 'b']])

    def test_hardly_change_when_a_source_grows(self):
        sizes = dict.fromkeys('abcdefghij', 100)
        before = self.groups(300, sizes)
        self.assertEqual(self.groups(300, {**sizes, 'b': 110}), before)
        self.assertEqual(self.groups(300, {**sizes, 'i': 90}), before)

    def test_that_stay_are_not_written_again_and_others_go(self):
        self.groups(100, {'a': 100, 'b': 100})
        first, second = (self.root / f'out/some/group_{n}.cpp' for n in range(2))
        second.with_suffix('.o').write_text('')
        written = first.stat().st_mtime_ns
        self.groups(100, {'a': 100})
        self.assertEqual(first.stat().st_mtime_ns, written)
        self.assertEqual([path.name for path in first.parent.iterdir()], ['group_0.cpp'])


if __name__ == '__main__':
    unittest.main()
