#!/usr/bin/env python3
"""Tests of launch.py and stop.py, with a shell script in the trainer's place: on this machine, and over a private sshd with keys that
are thrown away (skipped where there is no sshd, or it may not be run)."""
import ast
import os
import queue
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
from unittest import mock

SCRIPTS = Path(__file__).resolve().parent
LAUNCH, STOP = str(SCRIPTS / 'launch.py'), str(SCRIPTS / 'stop.py')
sys.path.insert(0, str(SCRIPTS))
import launch  # noqa: E402
from launch import reserve_ports  # noqa: E402
from machinefile import UsageError, hosts_text, machinefile_text, read_machinefile  # noqa: E402

# Writes its rank, process number and token to a file, and does what the words before the launcher's say.
TRAINER = r'''#!/bin/sh
echo "rank $* starts" >&2
rank=${*##*--client_id=}
cp "$(echo "$*" | sed 's/.*--machinefile=\([^ ]*\).*/\1/')" "OUT/machines.$rank"
case "$1" in stubborn) trap '' INT TERM USR1;; unready) :;; deaf) trap 'exit 0' USR1;; *) trap 'echo "rank $rank interrupted" >&2; exit 0' INT; trap 'echo "rank $rank saves" >&2; exit 75' USR1 TERM;; esac
echo "$$ $SHOAL_JOB_TOKEN" > "OUT/new.$rank" && mv "OUT/new.$rank" "OUT/pid.$rank"
case "$1 $rank" in
  "fail 1") echo "the disk is on fire" >&2; exit 4;;
  "fail "*) while [ ! -e OUT/never ]; do sleep 0.05; done;;
  "end "*) exit 0;;
  "talk "*) i=0; while [ $i -lt 3000 ]; do echo "a line of a long log, number $i" >&2; i=$((i + 1)); done; exit 0;;
  "shoot "*) [ "$rank" = "$2" ] && { echo "$3" >&2; exit 9; }; sleep 0.5; exit 6;;
  "blame "*) [ "$rank" = "$2" ] && { sleep 0.5; echo "cannot write x" >&2; exit 9; }; echo "rank $2 (host h, last clock 3) has ended: cannot write x" >&2; exit 9;;
esac
i=0; while [ $i -lt 600 ]; do sleep 0.05; i=$((i + 1)); done
'''

# Ends with 75 when it is told to, as the trainer does, unless it is stubborn.
BY_HAND = '''import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN if 'stubborn' in sys.argv else lambda *_: os._exit(75))
print('ready', flush=True)
time.sleep(60)
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
        self.addCleanup(launcher.kill)
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

    def test_a_folder_that_an_ended_process_removes_is_made_again(self):
        wrapper = self.folder / 'bin' / 'mkdir'   # the folder is gone once between this and its first file
        wrapper.parent.mkdir()
        real, once = shutil.which('mkdir'), self.folder / 'once'
        wrapper.write_text(f'#!/bin/sh\n{real} "$@"\n[ -e {once} ] || {{ : > {once}; rmdir "$2"; }}\n')
        wrapper.chmod(0o755)
        self.environment['PATH'] = f'{wrapper.parent}:{os.environ["PATH"]}'
        code, said = self.end(self.start(command=('end',), options=('--local=1',)))
        self.assertEqual(code, 0, said)
        self.assertTrue(once.exists())

    def test_the_first_failure_is_named_with_its_last_words_and_returned(self):
        code, said = self.end(self.start('--settle=4', command=('fail',), options=('--local=3',)))
        self.assertEqual(code, 4, said)
        self.assertRegex(said, r'the first to fail was 1@127\.0\.0\.1, with code 4')
        self.assertRegex(said, r'\n    the disk is on fire')
        self.assertFalse(any(map(alive, self.pids(3))))

    def test_a_failure_ends_soon_and_says_what_goes_on(self):
        began = time.monotonic()
        code, said = self.end(self.start('--settle=50', command=('shoot', '1', 'Snapshotting solver state to binary proto file x')))
        self.assertEqual(code, 9, said)
        self.assertLess(time.monotonic() - began, 20, 'a timer of half of --settle=50 is not waited for')
        self.assertIn('the same command with --snapshot=auto goes on from the newest', said)

    def test_the_process_that_failed_by_itself_is_named(self):
        code, said = self.end(self.start(command=('blame', '0')))
        self.assertEqual(code, 9, said)
        self.assertRegex(said, r'the first to fail was 0@127\.0\.0\.1, with code 9')

    def test_the_users_umask_is_the_jobs(self):
        line = [sys.executable, LAUNCH, '--local=1', f'--log_dir={self.folder}/logs', '--', 'sh', '-c', 'umask']
        for mask in ('0022', '0077', '0002'):
            said = subprocess.run(['sh', '-c', f'umask {mask}; exec "$@"', 'sh', *line], env=self.environment, stderr=subprocess.PIPE,
                                  text=True, cwd=self.folder).stderr
            self.assertIn(f'[0@127.0.0.1] {mask}\n', said)

    def test_sigterm_asks_for_a_snapshot_and_is_no_success(self):
        for way, code, words in (('wait', 75, 'stopped after a snapshot'), ('deaf', 128 + signal.SIGTERM, 'sending SIGUSR1')):
            launcher = self.start(command=(way,))
            self.pids()
            launcher.send_signal(signal.SIGTERM)
            ended, said = self.end(launcher)
            self.assertEqual(ended, code, said)
            self.assertIn(words, said)
            for rank in range(2):
                (self.folder / f'pid.{rank}').unlink()

    def test_trainers_that_are_not_ready_for_a_signal_are_no_failure(self):
        for number, options in ((signal.SIGTERM, ()), (signal.SIGINT, ('--interrupt=snapshot',))):
            launcher = self.start(*options, command=('unready',))
            self.pids()
            launcher.send_signal(number)
            code, said = self.end(launcher)
            self.assertEqual(code, 128 + number, said)
            self.assertNotIn('the first to fail', said)
            for rank in range(2):
                (self.folder / f'pid.{rank}').unlink()

    def test_what_does_not_end_after_an_interrupt_is_killed(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            launcher = self.start('--grace=1', command=('stubborn',))
            pids = self.pids()
            launcher.send_signal(number)
            code, said = self.end(launcher)
            self.assertEqual(code, 137, said)
            self.assertIn('those that still run in 1 s (--grace) are killed', said)
            self.assertIn('not all have ended; killing the rest', said)
            self.assertFalse(any(map(alive, pids)))
            for rank in range(2):
                (self.folder / f'pid.{rank}').unlink()

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

    def test_a_token_of_several_lines_is_refused(self):
        self.environment['SHOAL_JOB_TOKEN'] = 'two\nlines'
        code, said = self.end(self.start(command=('end',)))
        self.assertEqual(code, 2, said)
        self.assertIn('SHOAL_JOB_TOKEN has several lines; a token is one', said)

    def test_what_each_process_ended_with_is_looked_at(self):
        """Also of one that ends while the end of another is being told."""
        job = launch.Job.__new__(launch.Job)
        job.args, job.events, job.interrupts, job.handled, job.failed, job.kill_at = mock.Mock(settle=1000), queue.SimpleQueue(), 0, 0, [], None
        job.losses = launch.Losses(job)
        job.show = job.signal_all = lambda *_: None
        job.ranks = [mock.Mock(code=code, ended=False) for code in (75, 6, 9)]
        for rank in job.ranks:
            job.events.put(rank)
        job.supervise()
        job.timer.cancel()
        self.assertEqual([rank.code for rank in job.failed], [9, 6])  # another might have said that the job goes on
        self.assertEqual(job.events.qsize(), 0)

    def test_a_log_that_the_disk_does_not_take_holds_nothing_up(self):
        line = [sys.executable, LAUNCH, '--local=1', f'--log_dir={self.folder}/logs', '--', str(self.trainer), 'talk']
        done = subprocess.run(['sh', '-c', 'ulimit -f 64; exec "$@"', 'sh', *line], env=self.environment, stderr=subprocess.PIPE, text=True,
                              cwd=self.folder, timeout=60)
        self.assertEqual(done.returncode, 9, done.stderr[-2000:])
        self.assertRegex(done.stderr, r'launch: .*/rank\.0000\.err: File too large; the rest of this log is on the console alone')
        self.assertIn('number 2999\n', done.stderr)

    def test_a_console_that_nothing_reads_holds_nothing_up(self):
        launcher = self.start(command=('talk',), options=('--local=1',))
        launcher.stderr.readline()
        launcher.stderr.close()
        self.assertEqual(launcher.wait(60), 0)
        self.assertIn('number 2999\n', next(self.folder.glob('logs/*/rank.0000.err')).read_text())

    def test_a_name_is_of_one_job_at_a_time(self):
        launcher = self.start('--job=ours')
        self.pids()
        code, said = self.end(self.start('--job=ours'))
        self.assertEqual(code, 2, said)
        self.assertIn('--job=ours: a job of this name runs already', said)
        launcher.kill()
        launcher.wait()
        self.assertTrue((self.folder / 'jobs/ours.json').exists())   # of a launcher that is gone
        self.assertEqual(self.end(self.start('--job=ours', command=('end',)))[0], 0)
        for name in ('../ours', '-ours', '.ours', 'o urs'):
            code, said = self.end(self.start(f'--job={name}'))
            self.assertEqual(code, 2, said)
            self.assertIn(f'--job={name}: a name has letters', said)

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
                                (['--local=70000', '--', 'x'], '--local=70000: at most 65535 processes'),
                                (['-n', '65535', '-s', '1', '--', 'x'], '-n 65535 -s 1: at most 65535 processes'),
                                (['--machinefile=/nowhere', '--', 'x'], '/nowhere: No such file')):
            done = subprocess.run([sys.executable, LAUNCH, *words], capture_output=True, text=True, env=self.environment)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(expected, done.stderr)


class DmlcTest(Case):
    """-n workers, -s servers, -H a file of addresses."""

    def test_workers_then_servers_on_the_addresses_in_turn(self):
        hosts = self.folder / 'hosts'
        hosts.write_text('127.0.0.1\nlocalhost\n[::1]\n')
        code, said = self.end(self.start(command=('end',), options=('-n', '3', '-s', '2', '-H', str(hosts))))
        self.assertEqual(code, 0, said)
        self.assertEqual((self.folder / 'machines.4').read_text(), '0 127.0.0.1 29600 role=worker\n1 localhost 29601 role=worker\n'
                         '2 [::1] 29602 role=worker\n3 127.0.0.1 29603 role=server\n4 localhost 29604 role=server\n')   # one machine

    def test_without_servers_or_hosts_or_dashes(self):
        line = [sys.executable, LAUNCH, '-n', '2', f'--log_dir={self.folder}/logs', str(self.trainer), 'end']
        done = subprocess.run(line, env=self.environment, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex((self.folder / 'machines.1').read_text(), r'^0 127\.0\.0\.1 \d+\n1 127\.0\.0\.1 \d+\n$')

    def test_lines_of_hosts(self):
        self.assertEqual(hosts_text('# ours\na:2222\nb user=me\n\n', 'h', 3, 0), 'a ssh_port=2222\nb user=me\na ssh_port=2222\n')
        for text, words in (('', 'h: names no machine'), ('a\n0 b 29600\n', 'h:2: a line of a hosts file is an address'),
                            ('a slots=2\n', "h:1: 'slots=' has no meaning with -n and -s"), ('a!\n', "h:1: 'a!' is neither")):
            with self.subTest(text), self.assertRaises(UsageError) as refused:
                hosts_text(text, 'h', 1, 1)
            self.assertIn(words, str(refused.exception))

    def test_what_does_not_go_together_ends_with_two(self):
        for words, expected in ((['-n', '0'], '-n 0: at least 1'), (['-n', '2', '-s', '-1'], 'from 0 servers up'),
                                (['--local=2', '-s', '1'], '-s and -H go with -n'), (['-n', '2', '--local=2'], 'one of --machinefile=FILE'),
                                (['-n', '2', '-H', '/nowhere'], '-H: /nowhere: No such file')):
            done = subprocess.run([sys.executable, LAUNCH, *words, '--', 'x'], capture_output=True, text=True, env=self.environment)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(expected, done.stderr)


# What stands in for ssh, rsync and scp: the other host is this one, which FOLDER/hosts.log is told of.
FAKE_SSH = r'''#!/bin/sh
while [ $# -gt 2 ]; do shift; done
echo "ssh $1" >> FOLDER/hosts.log
exec sh -c "$2"
'''
FAKE_COPY = r'''#!/bin/sh
echo "${0##*/} $*" >> FOLDER/hosts.log
case "$*" in *broken:*) echo "no space left" >&2; exit 23;; esac
while [ "$1" != -- ]; do shift; done; shift
for target; do :; done; target=${target#*:}
again() { "$@" || "$@"; }   # two hosts' copies may make the same folder at once
while [ $# -gt 1 ]; do again cp -r PARENTS "$1" "$target" || exit; shift; done
'''


class CheckTest(Case):
    def check(self, *words):
        line = [sys.executable, LAUNCH, 'check', '--local=2', '--', str(self.trainer), *words]
        return subprocess.run(line, env=self.environment, capture_output=True, text=True, timeout=90, cwd=self.folder)

    def test_prototxts_are_found_however_they_are_written(self):
        (self.folder / 'net.prototxt').write_bytes('name: "Größe"\nlayer { data_param { source: \'digits\' } }\n'.encode('latin-1'))
        (self.folder / 'solver.prototxt').write_text("net: 'net.prototxt'\n")
        for words in (['--solver=solver.prototxt'], ['-solver', 'solver.prototxt'], ['--model', 'net.prototxt', '--threads=1']):
            done = self.check(*words)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn('wrong: 1@127.0.0.1: digits_1 missing', done.stdout)
        done = self.check('--model=net.prototxt', '--gpu', '77')
        self.assertIn('1@127.0.0.1: GPU 77 is asked for', done.stdout)


class DeafHostTest(Case):
    """A host behind an ssh that neither ends nor hears anything."""

    def start_there(self, *command):
        ssh = self.folder / 'bin/ssh'
        ssh.parent.mkdir()
        ssh.write_text(f'#!/bin/sh\necho $$ > {self.folder}/ssh.pid\nexec sleep 600\n')
        ssh.chmod(0o755)
        self.environment['PATH'] = f'{ssh.parent}:{os.environ["PATH"]}'
        (self.folder / 'machines').write_text('0 127.0.0.1 29600\n1 deaf.invalid 29600\n')
        launcher = self.start('--job=deaf', '--settle=1', '--grace=1', command=command, options=('--machinefile=machines',))
        wait_until((self.folder / 'ssh.pid').exists)
        return launcher

    def check_left(self, said):
        self.assertIn('1@deaf.invalid does not end; scripts/stop.py --job=deaf tries again', said)
        self.assertTrue((self.folder / 'jobs/deaf.json').exists())   # for stop.py
        wait_until(lambda: not alive(int((self.folder / 'ssh.pid').read_text())))

    def test_it_does_not_hold_up_a_job_that_failed(self):
        code, said = self.end(self.start_there('shoot', '0', 'a deadline passed'))
        self.assertEqual(code, 9, said)
        self.assertEqual(said.count('not all have ended; killing the rest'), 1)
        self.check_left(said)

    def test_ctrl_c_twice_gives_it_up(self):
        launcher = self.start_there('wait')
        self.pids(1)
        launcher.send_signal(signal.SIGINT)
        wait_until(lambda: 'interrupted' in launcher.stderr.readline())
        launcher.send_signal(signal.SIGINT)
        code, said = self.end(launcher)
        self.assertEqual(code, 137, said)
        self.check_left(said)


class SyncTest(Case):
    def setUp(self):
        super().setUp()
        self.bin = self.folder / 'bin'
        self.bin.mkdir()
        for name in ('sh', 'cat', 'cp', 'cut', 'env', 'mkdir', 'mv', 'rm', 'rmdir', 'sed', 'seq', 'setsid', 'sleep'):
            (self.bin / name).symlink_to(shutil.which(name))
        self.fake('ssh', FAKE_SSH)
        self.fake('scp', FAKE_COPY.replace('PARENTS', ''))
        self.environment['PATH'] = str(self.bin)
        for path in ('net.prototxt', 'models/solver.prototxt', 'models/inner/x'):
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(path)
        self.machinefile = self.folder / 'machines'
        self.there = self.folder / 'there'
        self.log = self.folder / 'hosts.log'

    def fake(self, name, text):
        (self.bin / name).write_text(text.replace('FOLDER', str(self.folder)))
        (self.bin / name).chmod(0o755)

    def go(self, machines, *words):
        self.machinefile.write_text(machines)
        return self.end(self.start(f'--machinefile={self.machinefile}', f'--remote_dir={self.there}', *words, command=('end',), options=()))

    def copies(self, program):
        return [line for line in self.log.read_text().splitlines() if line.startswith(program + ' ')]

    def test_rsync_takes_paths_to_each_other_host_once(self):
        self.fake('rsync', FAKE_COPY.replace('PARENTS', '--parents'))
        code, said = self.go('127.0.0.1\nhosta user=me ssh_port=2222 slots=2\nhostb\n', '--sync=net.prototxt,models')
        self.assertEqual(code, 0, said)
        self.assertEqual(len(self.copies('rsync')), 2)
        copied = next(line for line in self.copies('rsync') if 'hosta' in line)
        self.assertIn(' -p 2222 -- ', copied)
        self.assertTrue(copied.endswith(f' -- net.prototxt models me@hosta:{self.there}/'), copied)
        self.assertIn(f'launch: 2 paths copied to hostb:{self.there} with rsync', said)
        for path in ('net.prototxt', 'models/solver.prototxt', 'models/inner/x'):
            self.assertEqual((self.there / path).read_text(), path)
        self.assertEqual(len(list(self.folder.glob('pid.*'))), 4)
        self.assertEqual(list(self.folder.rglob('.shoal-sync*')), [])

    def test_scp_where_there_is_no_rsync(self):
        code, said = self.go('hosta\n', '--sync=net.prototxt,models/solver.prototxt,models/inner')
        self.assertEqual(code, 0, said)
        self.assertIn('with scp', said)
        for path in ('net.prototxt', 'models/solver.prototxt', 'models/inner/x'):
            self.assertEqual((self.there / path).read_text(), path)

    def test_a_failure_names_host_and_command_and_nothing_starts(self):
        self.fake('rsync', FAKE_COPY.replace('PARENTS', '--parents'))
        code, said = self.go('hosta\nbroken\n', '--sync=net.prototxt')
        self.assertEqual(code, 1, said)
        self.assertRegex(said, r'not copied to broken: rsync ended with code 23: no space left\n    rsync .* broken:')
        self.assertIn('nothing was started', said)
        self.assertEqual(list(self.folder.glob('pid.*')), [])

    def test_a_copy_that_hangs_is_ended(self):
        self.fake('rsync', '#!/bin/sh\nexec sleep 60\n')
        began = time.monotonic()
        code, said = self.go('hosta\n', '--sync=net.prototxt', '--sync_timeout=1')
        self.assertEqual(code, 1, said)
        self.assertLess(time.monotonic() - began, 30)
        self.assertRegex(said, r'not copied to hosta: rsync was not done after 1 s \(--sync_timeout\)')
        self.assertEqual(self.go('hosta\n', '--sync=net.prototxt', '--sync_timeout=0')[0], 2)

    def test_a_host_with_this_very_folder_is_left_alone(self):
        self.there = self.folder
        code, said = self.go('hosta\n', '--sync=.')
        self.assertEqual(code, 0, said)
        self.assertIn('hosta has this folder already', said)
        self.assertEqual(self.copies('scp'), [])

    def test_paths_that_are_not_there_or_not_below_end_with_two(self):
        for words, expected in (('nothing', 'there is no nothing here'), ('/bin/sh', '/bin/sh is not under'), ('..', '.. is not under'), ('', 'names nothing')):
            code, said = self.go('hosta\n', f'--sync={words}')
            self.assertEqual(code, 2, said)
            self.assertIn(expected, said)


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

    def by_hand(self, *words, name='train', **more):
        """A process that is called as the trainer is, and not started by any launcher."""
        process = subprocess.Popen([f'/opt/{name}', '-c', BY_HAND, *words], executable=sys.executable, cwd=self.folder, stdout=subprocess.PIPE,
                                   env={**self.environment, **more.get('env', {})}, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), 'ready\n')
        return process

    def test_a_machinefile_finds_what_no_launcher_started(self):
        machines = self.folder / 'machines'
        machines.write_text('127.0.0.1 port=39701 slots=3\n')
        (self.folder / 'copy').write_text('0 127.0.0.1 39701\n1 127.0.0.1 39702\n2 127.0.0.1 39703\n')
        (self.folder / 'other').write_text('0 127.0.0.1 39801\n')
        ours = [self.by_hand('--solver=s', '--machinefile=machines', '--client_id=0'),
                self.by_hand('-hostfile', str(self.folder / 'copy'), '--client_id=1'),
                self.by_hand('--join=127.0.0.1:39701'),
                self.by_hand('stubborn', env={'SHOAL_MACHINEFILE': 'machines'})]
        others = [self.by_hand('--machinefile=other'), self.by_hand('--machinefile=machines', name='editor'), self.by_hand('--solver=s')]
        looked = self.stop(f'--machinefile={machines}', '--look')
        self.assertEqual((looked.returncode, looked.stdout.count('running')), (0, 4), looked.stdout + looked.stderr)
        self.assertIn(f'127.0.0.1: running {ours[0].pid} /opt/train -c', looked.stdout)
        stopped = self.stop(f'--machinefile={machines}', '--grace=1')
        self.assertEqual(stopped.returncode, 0, stopped.stderr)
        for process, end in zip(ours, ('stopped', 'stopped', 'stopped', 'killed')):
            self.assertIn(f'127.0.0.1: {end} {process.pid}\n', stopped.stdout)
        self.assertEqual([p.wait(20) for p in ours], [75, 75, 75, -signal.SIGKILL])
        self.assertEqual([p.poll() for p in others], [None] * 3)
        self.assertIn('nothing of this job runs', self.stop(f'--machinefile={machines}').stdout)

    def test_a_record_that_was_cut_off_keeps_no_other_job_from_being_stopped(self):
        launcher = self.start('--job=whole')
        pids = self.pids()
        for name, text in (('a', '{"job": "a", '), ('b', '[]'), ('c', '{"job": "c"}')):
            (self.folder / f'jobs/{name}.json').write_text(text)
        done = self.stop('--all')
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stdout.count('stopped'), 2)
        self.assertIn('jobs/a.json: this record of a job is damaged; remove it', done.stderr)
        self.assertNotIn('Traceback', done.stderr)
        self.assertEqual(self.end(launcher)[0], 75)
        self.assertFalse(any(map(alive, pids)))

    def test_unknown_jobs_end_with_two(self):
        for words, expected in ((['--machinefile=/nowhere'], '/nowhere: No such file'), (['--look'], '--look goes with'),
                                (['--machinefile=m', '--all'], 'without --job and --all')):
            done = self.stop(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(expected, done.stderr)
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
            f'PasswordAuthentication no\nUsePAM no\nStrictModes no\nSubsystem sftp internal-sftp\nPidFile none\nPermitRootLogin yes\nAcceptEnv SHOAL_JOBS\n')
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
        self.machinefile.write_text('0 127.0.0.1 {}\n1 127.0.0.1 {}\n'.format(*reserve_ports(2)))
        self.flags = (f'--machinefile={self.machinefile}', '--force_ssh', f'--ssh_port={self.port}', f'--ssh_identity={self.folder}/user',
                      f'--ssh_args=-o UserKnownHostsFile={self.folder}/known -o StrictHostKeyChecking=accept-new -o SendEnv=SHOAL_JOBS '
                      '-o ConnectTimeout=60')

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

    def test_sync_over_ssh(self):
        (self.folder / 'models/inner').mkdir(parents=True)
        (self.folder / 'models/inner/net').write_text('net')
        code, said = self.end(self.start('--sync=models,trainer', f'--remote_dir={self.folder}/there', command=('end',), options=self.flags))
        self.assertEqual(code, 0, said)
        self.assertIn('2 paths copied to 127.0.0.1', said)
        self.assertEqual((self.folder / 'there/models/inner/net').read_text(), 'net')
        self.assertTrue(os.access(self.folder / 'there/trainer', os.X_OK))

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
        (self.folder / 'solver.prototxt').write_text('net: "net.prototxt"\ntrain_source: "other"\ntest_source: "more"\n')
        done = subprocess.run(line, env=self.environment, capture_output=True, text=True, timeout=90, cwd=self.folder)
        self.assertIn('wrong: 1@127.0.0.1: other_1, more_1 missing', done.stdout)
        (self.folder / 'solver.prototxt').write_text('net: "net.prototxt"\ntrain_source: "other"\nshared_file_system: true\n')
        done = subprocess.run([*line, '--train_source=net.prototxt', '--test_source=trainer'], env=self.environment, capture_output=True, text=True,
                              timeout=90, cwd=self.folder)
        self.assertIn('all well on 2 processes', done.stdout)
        done = subprocess.run([*line, '--gpu=77'], env=self.environment, capture_output=True, text=True, timeout=90, cwd=self.folder)
        self.assertRegex(done.stdout, r"wrong: 1@127.0.0.1: GPU 77 is asked for, and the machine has \d+ of NVIDIA's")

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
                               ('a slots=2 gpus=3,1\nb slots=2 gpus=0\n',
                                '0 a 29600 gpus=3\n1 a 29601 gpus=1\n2 b 29600 gpus=0\n3 b 29601 gpus=0\n'),
                               ('[::1] port=5\n', '0 [::1] 5\n')):
            self.assertEqual(machinefile_text(read_machinefile(text, 'm')), expected)

    def test_bad_lines(self):
        """The trainer's: what it refuses, in its words."""
        cases = re.findall(r'^ *\{any, ("(?:[^"\\]|\\.)*"), ("(?:[^"\\]|\\.)*")\},$', (SCRIPTS.parent / 'tests/parallel/machinefile_test.cpp').read_text(), re.M)
        self.assertGreater(len(cases), 30)
        for text, words in ((ast.literal_eval(text), ast.literal_eval(words)) for text, words in cases):
            with self.subTest(text), self.assertRaises(UsageError) as refused:
                read_machinefile(text, 'm')
            self.assertIn(words, str(refused.exception))
        with self.assertRaisesRegex(UsageError, r"ambiguous: write 'a ssh_port=2' or 'a slots=2' \(or 'port=' for the table service\)$"):
            read_machinefile('a:2', 'm')
        with self.assertRaisesRegex(UsageError, r'\n\.\.\. and 4 more$'):
            read_machinefile('a x=1\n' * 14, 'm')


if __name__ == '__main__':
    unittest.main()
