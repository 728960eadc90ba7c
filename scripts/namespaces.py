"""Network namespaces in the place of a job's machines. They need root and the program ip."""
import os
import subprocess
from pathlib import Path

from machinefile import UsageError

PORT = 7100
# Stands for ssh: runs what launch.py has for an address in the namespace that has the address.
SSH = r'''#!/bin/sh
while case $1 in -*) ;; *) false ;; esac; do shift 2; done
machine=$((${1##*.} - 1))
shift
exec ip netns exec "NAME$machine" sh -c "$*"
'''


def ip(*words):
    try:
        done = subprocess.run(['ip', *words], stderr=subprocess.PIPE, text=True)
        complaint = done.stderr.strip() if done.returncode else ''
    except FileNotFoundError:
        complaint = 'there is no such program (Debian: apt-get install iproute2)'
    if complaint:
        raise UsageError('network namespaces, which need root and the program ip, cannot be had: '
                         f'ip {" ".join(words)}: {complaint}')


class Namespaces:
    """Machine k has the card eth0 with the address 10.78.0.(k + 1). All are gone behind `with`."""

    def __init__(self, name, machines):
        self.name, self.machines, self.made = f'{name}{os.getpid()}-', machines, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in self.made:
            subprocess.run(['ip', 'netns', 'del', name], check=False)

    @staticmethod
    def address(k):
        return f'10.78.0.{k + 1}'

    def starter(self, k):
        return ['ip', 'netns', 'exec', self.name + str(k)]

    def add(self, name):
        """Makes an empty one, and returns its full name."""
        ip('netns', 'add', self.name + name)
        self.made.append(self.name + name)
        return self.made[-1]

    def add_machine(self, k, port, hub=None):
        """Makes machine k. The other end of its card is `port`, in the namespace `hub` or in that
        of this program, and is down."""
        name = self.add(str(k))
        ip(*(['-n', hub] if hub else []), 'link', 'add', port, 'type', 'veth',
           'peer', 'name', 'eth0', 'netns', name)
        ip('-n', name, 'addr', 'add', self.address(k) + '/24', 'dev', 'eth0')
        for card in ('eth0', 'lo'):
            ip('-n', name, 'link', 'set', card, 'up')

    def write_machinefile(self, folder):
        path = Path(folder) / 'machines'
        path.write_text(''.join(f'{k} {self.address(k)} {PORT}\n' for k in range(self.machines)))
        return path

    def write_ssh(self, folder):
        """Returns a folder that in front of PATH has launch.py start processes in namespaces."""
        path = Path(folder).resolve() / 'bin/ssh'
        path.parent.mkdir(exist_ok=True)
        path.write_text(SSH.replace('NAME', self.name))
        path.chmod(0o755)
        return path.parent


class Bridge(Namespaces):
    """A bridge in a namespace of its own connects the machines."""

    def __enter__(self):
        try:
            self.hub = self.add('hub')
            ip('-n', self.hub, 'link', 'add', 'bridge0', 'type', 'bridge')
            ip('-n', self.hub, 'link', 'set', 'bridge0', 'up')
            for k in range(self.machines):
                self.add_machine(k, f'port{k}', self.hub)
                ip('-n', self.hub, 'link', 'set', f'port{k}', 'master', 'bridge0')
                self.set_link(k, 'up')
        except BaseException:
            self.__exit__()
            raise
        return self

    def set_link(self, k, state):
        """Cuts machine k off ('down'), or connects it again ('up')."""
        ip('-n', self.hub, 'link', 'set', f'port{k}', state)
