"""Machines of a job as launch.py and stop.py see them: a shell on each host, and where a job's records lie."""
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from machinefile import UsageError

HERE = ('localhost', '127.0.0.1', '::1')


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
        user = process.keys.get('user')
        return ['ssh', *self.ssh_options(process, '-p'), f'{user}@{process.host}' if user else process.host, ' '.join(map(shlex.quote, words))]

    def ssh_options(self, process, port_flag):
        """Those of ssh, or of scp, which calls its port's flag -P. Of an option that is given twice ssh takes the first."""
        port = process.keys.get('ssh_port') or self.ssh_port
        return [*shlex.split(self.ssh_args), '-o', 'BatchMode=yes', '-o', f'ConnectTimeout={self.connect_timeout}', '-o', 'ServerAliveInterval=5',
                '-o', 'ServerAliveCountMax=3', *([port_flag, str(port)] if port else []),
                *(['-i', self.identity] if self.identity else [])]

    def run(self, process, script, arguments=(), given='', timeout=30):
        """Runs to the end. (code, output, complaints); code None: no answer in time."""
        try:
            done = subprocess.run(self.command(process, script, arguments), input=given, capture_output=True, text=True, errors='replace',
                                  timeout=timeout)
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
    parser.add_argument('--ssh_identity', default='', metavar='FILE', help='file of the private key for ssh')
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
    except OSError as error:
        print(f'{Path(sys.argv[0]).name}: {error.filename}: {error.strerror}' if error.filename else f'{Path(sys.argv[0]).name}: {error}',
              file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


JOB = re.compile(r'\w[\w.-]*')
