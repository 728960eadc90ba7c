#!/usr/bin/env python3
"""Stops the processes of jobs that a launcher left behind: on every host, those that it started and no others.

  scripts/stop.py               lists the jobs that were started from this account and not ended
  scripts/stop.py --job=NAME    SIGTERM to its processes (the trainer writes a snapshot), SIGKILL after --grace seconds
  scripts/stop.py --job=NAME --rank=K    the same to one process: a worker leaves the job, which goes on
  scripts/stop.py --all         the same for all of them

A process is known by its number and the time of its start, as its launcher wrote them down; one that has the number of another by
chance is left alone."""
import argparse
import json
import sys

from machinefile import UsageError, read_machinefile
from machines import JOB, Hosts, jobs_folder, main_of

# Given: job, rank, grace, and "look" or "stop". Says what it found in one word.
SCRIPT = r'''
folder=${SHOAL_JOBS:-$HOME/.shoal/jobs}/$1; file=$folder/$2.pid
read -r pid start 2>/dev/null < "$file" || { echo none; exit; }
alive() { [ -n "$start" ] && [ "$(cut -d ' ' -f 22 "/proc/$pid/stat" 2>/dev/null)" = "$start" ]; }
finish() { rm -f "$file" "$folder/machinefile.$2"; rmdir "$folder" 2>/dev/null; }
alive || { [ "$4" = stop ] && finish "$@"; echo gone; exit; }
[ "$4" = stop ] || { echo "running $pid"; exit; }
kill -s TERM -- "-$pid"
for i in $(seq "$(($3 * 5))"); do alive || { finish "$@"; echo stopped; exit; }; sleep 0.2; done
kill -s KILL -- "-$pid"
finish "$@"
echo killed
'''


def visit(record, what, grace, rank=None):
    """One line a process; whether all could be reached."""
    hosts, reached = Hosts(**record['ssh']), True
    for process in read_machinefile(record['machinefile'], record['job']):
        if rank not in (None, process.rank):
            continue
        code, said, complaint = hosts.run(process, SCRIPT, [record['job'], process.rank, grace, what], timeout=grace + 30)
        reached = reached and code == 0
        print(f'  {process.name}: {said.strip() if code == 0 else "not reached: " + complaint.strip()}')
    return reached


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument('--job', default='')
    parser.add_argument('--all', action='store_true')
    parser.add_argument('--rank', type=int, metavar='K')
    parser.add_argument('--grace', type=int, default=30, metavar='SECONDS')
    args = parser.parse_args()
    if args.rank is not None and not args.job:
        raise UsageError(f'--rank={args.rank} is of one job: give --job=NAME too')
    if args.job and not JOB.match(args.job):
        raise UsageError(f'--job={args.job} is not the name of a job')
    records = sorted(jobs_folder().glob(f'{args.job or "*"}.json'))
    if not records:
        raise UsageError(f'no job {args.job} is known in {jobs_folder()}' if args.job else f'no job is known in {jobs_folder()}')
    stop, reached = bool(args.job or args.all), True
    for path in records:
        record = json.loads(path.read_text())
        print(f'{record["job"]}: {" ".join(record["command"])}')
        all_reached = visit(record, 'stop' if stop else 'look', args.grace, args.rank)
        reached = reached and all_reached
        if stop and all_reached and args.rank is None:
            path.unlink()
    return 0 if reached else 1


if __name__ == '__main__':
    main_of(main)
