"""Machines of a job as launch.py and stop.py see them: the machinefile, a shell on each host, and where a job's records lie."""
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_PORT = 29600
KEYS = ('slots', 'max_slots', 'port', 'ssh_port', 'user', 'gpus', 'group', 'data', 'iface', 'weight', 'role')
HERE = ('localhost', '127.0.0.1', '::1')


class UsageError(Exception):
    """What the user can mend: said in one line, exit code 2."""


@dataclass
class Process:
    rank: int
    host: str
    port: int
    line: int
    keys: dict = field(default_factory=dict)

    @property
    def name(self):
        return f'{self.rank}@{self.host}'


def parse_line(text, where):
    words = text.split()
    if len(words) >= 3 and words[0].isdigit():
        rank, host, port, rest = int(words[0]), words[1], words[2], words[3:]
    else:
        rank, host, port, rest = None, words[0], None, words[1:]
    keys = {}
    for word in rest:
        key, equals, value = word.partition('=')
        if not equals or key not in KEYS:
            raise UsageError(f'{where}: "{word}" is not one of {", ".join(k + "=" for k in KEYS)}')
        keys[key] = value
    host = host[1:-1] if host.startswith('[') and host.endswith(']') else host
    if port is None and host.count(':') == 1:
        raise UsageError(f'{where}: "{host}" is ambiguous; write "{host.split(":")[0]} ssh_port=N" or "{host.split(":")[0]} slots=N"')
    if port is None:
        port = keys.get('port', str(DEFAULT_PORT))
    if not port.isdigit() or not 1 <= int(port) <= 65535:
        raise UsageError(f'{where}: port {port} is not from 1 to 65535')
    return rank, host, int(port), keys


def read_machinefile(text, name):
    """The processes of a machinefile in the order of their ranks: the grammar of docs/formats.md."""
    processes, taken, ranked = [], {}, None
    for number, line in enumerate(text.lstrip('\ufeff').splitlines(), 1):
        line = line.partition('#')[0].strip()
        if not line:
            continue
        rank, host, port, keys = parse_line(line, f'{name}:{number}')
        if ranked is not None and ranked != (rank is not None):
            raise UsageError(f'{name}:{number}: either every line has an id, or none has')
        ranked = rank is not None
        for slot in range(int(keys.get('slots', '1'))):
            at = port + slot
            while not ranked and 'port' not in keys and (host, at) in taken:
                at += 1                                       # a host named again
            if (host, at) in taken:
                raise UsageError(f'{name}: lines {taken[host, at]} and {number} both have {host} port {at}')
            processes.append(Process(rank if ranked else len(processes), host, at, number, keys))
            taken[host, at] = number
    if not processes:
        raise UsageError(f'{name} names no machine')
    processes.sort(key=lambda p: p.rank)
    for want, process in enumerate(processes):
        if process.rank != want:
            what = 'twice' if process.rank < want else f'but not {want}'
            raise UsageError(f'{name}:{process.line}: id {process.rank} is there {what}; ids must be 0 to {len(processes) - 1}')
    return processes


def machinefile_text(processes):
    """One line a process, with its id: what every process of the job reads."""
    lines = []
    for p in processes:
        host = f'[{p.host}]' if ':' in p.host else p.host
        keys = ''.join(f' {k}={v}' for k, v in p.keys.items() if k not in ('slots', 'max_slots', 'port'))
        lines.append(f'{p.rank} {host} {p.port}{keys}\n')
    return ''.join(lines)


class Hosts:
    """Runs shell scripts on the hosts of a job: by ssh, or without it on this machine."""

    def __init__(self, ssh_port=None, identity='', ssh_args='', force_ssh=False, connect_timeout=10):
        self.ssh_port, self.identity, self.ssh_args = ssh_port, identity, ssh_args
        self.force_ssh, self.connect_timeout = force_ssh, connect_timeout

    def is_local(self, process):
        return process.host in HERE and not self.force_ssh

    def command(self, process, script, arguments=()):
        """The argument list that runs `script`, for sh, with its positional arguments, on the process's host."""
        words = ['sh', '-c', script, 'shoal', *map(str, arguments)]
        if self.is_local(process):
            return words
        port = process.keys.get('ssh_port') or self.ssh_port
        user = process.keys.get('user')
        return ['ssh', '-o', 'BatchMode=yes', '-o', f'ConnectTimeout={self.connect_timeout}', '-o', 'ServerAliveInterval=5',
                '-o', 'ServerAliveCountMax=3', *(['-p', str(port)] if port else []), *(['-i', self.identity] if self.identity else []),
                *shlex.split(self.ssh_args), f'{user}@{process.host}' if user else process.host, ' '.join(map(shlex.quote, words))]

    def run(self, process, script, arguments=(), given='', timeout=30):
        """Runs to the end. (code, output, complaints); code None: no answer in time."""
        try:
            done = subprocess.run(self.command(process, script, arguments), input=given, capture_output=True, text=True, timeout=timeout)
            return done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired:
            return None, '', f'no answer in {timeout} s'

    def options(self):
        """For a job's record, so that stop.py reaches the same hosts."""
        return {'ssh_port': self.ssh_port, 'identity': self.identity, 'ssh_args': self.ssh_args, 'force_ssh': self.force_ssh}


def jobs_folder():
    return Path(os.environ.get('SHOAL_JOBS', Path.home() / '.shoal' / 'jobs'))


def add_ssh_flags(parser):
    parser.add_argument('--ssh_port', type=int, help="port of every host's sshd, unless its line says ssh_port=")
    parser.add_argument('--ssh_identity', default='', metavar='FILE', help='private key')
    parser.add_argument('--ssh_args', default='', metavar='WORDS', help='more arguments for ssh, "-o X=Y -J jump"')
    parser.add_argument('--force_ssh', action='store_true', help='use ssh for localhost too')


def main_of(body):
    """Runs body(), turning what the user can mend into one line and exit code 2."""
    try:
        sys.exit(body())
    except UsageError as error:
        print(f'{Path(sys.argv[0]).name}: {error}', file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(141)


JOB = re.compile(r'^[\w.-]+$')
