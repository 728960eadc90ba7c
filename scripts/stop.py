#!/usr/bin/env python3
"""Stops the processes of jobs: those that a launcher left behind, or those of a machinefile, however they were started.

  scripts/stop.py               lists the jobs that were started from this account and not ended
  scripts/stop.py --job=NAME    SIGTERM to its processes (the trainer writes a snapshot), SIGKILL after --grace seconds
  scripts/stop.py --job=NAME --rank=K    the same to one process: a worker leaves the job, which goes on
  scripts/stop.py --all         the same for all of them
  scripts/stop.py --machinefile=FILE          the same on the machines of FILE, for a job that no launcher here started
  scripts/stop.py --machinefile=FILE --look   only lists its processes

A process is known by its number and the time of its start, as its launcher wrote them down; one that has the number of another by
chance is left alone. With --machinefile it is known by its program (train, extract_features), your account, and its own words or
variables: a machinefile that is FILE or says the same, or --join or --master with the address of the job's process 0."""
import argparse
import concurrent.futures
import hashlib
import json
import os
import sys
from pathlib import Path

from machinefile import UsageError, address_text, machinefile_text, one_name, read_machinefile
from machines import JOB, Hosts, add_ssh_flags, jobs_folder, main_of

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

# Given: grace, "look" or "stop", the machinefile's path, its checksums, the address of process 0. A line for each process of that job.
OF_MACHINEFILE = r'''
grace=$1 what=$2 path=$3 sums=$4 address=$5
words() { tr '\0' '\n' < "/proc/$1/cmdline"; }
started() { cut -d ' ' -f 22 "/proc/$1/stat" 2>/dev/null; }
alive() { [ "$(started "${1%:*}")" = "${1#*:}" ] && [ "$(cut -d ' ' -f 3 "/proc/${1%:*}/stat")" != Z ]; }
is_tool() {
  [ -O "/proc/$1" ] && program=$(readlink "/proc/$1/exe" 2>/dev/null) || return 1
  program=${program% (deleted)}; called=$(words "$1" | head -n 1)
  case " train extract_features " in *" ${program##*/} "*|*" ${called##*/} "*) ;; *) return 1;; esac
}
of_job() {
  machines= next=
  while IFS= read -r word; do
    [ -z "$next" ] || { machines=$word next=; continue; }
    case $word in
      --machinefile|-machinefile|--hostfile|-hostfile) next=1;;
      --machinefile=*|-machinefile=*|--hostfile=*|-hostfile=*) machines=${word#*=};;
      --join="$address"*|-join="$address"*|--master="$address"|-master="$address") return 0;;
    esac
  done <<WORDS
$(tr '\0' '\n' < "/proc/$1/environ" | sed -n 's/^SHOAL_\(MACHINEFILE\|HOSTFILE\)=/--machinefile=/p'; words "$1")
WORDS
  case $machines in '') return 1;; /*) file=$machines;; *) file=/proc/$1/cwd/$machines;; esac
  [ "$file" -ef "$path" ] && return 0
  sum=$(sha256sum < "$file" | cut -c 1-64) && case " $sums " in *" $sum "*) ;; *) return 1;; esac
}
found=
for d in /proc/[0-9]*; do
  pid=${d#/proc/}
  is_tool "$pid" && of_job "$pid" && found="$found $pid:$(started "$pid")"
done 2>/dev/null
for p in $found; do
  if [ "$what" = look ]; then echo "running ${p%:*} $(words "${p%:*}" | tr '\n' ' ')"
  else kill -s TERM "${p%:*}" 2>/dev/null; fi
done
[ "$what" = stop ] || exit 0
for p in $found; do
  end=stopped
  while alive "$p"; do
    [ "$grace" -gt 0 ] || { kill -s KILL "${p%:*}"; end=killed; break; }
    sleep 0.2; tick=$((${tick:-0} + 1)); [ $((tick % 5)) -ne 0 ] || grace=$((grace - 1))
  done 2>/dev/null
  echo "$end ${p%:*}"
done
'''


def stop_machines(args):
    """On all machines at one time, as process 0 takes the others with it: one line a process, and the exit code."""
    try:
        text = Path(args.machinefile).read_bytes()
    except OSError as error:
        raise UsageError(f'--machinefile: {error.filename}: {error.strerror}') from None
    processes = read_machinefile(text.decode('utf-8', 'surrogateescape'), args.machinefile)
    hosts = Hosts(args.ssh_port, args.ssh_identity, args.ssh_args, args.force_ssh)
    sums = ' '.join(hashlib.sha256(t).hexdigest() for t in (text, machinefile_text(processes).encode('utf-8', 'surrogateescape')))
    arguments = [args.grace, 'look' if args.look else 'stop', os.path.abspath(args.machinefile), sums,
                 address_text(processes[0].host, processes[0].port)]
    machines = list({one_name(p.host): p for p in processes}.values())
    with concurrent.futures.ThreadPoolExecutor(min(64, len(machines))) as pool:
        answers = pool.map(lambda p: hosts.run(p, OF_MACHINEFILE, arguments, timeout=args.grace + 60), machines)
        reached = True
        for machine, (code, said, complaint) in zip(machines, answers):
            reached = reached and code == 0
            lines = said.splitlines() if code == 0 else ['not reached: ' + complaint.strip()]
            print('\n'.join(f'  {machine.host}: {line}' for line in lines or ['nothing of this job runs']))
    return 0 if reached else 1


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
    parser.add_argument('--job', default='', metavar='NAME', help='the job to stop; without it, all known jobs are listed')
    parser.add_argument('--all', action='store_true', help='stop all known jobs')
    parser.add_argument('--rank', type=int, metavar='K', help='with --job: stop this process only')
    parser.add_argument('--grace', type=int, default=30, metavar='SECONDS', help='time until processes that still run are killed; default: %(default)s')
    parser.add_argument('--machinefile', '--hostfile', metavar='FILE', help='stop the job of this machinefile on all its machines')
    parser.add_argument('--look', action='store_true', help='with --machinefile: stop nothing')
    add_ssh_flags(parser)
    args = parser.parse_args()
    if args.machinefile and (args.job or args.all):
        raise UsageError('--machinefile=FILE finds a job by itself: give it without --job and --all')
    if args.look and not args.machinefile:
        raise UsageError('--look goes with --machinefile=FILE; without either, all known jobs are listed')
    if args.machinefile:
        return stop_machines(args)
    if args.rank is not None and not args.job:
        raise UsageError(f'--rank={args.rank} needs --job=NAME, the job of that rank')
    if args.job and not JOB.fullmatch(args.job):
        raise UsageError(f'--job={args.job} is not the name of a job')
    records = sorted(jobs_folder().glob(f'{args.job or "*"}.json'))
    if not records:
        raise UsageError(f'no job {args.job} is known in {jobs_folder()}' if args.job else f'no job is known in {jobs_folder()}')
    stop, reached = bool(args.job or args.all), True
    for path in records:
        try:
            record = json.loads(path.read_text())
            print(f'{record["job"]}: {" ".join(record["command"])}')
        except (ValueError, KeyError, TypeError):
            print(f'{path}: this record of a job is damaged; remove it', file=sys.stderr)
            reached = False
            continue
        all_reached = visit(record, 'stop' if stop else 'look', args.grace, args.rank)
        reached = reached and all_reached
        if stop and all_reached and args.rank is None:
            path.unlink(missing_ok=True)     # launch.py, which now ends, removes it too
    return 0 if reached else 1


if __name__ == '__main__':
    main_of(main)
