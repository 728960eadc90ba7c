#!/usr/bin/env python3
"""Tests the shell scripts: each can be parsed and run, and says in words which data it lacks."""
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def shell_scripts():
    return sorted(path for folder in ('data', 'examples', 'scripts')
                  for path in (ROOT / folder).rglob('*.sh'))


def run(script, *args, **variables):
    """The exit code of a script of the repository, and all that it said."""
    done = subprocess.run([ROOT / script, *args], env={**os.environ, **variables}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    return done.returncode, done.stdout


class EveryScript(unittest.TestCase):
    def test_is_bash_and_can_be_started(self):
        self.assertGreater(len(shell_scripts()), 10)
        for path in shell_scripts():
            with self.subTest(path.relative_to(ROOT)):
                self.assertEqual(path.read_text().split('\n', 1)[0], '#!/usr/bin/env bash')
                self.assertTrue(os.access(path, os.X_OK), 'not executable')
                parsed = subprocess.run(['bash', '-n', path], capture_output=True, text=True)
                self.assertEqual((parsed.returncode, parsed.stderr), (0, ''))


if __name__ == '__main__':
    unittest.main()
