#!/usr/bin/env python3
"""Tests jobs in network namespaces, with a script in the place of ip: none of this needs root."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from launch_test import Case
from machinefile import UsageError
from namespaces import Bridge, Namespaces
from plot_runs import use_python_with_matplotlib

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / 'examples/cluster'))
import chaos  # noqa: E402

# Notes its words. A command for a namespace runs here, and finds the name in its environment.
# What holds the words of the file "refused" fails.
IP = r'''#!/bin/sh
echo "$*" >> FOLDER/ip.log
if [ -e FOLDER/refused ]; then
  case "$*" in *"$(cat FOLDER/refused)"*) echo "Operation not permitted" >&2; exit 1;; esac
fi
[ "$1 $2" = "netns exec" ] || exit 0
export SPACE="$3"
shift 3
exec "$@"
'''


class NamespacesTest(Case):
    def setUp(self):
        super().setUp()
        program = self.folder / 'programs/ip'
        program.parent.mkdir()
        program.write_text(IP.replace('FOLDER', str(self.folder)))
        program.chmod(0o755)
        self.environment['PATH'] = f'{program.parent}:{os.environ["PATH"]}'
        patched = mock.patch.dict(os.environ, PATH=self.environment['PATH'])
        patched.start()
        self.addCleanup(patched.stop)

    def calls(self, words):
        log = (self.folder / 'ip.log').read_text().splitlines()
        return [line.split()[-1] for line in log if line.startswith(words)]

    def test_the_launcher_starts_each_process_in_the_namespace_of_its_address(self):
        self.trainer.write_text(f'#!/bin/sh\necho "$SPACE" > {self.folder}/space.${{*##*--client_id=}}\n')
        spaces = Namespaces('ours', 3)
        self.environment['PATH'] = f'{spaces.write_ssh(self.folder)}:{self.environment["PATH"]}'
        machines = spaces.write_machinefile(self.folder)
        options = (f'--machinefile={machines}', '--ssh_port=22', '--ssh_args=-o A=B')
        code, said = self.end(self.start(options=options))
        self.assertEqual(code, 0, said)
        for k in range(3):
            self.assertEqual((self.folder / f'space.{k}').read_text(), f'ours{os.getpid()}-{k}\n')
            self.assertEqual(spaces.starter(k)[-1], f'ours{os.getpid()}-{k}')

    def test_a_bridge_connects_and_cuts_machines_and_leaves_no_namespace(self):
        with Bridge('ours', 2) as bridge:
            hub = bridge.hub
            bridge.set_link(1, 'down')
            self.assertEqual(self.calls('netns del'), [])
        self.assertEqual(self.calls(f'-n {hub} link set port0'), ['bridge0', 'up'])
        self.assertEqual(self.calls(f'-n {hub} link set port1'), ['bridge0', 'up', 'down'])
        self.assertEqual(len(self.calls('netns add')), 3)
        self.assertEqual(self.calls('netns add'), self.calls('netns del'))

    def test_what_was_made_before_a_refusal_is_removed(self):
        (self.folder / 'refused').write_text('addr add 10.78.0.2')
        with self.assertRaisesRegex(UsageError, r'ip -n \S+-1 addr add .*: Operation not perm'):
            Bridge('ours', 3).__enter__()
        self.assertEqual(len(self.calls('netns del')), 3)
        self.assertEqual(self.calls('netns add'), self.calls('netns del'))

    def test_chaos_says_what_it_lacks_before_it_starts_a_job(self):
        (self.folder / 'refused').write_text('netns add')
        done = subprocess.run([sys.executable, ROOT / 'examples/cluster/chaos.py', '--tools=none',
                               f'--out={self.folder}', '--source=none', '--cut=1', '--', 'false'],
                              env=self.environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r'^chaos\.py: network namespaces, which need root and the '
                         r'program ip, cannot be had: ip netns add .*: Operation not permitted\n$')
        self.assertFalse((self.folder / 'console').exists())


class FaultsTest(unittest.TestCase):
    def kinds(self, stop, cut, left=100.0):
        return ' '.join(chaos.kind_of(number, stop, cut, left) for number in range(5))

    def test_the_kinds_come_in_turn(self):
        self.assertEqual(self.kinds(0, 0), 'kill kill kill kill kill')
        self.assertEqual(self.kinds(1, 0), 'kill stop kill stop kill')
        self.assertEqual(self.kinds(0, 1), 'kill cut kill cut kill')
        self.assertEqual(self.kinds(1, 1), 'kill stop cut kill stop')

    def test_what_would_not_be_over_in_time_is_a_kill(self):
        self.assertEqual(self.kinds(1, 1, 38), 'kill stop cut kill stop')
        self.assertEqual(self.kinds(1, 1, 37.9), 'kill kill cut kill kill')
        self.assertEqual(self.kinds(1, 1, 18), 'kill kill cut kill kill')
        self.assertEqual(self.kinds(1, 1, 17.9), 'kill kill kill kill kill')

    def test_a_cut_process_is_lost_and_has_to_come_back(self):
        for kind, lost, back, wrong in (('cut', 12.0, 20.3, False), ('cut', 12.0, None, True),
                                        ('cut', None, 20.3, True), ('stop', 12.0, None, False),
                                        ('kill', 12.0, None, True), ('kill', 10.1, 12.0, False)):
            fault = chaos.Fault(10.0, kind, 2, 2)
            fault.lost, fault.back = lost, back
            self.assertEqual(fault.went_wrong(), wrong, (kind, lost, back))

    def test_the_pause_of_a_process_that_was_hit_is_not_the_others(self):
        stopped, other = [1.0, 9.9, 40.0, 40.1], [2.0, 9.0, 9.5, 12.0, 13.0, 41.0]
        iterations = {3: stopped, 4: other}
        self.assertEqual(chaos.longest_gap(iterations, 10.0, 12.2, {3: 10.0}), 2.5)
        self.assertEqual(chaos.longest_gap(iterations, 10.0, 12.2, {3: 20.0}), 40.0 - 9.9)
        self.assertEqual(chaos.longest_gap(iterations, 2.5, 9.2, {3: 10.0}), 9.9 - 1.0)

    def test_iterations_are_by_the_rank_of_the_process(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / 'metrics.10.jsonl'
            path.write_text('{"kind":"clock","time":1.5}\n{"kind":"clock","time":2}\n{"kind":')
            os.utime(path, (102.0, 102.0))
            self.assertEqual(chaos.read_iterations(folder), {10: [101.5, 102.0]})


if __name__ == '__main__':
    use_python_with_matplotlib()
    unittest.main()
