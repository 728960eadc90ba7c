#!/usr/bin/env python3
"""Tests of launch.py and stop.py, with a shell script in the trainer's place: on this machine, and over a private sshd with keys that
are thrown away (skipped where there is no sshd, or it may not be run)."""
import ast
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
LAUNCH, STOP = str(SCRIPTS / 'launch.py'), str(SCRIPTS / 'stop.py')
sys.path.insert(0, str(SCRIPTS))
from machinefile import UsageError, machinefile_text, read_machinefile  # noqa: E402

# Writes its rank, process number and token to a file, and does what the words before the launcher's say.
TRAINER = r'''#!/bin/sh
echo "rank $* starts" >&2
rank=${*##*--client_id=}
cp "$(echo "$*" | sed 's/.*--machinefile=\([^ ]*\).*/\1/')" "OUT/machines.$rank"
case "$1" in stubborn) trap '' INT TERM;; *) trap 'echo "rank $rank interrupted" >&2; exit 0' INT; trap 'echo "rank $rank saves" >&2; exit 75' USR1 TERM;; esac
echo "$$ $SHOAL_JOB_TOKEN" > "OUT/new.$rank" && mv "OUT/new.$rank" "OUT/pid.$rank"
case "$1 $rank" in
  "fail 1") echo "the disk is on fire" >&2; exit 4;;
  "fail "*) while [ ! -e OUT/never ]; do sleep 0.05; done;;
  "end "*) exit 0;;
esac
i=0; while [ $i -lt 600 ]; do sleep 0.05; i=$((i + 1)); done
'''


def wait_until(what, seconds=20):
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until:
            raise AssertionError('waited in vain')
        time.sleep(0.02)


def alive(pid):
    try:
        return Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[0] != 'Z'
    except OSError:
        return False


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix='launch_test_'))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.trainer = self.folder / 'trainer'
        self.trainer.write_text(TRAINER.replace('OUT', str(self.folder)))
        self.trainer.chmod(0o755)
        self.environment = {**os.environ, 'SHOAL_JOBS': str(self.folder / 'jobs'), 'SHOAL_JOB_TOKEN': 'the-token'}

    def start(self, *words, command=('wait',), options=('--local=2',)):
        line = [sys.executable, LAUNCH, *options, f'--log_dir={self.folder}/logs', *words, '--', str(self.trainer), *command]
        launcher = subprocess.Popen(line, env=self.environment, stderr=subprocess.PIPE, text=True, cwd=self.folder)
        self.addCleanup(launcher.stderr.close)
        return launcher

    def end(self, launcher):
        said = launcher.communicate(timeout=60)[1]
        return launcher.returncode, said

    def pids(self, ranks=2):
        files = [self.folder / f'pid.{rank}' for rank in range(ranks)]
        wait_until(lambda: all(map(Path.exists, files)))
        return [int(f.read_text().split()[0]) for f in files]

    def stop(self, *words):
        return subprocess.run([sys.executable, STOP, *words], env=self.environment, capture_output=True, text=True, timeout=60)


class LocalTest(Case):
    def test_every_process_gets_rank_machines_and_token_and_the_end_is_zero(self):
        code, said = self.end(self.start(command=('end',), options=('--local=3',)))
        self.assertEqual(code, 0, said)
        for rank in range(3):
            self.assertIn(f'[{rank}@127.0.0.1] rank end --machinefile=', said)
            self.assertEqual((self.folder / f'pid.{rank}').read_text().split()[1], 'the-token')
            self.assertEqual(len(read_machinefile((self.folder / f'machines.{rank}').read_text(), 'm')), 3)
            self.assertEqual(len(list(self.folder.glob(f'logs/*/rank.{rank:04d}.err'))), 1)
        self.assertNotIn('the-token', said)
        self.assertEqual(list((self.folder / 'jobs').glob('*')), [])

    def test_the_first_failure_is_named_with_its_last_words_and_returned(self):
        code, said = self.end(self.start('--settle=4', command=('fail',), options=('--local=3',)))
        self.assertEqual(code, 4, said)
        self.assertRegex(said, r'the first to fail was 1@127\.0\.0\.1, with code 4')
        self.assertRegex(said, r'\n    the disk is on fire')
        self.assertFalse(any(map(alive, self.pids(3))))

    def test_a_process_that_hears_nothing_is_killed(self):
        launcher = self.start('--settle=1', command=('stubborn',))
        pids = self.pids()
        os.kill(pids[1], signal.SIGKILL)
        code, said = self.end(launcher)
        self.assertEqual(code, 137, said)
        self.assertFalse(any(map(alive, pids)))

    def test_ctrl_c_interrupts_all_and_a_second_kills(self):
        launcher = self.start()
        pids = self.pids()
        launcher.send_signal(signal.SIGINT)
        code, said = self.end(launcher)
        self.assertEqual(code, 0, said)
        self.assertIn('rank 1 interrupted', said)
        for rank in range(2):
            (self.folder / f'pid.{rank}').unlink()
        launcher = self.start(command=('stubborn',))
        pids = self.pids()
        launcher.send_signal(signal.SIGINT)
        wait_until(lambda: 'interrupted' in launcher.stderr.readline())
        launcher.send_signal(signal.SIGINT)
        self.assertEqual(self.end(launcher)[0], 137)
        self.assertFalse(any(map(alive, pids)))

    def test_ctrl_c_can_mean_a_snapshot(self):
        launcher = self.start('--interrupt=snapshot')
        self.pids()
        launcher.send_signal(signal.SIGINT)
        code, said = self.end(launcher)
        self.assertEqual(code, 75, said)
        self.assertIn('rank 0 saves', said)
        self.assertIn('--snapshot=auto goes on', said)

    def test_a_rank_that_leaves_is_no_failure(self):
        launcher = self.start('--job=smaller')
        pids = self.pids()
        stopped = subprocess.run([sys.executable, STOP, '--job=smaller', '--rank=1'], capture_output=True, text=True, env=self.environment)
        self.assertEqual(stopped.returncode, 0, stopped.stderr)
        self.assertIn('1@127.0.0.1: stopped', stopped.stdout)
        self.assertNotIn('0@', stopped.stdout)
        wait_until(lambda: not alive(pids[1]))
        self.assertTrue(alive(pids[0]))
        launcher.send_signal(signal.SIGINT)
        code, said = self.end(launcher)
        self.assertEqual(code, 0, said)
        self.assertIn('1@127.0.0.1 has ended with code 75: it left the job', said)

    def test_a_killed_launcher_leaves_nothing_behind(self):
        launcher = self.start('--grace=1', command=('stubborn',))
        pids = self.pids()
        launcher.kill()
        launcher.communicate()
        wait_until(lambda: not any(map(alive, pids)))

    def test_two_jobs_do_not_disturb_each_other(self):
        other = subprocess.Popen([str(self.trainer), 'wait', f'--machinefile={LAUNCH}', '--client_id=9'], stderr=subprocess.DEVNULL)
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        launcher = self.start()
        self.pids()
        launcher.send_signal(signal.SIGTERM)
        self.end(launcher)
        self.assertIsNone(other.poll())

    def test_bad_words_end_with_two(self):
        for words, expected in ((['--local=2'], 'the command to run is missing'),
                                (['--', 'x'], 'one of --machinefile=FILE and --local=N'),
                                (['--local=0', '--', 'x'], '--local=0'),
                                (['--machinefile=/nowhere', '--', 'x'], '/nowhere: No such file')):
            done = subprocess.run([sys.executable, LAUNCH, *words], capture_output=True, text=True, env=self.environment)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(expected, done.stderr)


class StopTest(Case):
    def leave_behind(self):
        """A job whose launcher and agents were killed with nobody to tell the trainers."""
        launcher = self.start('--job=lost')
        pids = self.pids()
        agents = {int(Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[1]) for pid in pids}
        wait_until(lambda: len(list((self.folder / 'jobs' / 'lost').glob('*.pid'))) == 2)
        launcher.send_signal(signal.SIGSTOP)
        listeners = [p for p in map(int, filter(str.isdigit, os.listdir('/proc'))) if parent(p) in agents and p not in pids]
        for pid in [*agents, *listeners]:
            os.kill(pid, signal.SIGKILL)
        launcher.kill()
        launcher.communicate()
        return pids

    def test_lists_and_stops_what_was_left(self):
        pids = self.leave_behind()
        self.assertTrue(all(map(alive, pids)))
        listed = self.stop()
        self.assertIn(f'0@127.0.0.1: running {pids[0]}', listed.stdout)
        stopped = self.stop('--job=lost')
        self.assertEqual(stopped.returncode, 0, stopped.stderr)
        self.assertEqual(stopped.stdout.count('stopped'), 2, stopped.stdout)
        self.assertFalse(any(map(alive, pids)))
        self.assertEqual(list((self.folder / 'jobs').rglob('*.*')), [])

    def test_another_process_with_the_number_of_ours_is_left_alone(self):
        pids = self.leave_behind()
        for rank, pid in enumerate(pids):
            (self.folder / 'jobs' / 'lost' / f'{rank}.pid').write_text(f'{pid} 12345\n')
        self.assertEqual(self.stop('--job=lost').stdout.count('gone'), 2)
        self.assertTrue(all(map(alive, pids)))
        for pid in pids:
            os.killpg(pid, signal.SIGKILL)

    def test_unknown_jobs_end_with_two(self):
        done = self.stop('--job=other')
        self.assertEqual(done.returncode, 2)
        self.assertIn('no job other is known', done.stderr)


def parent(pid):
    try:
        return int(Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[1])
    except OSError:
        return None


class SshTest(Case):
    def setUp(self):
        super().setUp()
        sshd = shutil.which('sshd', path=os.environ['PATH'] + ':/usr/sbin:/sbin')
        if not sshd or not shutil.which('ssh-keygen'):
            self.skipTest('no sshd or ssh-keygen here')
        for key in ('host', 'user'):
            subprocess.run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', str(self.folder / key)], check=True)
        with socket.socket() as s:
            s.bind(('127.0.0.1', 0))
            self.port = s.getsockname()[1]
        (self.folder / 'sshd_config').write_text(
            f'Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.folder}/host\nAuthorizedKeysFile {self.folder}/user.pub\n'
            f'PasswordAuthentication no\nUsePAM no\nStrictModes no\nPidFile none\nPermitRootLogin yes\nAcceptEnv SHOAL_JOBS\n')
        if os.geteuid() == 0:
            os.makedirs('/run/sshd', exist_ok=True)
        self.sshd = subprocess.Popen([sshd, '-D', '-e', '-f', str(self.folder / 'sshd_config')], stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.sshd.wait)
        self.addCleanup(self.sshd.stderr.close)
        self.addCleanup(self.sshd.terminate)
        for line in self.sshd.stderr:
            if 'listening' in line:
                break
        else:
            self.skipTest('sshd does not run here')
        self.machinefile = self.folder / 'machines'
        self.machinefile.write_text('0 127.0.0.1 39601\n1 127.0.0.1 39602\n')
        self.flags = (f'--machinefile={self.machinefile}', '--force_ssh', f'--ssh_port={self.port}', f'--ssh_identity={self.folder}/user',
                      f'--ssh_args=-o UserKnownHostsFile={self.folder}/known -o StrictHostKeyChecking=accept-new -o SendEnv=SHOAL_JOBS')

    def test_a_job_over_ssh_runs_and_ends(self):
        code, said = self.end(self.start(command=('end',), options=self.flags))
        self.assertEqual(code, 0, said)
        self.assertEqual((self.folder / 'pid.1').read_text().split()[1], 'the-token')

    def test_the_token_is_on_no_command_line(self):
        launcher = self.start(options=self.flags)
        self.pids()
        lines = b' '.join(Path(f'/proc/{p}/cmdline').read_bytes() for p in os.listdir('/proc') if p.isdigit() and alive(p))
        self.assertIn(b'trainer', lines)
        self.assertNotIn(b'the-token', lines)
        launcher.send_signal(signal.SIGINT)
        self.assertEqual(self.end(launcher)[0], 0)

    def test_a_failure_over_ssh_is_returned_and_all_are_stopped(self):
        code, said = self.end(self.start('--settle=4', command=('fail',), options=self.flags))
        self.assertEqual(code, 4, said)
        self.assertFalse(any(map(alive, self.pids())))

    def test_a_killed_launcher_stops_the_other_end_too(self):
        launcher = self.start('--grace=1', command=('stubborn',), options=self.flags)
        pids = self.pids()
        for p in filter(str.isdigit, os.listdir('/proc')):
            if parent(int(p)) == launcher.pid:
                os.kill(int(p), signal.SIGKILL)                # its ssh processes
        launcher.kill()
        launcher.communicate()
        wait_until(lambda: not any(map(alive, pids)))

    def test_check_tells_what_is_wrong(self):
        (self.folder / 'net.prototxt').write_text('layer { data_param { source: "digits" } }\n')
        (self.folder / 'solver.prototxt').write_text('net: "net.prototxt"\n')
        (self.folder / 'digits_0').write_text('x')
        line = [sys.executable, LAUNCH, 'check', *self.flags, '--', str(self.trainer), '--solver=solver.prototxt']
        done = subprocess.run(line, env=self.environment, capture_output=True, text=True, timeout=90, cwd=self.folder)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn('wrong: 1@127.0.0.1: digits_1 missing; cut the set up with', done.stdout)
        (self.folder / 'digits_1').write_text('x')
        done = subprocess.run(line, env=self.environment, capture_output=True, text=True, timeout=90, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn('all well on 2 processes', done.stdout)
        self.assertIn('2/2 open', done.stdout)

    def test_a_host_that_refuses_is_named(self):
        (self.folder / 'user').write_text((self.folder / 'host').read_text())
        line = [sys.executable, LAUNCH, 'check', *self.flags, '--', str(self.trainer)]
        done = subprocess.run(line, env=self.environment, capture_output=True, text=True, timeout=90, cwd=self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r'wrong: 0@127\.0\.0\.1: not reached: .*Permission denied')


class MachinefileTest(unittest.TestCase):
    def test_good_lines(self):
        for text, expected in (('0 a 1\n1 b 2\n', '0 a 1\n1 b 2\n'), ('1 b 2\n0 a 1 # x\n\n', '0 a 1\n1 b 2\n'),
                               ('a slots=2\nb\na\n', '0 a 29600\n1 a 29601\n2 b 29600\n3 a 29602\n'),
                               ('\ufeffa port=7 slots=2 role=server\r\n', '0 a 7 role=server\n1 a 8 role=server\n'),
                               ('[::1] port=5\n', '0 [::1] 5\n')):
            self.assertEqual(machinefile_text(read_machinefile(text, 'm')), expected)

    def test_bad_lines(self):
        """The trainer's: what it refuses, in its words."""
        cases = re.findall(r'^ *\{any, ("(?:[^"\\]|\\.)*"), ("(?:[^"\\]|\\.)*")\},$', (SCRIPTS.parent / 'tests/cluster_test.cpp').read_text(), re.M)
        self.assertGreater(len(cases), 30)
        for text, words in ((ast.literal_eval(text), ast.literal_eval(words)) for text, words in cases):
            with self.subTest(text), self.assertRaises(UsageError) as refused:
                read_machinefile(text, 'm')
            self.assertIn(words, str(refused.exception))
        with self.assertRaisesRegex(UsageError, r'\n\.\.\. and 4 more$'):
            read_machinefile('a x=1\n' * 14, 'm')


if __name__ == '__main__':
    unittest.main()
