"""Copies what a job needs to its hosts before it starts: one rsync a host, or scp where either end has no rsync. A path keeps its place
under the job's folder. Hosts that run in this very folder (this machine, a shared file system) are left alone."""
import concurrent.futures
import os
import secrets
import shlex
import shutil
import subprocess
import time
from pathlib import Path

from machinefile import UsageError

# Given: the job's folder, a marker, folders to make in it. Says "same" if the marker is there already, else which program is.
PREPARE = r'''
mkdir -p -- "$1" && cd -- "$1" || exit
[ -e "$2" ] && { echo same; exit; }
shift 2
for d in "$@"; do mkdir -p -- "$d" || exit; done
command -v rsync > /dev/null && echo rsync || echo scp
'''


class CopyError(Exception):
    """A host that could not be given its files; exit code 1."""


def paths_of(text, left_out):
    """--sync's words as paths under this folder; "." is all that lies in it, but for the logs."""
    here, paths = Path.cwd().resolve(), []
    for word in filter(None, text.split(',')):
        if not os.path.exists(word):
            raise UsageError(f'--sync: there is no {word} here')
        path = os.path.relpath(os.path.join(Path(word).parent.resolve(), Path(word).name) if Path(word).name else Path(word).resolve(), here)
        if path.split(os.sep)[0] == os.pardir:
            raise UsageError(f'--sync: {word} is not under {here}; start from a folder that holds all that is copied')
        paths += sorted(p for p in os.listdir(here) if p != left_out) if path == os.curdir else [path]
    if not paths:
        raise UsageError('--sync= names nothing to copy')
    return list(dict.fromkeys(paths))


def copy_commands(hosts, process, folder, paths, program):
    """The command lines that bring `paths` to the process's host."""
    at = f'[{process.host}]' if ':' in process.host else process.host
    target = f'{process.keys["user"]}@{at}' if 'user' in process.keys else at
    if program == 'rsync':
        shell = shlex.join(['ssh', *hosts.ssh_options(process, '-p')])
        return [['rsync', '-aLRs', '-e', shell, '--', *paths, f'{target}:{folder}/']]
    by_folder = {}
    for path in paths:
        by_folder.setdefault(os.path.dirname(path), []).append(path)
    return [['scp', '-q', '-r', '-p', *hosts.ssh_options(process, '-P'), '--', *(f'./{p}' for p in some),
             f'{target}:{os.path.join(folder, inner, "")}'] for inner, some in by_folder.items()]


def copy_to(hosts, process, folder, paths, marker, deadline):
    """What was done, in words. All copies to the host end within `deadline` seconds."""
    end = time.monotonic() + deadline
    inner = sorted({os.path.dirname(p) for p in paths} - {''})
    code, said, complaint = hosts.run(process, PREPARE, [folder, marker, *inner], timeout=hosts.connect_timeout + 30)
    if code != 0:
        last = (complaint.strip().splitlines() or ['no answer'])[-1]
        raise CopyError(f'{process.host}: cannot make {folder} there over ssh: {last}')
    there = said.strip()
    if there == 'same':
        return f'{process.host} has this folder already'
    program = 'rsync' if there == 'rsync' and shutil.which('rsync') else 'scp'
    for command in copy_commands(hosts, process, folder, paths, program):
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors='replace',
                                  timeout=max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise CopyError(f'{process.host}: {program} was not done after {deadline:g} s (--sync_timeout), and was ended: the network, the disk or '
                            f'the host hangs, or there is much to copy\n    {shlex.join(command)}') from None
        except OSError as error:
            raise CopyError(f'{process.host}: {command[0]}: {error.strerror}; install rsync or scp on this machine') from None
        if done.returncode != 0:
            words = (done.stderr.strip().splitlines() or ['it said nothing'])[-1]
            raise CopyError(f'{process.host}: {program} ended with code {done.returncode}: {words}\n    {shlex.join(command)}')
    return f'{len(paths)} path{"" if len(paths) == 1 else "s"} copied to {process.host}:{folder} with {program}'


def sync(hosts, processes, folder, paths, deadline, show):
    """Each remote host once, within `deadline` seconds. True if all of them have the files."""
    remote = list({p.host: p for p in processes if not hosts.is_local(p)}.values())
    if not remote:
        show('launch: --sync: all processes run here; nothing to copy\n')
        return True
    if not deadline > 0:
        raise UsageError(f'--sync_timeout={deadline:g}: seconds, above 0')
    marker, well = Path(f'.shoal-sync-{secrets.token_hex(8)}'), True
    try:
        marker.touch()
    except OSError as error:
        raise UsageError(f'--sync: cannot write here: {error.strerror}') from None
    try:
        with concurrent.futures.ThreadPoolExecutor(min(16, len(remote))) as pool:
            for future in [pool.submit(copy_to, hosts, p, folder, paths, marker.name, deadline) for p in remote]:
                try:
                    show(f'launch: {future.result()}\n')
                except CopyError as error:
                    well = False
                    show(f'launch: not copied to {error}\n')
    finally:
        marker.unlink(missing_ok=True)
    if not well:
        show('launch: nothing was started\n')
    return well
