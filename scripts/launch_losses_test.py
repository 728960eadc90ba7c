#!/usr/bin/env python3
"""Tests what launch.py does with processes that a job loses, with a shell script in the trainer's
place whose words the tests write."""
import os
import re
import signal
import threading
import unittest
from types import SimpleNamespace

from launch_losses import Pause
from launch_rank import words_to_join
from launch_test import Case, alive, wait_until
from machinefile import read_machinefile

# Notes each start in starts.RANK. Each says what it finds in the file say.RANK, and ends with the code
# in the file end.RANK, or "end" for all, or with 6 once process 0 was killed: it leaves its number in
# the file "first" then. A process that joins ends at once with the code in the file "die"
# if there is one; otherwise it has joined.
TRAINER = r'''#!/bin/sh
how=founds rank=${*##*--client_id=}
case "$*" in *--join=*) how=joins rank=${*##*--data_part=}; rank=${rank%% *};; esac
trap 'echo interrupted >&2; exit 0' INT
trap 'exit 75' USR1 TERM
killed() {
  { first=$(cat OUT/first) && ! kill -0 "$first" && [ -e OUT/first ]; } 2>/dev/null
}
if [ "$rank" = 0 ]; then
  trap 'rm -f OUT/first' EXIT
  echo $$ > OUT/new.first; mv OUT/new.first OUT/first
else
  while [ ! -e OUT/first ] || killed; do sleep 0.05; done
fi
echo "$how $*" >> "OUT/starts.$rank"
starts=$(wc -l < "OUT/starts.$rank")
if [ $how = joins ]; then
  echo "I1 run_job.cpp:361] Process $((rank + 10 * starts)) of 30, as both; known from --join" >&2
  [ ! -e OUT/die ] || exit "$(cat OUT/die)"
  echo "W1 table_membership.cpp:152] Iteration 5: has joined the job, as worker 3 of 4" >&2
fi
echo $$ > "OUT/new.$rank" && mv "OUT/new.$rank" "OUT/pid.$rank"
i=0
while [ $i -lt 600 ]; do
  say=OUT/say.$rank
  [ ! -e "$say" ] || { mv "$say" "$say.said"; cat "$say.said" >&2; rm "$say.said"; }
  for file in "OUT/end.$rank" OUT/end; do [ ! -e "$file" ] || exit "$(cat "$file")"; done
  if [ "$rank" != 0 ] && killed; then exit 6; fi
  sleep 0.05; i=$((i + 1))
done
'''


def lost(known_as):
    return (f'W1 coordinator_host.cpp:99] lost rank {known_as} (host vm, last clock 678): The '
            'other end was killed. The job goes on without it.\n')


class LossCase(Case):
    def setUp(self):
        super().setUp()
        self.trainer.write_text(TRAINER.replace('OUT', str(self.folder)))
        self.said = []

    def put(self, name, text):
        (self.folder / 'put').write_text(text)
        (self.folder / 'put').rename(self.folder / name)

    def begin(self, *words, command=(), count=3):
        launcher = self.start('--job=lossy', *words, command=command, options=(f'--local={count}',))
        return launcher, self.pids(count)

    def starts(self, rank):
        path = self.folder / f'starts.{rank}'
        return path.read_text().splitlines() if path.exists() else []

    def read_until(self, launcher, words):
        """Reads what the launcher says up to a line with these words."""
        for line in launcher.stderr:
            self.said.append(line)
            if words in line:
                return line
        raise AssertionError(f'never said: {words}\n' + ''.join(self.said))

    def kill(self, pid, rank, known_as):
        (self.folder / f'pid.{rank}').unlink()
        os.kill(pid, signal.SIGKILL)
        self.put('say.0', lost(known_as))

    def check_end(self, launcher, code):
        # communicate() would lose the lines that read_until() has buffered
        watchdog = threading.Timer(60, launcher.kill)
        watchdog.start()
        self.said.extend(launcher.stderr)
        watchdog.cancel()
        said = ''.join(self.said)
        self.assertEqual(launcher.wait(timeout=60), code, said)
        return said

    def finish(self, launcher):
        self.put('end', '0')
        return self.check_end(launcher, 0)


class LossTest(LossCase):
    def test_a_job_that_goes_on_without_a_rank_is_no_failure(self):
        launcher, pids = self.begin()
        self.kill(pids[2], 2, 2)
        self.read_until(launcher, 'launch: [2@127.0.0.1] ended with code 137; the job goes on')
        self.assertTrue(alive(pids[0]) and alive(pids[1]))
        said = self.finish(launcher)
        self.assertRegex(said, r'launch: \[2@127\.0\.0\.1\] ended with code 137; '
                               r'the job goes on without it\n')
        self.assertRegex(said, r'\nlaunch: 2@127\.0\.0\.1 lost at \d\d:\d\d:\d\d '
                               r'\(ended with code 137\), did not come back\n')
        self.assertNotIn('stopping the others', said)
        self.assertEqual(len(self.starts(2)), 1)              # --restart is 0

    def test_a_rank_that_is_removed_first_and_ends_later(self):
        launcher, _ = self.begin()
        self.put('say.0', lost(2))
        self.read_until(launcher, 'lost rank 2')
        self.put('end.2', '6')
        self.read_until(launcher, '[2@127.0.0.1] ended with code 6; the job goes on without it')
        self.finish(launcher)

    def test_a_rank_that_was_removed_and_joins_anew_is_back(self):
        launcher, _ = self.begin('--grace=1')
        self.put('say.0', lost(2))
        self.read_until(launcher, 'lost rank 2')
        self.put('say.2', 'I1 run_job.cpp:1] Process 7 of 8, as both; known from --join\n'
                          'W1 table_membership.cpp:1] Iteration 5: has joined the job, as worker 2\n')
        self.read_until(launcher, 'has joined the job')
        self.put('say.0', lost(7))                            # the job knows it by another rank
        self.read_until(launcher, 'lost rank 7')
        self.put('end.2', '6')
        self.read_until(launcher, '[2@127.0.0.1] ended with code 6; the job goes on without it')
        said = self.finish(launcher)
        self.assertRegex(said, r'2@127\.0\.0\.1 lost at \S+ \(ended with code 6\), back at \d')
        self.assertNotIn('killing it', said)

    def test_a_loss_that_process_0_does_not_speak_of_ends_the_job(self):
        for line in ('', lost(1), lost(2).replace('goes on without it', 'cannot go on without it')):
            launcher, pids = self.begin('--settle=1')
            self.put('say.0', line)
            os.kill(pids[2], signal.SIGKILL)
            said = self.check_end(launcher, 137)
            self.assertIn('2@127.0.0.1 ended with code 137; stopping the others', said)
            for rank in range(3):
                (self.folder / f'pid.{rank}').unlink()

    def test_other_codes_are_failures_at_once(self):
        launcher, _ = self.begin('--settle=50', '--restart=3')
        self.put('end.2', '4')
        self.read_until(launcher, '2@127.0.0.1 ended with code 4; stopping the others')
        self.put('end', '6')
        self.check_end(launcher, 4)
        self.assertEqual([len(self.starts(rank)) for rank in range(3)], [1, 1, 1])

    def test_a_lost_process_that_does_not_end_holds_nothing_up(self):
        launcher, pids = self.begin('--settle=1')
        os.kill(pids[2], signal.SIGSTOP)
        self.put('say.0', lost(2))
        self.read_until(launcher, 'lost rank 2')
        self.assertIn('2@127.0.0.1 lost at', self.finish(launcher))
        self.assertFalse(alive(pids[2]))

    def test_a_lost_process_that_does_not_end_is_killed_and_started_again(self):
        launcher, pids = self.begin('--grace=1', '--restart=1')
        (self.folder / 'pid.2').unlink()
        os.kill(pids[2], signal.SIGSTOP)
        self.put('say.0', lost(2))
        self.read_until(launcher, '2@127.0.0.1 has not ended, and the job goes on without it')
        self.read_until(launcher, '[2@127.0.0.1] W1 table_membership.cpp:152] Iteration 5: has')
        self.pids(3)
        self.finish(launcher)


class RestartTest(LossCase):
    def test_a_lost_rank_joins_again(self):
        launcher, pids = self.begin('--restart=2', command=('--solver=s', '--exchange=TABLE'))
        ports = [line.split()[2] for line in self.machines()]
        every = ','.join(f'127.0.0.1:{port}' for port in ports)
        self.kill(pids[2], 2, 2)
        self.read_until(launcher, '2@127.0.0.1 is started again in 1 s (start 1 of --restart=2)')
        self.read_until(launcher, '[2@127.0.0.1] W1 table_membership.cpp:152] Iteration 5: has')
        again = self.pids(3)[2]
        self.assertEqual(self.starts(2)[1], 'joins --solver=s --exchange=TABLE '
                         f'--join={every} --role=both --data_part=2 --host=127.0.0.1 '
                         f'--port={ports[2]} --advertise=127.0.0.1:{ports[2]}')
        self.kill(again, 2, 22)                               # the job knows it by another rank
        self.read_until(launcher, 'in 2 s (start 2 of --restart=2)')
        self.read_until(launcher, 'has joined the job')
        self.pids(3)
        said = self.finish(launcher)
        self.assertEqual(len(re.findall(r'2@127\.0\.0\.1 lost at \S+ \(ended with code 137\), '
                                        r'back at \d\d:\d\d:\d\d\n', said)), 2, said)
        log = (self.folder / 'logs/lossy/rank.0002.err').read_text()
        self.assertEqual(re.findall('---- started again at .* ----|has joined', log),
                         re.findall('---- started again at .* ----|has joined', log)[:4])
        self.assertEqual([line.startswith('----') for line in log.splitlines()
                          if line.startswith('----') or 'has joined' in line],
                         [True, False, True, False])

    def machines(self):
        return next((self.folder / 'jobs/lossy').glob('machinefile.0')).read_text().splitlines()

    def test_a_rank_that_dies_each_time_stays_lost(self):
        launcher, pids = self.begin('--restart=2')
        self.put('die', '6')
        self.kill(pids[2], 2, 2)
        self.read_until(launcher, 'started again as often as --restart=2 permits, and stays lost')
        self.assertTrue(alive(pids[0]) and alive(pids[1]))
        said = self.finish(launcher)
        self.assertIn('ended with code 6; the job goes on without it', said)
        self.assertIn('(ended with code 137), did not come back', said)
        self.assertEqual(len(self.starts(2)), 3)

    def test_a_rank_that_was_cut_off_is_started_again(self):
        launcher, _ = self.begin('--restart=1')
        (self.folder / 'pid.2').unlink()
        self.put('say.0', lost(2))
        self.read_until(launcher, 'lost rank 2')
        self.put('end.2', '75')
        self.read_until(launcher, '2@127.0.0.1 is started again in 1 s (start 1 of --restart=1)')
        (self.folder / 'end.2').unlink()
        self.read_until(launcher, 'has joined the job')
        self.pids(3)
        self.finish(launcher)

    def test_a_rank_that_was_cut_off_and_ended_before_it_was_lost_is_started_again(self):
        launcher, _ = self.begin('--restart=3')
        (self.folder / 'pid.2').unlink()
        self.put('end.2', '75')
        self.read_until(launcher, '2@127.0.0.1 has ended with code 75: it left the job, or')
        (self.folder / 'end.2').unlink()
        self.put('say.0', lost(2) + lost(2))                  # the second by another coordinator
        self.read_until(launcher, '[2@127.0.0.1] ended with code 75; the job goes on without it')
        self.read_until(launcher, '2@127.0.0.1 is started again in 1 s (start 1 of --restart=3)')
        self.read_until(launcher, 'has joined the job')
        self.pids(3)
        said = self.finish(launcher)
        self.assertEqual(len(self.starts(2)), 2)
        self.assertEqual(said.count('is started again in'), 1)
        self.assertRegex(said, r'2@127\.0\.0\.1 lost at \S+ \(ended with code 75\), back at \d')
        self.assertEqual(said.count('2@127.0.0.1 lost at'), 1)

    def test_what_the_user_is_to_mend_is_not_started_again(self):
        launcher, pids = self.begin('--restart=2')
        self.put('die', '3')
        self.kill(pids[2], 2, 2)
        self.read_until(launcher, 'is not started again: code 3 is for its user to mend')
        self.finish(launcher)
        self.assertEqual(len(self.starts(2)), 2)

    def test_an_interrupt_ends_the_wait_for_a_restart(self):
        launcher, pids = self.begin('--restart=5')
        self.put('die', '6')
        self.kill(pids[2], 2, 2)
        self.read_until(launcher, 'is started again in 4 s (start 3 of --restart=5)')
        launcher.send_signal(signal.SIGINT)
        self.check_end(launcher, 0)
        self.assertEqual(len(self.starts(2)), 3)
        self.assertFalse(any(map(alive, pids)))

    def test_the_jobs_end_ends_the_wait_for_a_restart(self):
        launcher, pids = self.begin('--restart=5')
        self.put('die', '6')
        self.kill(pids[2], 2, 2)
        self.read_until(launcher, 'is started again in 4 s (start 3 of --restart=5)')
        self.finish(launcher)
        self.assertEqual(len(self.starts(2)), 3)


class WholeJobTest(LossCase):
    def end_all(self, launcher, pids):
        os.kill(pids[0], signal.SIGKILL)
        self.read_until(launcher, '; stopping the others')    # another may be seen to end first

    def test_the_loss_of_process_0_starts_all_again(self):
        launcher, pids = self.begin('--restart=1', command=('--solver=s',))
        for rank in range(3):
            (self.folder / f'pid.{rank}').unlink()
        self.end_all(launcher, pids)
        self.read_until(launcher, 'the whole job is started again in 1 s (start 1 of --restart=1)')
        again = self.pids(3)
        self.kill(again[2], 2, 2)                             # it has been started again once
        self.read_until(launcher, '2@127.0.0.1 has been started again as often as --restart=1')
        for rank in range(3):
            self.assertRegex(self.starts(rank)[1],
                             '^founds --solver=s --snapshot=auto --machinefile=.* '
                             f'--client_id={rank}$')
        self.end_all(launcher, again)
        said = self.check_end(launcher, 137)
        self.assertIn('the first to fail was 0@127.0.0.1, with code 137', said)
        self.assertRegex(said, r'the whole job lost at \S+ \(0@127\.0\.0\.1 ended with code 137\), '
                               r'back at \d')
        self.assertEqual([len(self.starts(rank)) for rank in range(3)], [2, 2, 2])

    def test_a_job_that_ends_well_after_a_restart_ends_with_0(self):
        launcher, pids = self.begin('--restart=1', command=('--snapshot=auto',))
        for rank in range(3):
            (self.folder / f'pid.{rank}').unlink()
        self.end_all(launcher, pids)
        self.pids(3)
        self.assertEqual(self.starts(0)[1].count('--snapshot'), 1)
        self.finish(launcher)
        log = (self.folder / 'logs/lossy/rank.0001.err').read_text()
        self.assertRegex(log, r'^---- started again at .* ----\n')

    def test_without_restart_or_after_a_users_mistake_nothing_starts_again(self):
        for words, code in (((), 137), (('--restart=3',), 9)):
            launcher, pids = self.begin('--settle=4', *words)
            if code == 9:
                self.put('end.0', '9')
            else:
                os.kill(pids[0], signal.SIGKILL)
            said = self.check_end(launcher, code)
            self.assertNotIn('started again', said)
            for rank in range(3):
                (self.folder / f'pid.{rank}').unlink()

    def test_an_interrupt_ends_the_wait(self):
        launcher, pids = self.begin('--restart=4')
        for seconds in (1, 2, 4):
            for rank in range(3):
                (self.folder / f'pid.{rank}').unlink()
            self.end_all(launcher, pids)
            self.read_until(launcher, f'the whole job is started again in {seconds} s')
            if seconds < 4:
                pids = self.pids(3)
        launcher.send_signal(signal.SIGINT)
        self.assertIn('interrupted; the job is not started again', self.check_end(launcher, 137))
        self.assertEqual(len(self.starts(0)), 3)

    def test_fewer_than_no_restarts_are_refused(self):
        code, said = self.end(self.start('--restart=-1'))
        self.assertEqual(code, 2)
        self.assertIn('--restart=-1: from 0 up', said)


class UnitTest(unittest.TestCase):
    def test_pauses_grow_and_shrink_after_a_good_life(self):
        pause = Pause()
        self.assertEqual([pause.take(0) for _ in range(9)], [1, 2, 4, 8, 16, 32, 60, 60, 60])
        self.assertEqual([pause.take(59), pause.take(61), pause.take(130)], [60, 30, 15])
        self.assertEqual([pause.take(3600), pause.take(0)], [1, 2])

    def test_the_flags_of_a_process_that_joins(self):
        text = ('[::1] port=7\nb port=8 role=server iface=eth0 data=x gpus=1,2\n'
                'c port=9 role=worker\n')
        first, second, third = read_machinefile(text, 'm')
        every = [first, second, third]
        self.assertEqual(words_to_join(['train'], second, every),
                         ['train', '--join=[::1]:7,b:8', '--role=server', '--data_part=x',
                          '--interface=eth0', '--port=8', '--advertise=b:8', '--gpu=1,2'])
        given = ['train', '-port_range=1-5', '--role', 'both']
        self.assertEqual(words_to_join(given, third, every),
                         [*given, '--join=[::1]:7,b:8', '--data_part=2', '--host=c'])
        self.assertEqual(SimpleNamespace(**second.keys).iface, 'eth0')


if __name__ == '__main__':
    unittest.main()
