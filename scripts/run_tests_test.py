#!/usr/bin/env python3
"""Tests run_tests.py with a test program that is a few lines of Python."""
import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import run_tests

# Suites with their tests. A test whose name has Fail fails, Skip is skipped, Die ends the program. Meets waits until another
# process of this program runs a test of that name, for a while.
PROGRAM = r'''#!/usr/bin/env python3
import os, pathlib, sys, time
SUITES = %r
folder = pathlib.Path(__file__).parent
if '--gtest_list_tests' in sys.argv:
    for suite, tests in SUITES.items():
        print(suite + '.')
        for test in tests:
            print('  ' + test)
    sys.exit(0)
chosen = [flag.partition('=')[2].split(':') for flag in sys.argv if flag.startswith('--gtest_filter=')][0]
passed, failed, skipped = 0, [], []
for suite, tests in SUITES.items():
    for test in tests if suite + '.*' in chosen else ():
        name = suite + '.' + test
        with open(folder / 'ran', 'a') as ran:
            ran.write(name + '\n')
        print('[ RUN      ] ' + name, flush=True)
        if 'Die' in test:
            os._exit(7)
        if 'Meets' in test:
            (folder / suite.replace('/', '_')).write_text('')
            end = time.time() + 20
            while len(list(folder.glob('*Meeting'))) < 2 and time.time() < end:
                time.sleep(0.01)
        met = len(list(folder.glob('*Meeting'))) >= 2
        if 'Fail' in test or 'Meets' in test and not met:
            failed.append(name)
        elif 'Skip' in test:
            skipped.append(name)
        else:
            passed += 1
print('[==========] some tests ran.')
print('slow:     1.50 s ' + name)
for name in skipped:
    print('skipped: ' + name)
for name in failed:
    print('failed: ' + name + ' at a.cpp:1:\nits second line')
print('%%d passed, %%d failed, %%d skipped' %% (passed, len(failed), len(skipped)))
sys.exit(1 if failed else 0)
'''


class Lanes(unittest.TestCase):
    def run_all(self, suites, *flags):
        """The exit code and the lines that the runner printed."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        program = Path(folder.name) / 'program'
        program.write_text(PROGRAM % suites)
        program.chmod(0o755)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            code = run_tests.main(str(program), list(flags))
        self.ran = (program.parent / 'ran').read_text().split()
        return code, said.getvalue().splitlines()

    def test_run_every_test_once(self):
        suites = {f'{prefix}Suite{n}': [f'T{t}' for t in range(n % 7 + 1)] for n in range(40) for prefix in ('', 'All/', 'Process')}
        code, lines = self.run_all(suites)
        wanted = sorted(f'{suite}.{test}' for suite, tests in suites.items() for test in tests)
        self.assertEqual((code, lines[-1]), (0, f'{len(wanted)} passed, 0 failed, 0 skipped'))
        self.assertEqual(sorted(self.ran), wanted)
        self.assertEqual(len([line for line in lines if line.endswith('passed, 0 failed, 0 skipped')]), 1)

    def test_of_real_processes_run_beside_computing_ones(self):
        code, lines = self.run_all({'Meeting': ['Meets'], 'All/ProcessMeeting': ['Meets']})
        self.assertEqual((code, lines[-1]), (0, '2 passed, 0 failed, 0 skipped'))

    def test_say_at_the_end_what_was_skipped_and_what_failed(self):
        code, lines = self.run_all({'One': ['Fails', 'Works'], 'Process': ['Skips']}, '--slowest=1')
        self.assertEqual(code, 1)
        self.assertRegex(lines[-5], r'^slow:     1\.50 s (One|Process)\.')
        self.assertEqual(lines[-4:], ['skipped: Process.Skips', 'failed: One.Fails at a.cpp:1:', 'its second line', '1 passed, 1 failed, 1 skipped'])

    def test_count_a_program_that_died_as_a_failure_and_name_its_test(self):
        code, lines = self.run_all({'One': ['Works', 'Dies'], 'Process': ['Works']})
        self.assertEqual(code, 1)
        self.assertEqual(lines[-2:], ['failed: the test program ended with 7 before it counted its tests; its last test was One.Dies',
                                      '1 passed, 1 failed, 0 skipped'])

    def test_are_one_where_the_caller_has_a_filter(self):
        code, lines = self.run_all({'One': ['Works'], 'Two': ['Works']}, '--gtest_filter=Two.*')
        self.assertEqual((code, lines[-1], self.ran), (0, '1 passed, 0 failed, 0 skipped', ['Two.Works']))


if __name__ == '__main__':
    unittest.main()
